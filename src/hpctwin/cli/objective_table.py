"""SchedTwin's methods as a table."""

from __future__ import annotations

from rich import box
from rich.table import Table

from hpctwin.experiments.schedtwin import PUBLISHED_AREA, Row
from hpctwin.model import format_duration

__all__ = ["objective_table"]


def objective_table(
    rows: list[Row],
    *,
    published: bool,
    normalise: str = "each over its mean",
    title: str | None = None,
) -> Table:
    """Methods as rows, with or without the published areas."""
    count = rows[0].seed
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        title=title or f"Mean over {count} workload{'s' if count > 1 else ''}",
        caption=f"objective: weighted sum of the four costs ({normalise}); lower is better",
    )
    heads = ["max\nwait", "mean\nwait", "max\nslowdown", "mean\nslowdown", "util."]
    heads += ["objective", "area", "ms a\ncycle"]
    if published:
        heads.insert(-1, "area\n(paper)")
    table.add_column("method", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        cells = [
            row.method,
            format_duration(round(row.max_wait_s)),
            format_duration(round(row.mean_wait_s)),
            f"{row.max_slowdown:.1f}",
            f"{row.mean_slowdown:.2f}",
            f"{row.utilization:.1%}",
            f"{row.objective:.4f}",
            f"{row.area:.2f}",
            f"{row.cycle_ms_mean:.2f}" if row.cycle_ms_mean else "–",
        ]
        if published:
            cells.insert(-1, f"{PUBLISHED_AREA[row.method]:.2f}")
        table.add_row(*cells)
    return table
