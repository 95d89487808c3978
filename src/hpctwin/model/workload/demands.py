"""What jobs compute, send, read and write, as columns of totals of each job.

A job first reads, then computes and communicates by turns, then writes. See
docs/reference/traces.md, "Jobs that communicate".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpctwin.errors import WorkloadError, near
from hpctwin.model.columns import UNKNOWN, Category, joined_labels
from hpctwin.model.text import MS_PER_S

if TYPE_CHECKING:
    from hpctwin.network.profiles import Profile

Demands = Mapping[str, "npt.NDArray[np.float64] | Category"]
"""Columns of demands by name [jobs]; empty if no job has any."""

AMOUNTS = {
    "flops": np.nan, "comm_bytes": 0.0, "read_bytes": 0.0, "write_bytes": 0.0, "iterations": 1.0,
}  # fmt: skip
"""Columns of numbers with the value of an empty cell."""
DEMANDS = (*AMOUNTS, "comm_pattern", "storage")
"""Names of all columns."""
MAX_AMOUNT = 1e30
"""Limit of flops and bytes; their sums stay numbers."""
MAX_ITERATIONS = 1e6
_ANY_STORAGE = "pfs"


def checked_demands(given: Mapping[str, Any] | None, ids: npt.NDArray[Any]) -> Demands:
    """Return all columns if any job has an amount; else none.

    Args:
        given: Columns by the names of `DEMANDS` [jobs]. NaN, and a negative code of a label, stand
            for an empty cell.

    Raises:
        WorkloadError: A column is unknown or has another length, or a value is impossible.
    """
    for name in given or {}:
        if name not in DEMANDS:
            raise WorkloadError(
                f"column {name!r} of demands is unknown; known: {', '.join(DEMANDS)}"
            )
    columns: dict[str, npt.NDArray[np.float64] | Category] = dict(_no_demands(len(ids)))
    for name, values in (given or {}).items():
        if name in AMOUNTS:
            numbers = np.array(values, np.float64)
            columns[name] = np.where(np.isnan(numbers), AMOUNTS[name], numbers)
        else:
            columns[name] = values if isinstance(values, Category) else Category.of(values)
    for name, column in columns.items():
        if len(column) != len(ids):
            raise WorkloadError(f"column {name} has {len(column)} values, expected {len(ids)}")
        if not isinstance(column, Category):
            _check_amounts(name, column, ids)
    patterns = columns["comm_pattern"]
    assert isinstance(patterns, Category)
    names = [_pattern(label) for label in patterns.labels]
    distinct = list(dict.fromkeys(names))
    codes = np.array([*map(distinct.index, names), UNKNOWN], np.int32)
    columns["comm_pattern"] = Category(codes[patterns.codes], tuple(distinct))
    return columns if _has_amounts(columns).any() else {}


def joined_demands(
    parts: tuple[tuple[Demands, int], tuple[Demands, int]], order: npt.NDArray[np.int64]
) -> Demands:
    """Return the columns of two workloads as one."""
    if not any(found for found, _ in parts):
        return {}
    first, second = (found or _no_demands(size) for found, size in parts)
    joined: dict[str, npt.NDArray[np.float64] | Category] = {}
    for name, one in first.items():
        two = second[name]
        if isinstance(one, Category) and isinstance(two, Category):
            joined[name] = joined_labels(one, two).take(order)
        elif not (isinstance(one, Category) or isinstance(two, Category)):
            joined[name] = np.concatenate([one, two])[order]
    return joined


def phases_of(demands: Demands, runtime_ms: npt.NDArray[np.int64]) -> list[Profile | None]:
    """Return what each job does; None for a job without amounts.

    Args:
        runtime_ms: Run times, in ms; a job without ``flops`` computes for this time.
    """
    names, values = list(demands), [_cells(column) for column in demands.values()]
    rows = (dict(zip(names, row, strict=True)) for row in zip(*values, strict=True))
    has = _has_amounts(demands).tolist()
    return [
        _phases(row, time_ms / MS_PER_S) if some else None
        for row, time_ms, some in zip(rows, runtime_ms.tolist(), has, strict=True)
    ]


def _phases(row: Mapping[str, Any], runtime_s: float) -> Profile:
    from hpctwin.network.patterns import Pattern
    from hpctwin.network.profiles import Delay, Sequence, SpreadTask, StorageTransfer

    count = int(row["iterations"])
    inner: list[Profile] = []
    if np.isnan(row["flops"]):
        inner.append(Delay(runtime_s / count))
    elif row["flops"]:
        inner.append(SpreadTask(flops=row["flops"] / count))
    if row["comm_bytes"]:
        pattern = Pattern(row["comm_pattern"] or Pattern.ALL_TO_ALL)
        inner.append(SpreadTask(volume=row["comm_bytes"] / count, pattern=pattern))
    parts: list[Profile] = [Sequence(tuple(inner), count)] if inner else []
    storage = row["storage"] or _ANY_STORAGE
    if row["read_bytes"]:
        parts.insert(0, StorageTransfer(row["read_bytes"], 0.0, storage, spread=True))
    if row["write_bytes"]:
        parts.append(StorageTransfer(0.0, row["write_bytes"], storage, spread=True))
    return Sequence(tuple(parts), full_power=True)


def _cells(column: npt.NDArray[np.float64] | Category) -> list[Any]:
    if isinstance(column, Category):
        labels = (*column.labels, None)
        return [labels[code] for code in column.codes.tolist()]
    cells: list[Any] = column.tolist()
    return cells


def _has_amounts(columns: Demands) -> npt.NDArray[np.bool_]:
    amounts = [columns[name] for name in AMOUNTS if name != "iterations"]
    some: npt.NDArray[np.bool_] = np.any(
        [np.nan_to_num(np.asarray(one)) > 0 for one in amounts], axis=0
    )
    return some


def _no_demands(size: int) -> Demands:
    columns: dict[str, npt.NDArray[np.float64] | Category] = {
        name: np.full(size, empty) for name, empty in AMOUNTS.items()
    }
    return {**columns, "comm_pattern": Category.unknown(size), "storage": Category.unknown(size)}


def _check_amounts(name: str, column: npt.NDArray[np.float64], ids: npt.NDArray[Any]) -> None:
    least, most = (1.0, MAX_ITERATIONS) if name == "iterations" else (0.0, MAX_AMOUNT)
    wrong = (column < least) | (column > most)
    if name == "iterations":
        wrong |= column != np.floor(column)
    if wrong.any():
        row = int(np.argmax(wrong))
        kind = "a whole number" if name == "iterations" else "a number"
        raise WorkloadError(
            f"job {ids[row]}: {name} is {column[row]:g}; it must be {kind} from {least:g} to {most:g}"
        )


def _pattern(text: str) -> str:
    """Return the name of a pattern, which is written in any case."""
    from hpctwin.network.patterns import Pattern

    try:
        return str(Pattern(text.strip().lower()))
    except ValueError as error:
        raise WorkloadError(
            f"comm_pattern is {text!r:.40}; it must be {' or '.join(Pattern)}.{near(text, map(str, Pattern))}"
        ) from error
