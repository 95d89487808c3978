"""Malleable jobs: they may run on other numbers of nodes, or be suspended.

`Speedup` is the speed of a job by its number of nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.errors import WorkloadError
from hpctwin.model.columns import Category, joined_labels, ms_of
from hpctwin.model.text import MS_PER_S

LINEAR = "linear"
_AMDAHL = "amdahl"


@dataclass(frozen=True)
class Speedup:
    """Speed of a job on n nodes relative to one.

    It is exact, so that no work is lost in rounding.

    Args:
        name: Text that `parse_speedup` reads.
        serial: Share of the work on one node that no further node makes shorter (Amdahl, 1967).
        table: Speeds for 1, 2, … nodes; if not empty, they replace ``serial``.
    """

    name: str
    serial: Fraction = Fraction(0)
    table: tuple[Fraction, ...] = ()

    @property
    def most(self) -> int | None:
        """Largest number of nodes for which it is known; None for any number."""
        return len(self.table) or None

    def at(self, nodes: int) -> Fraction:
        """Return the speed on a number of nodes, 1 or more.

        Raises:
            WorkloadError: It is unknown for this number.
        """
        if not self.table:
            return nodes / (1 + self.serial * (nodes - 1))
        if nodes > len(self.table):
            raise WorkloadError(
                f"speedup {self.name!r} is defined for at most {len(self.table)} nodes, not {nodes}"
            )
        return self.table[nodes - 1]


@lru_cache(maxsize=1024)
def parse_speedup(text: str) -> Speedup:
    """Read the speed of a job by its number of nodes.

    Forms are ``linear``, ``amdahl:0.05`` (serial share), or numbers for 1, 2, … nodes:
    ``1/1.9/2.7``.

    Raises:
        WorkloadError: It has none of these forms; or a number is not above 0, or below the one
            before.
    """
    name = text.strip()
    if name == LINEAR:
        return Speedup(name)
    head, _, details = name.partition(":")
    numbers = [_number(part, text) for part in (details if head == _AMDAHL else name).split("/")]
    if head == _AMDAHL:
        if len(numbers) != 1 or not 0 <= numbers[0] <= 1:
            raise WorkloadError(
                f"speedup {text!r}: the serial share must be from 0 to 1, as in {_AMDAHL}:0.05"
            )
        return Speedup(name, serial=numbers[0])
    falls = any(after < before for before, after in pairwise(numbers))
    if numbers[0] <= 0 or falls:
        raise WorkloadError(
            f"speedup {text!r}: the numbers for 1, 2, … nodes must be above 0, and must "
            "not decrease"
        )
    return Speedup(name, table=tuple(number / numbers[0] for number in numbers))


def _number(part: str, text: str) -> Fraction:
    try:
        return Fraction(part)
    except (ValueError, ZeroDivisionError) as error:
        raise WorkloadError(
            f"speedup {text!r} must be {LINEAR}, {_AMDAHL}:SHARE, or numbers for 1, 2, … nodes such as "
            "1/1.9/2.7"
        ) from error


IntArray = npt.NDArray[np.int64]

MALLEABLE = ("min_nodes", "max_nodes", "speedup", "suspendable", "resize_s")
"""Names of the columns."""


@dataclass(frozen=True, eq=False)
class Malleable:
    """Numbers of nodes on which each job may run, and the effect on it.

    Args:
        min_nodes, max_nodes: Smallest and largest number of nodes; both its nodes if it is rigid
            [jobs].
        speedup: Texts for `parse_speedup` [jobs]; by default `LINEAR`.
        suspendable: Whether it may be suspended, and resumed later [jobs].
        resize_ms: Time without progress after it resumes, or changes its nodes, in ms [jobs].
    """

    min_nodes: IntArray
    max_nodes: IntArray
    speedup: Category
    suspendable: npt.NDArray[np.bool_]
    resize_ms: IntArray

    def take(self, index: npt.NDArray[Any]) -> Malleable:
        """Return the rows at ``index``."""
        return Malleable(
            self.min_nodes[index],
            self.max_nodes[index],
            self.speedup.take(index),
            self.suspendable[index],
            self.resize_ms[index],
        )

    def speedup_of(self, row: int) -> Speedup:
        """Return the speedup of a job."""
        code = int(self.speedup.codes[row])
        return parse_speedup(LINEAR if code < 0 else self.speedup.labels[code])

    def columns(self) -> dict[str, Any]:
        """Return the columns of a table, by the names of `MALLEABLE`."""
        return {
            "min_nodes": self.min_nodes,
            "max_nodes": self.max_nodes,
            "speedup": self.speedup.to_series("speedup"),
            "suspendable": self.suspendable.astype("int8"),
            "resize_s": self.resize_ms / MS_PER_S,
        }


def rigid(nodes: IntArray) -> Malleable:
    """Return jobs that run on their nodes only."""
    size = len(nodes)
    return Malleable(
        nodes, nodes, Category.unknown(size), np.zeros(size, bool), np.zeros(size, np.int64)
    )


def checked_malleable(
    given: Mapping[str, Any] | None, ids: npt.NDArray[Any], nodes: IntArray
) -> Malleable | None:
    """Return all columns if any is given and any job is not rigid; else None.

    Args:
        given: Columns by the names of `MALLEABLE` [jobs]. NaN, and a negative code in ``speedup``,
            stand for the defaults: its nodes, `LINEAR`, not suspended.

    Raises:
        WorkloadError: A column is unknown or has another length, or a value is impossible.
    """
    found = dict(given or {})
    for name in found:
        if name not in MALLEABLE:
            raise WorkloadError(
                f"column {name!r} of malleable jobs is unknown; known: {', '.join(MALLEABLE)}"
            )
    if not found:
        return None
    curves = found.pop("speedup", None)
    speedup = Category.unknown(len(ids)) if curves is None else curves
    if not isinstance(speedup, Category):
        speedup = Category.of(speedup)
    columns = {name: np.array(values, np.float64) for name, values in found.items()}
    shapes = {name: column.shape for name, column in columns.items()}
    for name, shape in {**shapes, "speedup": speedup.codes.shape}.items():
        if shape != ids.shape:
            raise WorkloadError(f"column {name} has shape {shape}, expected {ids.shape}")
    none = np.zeros(len(ids), np.int64)
    defaults = {"min_nodes": nodes, "max_nodes": nodes, "suspendable": none, "resize_s": none}
    for name, default in defaults.items():
        column = columns.get(name, np.full(len(ids), np.nan))
        columns[name] = np.where(np.isnan(column), default, column)
        _check(name, columns[name], ids)
    made = Malleable(
        columns["min_nodes"].astype(np.int64),
        columns["max_nodes"].astype(np.int64),
        speedup,
        columns["suspendable"] != 0,
        ms_of(columns["resize_s"]),
    )
    _check_sizes(made, ids, nodes)
    varies = (made.min_nodes < made.max_nodes) | made.suspendable
    return made if varies.any() else None


def _check(name: str, column: npt.NDArray[np.float64], ids: npt.NDArray[Any]) -> None:
    least, must = {
        "min_nodes": (1, "a whole number, 1 or more"),
        "max_nodes": (1, "a whole number, 1 or more"),
        "suspendable": (0, "0 or 1"),
        "resize_s": (0, "a number, 0 or more"),
    }[name]
    wrong = ~np.isfinite(column) | (column < least) | (column > 1e12)
    if name != "resize_s":
        wrong |= column != np.floor(column)
    if name == "suspendable":
        wrong |= column > 1
    if wrong.any():
        row = int(np.argmax(wrong))
        raise WorkloadError(f"job {ids[row]}: {name} is {column[row]:g}; it must be {must}")


def _check_sizes(made: Malleable, ids: npt.NDArray[Any], nodes: IntArray) -> None:
    wrong = (made.min_nodes > nodes) | (nodes > made.max_nodes)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise WorkloadError(
            f"job {ids[row]}: it requests {nodes[row]} nodes, which must be between its "
            f"min_nodes, {made.min_nodes[row]}, and its max_nodes, {made.max_nodes[row]}"
        )
    curves = [parse_speedup(text) for text in made.speedup.labels]
    for code, curve in enumerate(curves):
        short = (made.speedup.codes == code) & (made.max_nodes > (curve.most or np.inf))
        if short.any():
            row = int(np.argmax(short))
            raise WorkloadError(
                f"job {ids[row]}: its max_nodes is {made.max_nodes[row]}, but its speedup "
                f"{curve.name!r} is defined for at most {curve.most} nodes"
            )


def joined_malleable(
    parts: tuple[tuple[Malleable | None, IntArray], tuple[Malleable | None, IntArray]],
    order: IntArray,
) -> Malleable | None:
    """Return the columns of two workloads as one.

    Args:
        parts: Columns of each, if it has any, and the requested nodes of its jobs.
    """
    if all(found is None for found, _ in parts):
        return None
    first, second = (rigid(nodes) if found is None else found for found, nodes in parts)
    columns = {
        name: np.concatenate([getattr(first, name), getattr(second, name)])
        for name in ("min_nodes", "max_nodes", "suspendable", "resize_ms")
    }
    curves = joined_labels(first.speedup, second.speedup)
    return Malleable(speedup=curves, **columns).take(order)
