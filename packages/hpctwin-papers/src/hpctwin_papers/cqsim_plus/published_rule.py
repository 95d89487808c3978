"""CQSim+'s rule as a plain simulation; reproduces its tables to the digit.

Source: the behavior of CQSim and CQSim+ (github.com/SPEAR-UIC/CQSim), facts only. The rule is FCFS
    with
EASY backfilling, with three differences (docs/evidence/facility.md):

- The head job and backfill candidates are planned with their true runtimes, running jobs with their
  walltimes.
- A pass follows each single event, not all events of an event time. So between two ends at one
  time, a job may be backfilled that fits after the first end alone.
- SGS-T forecasts with a copy of each cluster that knows all runtimes, and in which no more jobs
  arrive.

Times are whole milliseconds. Nodes are only counted and have no names.
"""

from __future__ import annotations

import bisect
import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import UnknownNameError
from hpctwin.facility import Facility
from hpctwin.facility.jobs import FacilityJobs, facility_jobs
from hpctwin.model import MS_PER_S, Workload

RULE_STRATEGIES = ("sgs-t", "siloed", "random", "user(0.6)")


@dataclass(frozen=True)
class RuleJob:
    """A job at one cluster, at that cluster's speed.

    Args:
        number: Unique number of the job.
        nodes: Number of nodes.
        run_ms: Runtime, in ms; at most the walltime, which ends jobs.
        walltime_ms: Requested time, in ms.
    """

    number: int
    nodes: int
    run_ms: int
    walltime_ms: int


class RuleCluster:
    """State of one cluster: pending jobs, running jobs, free nodes.

    Args:
        nodes: Number of nodes.
    """

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.free = nodes
        self.waiting: list[RuleJob] = []
        self.running: list[tuple[int, int, int]] = []
        """Planned end, job's number and nodes, sorted by planned end."""
        self.ends: list[tuple[int, int, RuleJob, int]] = []
        """A heap of end, number of the start, job and planned end."""
        self.started: dict[int, int] = {}
        """Start of each job, by its number."""
        self._starts = 0

    def copy(self) -> Self:
        """Return an independent copy; it lacks the starts of jobs that have already started."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.waiting, twin.running, twin.ends = self.waiting[:], self.running[:], self.ends[:]
        twin.started = {}
        return twin

    def advance(self, until: float) -> None:
        """End all jobs that end up to a time, with a pass after each."""
        while self.ends and self.ends[0][0] <= until:
            self.end_next()

    def end_next(self) -> int:
        """End the job that ends next, and run a scheduling pass.

        Returns:
            The time of the end.
        """
        now, _, job, planned = heapq.heappop(self.ends)
        self.free += job.nodes
        self.running.pop(bisect.bisect_left(self.running, (planned, job.number)))
        self._schedule(now)
        return now

    def submit(self, job: RuleJob, now: int) -> None:
        """Add a job to the queue, and run a scheduling pass."""
        self.waiting.append(job)
        self._schedule(now)

    def forecast(self, job: RuleJob, now: int, best: float = math.inf) -> float:
        """Return a job's end without later arrivals; infinity if later than ``best``."""
        ahead = self.copy()
        ahead.submit(job, now)
        while job.number not in ahead.started:
            if now + job.run_ms > best:
                return math.inf
            now = ahead.end_next()
        end = ahead.started[job.number] + job.run_ms
        return end if end <= best else math.inf

    def _schedule(self, now: int) -> None:
        """Start jobs in queue order while they fit, then backfill around the head."""
        begun = 0
        while begun < len(self.waiting) and self.waiting[begun].nodes <= self.free:
            self._start(self.waiting[begun], now)
            begun += 1
        del self.waiting[:begun]
        if len(self.waiting) < 2 or not self.free:
            return
        times, free = self._profile(now)
        head, *candidates = self.waiting
        first = _earliest(times, free, head.nodes, head.run_ms)
        _take(times, free, head.nodes, first, times[first] + head.run_ms)
        self.waiting = [head]
        for job in candidates:
            if _fits(times, free, job.nodes, 0, now + job.run_ms):
                _take(times, free, job.nodes, 0, now + job.run_ms)
                self._start(job, now)
            else:
                self.waiting.append(job)

    def _start(self, job: RuleJob, now: int) -> None:
        self.free -= job.nodes
        self._starts += 1
        planned = now + job.walltime_ms
        bisect.insort(self.running, (planned, job.number, job.nodes))
        heapq.heappush(self.ends, (now + job.run_ms, self._starts, job, planned))
        self.started[job.number] = now

    def _profile(self, now: int) -> tuple[list[int], list[int]]:
        """Return times, and the free nodes from each on, according to walltimes."""
        times, free = [now], [self.free]
        for planned, _, nodes in self.running:
            # A job that should end now, but has not yet, is free only after this point.
            if planned > times[-1] or len(times) == 1:
                times.append(planned)
                free.append(free[-1])
            free[-1] += nodes
        return times, free


def _fits(times: list[int], free: list[int], nodes: int, first: int, end: int) -> bool:
    place, size = first, len(times)
    while place < size and times[place] < end:
        if free[place] < nodes:
            return False
        place += 1
    return True


def _earliest(times: list[int], free: list[int], nodes: int, length: int) -> int:
    first = 0
    while not _fits(times, free, nodes, first, times[first] + length):
        first += 1
    return first


