"""A whole run as one flat dictionary of numbers. Definitions are in ``docs/metrics.md``."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.metrics.fairness import jain
from hpctwin.metrics.jobs import served, with_job_metrics
from hpctwin.metrics.levels import levels, up_nodes

__all__ = ["Summary", "summarize"]

Summary = dict[str, float | int | None]
"""Metric by name; None where a metric is not defined, never NaN."""

_DISTRIBUTIONS = ("wait_s", "turnaround_s", "slowdown", "bounded_slowdown", "pp_bounded_slowdown")

_SUMS = (
    "up", "used", "present", "used_loaded", "present_loaded", "queue", "queued_nodes", "loaded",
)  # fmt: skip


def summarize(
    jobs: pl.DataFrame,
    lost: pl.DataFrame,
    capacity: pl.DataFrame,
    nodes: int,
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

    Returns:
        Values that JSON can hold, by metric.
    """
    ran = with_job_metrics(served(jobs.select("submit_s", "start_s", "end_s", "nodes", "user")))
    counts = {
        f"jobs_{state}": count for state, count in jobs["state"].value_counts().sort("state").rows()
    }
    summary: Summary = {"jobs": len(jobs), **counts}
    for name in _DISTRIBUTIONS:
        summary |= _distribution(ran[name], name)
    summary |= _over_time(ran, jobs, lost, capacity, nodes)
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


def _over_time(
    ran: pl.DataFrame, jobs: pl.DataFrame, lost: pl.DataFrame, capacity: pl.DataFrame, nodes: int
) -> Summary:
    first, last = _number(jobs["submit_s"].min()), _number(ran["end_s"].max())
    if first is None or last is None:
        first = last = 0.0
    makespan = last - first
    sums = dict.fromkeys(_SUMS, 0.0)
    longest = 0.0
    up_at = up_nodes(capacity)
    for time_s, (queue, queued_nodes, _, used) in levels(jobs, lost, capacity["time_s"]):
        width = np.diff(np.clip(time_s, first, last))
        loaded = width * (queue > 0)
        up = up_at(time_s[:-1])
        # A job that is late may keep its nodes into a maintenance: more are used than are up.
        present = np.maximum(up, used)
        for name, level, over in (
            ("up", up, width),
            ("used", used, width),
            ("present", present, width),
            ("used_loaded", used, loaded),
            ("present_loaded", present, loaded),
            ("queue", queue, width),
            ("queued_nodes", queued_nodes, width),
        ):
            sums[name] += float(np.dot(level, over))
        sums["loaded"] += float(loaded.sum())
        longest = max(longest, float((queue * (width > 0)).max()))
    return {
        "makespan_s": makespan if len(ran) else None,
        "throughput_jobs_per_h": _ratio(len(ran), makespan / 3600),
        "nodes": nodes,
        "availability": _ratio(sums["up"], nodes * makespan),
        "utilization": _ratio(sums["used"], sums["present"]),
        "utilization_loaded": _ratio(sums["used_loaded"], sums["present_loaded"]),
        "loaded_share": _ratio(sums["loaded"], makespan),
        "fragmentation_loss": _ratio(sums["present_loaded"] - sums["used_loaded"], sums["present"]),
        "mean_queue_length": _ratio(sums["queue"], makespan),
        "max_queue_length": int(longest),
        "mean_queued_nodes": _ratio(sums["queued_nodes"], makespan),
    }


def _integral(level: pl.Series, width: npt.ArrayLike) -> float:
    return float(np.dot(level.cast(pl.Float64).to_numpy(), np.asarray(width, np.float64)))


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole > 0 else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
