"""A workload's description as tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box
from rich.table import Table

from hpctwin.metrics.studies.describe import Description
from hpctwin.model import format_duration

__all__ = ["description_tables"]

_BESIDE = 5


def description_tables(found: Description) -> list[Table]:
    """The figures, the distributions, and the jobs by width and by hour."""
    return [_figures(found), *_distributions(found), _widths(found), _hours(found)]


def _figures(found: Description) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    for name, value in found.figures.items():
        if name == "nodes_are" or value is None:
            continue
        shown = f"{value:,}" if isinstance(value, int) else str(value)
        if name == "nodes":
            shown += f" ({found.figures['nodes_are']})"
        elif name.endswith("_s"):
            shown = format_duration(value)
        elif name.startswith("share_"):
            shown = f"{100 * value:.1f} %"
        elif isinstance(value, float):
            shown = f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
        table.add_row(name.removesuffix("_s").replace("_gb", " (GB)").replace("_", " "), shown)
    for what, count in found.notes.items():
        if count:
            table.add_row(what, f"{count:,}")
    return table


def _distributions(found: Description) -> list[Table]:
    """Beside each other, or what jobs ask above their times, where a line has no room for both."""
    shown = {name: values for name, values in found.distributions.items() if values}
    if len(shown) <= _BESIDE:
        return [_quantiles(shown)]
    times = [name for name in shown if name.endswith("_s") or name == "walltime_accuracy"]
    sizes = {name: values for name, values in shown.items() if name not in times}
    return [_quantiles(sizes), _quantiles({name: shown[name] for name in times})]


def _quantiles(shown: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", overflow="fold")
    for name in shown:
        title = name.removesuffix("_s").replace("_gb", " (GB)").replace("_per_", "\na ")
        table.add_column(title.replace("_", " "), justify="right")
    for row in ("min", "p5", "p25", "median", "mean", "p75", "p95", "p99", "max"):
        table.add_row(
            row,
            *(
                format_duration(values[row]) if name.endswith("_s") else f"{values[row]:,.4g}"
                for name, values in shown.items()
            ),
        )
    return table


def _widths(found: Description) -> Table:
    unit = "core" if any("cores" in row for row in found.by_width) else "node"
    table = Table(f"{unit}s up to", "jobs", f"{unit}-hours", box=box.SIMPLE_HEAD, pad_edge=False)
    for row in found.by_width:
        table.add_row(f"{row[f'{unit}s']:,}", f"{row['jobs']:,}", f"{row[f'{unit}_hours']:,.0f}")
    return table


def _hours(found: Description) -> Table:
    table = Table("hour of submission", "jobs", box=box.SIMPLE_HEAD, pad_edge=False)
    most = max(max(found.by_hour), 1)
    for hour, jobs in enumerate(found.by_hour):
        table.add_row(f"{hour:02}:00", f"{'█' * round(24 * jobs / most):24} {jobs:,}")
    return table
