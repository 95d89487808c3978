"""Tables of docs/ that benchmarks fill in, so that a page holds figures of one commit.

A table that a benchmark fills in has ``<!-- the benchmark's name and options -->`` before it. Only the cells
that were measured change: those of a row and a column that the benchmark names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

Cells = dict[tuple[str, str], str]
"""What to write, by the first cell of the row and the heading of the column."""

MARKED = re.compile(r"<!-- (?P<script>\S+)(?P<options>[^\n]*) -->\n+(?P<table>(?:\|[^\n]*\n)+)")


def cells_of(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def line_of(cells: list[str]) -> str:
    """A line of a table."""
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def redraw(
    page: Path, script: str, measured: Callable[[list[str], list[str], list[str]], Cells]
) -> None:
    """Fill in all tables of a page that are a benchmark's.

    Args:
        page: a Markdown file.
        script: the benchmark's name.
        measured: ``(options, rows, columns) -> cells``: what the benchmark measures, given its options, the
            first cell of each row and the headings of the columns.

    Raises:
        SystemExit: the page has no such table.
    """
    text = page.read_text()
    found = [one for one in MARKED.finditer(text) if one["script"] == script]
    if not found:
        raise SystemExit(f"{page} has no table with '<!-- {script} … -->' before it")
    for one in found:
        head, rule, *lines = one["table"].splitlines()
        columns = cells_of(head)
        rows = [cells_of(line) for line in lines]
        cells = measured(one["options"].split(), [row[0] for row in rows], columns[1:])
        for row in rows:
            row[1:] = [
                cells.get((row[0], column), cell)
                for column, cell in zip(columns[1:], row[1:], strict=True)
            ]
        made = [head, rule, *(line_of(row) for row in rows)]
        text = text.replace(one["table"], "\n".join(made) + "\n")
        # After each table, so that nothing is lost if a later one is stopped.
        page.write_text(text)