def _take(times: list[int], free: list[int], nodes: int, first: int, end: int) -> None:
    last = bisect.bisect_left(times, end)
    if last == len(times) or times[last] != end:
        times.insert(last, end)
        free.insert(last, free[last - 1])
    for place in range(first, last):
        free[place] -= nodes


Chooser = Callable[[list[int], dict[int, RuleJob], int, int], int]
"""Choose a cluster, given allowed ones, the job on each, its row, and the time."""


def simulate_rule(
    facility: Facility,
    workload: Workload,
    strategy: str = "sgs-t",
    *,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> pl.DataFrame:
    """Simulate a facility by CQSim+'s rule.

    Args:
        facility: Clusters of equal nodes, and the runtime factors of jobs there; the rest of a
            cluster is ignored.
        workload: The jobs; each is placed when it is submitted.
        strategy: One of `RULE_STRATEGIES`. ``user(0.6)`` takes the faster cluster with probability
            0.6.
        seed: Seed of draws; SGS-T draws among equally good clusters.
        progress: Function called from time to time with the share of placed jobs.

    Returns:
        A row for each job that fits a cluster, by submit time: ``job_id``, ``submit_s``,
        ``start_s``, ``end_s``, ``wait_s``, ``turnaround_s``, ``nodes``, ``walltime_s`` (at its
        cluster's speed), ``origin``, ``cluster``.

    Raises:
        UnknownNameError: There is no such strategy.
        WorkloadError: Jobs depend on each other, or an origin is not one of the clusters.
    """
    if strategy not in RULE_STRATEGIES:
        raise UnknownNameError("strategy of CQSim+'s rule", strategy, RULE_STRATEGIES)
    jobs = facility_jobs(facility, workload)
    sites = [RuleCluster(cluster.cluster.node_count) for cluster in facility.clusters]
    chooser = _chooser(strategy, sites, jobs, random.Random(seed))
    rows: list[int] = []
    places: list[int] = []
    wide = workload.nodes[None, :] <= np.array([site.nodes for site in sites])[:, None]
    may = jobs.allowed & wide
    for row, now in enumerate(workload.submit_ms.tolist()):
        open_to = np.flatnonzero(may[:, row]).tolist()
        if not open_to:
            continue
        here = {place: _job(jobs, place, row) for place in open_to}
        for site in sites:
            site.advance(now)
        place = chooser(open_to, here, row, now)
        sites[place].submit(here[place], now)
        rows.append(row)
        places.append(place)
        if progress is not None and row % 200 == 0:
            progress(row / len(workload))
    for site in sites:
        site.advance(math.inf)
    return _table(facility, jobs, sites, np.array(rows, np.int64), np.array(places, np.int64))


def _job(jobs: FacilityJobs, place: int, row: int) -> RuleJob:
    seen = jobs.on[place]
    walltime = int(seen.walltime_ms[row])
    return RuleJob(row, int(seen.nodes[row]), min(int(seen.runtime_ms[row]), walltime), walltime)


def _chooser(
    strategy: str, sites: list[RuleCluster], jobs: FacilityJobs, draw: random.Random
) -> Chooser:
    def least_turnaround(open_to: list[int], here: dict[int, RuleJob], row: int, now: int) -> int:
        ends: dict[int, float] = {}
        for place in open_to:
            best = min(ends.values(), default=math.inf)
            ends[place] = sites[place].forecast(here[place], now, best)
        best = min(ends.values())
        return draw.choice([place for place in open_to if ends[place] == best])

    def home(open_to: list[int], here: dict[int, RuleJob], row: int, now: int) -> int:
        origin = int(jobs.origin[row])
        return origin if origin in open_to else open_to[0]

    def anywhere(open_to: list[int], here: dict[int, RuleJob], row: int, now: int) -> int:
        return draw.choice(open_to)

    def mostly_faster(open_to: list[int], here: dict[int, RuleJob], row: int, now: int) -> int:
        first, *others = sorted(open_to, key=lambda place: here[place].run_ms)
        return first if not others or draw.random() < 0.6 else draw.choice(others)

    return {
        "sgs-t": least_turnaround,
        "siloed": home,
        "random": anywhere,
        "user(0.6)": mostly_faster,
    }[strategy]


def _table(
    facility: Facility,
    jobs: FacilityJobs,
    sites: list[RuleCluster],
    rows: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
) -> pl.DataFrame:
    workload = jobs.workload
    names = pl.Series([*facility.names, None], dtype=pl.String)
    start = np.array([sites[p].started[r] for r, p in zip(rows, places, strict=True)], np.int64)
    run = np.array([_job(jobs, p, r).run_ms for r, p in zip(rows, places, strict=True)], np.int64)
    walltime = np.stack([seen.walltime_ms for seen in jobs.on])[places, rows]
    submit = workload.submit_ms[rows]
    origin = jobs.origin[rows]
    return pl.DataFrame(
        {
            "job_id": workload.job_id[rows],
            "submit_s": submit / MS_PER_S,
            "start_s": start / MS_PER_S,
            "end_s": (start + run) / MS_PER_S,
            "wait_s": (start - submit) / MS_PER_S,
            "turnaround_s": (start + run - submit) / MS_PER_S,
            "nodes": workload.nodes[rows],
            "walltime_s": walltime / MS_PER_S,
            "origin": names.gather(np.where(origin < 0, len(sites), origin)),
            "cluster": names.gather(places),
        }
    )
