"""Hindcast: the twin's core forecasts starts in a known past; scores of these forecasts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
import polars.selectors as cs

from hpctwin.errors import WorkloadError
from hpctwin.metrics.jobs import classed
from hpctwin.model import MS_PER_S, Category, Cluster, Workload
from hpctwin.policies import Policy
from hpctwin.rms.records import events as ev
from hpctwin.rms.records.records import JobSpec, NodeRecord, Snapshot
from hpctwin.simulation import Simulation, Window, simulate
from hpctwin.twin.core.core import Core
from hpctwin.twin.forecast.accuracy import WEEK_S
from hpctwin.twin.forecast.forecaster import COVERAGE, ENOUGH, ERRORS, Forecast
from hpctwin.twin.settings.config import CoreSettings
from hpctwin.twin.what_if.run import Past, look_ahead

__all__ = [
    "LEFT_OUT",
    "By",
    "Lived",
    "Steadiness",
    "at_once",
    "hindcast",
    "hindcast_scores",
    "lived",
    "lived_under",
    "recorded",
    "right_of_all",
    "steadiness",
]

FloatArray = npt.NDArray[np.float64]

By = Literal["all", "size", "week", "asked"]
"""Property that divides forecasts into classes."""

LEFT_OUT = 0.2
"""Share of forecasts excluded at the beginning, because the least is known then."""
_ROUNDING_S = 1e-3
_MANY, _NEAR = 100, 0.02
"""Minimum size of a class, and largest distance of its coverage if it is steady."""
_HOUR_S = 3600.0


def hindcast_scores(said: pl.DataFrame, by: By = "all") -> pl.DataFrame:
    """Return the accuracy of `hindcast`'s forecasts, next to that of their rivals.

    Only rows in which the forecast and all rivals have values count.

    Args:
        said: Rows of `hindcast`; the first fifth is excluded, because the least is known then.
        by: All together, by size class, by week, or at submission and later.

    Returns:
        A row for each class:

        - ``bin`` (name of the class), ``forecasts`` (their number);
        - ``covered``: share of intervals that include the wait;
        - ``width_s``: median width of the intervals;
        - ``width_ratio``, ``mean_width_ratio``: median and mean width divided by those of the
          partition's quantiles;
        - ``queue_covered``: coverage of the partition's quantiles;
        - ``median_error_s``; ``error_ratio``: the same divided by the error by walltimes;
        - ``walltime_error_s``, ``queue_error_s``: median errors of the rivals;
        - ``within_1min``, ``walltime_within_1min``: share of errors of at most a minute.
    """
    said = _in_classes(said, by)

    def error(name: str) -> pl.Expr:
        return (pl.col(name) - pl.col("wait_s")).abs()

    width, queue = (
        pl.col("high_s") - pl.col("low_s"),
        pl.col("queue_high_s") - pl.col("queue_low_s"),
    )
    return (
        said.group_by("_order", "bin")
        .agg(
            forecasts=pl.len().cast(pl.Int64),
            covered=_held("low_s", "high_s").mean(),
            width_s=width.median(),
            width_ratio=width.median() / queue.median(),
            mean_width_ratio=width.mean() / queue.mean(),
            queue_covered=_held("queue_low_s", "queue_high_s").mean(),
            median_error_s=error("forecast_s").median(),
            error_ratio=error("forecast_s").median() / error("walltime_s").median(),
            walltime_error_s=error("walltime_s").median(),
            queue_error_s=error("queue_s").median(),
            within_1min=(error("forecast_s") <= 60.0).mean(),
            walltime_within_1min=(error("walltime_s") <= 60.0).mean(),
        )
        .sort("_order")
        .drop("_order")
    )


@dataclass(frozen=True)
class Steadiness:
    """Number of classes with a coverage near the target, and what chance allows.

    Args:
        classes: Number of classes with 100 forecasts or more.
        within: Number of these with a coverage of 78 to 82 %.
        off: Mean distance of the coverage from 80 %; None without any class.
        independent: Expected value of ``within`` if each interval includes the wait with a
            probability of 80 %, independent of the others (binomial).
        together: The same if intervals of one hour depend on each other as much as these do.
        alike: Degree of that dependence, the intraclass correlation.
    """

    classes: int
    within: int
    off: float | None
    independent: float
    together: float
    alike: float


def steadiness(said: pl.DataFrame, by: By) -> Steadiness:
    """Return how steady `hindcast`'s coverage was, and what chance allows at best.

    The outcomes of m forecasts in one hour have the intraclass correlation ρ. The coverage of a
    class therefore varies like that of fewer independent forecasts. Their number is the real one
    divided by the design effect 1 + ρ (Σ m² / Σ m − 1).

    Source:
        Kish 1965, *Survey Sampling*, §5.4, for the design effect; Donner 1986 for ρ, which comes
        from an analysis of variance.

    Args:
        said: Rows of `hindcast`; the first fifth is excluded.
        by: Property that divides forecasts into classes.
    """
    hour = (pl.col("made_s") // _HOUR_S).cast(pl.Int64).alias("hour")
    hours = (
        _in_classes(said, by)
        .group_by("bin", hour, maintain_order=True)
        .agg(forecasts=pl.len().cast(pl.Int64), held=_held("low_s", "high_s").sum().cast(pl.Int64))
        .with_columns(of_bin=pl.col("forecasts").sum().over("bin"))
    )
    alike = _alike(hours)
    classes = (
        hours.filter(pl.col("of_bin") >= _MANY)
        .group_by("bin")
        .agg(
            count=pl.col("forecasts").sum(),
            share=pl.col("held").sum() / pl.col("forecasts").sum(),
            squares=(pl.col("forecasts") ** 2).sum(),
        )
    )
    count, share = classes["count"].to_numpy(), classes["share"].to_numpy()
    off = np.abs(share - COVERAGE)
    effect = 1.0 + alike * (classes["squares"].to_numpy() / np.maximum(count, 1) - 1.0)
    return Steadiness(
        classes=len(classes),
        within=int((off <= _NEAR).sum()),
        off=float(off.mean()) if len(off) else None,
        independent=_chance(count.astype(np.float64)),
        together=_chance(count / effect),
        alike=alike,
    )


def _chance(count: FloatArray) -> float:
    """Return the expected number of steady classes (normal approximation).

    Args:
        count: Number of independent forecasts per class [classes].
    """
    spread = np.sqrt(COVERAGE * (1.0 - COVERAGE) / count)
    return float(sum(math.erf(_NEAR / one / math.sqrt(2.0)) for one in spread.tolist()))


def _alike(hours: pl.DataFrame) -> float:
    """Return the intraclass correlation of outcomes by analysis of variance, from 0."""
    size, held = (hours[name].to_numpy().astype(np.float64) for name in ("forecasts", "held"))
    groups, total = len(size), size.sum()
    if groups < 2 or total <= groups:
        return 0.0
    between = (size * (held / size - held.sum() / total) ** 2).sum() / (groups - 1)
    inside = (held * (1.0 - held / size)).sum() / (total - groups)
    usual = (total - (size**2).sum() / total) / (groups - 1)
    spread = between + (usual - 1.0) * inside
    return float(max(0.0, (between - inside) / spread)) if spread > 0 else 0.0


def _in_classes(said: pl.DataFrame, by: By) -> pl.DataFrame:
    """Return forecasts with columns ``bin`` and ``_order`` for their class.

    The first fifth and rows with a null are excluded.
    """
    said = said.sort("made_s", maintain_order=True)
    said = said.slice(round(LEFT_OUT * len(said))).drop_nulls()
    if by == "size":
        said = classed(said, "size")
    elif by == "week":
        week = (pl.col("made_s") // WEEK_S).cast(pl.Int64)
        said = said.with_columns(_order=week, bin=pl.format("week {}", week + 1))
    elif by == "asked":
        names = pl.when("at_submission").then(pl.lit("at submission")).otherwise(pl.lit("later"))
        said = said.with_columns(_order=(~pl.col("at_submission")).cast(pl.Int64), bin=names)
    else:
        said = said.with_columns(_order=pl.lit(0, pl.Int64), bin=pl.lit("all"))
    return said


def _held(low: str, high: str) -> pl.Expr:
    """Return whether the wait is within an interval."""
    return pl.col("wait_s").is_between(pl.col(low) - _ROUNDING_S, pl.col(high) + _ROUNDING_S)


IntArray = npt.NDArray[np.int64]

LOW_MIDDLE_HIGH = ((1 - COVERAGE) / 2, 0.5, (1 + COVERAGE) / 2)
_ENDS, _SUBMITTED, _STARTS = range(3)


@dataclass(frozen=True, eq=False)
class Lived:
    """A past: jobs with their starts and ends.

    Args:
        workload: The jobs.
        start_ms: Start of each job, in ms; below 0 for never [jobs].
        end_ms: End of each job, in ms; below 0 for never [jobs].
    """

    workload: Workload
    start_ms: IntArray
    end_ms: IntArray


def recorded(workload: Workload) -> Lived:
    """Return the past as recorded in a trace.

    Raises:
        WorkloadError: No job has a recorded start.
    """
    start = workload.recorded_start_ms
    if not (start >= 0).any():
        raise WorkloadError(
            f"{workload.name} has no start times of jobs; give the policy to start them by "
            "(--under)"
        )
    return Lived(workload, start, np.where(start < 0, -1, start + workload.runtime_ms))


def lived_under(jobs: Workload | Window, cluster: Cluster, policy: Policy) -> Lived:
    """Return the past as it would have been under a policy, by simulation.

    Args:
        jobs: A trace, or a part of it.
        cluster: The cluster.
        policy: Policy that starts the jobs.
    """
    if isinstance(jobs, Window):
        workload = jobs.workload
        run = jobs.run(Simulation(workload, cluster, policy, begin_s=jobs.not_before_s))
    else:
        workload, run = jobs, simulate(jobs, cluster, policy)
    times = run.jobs.select(pl.col("start_s", "end_s").fill_null(-1e-3)).to_numpy()
    start_ms, end_ms = np.rint(times.T * MS_PER_S).astype(np.int64)
    return Lived(workload, start_ms, end_ms)


def lived(core: Core, past: Lived, cluster: Cluster) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Send the events of a past to a core, one event time after another.

    Free nodes are a stack: jobs get the nodes that were freed last, at first the lowest ones. If
    the running jobs need more nodes than there are, some get fewer.

    Args:
        core: Core that receives the events; it never knows of a later one.
        past: The past.
        cluster: The cluster.

    Yields:
        The event time, in seconds, and the rows of the jobs that were submitted then and did not
        start at once.
    """
    workload, start_ms = past.workload, past.start_ms
    names = [f"n{number}" for number in range(cluster.node_count)]
    free, held = names[::-1], dict[int, tuple[str, ...]]()
    specs = _specs(workload)
    core.take_snapshot(
        Snapshot(
            cluster="past", run="past", time_s=0.0, unix_time=False, machine=cluster,
            nodes=tuple(NodeRecord(name=name) for name in names),
        )
    )  # fmt: skip
    time_ms, kind, who = _happened(workload.submit_ms, start_ms, past.end_ms)
    # Index of the last event at each event time.
    last = np.flatnonzero(np.diff(time_ms, append=-1))
    first = 0
    for upto in (last + 1).tolist():
        now_s = int(time_ms[first]) / MS_PER_S
        new = []
        for place in range(first, upto):
            row = int(who[place])
            about: dict[str, Any] = {
                "cluster": "past",
                "run": "past",
                "seq": place + 1,
                "time_s": now_s,
            }
            job_id = str(row + 1)
            match int(kind[place]):
                case 0:
                    free += held.pop(row)[::-1]
                    event: ev.Event = ev.JobEnded.model_construct(None, **about, job_id=job_id)
                case 1:
                    new.append(row)
                    event = ev.JobSubmitted.model_construct(None, **about, job=specs(row))
                case _:
                    nodes = int(workload.nodes[row])
                    held[row] = tuple(free[: -nodes - 1 : -1])
                    del free[max(0, len(free) - nodes) :]
                    event = ev.JobStarted.model_construct(
                        None, **about, job_id=job_id, node_names=held[row]
                    )
            core.take_event(event)
        first = upto
        yield now_s, tuple(row for row in new if start_ms[row] != workload.submit_ms[row])


