"""Building blocks of columns of a workload, and tables as those of pandas."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ArgumentError, in_brief, need
from hpctwin.model.text import MS_PER_S

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


PER_NODE = ("cores", "gpus", "memory_gb")
"""Resources that a job may request on each of its nodes.

A node must have at least the requested amount.
"""

PREDICTED = ("runtime_s", "node_w", "memory_gb")
"""Predictable values of a job.

They are its run time, and power and used memory of one of its nodes.
"""

UNKNOWN = -1

_DENSE = 4
_PIECE = 1 << 14  # so that intermediate values fit into a core's cache


@dataclass(frozen=True, eq=False)
class Category:
    """A column of labels, stored once each.

    Args:
        codes: int32, index into ``labels``; -1 if unknown.
        labels: Distinct labels.
    """

    codes: npt.NDArray[np.int32]
    labels: tuple[str, ...]

    @classmethod
    @lru_cache(maxsize=64)
    def unknown(cls, size: int) -> Category:
        """Return a read-only column in which all labels are unknown."""
        return cls(alike(UNKNOWN, size, np.int32), ())

    @classmethod
    def of(cls, values: Sequence[Any] | npt.NDArray[Any] | pl.Series) -> Category:
        """Collect labels; None, NaN, -1 and empty text are unknown.

        Labels that are numbers are ordered as numbers.
        """
        import polars as pl

        if isinstance(values, np.ndarray) and values.dtype.kind == "i" and len(values):
            low, high = int(values.min()), int(values.max())
            if high - low < _DENSE * len(values):
                return cls._of_dense(values.astype(np.int64, copy=False), low, high)
        series = pl.Series(values)
        if series.dtype.is_numeric():
            series = whole_or_text(series.set(series.cast(pl.Float64) == UNKNOWN, None))
        else:
            series = series.cast(pl.String)
            series = series.set(series == "", None)
        distinct = series.drop_nulls().unique().sort()
        codes = series.replace_strict(
            distinct, pl.Series(range(len(distinct)), dtype=pl.Int32), default=UNKNOWN
        ).cast(pl.Int32)
        return cls(codes.fill_null(UNKNOWN).to_numpy(), tuple(str(v) for v in distinct))

    @classmethod
    def given(cls, name: str, values: object, size: int | None) -> Category:
        """Return labels that a user gives; unknown ones for None.

        They are a `Category`, or one label per job.

        Raises:
            ArgumentError: They are neither; the message has the argument's name.
        """
        if values is None:
            return cls.unknown(size or 0)
        if isinstance(values, Category):
            return values
        expected = "it must be a list of labels, one per job"
        if isinstance(values, (str, bytes, Mapping, Set)) or not isinstance(values, Iterable):
            raise ArgumentError(f"{name} is {in_brief(values)}; {expected}")
        single = isinstance(values, np.ndarray) and values.ndim != 1
        each = [values] if single else list(values)
        if isinstance(values, np.ndarray) and not single:
            each = values.tolist()
        if any(hasattr(one, "__len__") and not isinstance(one, str) for one in each):
            raise ArgumentError(f"{name} is {in_brief(values)}; {expected}")
        kinds = {*map(type, each)} - {type(None)}
        plain = kinds in (set(), {str}, {int})
        return cls.of(each if plain else [_label(one) for one in each])

    def __len__(self) -> int:
        return len(self.codes)

    def with_labels(self, labels: Sequence[str]) -> Category:
        """Return the same column with its labels in another order, or with more of them."""
        place = {label: code for code, label in enumerate(labels)}
        codes = [*(place[label] for label in self.labels), UNKNOWN]
        return Category(np.array(codes, np.int32)[self.codes], tuple(labels))

    @classmethod
    def _of_dense(cls, numbers: npt.NDArray[np.int64], low: int, high: int) -> Category:
        """Collect whole numbers in a narrow range, with a table of all possible ones."""
        there = np.zeros(high - low + 1, np.bool_)
        there[numbers - low] = True
        if low <= UNKNOWN <= high:
            there[UNKNOWN - low] = False
        codes = np.where(there, np.cumsum(there) - 1, UNKNOWN).astype(np.int32)
        return cls(codes[numbers - low], tuple(map(str, (np.flatnonzero(there) + low).tolist())))

    def among(self, labels: Collection[str]) -> npt.NDArray[np.bool_]:
        """Return whether each row has one of some labels."""
        known = np.array([*(label in labels for label in self.labels), False])
        return known[self.codes]

    def take(self, index: npt.NDArray[Any]) -> Category:
        """Return the rows at ``index``, with the same labels."""
        return Category(self.codes[index], self.labels)

    def to_series(self, name: str) -> pl.Series:
        """Return a Polars series of strings, null if unknown."""
        import polars as pl

        codes = np.where(self.codes < 0, len(self.labels), self.codes)
        return pl.Series(name, [*self.labels, None], dtype=pl.String)[codes]


def _label(value: object) -> str | None:
    """Return one label as text; None if unknown."""
    if value is None or value != value or value == UNKNOWN:
        return None
    return str(int(value)) if isinstance(value, float) and value % 1 == 0 else str(value)


def alike(value: Any, size: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return a column that has one value in all rows, and the memory of one."""
    one = np.array(value, dtype)
    # Same as `numpy.broadcast_to`, in a tenth of the time.
    column = np.ndarray((size,), one.dtype, one, strides=(0,))
    column.flags.writeable = False
    return column


