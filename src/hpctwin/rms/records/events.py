"""Events on a cluster, as versioned JSON.

One event is one JSON object; docs/events.schema.json is made from these models. ``time_s`` is the
source's clock. ``seq`` counts the events of one ``run`` of the source from 1 without gaps, so that
a reader sees duplicates, reordering and loss.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from hpctwin.errors import FormatError
from hpctwin.model.settings import first_fault
from hpctwin.rms.records.records import (
    JobId,
    JobSpec,
    Label,
    NodeName,
    NodePart,
    NodePower,
    NodeReservation,
    Record,
    Seconds,
)

SCHEMA_VERSION = 1
MAX_EVENT_BYTES = 1_000_000
"""Longer events are refused; a job on 10,000 nodes takes about a tenth of it."""


class _Event(Record):
    """Base of all events, with the descriptions of fields that several kinds of events have.

    Args:
        version: Version of the format of events.
        cluster: Name of the cluster.
        run: Identifies the sender's run; a new run counts ``seq`` from 1 again.
        seq: Number of the event in its run, from 1 without gaps.
        time_s: Time of the event, in seconds since the Unix epoch.
        kind: Kind of the event.
        job: Job with its request.
        job_id: Id of the job in the resource manager.
        node_name: Name of the node.
    """

    version: Literal[1] = 1
    cluster: Label
    run: Label = ""
    seq: int = Field(ge=1)
    time_s: Seconds


class JobSubmitted(_Event):
    """A job was submitted, or was seen for the first time."""

    kind: Literal["job_submitted"] = "job_submitted"
    job: JobSpec


class JobModified(_Event):
    """The request of a job has changed.

    Args:
        job: Job with its new request.
    """

    kind: Literal["job_modified"] = "job_modified"
    job: JobSpec


class JobHeld(_Event):
    """A pending job is held."""

    kind: Literal["job_held"] = "job_held"
    job_id: JobId


class JobReleased(_Event):
    """A held job may start again."""

    kind: Literal["job_released"] = "job_released"
    job_id: JobId


class JobStarted(_Event):
    """A job has its nodes, and its parts of shared nodes.

    The event may be repeated for the same nodes when another start is known.

    Args:
        node_names: Names of its nodes.
        parts: Its part of each shared node; empty if it has whole nodes.
        begins_s: Start of the job, in seconds since the Unix epoch, if some nodes must be switched
            on first; by default the time of the event.
    """

    kind: Literal["job_started"] = "job_started"
    job_id: JobId
    node_names: tuple[NodeName, ...]
    parts: tuple[NodePart, ...] = ()
    begins_s: Seconds | None = None


class JobEnded(_Event):
    """A running job has ended and its nodes are free.

    Args:
        reason: Why it ended.
        exit_code: Exit code of the job; 0 by default.
    """

    kind: Literal["job_ended"] = "job_ended"
    job_id: JobId
    reason: Literal["exit", "cancelled", "walltime", "node_failure"] = "exit"
    exit_code: int = 0


class JobRequeued(_Event):
    """A running job was stopped, its nodes are free, and it is pending again.

    Args:
        requeues: Number of requeues so far; by default one more than before.
    """

    kind: Literal["job_requeued"] = "job_requeued"
    job_id: JobId
    requeues: int | None = Field(default=None, ge=0)


class JobDeleted(_Event):
    """A pending job is gone."""

    kind: Literal["job_deleted"] = "job_deleted"
    job_id: JobId


class NodeUp(_Event):
    """A node accepts jobs again."""

    kind: Literal["node_up"] = "node_up"
    node_name: NodeName


class NodeDown(_Event):
    """A node cannot run jobs. An event of its job reports what happens to that job."""

    kind: Literal["node_down"] = "node_down"
    node_name: NodeName


class NodeDrained(_Event):
    """A node finishes its job and accepts no other."""

    kind: Literal["node_drained"] = "node_drained"
    node_name: NodeName


class NodePowered(_Event):
    """A node is being switched on or off, or has been.

    Args:
        power: Its power state.
    """

    kind: Literal["node_powered"] = "node_powered"
    node_name: NodeName
    power: NodePower


class ReservationSet(_Event):
    """A reservation was created or changed.

    Args:
        reservation: The reservation in full.
    """

    kind: Literal["reservation_set"] = "reservation_set"
    reservation: NodeReservation


class ReservationRemoved(_Event):
    """A reservation is gone.

    Args:
        name: Name of the reservation.
    """

    kind: Literal["reservation_removed"] = "reservation_removed"
    name: Label


class SchedulerRestarted(_Event):
    """The resource manager has restarted, or has other nodes or partitions.

    Only a snapshot shows the current state.
    """

    kind: Literal["scheduler_restarted"] = "scheduler_restarted"


Event = Annotated[
    JobSubmitted
    | JobModified
    | JobHeld
    | JobReleased
    | JobStarted
    | JobEnded
    | JobRequeued
    | JobDeleted
    | NodeUp
    | NodeDown
    | NodeDrained
    | NodePowered
    | ReservationSet
    | ReservationRemoved
    | SchedulerRestarted,
    Field(discriminator="kind"),
]

_ADAPTER: TypeAdapter[Any] = TypeAdapter(Event)


def parse_event(text: bytes | str) -> Event:
    """Read one event.

    Raises:
        FormatError: The text is too long, not JSON, or not an event of this version; the message
            names the field.
    """
    data = text.encode() if isinstance(text, str) else text
    if len(data) > MAX_EVENT_BYTES:
        raise FormatError(f"an event has {len(data)} bytes; the limit is {MAX_EVENT_BYTES}")
    try:
        event: Event = _ADAPTER.validate_json(data)
    except ValidationError as error:
        raise FormatError(f"invalid event: {first_fault(error)}") from error
    return event


def event_json(event: Event) -> str:
    """Return the event as one line of JSON, which `parse_event` reads."""
    return event.model_dump_json()


def event_schema() -> dict[str, Any]:
    """Return the JSON Schema of an event."""
    schema = _ADAPTER.json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"hpctwin event, version {SCHEMA_VERSION}",
        **schema,
    }
