"""What a resource manager tells of its jobs and nodes, in one vocabulary for all of them.

Times are seconds since the epoch by the resource manager's own clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from hpctwin.model import Cluster
from hpctwin.model.cluster.node_group import Sleep
from hpctwin.model.requests.chunks import Tasks, read_more_tasks

__all__ = [
    "REASONS",
    "JobDependency",
    "JobId",
    "JobRecord",
    "JobSpec",
    "NodeName",
    "NodePart",
    "NodePower",
    "NodeRecord",
    "NodeReservation",
    "Snapshot",
]

# Ids and names reach command lines of resource managers: nothing may look like an option there.
JobId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:+\[\]-]{0,127}$")]
NodeName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._\[\]-]{0,127}$")]
Label = Annotated[str, StringConstraints(max_length=128)]
Seconds = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]

REASONS = (
    "account", "dependency", "hold", "licence", "limit", "nodes", "partition", "policy", "reservation",
)  # fmt: skip
"""What a job's reason for waiting begins with; the resource manager's own words follow after a colon.

``account``: it may not use its account, QOS or association. ``dependency``: can never be fulfilled.
``nodes``: those that it needs are down, or none has what it asks for. ``policy``: anything else.
"""


class Record(BaseModel):
    """Frozen; fields that are not known are refused, so that a newer sender is noticed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class JobDependency(Record):
    """A job may start only after something has happened to another one.

    Args:
        on: the job waited for.
        kind: it has started (``after``), ended (``afterany``), ended well (``afterok``).
        delay_s: so many seconds later.
    """

    on: JobId
    kind: Literal["after", "afterany", "afterok"] = "afterany"
    delay_s: Seconds = 0.0


class JobSpec(Record):
    """What a job asks for.

    Args:
        id: as the resource manager writes it.
        submit_s: when it was submitted.
        nodes: how many whole nodes; where it asks for tasks, so many at least.
        walltime_s: requested limit.
        not_before_s: its user does not want it to start earlier (``--begin``, ``-a``); never our lease.
        user, account, partition, qos: labels, empty where there is none.
        priority: as the resource manager has it; larger is sooner.
        cores, gpus, memory_gb: needs per node, of jobs with whole nodes.
        features: what its nodes must have besides; see `hpctwin.model.requests.features`.
        tasks: how many parts it has that may share nodes with other jobs; 0 for whole nodes.
        cores_per_task, memory_gb_per_task, gpus_per_task: what each task needs, on one node.
        consumables: what each task needs besides of what nodes have, by name; of a job with whole nodes, what
            each of them must have.
        tasks_per_node: so many of its tasks at most lie on one node; 0 for any number.
        more_tasks: further kinds of its tasks, as `hpctwin.model.requests.chunks.read_more_tasks` reads them.
        exclusive: whether a job with tasks has its nodes for itself all the same.
        shared_with: whose jobs may be on the nodes of a job with tasks besides: 1: its user's only, 2: its
            account's; 0: anyone's.
        spread_job: whether a job with tasks lies on as many nodes as it can.
        resources: cluster-wide resources by name.
        dependencies: those not fulfilled yet.
        held: whether a user or operator holds it.
        reason: why the resource manager would not start it now, whatever nodes are free; see `REASONS`.
            Empty where it waits only for nodes, for its turn or for the end of a lease.
        constraints: licences, features, a reservation and the like that it asks for and that are not
            modelled, as the resource manager writes them.
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
    tasks_per_node: int = Field(default=0, ge=0)
    more_tasks: Annotated[str, StringConstraints(max_length=4096)] = ""
    exclusive: bool = False
    shared_with: int = Field(default=0, ge=0, le=2)
    spread_job: bool = False
    resources: dict[Label, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    dependencies: tuple[JobDependency, ...] = ()
    held: bool = False
    reason: Label = ""
    constraints: Label = ""

    @model_validator(mode="after")
    def _tasks_ask_for_something(self) -> Self:
        if self.tasks:
            if not any((*self.kinds[0].each, *self.consumables.values())):
                raise ValueError(f"job {self.id}: its tasks ask for no cores, memory or GPUs")
            if self.nodes > self.tasks:
                raise ValueError(
                    f"job {self.id} asks for {self.nodes} nodes at least, but has {self.tasks} tasks"
                )
        if self.more_tasks:
            read_more_tasks(self.more_tasks)
            if not self.tasks or self.nodes > 1:
                raise ValueError(
                    f"job {self.id}: more_tasks goes with tasks, the first kind, and without nodes at least"
                )
        return self

    @property
    def kinds(self) -> tuple[Tasks, ...]:
        """Its tasks, of one kind or several; empty if it asks for whole nodes."""
        if not self.tasks:
            return ()
        each = (self.cores_per_task, self.memory_gb_per_task, self.gpus_per_task)
        more = read_more_tasks(self.more_tasks) if self.more_tasks else ()
        return (Tasks(self.tasks, *each, tuple(self.consumables.items())), *more)

    @property
    def shares(self) -> bool:
        """Whether others may be on its nodes."""
        return self.tasks > 0 and not self.exclusive


class NodePart(Record):
    """What a job holds of a node that others share.

    Args:
        cores, memory_gb, gpus: amounts.
        consumables: amounts by name.
    """

    cores: Amount = 0.0
    memory_gb: Amount = 0.0
    gpus: Amount = 0.0
    consumables: dict[Label, Amount] = Field(default_factory=dict)


class JobRecord(Record):
    """A job that has not ended.

    Args:
        spec: what it asks for.
        start_s: when it started; None while it waits. In the future where it has nodes that must be switched
            on first: then it starts when they are on.
        node_names: the nodes it holds.
        parts: what it holds of each of them; empty if it has them for itself, or where that is not told.
        requeues: how often it was thrown back into the queue.
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
                f"job {self.spec.id} holds {len(self.node_names)} nodes but parts of {len(self.parts)}"
            )
        return self

    @property
    def amounts(self) -> npt.NDArray[np.float64] | None:
        """Cores, memory and GPUs that it holds of each of its nodes [nodes, 3]; None if it has them whole."""
        return self.holds()

    def holds(self, consumables: Sequence[str] = ()) -> npt.NDArray[np.float64] | None:
        """What it holds of each of its nodes; None if it has them whole.

        Where a job that shares nodes does not tell, its tasks are spread evenly.

        Args:
            consumables: names of those that the machine's nodes have.

        Returns:
            Cores, memory, GPUs, and these [nodes, 3 + consumables].
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


class NodePower(Record):
    """Whether a node is switched on.

    Args:
        state: ``on``, ``asleep``, or on the way from one to the other.
        depth: number of the sleep state that it is in, or on its way to or from, among those of its group.
        since_s: when it came into the state; of one that is on, when it was last without a job.
        until_s: when the transition is to be over; None where it is in none.
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
                    f"a node that is {self.state} has no until_s: nothing ends by itself"
                )
        elif self.until_s is None or self.until_s < self.since_s:
            raise ValueError(f"a node that is {self.state} needs until_s, not before since_s")
        return self

    def ready_s(self, sleep: Sequence[Sleep], now_s: float) -> float:
        """When the node can be on, at the earliest.

        Args:
            sleep: the sleep states of its group.
            now_s: the present.
        """
        over_s = max(now_s, self.until_s or now_s)
        if self.state in ("on", "switching_on"):
            return over_s
        return over_s + sleep[self.depth].switch_on.time


