"""A plain, slow simulator written from ``docs/engine.md``: what the compiled engine must agree with.

Everything is spelled out as the page has it, with lists and objects, and what can be computed anew
is not remembered. Where the page can be read in two ways, a comment that begins with "Read:" says
how it is read here.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from hpctwin.model import (
    MS_PER_S,
    Category,
    Cluster,
    DependencyKind,
    FairShare,
    Partition,
    State,
    Workload,
    to_ms,
)
from hpctwin.model.cluster import parse_nodes

__all__ = ["JobView", "Order", "Pass", "ReferenceJob", "fcfs", "simulate_reference"]

OVERDUE_STEP_MS = 60 * MS_PER_S
ENDED = frozenset(State) - {State.PENDING, State.WAITING, State.RUNNING}


@dataclass(slots=True)
class JobView:
    """What an ordering may look at. Times are seconds; labels are codes, -1 where unknown."""

    submit: float
    eligible: float
    wait: float
    walltime: float
    expected: float
    nodes: float
    cores: float
    gpus: float
    memory_gb: float
    user: float
    account: float
    partition: float
    qos: float
    partition_priority: float
    qos_priority: float
    priority: float
    fairshare: float
    usage: float
    machine_nodes: float
    requeues: float
    dominant: float
    load: float
    cpu: float
    memory_mb: float
    chain: float
    risk: float


Order = Callable[[float, JobView], float]
Observer = Callable[[int, list[tuple[int, int]]], None]


def fcfs(now: float, job: JobView) -> float:
    """First come, first served."""
    return job.submit


@dataclass(frozen=True)
class ReferenceJob:
    """What became of one row of the workload; times are -1 where there is none.

    ``end_ms`` is set for every job that ended, also for those that ended without starting.
    ``nodes`` are the numbers of the nodes of its last attempt, if that was not undone.
    """

    row: int
    state: State
    eligible_ms: int
    start_ms: int
    end_ms: int
    requeues: int
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Pass:
    """One scheduling pass: its time, who started, and the reservations made in it (row, start)."""

    now_ms: int
    started: tuple[int, ...]
    reservations: tuple[tuple[int, int], ...]


def simulate_reference(
    workload: Workload,
    cluster: Cluster,
    *,
    order: Order = fcfs,
    backfill: str = "easy",
    reservations: int = 1,
    candidate_order: Order | None = None,
    placement: str = "first_fit",
    overrun: str = "terminate",
    on_dependency_failure: str = "cancel",
    expected_ms: Sequence[int] | None = None,
    depth: int = 1000,
    patience_ms: int = 86_400_000,
    until_ms: int | None = None,
    outages: Iterable[tuple[int, int, int]] | None = None,
    observer: Observer | None = None,
    log: list[Pass] | None = None,
) -> list[ReferenceJob]:
    """Simulate, and say for each row of the workload what became of it.

    Args:
        workload: the jobs.
        cluster: the system.
        order: smallest first; gets the time in seconds.
        backfill: ``none``, ``first-fit``, ``easy``, ``conservative`` or ``pack``.
        reservations: the k of EASY.
        candidate_order: for EASY's candidates, if not the same.
        placement: ``first_fit``, ``best_fit`` or ``spread``. Which nodes of a pool: always the
            lowest free numbers.
        overrun: ``terminate`` or ``continue``.
        on_dependency_failure: ``cancel`` or ``hold``.
        expected_ms: predicted runtimes by row; the walltimes if left out.
        depth, patience_ms: of ``pack``.
        until_ms: events after this time do not happen any more.
        outages: (node, start, duration) in ms; those of the cluster if left out.
        observer: called after each pass with the time and the reservations made in it as
            (row, start). With conservative backfilling these are all that were newly made or
            made again, also for jobs that then started at once.
        log: passes are appended to it.
    """
    _one_of("backfill", backfill, ("none", "first-fit", "easy", "conservative", "pack"))
    _one_of("placement", placement, ("first_fit", "best_fit", "spread"))
    _one_of("overrun", overrun, ("terminate", "continue"))
    _one_of("on_dependency_failure", on_dependency_failure, ("cancel", "hold"))
    if outages is None:
        if cluster.failures.mtbf is not None:
            raise ValueError("the reference draws no failures: give the outages")
        outages = [(o.node, to_ms(o.start), to_ms(o.duration)) for o in cluster.failures.outages]
    machine = _Machine(cluster)
    simulation = _Simulation(
        machine=machine,
        jobs=_jobs_of(workload, machine, expected_ms),
        outages=list(outages),
        share=_Usage(workload, cluster.fairshare),
        order=order,
        candidate_order=candidate_order or order,
        backfill=backfill,
        k=reservations,
        depth=depth,
        patience=patience_ms,
        placement=placement,
        terminate=overrun == "terminate",
        hold=on_dependency_failure == "hold",
        observer=observer,
        log=log,
    )
    simulation.run(until_ms)
    return [
        ReferenceJob(
            row=job.row,
            state=job.state,
            eligible_ms=_or_none(job.eligible),
            start_ms=_or_none(job.start),
            end_ms=_or_none(job.ended),
            requeues=job.requeues,
            nodes=tuple(job.nodes),
        )
        for job in simulation.jobs
    ]


def _one_of(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{what} {value!r} is none of {', '.join(known)}")


def _or_none(time: int | None) -> int:
    return -1 if time is None else time


# --- the machine -------------------------------------------------------------------------------


@dataclass
class _Pool:
    """Nodes of one group under the same maintenance."""

    group: int
    nodes: list[int]
    maintenance: list[tuple[int, int]]  # [start, end)

    def away(self, time: int) -> bool:
        return any(start <= time < end for start, end in self.maintenance)


class _Machine:
    """Nodes, pools, partitions, cluster-wide resources; who is on which node."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        group_of = [g for g, group in enumerate(cluster.nodes) for _ in range(group.count)]
        spans = []
        under: list[list[int]] = [[] for _ in group_of]
        for number, reservation in enumerate(cluster.reservations):
            spans.append((to_ms(reservation.start), to_ms(reservation.end)))
            # Read: groups and node numbers given together mean both.
            covered = set(parse_nodes(reservation.nodes or "", len(group_of))
                          if reservation.nodes is not None else ())  # fmt: skip
            names = reservation.groups
            for node, group in enumerate(group_of):
                named = names is not None and cluster.nodes[group].name in names
                everything = names is None and reservation.nodes is None
                if node in covered or named or everything:
                    under[node].append(number)
        pools: dict[tuple[int, tuple[int, ...]], _Pool] = {}
        for node, group in enumerate(group_of):  # rising, so pools come by their lowest number
            key = (group, tuple(under[node]))
            if key not in pools:
                pools[key] = _Pool(group, [], [spans[number] for number in under[node]])
            pools[key].nodes.append(node)
        self.pools = list(pools.values())
        self.maintenance_ms = spans
        self.partitions = cluster.partitions or (Partition(name="all"),)
        self.resources = dict(cluster.resources)
        self.outages_over = [0] * len(group_of)  # how many outages last on each node
        self.job_on: list[_Job | None] = [None] * len(group_of)

    def partition_of(self, label: str | None) -> int:
        """Index of the partition a job goes to."""
        if not self.cluster.partitions:
            return 0
        for index, partition in enumerate(self.partitions):
            if partition.name == label or (label is None and partition.default):
                return index
        raise ValueError(f"no partition for jobs that name {label!r}")

    def up(self, pool: int) -> list[int]:
        """Numbers of the pool's nodes that have not failed."""
        return [node for node in self.pools[pool].nodes if not self.outages_over[node]]

    def free(self, pool: int) -> list[int]:
        """Numbers of the pool's nodes that have not failed and have no job."""
        return [node for node in self.up(pool) if self.job_on[node] is None]


