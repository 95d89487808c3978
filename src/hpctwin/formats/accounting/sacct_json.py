"""``sacct --json`` as columns of ``sacct -P``; of 22.05 (plain numbers) and 23.02 on (objects, lists)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from hpctwin.errors import TraceError
from hpctwin.formats.accounting.slurm_values import number
from hpctwin.formats.accounting.steps import STEP_COLUMNS
from hpctwin.formats.common.record import Tally

__all__ = ["is_sacct_document", "json_rows"]

_ROWS = 100_000


def is_sacct_document(document: Any) -> bool:
    """Whether a JSON document is what ``sacct --json`` writes: its jobs have an association and times."""
    jobs = document.get("jobs") if isinstance(document, dict) else None
    first = jobs[0] if isinstance(jobs, list) and jobs else None
    return isinstance(first, dict) and {"association", "time", "job_id"} <= set(first)


def json_rows(path: Path, document: Any, tally: Tally) -> Iterator[pl.DataFrame]:
    """Rows of text with the columns of ``sacct -P``.

    Raises:
        TraceError: the document has no list of jobs.
    """
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        raise TraceError(path, "found no list 'jobs', expected what sacct --json writes")
    fine = [job for job in jobs if isinstance(job, dict)]
    tally.add("record left out: it is no object", len(jobs) - len(fine))
    tally.add("record read", len(fine))
    for begin in range(0, len(fine), _ROWS):
        rows = [row for job in fine[begin : begin + _ROWS] for row in _rows(job)]
        columns = dict.fromkeys((*rows[0], *STEP_COLUMNS), pl.String)
        yield pl.DataFrame(rows, schema=columns, orient="row")


def _rows(job: Mapping[str, Any]) -> Iterator[dict[str, str | None]]:
    """A job, and each of its steps."""
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
    """As ``sacct -P`` writes it: a time of 0 is none, no limit is UNLIMITED."""
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
