"""Slurm's job steps, folded into their jobs: how much memory each job used on one of its nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import polars as pl

from hpctwin.formats.common.fields import gigabytes
from hpctwin.formats.common.record import Tally

__all__ = ["STEP_COLUMNS", "jobs_with_steps"]

STEP_COLUMNS = ("MaxRSS", "NTasks", "NNodes")
"""What is read of a step: what its largest task used of memory, and how many tasks ran on how many nodes."""

_HELD = 2
"""For so many blocks a job waits for steps that may come, and a step for a job: a line that had to be mended
comes after the others of its block."""


def jobs_with_steps(blocks: Iterable[pl.DataFrame], tally: Tally) -> Iterator[pl.DataFrame]:
    """The lines of jobs, with ``used_memory_gb``: of all their steps, and of themselves, the most.

    A step's is that of its largest task times the tasks on a node, so at most what the node held; null where
    nothing was measured. A job's steps stand after it, as ``sacct`` writes them; the last job of a block may
    have some in the next.

    Args:
        blocks: columns of ``sacct`` as text, with ``job_id``; of steps as in ``12.batch``.
        tally: told of steps, and of those whose job is not there.
    """
    held: pl.DataFrame | None = None
    for block in blocks:
        rows = _measured(block, tally)
        rows = rows if held is None else pl.concat([held, rows.select(held.columns)])
        held, done = _folded(rows)
        yield _told(done, tally)
    if held is not None:
        yield _told(held, tally)


def _measured(block: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """What each line says of memory, and whose it is."""
    step = pl.col("job_id").str.contains(".", literal=True).fill_null(False)
    rows = block.with_columns(
        _step=step,
        _whose=pl.col("job_id").str.extract(r"^([^.]*)"),
        _age=pl.lit(0, pl.Int8),
        used_memory_gb=_used(block),
    )
    tally.add("step, a part of its job", int(rows["_step"].sum()))
    return rows


def _used(block: pl.DataFrame) -> pl.Series:
    """GiB on one node; null where there is nothing or 0."""
    if "MaxRSS" not in block.columns:
        return pl.repeat(None, len(block), dtype=pl.Float64, eager=True)
    largest = gigabytes(block["MaxRSS"], "")
    if "NTasks" in block.columns and "NNodes" in block.columns:
        tasks, nodes = (block[name].cast(pl.Float64, strict=False) for name in ("NTasks", "NNodes"))
        each = (tasks / nodes.set(nodes < 1, 1.0)).ceil()
        largest = largest * each.set(each < 1, 1.0).fill_null(1.0)
    return largest.set(largest <= 0, None)


def _folded(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Lines that others may still belong to, and the rest; each job has the most of its steps."""
    # Of an id that comes again, a step is of the job before it; of the first where that comes later.
    run = (~pl.col("_step")).cum_sum().over("_whose").clip(lower_bound=1)
    rows = rows.with_columns(_run=run).with_columns(
        pl.col("used_memory_gb").max().over("_whose", "_run"),
        _alone=pl.col("_step").all().over("_whose", "_run"),
    )
    rows = rows.filter(~pl.col("_step") | pl.col("_alone")).drop("_run", "_alone")
    number = pl.int_range(pl.len())
    newest = number == number.filter(~pl.col("_step") & (pl.col("_age") == 0)).max()
    waits = pl.col("_step") | newest.fill_null(False) | (pl.col("_age") > 0)
    rows = rows.with_columns(_waits=waits & (pl.col("_age") < _HELD))
    held = rows.filter("_waits").with_columns(pl.col("_age") + 1)
    return held.drop("_waits"), rows.filter(~pl.col("_waits")).drop("_waits")


def _told(rows: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """The jobs; steps that found none are counted where they tell of memory."""
    lost = rows.filter("_step")["used_memory_gb"].count()
    tally.add("step whose job is not there, so that the memory it used is not told", lost)
    return rows.filter(~pl.col("_step")).drop("_step", "_whose", "_age")
