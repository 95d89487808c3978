"""Fairness: how evenly jobs are served, and delays by later arrivals.

Sources: R. Jain, D. Chiu, W. Hawe, "A quantitative measure of fairness and discrimination for
resource allocation in shared computer systems", DEC-TR-301, 1984; G. Sabin, P. Sadayappan,
"Unfairness metrics for space-sharing parallel job schedulers", JSSPP 2005.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import ConfigError

__all__ = ["jain", "unfair_delay"]


def jain(values: npt.ArrayLike) -> float | None:
    """Return Jain's fairness index (Σx)² / (n · Σx²).

    It is 1 if all values are equal, and 1/n if one party has all.

    Args:
        values: Amount of each party, in any unit, 0 or more.

    Returns:
        The index in [1/n, 1]; 1 if all values are 0, None if there are none.

    Raises:
        ConfigError: A value is negative or not finite.
    """
    # Parties come in any order, and the last digit of sums depends on it.
    shares = np.sort(np.asarray(values, np.float64))
    if not len(shares):
        return None
    least, largest = shares[0], shares[-1]  # NaN sorts last
    if not (least >= 0 and largest < np.inf):
        raise ConfigError("Jain's index is defined for finite values of 0 or more only")
    if largest == 0:
        return 1.0
    # The index has no unit; scaling keeps the squares of huge and tiny values in range.
    scaled = shares / largest
    return float(min(1.0, scaled.sum() ** 2 / (len(scaled) * np.square(scaled).sum())))


def unfair_delay(jobs: pl.DataFrame, fair_start_s: npt.ArrayLike) -> dict[str, float | int | None]:
    """Return how much later jobs started than they would have without later arrivals.

    A job's fair start is the start that it would have if no job came after it. Its unfair delay is
    max(0, start − fair start) (Sabin & Sadayappan 2005).

    Args:
        jobs: Table of jobs of a result.
        fair_start_s: Fair start of each row of ``jobs``, in seconds; NaN if not known.

    Returns:
        ``judged_jobs``, the number of jobs with a start and a fair start; over these
        ``mean_unfair_delay_s``, ``max_unfair_delay_s`` and ``share_unfairly_delayed`` (0 to 1),
        None if there are none.

    Raises:
        ConfigError: ``fair_start_s`` and ``jobs`` differ in length.
    """
    fair = np.asarray(fair_start_s, np.float64)
    if fair.shape != (len(jobs),):
        raise ConfigError(f"fair_start_s has shape {fair.shape}, expected ({len(jobs)},)")
    start = jobs["start_s"].cast(pl.Float64).to_numpy()
    delay = np.maximum(start - fair, 0.0)
    delay = delay[np.isfinite(delay)]
    judged = len(delay)
    return {
        "judged_jobs": judged,
        "mean_unfair_delay_s": float(delay.mean()) if judged else None,
        "max_unfair_delay_s": float(delay.max()) if judged else None,
        "share_unfairly_delayed": float((delay > 0).mean()) if judged else None,
    }
