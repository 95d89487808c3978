"""The one interface to resource managers.

`PlainManager` can be observed and does nothing else; other managers derive from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from hpctwin.errors import UnreachableError
from hpctwin.rms.records.changes import News
from hpctwin.rms.records.records import Snapshot

Way = Literal["lease", "start", "priority"]
"""How the twin can act: begin times a little ahead, forced starts, or priorities."""


Where = Sequence[tuple[str, Sequence[int]]]
"""Nodes of a job by name, each with the number of its tasks of each kind."""


@dataclass(frozen=True)
class Outcome:
    """Result of an action.

    Args:
        result: ``done``; ``refused``: it certainly did not happen; ``unknown``: the answer was
            lost, and only events or a snapshot will show the result.
        reason: Reason against it, in the resource manager's words.
    """

    result: Literal["done", "refused", "unknown"]
    reason: str = ""


@dataclass(frozen=True)
class Report:
    """State of the connection to a resource manager.

    Args:
        calls_per_minute: Number of calls in the last minute.
        notes: One sentence for each thing that the last snapshot omits or assumes.
        look_age_s: Seconds since the start of the last full poll; None if each snapshot is a poll.
        fault: Error of the poll after that one; empty if it did not fail.
        partitions: Names of the partitions in which the twin may act; None for all.
        left: Reasons why the twin leaves pending jobs to the manager, by job id.
    """

    calls_per_minute: int = 0
    notes: tuple[str, ...] = ()
    partitions: tuple[str, ...] | None = None
    left: Mapping[str, str] = field(default_factory=dict)
    look_age_s: float | None = None
    fault: str = ""


class Priorities(NamedTuple):
    """Range and resolution of job priorities.

    Args:
        highest: Highest priority that can be set.
        step: Least difference between two jobs that should start one after the other.
    """

    highest: float = float("inf")
    step: float = 1.0


class ResourceManager(Protocol):
    """Calls that the twin makes to a resource manager; each has its own time limit."""

    @property
    def cluster(self) -> str:
        """Name of the cluster."""

    @property
    def clock_speed(self) -> float:
        """Seconds of its clock per second: 1 if real, 0 if the clock waits for heartbeats."""

    @property
    def priorities(self) -> Priorities:
        """Priorities that `set_priority` accepts."""

    def ways(self) -> frozenset[Way]:
        """Return the ways to act that work here."""

    def report(self) -> Report:
        """Return the load that the twin causes, and what the last snapshot could not read."""

    def own_estimates(self) -> dict[str, float]:
        """Return the manager's own start estimates, in seconds since the epoch, by job id.

        Jobs without an estimate are omitted.

        Raises:
            UnreachableError: No answer.
        """

    def snapshot(self) -> Snapshot:
        """Return everything that the manager knows now.

        Raises:
            UnreachableError: No answer.
        """

    def leases(self) -> Mapping[str, float]:
        """Return the twin's pending jobs, each with the end of its lease.

        Times are in seconds since the epoch; 0 if a job has no lease or an old one. The state is
        that of the last poll plus the twin's own actions since then; the manager is not asked. A
        job is the twin's if the site's submit rule has marked it.
        """

    def lease(self, until_s: Mapping[str, float]) -> dict[str, Outcome]:
        """Delay pending jobs of the twin until a time, in one command or a few.

        A begin time that the user requested is never shortened. A job that is not the twin's, is
        gone, runs or is held is refused; the other jobs are still delayed.

        Args:
            until_s: Seconds since the epoch by the manager's clock, by job.
        """

    def admit(self, job_ids: Sequence[str]) -> dict[str, Outcome]:
        """End the leases of jobs, in one command or a few.

        The manager then starts them by its own rules. A begin time that the user requested stays.
        """

    def start(self, job_id: str) -> Outcome:
        """Start a pending job now, by force; refused if it is not pending or does not fit."""

    def set_priority(self, job_id: str, priority: float) -> Outcome:
        """Change a pending job's priority; a larger one starts sooner."""

    def heartbeat(self, seq: int, *, starts_at_once: bool = False) -> None:
        """Show that the twin is in control and has processed all events up to ``seq``.

        Without heartbeats, the site's submit rule gives no leases.

        Args:
            seq: Number of that event.
            starts_at_once: Whether a job may start without the twin's decision if no job is pending
                and it fits.

        Raises:
            UnreachableError: No answer.
        """

    def close(self) -> None:
        """Close the connections."""


@runtime_checkable
class LendsScheduling(Protocol):
    """A manager that can pause all its scheduling while heartbeats come."""

    def take_scheduling(self) -> Outcome:
        """Ask the manager to start no job by itself from now on, while heartbeats come."""

    def give_scheduling(self) -> Outcome:
        """Let the manager schedule by itself again."""


@runtime_checkable
class Places(Protocol):
    """A manager that starts jobs on given nodes."""

    def start_on(self, job_id: str, where: Where) -> Outcome:
        """Start a pending job now, on these nodes if possible.

        If not, `ResourceManager.start` starts it.

        Returns:
            The outcome; if it is done, with the way that was used.
        """


@runtime_checkable
class Tells(Protocol):
    """A manager that sends its events by itself; any other is polled."""

    def subscribe(self, take: Callable[[bytes], None]) -> None:
        """Pass each event from now on to a function, as a line of JSON, in a thread."""


@runtime_checkable
class Hooked(Protocol):
    """A polled manager with hooks that record what happens between two polls."""

    def translator(self) -> Callable[[str], Sequence[News]]:
        """Return the function that translates a line of these hooks."""

    def now_s(self) -> float:
        """Return the time by the hooks' clock, in seconds since the epoch."""


@runtime_checkable
class Identified(Protocol):
    """A manager that identifies its cluster, whatever name the settings give it."""

    def identity(self) -> str:
        """Return a text that is equal for managers of the same cluster on one host only.

        Raises:
            UnreachableError: The manager does not answer.
        """


class PlainManager:
    """A manager that refuses every action; see `ResourceManager` for the methods.

    Args:
        cluster: Name for events and snapshots.
    """

    clock_speed: float = 1.0
    priorities: Priorities = Priorities()

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster

    def ways(self) -> frozenset[Way]:
        """Return no way."""
        return frozenset()

    def report(self) -> Report:
        """Return an empty report: no calls, nothing omitted."""
        return Report()

    def own_estimates(self) -> dict[str, float]:
        """Return no estimate."""
        return {}

    def snapshot(self) -> Snapshot:
        """Fail: each manager has its own.

        Raises:
            UnreachableError: The class does not define it.
        """
        raise UnreachableError(f"{type(self).__name__} has no method snapshot")

    def leases(self) -> Mapping[str, float]:
        """Return no job: none is the twin's."""
        return {}

    def lease(self, until_s: Mapping[str, float]) -> dict[str, Outcome]:
        """Refuse all leases."""
        return dict.fromkeys(until_s, self._no("leases"))

    def admit(self, job_ids: Sequence[str]) -> dict[str, Outcome]:
        """Refuse: there are no leases."""
        return dict.fromkeys(job_ids, self._no("leases"))

    def start(self, job_id: str) -> Outcome:
        """Refuse the start."""
        return self._no("method to start a job directly")

    def set_priority(self, job_id: str, priority: float) -> Outcome:
        """Refuse the change."""
        return self._no("method to set a job's priority")

    def heartbeat(self, seq: int, *, starts_at_once: bool = False) -> None:
        """Do nothing: no submit rule reads it."""

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _no(self, what: str) -> Outcome:
        return Outcome("refused", f"{self.cluster} has no {what}")
