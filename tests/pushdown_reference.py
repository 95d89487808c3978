"""The paper's policy in plain Python, written from §III of Goyal and Pavithra and docs/adaptive.md.

It goes through every cycle, one after another, and keeps its queues as plain lists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

from hpctwin.model import Cluster, DependencyKind, State, Workload

__all__ = ["Outcome", "simulate_pushdown"]


@dataclass(eq=False)
class Outcome:
    """What became of a job, and what happened to it on the way."""

    row: int
    start_ms: int | None = None
    end_ms: int | None = None
    state: State = State.PENDING
    pushed: int = 0
    risen: int = 0
    looked: int = -1
    waits_for: list[Outcome] = field(default_factory=list)
    waited_for_by: list[Outcome] = field(default_factory=list)


def simulate_pushdown(
    workload: Workload, cluster: Cluster, priority: Callable[[int], float], numbers: SimpleNamespace
) -> list[Outcome]:
    """Run one-pool clusters with afterok dependencies and neither failures nor maintenance."""
    return _Pushdown(workload, cluster, priority, numbers).run()


class _Pushdown:
    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        priority: Callable[[int], float],
        numbers: SimpleNamespace,
    ) -> None:
        self.workload = workload
        self.numbers = numbers
        self.priority = priority
        self.interval = round(numbers.interval * 1000)
        self.promotion = round(numbers.promotion * 1000)
        self.jobs = [Outcome(row) for row in range(len(workload))]
        edges = workload.dependencies
        for job, on, kind, delay in zip(
            edges.job, edges.on, edges.kind, edges.delay_ms, strict=True
        ):
            assert (kind, delay) == (DependencyKind.AFTEROK, 0)
            self.jobs[job].waits_for.append(self.jobs[on])
            self.jobs[on].waited_for_by.append(self.jobs[job])
        for job in self.jobs:
            job.waited_for_by.sort(key=lambda other: other.row)
            job.waits_for.sort(key=lambda other: other.row)
        self.free = {"nodes": cluster.node_count, **cluster.resources}
        self.total = dict(self.free)
        self.submitted = 0
        self.told = 0
        self.fresh: list[Outcome] = []
        self.main: list[Outcome] = []
        self.aside: list[Outcome] = []
        self.running: list[Outcome] = []

    def run(self) -> list[Outcome]:
        now = 0
        while self.submitted < len(self.jobs) or self.running or self.waiting():
            self.events(now)
            if now % self.interval == 0:
                self.cycle(now)
            if any(job.end_ms == now for job in self.running):
                self.events(now)  # jobs without length end in the instant of their start
            now += 1
            assert now < 1_000_000, "it does not end"
        return self.jobs

    def waiting(self) -> list[Outcome]:
        return [*self.fresh, *self.main, *self.aside]

    def needs(self, job: Outcome) -> dict[str, int]:
        asked = {name: int(amount[job.row]) for name, amount in self.workload.resources.items()}
        return {"nodes": int(self.workload.nodes[job.row]), **asked}

    def key(self, job: Outcome) -> tuple[float, int, int]:
        return self.priority(job.row), int(self.workload.submit_ms[job.row]), job.row

    # --- events -------------------------------------------------------------------------------

    def events(self, now: int) -> None:
        for job in [job for job in self.running if job.end_ms is not None and job.end_ms <= now]:
            self.running.remove(job)
            for name, amount in self.needs(job).items():
                self.free[name] += amount
            job.state = self.ending(job)
        first = self.submitted
        while self.submitted < len(self.jobs) and self.workload.submit_ms[self.submitted] <= now:
            self.submitted += 1
        for job in self.jobs[first : self.submitted]:
            if any(amount > self.total[name] for name, amount in self.needs(job).items()):
                job.state, job.end_ms = State.REJECTED, now
        self.cancel_dependants(now)
        for job in self.jobs[: self.submitted]:
            if job.state == State.PENDING and all(
                o.state == State.COMPLETED for o in job.waits_for
            ):
                job.state = State.WAITING
                self.fresh.append(job)

    def ending(self, job: Outcome) -> State:
        if self.workload.runtime_ms[job.row] > self.workload.walltime_ms[job.row]:
            return State.WALLTIME
        failed = self.workload.fails is not None and self.workload.fails[job.row]
        return State.FAILED if failed else State.COMPLETED

    def cancel_dependants(self, now: int) -> None:
        good = (State.PENDING, State.WAITING, State.RUNNING, State.COMPLETED)
        while dead := [
            job
            for job in self.jobs[: self.submitted]
            if job.state == State.PENDING
            and any(other.state not in good for other in job.waits_for)
        ]:
            for job in dead:
                job.state, job.end_ms = State.DEPENDENCY, now

    # --- the cycle ----------------------------------------------------------------------------

    def cycle(self, now: int) -> None:
        number = now // self.interval
        self.hear()
        self.take_in()
        looks = (number + 1) % self.numbers.every == 0 or not self.main
        if looks:
            for job in list(self.aside):
                if self.has_slot() and self.fits(job):
                    self.aside.remove(job)
                    self.start(job, now)
        while self.has_slot() and self.main and self.main[0].looked != now:
            job = self.main[0]
            if not self.fits(job):
                job.looked = now
                self.push_down(job)
            elif not self.is_adjacent(job):
                break
            else:
                self.main.remove(job)
                self.start(job, now)

    def hear(self) -> None:
        """Dependants that were submitted since promote what they wait for in the main queue."""
        for job in self.jobs[self.told : self.submitted]:
            if job.state == State.PENDING:
                for other in job.waits_for:
                    self.promote(other, job)
        self.told = self.submitted

    def take_in(self) -> None:
        new = sorted(self.fresh, key=self.key)
        self.fresh = []
        place = 0
        for job in new:
            while place < len(self.main) and self.key(self.main[place]) < self.key(job):
                place += 1
            self.main.insert(place, job)
            place += 1
        for job in new:
            for other in job.waited_for_by:
                submitted = other.row < self.submitted
                if submitted and other.state == State.PENDING:
                    self.promote(job, other)

    def promote(self, job: Outcome, dependant: Outcome) -> None:
        if job not in self.main or self.promotion == 0:
            return
        runtime = int(self.workload.walltime_ms[dependant.row])  # what the scheduler expects
        place = self.main.index(job)
        up = min(place, runtime // self.promotion)
        self.main.insert(place - up, self.main.pop(place))
        job.risen += up

    def push_down(self, job: Outcome) -> None:
        place = self.main.index(job)
        self.main.remove(job)
        job.pushed += 1
        if job.pushed > self.numbers.attempts:
            self.aside.append(job)
        else:
            self.main.insert(place + self.numbers.places, job)

    def has_slot(self) -> bool:
        return self.numbers.parallel is None or len(self.running) < self.numbers.parallel

    def fits(self, job: Outcome) -> bool:
        return all(self.free[name] >= amount for name, amount in self.needs(job).items())

    def is_adjacent(self, job: Outcome) -> bool:
        """Whether one that runs is next to it in the order of priority, but for so many."""
        if self.numbers.adjacent is None or not self.running:
            return True

        def between(other: Outcome) -> int:
            low, high = sorted([self.key(job), self.key(other)])
            return sum(low < self.key(one) < high for one in self.waiting())

        return any(between(other) < self.numbers.adjacent for other in self.running)

    def start(self, job: Outcome, now: int) -> None:
        for name, amount in self.needs(job).items():
            self.free[name] -= amount
        length = min(self.workload.runtime_ms[job.row], self.workload.walltime_ms[job.row])
        job.state, job.start_ms, job.end_ms = State.RUNNING, now, now + int(length)
        self.running.append(job)
