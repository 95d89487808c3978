"""Nodes held by the jobs of a replayed trace, and conflicts with the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.metrics import capacity_conflicts
from hpctwin.model import MS_PER_S, Cluster, Workload

__all__ = ["Held", "Recorded", "conflicts_of", "over_capacity", "starts_and_ends"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Recorded:
    """A trace to replay.

    Args:
        workload: The jobs, with recorded nodes.
        cluster: The cluster.
        known: Jobs and cluster in the engine's form.
        jobs: Table ``jobs`` of the result.
        start: Start of each job, ms; -1 if it did not start [jobs].
        end: End of each job, or of the replay if earlier, ms [jobs].
        over: Whether it ended [jobs].
        away: Node, start and end (ms) of each outage.
    """

    workload: Workload
    cluster: Cluster
    known: Mapping[str, npt.NDArray[Any]]
    jobs: pl.DataFrame
    start: IntArray
    end: IntArray
    over: npt.NDArray[np.bool_]
    away: tuple[IntArray, IntArray, IntArray]


@dataclass(frozen=True, eq=False)
class Held:
    """Nodes held by jobs.

    Args:
        tables: Tables of the result that describe them.
        too_much: Conflicts where all jobs together held more than the cluster had.
        node_map: Nodes of the jobs, in the form that their energy needs; None without a power
            model.
        busy_ms: Time that any job was on each node [nodes]; empty without a power model.
        not_found: Conflicts of jobs that did not get all nodes or parts of nodes that they held.
    """

    tables: dict[str, pl.DataFrame]
    too_much: list[pl.DataFrame]
    node_map: pl.DataFrame | None = None
    busy_ms: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    not_found: list[pl.DataFrame] = field(default_factory=list)


def starts_and_ends(start: IntArray, end: IntArray) -> Iterator[tuple[int, int, bool]]:
    """Yield each start and end of jobs that ran: row, time, whether it is a start.

    Ends come before starts at the same time.

    Args:
        start: Start of each job, ms; -1 if it did not start [jobs].
        end: End of each job, ms [jobs].
    """
    ran = np.flatnonzero((start >= 0) & (end > start))
    rows, begins = np.tile(ran, 2), np.repeat([False, True], len(ran))
    moments = np.concatenate([end[ran], start[ran]])
    order = np.lexsort((rows, begins, moments))
    yield from zip(*(each[order].tolist() for each in (rows, moments, begins)), strict=True)


def over_capacity(
    frame: pl.DataFrame, amount: int, capacity: pl.DataFrame | None, what: str
) -> pl.DataFrame:
    """Return conflicts of jobs that together held more than the cluster had."""
    found = capacity_conflicts(frame, amount, capacity)
    return found.select(
        "time_s",
        "job_id",
        pl.lit(what).alias("what"),
        pl.col("nodes").cast(pl.Float64).alias("asked"),
        pl.col("free_nodes").cast(pl.Float64).alias("free"),
    )


def conflicts_of(
    workload: Workload, rows: IntArray, start: IntArray, what: str, allowed: IntArray
) -> pl.DataFrame:
    """Return conflicts in time: the recorded start, and the earliest possible one."""
    return pl.DataFrame(
        {
            "time_s": start / MS_PER_S,
            "job_id": workload.job_id[rows],
            "what": pl.Series([what] * len(rows), dtype=pl.String),
            "asked": start / MS_PER_S,
            "free": allowed / MS_PER_S,
        }
    )