# --- jobs --------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Job:
    # What is asked
    row: int
    submit: int
    runtime: int
    walltime: int
    expected: int
    width: int
    needs: dict[str, int]  # of cluster-wide resources, above 0
    pools: list[int]  # eligible ones, in order
    partition: int
    user: int
    cancel: int | None  # when its user's cancellation takes effect
    view: JobView
    share_label: int
    fails: bool  # ends with an error when its runtime is over
    waits_for: list[tuple[_Job, DependencyKind, int]] = field(default_factory=list)
    waited_for_by: list[tuple[_Job, DependencyKind]] = field(default_factory=list)
    # What has become of it
    state: State = State.PENDING
    submitted: bool = False
    doomed: bool = False  # one of its `afterok` cannot come true any more
    eligible: int | None = None
    start: int | None = None
    first_start: int | None = None  # stays when the job is requeued
    ended: int | None = None
    requeues: int = 0
    nodes: list[int] = field(default_factory=list)
    split: dict[int, int] = field(default_factory=dict)  # nodes it holds of each pool
    due: int = 0  # when it will end, which policies do not know
    due_state: State = State.COMPLETED
    planned_end: int = 0  # as the latest plan had it
    reserved: int | None = None  # conservative: start of its reservation, …
    reserved_split: dict[int, int] = field(default_factory=dict)  # … and nodes of each pool

    def released(self) -> int | None:
        """When it becomes eligible; None as long as a dependency is open."""
        times = [self.submit]
        for on, kind, delay in self.waits_for:
            event: int | None
            if kind == DependencyKind.AFTER:
                # Read: a start stays a start when the job is requeued later.
                event = on.ended if on.first_start is None else on.first_start
            elif kind == DependencyKind.AFTERANY or on.state == State.COMPLETED:
                event = on.ended
            else:
                event = None
            if event is None:
                return None
            times.append(event + delay)
        return max(times)


