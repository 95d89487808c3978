"""Slurm's rule where reservations are of particular nodes, from docs/reference/rules/backfills.md."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from hpctwin.model import MS_PER_S
from tests.reference.jobs import Job
from tests.reference.passes import Simulation
from tests.reference.plan import Plan

FOR_EVER = 2**62


@dataclass(frozen=True)
class Reserved:
    """Nodes that are reserved from a time to another."""

    begin: int
    end: int
    nodes: frozenset[int]


class ByNode(Simulation):
    """Jobs get particular nodes, chosen with what is reserved in mind."""

    picked: list[int]

    def take_nodes(self, job: Job, split: dict[int, int]) -> None:
        job.nodes = sorted(self.picked)
        assert len(job.nodes) == job.width
        for node in job.nodes:
            assert self.machine.job_on[node] is None
            self.machine.job_on[node] = job

    def look(self, queue: list[Job], plan: Plan) -> None:
        looked: Counter[int] = Counter()
        over: set[int] = set()  # partitions
        blocked: set[int] = set()  # pools
        for job in queue:
            if job.partition in over:
                continue
            looked[job.partition] += 1
            if 0 < self.settings["partition_job_depth"] < looked[job.partition]:
                continue
            if self.skipped(job) or self.start_if_clear(job, [], blocked):
                continue
            if self.now - job.eligible >= self.settings["bf_min_age_reserve"]:
                over.add(job.partition)
                blocked |= set(job.pools)

    def fill(self, queue: list[Job]) -> None:
        of = self.settings
        tried: Counter[int] = Counter()  # of each user
        handed_out: Counter[int] = Counter()  # in each partition
        reserved: list[Reserved] = []
        started = 0
        for job in queue:
            if self.skipped(job):
                continue
            if 0 < of["bf_max_job_user"] <= tried[job.user] and job.user >= 0:
                continue
            if tried.total() == of["bf_max_job_test"]:
                return
            tried[job.user] += 1
            if self.start_if_clear(job, reserved, set()):
                started += 1
                if started == of["bf_max_job_start"]:
                    return
                continue
            if self.now - job.eligible < of["bf_min_age_reserve"]:
                continue
            if 0 < of["bf_job_part_count_reserve"] <= handed_out[job.partition]:
                continue
            handed_out[job.partition] += 1
            found = self.soonest(job, reserved)
            if found is not None:
                reserved.append(found)

    def start_if_clear(self, job: Job, reserved: list[Reserved], blocked: set[int]) -> bool:
        clear, _ = self.clear(job, self.now, reserved, blocked)
        free = [node for node in clear if self.machine.job_on[node] is None]
        if len(free) < job.width:
            return False
        self.picked = runs_of(free, job.width)
        pool_of = {n: p for p, pool in enumerate(self.machine.pools) for n in pool.nodes}
        split = Counter(pool_of[node] for node in self.picked)
        self.begin(job, dict(sorted(split.items())))
        return True

    def clear(
        self, job: Job, since: int, reserved: list[Reserved], blocked: set[int]
    ) -> tuple[set[int], int | None]:
        """Nodes in no reservation, nor in maintenance, while the job would run; when one may come back."""
        until = since + job.expected
        pools = [p for p in job.pools if p not in blocked]
        may = {node for pool in pools for node in self.machine.up(pool)}
        cuts = {t for r in reserved for t in (r.begin, r.end)} | {self.now, FOR_EVER}
        times = sorted(cuts)
        spans = [
            (b, e, may - {n for r in reserved if r.begin <= b < r.end for n in r.nodes})
            for b, e in pairwise(times)
        ]
        left = set(may)
        later = None
        for i, (begin, end, nodes) in enumerate(spans):
            if end <= since:
                continue
            if later is None and i + 1 < len(spans) and spans[i + 1][2] - (left & nodes):
                later = end
            if begin > until:
                break
            left &= nodes
        for pool in range(len(self.machine.pools)):
            for start, end in self.machine.pools[pool].maintenance:
                if start < until and end > max(since, self.now):
                    left -= set(self.machine.pools[pool].nodes)
                    later = end if later is None else min(later, end)
        return left, later

    def soonest(self, job: Job, reserved: list[Reserved]) -> Reserved | None:
        """What is reserved for a job that cannot start now; None for nothing."""
        of = self.settings
        step = of["bf_resolution"]
        since = self.now
        while True:
            clear, later = self.clear(job, since, reserved, set())
            time, nodes = self.free_by(job.width, clear)
            if time is not None:
                time = max(time, since)
                if later is None or time <= later:
                    if time > self.now + of["bf_window"]:
                        return None
                    begin, end = self.span(job, time)
                    picked = frozenset(runs_of(nodes, job.width))
                    if not self.overlaps(picked, begin, end, reserved):
                        return Reserved(begin, end, picked)
                    later = time if time > since else since + step
            if later is None:
                return None
            since = later

    def overlaps(
        self, nodes: frozenset[int], begin: int, end: int, reserved: list[Reserved]
    ) -> bool:
        away = [
            Reserved(start, over, frozenset(pool.nodes))
            for pool in self.machine.pools
            for start, over in pool.maintenance
        ]
        return any(r.begin < end and r.end > begin and r.nodes & nodes for r in reserved + away)

    def free_by(self, width: int, clear: set[int]) -> tuple[int | None, list[int]]:
        """When so many of some nodes will be free, and which these are."""
        on = self.machine.job_on
        nodes = [node for node in clear if on[node] is None]
        if len(nodes) >= width:
            return self.now, nodes
        ends = {}
        for node, job in enumerate(on):
            if job is not None and job.start is not None:
                end = job.start + job.expected
                ends[node] = end if end > self.now else self.now + MS_PER_S
        for time in sorted(set(ends.values())):
            nodes += [node for node, end in ends.items() if end == time and node in clear]
            if len(nodes) >= width:
                return time, nodes
        return None, []


def runs_of(nodes: list[int], width: int) -> list[int]:
    """The shortest sufficient run of numbers; else the longest first."""
    runs: list[list[int]] = []
    for node in sorted(nodes):
        if runs and runs[-1][-1] == node - 1:
            runs[-1].append(node)
        else:
            runs.append([node])
    found: list[int] = []
    while len(found) < width:
        wanted = width - len(found)
        enough = [run for run in runs if len(run) >= wanted]
        best = min(enough, key=len) if enough else max(runs, key=len)  # the first of equals
        runs.remove(best)
        found += best[:wanted]
    return found
