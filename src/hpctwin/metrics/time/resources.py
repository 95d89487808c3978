"""Use of nodes and shared resources over time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import ConfigError
from hpctwin.metrics.time.series import integrals
from hpctwin.model import Dependencies, DependencyKind

__all__ = ["dependency_violations", "resource_use", "resource_utilization"]

FloatArray = npt.NDArray[np.float64]


def resource_use(
    jobs: pl.DataFrame,
    asked: Mapping[str, npt.NDArray[np.int64]],
    capacity: Mapping[str, float],
    *,
    bins: int = 200,
    until_s: float | None = None,
) -> pl.DataFrame:
    """Return the share of each resource in use, as exact means over equal time spans.

    Args:
        jobs: Table of jobs of a result.
        asked: Amount that each job takes while it runs, by resource [jobs].
        capacity: Total amount, by resource.
        bins: Number of spans, from the first submission to ``until_s``.
        until_s: End of the last span, in seconds; default the last end.

    Returns:
        ``time_s``, the begin of a span, and a column for each resource, 0 to 1.

    Raises:
        ConfigError: ``bins`` is below 1.
    """
    if bins < 1:
        raise ConfigError(f"bins is {bins}, it must be at least 1")
    start, end, ran = _spans(jobs)
    first = float(jobs["submit_s"].to_numpy().min()) if len(jobs) else 0.0
    last = max(end, default=first) if until_s is None else until_s
    if not last > first:
        last = first + 1.0
    edges = np.linspace(first, last, bins + 1)
    columns = {"time_s": edges[:-1]}
    time = np.concatenate([start, end])
    order = np.argsort(time, kind="stable")
    time = time[order]
    for name, total in capacity.items():
        amount = asked[name][ran].astype(np.float64)
        level = np.cumsum(np.concatenate([amount, -amount])[order])
        held = integrals(time, level, edges) if len(time) else np.zeros(bins)
        columns[name] = np.maximum(held, 0.0) / (np.diff(edges) * total)
    return pl.DataFrame(columns)


def resource_utilization(
    jobs: pl.DataFrame,
    asked: Mapping[str, npt.NDArray[np.int64]],
    capacity: Mapping[str, float],
) -> dict[str, float]:
    """Return the share of each resource in use, from first submission to last end.

    Args:
        jobs: Table of jobs of a result.
        asked: Amount that each job takes while it runs, by resource [jobs].
        capacity: Total amount, by resource.
    """
    start, end, ran = _spans(jobs)
    if not len(end):
        return dict.fromkeys(capacity, 0.0)
    span = float(end.max()) - float(jobs["submit_s"].to_numpy().min())
    return {
        name: float((asked[name][ran] * (end - start)).sum() / (total * span)) if span > 0 else 0.0
        for name, total in capacity.items()
    }


def dependency_violations(jobs: pl.DataFrame, dependencies: Dependencies) -> int:
    """Return how many jobs started before a job that they depend on had ended.

    The count uses only the schedule, whatever the simulator knew of dependencies. It counts jobs
    whose ``afterok`` or ``afterany`` prerequisite had not ended, or whose ``after`` prerequisite
    had not started.

    Args:
        jobs: Table of jobs of a result, in the order of the workload's rows.
        dependencies: Dependencies between those rows.
    """
    start = jobs["start_s"].fill_null(np.inf).to_numpy()
    end = jobs["end_s"].fill_null(np.inf).to_numpy()
    job, on = dependencies.job, dependencies.on
    after = dependencies.kind == DependencyKind.AFTER
    ready = np.where(after, np.minimum(start[on], end[on]), end[on])
    ready = ready + dependencies.delay_ms / 1000
    # Half a millisecond: seconds are rounded, and the engine counts milliseconds.
    early = start[job] < ready - 0.0005
    return len(np.unique(job[early & np.isfinite(start[job])]))


def _spans(jobs: pl.DataFrame) -> tuple[FloatArray, FloatArray, npt.NDArray[np.bool_]]:
    """Return start and end of the jobs that ran, and which jobs these are."""
    ran = (jobs["start_s"].is_not_null() & jobs["end_s"].is_not_null()).to_numpy()
    start = jobs["start_s"].to_numpy()[ran].astype(np.float64)
    end = jobs["end_s"].to_numpy()[ran].astype(np.float64)
    return start, end, ran
