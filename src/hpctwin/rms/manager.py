"""The one interface to resource managers.

A resource manager that can be looked at, and nothing else: what others are made from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from hpctwin.errors import UnreachableError
from hpctwin.rms.records.push_events import News
from hpctwin.rms.records.records import Snapshot

__all__ = [
    "Hooked",
    "Identified",
    "LendsScheduling",
    "Outcome",
    "Places",
    "PlainManager",
    "Priorities",
    "Report",
    "ResourceManager",
    "Tells",
    "Way",
    "Where",
]

Way = Literal["lease", "start", "priority"]
"""How the twin can act: by begin times a little ahead, by starting jobs itself, by their order."""


Where = Sequence[tuple[str, Sequence[int]]]
"""Nodes of a job by name, and how many of its tasks of each kind are on each."""


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
        look_age_s: how long ago the last look at all of it began; None where each snapshot is a look.
        fault: why the look after that one failed; empty if it did not.
        partitions: names of the partitions in which the twin may act; None for all.
        left: why the twin leaves a pending job to the manager, by job id.
    """

    calls_per_minute: int = 0
    notes: tuple[str, ...] = ()
    partitions: tuple[str, ...] | None = None
    left: Mapping[str, str] = field(default_factory=dict)
    look_age_s: float | None = None
    fault: str = ""


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

    def ways(self) -> frozenset[Way]:
        """The ways to act that work here."""

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

    def leases(self) -> Mapping[str, float]:
        """The waiting jobs that are the twin's, and until when each is leased, seconds since the epoch.

        As of the last look, with what was done since; nobody is asked. 0 where the job has no lease, or
        an old one. A job is the twin's where the site's submit rule has marked it.
        """

    def lease(self, until_s: Mapping[str, float]) -> dict[str, Outcome]:
        """Let waiting jobs of the twin's not start before a time, in one command or a few.

        A begin time that the user asked for is never shortened. A job that is not the twin's, is gone,
        runs or is held is refused, and the others are done.

        Args:
            until_s: seconds since the epoch by the manager's clock, by job.
        """

    def admit(self, job_ids: Sequence[str]) -> dict[str, Outcome]:
        """End the leases of jobs, in one command or a few: the manager starts them by its own rules.

        A begin time that the user asked for stays.
        """

    def start(self, job_id: str) -> Outcome:
        """Start a waiting job now, by force; refused if it does not wait or does not fit."""

    def set_priority(self, job_id: str, priority: float) -> Outcome:
        """Change a waiting job's priority; larger is sooner."""

    def heartbeat(self, seq: int, *, starts_at_once: bool = False) -> None:
        """Show that the twin is in charge, and has processed all events up to ``seq``.

        While no heartbeats come, the site's submit rule gives no leases.

        Args:
            seq: the number of that event.
            starts_at_once: whether a job may start without a decision of the twin where no job is pending
                and it fits.

        Raises:
            UnreachableError: no answer.
        """

    def close(self) -> None:
        """Give back connections."""


@runtime_checkable
class LendsScheduling(Protocol):
    """A manager whose whole scheduling can rest while heartbeats come: a lease on all of it."""

    def take_scheduling(self) -> Outcome:
        """Ask it to start no job by itself from now on, as long as heartbeats come."""

    def give_scheduling(self) -> Outcome:
        """Let it schedule by itself again."""


@runtime_checkable
class Places(Protocol):
    """A manager that starts jobs on the nodes that it is told."""

    def start_on(self, job_id: str, where: Where) -> Outcome:
        """Start a waiting job now, on these nodes where that can be had, else by `ResourceManager.start`.

        Returns:
            With the way that was taken, where it was done.
        """


@runtime_checkable
class Tells(Protocol):
    """A manager that sends its events by itself; one that does not is polled."""

    def subscribe(self, take: Callable[[bytes], None]) -> None:
        """Have each event from now on given to a function, as a line of JSON, in a thread."""


@runtime_checkable
class Hooked(Protocol):
    """A manager that is polled, and has hooks that note what happens between two looks."""

    def translator(self) -> Callable[[str], Sequence[News]]:
        """What says what a line of theirs means."""

    def now_s(self) -> float:
        """The time by the clock that they note, seconds since the epoch."""


@runtime_checkable
class Identified(Protocol):
    """A manager that says which cluster it is of, whatever the settings call it."""

    def identity(self) -> str:
        """The same text for any two managers of one cluster on one host, another for any other.

        Raises:
            UnreachableError: it does not answer.
        """


class PlainManager:
    """Says no to whatever is asked of it; see `ResourceManager` for what each method is for.

    Args:
        cluster: name for events and snapshots.
    """

    clock_speed: float = 1.0
    priorities: Priorities = Priorities()

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster

    def ways(self) -> frozenset[Way]:
        """None."""
        return frozenset()

    def report(self) -> Report:
        """It costs nothing, and nothing is left out."""
        return Report()

    def own_estimates(self) -> dict[str, float]:
        """It says nothing."""
        return {}

    def snapshot(self) -> Snapshot:
        """Each manager's own.

        Raises:
            UnreachableError: its class does not say how.
        """
        raise UnreachableError(f"{type(self).__name__} has no method snapshot")

    def leases(self) -> Mapping[str, float]:
        """No job is the twin's."""
        return {}

    def lease(self, until_s: Mapping[str, float]) -> dict[str, Outcome]:
        """Refused."""
        return dict.fromkeys(until_s, self._no("leases"))

    def admit(self, job_ids: Sequence[str]) -> dict[str, Outcome]:
        """Refused."""
        return dict.fromkeys(job_ids, self._no("leases"))

    def start(self, job_id: str) -> Outcome:
        """Refused."""
        return self._no("way to start a job by force")

    def set_priority(self, job_id: str, priority: float) -> Outcome:
        """Refused."""
        return self._no("priorities that can be set")

    def heartbeat(self, seq: int, *, starts_at_once: bool = False) -> None:
        """No submit rule reads it."""

    def close(self) -> None:
        """Nothing is held open."""

    def _no(self, what: str) -> Outcome:
        return Outcome("refused", f"{self.cluster} has no {what}")
