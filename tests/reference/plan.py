"""The plan: what is free over future time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from tests.reference.jobs import Job
from tests.reference.machine import Machine


class Plan:
    """Free amount of everything over future time, as steps.

    ``free[i]`` holds from ``times[i]`` to ``times[i + 1]``, the last one for ever. Its keys are
    pool numbers and resource names.
    """

    def __init__(self, machine: Machine, running: list[Job], now: int, placement: str) -> None:
        self.placement = placement
        up = {pool: len(machine.up(pool)) for pool in range(len(machine.pools))}
        changes = {now} | {job.planned_end for job in running}
        raises = [(start, end) for start, end, _, _ in machine.raises]
        for start, end in machine.maintenance_ms + raises:
            changes |= {time for time in (start, end) if time > now}
        changes |= set(machine.back.values())
        self.times = sorted(changes)
        self.free: list[dict[int | str, int]] = []
        for time in self.times:
            amounts: dict[int | str, int] = {**up, **machine.resources}
            for job in running:
                if job.planned_end > time:
                    for key, amount in held(job, job.split):
                        amounts[key] -= amount
            for start, end, name, more in machine.raises:
                if start <= time < end:
                    amounts[name] += more
            for number, pool in enumerate(machine.pools):
                amounts[number] -= sum(machine.back.get(node, 0) > time for node in pool.nodes)
                # An overdue job may be on nodes that are away; then less than nothing is free,
                # which counts as nothing.
                if pool.away(time):
                    amounts[number] = 0
            self.free.append(amounts)

    def room(self, job: Job, start: int) -> dict[int, int] | None:
        """Nodes it would take from each pool if it began at ``start``; None if it does not fit."""
        least = self.least(job, start)
        return None if least is None else split_over(job.width, least, self.placement)

    def least(self, job: Job, start: int) -> dict[int, int] | None:
        """The least free nodes of each of its pools while it would run; None if it does not fit."""
        end = start + job.expected
        first = bisect_right(self.times, start) - 1
        least = {pool: self.free[first][pool] for pool in job.pools}
        for time, free in zip(self.times[first:], self.free[first:], strict=True):
            if time >= end:
                break
            for name, amount in job.needs.items():
                if free[name] < amount:
                    return None
            enough = 0
            for pool, a in least.items():
                least[pool] = max(0, min(a, free[pool]))
                enough += least[pool]
            if enough < job.width:
                return None
        return least

    def earliest(self, job: Job, at_least: int = 0) -> tuple[int, dict[int, int]]:
        """The earliest start from now on, and not before a time, and the nodes of each pool.

        A job that does not fit a moment before t can only begin to fit at t if something changes
        at t, so that only the steps need to be tried.
        """
        first = max(self.times[0], at_least)  # also where nothing else changes then
        for time in sorted({first, *self.times}):
            if time >= first and (split := self.room(job, time)) is not None:
                return time, split
        raise AssertionError("a job that is neither rejected nor skipped fits an empty machine")

    def take(self, job: Job, split: dict[int, int], start: int) -> None:
        self.change(job, split, start, start + job.expected, -1)

    def give(self, job: Job, split: dict[int, int], start: int) -> None:
        self.change(job, split, start, start + job.expected, 1)

    def block(self, pools: list[int]) -> None:
        """Nothing of some pools is free any more, nor will be."""
        for free in self.free:
            free |= dict.fromkeys(pools, 0)

    def holds(self, job: Job, split: dict[int, int], start: int) -> bool:
        """Whether there is what a job would hold from a time on."""
        self._cut(start)
        self._cut(start + job.expected)
        return all(
            free[key] >= amount
            for time, free in zip(self.times, self.free, strict=True)
            if start <= time < start + job.expected
            for key, amount in held(job, split)
        )

    def consistent(self) -> bool:
        return all(amount >= 0 for free in self.free for amount in free.values())

    def change(self, job: Job, split: dict[int, int], start: int, end: int, sign: int) -> None:
        """Take what a job holds out of the plan from start to end (-1), or put it back (1)."""
        self._cut(start)
        self._cut(end)
        for time, free in zip(self.times, self.free, strict=True):
            if start <= time < end:
                for key, amount in held(job, split):
                    free[key] += sign * amount

    def _cut(self, time: int) -> None:
        """Make ``time`` the start of a step."""
        if time in self.times:
            return
        after = bisect_right(self.times, time)
        self.times.insert(after, time)
        self.free.insert(after, dict(self.free[after - 1]))


def held(job: Job, split: dict[int, int]) -> Iterator[tuple[int | str, int]]:
    yield from split.items()
    yield from job.needs.items()


def split_over(width: int, least: dict[int, int], placement: str) -> dict[int, int]:
    """How many nodes to take from each pool; pools are given in their order."""
    if placement == "spread":
        taken = dict.fromkeys(least, 0)
        for _ in range(width):
            most = max(least, key=lambda pool: least[pool] - taken[pool])  # the first of equals
            taken[most] += 1
        return {pool: count for pool, count in taken.items() if count}
    pools = list(least)
    if placement == "best_fit":
        sufficient = [pool for pool in pools if least[pool] >= width]
        if sufficient:
            return {min(sufficient, key=least.__getitem__): width}
        pools.sort(key=lambda pool: -least[pool])  # stable: ties go to the first
    split = {}
    for pool in pools:
        count = min(least[pool], width)
        if count:
            split[pool] = count
        width -= count
    return split
