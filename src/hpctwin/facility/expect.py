"""How long jobs run, reckoned from like jobs that have ended."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable

from hpctwin.model import Workload

__all__ = ["LikeJobs"]

LAST = 2
"""Jobs that the mean is over (Tsafrir, Etsion, Feitelson 2007: the last two of the user)."""


class LikeJobs:
    """What share of their walltimes the last like jobs ran.

    Like jobs are those of the same user with the same walltime; where nothing is known of these,
    those with the same walltime. (The rule of Tsafrir et al. takes the user alone; traces without
    users have only the walltime to tell jobs apart.)

    Args:
        workload: all jobs that will come.
    """

    def __init__(self, workload: Workload) -> None:
        users = workload.user.codes.tolist()
        walltimes = workload.walltime_ms.tolist()
        self._keys = [
            ((user, walltime), (None, walltime))
            for user, walltime in zip(users, walltimes, strict=True)
        ]
        self._open: dict[tuple[int | None, int], list[int]] = defaultdict(list)
        self._last: dict[tuple[int | None, int], deque[float]] = defaultdict(
            lambda: deque(maxlen=LAST)
        )

    def open(self, row: int) -> None:
        """A job has come; what it runs will be learnt when it has ended."""
        for key in self._keys[row]:
            self._open[key].append(row)

    def ratio(self, row: int, ran: Callable[[int], float | None]) -> float:
        """The expected share of its walltime that a job runs; 1 where nothing is known.

        Args:
            row: the job.
            ran: the share that a job ran; None if it has not ended.
        """
        for key in self._keys[row]:
            still = []
            for other in self._open[key]:
                share = ran(other)
                if share is None:
                    still.append(other)
                else:
                    self._last[key].append(share)
            self._open[key] = still
            if self._last[key]:
                return sum(self._last[key]) / len(self._last[key])
        return 1.0
