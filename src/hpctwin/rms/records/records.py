"""Jobs and nodes as resource managers report them, in one vocabulary.

Times are seconds since the epoch by the resource manager's own clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from hpctwin.model import Cluster
from hpctwin.model.cluster.node_group import Sleep
from hpctwin.model.requests.chunks import Tasks, read_more_tasks
from hpctwin.model.settings import MOST, Described
from hpctwin.model.workload.dependencies import Said, parse_dependencies

# Ids and names reach command lines of resource managers: nothing may look like an option there.
JobId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:+\[\]-]{0,127}$")]
NodeName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._\[\]-]{0,127}$")]
Label = Annotated[str, StringConstraints(max_length=128)]
Seconds = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]

REASONS = (
    "account", "dependency", "hold", "licence", "limit", "nodes", "partition", "policy", "reservation",
)  # fmt: skip
"""First word of a job's reason for waiting.

The resource manager's own words follow after a colon. ``account``: the job may not use its account,
QOS or association. ``dependency``: one can never be fulfilled. ``nodes``: those that it needs are
down, or none has what it requests. ``policy``: anything else.
"""


class Record(Described, BaseModel):
    """Frozen model; unknown fields are rejected, so that a newer sender is noticed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class JobDependency(Record):
    """A job may start only after an event of another job.

    Args:
        on: Id of the other job.
        kind: The other job has started (``after``), ended (``afterany``), or succeeded
            (``afterok``).
        delay_s: Delay after that event, in seconds.
    """

    on: JobId
    kind: Literal["after", "afterany", "afterok"] = "afterany"
    delay_s: Seconds = 0.0


def listed_dependencies(
    text: object,
    job_id: str,
    notes: list[str],
    on: Callable[[str], str | None],
    *,
    mirrored: bool = False,
) -> tuple[JobDependency, ...]:
    """Return the dependencies that a resource manager lists, as `parse_dependencies` reads them.

    A job with a dependency that is not modeled stays pending, and a note says so.

    Args:
        on: Function that returns the id of the other job from its name there; None to omit it.
        mirrored: Whether kinds such as ``before`` are also listed on the waiting job.
    """
    try:
        said = parse_dependencies(text) if isinstance(text, str) else []
    except ValueError:
        said = [Said(str(text), "", 0.0, None, False, "")]
    result: list[JobDependency] = []
    for one in said:
        if one.waits and mirrored:
            continue
        if one.kind is None or one.waits or one.lost:
            notes.append(
                f"job {job_id} stays pending: its dependency {str(text)[:50]!r} is not modeled"
            )
            return (*result, JobDependency(on="0", kind="afterany"))
        if (other := on(one.on)) is not None:
            about = {"on": other, "kind": one.kind.name.lower(), "delay_s": 60.0 * one.delay}
            result.append(JobDependency.model_validate(about))
    return tuple(result)


class JobSpec(Record):
    """Request of a job.

    Args:
        id: Id as the resource manager writes it.
        submit_s: Submit time.
        nodes: Number of whole nodes; for a job with tasks, the minimum number of nodes.
        walltime_s: Requested limit, in seconds.
        not_before_s: Earliest start that the user requested (``--begin``, ``-a``); never a lease.
        user, account, partition, qos: Labels; empty without one.
        priority: Priority in the resource manager; a larger one starts sooner.
        cores, gpus, memory_gb: Needs per node, for jobs with whole nodes.
        features: Features that its nodes must have; see `hpctwin.model.requests.features`.
        tasks: Number of parts that may share nodes with other jobs; 0 for whole nodes.
        cores_per_task, memory_gb_per_task, gpus_per_task: Needs of each task, on one node.
        consumables: Other amounts that each task needs of its node, by name; for a job with whole
            nodes, amounts that each node must have.
        tasks_per_node: Maximum number of its tasks on one node; 0 for any number.
        more_tasks: Further kinds of tasks, as `hpctwin.model.requests.chunks.read_more_tasks` reads
            them.
        exclusive: Whether a job with tasks has its nodes for itself all the same.
        shared_with: Other jobs allowed on the nodes of a job with tasks: 1: only its user's, 2:
            only its account's, 0: any.
        spread_job: Whether a job with tasks is spread over as many nodes as possible.
        resources: Cluster-wide resources by name.
        dependencies: Dependencies not fulfilled yet.
        held: Whether a user or operator holds it.
        reason: Reason why the resource manager would not start it now, whatever nodes are free; see
            `REASONS`. Empty if it waits only for nodes, for its turn or for the end of a lease.
        constraints: Requested licenses, features, reservation and the like that are not modeled, as
            the resource manager writes them.
    """

    id: JobId
    submit_s: Seconds
    nodes: int = Field(ge=1, le=10_000_000)
    walltime_s: float = Field(gt=0, le=1e9, allow_inf_nan=False)
    not_before_s: Seconds | None = None
    user: Label = ""
    account: Label = ""
    partition: Label = ""
    qos: Label = ""
    priority: float = Field(default=0.0, allow_inf_nan=False)
    cores: Amount = 0.0
    gpus: Amount = 0.0
    memory_gb: Amount = 0.0
    features: Label = ""
    tasks: int = Field(default=0, ge=0, le=100_000_000)
    cores_per_task: Amount = 0.0
    memory_gb_per_task: Amount = 0.0
    gpus_per_task: Amount = 0.0
    consumables: dict[Label, Amount] = Field(default_factory=dict)
    tasks_per_node: int = Field(default=0, ge=0, le=100_000_000)
    more_tasks: Annotated[str, StringConstraints(max_length=4096)] = ""
    exclusive: bool = False
    shared_with: int = Field(default=0, ge=0, le=2)
    spread_job: bool = False
    resources: dict[Label, Annotated[int, Field(ge=0, le=MOST)]] = Field(default_factory=dict)
    dependencies: tuple[JobDependency, ...] = ()
    held: bool = False
    reason: Label = ""
    constraints: Label = ""

    @model_validator(mode="after")
    def _tasks_ask_for_something(self) -> Self:
        if self.tasks:
            if not any((*self.kinds[0].each, *self.consumables.values())):
                raise ValueError(f"job {self.id}: its tasks request no cores, memory or GPUs")
            if self.nodes > self.tasks:
                raise ValueError(
                    f"job {self.id} requests {self.nodes} nodes or more, but has {self.tasks} tasks"
                )
        if self.more_tasks:
            read_more_tasks(self.more_tasks)
            if not self.tasks or self.nodes > 1:
                raise ValueError(
                    f"job {self.id}: more_tasks requires tasks (the first kind) and nodes must not be above 1"
                )
        return self

    @property
    def kinds(self) -> tuple[Tasks, ...]:
        """Its tasks, of one kind or several; empty if it requests whole nodes."""
        if not self.tasks:
            return ()
        each = (self.cores_per_task, self.memory_gb_per_task, self.gpus_per_task)
        more = read_more_tasks(self.more_tasks) if self.more_tasks else ()
        return (Tasks(self.tasks, *each, tuple(self.consumables.items())), *more)

    @property
    def shares(self) -> bool:
        """Whether other jobs may be on its nodes."""
        return self.tasks > 0 and not self.exclusive