def _jobs_of(
    workload: Workload, machine: _Machine, expected_ms: Sequence[int] | None
) -> list[_Job]:
    cluster = machine.cluster
    by = _share_category(workload, cluster.fairshare)
    asked = {
        name: [float(v) for v in workload.per_node[name]]
        if name in workload.per_node
        else [0.0] * len(workload)
        for name in ("cores", "gpus", "memory_gb")
    }
    jobs = []
    for row in range(len(workload)):
        walltime = int(workload.walltime_ms[row])
        expected = walltime if expected_ms is None else int(expected_ms[row])
        # Read: a prediction below one millisecond counts as one; jobs are planned somewhere.
        expected = max(1, min(expected, walltime))
        submit = int(workload.submit_ms[row])
        cancel = int(workload.cancel_ms[row])
        index = machine.partition_of(_label(workload.partition, row))
        partition = machine.partitions[index]
        shares = [float(workload.nodes[row]) / cluster.node_count]
        for name, amount in cluster.resources.items():
            asked_for = workload.resources.get(name)
            shares.append(0.0 if asked_for is None else float(asked_for[row]) / max(amount, 1))
        jobs.append(
            _Job(
                row=row,
                submit=submit,
                runtime=int(workload.runtime_ms[row]),
                fails=workload.fails is not None and bool(workload.fails[row]),
                walltime=walltime,
                expected=expected,
                width=int(workload.nodes[row]),
                needs={
                    name: int(amounts[row])
                    for name, amounts in workload.resources.items()
                    if amounts[row] > 0
                },
                pools=[
                    number
                    for number, pool in enumerate(machine.pools)
                    if _suits(cluster, partition, pool.group, {k: v[row] for k, v in asked.items()})
                ],
                partition=index,
                user=int(workload.user.codes[row]),
                cancel=None if cancel < 0 else max(cancel, submit),
                share_label=int(by.codes[row]),
                view=JobView(
                    submit=submit / MS_PER_S,
                    eligible=submit / MS_PER_S,
                    wait=0.0,
                    walltime=walltime / MS_PER_S,
                    expected=expected / MS_PER_S,
                    nodes=float(workload.nodes[row]),
                    cores=asked["cores"][row],
                    gpus=asked["gpus"][row],
                    memory_gb=asked["memory_gb"][row],
                    user=float(workload.user.codes[row]),
                    account=float(workload.account.codes[row]),
                    partition=float(workload.partition.codes[row]),
                    qos=float(workload.qos.codes[row]),
                    partition_priority=_relative(
                        partition.priority, [p.priority for p in cluster.partitions]
                    ),
                    qos_priority=_relative(
                        cluster.qos.get(_label(workload.qos, row) or "", 0), cluster.qos.values()
                    ),
                    priority=float(workload.priority[row]),
                    fairshare=1.0,
                    usage=0.0,
                    machine_nodes=float(cluster.node_count),
                    requeues=0.0,
                    dominant=max(shares),
                    load=sum(shares),
                    cpu=asked["cores"][row] * float(workload.nodes[row]),
                    memory_mb=asked["memory_gb"][row] * float(workload.nodes[row]) * 1024,
                    chain=0.0,
                    risk=0.0,
                ),
            )
        )
    edges = workload.dependencies
    for job_row, on_row, kind, delay in zip(
        edges.job.tolist(), edges.on.tolist(), edges.kind.tolist(), edges.delay_ms.tolist(),
        strict=True,
    ):  # fmt: skip
        jobs[job_row].waits_for.append((jobs[on_row], DependencyKind(kind), delay))
        jobs[on_row].waited_for_by.append((jobs[job_row], DependencyKind(kind)))
    return jobs


