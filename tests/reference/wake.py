"""How many nodes the waiting jobs are planned on, beyond those that are on."""

from __future__ import annotations

from tests.reference.jobs import Job
from tests.reference.nodes import SLEEPING, SWITCHING_OFF, Node


class Need:
    """How many nodes of a pool the waiting jobs are planned on at a time, less those on and free then.

    Args:
        pools: the nodes of each pool that have not failed.
        job_on: the job on each node.
        now: the present.
    """

    def __init__(self, pools: list[list[Node]], job_on: list[Job | None], now: int) -> None:
        self.now = now
        self.planned: list[tuple[dict[int, int], int, int]] = []
        # When each node of a pool is on and free, of those that are on or being switched on.
        self.from_when: list[list[int]] = []
        for pool in pools:
            times = []
            for node in pool:
                job = job_on[node.number]
                if node.state not in (SLEEPING, SWITCHING_OFF):
                    times.append(node.on_from(now) if job is None else job.planned_end)
            self.from_when.append(times)

    def add(self, split: dict[int, int], start: int, end: int) -> None:
        """A waiting job is planned."""
        self.planned.append((split, start, end))

    def at(self, pool: int, time: int) -> int:
        planned = sum(s.get(pool, 0) for s, start, end in self.planned if start <= time < end)
        return planned - sum(since <= time for since in self.from_when[pool])

    def first_above(self, pool: int, level: int, after: int) -> int | None:
        """The first time after another at which the need is above a level."""
        times = {start for _, start, _ in self.planned if start > after}
        return next((time for time in sorted(times) if self.at(pool, time) > level), None)

    def most(self, pool: int, until: int) -> int:
        """The greatest need from now to a time, both included."""
        times = {self.now} | {start for _, start, _ in self.planned if start <= until}
        return max(self.at(pool, time) for time in times)