class NodeRecord(Record):
    """A node.

    Args:
        name: its name.
        state: ``up``; ``down``: cannot run jobs; ``drained``: finishes its job, takes no other.
        power: whether it is switched on; None where it is never switched off, or that is not known.
    """

    name: NodeName
    state: Literal["up", "down", "drained"] = "up"
    power: NodePower | None = None


class NodeReservation(Record):
    """Nodes that are away from ``start_s`` to ``end_s``: maintenance, or kept for somebody.

    Args:
        name: its name; a reservation of the same name replaces it.
        start_s, end_s: the span.
        node_names: the nodes; all where empty.
    """

    name: Label
    start_s: Seconds
    end_s: Seconds
    node_names: tuple[NodeName, ...] = ()

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.end_s <= self.start_s:
            raise ValueError(f"reservation {self.name!r} ends at {self.end_s:g}, not after start")
        return self


class Snapshot(Record):
    """Everything a resource manager knows at one moment.

    Args:
        cluster: the cluster's name.
        time_s: the moment.
        run: which run of the event source this belongs to; see `events.Event`.
        seq: sequence number of the last event that this snapshot includes.
        machine: node groups, partitions and resources. Nodes are numbered through its groups.
        nodes: the nodes, in the order of their numbers.
        jobs: all jobs that have not ended.
        reservations: those that have not ended.
        own_scheduling: whether the resource manager starts jobs by itself.
        shared: names of the nodes on which it may run several jobs at once.
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

    @model_validator(mode="after")
    def _nodes_match_machine(self) -> Self:
        if len(self.nodes) != self.machine.node_count:
            raise ValueError(
                f"{len(self.nodes)} nodes are listed, the machine has {self.machine.node_count}"
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
                raise ValueError(f"{what} {twice} is listed twice")
        return self