def _relative(weight: float, weights: Iterable[float]) -> float:
    """A weight relative to the largest; 0 if none is above 0."""
    top = max(weights, default=0.0)
    return weight / top if top > 0 else 0.0


def _label(category: Category, row: int) -> str | None:
    code = int(category.codes[row])
    return None if code < 0 else category.labels[code]


def _suits(cluster: Cluster, partition: Partition, group: int, asked: dict[str, float]) -> bool:
    """Whether nodes of the group are in the partition and have what is asked of each."""
    of = cluster.nodes[group]
    if partition.groups is not None and of.name not in partition.groups:
        return False
    has = {"cores": of.cores, "gpus": of.gpus, "memory_gb": of.memory_gb}
    for name, amount in asked.items():
        there = has[name]
        if there is not None and there < amount:
            return False
    return True


# --- fair share --------------------------------------------------------------------------------


def _share_category(workload: Workload, share: FairShare) -> Category:
    return workload.account if share.by == "account" else workload.user


class _Usage:
    """Decaying node-seconds by label. While n nodes are in use, dU/dt = n - λU."""

    def __init__(self, workload: Workload, share: FairShare) -> None:
        category = _share_category(workload, share)
        self.decay = math.log(2) / share.half_life
        self.shares = {
            code: share.shares.get(label, 1.0) for code, label in enumerate(category.labels)
        }
        if (category.codes < 0).any():
            self.shares[-1] = 1.0
        self.used = dict.fromkeys(self.shares, 0.0)
        self.nodes = dict.fromkeys(self.shares, 0)
        self.since = dict.fromkeys(self.shares, 0)

    def at(self, label: int, now: int) -> float:
        level = self.nodes[label] / self.decay
        elapsed = (now - self.since[label]) / MS_PER_S
        return (self.used[label] - level) * math.exp(-self.decay * elapsed) + level

    def change(self, label: int, now: int, nodes: int) -> None:
        self.used[label] = self.at(label, now)
        self.since[label] = now
        self.nodes[label] += nodes

    def factors(self, now: int) -> dict[int, tuple[float, float]]:
        """Fair-share factor and usage of each label."""
        used = {label: self.at(label, now) for label in self.shares}
        total = sum(used.values())
        promised = sum(self.shares.values())
        return {
            label: (
                1.0 if total == 0 else 2 ** (-(u / total) / (self.shares[label] / promised)),
                u,
            )
            for label, u in used.items()
        }


# --- the plan ----------------------------------------------------------------------------------


