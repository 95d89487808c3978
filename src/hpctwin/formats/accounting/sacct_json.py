"""``sacct --json`` as columns of ``sacct -P``, and the memory use in job steps.

Supported are 22.05 (plain numbers) and versions since 23.02 (objects, lists). Job steps are folded
into their jobs, to get the memory that each job used on one of its nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from hpctwin.errors import TraceError
from hpctwin.formats.accounting.slurm_values import number
from hpctwin.formats.fields import gigabytes
from hpctwin.formats.record import Tally

STEP_COLUMNS = ("MaxRSS", "NTasks", "NNodes")
"""Columns read of a step.

They are the memory of its largest task, and its number of tasks and nodes.
"""

_HELD = 2
"""Number of blocks for which a job waits for steps, and a step for its job.

A line that had to be fixed comes after the others of its block.
"""


def jobs_with_steps(blocks: Iterable[pl.DataFrame], tally: Tally) -> Iterator[pl.DataFrame]:
    """Return the lines of jobs, with the maximum memory of job and steps.

    The column is ``used_memory_gb``.

    A step's memory is that of its largest task times the tasks on a node. It is an upper bound of
    the memory used on the node, and null if nothing was measured. A job's steps follow it, as
    ``sacct`` writes them; steps of a block's last job may be in the next block.

    Args:
        blocks: Columns of ``sacct`` as text, with ``job_id``; that of a step is like ``12.batch``.
        tally: Counts steps, and steps whose job is missing.
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
    """Return the lines with their memory and the id of their job."""
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
    """Return GiB on one node; null if missing or 0."""
    if "MaxRSS" not in block.columns:
        return pl.repeat(None, len(block), dtype=pl.Float64, eager=True)
    largest = gigabytes(block["MaxRSS"], "")
    if "NTasks" in block.columns and "NNodes" in block.columns:
        tasks, nodes = (block[name].cast(pl.Float64, strict=False) for name in ("NTasks", "NNodes"))
        each = (tasks / nodes.set(nodes < 1, 1.0)).ceil()
        largest = largest * each.set(each < 1, 1.0).fill_null(1.0)
    return largest.set(largest <= 0, None)


def _folded(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the lines that may still get steps, and the rest with the steps' maximum."""
    # If an id occurs again, a step belongs to the job before it, or to the first if that comes
    # later.
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
    """Return the jobs; lost steps that have a memory value are counted."""
    lost = rows.filter("_step")["used_memory_gb"].count()
    tally.add("step without its job: its memory use is ignored", lost)
    return rows.filter(~pl.col("_step")).drop("_step", "_whose", "_age")


_ROWS = 100_000


def is_sacct_document(document: Any) -> bool:
    """Return whether a JSON document is from ``sacct --json``.

    The first of its jobs has an association and times.
    """
    jobs = document.get("jobs") if isinstance(document, dict) else None
    first = jobs[0] if isinstance(jobs, list) and jobs else None
    return isinstance(first, dict) and {"association", "time", "job_id"} <= set(first)


def json_rows(path: Path, document: Any, tally: Tally) -> Iterator[pl.DataFrame]:
    """Return rows of text with the columns of ``sacct -P``."""
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        raise TraceError(path, "found no list 'jobs', expected what sacct --json writes")
    fine = [job for job in jobs if isinstance(job, dict)]
    tally.add("record skipped: not an object", len(jobs) - len(fine))
    tally.add("record read", len(fine))
    for begin in range(0, len(fine), _ROWS):
        rows = [row for job in fine[begin : begin + _ROWS] for row in _rows(job)]
        columns = dict.fromkeys((*rows[0], *STEP_COLUMNS), pl.String)
        yield pl.DataFrame(rows, schema=columns, orient="row")


def _rows(job: Mapping[str, Any]) -> Iterator[dict[str, str | None]]:
    """Yield the row of a job, and of each of its steps."""
    row = _row(job)
    yield row
    for count, step in enumerate(_list(job, "steps")):
        told = step if isinstance(step, dict) else {}
        most = {
            one.get("type"): one.get("count")
            for one in _list(_at(_at(told, "tres"), "requested"), "max")
            if isinstance(one, dict)
        }
        yield {
            "JobID": f"{row['JobID']}.{count}",
            "MaxRSS": _text(most.get("mem")),
            "NTasks": _text(_at(told, "tasks").get("count")),
            "NNodes": _text(_at(told, "nodes").get("count")),
        }


def _row(job: Mapping[str, Any]) -> dict[str, str | None]:
    when, state = _at(job, "time"), _at(job, "state").get("current")
    word = state[0] if isinstance(state, list) and state else state
    return {
        "JobID": _id(job),
        **{
            column: _text(when.get(key)) or None
            for column, key in (
                ("Submit", "submission"), ("Start", "start"), ("End", "end"),
                ("ElapsedRaw", "elapsed"), ("Suspended", "suspended"), ("TimelimitRaw", "limit"),
            )
        },
        "AllocTRES": _tres(_list(_at(job, "tres"), "allocated")),
        "ReqTRES": _tres(_list(_at(job, "tres"), "requested")),
        "User": _text(_at(job, "association").get("user") or job.get("user")),
        "Account": _text(job.get("account")),
        "Partition": _text(job.get("partition")),
        "QOS": _text(job.get("qos")),
        "Priority": _text(job.get("priority")),
        "State": _text(word),
        "NodeList": _text(job.get("nodes")),
    }  # fmt: skip


def _id(job: Mapping[str, Any]) -> str | None:
    own = _text(job.get("job_id"))
    array, task = _at(job, "array"), number(_at(job, "array").get("task_id"))
    if (whole := number(array.get("job_id"))) and task is not None:
        return f"{int(whole)}_{int(task)}"
    het = _at(job, "het")
    if whole := number(het.get("job_id")):
        return f"{int(whole)}+{int(number(het.get('job_offset')) or 0)}"
    return own


def _tres(listed: list[Any]) -> str:
    parts = []
    for one in listed:
        if not isinstance(one, dict) or (count := number(one.get("count"))) is None:
            continue
        name = f"/{one['name']}" if one.get("name") else ""
        parts.append(
            f"{one.get('type')}{name}={count:.0f}{'M' if one.get('type') == 'mem' else ''}"
        )
    return ",".join(parts)


def _text(value: Any) -> str | None:
    """Return a value as ``sacct -P`` writes it: no limit is UNLIMITED."""
    if isinstance(value, dict) and value.get("infinite") is True:
        return "UNLIMITED"
    found = number(value)
    if found is not None:
        return f"{found:.0f}"
    return value if isinstance(value, str) else None


def _at(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _list(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    return found if isinstance(found, list) else []
