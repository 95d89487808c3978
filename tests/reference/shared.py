"""Nodes that jobs share, from the section of that name."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from hpctwin.model import Workload
from tests.reference.jobs import Job, features_of
from tests.reference.passes import Simulation, exact
from tests.reference.shared_gpus import Lying, Types, gpus_of, single_gpus, types_of, untold
from tests.reference.shared_requests import (
    ENOUGH,
    NAMES,
    Amounts,
    Tasks,
    has,
    requests,
)
from tests.reference.shared_room import Room, place_kinds
from tests.reference.shared_slurm import keep_soonest


@dataclass(frozen=True)
class Booking:
    """Tasks of a job on a node for a time; `whole`: nobody else has anything of the node then; `lends`: the
    job is suspended for another, to whom its cores go.
    """

    job: Job
    node: int
    tasks: Tasks
    start: int
    end: int
    whole: bool = False
    lends: bool = False


class SharedPlan:
    """Who holds what of which node, now and later; with the interface of `Plan`."""

    def __init__(self, simulation: SharedSimulation, running: list[Job]) -> None:
        self.simulation = simulation
        self.machine = simulation.machine
        self.now = simulation.now
        self.running = running
        self.bookings = [
            Booking(job, node, tasks, self.now, job.planned_end)
            for job in running
            for node, tasks in simulation.on[job].items()
        ]
        self.wide = [(job, self.now, job.planned_end) for job in running]
        self.blocked: set[int] = set()  # pools

    def times(self) -> list[int]:
        times = {self.now} | {time for b in self.bookings for time in (b.start, b.end)}
        times |= {time for _, start, end in self.wide for time in (start, end)}
        times |= {time for span in self.machine.maintenance_ms for time in span}
        times |= {time for start, end, *_ in self.machine.raises for time in (start, end)}
        times |= set(self.machine.back.values())
        return sorted(time for time in times if time >= self.now)

    def left(self, job: Job, node: int, time: int) -> Amounts | None:
        """What is free of a node for a job at a time; None if it may not be there."""
        pool = self.simulation.pool_of[node]
        if self.machine.outages_over[node] or self.machine.pools[pool].away(time):
            return None
        if time < self.machine.back.get(node, 0):
            return None
        left = list(self.simulation.whole[node])
        for booking in self.bookings:
            if booking.node != node or not booking.start <= time < booking.end:
                continue
            if booking.whole:
                return None
            if booking.lends:
                left = [x - a for x, a in zip(left, self.kept(booking), strict=True)]
                continue
            if not self.simulation.asked[job].goes_with(self.simulation.asked[booking.job]):
                return None
            held = self.simulation.asked[booking.job].held(booking.tasks)
            more = untold(held, booking.tasks, self.simulation.types[node])
            left = [x - a - b for x, a, b in zip(left, held, more, strict=True)]
        return tuple(left)

    def kept(self, booking: Booking) -> Amounts:
        """What a suspended job keeps of a node: all that its tasks ask for, but for cores."""
        asked = self.simulation.asked[booking.job]
        held = asked.held(booking.tasks)
        if not asked.exclusive:
            more = untold(held, booking.tasks, self.simulation.types[booking.node])
            held = tuple(a + b for a, b in zip(held, more, strict=True))
        return (0, *held[1:])

    def single(self, node: int, time: int) -> Amounts:
        """What is free of each GPU of a node at a time, where these are counted one by one."""
        left = list(self.simulation.single(node))
        for booking in self.bookings:
            if booking.node == node and booking.start <= time < booking.end:
                if booking.lends and self.simulation.asked[booking.job].exclusive:
                    continue
                if self.simulation.asked[booking.job].exclusive or booking.whole:
                    return (0,) * len(left)
                assert isinstance(booking.tasks, Lying)
                left = [a - b for a, b in zip(left, booking.tasks.gpus, strict=True)]
        return tuple(left)

    def least_single(self, nodes: Iterable[int], times: list[int]) -> dict[int, Amounts]:
        """The least of these at some times."""
        if not self.simulation.gpus:
            return {}
        return {
            node: tuple(map(min, zip(*(self.single(node, time) for time in times), strict=True)))
            for node in nodes
        }

    def room(self, job: Job, start: int) -> dict[int, Tasks] | None:
        end = start + job.expected
        times = [start, *(time for time in self.times() if start < time < end)]
        for name, amount in job.needs.items():
            if any(self.free_of(name, time) < amount for time in times):
                return None
        least = {}
        # Who would end just when a node begins to be kept is in its way.
        kept = {b.node for b in self.bookings if b.whole and b.start <= end and b.end > start}
        for pool in set(job.pools) - self.blocked:
            for node in [n for n in self.machine.pools[pool].nodes if n not in kept]:
                lefts = [self.left(job, node, time) for time in times]
                known = [left for left in lefts if left is not None]
                if len(known) == len(lefts):
                    least[node] = tuple(min(column) for column in zip(*known, strict=True))
        return self.simulation.placed(job, least, self.least_single(least, times))

    def least(self, job: Job, start: int) -> dict[int, Tasks] | None:
        """Of whole nodes, how many may be taken of each pool; here its nodes and tasks at once."""
        return self.room(job, start)

    def free_of(self, name: str, time: int) -> int:
        held = sum(job.needs.get(name, 0) for job, start, end in self.wide if start <= time < end)
        more = sum(
            amount
            for start, end, raised, amount in self.machine.raises
            if raised == name and start <= time < end
        )
        return self.machine.resources[name] + more - held

    def earliest(self, job: Job, at_least: int = 0) -> tuple[int, dict[int, Tasks]]:
        first = max(self.now, at_least)  # also where nothing else changes then
        for time in sorted({first, *self.times()}):
            if time >= first and (split := self.room(job, time)) is not None:
                return time, split
        raise AssertionError("a job that is neither rejected nor skipped fits an empty machine")

    def take(self, job: Job, split: dict[int, Tasks], start: int) -> None:
        self.change(job, split, start, start + job.expected, -1)

    def give(self, job: Job, split: dict[int, Tasks], start: int) -> None:
        self.change(job, split, start, start + job.expected, 1)

    def change(self, job: Job, split: dict[int, Tasks], start: int, end: int, sign: int) -> None:
        if start == end:
            return
        bookings = [Booking(job, node, tasks, start, end) for node, tasks in split.items()]
        if sign < 0:
            self.bookings += bookings
            self.wide.append((job, start, end))
        else:
            self.bookings = [booking for booking in self.bookings if booking not in bookings]
            self.wide.remove((job, start, end))

    def keep(self, job: Job, split: dict[int, Tasks], start: int, end: int) -> None:
        """As Slurm does: for others there is nothing of these nodes while they are kept."""
        if start < end:
            self.bookings += [
                Booking(job, n, tasks, start, end, True) for n, tasks in split.items()
            ]
            if self.simulation.settings["bf_licenses"]:
                self.wide.append((job, start, end))

    def block(self, pools: list[int]) -> None:
        """Nothing of some pools is free any more, nor will be."""
        self.blocked.update(pools)

    def consistent(self) -> bool:
        """Whether nobody holds more than there is, and all on nodes that are up."""
        for time in self.times():
            if any(self.free_of(name, time) < 0 for name in self.machine.resources):
                return False
            if not all(self.has_enough(node, time) for node in range(len(self.simulation.pool_of))):
                return False
        return True

    def has_enough(self, node: int, time: int) -> bool:
        """Whether a node is up at a time, and has what all jobs hold of it that may then share it."""
        here = [b for b in self.bookings if b.node == node and b.start <= time < b.end]
        if here and self.machine.outages_over[node]:
            return False
        if here and time < self.machine.back.get(node, 0):
            return False
        asked = [self.simulation.asked[booking.job] for booking in here]
        pairs = itertools.combinations(asked, 2)
        if not all(one.goes_with(other) for one, other in pairs):
            return False
        if any(amount < 0 for amount in self.single(node, time)):
            return False
        return all(
            sum(a.held(b.tasks)[c] for b, a in zip(here, asked, strict=True)) <= there
            for c, there in enumerate(self.simulation.whole[node])
        )


class SharedSimulation(Simulation):
    """A simulation in which jobs share nodes."""

    def prepare(self, workload: Workload) -> None:
        """What is not there where all jobs ask for whole nodes."""
        self.asked = requests(workload, self.machine.cluster, self.jobs)
        self.gpus = single_gpus(self.machine.cluster, list(self.asked.values()))
        self.on: dict[Job, dict[int, Tasks]] = {}  # tasks of each running job by node
        self.turn = 0  # the node after the last that a job started on
        self.begun = 0  # starts of jobs so far
        self.seed = 0
        self.given: dict[tuple[Job, int], dict[int, Tasks]] = {}  # … of each that began, and when
        self.pool_of = {
            node: number for number, pool in enumerate(self.machine.pools) for node in pool.nodes
        }
        cluster, pools = self.machine.cluster, self.machine.pools
        self.whole = {node: has(cluster, pools[pool].group) for node, pool in self.pool_of.items()}
        self.types: dict[int, Types] = {
            node: types_of(cluster, pools[pool].group, self.gpus)
            for node, pool in self.pool_of.items()
        }

    def single(self, node: int) -> Amounts:
        """What each GPU of an empty node has, where these are counted one by one."""
        group = self.machine.pools[self.pool_of[node]].group
        return gpus_of(self.machine.cluster, group, self.gpus)

    def jobs_on(self, node: int) -> Iterator[Job]:
        yield from [job for job in self.jobs if job in self.on and node in self.on[job]]

    def plan(self) -> SharedPlan:  # type: ignore[override]
        running = [job for job in self.jobs if job in self.on]
        for job in running:
            job.planned_end = self.expected_end(job)
        return SharedPlan(self, running)

    def fits_empty(self, job: Job, *, whole: bool) -> bool:
        return any(
            self.fits_empty_set(
                job, {n: x for n, x in some.items() if whole or not self.machine.outages_over[n]}
            )
            for some in self.sets(job)
        )

    def fits_empty_set(self, job: Job, least: dict[int, Amounts]) -> bool:
        single = {node: self.single(node) for node in least} if self.gpus else {}
        if len(self.asked[job].kinds) > 1:
            return (
                place_kinds(self.asked[job], least, "first_fit", gpus=single, types=self.types)
                is not None
            )
        return Room(self.asked[job], least, gpus=single, types=self.types).fits()

    def sets(self, job: Job) -> list[dict[int, Amounts]]:
        """Nodes that a job may have, and what each has; in sets, the smallest first, of which it has one."""
        every: dict[int, Amounts] = {}
        of_value: dict[str, dict[int, Amounts]] = {}
        name = self.asked[job].group_by
        for pool in job.pools:
            group = self.machine.pools[pool].group
            for node in self.machine.pools[pool].nodes:
                every[node] = self.whole[node]
                values = [
                    f
                    for f in features_of(self.machine.cluster.nodes[group])
                    if f.startswith(f"{name}=")
                ]
                of_value.setdefault(values[0] if values else "", {})[node] = every[node]
        if not name:
            return [every]
        size = lambda some: (*(sum(x[c] for x in some.values()) for c in range(2)), min(some))  # noqa: E731
        found = [s for s in sorted(of_value.values(), key=size) if self.fits_empty_set(job, s)]
        return found or [every]

    def keep_soonest(self, job: Job, plan: SharedPlan) -> None:  # type: ignore[override]
        keep_soonest(self, job, plan)

    def placed(
        self, job: Job, least: dict[int, Amounts], single: dict[int, Amounts]
    ) -> dict[int, Tasks] | None:
        """The nodes and tasks that a job gets, given what is least free of each; None if it does not fit."""

        def tell(room: Room) -> None:
            room.ready, room.job, room.simulation = self.ready, job, self

        for some in self.sets(job):
            here = {node: left for node, left in least.items() if node in some}
            if (
                found := place_kinds(
                    self.asked[job], here, self.placement, tell, single, self.types
                )
            ) is not None:
                return found
        return None

    def rejected(self, job: Job) -> bool:
        return super().rejected(job) or not self.fits_empty(job, whole=True)

    def asks_too_much(self, job: Job) -> bool:
        return not self.fits_empty(job, whole=False) or super().asks_too_much(job)

    def fits_now(self, job: Job) -> bool:
        free = self.free_resources()
        enough = all(free[name] >= amount for name, amount in job.needs.items())
        return enough and self.placed_now(job) is not None

    def placed_now(self, job: Job) -> tuple[dict[int, Tasks], dict[int, Amounts]] | None:
        """The nodes and tasks that a job would get of what is free at this moment, and what that is."""
        plan = self.plan()
        lefts = {
            node: plan.left(job, node, self.now)
            for pool in job.pools
            for node in self.machine.pools[pool].nodes
        }
        least = {node: left for node, left in lefts.items() if left is not None}
        found = self.placed(job, least, plan.least_single(least, [self.now]))
        return None if found is None else (found, least)

    def alignment(self, job: Job) -> float:
        """Sum over its nodes and all resources of the share asked for times the share that is free."""
        placed = self.placed_now(job)
        assert placed is not None
        given, least = placed
        asked = self.asked[job]
        total = 0.0
        for node in sorted(given):
            whole = self.whole[node]
            held = asked.held(given[node])
            more = untold(held, given[node], self.types[node])
            for c, there in enumerate(whole):
                if 0 < there < ENOUGH or c >= len(NAMES):
                    if not there:
                        continue
                    takes = there if asked.exclusive else held[c] + more[c]
                    total += float(takes / there) * float(least[node][c] / there)
        free = self.free_resources()
        for name, amount in self.machine.resources.items():
            if amount:
                total += (job.needs.get(name, 0) / amount) * (free[name] / amount)
        return total

    def split_now(self, job: Job, least: dict[int, Tasks]) -> dict[int, Tasks]:  # type: ignore[override]
        return least

    def reserved_now(self, job: Job, plan: object) -> dict[int, Tasks]:  # type: ignore[override]
        return job.reserved_split  # type: ignore[return-value]

    def take_nodes(self, job: Job, split: dict[int, Tasks]) -> None:  # type: ignore[override]
        self.on[job] = dict(split)
        job.nodes = sorted(split)
        job.gpus = [
            (node, gpu, float(share))
            for node in job.nodes
            for gpu, share in enumerate(getattr(split[node], "gpus", ()))
            if share and not self.asked[job].exclusive
        ]

    def begin(self, job: Job, split: dict[int, Tasks]) -> None:  # type: ignore[override]
        super().begin(job, split)  # type: ignore[arg-type]
        assert job.start is not None
        self.given[job, job.start] = dict(split)
        self.turn = list(split)[-1] + 1
        self.begun += 1

    def ready(self, node: int) -> int:
        """When a node can be on, where those that can be so first are gone through first."""
        return 0

    def speed_of(self, job: Job) -> Fraction:
        nodes = self.machine.cluster.nodes
        return min(
            exact(nodes[self.machine.pools[self.pool_of[node]].group].speed)
            for node in self.on[job]
        )

    def charge(self, job: Job) -> float:
        return self.asked[job].charge

    def vacate(self, job: Job) -> None:
        super().vacate(job)
        del self.on[job]