class _Plan:
    """Free amount of everything over future time, as steps.

    ``free[i]`` holds from ``times[i]`` to ``times[i + 1]``, the last one for ever. Its keys are
    pool numbers and resource names.
    """

    def __init__(self, machine: _Machine, running: list[_Job], now: int, placement: str) -> None:
        self.placement = placement
        up = {pool: len(machine.up(pool)) for pool in range(len(machine.pools))}
        changes = {now} | {job.planned_end for job in running}
        for start, end in machine.maintenance_ms:
            changes |= {time for time in (start, end) if time > now}
        self.times = sorted(changes)
        self.free: list[dict[int | str, int]] = []
        for time in self.times:
            amounts: dict[int | str, int] = {**up, **machine.resources}
            for job in running:
                if job.planned_end > time:
                    for key, amount in _held(job, job.split):
                        amounts[key] -= amount
            for number, pool in enumerate(machine.pools):
                # An overdue job may be on nodes that are away; then less than nothing is free,
                # which counts as nothing.
                if pool.away(time):
                    amounts[number] = 0
            self.free.append(amounts)

    def room(self, job: _Job, start: int) -> dict[int, int] | None:
        """Nodes it would take from each pool if it began at ``start``; None if it does not fit."""
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
        return _split(job.width, least, self.placement)

    def earliest(self, job: _Job) -> tuple[int, dict[int, int]]:
        """The earliest start from now on, and the nodes of each pool.

        A job that does not fit a moment before t can only begin to fit at t if something changes
        at t, so that only the steps need to be tried.
        """
        for time in self.times:
            split = self.room(job, time)
            if split is not None:
                return time, split
        raise AssertionError("a job that is neither rejected nor skipped fits an empty machine")

    def take(self, job: _Job, split: dict[int, int], start: int) -> None:
        self._add(job, split, start, -1)

    def give(self, job: _Job, split: dict[int, int], start: int) -> None:
        self._add(job, split, start, 1)

    def consistent(self) -> bool:
        return all(amount >= 0 for free in self.free for amount in free.values())

    def _add(self, job: _Job, split: dict[int, int], start: int, sign: int) -> None:
        end = start + job.expected
        self._cut(start)
        self._cut(end)
        for time, free in zip(self.times, self.free, strict=True):
            if start <= time < end:
                for key, amount in _held(job, split):
                    free[key] += sign * amount

    def _cut(self, time: int) -> None:
        """Make ``time`` the start of a step."""
        if time in self.times:
            return
        after = bisect_right(self.times, time)
        self.times.insert(after, time)
        self.free.insert(after, dict(self.free[after - 1]))


def _held(job: _Job, split: dict[int, int]) -> Iterator[tuple[int | str, int]]:
    yield from split.items()
    yield from job.needs.items()


def _split(width: int, least: dict[int, int], placement: str) -> dict[int, int]:
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


# --- the simulation ----------------------------------------------------------------------------


