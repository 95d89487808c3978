"""The one interface to resource managers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from hpctwin.errors import HpctwinError
from hpctwin.rms.records import Snapshot

__all__ = ["Capability", "Outcome", "Priorities", "Report", "ResourceManager", "UnreachableError"]

Capability = Literal["start", "hold", "release", "set_priority", "take_scheduling"]


class UnreachableError(HpctwinError):
    """The resource manager does not answer, or not in time."""


@dataclass(frozen=True)
class Outcome:
    """What became of an action.

    Args:
        result: ``done``; ``refused``: it certainly did not happen; ``unknown``: the answer was
            lost, and only events or a snapshot will tell.
        reason: why not, in the resource manager's words.
    """

    result: Literal["done", "refused", "unknown"]
    reason: str = ""


@dataclass(frozen=True)
class Report:
    """How we stand with a resource manager.

    Args:
        calls_per_minute: how often we asked it for something in the last minute.
        notes: one sentence for each thing that the last snapshot leaves out or takes for granted.
    """

    calls_per_minute: int = 0
    notes: tuple[str, ...] = ()


class Priorities(NamedTuple):
    """Priorities of jobs.

    Args:
        highest: the highest that can be set.
        step: by so much two jobs should differ that are to go one after the other.
    """

    highest: float = float("inf")
    step: float = 1.0


class ResourceManager(Protocol):
    """What the twin asks of a resource manager. All calls have a time limit of their own."""

    @property
    def cluster(self) -> str:
        """The cluster's name."""

    @property
    def clock_speed(self) -> float:
        """Seconds of its clock per second: 1 for a real one, 0 for one that waits for heartbeats."""

    @property
    def priorities(self) -> Priorities:
        """What `set_priority` takes."""

    def capabilities(self) -> frozenset[Capability]:
        """What can be done here, with the rights that we have."""

    def report(self) -> Report:
        """What we cost it, and what could not be read in the last snapshot."""

    def own_estimates(self) -> dict[str, float]:
        """When it says itself that jobs will start, seconds since the epoch by job id.

        Jobs of which it says nothing are not in it.

        Raises:
            UnreachableError: no answer.
        """

    def snapshot(self) -> Snapshot:
        """Everything it knows now.

        Raises:
            UnreachableError: no answer.
        """

    def start(self, job_id: str) -> Outcome:
        """Start a waiting job now; refused if it does not wait or does not fit."""

    def hold(self, job_id: str) -> Outcome:
        """Keep a waiting job from starting."""

    def release(self, job_id: str) -> Outcome:
        """Undo `hold`."""

    def set_priority(self, job_id: str, priority: float) -> Outcome:
        """Change a waiting job's priority; larger is sooner."""

    def take_scheduling(self) -> Outcome:
        """Ask it to start no job by itself from now on, as long as heartbeats come."""

    def give_scheduling(self) -> Outcome:
        """Let it schedule by itself again."""

    def heartbeat(self, seq: int) -> None:
        """Show that the twin lives and has dealt with all events up to ``seq``.

        When heartbeats stay away for the time agreed, the resource manager schedules by itself again.

        Raises:
            UnreachableError: no answer.
        """

    def close(self) -> None:
        """Give back connections."""
