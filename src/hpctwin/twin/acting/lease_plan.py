"""Which waiting jobs are kept from starting, and until when: a plan without clock or connection."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

__all__ = ["LeaseRule", "Waiting", "leases_due"]


@dataclass(frozen=True)
class LeaseRule:
    """How long leases are.

    Args:
        short_s: of jobs that could start soon.
        longest_s: of those that could not; at least ``short_s``.
    """

    short_s: float
    longest_s: float

    def length_s(self, now_s: float, job: Waiting) -> float:
        """How long a lease a job gets: short ones doubled, so that few commands renew them all.

        Half the time until it is expected to start, at most; a job that fits what is free could start
        now, if it were not for the twin.
        """
        if job.fits or job.expected_s is None:
            return self.short_s
        length_s = self.short_s
        while 2 * length_s <= min(self.longest_s, (job.expected_s - now_s) / 2):
            length_s *= 2
        return length_s


@dataclass(frozen=True)
class Waiting:
    """What a lease depends on.

    Args:
        until_s: the end of the job's lease; 0 where it has none.
        expected_s: when it is expected to start; None where nothing says.
        fits: whether so many nodes are free now.
    """

    until_s: float
    expected_s: float | None = None
    fits: bool = True


def leases_due(
    now_s: float, jobs: Mapping[str, Waiting], free: Collection[str], rule: LeaseRule
) -> dict[str, float]:
    """New ends of the leases that have to be renewed now.

    A lease is renewed when half of it is over. It is never shortened: who is to start is admitted.

    Args:
        now_s: the present by the manager's clock.
        jobs: the twin's waiting jobs.
        free: those that are not to be kept from starting: admitted, blocked, or beyond the model.
        rule: how long leases are.
    """
    due = {}
    for job_id, job in jobs.items():
        if job_id in free:
            continue
        length_s = rule.length_s(now_s, job)
        if job.until_s < now_s + length_s / 2:
            due[job_id] = now_s + length_s
    return due