@dataclass
class _Simulation:
    machine: _Machine
    jobs: list[_Job]
    outages: list[tuple[int, int, int]]
    share: _Usage
    order: Order
    candidate_order: Order
    backfill: str
    k: int
    depth: int
    patience: int
    placement: str
    terminate: bool
    hold: bool
    observer: Observer | None
    log: list[Pass] | None
    now: int = -1
    came_back: bool = False  # capacity, other than planned, since the last pass
    started: list[int] = field(default_factory=list)  # in this pass
    made: list[tuple[int, int]] = field(default_factory=list)  # reservations, in this pass

    def __post_init__(self) -> None:
        self.failures = [(start, node) for node, start, _ in self.outages]
        self.repairs = [(start + duration, node) for node, start, duration in self.outages]
        # Pools know themselves when they are away; what is kept here makes the instants.
        self.maintenance = [time for span in self.machine.maintenance_ms for time in span]
        self.unsubmitted = list(self.jobs)
        self.cancellations = [job for job in self.jobs if job.cancel is not None]

    def run(self, until: int | None) -> None:
        while (instant := self.next_instant()) is not None:
            if until is not None and instant > until:
                return
            # The same time again is a second batch, with a second pass.
            assert instant >= self.now
            self.now = instant
            self.batch()
            self.one_pass()

    def in_state(self, state: State) -> list[_Job]:
        return [job for job in self.jobs if job.state == state]

    def next_instant(self) -> int | None:
        # Read: a failure of a node that is down already, the end of an outage while another
        # lasts, and the cancellation of a job that has ended are events as well.
        times = [job.due for job in self.in_state(State.RUNNING)]
        times += [time for time, _ in self.failures + self.repairs]
        times += self.maintenance
        times += [job.submit for job in self.unsubmitted]
        times += [job.cancel for job in self.cancellations if job.cancel is not None]
        times += [time for job in self.jobs if (time := self.release_time(job)) is not None]
        times += [job.reserved for job in self.jobs if job.reserved is not None]
        return min(times, default=None)

    # -- the batch --

    def batch(self) -> None:
        now = self.now
        # 1. Job ends
        for job in self.in_state(State.RUNNING):
            if job.due <= now:
                self.vacate(job)
                self.end(job, job.due_state)
        self.end_doomed()
        # 2. Nodes leave
        self.maintenance = [time for time in self.maintenance if time > now]
        for _, node in [event for event in self.failures if event[0] <= now]:
            self.machine.outages_over[node] += 1
            job_there = self.machine.job_on[node]
            if job_there is not None:
                self.lose(job_there)
        self.failures = [event for event in self.failures if event[0] > now]
        self.end_doomed()
        # 3. Nodes come back
        for _, node in [event for event in self.repairs if event[0] <= now]:
            self.machine.outages_over[node] -= 1
            if not self.machine.outages_over[node]:
                self.came_back = True
        self.repairs = [event for event in self.repairs if event[0] > now]
        # 4. Submissions. Read: rejection comes before everything else that could end the job now,
        # and a job that waits for nothing is eligible here, even if it is cancelled in step 5.
        new = [job for job in self.unsubmitted if job.submit <= now]
        self.unsubmitted = [job for job in self.unsubmitted if job.submit > now]
        for job in new:
            job.submitted = True
            if self.rejected(job):
                self.end(job, State.REJECTED)
        self.end_doomed()
        self.release(new)
        # 5. Cancellations
        for job in [job for job in self.cancellations if job.cancel <= now]:
            if job.state in ENDED:
                continue
            if job.state == State.RUNNING:
                self.vacate(job)
            elif job.reserved is not None:
                job.reserved = None
                self.came_back = True
            self.end(job, State.CANCELLED)
        self.cancellations = [job for job in self.cancellations if job.cancel > now]
        self.end_doomed()
        # 6. Releases. Read: also of jobs whose dependency came true in this very batch.
        self.release(self.jobs)
        # 7. Timers: a reservation that is now is seen by the pass.

    def end(self, job: _Job, state: State) -> None:
        job.state = state
        job.ended = self.now
        if state != State.COMPLETED:
            for other, kind in job.waited_for_by:
                if kind == DependencyKind.AFTEROK:
                    other.doomed = True

    def end_doomed(self) -> None:
        """End jobs whose `afterok` has failed, and those that wait for them, and so on.

        Read: "those that wait for it" are those with `afterok`; to the others it has ended.
        """
        if self.hold:
            return
        while fallen := [
            job for job in self.jobs if job.doomed and job.submitted and job.state == State.PENDING
        ]:
            for job in fallen:
                self.end(job, State.DEPENDENCY)

    def vacate(self, job: _Job) -> None:
        """Free what a running job holds."""
        self.share.change(job.share_label, self.now, -job.width)
        for node in job.nodes:
            self.machine.job_on[node] = None
        if self.now != job.start + job.expected:
            self.came_back = True

    def lose(self, job: _Job) -> None:
        """A node under a running job has failed."""
        self.vacate(job)
        if self.machine.cluster.failures.then == "fail":
            self.end(job, State.NODE_FAILURE)
        else:
            job.state = State.WAITING
            job.requeues += 1
            job.start = None
            job.nodes = []

    def rejected(self, job: _Job) -> bool:
        machine = self.machine
        limits = machine.partitions[job.partition]
        return (
            sum(len(machine.pools[pool].nodes) for pool in job.pools) < job.width
            or any(machine.resources.get(name, 0) < amount for name, amount in job.needs.items())
            or job.width < limits.min_nodes
            or (limits.max_nodes is not None and job.width > limits.max_nodes)
            or (limits.max_walltime is not None and job.walltime > to_ms(limits.max_walltime))
        )

    def release(self, jobs: list[_Job]) -> None:
        for job in jobs:
            time = self.release_time(job)
            if time is not None and time <= self.now:
                job.state = State.WAITING
                job.eligible = time

    def release_time(self, job: _Job) -> int | None:
        """When a submitted job becomes eligible, if that is known."""
        if not job.submitted or job.state != State.PENDING:
            return None
        return job.released()

    # -- the pass --

    def one_pass(self) -> None:
        self.started = []
        self.made = []
        queue = self.in_state(State.WAITING)
        self.show(queue)
        queue = self.ordered(queue, self.order)
        {
            "none": self.pass_none,
            "first-fit": self.pass_first_fit,
            "easy": self.pass_easy,
            "conservative": self.pass_conservative,
            "pack": self.pass_pack,
        }[self.backfill](queue, self.plan())
        if self.observer is not None:
            self.observer(self.now, list(self.made))
        if self.log is not None:
            self.log.append(Pass(self.now, tuple(self.started), tuple(self.made)))

    def show(self, queue: list[_Job]) -> None:
        """Bring what orderings see up to date."""
        factors = self.share.factors(self.now)
        for job in queue:
            assert job.eligible is not None
            view = job.view
            view.eligible = job.eligible / MS_PER_S
            view.wait = (self.now - job.submit) / MS_PER_S
            view.fairshare, view.usage = factors[job.share_label]
            view.requeues = float(job.requeues)
            view.chain = self.chain(job) / MS_PER_S

    def chain(self, job: _Job) -> int:
        """Expected runtimes of the longest chain of submitted jobs that wait for a job, ms."""
        lengths = [
            other.expected + self.chain(other) for other, _ in job.waited_for_by if other.submitted
        ]
        return max(lengths, default=0)

    def ordered(self, queue: list[_Job], order: Order) -> list[_Job]:
        # Rows are sorted by submit time, then job id, so that the row settles ties.
        return sorted(queue, key=lambda job: (order(self.now / MS_PER_S, job.view), job.row))

    def plan(self) -> _Plan:
        """The plan without waiting jobs."""
        running = self.in_state(State.RUNNING)
        for job in running:
            job.planned_end = self.expected_end(job)
        return _Plan(self.machine, running, self.now, self.placement)

    def expected_end(self, job: _Job) -> int:
        assert job.start is not None
        end = job.start + job.expected
        while end <= self.now:  # overdue
            end += OVERDUE_STEP_MS
        return min(end, job.start + job.walltime) if self.terminate else end

    def skipped(self, job: _Job) -> bool:
        # Read: up are nodes that have not failed, of those that the job could use; nodes away for
        # maintenance are up, since it is known when they come back.
        if job.width > sum(len(self.machine.up(pool)) for pool in job.pools):
            return True
        limit = self.machine.partitions[job.partition].max_jobs_per_user
        # Read: where the user is not known, there is no user to limit.
        if limit is None or job.user < 0:
            return False
        same = [
            other
            for other in self.in_state(State.RUNNING)
            if other.user == job.user and other.partition == job.partition
        ]
        return len(same) >= limit

    def begin(self, job: _Job, split: dict[int, int]) -> None:
        machine = self.machine
        job.nodes = []
        for pool, count in split.items():
            free = machine.free(pool)
            assert len(free) >= count
            job.nodes += free[:count]
        job.nodes.sort()
        for node in job.nodes:
            machine.job_on[node] = job
        self.share.change(job.share_label, self.now, job.width)
        speed = min(machine.cluster.nodes[machine.pools[pool].group].speed for pool in split)
        runtime = job.runtime if speed == 1 else math.ceil(job.runtime / speed)
        job.state = State.RUNNING
        job.start = self.now
        if job.first_start is None:
            job.first_start = self.now
        job.split = split
        job.planned_end = self.now + job.expected
        job.reserved = None
        if self.terminate and runtime > job.walltime:
            job.due, job.due_state = self.now + job.walltime, State.WALLTIME
        else:
            ending = State.FAILED if job.fails else State.COMPLETED
            job.due, job.due_state = self.now + runtime, ending
        self.started.append(job.row)

    def start_if_it_fits(self, job: _Job, plan: _Plan) -> bool:
        split = plan.room(job, self.now)
        if split is None:
            return False
        plan.take(job, split, self.now)
        self.begin(job, split)
        return True

    def pass_none(self, queue: list[_Job], plan: _Plan) -> None:
        blocked: set[int | str] = set()
        for job in queue:
            if self.skipped(job):
                continue
            wants: set[int | str] = {*job.pools, *job.needs}
            if wants & blocked or not self.start_if_it_fits(job, plan):
                blocked |= wants

    def pass_first_fit(self, queue: list[_Job], plan: _Plan) -> None:
        for job in queue:
            if not self.skipped(job):
                self.start_if_it_fits(job, plan)

    def pass_easy(self, queue: list[_Job], plan: _Plan) -> None:
        handed_out: Counter[int] = Counter()  # by partition
        candidates = []
        for job in queue:
            if handed_out[job.partition] >= self.k:
                candidates.append(job)
            elif not self.skipped(job) and not self.start_if_it_fits(job, plan):
                self.reserve(job, plan)
                handed_out[job.partition] += 1
        for job in self.ordered(candidates, self.candidate_order):
            if not self.skipped(job):
                self.start_if_it_fits(job, plan)

    def pass_pack(self, queue: list[_Job], plan: _Plan) -> None:
        while patient := [
            job
            for job in queue
            if job.state == State.WAITING
            and self.now - job.eligible >= self.patience
            and not self.skipped(job)
        ]:
            oldest = min(patient, key=lambda job: (job.eligible, job.row))
            if not self.start_if_it_fits(oldest, plan):
                self.reserve(oldest, plan)
                break
        candidates = [
            (place, job)
            for place, job in enumerate(queue[: self.depth])
            if job.state == State.WAITING
            and not (patient and job is oldest)
            and self.fits_now(job)
            and not self.skipped(job)
        ]
        while candidates := [(place, job) for place, job in candidates if self.fits_now(job)]:
            best = max(
                candidates,
                key=lambda one: (
                    (1.0 - 0.5 * one[0] / len(queue)) * self.alignment(one[1]) / one[1].expected,
                    -one[0],
                ),
            )
            candidates.remove(best)
            if not self.skipped(best[1]):
                self.start_if_it_fits(best[1], plan)

    def free_nodes(self, pool: int) -> int:
        if self.machine.pools[pool].away(self.now):
            return 0
        return len(self.machine.free(pool))

    def free_resources(self) -> dict[str, int]:
        free = dict(self.machine.resources)
        for job in self.in_state(State.RUNNING):
            for name, amount in job.needs.items():
                free[name] -= amount
        return free

    def fits_now(self, job: _Job) -> bool:
        free = self.free_resources()
        return sum(self.free_nodes(pool) for pool in job.pools) >= job.width and all(
            free[name] >= amount for name, amount in job.needs.items()
        )

    def alignment(self, job: _Job) -> float:
        """Sum over nodes and resources of the share asked for times the share that is free."""
        pools = range(len(self.machine.pools))
        nodes = self.machine.cluster.node_count
        total = (job.width / nodes) * (sum(self.free_nodes(pool) for pool in pools) / nodes)
        free = self.free_resources()
        for name, amount in self.machine.resources.items():
            if amount:
                total += (job.needs.get(name, 0) / amount) * (free[name] / amount)
        return total

    def reserve(self, job: _Job, plan: _Plan) -> tuple[int, dict[int, int]]:
        start, split = plan.earliest(job)
        plan.take(job, split, start)
        self.made.append((job.row, start))
        return start, split

    def pass_conservative(self, queue: list[_Job], plan: _Plan) -> None:
        for job in queue:
            if job.reserved is not None and self.skipped(job):
                job.reserved = None
                self.came_back = True  # counts for this pass
        compress, self.came_back = self.came_back, False
        holders = [job for job in queue if job.reserved is not None]
        fresh = any(job.reserved < self.now for job in holders)
        if not fresh:
            for job in holders:
                plan.take(job, job.reserved_split, job.reserved)
            # Read: reservations hold the numbers of nodes of each pool that they got when made.
            if not plan.consistent():
                fresh = True
                plan = self.plan()
        if fresh:
            for job in holders:
                job.reserved = None
        for job in queue:
            if self.skipped(job):
                if job.reserved is not None:
                    plan.give(job, job.reserved_split, job.reserved)
                    job.reserved = None
                    self.came_back = True  # counts for the next pass
                continue
            if job.reserved is not None and compress:
                plan.give(job, job.reserved_split, job.reserved)
                job.reserved = None
            if job.reserved is None:
                job.reserved, job.reserved_split = self.reserve(job, plan)
            if job.reserved == self.now:
                self.begin(job, job.reserved_split)
