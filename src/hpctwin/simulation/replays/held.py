"""What the jobs of a replayed trace held of nodes, and what of it the cluster did not have."""

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
        workload: the jobs, with the nodes recorded.
        cluster: the cluster.
        known: what the engine knows of both.
        jobs: how the jobs went, as of a result.
        start: when each started, ms; -1 where it did not [jobs].
        end: when each ended, or the replay was cut off, ms [jobs].
        over: whether it ended [jobs].
        away: node, start and end (ms) of each outage.
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
    """What jobs held of nodes.

    Args:
        tables: what of a result tells it.
        too_much: conflicts, where all jobs together held more than the cluster had.
        node_map: where they ran, as their energy needs it; None if nodes have no power model.
        busy_ms: how long any job was on each node [nodes]; empty if nodes have no power model.
        not_found: conflicts of jobs that did not find all nodes or parts of nodes that they held.
    """

    tables: dict[str, pl.DataFrame]
    too_much: list[pl.DataFrame]
    node_map: pl.DataFrame | None = None
    busy_ms: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    not_found: list[pl.DataFrame] = field(default_factory=list)


def starts_and_ends(start: IntArray, end: IntArray) -> Iterator[tuple[int, int, bool]]:
    """Row, time and whether it starts, of each start and end of jobs that ran; of one instant, ends first.

    Args:
        start: when each started, ms; -1 where it did not [jobs].
        end: when each ended, ms [jobs].
    """
    ran = np.flatnonzero((start >= 0) & (end > start))
    rows, begins = np.tile(ran, 2), np.repeat([False, True], len(ran))
    moments = np.concatenate([end[ran], start[ran]])
    order = np.lexsort((rows, begins, moments))
    yield from zip(*(each[order].tolist() for each in (rows, moments, begins)), strict=True)


def over_capacity(
    frame: pl.DataFrame, amount: int, capacity: pl.DataFrame | None, what: str
) -> pl.DataFrame:
    """Return conflicts of jobs that ran while the cluster had less than they held of an amount together."""
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
    """Return conflicts of some jobs in time: the recorded start, and the earliest possible one."""
    return pl.DataFrame(
        {
            "time_s": start / MS_PER_S,
            "job_id": workload.job_id[rows],
            "what": pl.Series([what] * len(rows), dtype=pl.String),
            "asked": start / MS_PER_S,
            "free": allowed / MS_PER_S,
        }
    )
