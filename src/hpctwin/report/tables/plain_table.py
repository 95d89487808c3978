"""A table of words and numbers that a command prints or a report writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Cell", "Table"]

Cell = str | tuple[str, str]
"""What a cell says; or that, and what was published of it."""


@dataclass(frozen=True)
class Table:
    """A table as it is printed.

    Args:
        heads: of its columns.
        rows: cells, as many as heads.
        title, caption: above and below it.
        words: so many columns at its left hold words, the others numbers.
        marked: rows that are to be seen.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    caption: str = ""
    words: int = 1
    marked: frozenset[int] = frozenset()

    @classmethod
    def turned(
        cls, columns: Mapping[str, Mapping[str, Any]], lines: Sequence[tuple[str, str, float, str]]
    ) -> Table:
        """Figures as rows, what they are of as columns; figures that none has are left out.

        Args:
            columns: figures, by what they are of.
            lines: of each figure what it is called, its name, what it is multiplied by, how it is written.
        """
        rows = []
        for label, key, factor, form in lines:
            values = [one.get(key) for one in columns.values()]
            if any(value is not None for value in values):
                cells = ["" if value is None else format(factor * value, form) for value in values]
                rows.append([label, *cells])
        return cls(["", *columns], rows)
