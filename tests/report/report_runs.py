"""Small runs to draw: two policies on eight nodes, with everything that can happen to a job."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import polars as pl

from hpctwin.metrics import Summary, series, summarize
from hpctwin.report import ReportedRun

NODES = 8
LOST = pl.DataFrame({"job_id": [3], "start_s": [500.0], "end_s": [900.0], "nodes": [4]})
CAPACITY = pl.DataFrame({"time_s": [0.0, 900.0, 2000.0], "nodes": [8, 7, 8]})


def jobs(delay_s: float = 0.0, count: int = 40) -> pl.DataFrame:
    """Jobs one after the other, the later the more they wait."""
    draw = np.random.default_rng(7)
    submit = np.sort(draw.integers(0, 40_000, count)).astype(float)
    run = draw.integers(60, 4000, count).astype(float)
    nodes = draw.integers(1, NODES + 1, count)
    clock, start = 0.0, np.empty(count)
    for row in range(count):
        start[row] = clock = max(submit[row] + delay_s, clock)
        clock += run[row]
    state = ["completed"] * count
    state[-1] = "running"
    ends: list[Any] = (start + run).tolist()
    ends[-1] = None
    return pl.DataFrame(
        {
            "job_id": np.arange(1, count + 1),
            "submit_s": submit,
            "eligible_s": submit,
            "start_s": start,
            "end_s": pl.Series(ends, dtype=pl.Float64),
            "nodes": nodes,
            "walltime_s": run * 2,
            "runtime_s": run,
            "state": state,
            "user": ["ada", "bob"] * (count // 2),
            "account": ["x"] * count,
            "partition": pl.Series([None] * count, dtype=pl.String),
            "requeues": np.zeros(count, np.int64),
        }
    )


@functools.cache
def entries() -> tuple[ReportedRun, ...]:
    """Two runs of the same jobs."""
    made = []
    for label, delay in (("fcfs", 600.0), ("easy", 0.0)):
        run = jobs(delay)
        steps = series(run, LOST, CAPACITY)
        summary: Summary = summarize(run, LOST, CAPACITY, NODES)
        made.append(ReportedRun(label, run, steps, summary, lost=LOST))
    return tuple(made)


def no_entry() -> ReportedRun:
    """A run without jobs."""
    run = jobs().clear()
    return ReportedRun("none", run, series(run, LOST.clear(), CAPACITY),
                 summarize(run, LOST.clear(), CAPACITY, NODES))  # fmt: skip
