"""Events: what happened on a cluster, as versioned JSON.

One event is one JSON object; docs/events.schema.json is made from these models. ``time_s`` is the
source's clock. ``seq`` counts the events of one ``run`` of the source from 1 without gaps, so that
a reader sees duplicates, reordering and loss.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from hpctwin.errors import FormatError
from hpctwin.model.input.settings import first_fault
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

__all__ = [
    "MAX_EVENT_BYTES",
    "SCHEMA_VERSION",
    "Event",
    "JobDeleted",
    "JobEnded",
    "JobHeld",
    "JobModified",
    "JobReleased",
    "JobRequeued",
    "JobStarted",
    "JobSubmitted",
    "NodeDown",
    "NodeDrained",
    "NodePowered",
    "NodeUp",
    "ReservationRemoved",
    "ReservationSet",
    "SchedulerRestarted",
    "event_json",
    "event_schema",
    "parse_event",
]

SCHEMA_VERSION = 1
MAX_EVENT_BYTES = 1_000_000
"""Longer ones are refused; a job on 10,000 nodes takes about a tenth."""


class _Event(Record):
    version: Literal[1] = 1
    cluster: Label
    run: Label = ""
    seq: int = Field(ge=1)
    time_s: Seconds


class JobSubmitted(_Event):
    """A job was submitted, or came to be seen."""

    kind: Literal["job_submitted"] = "job_submitted"
    job: JobSpec


class JobModified(_Event):
    """What a job asks for has changed; ``job`` is what it asks for now."""

    kind: Literal["job_modified"] = "job_modified"
    job: JobSpec


class JobHeld(_Event):
    """A waiting job is held."""

    kind: Literal["job_held"] = "job_held"
    job_id: JobId


class JobReleased(_Event):
    """A held job may start again."""

    kind: Literal["job_released"] = "job_released"
    job_id: JobId


class JobStarted(_Event):
    """A job has got its nodes; and of those that it shares with others, the parts.

    ``begins_s`` is when it starts, where some of them must be switched on first. It may be told again of the
    same nodes, when another time is known.
    """

    kind: Literal["job_started"] = "job_started"
    job_id: JobId
    node_names: tuple[NodeName, ...]
    parts: tuple[NodePart, ...] = ()
    begins_s: Seconds | None = None


class JobEnded(_Event):
    """A running job has ended and its nodes are free."""

    kind: Literal["job_ended"] = "job_ended"
    job_id: JobId
    reason: Literal["exit", "cancelled", "walltime", "node_failure"] = "exit"
    exit_code: int = 0


class JobRequeued(_Event):
    """A running job was stopped, its nodes are free, and it waits again.

    ``requeues`` is how often that has happened; one more than before if left out.
    """

    kind: Literal["job_requeued"] = "job_requeued"
    job_id: JobId
    requeues: int | None = Field(default=None, ge=0)


class JobDeleted(_Event):
    """A job that waited is gone."""

    kind: Literal["job_deleted"] = "job_deleted"
    job_id: JobId


class NodeUp(_Event):
    """A node takes jobs again."""

    kind: Literal["node_up"] = "node_up"
    node_name: NodeName


class NodeDown(_Event):
    """A node cannot run jobs. What becomes of its job is told by an event of the job."""

    kind: Literal["node_down"] = "node_down"
    node_name: NodeName


class NodeDrained(_Event):
    """A node finishes its job and takes no other."""

    kind: Literal["node_drained"] = "node_drained"
    node_name: NodeName


class NodePowered(_Event):
    """A node is switched on or off, or has been."""

    kind: Literal["node_powered"] = "node_powered"
    node_name: NodeName
    power: NodePower


class ReservationSet(_Event):
    """A reservation was made, or changed."""

    kind: Literal["reservation_set"] = "reservation_set"
    reservation: NodeReservation


class ReservationRemoved(_Event):
    """A reservation is gone."""

    kind: Literal["reservation_removed"] = "reservation_removed"
    name: Label


class SchedulerRestarted(_Event):
    """It has started anew, or has other nodes or partitions: only a snapshot tells what is true now."""

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
        FormatError: it is too long, not JSON, or not an event of this version; the message names
            the field.
    """
    data = text.encode() if isinstance(text, str) else text
    if len(data) > MAX_EVENT_BYTES:
        raise FormatError(f"an event of {len(data)} bytes; at most {MAX_EVENT_BYTES} are read")
    try:
        event: Event = _ADAPTER.validate_json(data)
    except ValidationError as error:
        raise FormatError(f"not an event: {first_fault(error)}") from error
    return event


def event_json(event: Event) -> str:
    """The event as one line of JSON; `parse_event` gives it back."""
    return event.model_dump_json()


def event_schema() -> dict[str, Any]:
    """The JSON Schema of an event."""
    schema = _ADAPTER.json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"hpctwin event, version {SCHEMA_VERSION}",
        **schema,
    }
