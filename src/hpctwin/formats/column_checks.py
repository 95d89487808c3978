"""Valid values of hpctwin's columns in a table, and remarks on missing columns."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from hpctwin.errors import TraceError
from hpctwin.model import PER_NODE
from hpctwin.model.columns import PREDICTED
from hpctwin.model.requests import resources
from hpctwin.model.requests.chunks import CHUNKS, SHARED_WITH, WHOLE_CHUNKS
from hpctwin.model.requests.resources import COLUMN
from hpctwin.model.workload.demands import AMOUNTS, MAX_AMOUNT, MAX_ITERATIONS
from hpctwin.model.workload.frame import USE_STEP, is_usage
from hpctwin.model.workload.jobs import ABOVE_ZERO, MOST
from hpctwin.network.patterns import Pattern

REQUIRED = ("submit_s", "runtime_s", "nodes")
TEXTS = (
    "job_id", "user", "account", "partition", "qos", "features", "more_tasks", "group_by", "profile",
    "speedup", "comm_pattern", "storage",
)  # fmt: skip
_OTHERS = ("depends", "dependency", "job_name", "recorded_nodes")
TIMES = ("submit_s", "recorded_start_s", "cancel_s")
"""Columns of times, which may also be dates."""


@dataclass(frozen=True)
class _Rule:
    """Valid values of a column: numbers, or words for the whole numbers from 0 on."""

    least: float | None = None
    whole: bool = False
    required: bool = False
    words: tuple[str, ...] = ()
    most: float = MOST

    @property
    def expected(self) -> str:
        if self.words:
            return f"{', '.join(self.words[:-1])} or {self.words[-1]} (0 to {self.most:g})"
        kind = "a whole number" if self.whole else "a number"
        least = "" if self.least is None else f", {self.least:g} or more"
        least = ", above 0" if self.least == ABOVE_ZERO else least
        return f"{kind}{least}, up to {self.most:g}"


_NUMBERS = {
    "submit_s": _Rule(0, required=True),
    "runtime_s": _Rule(0, required=True),
    "walltime_s": _Rule(0.001),
    "nodes": _Rule(1, whole=True, required=True),
    "priority": _Rule(),
    **{f"{name}_per_node": _Rule(0) for name in PER_NODE},
    **{name: _Rule(0, whole=name in WHOLE_CHUNKS) for name in CHUNKS},
    "exclusive": _Rule(0, whole=True, words=("false", "true"), most=1),
    "spread_job": _Rule(0, whole=True, words=("false", "true"), most=1),
    "shared_with": _Rule(0, whole=True, words=SHARED_WITH, most=len(SHARED_WITH) - 1),
    "recorded_start_s": _Rule(-1),
    "cancel_s": _Rule(-1),
    "fails": _Rule(0, whole=True),
    "checkpoint_s": _Rule(0),
    "min_nodes": _Rule(1, whole=True),
    "max_nodes": _Rule(1, whole=True),
    "suspendable": _Rule(0, whole=True, words=("false", "true"), most=1),
    "resize_s": _Rule(0),
    "used_memory_gb": _Rule(ABOVE_ZERO),
    **{name: _Rule(0, most=MAX_AMOUNT) for name in AMOUNTS},
    "iterations": _Rule(1, whole=True, most=MAX_ITERATIONS),
    **{f"predicted_{name}": _Rule(ABOVE_ZERO) for name in PREDICTED},
}


_OPTIONAL = tuple(name for name, rule in _NUMBERS.items() if not rule.required)


def check_types(path: Path, frame: pl.DataFrame) -> None:
    """Reject columns of unsuitable types."""
    for name, dtype in frame.schema.items():
        if isinstance(dtype, pl.List) and is_usage(name):
            fits = dtype.inner == pl.Null or bool(getattr(dtype.inner, "is_numeric", bool)())
            expected = "numbers or lists of numbers"
        elif rule_of(name, dtype) is not None:
            fits, expected = dtype.is_numeric() or dtype in (pl.String, pl.Null), "numbers"
        elif name in (*TEXTS, *_OTHERS):
            fits = dtype.is_numeric() or dtype in (pl.String, pl.Categorical, pl.Null)
            expected = "numbers or text"
        else:
            continue
        if not fits:
            raise TraceError(path, f"the column holds {dtype}, expected {expected}", field=name)


def rule_of(name: str, dtype: pl.DataType) -> _Rule | None:
    """Return the valid values of a column; None if it is no column of numbers."""
    if is_usage(name):
        return None if dtype.is_nested() else _Rule(0)
    if is_usage(name.removesuffix(USE_STEP)):
        return _Rule(0.001)
    if name.startswith(COLUMN):
        return _Rule(0, most=resources.MOST)
    return _Rule(0, whole=True) if name.startswith("res_") else _NUMBERS.get(name)


def faults_of(frame: pl.DataFrame) -> dict[int, tuple[str, str]]:
    """Return field and reason for each row that cannot become a job."""
    faults: dict[int, tuple[str, str]] = {}
    for name in frame.columns:
        column = frame[name]
        rule = rule_of(name, column.dtype)
        if rule is not None:
            value = column.cast(pl.Float64, strict=False)
            bad = column.is_not_null() & (value.is_null() | ~value.is_finite())
            bad |= (value.abs() > rule.most).fill_null(False)
            if rule.least is not None:
                bad |= (value < rule.least).fill_null(False)
            if rule.whole:
                bad |= (value != value.floor()).fill_null(False)
            if rule.required:
                bad |= column.is_null()
            expected = rule.expected
        elif name == "job_id":
            bad = column.is_null() | ~column.is_first_distinct()
            expected = "an id that no other row has"
        elif name == "comm_pattern":
            word = column.cast(pl.String).str.strip_chars().str.to_lowercase()
            bad = column.is_not_null() & ~word.is_in([*Pattern])
            expected = f"{', '.join([*Pattern][:-1])} or {[*Pattern][-1]}"
        else:
            continue
        for row in bad.fill_null(True).arg_true():
            found = "nothing" if column[row] is None else repr(column[row])[:40]
            faults.setdefault(row, (name, f"found {found}, expected {expected}"))
    return faults


def remarks_of(columns: list[str]) -> tuple[str, ...]:
    """Return remarks on missing columns, with a similar column of the table."""
    remarks = []
    if "walltime_s" not in columns:
        remarks.append(
            "there is no column walltime_s: each job gets its run time as walltime, so the "
            f"scheduler knows exact run times{perhaps('walltime_s', columns)}"
        )
    for name in (*TEXTS, *_OPTIONAL, "depends"):
        if name not in columns and name != "walltime_s":
            near = perhaps(name, columns)
            if near:
                remarks.append(f"there is no column {name}{near}")
    return tuple(remarks)


def perhaps(name: str, columns: list[str]) -> str:
    """Return the question whether an unknown column is the missing one, or no text."""
    others = {_plain(column): column for column in columns if not is_ours(column)}
    near = difflib.get_close_matches(_plain(name), others, n=1, cutoff=0.75)
    return f"; did you mean {name} by {others[near[0]]!r}?" if near else ""


def _plain(name: str) -> str:
    """Return a column's name without parts that people write in different ways."""
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    return re.sub(r"(seconds|secs?|s)$", "", plain) or plain


def is_ours(name: str) -> bool:
    """Return whether a column is read."""
    others = (*TEXTS, *_OTHERS)
    return (
        name in _NUMBERS
        or name in others
        or name.startswith(("res_", COLUMN))
        or is_usage(name.removesuffix(USE_STEP))
    )
