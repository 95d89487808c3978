"""A whole run as one flat dictionary of numbers. Definitions are in ``docs/metrics.md``."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.metrics.fairness import jain
from hpctwin.metrics.jobs import served, with_job_metrics
from hpctwin.metrics.series import series, widths_s

__all__ = ["Summary", "summarize"]

Summary = dict[str, float | int | None]
"""Metric by name; None where a metric is not defined, never NaN."""

_DISTRIBUTIONS = ("wait_s", "turnaround_s", "slowdown", "bounded_slowdown", "pp_bounded_slowdown")


def summarize(
    jobs: pl.DataFrame,
    lost: pl.DataFrame,
    capacity: pl.DataFrame,
    nodes: int,
    *,
    steps: pl.DataFrame | None = None,
) -> Summary:
    """Sum up a run.

    Statistics of waiting, turnaround and slowdown are over the jobs that started and ended.
    Those over time are over the window from the first submission to the last end of a job
    that ran. Quantiles are interpolated linearly between neighbours.

    Args:
        jobs: a result's jobs.
        lost: attempts that node failures cut off.
        capacity: nodes that are up, as a step function.
        nodes: size of the machine.
        steps: the run's `series`, if it is there already.

    Returns:
        Values that JSON can hold, by metric.
    """
    steps = series(jobs, lost, capacity) if steps is None else steps
    ran = served(with_job_metrics(jobs))
    counts = {
        f"jobs_{state}": count for state, count in jobs["state"].value_counts().sort("state").rows()
    }
    summary: Summary = {"jobs": len(jobs), **counts}
    for name in _DISTRIBUTIONS:
        summary |= _distribution(ran[name], name)
    summary |= _over_time(ran, jobs, steps, nodes)
    area = ran["nodes"] * ran["run_s"]
    summary["area_weighted_response_time_s"] = _ratio(
        _integral(ran["turnaround_s"], area), float(area.sum())
    )
    lost_s = (lost["end_s"].cast(pl.Float64) - lost["start_s"].cast(pl.Float64)).to_numpy()
    summary["lost_node_s"] = _integral(lost["nodes"], lost_s)
    by_user = ran.drop_nulls("user").group_by("user").agg(pl.col("bounded_slowdown").mean())
    summary["jain_fairness_user"] = jain(by_user["bounded_slowdown"]) if len(by_user) > 1 else None
    return summary


def _distribution(values: pl.Series, name: str) -> Summary:
    return {
        f"mean_{name}": _number(values.mean()),
        f"median_{name}": _number(values.median()),
        f"p95_{name}": _number(values.quantile(0.95, "linear")),
        f"p99_{name}": _number(values.quantile(0.99, "linear")),
        f"max_{name}": _number(values.max()),
    }


def _over_time(ran: pl.DataFrame, jobs: pl.DataFrame, steps: pl.DataFrame, nodes: int) -> Summary:
    first, last = _number(jobs["submit_s"].min()), _number(ran["end_s"].max())
    if first is None or last is None:
        first = last = 0.0
    makespan = last - first
    width = widths_s(steps, first, last)
    used, idle, queue = steps["used_nodes"], steps["free_nodes"], steps["queue_length"]
    loaded = np.where(queue.to_numpy() > 0, width, 0.0)
    present = _integral(used + idle, width)
    return {
        "makespan_s": makespan if len(ran) else None,
        "throughput_jobs_per_h": _ratio(len(ran), makespan / 3600),
        "nodes": nodes,
        "availability": _ratio(_integral(steps["up_nodes"], width), nodes * makespan),
        "utilization": _ratio(_integral(used, width), present),
        "utilization_loaded": _ratio(_integral(used, loaded), _integral(used + idle, loaded)),
        "loaded_share": _ratio(float(loaded.sum()), makespan),
        "fragmentation_loss": _ratio(_integral(idle, loaded), present),
        "mean_queue_length": _ratio(_integral(queue, width), makespan),
        "max_queue_length": int(queue.to_numpy()[width > 0].max(initial=0)),
        "mean_queued_nodes": _ratio(_integral(steps["queued_nodes"], width), makespan),
    }


def _integral(level: pl.Series, width: npt.ArrayLike) -> float:
    return float(np.dot(level.cast(pl.Float64).to_numpy(), np.asarray(width, np.float64)))


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole > 0 else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
