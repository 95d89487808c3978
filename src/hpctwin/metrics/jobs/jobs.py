"""How single jobs were served: waiting time, turnaround and the slowdowns.

Sources: D. G. Feitelson, L. Rudolph, U. Schwiegelshohn, K. C. Sevcik, P. Wong, "Theory and
practice in parallel job scheduling", JSSPP 1997 (bounded slowdown); D. Zotkin, P. J. Keleher,
"Job-length estimation and performance in backfilling schedulers", HPDC 1999 (per processor).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import ConfigError

__all__ = ["ROWS", "TAU_S", "Served", "served", "served_metrics", "with_job_metrics"]

FloatArray = npt.NDArray[np.float64]

TAU_S = 10.0
"""Run times below this count as this in bounded slowdowns, seconds."""


def with_job_metrics(jobs: pl.DataFrame, tau_s: float = TAU_S) -> pl.DataFrame:
    """Add each job's metrics as columns; null where the job has no start or no end.

    ``wait_s`` = start − submit; ``run_s`` = end − start; ``turnaround_s`` = end − submit;
    ``slowdown`` = turnaround / run, null for jobs that ran for no time;
    ``bounded_slowdown`` = max(1, turnaround / max(run, τ));
    ``pp_bounded_slowdown`` = max(1, turnaround / (nodes · max(run, τ))).
    For a job that ran again after a node failure, start and run are those of its last attempt.

    Args:
        jobs: a result's jobs.
        tau_s: the bound τ, seconds.

    Returns:
        The jobs in the same order with these columns added.

    Raises:
        ConfigError: ``tau_s`` is not above 0.
    """
    if not tau_s > 0:
        raise ConfigError(f"tau_s is {tau_s:g}, it must be above 0")
    times = jobs.with_columns(pl.col("submit_s", "start_s", "end_s").cast(pl.Float64))
    run = pl.col("end_s") - pl.col("start_s")
    times = times.with_columns(
        wait_s=pl.col("start_s") - pl.col("submit_s"),
        run_s=run,
        # Jobs that never started have an end too (cancelled, rejected), but no turnaround.
        turnaround_s=pl.when(run.is_not_null()).then(pl.col("end_s") - pl.col("submit_s")),
    )
    run, turnaround = pl.col("run_s"), pl.col("turnaround_s")
    bounded_run = run.clip(lower_bound=tau_s)
    return times.with_columns(
        slowdown=pl.when(run > 0).then(turnaround / run),
        bounded_slowdown=(turnaround / bounded_run).clip(lower_bound=1.0),
        pp_bounded_slowdown=(turnaround / (pl.col("nodes") * bounded_run)).clip(lower_bound=1.0),
    )


def served(jobs: pl.DataFrame) -> pl.DataFrame:
    """The jobs that started and ended: those that time statistics are about."""
    return jobs.filter(pl.col("start_s").is_not_null() & pl.col("end_s").is_not_null())


ROWS = (
    "area", "wait_s", "turnaround_s", "slowdown", "bounded_slowdown", "pp_bounded_slowdown", "response",
)  # fmt: skip
"""What is told of jobs that ran: as `with_job_metrics`, besides node-seconds, and turnaround times these."""


class Served(NamedTuple):
    """What `with_job_metrics` says of the jobs that started and ended, as arrays.

    Args:
        which: of all jobs, those that did [all].
        table: `ROWS` in rows [rows, jobs or more].
        ends: how many numbers each has: without nulls, so that there may be fewer slowdowns than jobs [rows].
    """

    which: npt.NDArray[np.bool_]
    table: FloatArray
    ends: npt.NDArray[np.int64]

    def row(self, name: str) -> FloatArray:
        """One of the rows [jobs]."""
        number = ROWS.index(name)
        found: FloatArray = self.table[number, : self.ends[number]]
        return found


def served_metrics(jobs: pl.DataFrame) -> Served:
    """The same numbers as of ``with_job_metrics(served(jobs))``, to the last bit, where no table is wanted.

    Polars hands each step to its threads, for which a thread that simulates would wait.

    Args:
        jobs: a result's jobs.
    """
    names = "submit_s", "start_s", "end_s"
    submit, start, end = (jobs[name].cast(pl.Float64).to_numpy() for name in names)
    nodes = jobs["nodes"].to_numpy()
    which = ~(np.isnan(start) | np.isnan(end))
    if not which.all():
        submit, start, end, nodes = submit[which], start[which], end[which], nodes[which]
    run, turnaround = end - start, end - submit
    bounded = np.maximum(run, TAU_S)
    ran = run > 0
    area = nodes * run
    with np.errstate(divide="ignore", invalid="ignore"):  # a job may have no share of any node
        per_node = turnaround / (nodes * bounded)
    rows = (
        area,
        start - submit,
        turnaround,
        turnaround / run if ran.all() else turnaround[ran] / run[ran],
        np.maximum(turnaround / bounded, 1.0),
        np.maximum(per_node, 1.0),
        turnaround * area,
    )
    table, ends = np.empty((len(ROWS), len(run))), np.array([len(row) for row in rows])
    for own, row in zip(table, rows, strict=True):
        own[: len(row)] = row
    return Served(which, table, ends)
