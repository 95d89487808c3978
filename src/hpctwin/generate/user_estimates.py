"""Users' estimates of runtimes: the model of Tsafrir, Etsion and Feitelson.

Source:
    D. Tsafrir, Y. Etsion, D. G. Feitelson, "Modeling user runtime estimates", JSSPP 2005, LNCS
    3834, and the parameters of the authors' program ``est_model``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpctwin.errors import WorkloadError
from hpctwin.model.text import format_duration

__all__ = ["SHORTEST_MAXIMUM_S", "assign_estimates", "user_estimates"]

FloatArray = npt.NDArray[np.float64]

SHORTEST_MAXIMUM_S = 3600
"""Least maximum of the estimates, in seconds."""
_MINUTE = 60
_HEAD = 20
"""Number of popular estimates, which most jobs have."""
_COMMON = tuple(
    minutes * _MINUTE
    for minutes in (5, 10, 15, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 720, 1080)
)
"""Popular estimates of all four machines of the source, in seconds."""
_ROUND = tuple(
    minutes * _MINUTE for minutes in (12000, 6000, 3000, 600, 300, 120, 60, 20, 10, 5, 1)
)
"""Their multiples are the other popular estimates. The source ends with 5 minutes."""
_JOBS, _ESTIMATES = (0, 20, 200, 1000, 10_000, 70_000, 250_000), (0, 10, 20, 35, 90, 340, 565)
"""Numbers of distinct estimates for numbers of jobs, linear between these points."""
_HEAD_SHARE = 0.89
_RANKS = (
    (3, 1, 1, 1), (1, 3, 4, 6), (4, 4, 10, 5), (17, 2, 14, 3), (13, 12, 20, 7),
    (7, 9, 2, 2), (8, 8, 3, 18), (18, 18, 7, 19), (2, 6, 12, 4), (6, 7, 6, 11),
    (16, 11, 19, 20), (10, 20, 5, 9), (5, 16, 18, 10), (15, 5, 16, 14), (14, 14, 9, 13),
    (19, 13, 17, 16), (11, 10, 15, 15), (12, 15, 13, 17), (9, 17, 8, 8), (20, 19, 11, 12),
)  # fmt: skip
"""Popularity ranks on the four machines: of the maximum, then of the others by length."""


def user_estimates(jobs: int, maximum_s: float, rng: np.random.Generator) -> FloatArray:
    """Draw the estimates of a number of jobs, the longest first (Tsafrir et al. 2005).

    Twenty popular estimates, among them the maximum, have 89 % of the jobs. The other estimates
    have few jobs each. With fewer than 200 jobs, all estimates are popular ones.

    Args:
        jobs: Number of jobs.
        maximum_s: Longest estimate, at least 1 hour, in seconds.
        rng: Random number generator.

    Returns:
        Seconds [jobs].
    """
    popular_s = _popular_estimates(maximum_s)
    ranks = np.arange(2, _HEAD + 1)
    by_rank = (14.0491 * np.exp(-0.177531 * ranks) + 0.462513) / 100
    by_rank = np.concatenate([[_HEAD_SHARE - by_rank.sum()], by_rank])
    times, shares = popular_s, by_rank[_popularity(rng)]
    distinct = round(float(np.interp(jobs, _JOBS, _ESTIMATES)))
    if distinct > _HEAD:
        other_s = _other_estimates(distinct, maximum_s, popular_s)
        by_rank = 795.6 * np.arange(_HEAD + 1, _HEAD + 1 + len(other_s)) ** -2.267
        other_shares = rng.permutation(by_rank * (1 - _HEAD_SHARE) / by_rank.sum())
        times, shares = np.append(times, other_s), np.append(shares, other_shares)
    reached = np.rint(np.cumsum(shares / shares.sum()) * jobs).astype(np.int64)
    estimates = np.repeat(times, np.diff(reached, prepend=0))
    return np.sort(estimates)[::-1]


def _popular_estimates(maximum_s: float) -> FloatArray:
    """Return the maximum, then the other popular estimates, the shortest first."""
    found = [time for time in _COMMON if time < maximum_s]
    for step in _ROUND:
        for time in range(int(maximum_s // step) * step, 0, -step):
            if len(found) < _HEAD - 1 and time < maximum_s and time not in found:
                found.append(time)
    return np.array([maximum_s, *sorted(found)], np.float64)


def _popularity(rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw the popularity of each popular estimate, from 0 [popular estimates].

    A rank comes no later than on the last of the four machines.
    """
    last = {rank: row for row, several in enumerate(_RANKS) for rank in several}
    chosen: list[int] = []
    pool: list[int] = []
    for row, several in enumerate(_RANKS):
        pool = [rank for rank in [*pool, *several] if rank not in chosen]
        due = [rank for rank in range(1, _HEAD + 1) if last[rank] <= row and rank not in chosen]
        if row == 0:
            chosen.append(1)
        else:
            chosen.append(due[0] if due else int(rng.choice(pool, 2).min()))
    return np.array(chosen) - 1


def _other_estimates(distinct: int, maximum_s: float, popular_s: FloatArray) -> FloatArray:
    """Return the estimates that few jobs have, in whole minutes if these are free."""
    curve = 1 + 12.1039 * distinct**-0.6026
    taken = set(popular_s.tolist())
    found: list[float] = []
    for place in np.arange(1, distinct - _HEAD + 1) / (distinct - _HEAD):
        minute_s = round((curve - 1) * place / (curve - place) * maximum_s / _MINUTE) * _MINUTE
        near = (minute_s + offset for offset in (0, 30, -30, 20, -20, 10, -10))
        free = [time for time in near if 0 < time < maximum_s and time not in taken]
        found += free[:1]
        taken.update(free[:1])
    return np.array(found, np.float64)


def assign_estimates(
    runtime_s: FloatArray, estimates: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Give each job a random one of the estimates that are not below its runtime.

    Jobs choose in the order of their runtimes, the longest first. If too few estimates are that
    long, the maximum replaces the shortest ones, as the authors' program advises.

    Args:
        runtime_s: Runtime of each job, in seconds [jobs].
        estimates: As many estimates in seconds, the longest first [jobs].
        rng: Random number generator.

    Returns:
        Seconds [jobs].

    Raises:
        WorkloadError: A job runs longer than the longest estimate.
    """
    order = np.argsort(-runtime_s, kind="stable")
    runtime_s = runtime_s[order]
    too_long = int((runtime_s > estimates[0]).sum())
    if too_long:
        raise WorkloadError(
            f"walltimes tsafrir: {too_long:,} jobs run longer than the maximum of "
            f"{format_duration(estimates[0])}; give one of "
            f"{format_duration(runtime_s[0])} or more"
        )
    enough = np.searchsorted(-estimates, -runtime_s, side="right")
    lacking = max(0, int((np.arange(1, len(order) + 1) - enough).max(initial=0)))
    estimates = np.append(np.full(lacking, estimates[0]), estimates[: len(order) - lacking])
    # The estimates up to this place are not below the runtime.
    last = np.searchsorted(-estimates, -runtime_s, side="right") - 1
    places = np.arange(len(order))
    drawn = places + (rng.random(len(order)) * (last - places + 1)).astype(np.int64)
    left = estimates.tolist()
    for place, at in enumerate(drawn.tolist()):
        left[place], left[at] = left[at], left[place]
    found = np.empty(len(order))
    found[order] = left
    return found
