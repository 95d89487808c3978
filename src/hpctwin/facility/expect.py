"""Expected runtimes of jobs, from similar jobs that have ended."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable

from hpctwin.model import Workload

__all__ = ["LikeJobs"]

LAST = 2
"""Number of jobs in the mean: two, as in Tsafrir, Etsion, Feitelson 2007."""


class LikeJobs:
    """Share of their walltimes that the last similar jobs ran.

    Similar jobs have the same user and walltime; if none of these has ended, the same walltime.
    The rule of Tsafrir et al. uses the user alone. In traces without users, only the walltime
    distinguishes jobs.

    Args:
        workload: All jobs that will arrive.
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
        """Register a job that has arrived, to learn its runtime when it has ended."""
        for key in self._keys[row]:
            self._open[key].append(row)

    def ratio(self, row: int, ran: Callable[[int], float | None]) -> float:
        """Return the share of its walltime that a job is expected to run; 1 if unknown.

        Args:
            row: Row of the job.
            ran: Function that returns the share that a job ran; None if it has not ended.
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
