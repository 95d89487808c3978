"""CQSim's scheduling rule, written anew and plainly, with a switch for each departure from ours.

Source: the behaviour of CQSim (github.com/SPEAR-UIC/CQSim), facts only. Two points depart from
docs/reference/rules and can be switched off: candidates and the head job are planned with their true run
times, while running jobs are planned with their walltimes (``clairvoyant``); and a pass follows each
single event instead of all events of an instant (``single_events``). Conservative backfilling is planned
anew in each pass, so its promises are not kept.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable

import numpy as np

from hpctwin import Workload

Score = Callable[[float, float, float, float], float]

FCFS: Score = lambda wait, submit, walltime, nodes: -int(wait)  # noqa: E731
WFP: Score = lambda wait, submit, walltime, nodes: -((int(wait) / walltime) ** 3) * nodes  # noqa: E731
SJF: Score = lambda wait, submit, walltime, nodes: walltime  # noqa: E731


class Profile:
    """Free nodes over future time."""

    def __init__(self, now: float, free: int, ends: list[tuple[float, int]]) -> None:
        self.times = [now]
        self.free = [free]
        for end, nodes in sorted(ends):
            # A job that should end now but whose event has not come yet is free only after this point.
            if end > self.times[-1] or len(self.times) == 1:
                self.times.append(end)
                self.free.append(self.free[-1])
            self.free[-1] += nodes

    def fits(self, nodes: int, first: int, end: float) -> bool:
        i = first
        while i < len(self.times) and self.times[i] < end:
            if self.free[i] < nodes:
                return False
            i += 1
        return True

    def take(self, nodes: int, first: int, end: float) -> None:
        last = bisect.bisect_left(self.times, end)
        if last == len(self.times) or self.times[last] != end:
            self.times.insert(last, end)
            self.free.insert(last, self.free[last - 1])
        for i in range(first, last):
            self.free[i] -= nodes

    def earliest(self, nodes: int, length: float) -> int:
        i = 0
        while not self.fits(nodes, i, self.times[i] + length):
            i += 1
        return i


def simulate_cqsim(
    workload: Workload,
    machine: int,
    score: Score,
    backfill: str = "none",
    *,
    clairvoyant: bool = True,
    single_events: bool = True,
) -> np.ndarray:
    """Start times in seconds; ``backfill`` is none, easy or conservative (planned anew each pass)."""
    submit = (workload.submit_ms / 1000).tolist()
    run = (workload.runtime_ms / 1000).tolist()
    walltime = (workload.walltime_ms / 1000).tolist()
    nodes = workload.nodes.tolist()
    planned = run if clairvoyant else walltime
    starts = np.full(len(submit), np.nan)
    waiting: list[int] = []
    running: dict[int, float] = {}
    free = machine
    # (time, kind, sequence, job); ends come before submissions.
    events = [(time, 2, row, row) for row, time in enumerate(submit)]
    heapq.heapify(events)
    sequence = 0

    def start(job: int, now: float) -> None:
        nonlocal free, sequence
        free -= nodes[job]
        starts[job] = now
        running[job] = now + walltime[job]
        sequence += 1
        heapq.heappush(events, (now + run[job], 1, sequence, job))

    def backfilled(now: float) -> list[int]:
        profile = Profile(now, free, [(end, nodes[job]) for job, end in running.items()])
        begun = []
        for place, job in enumerate(waiting):
            if place == 0 or backfill == "conservative":
                first = profile.earliest(nodes[job], planned[job])
            elif profile.fits(nodes[job], 0, now + planned[job]):
                first = 0
            else:
                continue
            profile.take(nodes[job], first, profile.times[first] + planned[job])
            if first == 0:
                begun.append(job)
        return begun

    while events:
        now = events[0][0]
        while True:
            _, kind, _, job = heapq.heappop(events)
            if kind == 1:
                free += nodes[job]
                del running[job]
            else:
                waiting.append(job)
            if single_events or not events or events[0][0] != now:
                break
        waiting.sort(key=lambda j: score(now - submit[j], submit[j], walltime[j], nodes[j]))
        while waiting and nodes[waiting[0]] <= free:
            start(waiting.pop(0), now)
        if waiting and backfill != "none":
            for job in backfilled(now):
                waiting.remove(job)
                start(job, now)
    return starts
