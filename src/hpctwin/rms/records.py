"""What a resource manager tells of its jobs and nodes, in one vocabulary for all of them.

Times are seconds since the epoch by the resource manager's own clock.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from hpctwin.model import Cluster

__all__ = [
    "REASONS",
    "JobDependency",
    "JobId",
    "JobRecord",
    "JobSpec",
    "NodeName",
    "NodeRecord",
    "NodeReservation",
    "Snapshot",
]

# Ids and names reach command lines of resource managers: nothing may look like an option there.
JobId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:+\[\]-]{0,127}$")]
NodeName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._\[\]-]{0,127}$")]
Label = Annotated[str, StringConstraints(max_length=128)]
Seconds = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]

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
        nodes: how many whole nodes.
        walltime_s: requested limit.
        not_before_s: its user does not want it to start earlier (``--begin``, ``-a``); never our lease.
        user, account, partition, qos: labels, empty where there is none.
        priority: as the resource manager has it; larger is sooner.
        cores, gpus, memory_gb: needs per node.
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
    cores: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    gpus: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    memory_gb: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    resources: dict[Label, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    dependencies: tuple[JobDependency, ...] = ()
    held: bool = False
    reason: Label = ""
    constraints: Label = ""


class JobRecord(Record):
    """A job that has not ended.

    Args:
        spec: what it asks for.
        start_s: when it started; None while it waits.
        node_names: the nodes it holds.
        requeues: how often it was thrown back into the queue.
    """

    spec: JobSpec
    start_s: Seconds | None = None
    node_names: tuple[NodeName, ...] = ()
    requeues: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _holds_nodes_while_running(self) -> Self:
        if self.start_s is None and self.node_names:
            raise ValueError(f"job {self.spec.id} holds nodes but has no start time")
        return self


class NodeRecord(Record):
    """A node.

    Args:
        name: its name.
        state: ``up``; ``down``: cannot run jobs; ``drained``: finishes its job, takes no other.
    """

    name: NodeName
    state: Literal["up", "down", "drained"] = "up"


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
        for what, names in (
            ("node", [node.name for node in self.nodes]),
            ("job", [job.spec.id for job in self.jobs]),
        ):
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise ValueError(f"{what} {twice} is listed twice")
        return self
