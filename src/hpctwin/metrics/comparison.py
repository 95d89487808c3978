"""Runs compared: policies with each other, and simulated starts with recorded ones.

Each policy meets the same jobs (common random numbers). The difference on one workload is one
value, and differences between workloads cancel out (A. M. Law, Simulation Modeling and Analysis,
5th ed., 2015, chapters 10 and 11).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import ConfigError, WorkloadError, in_brief
from hpctwin.metrics.jobs import By, classed
from hpctwin.metrics.summary import Summary
from hpctwin.model import MS_PER_S, Workload
from hpctwin.model.arguments import check_arguments, column, is_number

__all__ = [
    "Fidelity",
    "MeanInterval",
    "PairedChange",
    "capacity_conflicts",
    "fidelity",
    "kiviat_area",
    "kiviat_scores",
    "mean_interval",
    "mean_summaries",
    "min_sample_size",
    "paired_change",
    "paired_differences",
]

_RESAMPLES = 10_000
_AT_ONCE = 1 << 22
_NORMAL = NormalDist()


class MeanInterval(NamedTuple):
    """A mean with its confidence interval.

    Args:
        mean: Mean of the values.
        low, high: Ends of the interval; None if there are too few values for one.
    """

    mean: float
    low: float | None
    high: float | None


def min_sample_size(level: float = 0.95) -> int:
    """Return how many values an interval needs: 6 for 95 %.

    Resampled means never leave the range of the values. If each of n values is on either side of
    the true value with equal chances, all are on one side with probability 2^(1 − n).

    Args:
        level: Share of intervals that include the true value, above 0 and below 1.

    Raises:
        ConfigError: The level is not such a share.
    """
    if not is_number(level) or not 0 < level < 1:
        raise ConfigError(
            f"the level of an interval must be between 0 and 1, such as 0.95; not {in_brief(level)}"
        )
    return 1 + math.ceil(-math.log2(1 - level))


@check_arguments("level")
def mean_interval(
    values: npt.ArrayLike, *, level: float = 0.95, resamples: int = _RESAMPLES, seed: int = 0
) -> MeanInterval:
    """Return the mean of independent values, with a bootstrap interval.

    The interval consists of quantiles of means of resampled values, widened for small samples. This
    is the expanded percentile interval of T. C. Hesterberg, "What teachers should know about the
    bootstrap", The American Statistician 69 (4), 2015. For normal values it is as wide as Student's
    interval.

    Args:
        values: [values], in any unit; for example differences of pairs.
        level: Share of intervals that include the true value, above 0 and below 1.
        resamples: Number of resamples.
        seed: Seed of the resamples.

    Returns:
        The same for the same values, whatever their order; without ends for fewer than
        `min_sample_size`.

    Raises:
        ConfigError: There is no value, one is not finite, or the level is not a share;
            or ``resamples`` or ``seed`` is out of range.
    """
    # The last digit of sums depends on the order, and so do the resamples.
    data = np.sort(column("values", values, "workload"))
    if not len(data) or not np.isfinite(data).all():
        raise ConfigError("an interval needs at least one value, and only finite values")
    mean, count = float(data.mean()), len(data)
    if resamples < 1 or seed < 0:
        raise ConfigError(
            f"resamples is {resamples} and seed is {seed}; give 1 or more, and 0 or more"
        )
    if count < min_sample_size(level):
        return MeanInterval(mean, None, None)
    tail = _NORMAL.cdf(-math.sqrt(count / (count - 1)) * _student(level, count - 1))
    random = np.random.default_rng(seed)
    at_once = max(1, _AT_ONCE // count)
    means = np.concatenate(
        [
            data[random.integers(count, size=(min(at_once, resamples - done), count))].mean(axis=1)
            for done in range(0, resamples, at_once)
        ]
    )
    low, high = np.quantile(means, [tail, 1 - tail])
    return MeanInterval(mean, float(low), float(high))


def _student(level: float, freedom: int) -> float:
    """Return the two-sided quantile of Student's t (Abramowitz and Stegun, 26.7.5).

    The error is at most 0.0015 from 5 degrees of freedom on. SciPy has it exactly, and nothing else
    here needs SciPy.
    """
    z = _NORMAL.inv_cdf(0.5 + level / 2)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return math.fsum(term / freedom**power for power, term in enumerate(terms))


class PairedChange(NamedTuple):
    """Change between paired values, absolute and relative, with confidence intervals.

    Args:
        difference: Mean difference of the pairs, with its interval.
        ratio: Geometric mean of the ratios of the pairs, with its interval, always above 0; all
            None if a value is not above 0.
        lower, higher: Number of pairs with a negative and a positive difference.
    """

    difference: MeanInterval
    ratio: MeanInterval | tuple[None, None, None]
    lower: int
    higher: int


@check_arguments("level")
def paired_change(
    before: npt.ArrayLike, after: npt.ArrayLike, *, level: float = 0.95
) -> PairedChange:
    """Return the change between paired values, such as a metric of two policies per workload.

    A ratio is averaged by logarithms. So a change of −50 % and one of +100 % cancel out, and no end
    of an interval is below −100 %. The ends do not depend on which policy comes first.

    Args:
        before: Values before the change [pairs].
        after: Values after it, of the same pairs [pairs].
        level: Level of the intervals, above 0 and below 1.

    Raises:
        ConfigError: There is no pair, a value has none, or one is not finite.

    Example:
        >>> change = paired_change([2.0, 4.0], [4.0, 2.0])
        >>> change.ratio[0], change.difference.mean
        (1.0, 0.0)
    """
    first, second = column("before", before, "pair"), column("after", after, "pair")
    if len(first) != len(second):
        raise ConfigError(
            f"before has {len(first)} values, and after has {len(second)}; give the same number"
        )
    difference = second - first
    ratio: MeanInterval | tuple[None, None, None] = (None, None, None)
    if (first > 0).all() and (second > 0).all():
        logs = mean_interval(np.log(second) - np.log(first), level=level)
        ratio = MeanInterval(*(None if one is None else math.exp(one) for one in logs))  # type: ignore[arg-type]
    return PairedChange(
        mean_interval(difference, level=level),
        ratio,
        int((difference < 0).sum()),
        int((difference > 0).sum()),
    )


@check_arguments("level")
def paired_differences(
    runs: Sequence[Mapping[str, Summary]],
    metrics: Iterable[str] | None = None,
    *,
    level: float = 0.95,
) -> pl.DataFrame:
    """Return the changes of each policy against the first, over several workloads.

    Args:
        runs: One for each workload or seed: summaries by policy, of the same policies each time.
        metrics: Keys of summaries; by default every metric that is a number.
        level: Level of the intervals, above 0 and below 1.

    Returns:
        A row for each policy but the first and each metric:

        - ``policy``, ``against``, ``metric``;
        - ``pairs``: number of workloads on which both have the metric;
        - ``before``, ``after``: means of the first policy and of this one over these workloads;
        - ``difference``, ``low``, ``high``: mean difference and its interval, of `mean_interval`;
          without ends (null) if there are too few pairs;
        - ``ratio``, ``ratio_low``, ``ratio_high``: geometric mean of the ratios and its interval,
          of `paired_change`; null if a value is not above 0;
        - ``lower``, ``higher``: number of pairs with a negative and a positive difference.

    Raises:
        ConfigError: There is no run, or runs differ in their policies.
    """
    names = list(runs[0]) if runs else []
    if not names or any(list(run) != names for run in runs):
        raise ConfigError("differences compare policies; each run must have the same policies")
    asked = _numbers(runs) if metrics is None else list(metrics)
    rows = []
    for name in names[1:]:
        for metric in asked:
            both = [(run[names[0]].get(metric), run[name].get(metric)) for run in runs]
            pairs = np.array([pair for pair in both if None not in pair], np.float64).reshape(-1, 2)
            if not len(pairs):
                continue
            change = paired_change(*pairs.T, level=level)
            rows.append(
                (name, names[0], metric, len(pairs), *map(float, pairs.mean(axis=0)),
                 *change.difference, *change.ratio, change.lower, change.higher)
            )  # fmt: skip
    return pl.DataFrame(rows, _SCHEMA, orient="row")


_SCHEMA = {
    "policy": pl.String, "against": pl.String, "metric": pl.String, "pairs": pl.Int64,
    "before": pl.Float64, "after": pl.Float64, "difference": pl.Float64,
    "low": pl.Float64, "high": pl.Float64,
    "ratio": pl.Float64, "ratio_low": pl.Float64, "ratio_high": pl.Float64,
    "lower": pl.Int64, "higher": pl.Int64,
}  # fmt: skip


@check_arguments()
def mean_summaries(runs: Sequence[Mapping[str, Summary]]) -> dict[str, Summary]:
    """Return means of each policy's numeric metrics over several workloads.

    Args:
        runs: One for each workload or seed: summaries by policy, of the same policies each time.

    Returns:
        Means by policy. If a workload does not have a metric, it is the mean over the others.
    """
    means: dict[str, Summary] = {}
    for name in runs[0] if runs else ():
        for key in _numbers(runs):
            known = [value for run in runs if isinstance(value := run[name].get(key), (int, float))]
            if known:
                means.setdefault(name, {})[key] = float(np.mean(known))
    return means


def _numbers(runs: Sequence[Mapping[str, Summary]]) -> list[str]:
    """Return metrics that are numbers wherever known, in the order of the summaries."""
    kinds: dict[str, set[type]] = {}
    for run in runs:
        for summary in run.values():
            for key, value in summary.items():
                kinds.setdefault(key, set()).add(type(value))
    return [
        key
        for key, found in kinds.items()
        if found & {int, float} and found <= {int, float, type(None)}
    ]


FloatArray = npt.NDArray[np.float64]


def kiviat_scores(raw: FloatArray, larger_is_better: npt.NDArray[np.bool_]) -> FloatArray:
    """Return each metric scaled from 0 (worst) to 1 (best); all 1 if values are equal.

    Args:
        raw: Values [compared, metrics].
        larger_is_better: Direction of each metric [metrics].
    """
    low, high = raw.min(axis=0), raw.max(axis=0)
    # Rounding differences must not span the whole axis.
    differ = high - low > 1e-9 * np.abs(high)
    score = np.where(larger_is_better, raw - low, high - raw) / np.where(differ, high - low, 1.0)
    return np.where(differ, score, 1.0)


def shares_of_best(raw: FloatArray, larger_is_better: npt.NDArray[np.bool_]) -> FloatArray:
    """Return each metric as a share of the best value: 1 for the best, 0.5 for half as good."""
    best = np.where(larger_is_better, raw.max(axis=0), raw.min(axis=0))
    small, large = np.minimum(raw, best), np.maximum(raw, best)
    return np.where(large > 0, small / np.where(large > 0, large, 1.0), 1.0)


def kiviat_area(scores: FloatArray) -> FloatArray:
    """Return the area of the polygon of each row of scores, with axes at equal angles.

    It depends on the order of the axes. Five axes with 1 on all give 2.378.

    Args:
        scores: Scores of `kiviat_scores` [compared, metrics].
    """
    around = np.roll(scores, -1, axis=1)
    area: FloatArray = 0.5 * math.sin(2 * math.pi / scores.shape[1]) * (scores * around).sum(axis=1)
    return area


_FIGURES = {
    "jobs": pl.len().cast(pl.Int64),
    "recorded_wait_s": pl.col("recorded_wait_s").mean(),
    "simulated_wait_s": pl.col("simulated_wait_s").mean(),
    "median_error_s": pl.col("error_s").abs().median(),
    "p95_error_s": pl.col("error_s").abs().quantile(0.95, "linear"),
    "later_s": pl.col("error_s").mean(),
    "within_1min": (pl.col("error_s").abs() <= 60).mean(),
    "within_1h": (pl.col("error_s").abs() <= 3600).mean(),
}


@dataclass(frozen=True, eq=False)
class Fidelity:
    """Recorded and simulated starts of jobs.

    Args:
        jobs: A row for each job with both, with ``recorded_wait_s``, ``simulated_wait_s`` and
            ``error_s``: the simulated start minus the recorded one, in seconds.
        without: Number of jobs without a recorded start, or without a start in the simulation.
    """

    jobs: pl.DataFrame
    without: int

    def figures(self) -> dict[str, float]:
        """Return statistics over all jobs; times in seconds.

        ``jobs``; mean waits ``recorded_wait_s`` and ``simulated_wait_s``; median and 95th
        percentile of the absolute error, ``median_error_s`` and ``p95_error_s``, and the mean
        error, ``later_s``; shares of starts ``within_1min`` and ``within_1h``.
        """
        return self.jobs.select(value.alias(name) for name, value in _FIGURES.items()).row(
            0, named=True
        )

    @check_arguments()
    def by(self, by: By) -> pl.DataFrame:
        """Return these statistics by class of jobs, ``bin``, in the order of `breakdown`."""
        frame = classed(self.jobs, by)
        found = frame.group_by("_order", "bin").agg(
            value.alias(name) for name, value in _FIGURES.items()
        )
        return found.sort(["_order", "jobs", "bin"], descending=[False, True, False]).drop("_order")


def fidelity(workload: Workload, jobs: pl.DataFrame) -> Fidelity:
    """Compare recorded starts with those of a result.

    Args:
        workload: The jobs, with recorded starts.
        jobs: Table of jobs of a result, of that workload.

    Raises:
        WorkloadError: No job has a recorded start.
    """
    recorded = np.where(
        workload.recorded_start_ms >= 0, workload.recorded_start_ms / MS_PER_S, np.nan
    )
    if np.isnan(recorded).all():
        raise WorkloadError(
            f"no job of {workload.name} has a recorded start to compare simulated starts with"
        )
    submitted = workload.submit_ms / MS_PER_S
    past = pl.DataFrame(
        {"job_id": workload.job_id, "_recorded": recorded, "_submitted": submitted}
    ).fill_nan(None)
    both = jobs.join(past, on="job_id", how="left", maintain_order="left").filter(
        pl.col("start_s").is_not_null(), pl.col("_recorded").is_not_null()
    )
    laid = both.with_columns(
        recorded_wait_s=pl.col("_recorded") - pl.col("_submitted"),
        simulated_wait_s=pl.col("start_s") - pl.col("submit_s"),
        error_s=pl.col("start_s") - pl.col("_recorded"),
    ).drop("_recorded", "_submitted")
    return Fidelity(laid, len(jobs) - len(laid))


# At equal times, ends free nodes first, then nodes leave or return, then jobs start. A job that
# runs for no time comes before other starts, because it holds no nodes for them.
_END, _CAPACITY, _MOMENTARY, _START = range(4)


@check_arguments()
def capacity_conflicts(
    jobs: pl.DataFrame, nodes: int, capacity: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Return every start at which more nodes would be used than are up.

    Starts and ends are taken as given: a conflicting job counts as running, so that later jobs are
    judged as recorded. Starts at equal times are judged in the order of rows.

    Args:
        jobs: Jobs with starts, and ends if they have ended; jobs without a start are ignored.
        nodes: Size of the cluster, which holds before the first row of ``capacity``.
        capacity: Nodes that are up, as a step function; by default all of them.

    Returns:
        ``time_s`` (seconds), ``job_id``, ``nodes`` of the job, ``free_nodes`` = up − used before
        the start (negative if too many were used already) and ``excess`` = nodes − free, in order
        of time.
    """
    ran = jobs.filter(pl.col("start_s").is_not_null())
    start = ran["start_s"].cast(pl.Float64).to_numpy()
    end = ran["end_s"].cast(pl.Float64).fill_null(np.inf).to_numpy()
    width = ran["nodes"].cast(pl.Int64).to_numpy()
    holds = end > start
    # All nodes are up before the first row: the changes start from there.
    up = np.array([], np.int64) if capacity is None else capacity["nodes"].cast(pl.Int64).to_numpy()
    up_time = np.array([]) if capacity is None else capacity["time_s"].cast(pl.Float64).to_numpy()
    up_change = np.diff(up, prepend=nodes)

    time = np.concatenate((end[holds], up_time, start))
    phase = np.concatenate(
        (
            np.full(holds.sum(), _END),
            np.full(len(up), _CAPACITY),
            np.where(holds, _START, _MOMENTARY),
        )
    )
    change = np.concatenate((width[holds], up_change, np.where(holds, -width, 0)))
    row = np.concatenate((np.full(holds.sum() + len(up), -1), np.arange(len(ran))))
    order = np.lexsort((phase, time))
    free_after = nodes + np.cumsum(change[order])
    free_before = free_after - change[order]
    starts = order >= len(order) - len(ran)
    started, free = row[order][starts], free_before[starts]
    conflict = width[started] > free
    at, free = started[conflict], free[conflict]
    return pl.DataFrame(
        {
            "time_s": start[at],
            "job_id": ran["job_id"].gather(at),
            "nodes": width[at],
            "free_nodes": free,
            "excess": width[at] - free,
        }
    )