def every(mask: npt.NDArray[np.bool_]) -> bool:
    """Return whether all are true.

    Same as `mask.all()`, in a fifth of the time if there are few.
    """
    return b"\0" not in mask.tobytes()


def joined_labels(first: Category, second: Category) -> Category:
    """Return two columns of labels one after the other; the first keeps its codes."""
    if first.labels == second.labels:
        return Category(np.concatenate([first.codes, second.codes]), first.labels)
    code = {label: number for number, label in enumerate(first.labels)}
    for label in second.labels:
        code.setdefault(label, len(code))
    again = np.array([*(code[label] for label in second.labels), UNKNOWN], np.int32)
    return Category(np.concatenate([first.codes, again[second.codes]]), tuple(code))


def whole_or_text(column: pl.Series) -> pl.Series:
    """Return ids or labels as whole numbers if this loses nothing, else as text.

    For example, 007 stays text, and so do 1.2 and 1.7. NaN is unknown.
    """
    import polars as pl

    if column.dtype.is_float():
        column = column.fill_nan(None)
        number = column.cast(pl.Int64, strict=False)
        if number.null_count() == column.null_count() and (number == column).all():
            return number
    text = column.cast(pl.String)
    whole = text.cast(pl.Int64, strict=False)
    same: Any = whole.cast(pl.String).eq_missing(text).all()
    return whole if same else text


def ms_of(seconds: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return whole milliseconds, halves to even."""
    given = np.asarray(seconds)
    ms = np.empty(given.shape, np.int64)
    for first in range(0, given.size, _PIECE):
        piece = slice(first, first + _PIECE)
        ms.reshape(-1)[piece] = np.rint(given.reshape(-1)[piece] * MS_PER_S)
    return ms


def known_seconds(ms: npt.NDArray[np.int64], known: npt.NDArray[np.bool_]) -> pl.Series:
    """Return times as a Polars series of seconds, null if unknown.

    Args:
        ms: Milliseconds.
        known: Whether each time is known.
    """
    import polars as pl

    seconds = ms / MS_PER_S
    if known.all():
        return pl.Series(seconds)
    seconds[~known] = np.nan
    return pl.Series(seconds, nan_to_null=True)


def as_pandas(frame: pl.DataFrame) -> pd.DataFrame:
    """Return a table of Polars as one of pandas.

    Raises:
        ConfigError: pandas or pyarrow is not installed; the message names the extra.
    """
    for package in ("pandas", "pyarrow"):
        need(package, "pandas", "to_pandas()")
    return frame.to_pandas()
