"""Jobs that the resource manager would not start, whatever the twin chooses, and those like them."""

from __future__ import annotations

from collections.abc import Iterable

from hpctwin.rms.records.records import JobSpec

__all__ = ["Blocked"]

_ALONE = ("dependency", "hold", "policy")
"""Reasons that say nothing of other jobs."""
_OF_USER = ("account", "limit")
"""Reasons that other jobs of the same user, account and QOS share; the rest go with what is asked for."""


class Blocked:
    """Which waiting jobs have no chance as long as others are blocked.

    Where a limit keeps one job of a user from starting, it keeps the user's other jobs that are as large
    and as long: asking for each of them in turn would leave nodes idle. They stay leased, and are looked
    at again as soon as the one that stands for them has started or its reason is gone.

    Args:
        reasons: waiting jobs with a reason; see `JobSpec.reason`.
        late: jobs that did not start when they were asked to, for reasons unknown.
    """

    def __init__(self, reasons: Iterable[JobSpec], late: Iterable[JobSpec] = ()) -> None:
        self._blocked: dict[tuple[str, ...], list[JobSpec]] = {}
        for spec in reasons:
            word = spec.reason.partition(":")[0]
            if word in _OF_USER and "Min" not in spec.reason:
                self._blocked.setdefault(_of_user(spec), []).append(spec)
            elif word not in _ALONE and (spec.constraints or word == "partition"):
                self._blocked.setdefault(_of_demand(spec), []).append(spec)
        for spec in late:
            if spec.constraints:
                self._blocked.setdefault(_of_demand(spec), []).append(spec)

    def __bool__(self) -> bool:
        return bool(self._blocked)

    def like(self, spec: JobSpec) -> str | None:
        """The blocked job that a job is like; None if there is none."""
        for key in (_of_user(spec), _of_demand(spec)):
            for other in self._blocked.get(key, ()):
                smaller = other.nodes <= spec.nodes and other.walltime_s <= spec.walltime_s
                if smaller and other.id != spec.id:
                    return other.id
        return None


def _of_user(spec: JobSpec) -> tuple[str, ...]:
    return "user", spec.user, spec.account, spec.qos, spec.partition


def _of_demand(spec: JobSpec) -> tuple[str, ...]:
    return "demand", spec.partition, spec.constraints
