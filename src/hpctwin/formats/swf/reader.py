"""The Standard Workload Format, version 2.2, of the Parallel Workloads Archive.

Each line is a job with 18 fields; further fields are not read. Comment lines start with a
semicolon. A job's attributes are:

- user: field 12; account: field 13 (group).
- nodes: field 8 or 5; walltime: field 9.
- recorded start: submit time plus wait time.
- dependency: on the preceding job of field 17. With a think time in field 18 it is ``think``: the
  job is submitted when the think time ends. Without one it is ``afterany``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.errors import TraceError, WorkloadError
from hpctwin.formats.files import read_bytes, stem
from hpctwin.formats.record import SWF_ONLY
from hpctwin.formats.swf.records import (
    Records,
    parse_fast,
    parse_lines,
    plain_lines,
    split_comments,
    unify_line_ends,
)
from hpctwin.formats.swf.rules import SwfRules
from hpctwin.model import MS_PER_S, Category, Dependencies, DependencyKind, ReadNotes, Workload
from hpctwin.model.columns import ms_of
from hpctwin.model.workload.dependencies import check_acyclic

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

LARGE = 1 << 25
"""Smallest size of a large log, in bytes, which a compiled function reads.

Below it, loading that function takes longer than Polars takes to read the log.
"""

_CANCELLED = 5
_PARTS = (2, 3, 4)  # a line for each part of a job that was checkpointed or swapped out
_UNIX_TIMES_FROM = 1e9
_KB_PER_GB = 1024**2
_LIMIT = 1e12  # keeps sums of milliseconds far inside int64; 30,000 years as seconds
_WHOLE_FIELDS = (
    "allocated processors",
    "requested processors",
    "status",
    "user",
    "group",
    "queue",
    "partition",
)
_KEY = re.compile(r";\s*(\w+)\s*:\s*(\d+(?:\.\d+)?)")


def read_swf(
    path: str | Path, rules: SwfRules | None = None, *, skip_invalid: bool = False
) -> Workload:
    """Read an SWF log, compressed or not.

    Raises:
        TraceError: The file cannot be read, a line is malformed, or dependencies form a cycle.
    """
    path = Path(path)
    rules = rules or SwfRules()
    content, said = plain_lines(unify_line_ends(read_bytes(path)))
    header, body = split_comments(content)
    records = None
    if len(body) >= LARGE:
        from hpctwin.formats.swf.records import parse_large

        records = parse_large(body)
    if records is None:
        records = parse_fast(body)
    del body
    if records is not None:
        counts, kept = _choose(records, rules)
        if _faults(records, kept):
            records = None
    if records is None:
        records = parse_lines(path, content, skip_invalid=skip_invalid)
        counts, kept = _choose(records, rules)
        records, kept = _without_faults(path, records, kept, skip_invalid=skip_invalid)
    del content
    remarks = (*said, *_remarks(header, len(records) + len(records.skipped)))
    return _workload(path, header, records, kept, counts, rules, remarks, skip_invalid=skip_invalid)


def _remarks(header: tuple[str, ...], found: int) -> tuple[str, ...]:
    """Return remarks on the log as a whole."""
    stated = _header_number(header, "MaxJobs")
    if found == 0:
        return ("the log has no jobs, only comments",)
    if stated is None or stated == found:
        return ()
    if stated < found:
        return (f"the header says MaxJobs: {stated:.0f}, but the log has {found:,} job lines",)
    lacking = int(stated) - found
    return (
        f"the header says MaxJobs: {stated:.0f}, which is {lacking:,} more than the log has: it "
        "was cleaned or truncated",
    )


def _choose(records: Records, rules: SwfRules) -> tuple[dict[str, int], BoolArray]:
    """Return which lines become jobs, and the number of others by rule."""
    column = records.columns
    status = column["status"]
    never_ran = (status == _CANCELLED) & (column["run time"] <= 0)
    wait_unknown = column["wait time"] < 0
    kept = np.ones(len(records), np.bool_)
    counts: dict[str, int] = {}

    def drop(which: BoolArray, why: str) -> None:
        nonlocal kept
        counts[why] = int((which & kept).sum())
        kept = kept & ~which

    part = np.isin(status, _PARTS)
    alone = np.zeros(len(records), np.bool_)
    if part.any():
        alone = part & ~np.isin(column["job number"], column["job number"][~part])
        part &= ~alone
    drop(
        _put_together(column, alone),
        "line about a part of a job (status 2, 3 or 4), added to its first part",
    )
    drop(part, "line about a part of a job (status 2, 3 or 4), skipped: the job has its own line")
    if rules.cancelled == "drop":
        drop(never_ran, "job cancelled before it started, skipped")
    else:
        drop(
            never_ran & wait_unknown,
            "job cancelled before it started, skipped: unknown cancel time",
        )
    if rules.no_runtime == "drop":
        drop((column["run time"] < 0) & ~never_ran, "job without run time, skipped")
    if rules.missing_walltime == "drop":
        drop(column["requested time"] <= 0, "job without requested time, skipped")
    if rules.no_nodes == "drop":
        drop(column["requested processors"] <= 0, "job without requested processors, skipped")
    return counts, kept


def _put_together(column: dict[str, npt.NDArray[Any]], alone: BoolArray) -> BoolArray:
    """Merge the parts of a job without a line of its own into its first part.

    The first part then runs for as long as all of them.

    Args:
        column: Fields of all lines; run time and status of first parts are replaced.

    Returns:
        Which lines are of later parts.
    """
    rows = np.flatnonzero(alone)
    _, first, job, parts = np.unique(
        column["job number"][rows], return_index=True, return_inverse=True, return_counts=True
    )
    later = alone.copy()
    later[rows[first]] = False
    if later.any():
        several = parts > 1
        run = np.bincount(job, np.maximum(column["run time"][rows], 0))[several]
        last = np.zeros(len(first), np.int64)
        np.maximum.at(last, job, np.arange(len(rows)))
        end = column["status"][rows[last]].astype(np.int64)[several]
        column["run time"], column["status"] = column["run time"].copy(), column["status"].copy()
        column["run time"][rows[first[several]]] = run
        column["status"][rows[first[several]]] = np.choose(end - 2, [2, 1, 0])
    return later


def _faults(records: Records, kept: BoolArray) -> dict[int, tuple[str, str]]:
    """Return field and reason for each row that cannot become a job."""
    column = records.columns
    faults: dict[int, tuple[str, str]] = {}

    def fault(field: str, which: BoolArray, expected: str) -> None:
        for row in np.flatnonzero(which & kept):
            faults.setdefault(int(row), (field, f"found {column[field][row]:.15g}, {expected}"))

    jobs = column["job number"]
    fault("job number", jobs < 0, "expected a whole number, 0 or more")
    fault("submit time", column["submit time"] < 0, "expected a number of seconds, 0 or more")
    for field in _WHOLE_FIELDS:
        fault(field, column[field] != np.floor(column[field]), "expected a whole number or -1")
    for field in ("submit time", "wait time", "run time", "requested time", "think time"):
        fault(field, column[field] > _LIMIT, f"expected a number of seconds below {_LIMIT:g}")
    for field in _WHOLE_FIELDS:
        fault(field, column[field] > _LIMIT, f"expected a whole number below {_LIMIT:g}")
    fault(
        "requested processors",
        (column["requested processors"] <= 0) & (column["allocated processors"] <= 0),
        "expected a number above 0 here or in the field allocated processors",
    )
    for row in _repeated(jobs, kept):
        faults.setdefault(row, ("job number", f"job {jobs[row]} occurs twice in the file"))
    return faults


def _repeated(jobs: npt.NDArray[np.int64], kept: BoolArray) -> list[int]:
    rows = np.flatnonzero(kept)
    ids = jobs[rows]
    if (np.diff(ids) > 0).all():
        return []
    order = np.argsort(ids, kind="stable")
    again = np.flatnonzero(np.diff(ids[order]) == 0) + 1
    return [int(row) for row in rows[order[again]]]


def _without_faults(
    path: Path, records: Records, kept: BoolArray, *, skip_invalid: bool
) -> tuple[Records, BoolArray]:
    """Return the records and rows to keep, without those that cannot become jobs."""
    assert records.line is not None
    rows = _faults(records, kept)
    faults = [
        TraceError(path, reason, line=int(records.line[row]), field=field)
        for row, (field, reason) in sorted(rows.items())
    ]
    if faults and not skip_invalid:
        raise faults[0]
    kept = kept.copy()
    kept[list(rows)] = False
    skipped = (*records.skipped, *(str(fault) for fault in faults))
    return Records(records.columns, records.wider, records.line, skipped), kept


def _workload(
    path: Path,
    header: tuple[str, ...],
    records: Records,
    kept: BoolArray,
    counts: dict[str, int],
    rules: SwfRules,
    remarks: tuple[str, ...],
    *,
    skip_invalid: bool,
) -> Workload:
    column: dict[str, npt.NDArray[Any]] = dict(records.columns)
    if not kept.all():
        column = {field: values[kept] for field, values in column.items()}
    submit, wait = column["submit time"], column["wait time"]
    runtime, walltime = column["run time"], column["requested time"]
    never_ran = (column["status"] == _CANCELLED) & (runtime <= 0)
    strange = np.zeros(len(submit), np.bool_)
    for field in ("wait time", "run time", "requested time", "requested processors"):
        strange |= (column[field] < 0) & (column[field] != -1)
    counts["job with a negative number other than -1, treated as unknown"] = int(strange.sum())

    unknown_runtime = (runtime < 0) & ~never_ran
    counts["job without run time, given 0 s"] = int(unknown_runtime.sum())
    counts["job cancelled before it started, kept"] = int(never_ran.sum())
    runtime = np.where(never_ran, np.maximum(walltime, 0), np.maximum(runtime, 0))
    walltime = _walltime(walltime, runtime, rules, counts)
    over = runtime > walltime
    if rules.overrun == "cut":
        counts["run time cut to the requested time"] = int(over.sum())
        runtime = np.minimum(runtime, walltime)

    zero, epoch_s = _time_zero(header, submit, rebase=rules.rebase)
    submit = submit - zero
    left_queue = np.where(wait >= 0, submit + wait, -1)
    dependencies = _dependencies(column, counts)
    skipped = records.skipped
    try:
        check_acyclic(dependencies, column["job number"])
    except WorkloadError as error:
        if not skip_invalid:
            raise TraceError(
                path, f"{error}; --skip-invalid reads these jobs without the dependency"
            ) from error
        dependencies, without = _without_cycles(dependencies, len(submit))
        skipped = (*skipped, f"{path}: {error}")
        counts["job in a cycle of preceding jobs, dependency ignored"] = without
    counts["line with more than 18 fields, the others ignored"] = records.wider
    processors = _processors(column, counts)
    shared = rules.processors == "cores"
    hint, size_from, doubt = _size(header, column["job number"], processors, rules.procs_per_node)
    partition = column[rules.partition_field] if rules.partition_field != "none" else None
    try:
        return Workload.build(
            carried=_carried(column, rules),
            job_id=column["job number"],
            submit_s=submit,
            runtime_s=runtime,
            walltime_s=walltime,
            nodes=np.ones(len(submit)) if shared else _nodes(processors, rules),
            chunks=_chunks(column, processors) if shared else None,
            user=_category(column["user"]),
            account=_category(column["group"]),
            partition=None if partition is None else _category(partition),
            dependencies=dependencies,
            recorded_start_s=np.where(never_ran, -1, left_queue),
            cancel_s=np.where(never_ran, left_queue, -1),
            name=stem(path),
            start_epoch_s=epoch_s,
            header=header,
            nodes_hint=hint,
            notes=ReadNotes(
                {why: n for why, n in counts.items() if n}, skipped, (*remarks, *doubt), size_from
            ),
        )
    except WorkloadError as error:
        raise TraceError(path, str(error)) from error


def _carried(column: dict[str, npt.NDArray[Any]], rules: SwfRules) -> dict[str, FloatArray]:
    """Return original fields of the log that the workload does not hold elsewhere."""
    carried: dict[str, FloatArray] = {}
    for field in SWF_ONLY:
        values = column[field]
        if field == rules.partition_field:
            continue
        if field in ("queue", "partition", "allocated processors") or (values != -1).any():
            carried[field] = values
    if rules.procs_per_node > 1:
        # Like the requested processors: nodes.
        processors = carried["allocated processors"]
        nodes = np.ceil(processors / rules.procs_per_node)
        carried["allocated processors"] = np.where(processors > 0, nodes, processors)
    for field in ("run time", "requested time", "requested processors"):
        if (column[field] <= 0).any():
            carried[field] = column[field]
    if (column["preceding job"] != -1).any() or (column["think time"] != -1).any():
        carried["preceding job"] = column["preceding job"].astype(np.float64)
        carried["think time"] = column["think time"]
    return carried


def _walltime(
    requested: FloatArray, runtime: FloatArray, rules: SwfRules, counts: dict[str, int]
) -> FloatArray:
    if rules.missing_walltime == "drop":
        return requested
    missing = requested <= 0
    if rules.missing_walltime == "runtime":
        instead: Any = np.maximum(runtime, 1 / MS_PER_S)
        why = "job without requested time, given its run time"
    else:
        instead = rules.missing_walltime
        why = f"job without requested time, given {instead:g} s"
    counts[why] = int(missing.sum())
    return np.where(missing, instead, requested)


def _processors(column: dict[str, npt.NDArray[Any]], counts: dict[str, int]) -> FloatArray:
    missing = column["requested processors"] <= 0
    counts["job without requested processors, given the allocated ones"] = int(missing.sum())
    found: FloatArray = np.where(
        missing, column["allocated processors"], column["requested processors"]
    )
    return found


def _nodes(processors: FloatArray, rules: SwfRules) -> FloatArray:
    nodes: FloatArray = np.ceil(processors / rules.procs_per_node)
    return nodes


def _chunks(
    column: dict[str, npt.NDArray[Any]], processors: FloatArray
) -> dict[str, npt.ArrayLike]:
    """Return a task of one core for each processor, with its requested memory (in KB)."""
    memory = np.maximum(column["requested memory"], 0)
    return {"tasks": processors, "memory_gb_per_task": memory / _KB_PER_GB}


def _time_zero(
    header: tuple[str, ...], submit: FloatArray, *, rebase: bool
) -> tuple[float, float | None]:
    """Return the submit time that becomes zero, and the Unix time of zero if known."""
    first = float(submit.min(initial=np.inf))
    zero = first if rebase and len(submit) else 0.0
    if len(submit) and first > _UNIX_TIMES_FROM:
        return zero, zero
    began = _header_number(header, "UnixStartTime")
    return zero, began + zero if began else None


def _size(
    header: tuple[str, ...],
    jobs: npt.NDArray[np.int64],
    processors: FloatArray,
    procs_per_node: int,
) -> tuple[int | None, str, tuple[str, ...]]:
    """Return the nodes from the header, their key, and remarks if jobs request more."""
    per_node = "" if procs_per_node == 1 else f", with {procs_per_node} processors per node"
    largest = float(processors.max(initial=0))
    stated = _header_number(header, "MaxProcs")
    if stated:
        hint = -int(-stated // procs_per_node)
        size_from = f"the header's MaxProcs{per_node}"
        over = processors > hint * procs_per_node
        if not over.any():
            return hint, size_from, ()
        job, most = jobs[int(processors.argmax())], f"{largest:,.0f}"
        return (
            hint,
            size_from,
            (
                f"the header says MaxProcs: {stated:.0f}, but {over.sum():,} of {len(jobs):,} "
                f"jobs request more, job {job} for {most}; such jobs are rejected, unless "
                "--nodes gives a larger cluster",
            ),
        )
    nodes = _header_number(header, "MaxNodes")
    if not nodes:
        return None, "", ()
    if largest <= nodes * procs_per_node:
        return int(nodes), "the header's MaxNodes", ()
    return (
        -int(-largest // procs_per_node),
        f"the largest job{per_node}",
        (
            f"the header has no MaxProcs, and says MaxNodes: {nodes:.0f}, which is too few for jobs of up to "
            f"{largest:,.0f} processors: the cluster gets as many nodes as the largest job asks for; --nodes "
            "sets another number, --procs-per-node says how many processors a node has",
        ),
    )


def _header_number(header: tuple[str, ...], key: str) -> float | None:
    for line in header:
        match = _KEY.match(line)
        if match and match[1].lower() == key.lower() and float(match[2]) < _LIMIT:
            return float(match[2])
    return None


def _category(numbers: FloatArray) -> Category:
    known = numbers >= 0
    if not known.any():
        return Category.unknown(len(numbers))
    return Category.of(np.where(known, numbers, -1).astype(np.int64))


def _dependencies(column: dict[str, npt.NDArray[Any]], counts: dict[str, int]) -> Dependencies:
    jobs, preceding = column["job number"], column["preceding job"]
    waiting = np.flatnonzero(preceding >= 0)
    if not len(waiting):
        return Dependencies.none()
    # Some converters fill the column with one number; then that job would wait for itself.
    if len(waiting) == len(jobs) > 1 and (jobs == preceding[0]).any() and not np.ptp(preceding):
        counts["preceding jobs ignored: all jobs name the same, one of them itself"] = len(jobs)
        return Dependencies.none()
    order = np.argsort(jobs)
    itself = jobs[waiting] == preceding[waiting]
    counts["job that names itself as preceding job, dependency ignored"] = int(itself.sum())
    waiting = waiting[~itself]
    place = np.searchsorted(jobs[order], preceding[waiting])
    on = order[np.minimum(place, len(order) - 1)]
    found = jobs[on] == preceding[waiting]
    counts["job with an unknown preceding job, dependency ignored"] = int((~found).sum())
    think = column["think time"][waiting][found]
    return Dependencies(
        job=waiting[found].astype(np.int64),
        on=on[found].astype(np.int64),
        kind=np.where(think < 0, DependencyKind.AFTERANY, DependencyKind.THINK).astype(np.int8),
        delay_ms=ms_of(np.maximum(think, 0)),
    )


def _without_cycles(edges: Dependencies, size: int) -> tuple[Dependencies, int]:
    """Return dependencies without those in a cycle, and the number of the latter.

    Dependencies of jobs that lead into the cycle are kept.

    Each job waits for at most one.
    """
    on = np.full(size, -1)
    on[edges.job] = edges.on
    # After as many steps as there are jobs, each position is in a cycle or past its chain's last
    # job.
    at, steps = on.copy(), 1
    while steps < size:
        at = np.where(at >= 0, at[at], -1)
        steps *= 2
    cyclic = np.zeros(size, np.bool_)
    open_rows = at[at >= 0]
    while len(open_rows) and not cyclic[open_rows].all():
        cyclic[open_rows] = True
        open_rows = on[open_rows]
    left = ~cyclic[edges.job]
    kept = Dependencies(edges.job[left], edges.on[left], edges.kind[left], edges.delay_ms[left])
    return kept, int((~left).sum())
