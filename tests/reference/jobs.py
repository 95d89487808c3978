"""Jobs: what they ask for, and what has become of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hpctwin.model import (
    MS_PER_S,
    Category,
    Cluster,
    DependencyKind,
    FairShare,
    NodeGroup,
    Partition,
    State,
    Workload,
    to_ms,
)
from tests.reference.machine import Machine


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
    user: int
    account: int
    partition: int
    qos: int
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
    predicted_runtime: float
    predicted_power: float
    communication: float


@dataclass(slots=True)
class NodeView:
    """What a placement may look at of a free node."""

    number: float
    group: float
    cores: float
    gpus: float
    memory_gb: float
    speed: float
    idle_w: float
    active_w: float
    wakes: float
    free: float


Order = Callable[[float, JobView], float]
Place = Callable[[float, JobView, NodeView], float]


def fcfs(now: float, job: JobView) -> float:
    """First come, first served."""
    return job.submit


@dataclass(eq=False)
class Job:
    """One row of the workload."""

    # What is asked
    row: int
    submit: int
    runtime: int
    walltime: int
    expected: int  # to have its nodes for so long
    width: int
    needs: dict[str, int]  # of cluster-wide resources, above 0
    pools: list[int]  # eligible ones, in order
    partition: int
    user: int
    cancel: int | None  # when its user's cancellation takes effect
    view: JobView
    share_label: int
    counts: float  # how often its use does, for fair share
    fails: bool  # ends with an error when its runtime is over
    waits_for: list[tuple[Job, DependencyKind, int]] = field(default_factory=list)
    waited_for_by: list[tuple[Job, DependencyKind]] = field(default_factory=list)
    rank: int = 0  # of its id
    # What has become of it
    state: State = State.PENDING
    submitted: bool = False
    doomed: bool = False  # one of its `afterok` cannot come true any more
    eligible: int | None = None
    start: int | None = None
    first_start: int | None = None  # stays when the job is requeued
    ended: int | None = None
    told: int | None = None  # when others are told that it has ended: its nodes are clean
    requeues: int = 0
    nodes: list[int] = field(default_factory=list)
    gpus: list[tuple[int, int, float]] = field(default_factory=list)  # of each node: GPU, share
    attempts: list[tuple[int, int, list[int]]] = field(default_factory=list)  # start, end, nodes
    split: dict[int, int] = field(default_factory=dict)  # nodes it holds of each pool
    over: int = 0  # when it will end, which policies do not know
    due: int = 0  # when its nodes will be free
    due_state: State = State.COMPLETED
    planned_end: int = 0  # as the latest plan had it
    reserved: int | None = None  # conservative: start of its reservation, …
    reserved_split: dict[int, int] = field(default_factory=dict)  # … and nodes of each pool
    reserved_once: int | None = None  # … or start of a reservation that is made anew in each pass
    # Pushdown, since it waits
    looked: int = -1  # when it was looked at last
    pushed: int = 0
    risen: int = 0
    # Preemption
    standing: int = 0  # class
    checkpoint: int = 0  # ms from one to the next; 0: none
    done: int = 0  # of its runtime, what checkpoints keep
    leaves: int | None = None  # when its grace ends
    sent_back: bool = False  # what becomes of it then
    patient: int = 0  # preempts nobody before then
    again_from: int = 0  # does not start again before then
    preemptions: int = 0
    in_vain: int = 0  # ms
    suspended: bool = False
    ran: int = 0  # ms until it was suspended, …
    remains: int = 0  # … and after that
    resumed: int | None = None  # when it last went on
    paused: int = 0  # ms of the time since its start

    @property
    def runs(self) -> list[tuple[int, int, list[int]]]:
        """From when to when it ran on which nodes, while it was not suspended."""
        return self.attempts if self.ended is None else self.runs_until(self.ended)

    def runs_until(self, time: int) -> list[tuple[int, int, list[int]]]:
        """The same, if it ends or is suspended at a time."""
        if self.start is None or self.suspended:
            return self.attempts
        begin = self.start if self.resumed is None else self.resumed
        return [*self.attempts, (begin, time, self.nodes)]

    @property
    def thinks(self) -> bool:
        """Whether its user submits it only when all that it waits for has happened."""
        return any(kind == DependencyKind.THINK for _, kind, _ in self.waits_for)

    @property
    def came(self) -> tuple[int, int]:
        """When an eligible job was submitted, and its place among those of the same time."""
        if not self.thinks:
            return self.submit, self.rank
        assert self.eligible is not None
        return self.eligible, self.rank

    def released(self) -> int | None:
        """When it becomes eligible; None as long as a dependency is open."""
        times = [self.submit]
        for on, kind, delay in self.waits_for:
            event: int | None
            if kind == DependencyKind.AFTER:
                # Read: a start stays a start when the job is requeued later.
                event = on.told if on.first_start is None else on.first_start
            elif kind != DependencyKind.AFTEROK or on.state == State.COMPLETED:
                event = on.told
            else:
                event = None
            if event is None:
                return None
            times.append(event + delay)
        return max(times)


def _has(group: NodeGroup, asked: str | None) -> bool:
    """Whether a node of a group has the features that a job asks for."""
    if asked is None:
        return True
    has = set(features_of(group))
    if "|" in asked and "&" not in asked:
        return bool(set(asked.split("|")) & has)
    return all(bool(set(part.strip("()").split("|")) & has) for part in asked.split("&"))


def features_of(group: NodeGroup) -> list[str]:
    """What nodes of a group have that is no amount."""
    lying = {
        "sockets": group.sockets,
        "cores_per_socket": group.cores_per_socket,
        "threads_per_core": group.threads_per_core,
    }
    return [*group.features, *(f"{k}={v}" for k, v in lying.items() if v is not None)]


def jobs_of(workload: Workload, machine: Machine, expected_ms: Sequence[int] | None) -> list[Job]:
    cluster = machine.cluster
    by = share_category(workload, cluster.fairshare)
    asked = {
        name: [float(v) for v in workload.per_node[name]]
        if name in workload.per_node
        else [0.0] * len(workload)
        for name in ("cores", "gpus", "memory_gb")
    }
    for name, amounts in workload.consumables.items():
        whole = [
            not workload.chunks or not tasks for tasks in workload.chunks.get("tasks", amounts)
        ]
        asked[name] = [
            float(v) if all_of_it else 0.0 for v, all_of_it in zip(amounts, whole, strict=True)
        ]
    nothing = [0.0] * len(workload)
    jobs = []
    for row in range(len(workload)):
        walltime = int(workload.walltime_ms[row])
        expected = walltime if expected_ms is None else int(expected_ms[row])
        # Read: a prediction below one millisecond counts as one; jobs are planned somewhere.
        expected = max(1, min(expected, walltime))
        held = expected + to_ms(cluster.cleanup)
        submit = int(workload.submit_ms[row])
        cancel = int(workload.cancel_ms[row])
        index = machine.partition_of(label_of(workload.partition, row))
        partition = machine.partitions[index]
        shares = [float(workload.nodes[row]) / cluster.node_count]
        for name, amount in cluster.resources.items():
            asked_for = workload.resources.get(name)
            shares.append(0.0 if asked_for is None else float(asked_for[row]) / max(amount, 1))
        jobs.append(
            Job(
                row=row,
                submit=submit,
                runtime=int(workload.runtime_ms[row]),
                fails=workload.fails is not None and bool(workload.fails[row]),
                walltime=walltime,
                expected=held,
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
                    and _has(cluster.nodes[pool.group], label_of(workload.features, row))
                ],
                partition=index,
                user=int(workload.user.codes[row]),
                cancel=None if cancel < 0 else max(cancel, submit),
                share_label=int(by.codes[row]),
                counts=cluster.fairshare.factor_of(label_of(workload.qos, row)),
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
                    user=int(workload.user.codes[row]),
                    account=int(workload.account.codes[row]),
                    partition=int(workload.partition.codes[row]),
                    qos=int(workload.qos.codes[row]),
                    partition_priority=_relative(
                        partition.priority, [p.priority for p in cluster.partitions]
                    ),
                    qos_priority=_relative(
                        cluster.qos.get(label_of(workload.qos, row) or "", 0), cluster.qos.values()
                    ),
                    priority=float(workload.priority[row]),
                    fairshare=1.0,
                    usage=0.0,
                    machine_nodes=float(cluster.node_count),
                    requeues=0.0,
                    dominant=max(shares),
                    load=sum(shares),
                    cpu=asked["cores"][row] * float(workload.nodes[row])
                    + float(workload.resources.get("cpu", nothing)[row]),
                    memory_mb=asked["memory_gb"][row] * float(workload.nodes[row]) * 1024
                    + float(workload.resources.get("memory_mb", nothing)[row]),
                    chain=0.0,
                    risk=0.0,
                    predicted_runtime=float(workload.predicted_runtime_s[row]),
                    predicted_power=0.0,
                    communication=0.0,
                ),
            )
        )
    for rank, row in enumerate(np.argsort(workload.job_id, kind="stable").tolist()):
        jobs[row].rank = rank
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


def label_of(category: Category, row: int) -> str | None:
    code = int(category.codes[row])
    return None if code < 0 else category.labels[code]


def _suits(cluster: Cluster, partition: Partition, group: int, asked: dict[str, float]) -> bool:
    """Whether nodes of the group are in the partition and have what is asked of each."""
    of = cluster.nodes[group]
    if partition.groups is not None and of.name not in partition.groups:
        return False
    has = {"cores": of.cores, "gpus": of.gpus, "memory_gb": of.memory_gb}
    for name, amount in asked.items():
        there = has[name] if name in has else of.consumables.get(name, 0)
        if there is not None and there < amount:
            return False
    return True


def share_category(workload: Workload, share: FairShare) -> Category:
    return workload.account if share.by == "account" else workload.user
