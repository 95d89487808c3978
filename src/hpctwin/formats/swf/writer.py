"""Write workloads as SWF."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import WorkloadError
from hpctwin.formats.files import write_bytes
from hpctwin.formats.record import lost_by
from hpctwin.model import MS_PER_S, Category, DependencyKind, Workload
from hpctwin.model.demand import totals_asked
from hpctwin.model.text import count_text

IntArray = npt.NDArray[np.int64]

_CANCELLED = 5
_CARRIED = frozenset(
    {
        "user", "account", "partition", "dependencies", "recorded_start", "cancel",
        "header", "start_epoch_s", "nodes_hint",
    }
)  # fmt: skip


def write_swf(workload: Workload, path: str | Path) -> tuple[str, ...]:
    """Write an SWF log atomically, compressed if the name ends in ``.gz``.

    Some fields are only kept from another log (status, executable, …). These are written as they
    were there. Unknown values stay unknown if the reader's substitute is unchanged.

    Without such fields, the partition goes to both field 15 (queue) and 16. The status is 5 for
    jobs that left the queue unstarted, else -1, unknown. Ids and labels that are not whole numbers
    are numbered, and comments list the numbers. Comment lines on the machine size and the start
    time are updated from the workload.

    Returns:
        One sentence for each thing that the format cannot hold.

    Raises:
        WorkloadError: A job has dependencies that SWF cannot express (it has one ``think`` or
            ``afterany`` per job).
        OutputError: The file cannot be written.
    """
    lost = list(lost_by("SWF", workload, _CARRIED))
    key: list[str] = []
    numbers = _job_numbers(workload, key)
    preceding, think_ms = _preceding(workload, numbers)
    edges = workload.dependencies
    delayed = int(((edges.kind == DependencyKind.AFTERANY) & (edges.delay_ms > 0)).sum())
    if delayed:
        lost.append(
            f"SWF has only think times: {count_text(delayed, 'job')} with a delay after another job "
            "stored as submitted when the delay ends"
        )
    started = workload.recorded_start_ms >= 0
    wait_ms = np.where(started, workload.recorded_start_ms - workload.submit_ms, -1)
    early = started & (wait_ms < 0)
    if early.any():
        lost.append(
            f"SWF cannot store a start before the submission: {count_text(early.sum(), 'job')}"
        )
    wait_ms[early] = -1
    cancelled = workload.cancel_ms >= 0
    unstarted = cancelled & ~started & (workload.cancel_ms >= workload.submit_ms)
    if (cancelled & ~unstarted).any():
        lost.append(
            "SWF cannot store the cancel time of started or unsubmitted jobs: "
            f"{count_text((cancelled & ~unstarted).sum(), 'job')}"
        )
    shorter = unstarted & (np.maximum(workload.runtime_ms, 1) != workload.walltime_ms)
    if shorter.any():
        lost.append(
            f"SWF cannot store the run time of cancelled jobs: {count_text(shorter.sum(), 'job')}"
        )
    wait_ms[unstarted] = (workload.cancel_ms - workload.submit_ms)[unstarted]
    partition = _label_numbers("partition", workload.partition, key)
    status = np.where(unstarted, _CANCELLED, -1)
    known_status = workload.carried.get("status", status)
    run_ms = np.where(unstarted, -1, workload.runtime_ms)
    gap = _Gaps(workload)
    processors = workload.nodes
    if workload.shares_nodes:
        cores = np.ceil(totals_asked(workload, {})["cores"])
        processors = np.where(workload.chunks["tasks"] > 0, cores, processors).astype(np.int64)
    table = pl.DataFrame(
        {
            "job": numbers,
            "submit": _seconds(workload.submit_ms),
            "wait": _seconds(wait_ms),
            "run": gap.filled("run time", _seconds(run_ms), run_ms <= 0),
            "allocated": gap.field("allocated processors", np.where(started, processors, -1)),
            "cpu": gap.field("average CPU time"),
            "memory": gap.field("used memory"),
            "nodes": gap.filled("requested processors", processors, gap.given_allocated()),
            "walltime": gap.filled(
                "requested time",
                _seconds(workload.walltime_ms),
                workload.walltime_ms == np.maximum(workload.runtime_ms, 1),
            ),
            "requested_memory": gap.field("requested memory"),
            "status": _numbers(np.where(unstarted, status, known_status)),
            "user": _label_numbers("user", workload.user, key),
            "group": _label_numbers("group", workload.account, key),
            "executable": gap.field("executable"),
            "queue": gap.field("queue", partition),
            "partition": gap.field("partition", partition),
            "preceding": gap.filled("preceding job", preceding, gap.waits_for_none(numbers)),
            "think": gap.think(_seconds(think_ms), preceding, think_ms),
        }
    )
    header = _header(workload) + key
    comments = "".join(f"{line}\n" for line in header)
    lines = table.write_csv(separator=" ", include_header=False, quote_style="never")
    write_bytes(Path(path), (comments + lines).encode())
    return tuple(lost)


def with_own_count(workload: Workload) -> Workload:
    """Return the workload with MaxJobs in its header at most its job count.

    A header without MaxJobs stays as it is.
    """
    header = []
    for line in workload.header:
        match = re.match(r"\s*;\s*MaxJobs\s*:\s*(\d+)", line, re.IGNORECASE)
        over = match is not None and int(match[1]) > len(workload)
        header.append(f"; MaxJobs: {len(workload)}" if over else line)
    return workload.replace(header=tuple(header))


class _Gaps:
    """Values that were unknown in a workload's original log, or only kept from it."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def field(self, name: str, otherwise: IntArray | None = None) -> pl.Series:
        """Return a field of the original log.

        Without a log, return the given values, or unknown ones.
        """
        if name in self._workload.carried:
            return _numbers(self._workload.carried[name])
        return pl.Series(np.full(len(self._workload), -1) if otherwise is None else otherwise)

    def filled(
        self, name: str, values: IntArray | pl.Series, still: npt.NDArray[np.bool_]
    ) -> pl.Series:
        """Return the workload's values, with the log's value in unchanged gaps.

        A gap is unchanged if the log has no value and the reader's substitute is still there.
        """
        written = pl.Series(values)
        if name not in self._workload.carried:
            return written
        was = self._workload.carried[name]
        unknown = was != -1 if name == "preceding job" else was <= 0
        gaps = pl.Series(unknown & still)
        if not gaps.any():
            return written
        return written.cast(pl.String).zip_with(~gaps, _numbers(was).cast(pl.String))

    def think(self, values: pl.Series, preceding: IntArray, think_ms: IntArray) -> pl.Series:
        """Return the think times.

        The log's value is used for a job without a preceding job, and if neither has a think time.
        """
        if "think time" not in self._workload.carried:
            return values
        was = self._workload.carried["think time"]
        gaps = pl.Series(np.where(preceding < 0, was != -1, (was < 0) & (think_ms <= 0)))
        return values.cast(pl.String).zip_with(~gaps, _numbers(was).cast(pl.String))

    def given_allocated(self) -> npt.NDArray[np.bool_]:
        """Return the jobs that have as many nodes as they were allocated."""
        allocated = self._workload.carried.get("allocated processors")
        if allocated is None:
            return np.zeros(len(self._workload), np.bool_)
        same: npt.NDArray[np.bool_] = self._workload.nodes == allocated
        return same

    def waits_for_none(self, numbers: IntArray) -> npt.NDArray[np.bool_]:
        """Return jobs whose preceding job in the log is missing, or the same for all."""
        was = self._workload.carried.get("preceding job")
        if was is None:
            return np.zeros(len(self._workload), np.bool_)
        none: npt.NDArray[np.bool_] = ~np.isin(was, numbers)
        return none | (len(was) > 1 and bool((was == was[0]).all()))