class NodePart(Record):
    """Amounts that a job holds of a shared node.

    Args:
        cores, memory_gb, gpus: Amounts held.
        consumables: Other amounts held, by name.
    """

    cores: Amount = 0.0
    memory_gb: Amount = 0.0
    gpus: Amount = 0.0
    consumables: dict[Label, Amount] = Field(default_factory=dict)


class JobRecord(Record):
    """A job that has not ended.

    Args:
        spec: Request of the job.
        start_s: Start time; None while it is pending. A time in the future means that its nodes
            must be switched on first: it starts when they are on.
        node_names: Nodes that it holds.
        parts: Amounts held of each of them; empty if it has them for itself, or if not reported.
        requeues: Number of times that it was requeued.
    """

    spec: JobSpec
    start_s: Seconds | None = None
    node_names: tuple[NodeName, ...] = ()
    parts: tuple[NodePart, ...] = ()
    requeues: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _holds_nodes_while_running(self) -> Self:
        if self.start_s is None and self.node_names:
            raise ValueError(f"job {self.spec.id} holds nodes but has no start time")
        if self.parts and len(self.parts) != len(self.node_names):
            raise ValueError(
                f"job {self.spec.id} holds {len(self.node_names)} nodes, but parts has {len(self.parts)}"
            )
        return self

    @property
    def amounts(self) -> npt.NDArray[np.float64] | None:
        """Cores, memory and GPUs held of each node [nodes, 3]; None for whole nodes."""
        return self.holds()

    def holds(self, consumables: Sequence[str] = ()) -> npt.NDArray[np.float64] | None:
        """Return what it holds of each of its nodes; None for whole nodes.

        If nothing is reported for a job that shares nodes, its tasks are spread evenly.

        Args:
            consumables: Names of the consumables of the cluster's nodes.

        Returns:
            Cores, memory, GPUs, and these consumables [nodes, 3 + consumables].
        """
        spec, nodes = self.spec, len(self.node_names)
        if not spec.shares:
            return None
        if self.parts:
            return np.array(
                [
                    (
                        p.cores,
                        p.memory_gb,
                        p.gpus,
                        *(p.consumables.get(n, 0.0) for n in consumables),
                    )
                    for p in self.parts
                ]
            )
        held = np.zeros((nodes, 3 + len(consumables)))
        for kind in spec.kinds:
            tasks = np.full(nodes, kind.tasks // max(1, nodes))
            tasks[: kind.tasks - tasks.sum()] += 1
            held += np.outer(tasks, (*kind.each, *map(kind.asks, consumables)))
        return held

    @property
    def uses_up(self) -> bool:
        """Whether it holds any consumable of shared nodes, or may."""
        if not self.spec.shares:
            return False
        held = any(part.consumables for part in self.parts)
        return held or any(kind.consumables for kind in self.spec.kinds)


def held_by_jobs(
    jobs: Iterable[JobRecord], consumables: Sequence[str] = ()
) -> tuple[defaultdict[str, list[float]], set[str]]:
    """Return what jobs hold of each node in total, as `JobRecord.holds`, and nodes held whole."""
    held = defaultdict[str, list[float]](lambda: [0.0] * (3 + len(consumables)))
    alone: set[str] = set()
    for job in jobs:
        parts = job.holds(consumables)
        if parts is None:
            alone.update(job.node_names)
            continue
        for name, amounts in zip(job.node_names, parts.tolist(), strict=True):
            held[name] = [a + b for a, b in zip(held[name], amounts, strict=True)]
    return held, alone


class NodePower(Record):
    """Power state of a node.

    Args:
        state: ``on``, ``asleep``, or a transition between them.
        depth: Number of its sleep state, or of the one it goes to or comes from, in its group.
        since_s: Start of the state; for a node that is on, the start of its last idle time.
        until_s: Expected end of the transition; None outside a transition.
    """

    state: Literal["on", "switching_off", "asleep", "switching_on"] = "on"
    depth: int = Field(default=0, ge=0, le=100)
    since_s: Seconds
    until_s: Seconds | None = None

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.state in ("on", "asleep"):
            if self.until_s is not None:
                raise ValueError(
                    f"a node in state {self.state} must not have until_s, as the state does not end by itself"
                )
        elif self.until_s is None or self.until_s < self.since_s:
            raise ValueError(f"a node in state {self.state} needs until_s, not before since_s")
        return self

    def ready_s(self, sleep: Sequence[Sleep], now_s: float) -> float:
        """Return the earliest time at which the node can be on."""
        over_s = max(now_s, self.until_s or now_s)
        if self.state in ("on", "switching_on"):
            return over_s
        return over_s + sleep[self.depth].switch_on.time


class NodeRecord(Record):
    """A node.

    Args:
        name: Name of the node.
        state: ``up``; ``down``: cannot run jobs; ``drained``: finishes its job, accepts no other.
        power: Power state; None if it is never switched off, or if that is unknown.
    """

    name: NodeName
    state: Literal["up", "down", "drained"] = "up"
    power: NodePower | None = None


class NodeReservation(Record):
    """Nodes unavailable for a time: under maintenance, or reserved for a user.

    Args:
        name: Name; a reservation of the same name replaces it.
        start_s, end_s: Start and end.
        node_names: The nodes; all if empty.
    """

    name: Label
    start_s: Seconds
    end_s: Seconds
    node_names: tuple[NodeName, ...] = ()

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.end_s <= self.start_s:
            raise ValueError(
                f"reservation {self.name!r}: end_s {self.end_s:g} is not after start_s"
            )
        return self


class Snapshot(Record):
    """Everything a resource manager knows at one moment.

    Args:
        cluster: Name of the cluster.
        time_s: Time of the snapshot.
        run: Run of the event source that this belongs to; see `events.Event`.
        seq: Sequence number of the last event that this snapshot includes.
        machine: Node groups, partitions and resources. Nodes are numbered through its groups.
        nodes: Nodes, in the order of their numbers.
        jobs: All jobs that have not ended.
        reservations: Reservations that have not ended.
        own_scheduling: Whether the resource manager starts jobs by itself.
        shared: Names of the nodes on which it may run several jobs at once.
        unix_time: Whether times count from 1970; else they count from the clock's own start, as those
            of an emulated cluster.
    """

    cluster: Label
    time_s: Seconds
    run: Label = ""
    seq: int = Field(default=0, ge=0)
    machine: Cluster
    nodes: tuple[NodeRecord, ...]
    jobs: tuple[JobRecord, ...] = ()
    reservations: tuple[NodeReservation, ...] = ()
    own_scheduling: bool = True
    shared: tuple[NodeName, ...] = ()
    unix_time: bool = True

    @model_validator(mode="after")
    def _nodes_match_machine(self) -> Self:
        if len(self.nodes) != self.machine.node_count:
            raise ValueError(
                f"{len(self.nodes)} nodes are listed, but the cluster has {self.machine.node_count}"
            )
        groups = (group for group in self.machine.nodes for _ in range(group.count))
        for node, group in zip(self.nodes, groups, strict=True):
            if node.power is not None and node.power.depth >= max(len(group.sleep), 1):
                raise ValueError(
                    f"node {node.name} is {node.power.state}, depth {node.power.depth}; node group "
                    f"{group.name!r} has {len(group.sleep)} sleep states"
                )
        for what, names in (
            ("node", [node.name for node in self.nodes]),
            ("job", [job.spec.id for job in self.jobs]),
        ):
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise ValueError(f"{what} {twice} is listed twice; each {what} must be listed once")
        known = {node.name for node in self.nodes}
        for job in self.jobs:
            if not known.issuperset(job.node_names):
                unknown = next(name for name in job.node_names if name not in known)
                raise ValueError(f"job {job.spec.id} holds node {unknown}, which is not listed")
        for one in self.reservations:
            if not known.issuperset(one.node_names):
                unknown = next(name for name in one.node_names if name not in known)
                raise ValueError(
                    f"reservation {one.name!r} is on node {unknown}, which is not listed"
                )
        return self
