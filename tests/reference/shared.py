"""Nodes that jobs share, from the section of that name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from hpctwin.model import Cluster, Workload
from tests.reference.jobs import Job
from tests.reference.passes import Simulation, exact
from tests.reference.shared_places import ORDERS, fragmentation_rise

ENOUGH = Fraction(10**12)
NAMES = ("cores", "memory_gb", "gpus")
"""After these come the consumables."""
Amounts = tuple[Fraction, ...]
Tasks = tuple[int, ...]
"""On a node, of each kind of a job's tasks."""


@dataclass(frozen=True)
class Kind:
    """Tasks of a job that are alike."""

    tasks: int
    each: Amounts


@dataclass(frozen=True)
class Request:
    """What a job asks of nodes; `tasks` and `each` are of the first of its kinds of tasks."""

    tasks: int
    nodes: int
    most: int
    exclusive: bool
    each: Amounts  # of a task
    charge: float
    shared_with: int = 0
    user: int = 0
    account: int = 0
    more: tuple[Kind, ...] = ()
    group_by: str = ""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return (Kind(self.tasks, self.each), *self.more)

    def held(self, tasks: Tasks) -> Amounts:
        """What so many of its tasks of each kind ask together."""
        together = zip(tasks, self.kinds, strict=True)
        asked = [[count * ask for ask in kind.each] for count, kind in together]
        return tuple(sum(column, Fraction(0)) for column in zip(*asked, strict=True))

    def goes_with(self, other: Request) -> bool:
        """Whether both may be on a node at the same time, amounts apart."""
        if self.exclusive or other.exclusive:
            return False
        asked = {self.shared_with, other.shared_with}
        if 1 in asked and self.user != other.user:
            return False
        return not (2 in asked and self.account != other.account)


@dataclass(frozen=True)
class Booking:
    """Tasks of a job on a node for a time."""

    job: Job
    node: int
    tasks: Tasks
    start: int
    end: int


def has(cluster: Cluster, group: int) -> Amounts:
    """What an empty node of a group has."""
    found = []
    for name in NAMES:
        stated = any(getattr(other, name) is not None for other in cluster.nodes)
        amount = getattr(cluster.nodes[group], name)
        found.append(Fraction(amount or 0) if stated else ENOUGH)
    of_group = cluster.nodes[group].consumables
    return (*found, *(Fraction(of_group.get(name, 0)) for name in consumables(cluster)))


def consumables(cluster: Cluster) -> list[str]:
    """Of all node groups, each once."""
    return list(dict.fromkeys(name for group in cluster.nodes for name in group.consumables))


def requests(workload: Workload, cluster: Cluster, jobs: list[Job]) -> dict[Job, Request]:
    """What each job asks; what orderings see of it is put right."""
    chunks = workload.chunks
    there = [
        sum(has(cluster, g)[c] * group.count for g, group in enumerate(cluster.nodes))
        for c in range(3 + len(consumables(cluster)))
    ]
    result = {}
    for job in jobs:
        tasks = int(chunks["tasks"][job.row])
        owner = int(workload.user.codes[job.row]), int(workload.account.codes[job.row])
        if not tasks:
            nothing = (Fraction(0),) * len(there)
            result[job] = Request(job.width, job.width, 1, True, nothing, job.width)
            continue
        columns = [chunks[f"{name}_per_task"] for name in NAMES]
        none = np.zeros(len(workload))
        columns += [workload.consumables.get(name, none) for name in consumables(cluster)]
        each = tuple(Fraction(float(column[job.row])) for column in columns)
        more = further_kinds(workload, job.row, consumables(cluster))
        every = tasks + sum(kind.tasks for kind in more)
        totals = [
            amount * tasks + sum(kind.tasks * kind.each[c] for kind in more)
            for c, amount in enumerate(each)
        ]
        shares = [
            float(amount) / float(whole) if 0 < whole < ENOUGH else 0.0
            for amount, whole in zip(totals, there, strict=True)
        ]
        result[job] = Request(
            tasks,
            job.width,
            int(chunks["tasks_per_node"][job.row]) or every,
            bool(chunks["exclusive"][job.row]),
            each,
            max(shares) * cluster.node_count,
            int(chunks["shared_with"][job.row]),
            *owner,
            more,
            _label(workload, job.row),
        )
        view = job.view
        wide = [
            job.needs.get(name, 0) / max(amount, 1) for name, amount in cluster.resources.items()
        ]
        view.dominant, view.load = max(shares + wide), sum(shares + wide)
        view.cores, view.memory_gb, view.gpus = (float(amount) for amount in each[:3])
        view.cpu, view.memory_mb = float(totals[0]), float(totals[1]) * 1024
    return result


