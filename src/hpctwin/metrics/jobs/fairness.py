"""How evenly jobs are served, and whether later arrivals delay earlier ones.

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
    """Jain's fairness index (Σx)² / (n · Σx²): 1 if all are equal, 1/n if one has all.

    Args:
        values: what each party got, in any unit, 0 or more.

    Returns:
        The index in [1/n, 1]; 1 if all values are 0, None if there are none.

    Raises:
        ConfigError: a value is negative or not finite.
    """
    # Parties come in any order, and sums depend on it in their last digit.
    shares = np.sort(np.asarray(values, np.float64))
    if not len(shares):
        return None
    least, largest = shares[0], shares[-1]  # what is no number is the last
    if not (least >= 0 and largest < np.inf):
        raise ConfigError("Jain's index is defined for finite values of 0 or more only")
    if largest == 0:
        return 1.0
    # The index has no unit; scaling keeps the squares of huge and tiny values in range.
    scaled = shares / largest
    return float(min(1.0, scaled.sum() ** 2 / (len(scaled) * np.square(scaled).sum())))


def unfair_delay(jobs: pl.DataFrame, fair_start_s: npt.ArrayLike) -> dict[str, float | int | None]:
    """By how much jobs started later than they would have without later arrivals.

    A job's fair start is when it would have started had no job come after it; its unfair delay
    is max(0, start − fair start) (Sabin & Sadayappan 2005).

    Args:
        jobs: a result's jobs.
        fair_start_s: fair start of each row of ``jobs``, seconds; NaN where not known.

    Returns:
        ``judged_jobs``, those with a start and a fair start; over these ``mean_unfair_delay_s``,
        ``max_unfair_delay_s`` and ``share_unfairly_delayed`` (0 to 1), None if there are none.

    Raises:
        ConfigError: ``fair_start_s`` has another length than ``jobs``.
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