def _numbers(values: npt.NDArray[Any]) -> pl.Series:
    """Return numbers in their shortest exact form."""
    if (values == np.floor(values)).all():
        return pl.Series(values).cast(pl.Int64)
    return pl.Series([np.format_float_positional(value, trim="-") for value in values])


def _seconds(ms: IntArray) -> pl.Series:
    """Return seconds in their shortest exact form; -1 stays."""
    whole = pl.Series("whole", np.where(ms < 0, -1, ms // MS_PER_S), dtype=pl.Int64)
    rest = pl.Series("rest", np.where(ms < 0, 0, ms % MS_PER_S), dtype=pl.Int64)
    if not (rest != 0).any():
        return whole
    digits = pl.col("rest").cast(pl.String).str.zfill(3).str.strip_chars_end("0")
    fraction = pl.when(pl.col("rest") == 0).then(pl.lit("")).otherwise("." + digits)
    text = pl.col("whole").cast(pl.String) + fraction
    return pl.DataFrame([whole, rest]).select(text.alias("seconds"))["seconds"]


def _job_numbers(workload: Workload, key: list[str]) -> IntArray:
    ids = workload.job_id
    if ids.dtype.kind == "i" and (ids >= 0).all():
        return ids
    numbers = np.arange(1, len(ids) + 1)
    key += [f"; Note: job {n} is {_one_line(job)}" for n, job in zip(numbers, ids, strict=True)]
    return numbers


def _label_numbers(kind: str, category: Category, key: list[str]) -> IntArray:
    labels = category.labels
    if all(re.fullmatch(r"0|[1-9]\d{0,11}", label) for label in labels):
        numbers = [int(label) for label in labels]
    else:
        numbers = list(range(1, len(labels) + 1))
        key += [
            f"; Note: {kind} {n} is {_one_line(label)}"
            for n, label in zip(numbers, labels, strict=True)
        ]
    return np.array([*numbers, -1], np.int64)[category.codes]


def _one_line(label: Any) -> str:
    return " ".join(str(label).split())


def _preceding(workload: Workload, numbers: IntArray) -> tuple[IntArray, IntArray]:
    edges = workload.dependencies
    preceding = np.full(len(workload), -1, np.int64)
    think_ms = np.full(len(workload), -1, np.int64)
    held = edges.kind == DependencyKind.AFTERANY
    other = np.flatnonzero(~held & (edges.kind != DependencyKind.THINK))
    if len(other):
        kind = DependencyKind(int(edges.kind[other[0]])).name.lower()
        raise WorkloadError(
            f"job {workload.job_id[edges.job[other[0]]]} has a dependency {kind}; SWF supports "
            "only think and afterany"
        )
    rows, times = np.unique(edges.job, return_counts=True)
    if (times > 1).any():
        row = rows[times > 1][0]
        raise WorkloadError(
            f"job {workload.job_id[row]} depends on {times[times > 1][0]} jobs; SWF "
            "supports only one"
        )
    preceding[edges.job] = numbers[edges.on]
    # Without a think time a job waits in the queue for the other one.
    think_ms[edges.job] = np.where(held & (edges.delay_ms == 0), -1, edges.delay_ms)
    return preceding, think_ms


def _header(workload: Workload) -> list[str]:
    """Return the comment lines, with the size and start of the workload."""
    start = workload.start_epoch_s
    values: dict[str, str | None] = {
        "MaxProcs": None if workload.nodes_hint is None else str(workload.nodes_hint),
    }
    if start != 0:  # submit times that are Unix times need no comment
        values["UnixStartTime"] = (
            None if start is None else np.format_float_positional(start, trim="-")
        )
    if workload.nodes_hint is None:
        values["MaxNodes"] = None
    kept: list[str] = []
    said = set()
    for line in workload.header:
        match = re.match(r"\s*;\s*(\w+)\s*:\s*(\S*)", line)
        key = next((k for k in values if match and match[1].lower() == k.lower()), None)
        if key is None:
            kept.append(line if line.lstrip().startswith(";") else f"; {line}")
        elif values[key] is not None and key not in said:
            same = match is not None and match[2] == values[key]
            kept.append(line if same else f"; {key}: {values[key]}")
            said.add(key)
    kept += [f"; {k}: {value}" for k, value in values.items() if value and k not in said]
    if not kept and not len(workload):
        kept.append("; MaxJobs: 0")
    return kept
