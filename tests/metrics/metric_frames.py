"""Small results written by hand, and random ones for properties."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st

from hpctwin.metrics.sources import JobsInMs
from hpctwin.model import MS_PER_S, Category, State
from hpctwin.model.columns import ms_of

JOB_SCHEMA: dict[str, Any] = {
    "job_id": pl.Int64,
    "submit_s": pl.Float64,
    "eligible_s": pl.Float64,
    "start_s": pl.Float64,
    "end_s": pl.Float64,
    "nodes": pl.Int64,
    "walltime_s": pl.Float64,
    "runtime_s": pl.Float64,
    "state": pl.String,
    "user": pl.String,
    "account": pl.String,
    "partition": pl.String,
    "requeues": pl.Int64,
}
LOST_SCHEMA: dict[str, Any] = {
    "job_id": pl.Int64,
    "start_s": pl.Float64,
    "end_s": pl.Float64,
    "nodes": pl.Int64,
}
NO_LOST = pl.DataFrame(schema=LOST_SCHEMA)


def job(
    submit: float,
    start: float | None = None,
    end: float | None = None,
    nodes: int = 1,
    **more: Any,
) -> dict[str, Any]:
    """A row; the state follows from the times if it is not given."""
    state = "waiting" if start is None else "running" if end is None else "completed"
    run = 100.0 if start is None or end is None else end - start
    return {
        "submit_s": submit,
        "eligible_s": submit,
        "start_s": start,
        "end_s": end,
        "nodes": nodes,
        "walltime_s": run,
        "runtime_s": run,
        "state": state,
        "requeues": 0,
        **more,
    }


def frame(*rows: dict[str, Any]) -> pl.DataFrame:
    """A result's jobs."""
    numbered = [{"job_id": number, **row} for number, row in enumerate(rows, 1)]
    return pl.DataFrame(numbered, schema=JOB_SCHEMA)


def lost_attempts(*rows: tuple[int, float, float, int]) -> pl.DataFrame:
    """Attempts (job, start, end, nodes)."""
    return pl.DataFrame(list(rows), schema=LOST_SCHEMA, orient="row")


def capacity(*rows: tuple[float, int]) -> pl.DataFrame:
    """Nodes that are up (time, nodes)."""
    return pl.DataFrame(list(rows), schema={"time_s": pl.Float64, "nodes": pl.Int64}, orient="row")


def in_ms(jobs: pl.DataFrame) -> JobsInMs:
    """A result's jobs as arrays."""
    names = "submit_s", "eligible_s", "start_s", "end_s"
    times = [ms_of(jobs[name].fill_null(-1.0 / MS_PER_S).to_numpy()) for name in names]
    states = {state.label: state for state in State}
    return JobsInMs(
        times[0],
        times[1],
        times[2],
        times[3],
        jobs["nodes"].to_numpy(),
        np.array([states[label] for label in jobs["state"]], np.int8),
        Category.of(jobs["user"]),
    )


@st.composite
def results(draw: st.DrawFn) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Jobs in all states with lost attempts, on a machine that is large enough."""
    rows, attempts = [], []
    instant = st.integers(0, 50)
    for number in range(1, draw(st.integers(1, 12)) + 1):
        submit, nodes = draw(instant), draw(st.integers(1, 8))
        eligible = submit + draw(instant)
        state = draw(st.sampled_from(["ran", "running", "waiting", "cancelled", "pending"]))
        now = eligible
        if state != "pending":
            for _ in range(draw(st.integers(0, 2))):
                start = now + draw(instant)
                now = start + draw(instant)
                attempts.append((number, float(start), float(now), nodes))
        start_or_cancel = float(now + draw(instant))
        end = start_or_cancel + draw(instant)
        times = {
            "ran": (float(eligible), start_or_cancel, end),
            "running": (float(eligible), start_or_cancel, None),
            "waiting": (float(eligible), None, None),
            "cancelled": (float(eligible), None, start_or_cancel),
            "pending": (None, None, None),
        }[state]
        rows.append(
            job(
                float(submit), times[1], times[2], nodes,
                job_id=number, eligible_s=times[0],
                state="completed" if state == "ran" else state,
                user=draw(st.sampled_from(["ada", "bob", None])),
            )
        )  # fmt: skip
    rows.sort(key=lambda row: (row["submit_s"], row["job_id"]))
    changes = draw(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 200)), max_size=4))
    steps = [(0.0, 100), *((float(t), n) for t, n in sorted(dict(changes).items()))]
    return frame(*rows), lost_attempts(*attempts), capacity(*steps)