def _happened(
    submit_ms: IntArray, start_ms: IntArray, end_ms: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return time in ms, kind and row of all events, in order.

    Events at one time are ordered by kind: ends, submissions, starts.
    """
    rows = np.arange(len(submit_ms))
    ran = rows[start_ms >= 0]
    ended = ran[end_ms[ran] >= 0]
    who = np.concatenate([ended, rows, ran])
    kind = np.repeat([_ENDS, _SUBMITTED, _STARTS], [len(ended), len(rows), len(ran)])
    # A job with a runtime of 0 must still start before it ends.
    time_ms = np.concatenate(
        [np.maximum(end_ms[ended], start_ms[ended] + 1), submit_ms, start_ms[ran]]
    )
    order = np.lexsort((who, kind, time_ms))
    return time_ms[order], kind[order], who[order]


def _specs(workload: Workload) -> Callable[[int], JobSpec]:
    def labels(column: Category) -> list[str]:
        names = ["", *column.labels]
        return [names[code + 1] for code in column.codes.tolist()]

    names = ("user", "account", "partition", "qos")
    columns: dict[str, Any] = {name: labels(getattr(workload, name)) for name in names}

    def spec(row: int) -> JobSpec:
        return JobSpec.model_construct(
            None,
            id=str(row + 1),
            submit_s=int(workload.submit_ms[row]) / MS_PER_S,
            nodes=int(workload.nodes[row]),
            walltime_s=max(int(workload.walltime_ms[row]), 1) / MS_PER_S,
            priority=float(workload.priority[row]),
            **{name: column[row] for name, column in columns.items()},
        )

    return spec


def hindcast(
    past: Lived,
    cluster: Cluster,
    settings: CoreSettings,
    *,
    every: int = 1,
    progress: Callable[[float], None] | None = None,
) -> pl.DataFrame:
    """Forecast the starts of a past as a twin would have, next to the actual starts.

    Forecasts are made when a job is submitted that does not start at once, for all jobs pending
    then. A forecast counts as in `Forecaster`: a job's first one, and each one with at most half
    the wait of the last.

    Args:
        past: The past.
        cluster: The cluster.
        settings: Settings of the twin; forecasts are made under the first policy of its pool.
        every: Forecasts are made at every N-th submission of a job that does not start at once.
        progress: Function called with the share of the work that is done, 0 to 1.

    Returns:
        A row for each counted forecast of a job that started, with these columns. All times but
        ``made_s`` are waits from ``made_s`` on.

        - ``job`` (id), ``nodes``, ``made_s``;
        - ``at_submission``: whether the job was submitted at ``made_s``;
        - ``wait_s``: the actual wait;
        - ``forecast_s``, ``low_s``, ``high_s``: the forecast and its interval, which is null with
          too few past starts;
        - ``walltime_s``: a rival forecast, from a simulation in which all jobs run to their
          walltimes;
        - ``queue_low_s``, ``queue_s``, ``queue_high_s``: another rival, the 10 %, 50 % and 90 %
          quantiles of the last 300 waits in the same partition. Only waits longer than the job's
          wait so far count; null with fewer than 20.
    """
    core, workload = Core(settings), past.workload
    policy = core.pool[0]
    rows: list[tuple[Any, ...]] = []
    turn, last_ms = 0, max(1, int(workload.submit_ms.max(initial=1)))
    for now_s, new in lived(core, past, cluster):
        before, turn = turn, turn + bool(new)
        if turn // every == before // every:
            continue
        decision = core.decide(now_s)
        if decision is None:
            continue
        # A decision may expect other runtimes than walltimes.
        jobs = list(core.mirror.jobs.values())
        as_asked = core.simulated(jobs, now_s, policy, runtime_s={})
        by_walltime = look_ahead(as_asked, [policy], past=Past.none())[0].start_s
        for said in decision.forecasts:
            row = int(said.job_id) - 1
            if said.kept and past.start_ms[row] >= 0 and said.job_id in by_walltime:
                rows.append((row, row in new, said, by_walltime[said.job_id] - now_s))
        if progress is not None:
            progress(min(1.0, now_s * MS_PER_S / last_ms))
    return _table(rows, workload, past.start_ms)


def at_once(past: Lived) -> float:
    """Return the share of jobs that started at once, without the first fifth of jobs."""
    submit = past.workload.submit_ms
    counted = (submit >= np.quantile(submit, LEFT_OUT)) & (past.start_ms >= 0)
    return float((past.start_ms == submit)[counted].mean()) if counted.any() else 0.0


def right_of_all(past: Lived, said: pl.DataFrame, within_s: float) -> float:
    """Return the share of all jobs whose first forecast was right.

    A job that starts at once counts as right. This holds if the past comes from the policy of the
    forecasts (`lived_under`): walltimes alone, which are known, decide whether a job does so.

    Args:
        past: The past, under the policy of the forecasts.
        said: Forecasts from `hindcast`.
        within_s: Largest error of a right forecast, in seconds.
    """
    first = said.filter(pl.col("at_submission"))
    first = first.sort("made_s", maintain_order=True).slice(round(LEFT_OUT * len(first)))
    share = at_once(past)
    if first.is_empty():
        return share
    error = first.select((pl.col("forecast_s") - pl.col("wait_s")).abs()).to_series()
    return share + (1.0 - share) * float((error <= within_s).sum() / len(error))


def _table(
    rows: list[tuple[int, bool, Forecast, float]], workload: Workload, start_ms: IntArray
) -> pl.DataFrame:
    row = np.array([one[0] for one in rows], np.int64)
    said = [one[2] for one in rows]
    made_s = np.array([one.made_s for one in said])
    rivals = _by_queue(workload, start_ms, row, made_s)
    told: dict[str, Any] = {
        "job": workload.job_id[row],
        "nodes": workload.nodes[row],
        "made_s": made_s,
        "at_submission": np.array([one[1] for one in rows], np.bool_),
        "wait_s": start_ms[row] / MS_PER_S - made_s,
        "forecast_s": [(one.start_s or 0.0) - one.made_s for one in said],
        "low_s": [None if not one.calibrated else (one.low_s or 0.0) - one.made_s for one in said],
        "high_s": [
            None if not one.calibrated else (one.high_s or 0.0) - one.made_s for one in said
        ],
        "walltime_s": [one[3] for one in rows],
        **dict(zip(("queue_low_s", "queue_s", "queue_high_s"), rivals.T, strict=True)),
    }
    return pl.DataFrame(told, strict=False).with_columns(cs.float().fill_nan(None))


def _by_queue(
    workload: Workload, start_ms: IntArray, row: IntArray, made_s: FloatArray
) -> FloatArray:
    """Return quantiles of the waits of jobs in the same partition, s [forecasts, 3].

    Only jobs that had started before the forecast count, and waits longer than the job's wait so
    far. The wait so far is subtracted: the quantiles are of the wait from then on.
    """
    found = np.full((len(row), 3), np.nan)
    wait_ms = start_ms - workload.submit_ms
    waited = np.flatnonzero((start_ms >= 0) & (wait_ms > 0))
    waited = waited[np.argsort(start_ms[waited], kind="stable")]
    codes = workload.partition.codes
    for code in np.unique(codes[row]).tolist():
        own = waited[codes[waited] == code]
        for number in np.flatnonzero(codes[row] == code).tolist():
            now_ms = round(float(made_s[number]) * MS_PER_S)
            upto = int(np.searchsorted(start_ms[own], now_ms, "left"))
            so_far = now_ms - int(workload.submit_ms[row[number]])
            # What was left of the last waits after as long a wait as this job has had.
            left = wait_ms[own[max(0, upto - ERRORS) : upto]] - so_far
            left = left[left > 0]
            if len(left) >= ENOUGH:
                found[number] = np.quantile(left, LOW_MIDDLE_HIGH) / MS_PER_S
    return found
