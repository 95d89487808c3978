"""RLScheduler's rules with backfilling, as its programs do it, in plain Python."""

from __future__ import annotations

import numpy as np

from hpctwin.model import MS_PER_S
from hpctwin_papers.rlscheduler import table as experiment


class Sequence:
    """A sequence of jobs on an empty machine, one selection after the other.

    Args:
        trace: its name.
        heuristic: who is selected.
        first: the row of its first job.
        together: whether all that happens at one time comes before anybody starts; in its programs each end,
            and each submission, comes by itself.
    """

    def __init__(self, trace: str, heuristic: str, first: int, together: bool) -> None:
        case = experiment.case(trace)
        jobs = case.workload
        self.submit = (jobs.submit_ms / MS_PER_S + case.first_s).tolist()
        self.run = (jobs.runtime_ms / MS_PER_S).tolist()
        self.asked = (jobs.walltime_ms / MS_PER_S).tolist()
        self.nodes = jobs.nodes.tolist()
        columns = (np.array(self.submit), np.array(self.asked), jobs.nodes.astype(np.float64))
        self.score = experiment.HEURISTICS[heuristic](*columns).tolist()
        self.together, self.free = together, case.nodes
        self.coming = list(range(first, first + experiment.JOBS))
        self.queue: list[int] = []
        self.running: list[int] = []
        self.start: dict[int, float] = {}
        self.now = self.submit[first]

    def slowdown(self) -> float:
        """Mean bounded slowdown."""
        while self.queue or self.coming:
            if not self.queue:
                self.go_on()
                continue
            job = min(self.queue, key=lambda one: (self.score[one], one))
            before = self.could_begin(job)
            while self.nodes[job] > self.free:
                for other in sorted(self.queue):
                    if self.now + self.asked[other] < before and self.nodes[other] <= self.free:
                        self.begin(other)
                self.go_on()
            self.begin(job)
        found = [
            max(1.0, (at - self.submit[job] + self.run[job]) / max(self.run[job], 10.0))
            for job, at in self.start.items()
        ]
        return float(np.mean(found))

    def could_begin(self, job: int) -> float:
        """When enough nodes are free by what running jobs asked for."""
        free, at = self.free, self.now
        for other in sorted(self.running, key=lambda one: self.start[one] + self.asked[one]):
            if free >= self.nodes[job]:
                break
            free, at = free + self.nodes[other], self.start[other] + self.asked[other]
        return at

    def begin(self, job: int) -> None:
        self.queue.remove(job)
        self.running.append(job)
        self.start[job] = self.now
        self.free -= self.nodes[job]

    def end(self, job: int) -> float:
        return self.start[job] + self.run[job]

    def go_on(self) -> None:
        """To the next submission or end; of both at one time, the submission."""
        self.next_event()
        while self.together and self.next_s() <= self.now:
            self.next_event()

    def next_s(self) -> float:
        ends = [self.end(job) for job in self.running]
        return min([*ends, *(self.submit[job] for job in self.coming[:1])], default=np.inf)

    def next_event(self) -> None:
        self.now = max(self.now, self.next_s())
        if self.coming and self.submit[self.coming[0]] <= self.now:
            self.queue.append(self.coming.pop(0))
            return
        job = min(self.running, key=self.end)
        self.running.remove(job)
        self.free += self.nodes[job]


def mean_slowdown(trace: str, heuristic: str, *, together: bool) -> float:
    """The mean of the ten sequences."""
    found = [
        Sequence(trace, heuristic, first, together).slowdown() for first in experiment.sequences()
    ]
    return float(np.mean(found))
