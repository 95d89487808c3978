"""A table of words and numbers that a command prints or a report writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Cell", "Table"]

Cell = str | tuple[str, str]
"""Text of a cell; or the text and the published value."""


@dataclass(frozen=True)
class Table:
    """A table to print.

    Args:
        heads: Column headers.
        rows: Cells, as many per row as headers.
        title, caption: Texts above and below the table.
        words: Number of columns of words at the left; the other columns are numbers.
        marked: Highlighted rows.
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
        """Return metrics as rows and their subjects as columns; empty rows are skipped.

        Args:
            columns: Metrics by subject.
            lines: For each metric its label, key, factor and format.
        """
        rows = []
        for label, key, factor, form in lines:
            values = [one.get(key) for one in columns.values()]
            if any(value is not None for value in values):
                cells = ["" if value is None else format(factor * value, form) for value in values]
                rows.append([label, *cells])
        return cls(["", *columns], rows)
