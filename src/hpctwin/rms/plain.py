"""A resource manager that can be looked at, and nothing else: what others are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpctwin.errors import UnreachableError
from hpctwin.rms.manager import Outcome, Priorities, Report, Way
from hpctwin.rms.records.records import Snapshot

__all__ = ["PlainManager"]


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
