"""Tables whose texts are shown as they are; Rich reads ``[gpu]`` in a name as markup."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

__all__ = ["VerbatimTable"]


class VerbatimTable(Table):
    """A table without markup in its headings and cells; `rich.text.Text` has styles."""

    def add_column(self, header: RenderableType = "", *args: Any, **options: Any) -> None:
        """Add a column; see `rich.table.Table.add_column`."""
        super().add_column(_verbatim(header), *args, **options)

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row; see `rich.table.Table.add_row`."""
        super().add_row(*map(_verbatim, cells), **options)


def _verbatim(shown: Any) -> Any:
    return escape(shown) if isinstance(shown, str) else shown
