"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box
from rich.table import Table
from rich.text import Text

from hpctwin.metrics import Summary
from hpctwin.report.columns import best_labels, format_metric, metric_name, shown_columns

__all__ = ["compare_table", "summary_table"]

BEST_MARK = "*"


def compare_table(summaries: Mapping[str, Summary], *, title: str | None = None) -> Table:
    """Policies as rows, their main metrics as columns; the best of each column is marked.

    Args:
        summaries: by policy. The key ``engine_ms`` (milliseconds the simulation took), where
            there is one, becomes a column.
        title: above the table.

    Returns:
        A table to print with `rich.print`. The mark is an asterisk, so that it is there without
        colours too.
    """
    columns = shown_columns(summaries.values())
    best = {column.key: best_labels(column, summaries) for column in columns}
    caption = f"{BEST_MARK} best of its column" if any(best.values()) else None
    table = Table(
        title=title,
        box=box.SIMPLE_HEAD,
        caption=caption,
        caption_justify="left",
        pad_edge=False,
        collapse_padding=True,
    )
    longest = max((len(label) for label in summaries), default=0)
    table.add_column("policy", style="bold", overflow="fold", min_width=min(longest, 10))
    for column in columns:
        # Words below each other, so that the table fits a terminal of 80 columns.
        header = (column.short or column.header).replace(" ", "\n")
        table.add_column(header, justify="right", no_wrap=True)
    for label, summary in summaries.items():
        cells = []
        for column in columns:
            text = format_metric(column.key, summary.get(column.key))
            marked = label in best[column.key]
            room = " " if best[column.key] else ""
            cells.append(Text(text + BEST_MARK, "bold green") if marked else Text(text + room))
        table.add_row(Text(label), *cells)
    return table


def summary_table(summary: Summary, *, title: str | None = None) -> Table:
    """Every metric of one run, one to a row, in words and human units.

    Args:
        summary: of the run.
        title: above the table.

    Returns:
        A table to print with `rich.print`.
    """
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.add_column("metric", no_wrap=True)
    table.add_column("value", justify="right")
    for key, value in summary.items():
        table.add_row(Text(metric_name(key)), Text(format_metric(key, value)))
    return table