def _label(workload: Workload, row: int) -> str:
    code = workload.group_by.codes[row]
    return workload.group_by.labels[code] if code >= 0 else ""


def further_kinds(workload: Workload, row: int, others: list[str]) -> tuple[Kind, ...]:
    """The kinds of a job's tasks but the first."""
    code = workload.more_tasks.codes[row]
    if code < 0:
        return ()
    found = []
    for part in workload.more_tasks.labels[code].split("+"):
        count, *said = part.split(":")
        asked = {"cores": "1"} | dict(pair.split("=") for pair in said)
        each = tuple(Fraction(float(asked.get(name, "0"))) for name in (*NAMES, *others))
        found.append(Kind(int(count), each))
    return tuple(found)


class Room:
    """What a job's tasks of one kind could have of each node over a span.

    Args:
        request: with these as the first, or only, kind.
        least: what is least free of each node.
        taken: how many tasks of the job lie there already.
    """

    def __init__(
        self, request: Request, least: dict[int, Amounts], taken: dict[int, int] | None = None
    ) -> None:
        self.request = request
        self.ready: Callable[[int], int] = lambda node: 0
        self.least = least
        self.job: Any = None
        self.simulation: Any = None
        self.a = {
            node: min((x // ask for x, ask in zip(left, request.each, strict=True) if ask), default=10**9)
            if min(left) >= 0
            else 0
            for node, left in least.items()
        }  # fmt: skip
        for node, count in (taken or {}).items():
            if node in self.a:
                self.a[node] = max(0, min(self.a[node], request.most - count))
        self.f = {node: min(a, request.most) for node, a in self.a.items()}

    def fits(self) -> bool:
        nodes = sum(f > 0 for f in self.f.values())
        return sum(self.f.values()) >= self.request.tasks and nodes >= self.request.nodes

    def left(self, node: int) -> tuple[Fraction, Fraction, Fraction]:
        cores, memory, gpus, *_ = self.least[node]
        return gpus, cores, memory

    def place(self, placement: str) -> dict[int, int]:
        if placement == "spread":
            return self.one_by_one(lambda node, has: [-x for x in self.after(node, has)])
        if placement == "fragmentation":
            return self.one_by_one(lambda node, has: fragmentation_rise(self, node, has))
        nodes = sorted(node for node in self.f if self.f[node] > 0)
        tasks, least_nodes = self.request.tasks, self.request.nodes
        if placement in ORDERS:
            nodes = ORDERS[placement](self, nodes)
        if placement == "best_fit":
            alone = [node for node in nodes if self.f[node] >= tasks]
            if least_nodes == 1 and alone:
                return {min(alone, key=lambda node: (self.ready(node), self.left(node))): tasks}
            nodes.sort(key=lambda node: (-self.a[node], self.left(node)))
        if placement in ("first_fit", "best_fit"):
            nodes.sort(key=self.ready)
        given: dict[int, int] = {}
        for node in nodes:
            if tasks:
                given[node] = min(self.f[node], tasks - max(0, least_nodes - len(given) - 1))
                tasks -= given[node]
        assert not tasks
        return given

    def one_by_one(self, key: Callable[[int, int], Any]) -> dict[int, int]:
        """One task after the other, each to the node with the smallest key, given what it has of the job."""
        given: dict[int, int] = {}
        for left in range(self.request.tasks, 0, -1):
            only_new = left <= self.request.nodes - len(given)
            open_to = [
                node
                for node in sorted(self.f)
                if given.get(node, 0) < self.f[node] and not (only_new and node in given)
            ]
            best = min(open_to, key=lambda node: key(node, given.get(node, 0)))
            given[best] = given.get(best, 0) + 1
        return given

    def after(self, node: int, tasks: int) -> tuple[Fraction, ...]:
        cores, memory, gpus, *_ = (
            x - tasks * ask for x, ask in zip(self.least[node], self.request.each, strict=True)
        )
        return gpus, cores, memory


def place_kinds(
    request: Request,
    least: dict[int, Amounts],
    placement: str,
    told: Callable[[Room], None] = lambda room: None,
) -> dict[int, Tasks] | None:
    """Of each kind of a job's tasks how many lie on each node, in the order given; None if it does not fit.

    Args:
        request: what the job asks.
        least: what is least free of each node.
        placement: how nodes are gone through.
        told: tells a room what placements ask of besides.
    """
    kinds = request.kinds
    ways = (placement,) if len(kinds) == 1 else (placement, "first_fit by number")
    for way in ways:
        left, found = dict(least), dict[int, Tasks]()
        for number, kind in enumerate(kinds):
            taken = {node: sum(tasks) for node, tasks in found.items()}
            room = Room(replace(request, tasks=kind.tasks, each=kind.each), left, taken)
            told(room)
            if not room.fits():
                break
            if way != placement:
                room.ready = lambda node: 0
            for node, tasks in room.place(way.partition(" ")[0]).items():
                before = found.pop(node, (0,) * len(kinds))
                found[node] = (*before[:number], tasks, *before[number + 1 :])
                left[node] = tuple(
                    x - tasks * ask for x, ask in zip(left[node], kind.each, strict=True)
                )
        else:
            return found
    return None


class SharedPlan:
    """Who holds what of which node, now and later; with the interface of `Plan`."""

    def __init__(self, simulation: SharedSimulation, running: list[Job]) -> None:
        self.simulation = simulation
        self.machine = simulation.machine
        self.now = simulation.now
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
        left = list(has(self.machine.cluster, self.machine.pools[pool].group))
        for booking in self.bookings:
            if booking.node != node or not booking.start <= time < booking.end:
                continue
            if not self.simulation.asked[job].goes_with(self.simulation.asked[booking.job]):
                return None
            for c, amount in enumerate(self.simulation.asked[booking.job].held(booking.tasks)):
                left[c] -= amount
        return tuple(left)

    def room(self, job: Job, start: int) -> dict[int, Tasks] | None:
        end = start + job.expected
        times = [start, *(time for time in self.times() if start < time < end)]
        for name, amount in job.needs.items():
            if any(self.free_of(name, time) < amount for time in times):
                return None
        least = {}
        for pool in set(job.pools) - self.blocked:
            for node in self.machine.pools[pool].nodes:
                lefts = [self.left(job, node, time) for time in times]
                known = [left for left in lefts if left is not None]
                if len(known) == len(lefts):
                    least[node] = tuple(min(column) for column in zip(*known, strict=True))
        return self.simulation.placed(job, least)

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
        for time in self.times():
            if time >= at_least and (split := self.room(job, time)) is not None:
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

    def block(self, pools: list[int]) -> None:
        """Nothing of some pools is free any more, nor will be."""
        self.blocked.update(pools)

    def consistent(self) -> bool:
        """Whether nobody holds more than there is, and all on nodes that are up."""
        for time in self.times():
            if any(self.free_of(name, time) < 0 for name in self.machine.resources):
                return False
            for node in range(len(self.simulation.pool_of)):
                here = [b for b in self.bookings if b.node == node and b.start <= time < b.end]
                if here and self.machine.outages_over[node]:
                    return False
                if here and time < self.machine.back.get(node, 0):
                    return False
                asked = [self.simulation.asked[booking.job] for booking in here]
                pairs = itertools.combinations(asked, 2)
                if not all(one.goes_with(other) for one, other in pairs):
                    return False
                group = self.machine.pools[self.simulation.pool_of[node]].group
                for c, there in enumerate(has(self.machine.cluster, group)):
                    if sum(a.held(b.tasks)[c] for b, a in zip(here, asked, strict=True)) > there:
                        return False
        return True


class SharedSimulation(Simulation):
    """A simulation in which jobs share nodes."""

    def prepare(self, workload: Workload) -> None:
        """What is not there where all jobs ask for whole nodes."""
        self.asked = requests(workload, self.machine.cluster, self.jobs)
        self.on: dict[Job, dict[int, Tasks]] = {}  # tasks of each running job by node
        self.turn = 0  # the node after the last that a job started on
        self.given: dict[tuple[Job, int], dict[int, Tasks]] = {}  # … of each that began, and when
        self.pool_of = {
            node: number for number, pool in enumerate(self.machine.pools) for node in pool.nodes
        }

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
        if len(self.asked[job].kinds) > 1:
            return place_kinds(self.asked[job], least, "first_fit") is not None
        return Room(self.asked[job], least).fits()

    def sets(self, job: Job) -> list[dict[int, Amounts]]:
        """Nodes that a job may have, and what each has; in sets, the smallest first, of which it has one."""
        every: dict[int, Amounts] = {}
        of_value: dict[str, dict[int, Amounts]] = {}
        name = self.asked[job].group_by
        for pool in job.pools:
            group = self.machine.pools[pool].group
            for node in self.machine.pools[pool].nodes:
                every[node] = has(self.machine.cluster, group)
                values = [
                    f
                    for f in self.machine.cluster.nodes[group].features
                    if f.startswith(f"{name}=")
                ]
                of_value.setdefault(values[0] if values else "", {})[node] = every[node]
        if not name:
            return [every]
        size = lambda some: (*(sum(x[c] for x in some.values()) for c in range(2)), min(some))  # noqa: E731
        found = [s for s in sorted(of_value.values(), key=size) if self.fits_empty_set(job, s)]
        return found or [every]

    def placed(self, job: Job, least: dict[int, Amounts]) -> dict[int, Tasks] | None:
        """The nodes and tasks that a job gets, given what is least free of each; None if it does not fit."""

        def tell(room: Room) -> None:
            room.ready, room.job, room.simulation = self.ready, job, self

        for some in self.sets(job):
            here = {node: left for node, left in least.items() if node in some}
            if (found := place_kinds(self.asked[job], here, self.placement, tell)) is not None:
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
        found = self.placed(job, least)
        return None if found is None else (found, least)

    def alignment(self, job: Job) -> float:
        """Sum over its nodes and all resources of the share asked for times the share that is free."""
        placed = self.placed_now(job)
        assert placed is not None
        given, least = placed
        asked = self.asked[job]
        total = 0.0
        for node in sorted(given):
            whole = has(self.machine.cluster, self.machine.pools[self.pool_of[node]].group)
            for c, there in enumerate(whole):
                if 0 < there < ENOUGH or c >= len(NAMES):
                    if not there:
                        continue
                    takes = there if asked.exclusive else asked.held(given[node])[c]
                    total += float(takes / there) * float(least[node][c] / there)
        free = self.free_resources()
        for name, amount in self.machine.resources.items():
            if amount:
                total += (job.needs.get(name, 0) / amount) * (free[name] / amount)
        return total

    def split_now(self, job: Job, least: dict[int, Tasks]) -> dict[int, Tasks]:  # type: ignore[override]
        return least

    def take_nodes(self, job: Job, split: dict[int, Tasks]) -> None:  # type: ignore[override]
        self.on[job] = dict(split)
        job.nodes = sorted(split)

    def begin(self, job: Job, split: dict[int, Tasks]) -> None:  # type: ignore[override]
        super().begin(job, split)  # type: ignore[arg-type]
        assert job.start is not None
        self.given[job, job.start] = dict(split)
        self.turn = list(split)[-1] + 1

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
