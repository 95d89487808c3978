"""Number of nodes of each job over time, if it was decided while they ran."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from hpctwin import metrics
from hpctwin.engine.operations.transfer import are_suspended
from hpctwin.engine.state import layout
from hpctwin.engine.state.sim import Sim
from hpctwin.metrics.sources import JobTable
from hpctwin.metrics.summary import RunningSummary
from hpctwin.model import MS_PER_S, Workload
from hpctwin.model.columns import known_seconds

__all__ = ["attempts_of", "lost_stretches", "sized_figures", "sized_series", "stretches_of"]


def stretches_of(workload: Workload, sim: Sim) -> pl.DataFrame:
    """Return the table ``stretches`` of `Result`, by job, then start.

    The end of a running stretch is null.
    """
    before, state = sim["lost"][: sim.clock.lost], sim["state"]
    starts = state["start"].copy()
    # A job that waits for its nodes to power on has not begun.
    begun = (starts >= 0) & (starts <= sim.clock.now)
    if len(sim["beneath"]):
        begun &= sim["cut"]["suspended"] == 0
        starts = np.where(are_suspended(sim), sim["cut"]["since"], starts)
    last = np.flatnonzero((state["phase"] >= layout.RUNNING) & begun)
    ended = np.where(state["phase"][last] == layout.RUNNING, -1, state["end"][last])
    row = np.concatenate([before["job"], last])
    start = np.concatenate([before["start"], starts[last]])
    end = np.concatenate([before["end"], ended])
    nodes = np.concatenate([before["nodes"], sim["job"]["nodes"][last]])
    order = np.lexsort((start, row))
    return pl.DataFrame(
        {
            "job_id": workload.job_id[row[order]],
            "start_s": start[order] / MS_PER_S,
            "end_s": known_seconds(end[order], end[order] >= 0),
            "nodes": nodes[order],
        }
    )


def lost_stretches(workload: Workload, sim: Sim) -> pl.DataFrame:
    """Return the stretches that a node failure ended; the job then waited again.

    All of their work is lost.
    """
    past = sim["lost"][: sim.clock.lost]
    lost = past[past["kept"] < past["end"] - past["start"]]
    return pl.DataFrame(
        {
            "job_id": workload.job_id[lost["job"]],
            "start_s": lost["start"] / MS_PER_S,
            "end_s": lost["end"] / MS_PER_S,
            "nodes": lost["nodes"].copy(),
        }
    )


def attempts_of(
    jobs: pl.DataFrame, stretches: pl.DataFrame, lost: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return jobs as they ran last, and their stretches before, as attempts.

    Args:
        jobs: Table of a result; jobs start with their first stretch.
        stretches: Table of the same result.
        lost: Stretches that failures ended.

    Returns:
        The jobs with start, end and nodes of the last stretch, which a job that is suspended now
        does not have. The second table is the other stretches, with the part of each that was not
        in vain.
    """
    last = stretches.group_by("job_id", maintain_order=True).last()
    last = last.join(jobs.select("job_id", job_end_s="end_s"), on="job_id", maintain_order="left")
    # A job that was canceled while suspended did not run last.
    runs_last = pl.col("end_s").is_null() | (pl.col("end_s") == pl.col("job_end_s"))
    last = last.filter(runs_last).select("job_id", last_start_s="start_s", last_nodes="nodes")
    held = jobs.join(last, on="job_id", how="left", maintain_order="left").with_columns(
        start_s="last_start_s", nodes=pl.coalesce("last_nodes", "nodes")
    )
    held = held.drop("last_start_s", "last_nodes")
    before = stretches.join(
        last.rename({"last_start_s": "start_s"}), on=["job_id", "start_s"], how="anti"
    )
    kept_s = (
        pl.when(_in_vain(before, lost)).then(0.0).otherwise(pl.col("end_s") - pl.col("start_s"))
    )
    return held, before.with_columns(kept_s=kept_s)


def _in_vain(stretches: pl.DataFrame, lost: pl.DataFrame) -> pl.Series:
    """Return whether a failure ended each stretch."""
    ended = lost.select("job_id", "start_s", in_vain=pl.lit(value=True))
    told = stretches.join(ended, on=["job_id", "start_s"], how="left", maintain_order="left")
    return told["in_vain"].fill_null(value=False)


def sized_figures(
    jobs: pl.DataFrame,
    stretches: pl.DataFrame,
    lost: pl.DataFrame,
    capacity: pl.DataFrame,
    nodes: int,
) -> dict[str, Any]:
    """Return metrics like `hpctwin.metrics.summarize`, and those of suspended jobs.

    These are how often and how long jobs were suspended, and how often resized.

    Args:
        jobs: Table of a result.
        stretches: Table of the same result.
        lost: Stretches that failures ended.
        capacity: Nodes that are up, over time.
        nodes: Number of nodes of the cluster.
    """
    attempts = attempts_of(jobs, stretches, lost)
    running, asking = (RunningSummary(nodes, exact=True) for _ in range(2))
    last, before = attempts
    running.passed(JobTable(last), before, capacity)
    running.ended(JobTable(jobs))
    asked, before = _as_asked(jobs, *attempts)
    asking.passed(JobTable(asked), before, capacity)
    begins_again = stretches["start_s"] != stretches["end_s"].shift(1)
    # A job that continues after a failure was neither suspended nor resized.
    again = stretches["job_id"] == stretches["job_id"].shift(1)
    again &= ~_in_vain(stretches, lost).shift(1, fill_value=False)
    held = (stretches["nodes"] * (stretches["end_s"] - stretches["start_s"])).sum()
    gaps = (stretches["start_s"] - stretches["end_s"].shift(1)).filter(again.fill_null(value=False))
    return {
        **running.figures(),
        "mean_queued_nodes": asking.figures()["mean_queued_nodes"],
        "suspensions": int((again & begins_again).sum()),
        "resizes": int((again & ~begins_again).sum()),
        "suspended_s": float(gaps.sum()),
        "held_node_s": float(held),
    }


def sized_series(
    jobs: pl.DataFrame, stretches: pl.DataFrame, lost: pl.DataFrame, capacity: pl.DataFrame
) -> pl.DataFrame:
    """Return `hpctwin.metrics.time_series`; queued jobs count with requested nodes.

    Args:
        jobs: Table of a result.
        stretches: Table of the same result.
        lost: Stretches that failures ended.
        capacity: Nodes that are up, over time.
    """
    attempts = attempts_of(jobs, stretches, lost)
    used = metrics.series(*attempts, capacity)
    asked = metrics.series(*_as_asked(jobs, *attempts), capacity).select("time_s", "queued_nodes")
    columns = used.columns
    return used.drop("queued_nodes").join_asof(asked, on="time_s").select(columns)


def _as_asked(
    jobs: pl.DataFrame, held: pl.DataFrame, before: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return attempts with the nodes that their jobs request."""
    asked = jobs.select("job_id", "nodes")
    return (
        held.with_columns(jobs["nodes"]),
        before.drop("nodes").join(asked, on="job_id", how="left", maintain_order="left"),
    )
