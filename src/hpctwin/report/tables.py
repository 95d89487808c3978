"""Tables for the terminal: results of runs, and a workload's description."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from hpctwin import metrics
from hpctwin.metrics import Summary
from hpctwin.model import format_duration
from hpctwin.model.arguments import check_arguments
from hpctwin.model.text import count_text
from hpctwin.report.columns import (
    COLUMNS,
    Column,
    best_labels,
    format_alike,
    format_change,
    format_metric,
    is_share,
    metric_name,
    shown_columns,
    tau_note,
    tau_of,
)
from hpctwin.report.verbatim import VerbatimTable

if TYPE_CHECKING:
    from hpctwin.metrics.description import Description

__all__ = [
    "answer_table",
    "compare_table",
    "description_tables",
    "difference_table",
    "paired_table",
    "parts_that_fit",
    "saved_table",
    "summary_table",
]

_BESIDE = 5


def description_tables(found: Description) -> list[Table]:
    """Return the metrics, the distributions, and the jobs by width and by hour."""
    return [_figures(found), *_distributions(found), _widths(found), _hours(found)]


def _figures(found: Description) -> Table:
    table = VerbatimTable(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
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
    """Return one table; or two, requests and times, if a line cannot hold all."""
    shown = {name: values for name, values in found.distributions.items() if values}
    if len(shown) <= _BESIDE:
        return [_quantiles(shown)]
    times = [name for name in shown if name.endswith("_s") or name == "walltime_accuracy"]
    sizes = {name: values for name, values in shown.items() if name not in times}
    return [_quantiles(sizes), _quantiles({name: shown[name] for name in times})]


def _quantiles(shown: Mapping[str, Mapping[str, float]]) -> Table:
    table = VerbatimTable(box=box.SIMPLE_HEAD, pad_edge=False)
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
    table = VerbatimTable(
        f"{unit}s up to", "jobs", f"{unit}-hours", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for row in found.by_width:
        table.add_row(f"{row[f'{unit}s']:,}", f"{row['jobs']:,}", f"{row[f'{unit}_hours']:,.0f}")
    return table


def _hours(found: Description) -> Table:
    table = VerbatimTable("hour of submission", "jobs", box=box.SIMPLE_HEAD, pad_edge=False)
    most = max(max(found.by_hour), 1)
    for hour, jobs in enumerate(found.by_hour):
        table.add_row(f"{hour:02}:00", f"{'█' * round(24 * jobs / most):24} {jobs:,}")
    return table


BEST_MARK = "*"


def compare_table(
    summaries: Mapping[str, Summary],
    *,
    title: str | None = None,
    width: int | None = None,
    alike: bool = False,
) -> Group:
    """Return policies as rows and main metrics as columns; the best values are marked.

    Args:
        summaries: Summaries by policy. The key ``engine_ms`` (duration of the simulation, in ms)
            becomes a column if it is present.
        title: Title of the table.
        width: Characters in a line. A longer policy name is wrapped at one of its signs ``+``,
            ``@``, ``~`` or ``/``; columns that do not fit are in a table below. No number is ever
            cut.
        alike: Whether each column has one unit and one number of decimals.

    Returns:
        A table to print with `rich.print`. The mark is an asterisk, so that it is also visible
        without colors.
    """
    columns = shown_columns(summaries.values())
    best = {column.key: best_labels(column, summaries) for column in columns}
    rows: dict[str, list[Text]] = {label: [] for label in summaries}
    for column in columns:
        values = [summary.get(column.key) for summary in summaries.values()]
        texts = [format_metric(column.key, value) for value in values]
        if alike:
            texts = format_alike(column.key, values)
        room = " " if best[column.key] else ""
        for (label, cells), text in zip(rows.items(), texts, strict=True):
            marked = label in best[column.key]
            cells.append(Text(text + BEST_MARK, "bold green") if marked else Text(text + room))
    notes = [f"{'bold:' if alike else BEST_MARK} best of its column"] if any(best.values()) else []
    notes += tau_note([one.key for one in columns], tau_of(summaries.values()))
    caption = "; ".join(notes) or None
    return _by_policy("policy", columns, rows, width, title=title, caption=caption)


def difference_table(summaries: Mapping[str, Summary], *, width: int | None = None) -> Group:
    """Return each policy's changes from the first, in percent, or in points for shares.

    Args:
        summaries: Summaries by policy, two or more.
        width: Characters in a line, as of `compare_table`.

    Returns:
        A table to print with `rich.print`. An increase from 0 has no percentage and is shown as its
        value.
    """
    columns = [one for one in shown_columns(summaries.values()) if one.better is not None]
    (first, base), *others = summaries.items()
    rows = {
        label: [_change(one, base.get(one.key), summary.get(one.key)) for one in columns]
        for label, summary in others
    }
    return _by_policy(f"against\n{first}", columns, rows, width)


def saved_table(summaries: Mapping[str, Summary], *, width: int | None = None) -> Group | None:
    """Return each policy's savings of energy, money, carbon; negative if it uses more.

    Args:
        summaries: Summaries by policy, two or more.
        width: Characters in a line, as of `compare_table`.

    Returns:
        A table to print with `rich.print`; None without a power model.
    """
    (first, base), *others = summaries.items()
    keys = [key for key in base if _SPENT.match(key) and base[key]]
    if not keys:
        return None
    columns = [Column(key, f"{metric_name(key)} saved", "high") for key in keys]
    rows = {
        label: [_saving(key, float(base[key] or 0), summary.get(key)) for key in keys]
        for label, summary in others
    }
    return _by_policy(f"against\n{first}", columns, rows, width)


def _saving(key: str, before: float, after: Any) -> Text:
    if after is None:
        return Text("–")
    saved = before - after
    text = f"{format_change(key, saved).removeprefix('+')}, {100 * saved / before:.1f} %"
    return Text(text.replace("-", "−"), "" if not saved else "green" if saved > 0 else "red")


@check_arguments()
def paired_table(differences: pl.DataFrame, *, width: int | None = None) -> Table:
    """Return the policies' mean changes from the first over workloads, with intervals.

    Args:
        differences: Table as of `hpctwin.metrics.paired_differences`.
        width: Characters in a line, as of `compare_table`.

    Returns:
        A table to print with `rich.print`: a row for each policy and main metric. An asterisk marks
        an interval that excludes 0.
    """
    known = {column.key: column for column in COLUMNS if column.better is not None}
    shown = differences.filter(pl.col("metric").is_in(list(known)))
    of = ", ".join(dict.fromkeys(shown["against"]))
    pairs = max(shown["pairs"], default=0)
    table = VerbatimTable(
        title=f"compared with {of}, paired on {pairs} workloads",
        title_justify="left", title_style="", caption_justify="left",
        caption="ratio: geometric mean; "
        + (
            f"{BEST_MARK} 0 is outside the interval: significant"
            if shown["low"].count()
            else f"intervals need {metrics.min_sample_size()} workloads or more"
        ),
        box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True,
    )  # fmt: skip
    cells = [_paired_cells(known[row["metric"]], row) for row in shown.iter_rows(named=True)]
    taken = sum(_GAP + max((len(row[at]) for row in cells), default=0) for at in range(4))
    room = None if width is None else max(width - taken - _GAP, _LEAST)
    table.add_column("policy", overflow="fold", style="bold")
    for title in ("metric", "difference", "95 % interval", "ratio"):
        table.add_column(title, justify="left" if title == "metric" else "right", overflow="fold")
    # A long name continues next to the following metrics.
    for name in dict.fromkeys(shown["policy"]):
        own = [row for of, row in zip(shown["policy"], cells, strict=True) if of == name]
        lines = _broken(name, room).split("\n")
        lines = [*lines[: len(own) - 1], "\n".join(lines[len(own) - 1 :]), *[""] * len(own)]
        for line, row in zip(lines, own, strict=False):
            table.add_row(line, *row)
    return table


def _paired_cells(column: Column, row: Mapping[str, Any]) -> list[Text]:
    """Return metric, difference, its interval, and the geometric mean of the pairs' ratios."""
    key, change, low, high = column.key, row["difference"], row["low"], row["high"]
    no_ratio = row["ratio"] is None or is_share(key)
    ratio = "" if no_ratio else f"{100 * (row['ratio'] - 1):+,.1f} %".replace("-", "−")
    surely = low is not None and not low <= 0 <= high
    style = "" if not surely else "green" if (change < 0) == (column.better == "low") else "red"
    return [
        Text(column.header.replace("bounded slowdown", "b. slowdown")),
        Text(format_change(key, change) + (BEST_MARK if surely else " "), style),
        Text("–" if low is None else f"{format_change(key, low)} … {format_change(key, high)}"),
        Text(ratio),
    ]


def _by_policy(
    head: str,
    columns: Sequence[Column],
    rows: Mapping[str, Sequence[Text]],
    width: int | None,
    *,
    title: str | None = None,
    caption: str | None = None,
) -> Group:
    """Return a table with a policy per row; columns that do not fit are in tables below it.

    A policy's name continues in the next line if it is too long.
    """
    # Words are stacked, so that the table fits a terminal of 80 columns.
    heads = [(column.short or column.header).replace(" ", "\n") for column in columns]
    widths = [
        _GAP + max([*map(len, title.split("\n")), *(len(row[at]) for row in rows.values())])
        for at, title in enumerate(heads)
    ]
    tables = []
    for part in parts_that_fit(widths, None if width is None else width - _GAP - _LEAST):
        left = None if width is None else width - sum(widths[part]) - _GAP
        room = None if left is None else max(left, _LEAST)
        fits = left is None or left >= _LEAST
        table = VerbatimTable(
            box=box.SIMPLE_HEAD, caption_justify="left", pad_edge=False, collapse_padding=True
        )
        table.add_column(
            "\n".join(_broken(line, room) for line in head.split("\n")),
            overflow="fold",
            min_width=min(_LEAST, max(map(len, rows), default=0)),
        )
        for one in heads[part]:
            # If a line cannot hold even one number, the number is wrapped; nothing is ever cut.
            table.add_column(one, justify="right", no_wrap=fits, overflow="fold")
        for label, cells in rows.items():
            table.add_row(Text(_broken(label, room), "bold"), *cells[part])
        tables.append(table)
    tables[0].title = title
    tables[-1].caption = caption
    return Group(*tables)


def parts_that_fit(widths: Sequence[int], room: int | None) -> list[slice]:
    """Return the columns of each table; at least one per table."""
    parts, first, taken = [], 0, 0
    for at, width in enumerate(widths):
        taken += width
        if room is not None and taken > room and at > first:
            parts.append(slice(first, at))
            first, taken = at, width
    return [*parts, slice(first, len(widths))]


def _change(column: Column, before: Any, after: Any) -> Text:
    """Return a difference with its sign; green if it is better, red if it is worse."""
    if before is None or after is None:
        return Text("–")
    share = is_share(column.key)
    if not share and not before:
        return Text("0" if not after else f"+{format_metric(column.key, after)}")
    change = 100 * (after - before) if share else 100 * (after / before - 1)
    text = f"{change:+,.1f} {'pts' if share else '%'}"
    if text[1:].split()[0].strip("0.") == "":
        return Text("same")
    better = (change < 0) == (column.better == "low")
    return Text(text.replace("-", "−"), "green" if better else "red")


def _broken(label: str, room: int | None) -> str:
    """Return a policy's name in lines that fit, preferably broken at its signs."""
    if room is None or len(label) <= room:
        return label
    lines = [""]
    for part in re.findall(rf"[+@~/]?[^+@~/]{{0,{room - 1}}}", label):
        if lines[-1] and len(lines[-1]) + len(part) > room:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def answer_table(summary: Summary) -> Table:
    """Return the main metrics of a run in some ten lines: jobs, waits, energy, money.

    Args:
        summary: Summary of the run, or of a window of it.

    Returns:
        A table to print with `rich.print`. Unknown metrics have no line.
    """
    table = VerbatimTable(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    nodes = count_text(int(summary.get("nodes") or 0), "node")
    run = f"{summary.get('workload')} on {summary.get('cluster')} ({nodes})"
    table.add_row("simulated", f"{run} under {summary.get('policy')}")
    states = [
        f"{value:,} {key.removeprefix('jobs_').replace('_', ' ')}"
        for key, value in summary.items()
        if key.startswith("jobs_") and isinstance(value, int) and value
    ]
    if "jobs" in summary:
        table.add_row("jobs", f"{summary['jobs']:,}: {', '.join(states) or 'none done yet'}")
    for name, key in (("wait", "wait_s"), ("bounded slowdown", "bounded_slowdown")):
        parts = [
            f"{part} {format_metric(f'{part}_{key}', summary[f'{part}_{key}'])}"
            for part in ("mean", "median", "p95", "max")
            if summary.get(f"{part}_{key}") is not None
        ]
        if parts:
            note = tau_note([key], summary.get("tau_s"), "")
            table.add_row(name, ", ".join(parts + note))
    if "preemptions" in summary:
        vain = format_metric("preempted_node_s", summary["preempted_node_s"])
        jobs, times = summary["preempted_jobs"], summary["preemptions"]
        table.add_row("preempted", f"{jobs:,} jobs, {times:,} times, {vain} lost")
    if (mean := summary.get("mean_contention_slowdown")) is not None:
        p95, most = (summary[f"{word}_contention_slowdown"] for word in ("p95", "max"))
        table.add_row("contention slowdown", f"mean {mean:.3g}, p95 {p95:.3g}, max {most:.3g}")
    for key in _ANSWERS:
        if summary.get(key) is not None:
            table.add_row(metric_name(key), format_metric(key, summary[key]))
    for key, value in summary.items():
        if value is not None and key.startswith((*_MONEY, *_DELAYED)):
            table.add_row(metric_name(key), format_metric(key, value))
    if summary.get("rejection_reasons"):
        table.add_row("rejected, as they", Text(str(summary["rejection_reasons"])))
    return table


_SPENT = re.compile(r"(total|window)_energy_j$|(window_)?(cost_|emissions_kg$)")
_GAP = 2
_LEAST = 10
"""Minimum number of characters for a policy's name."""
_ANSWERS = (
    "mean_turnaround_s", "utilization", "window_utilization", "makespan_s", "max_queue_length",
    "dependency_violations", "total_energy_j", "window_energy_j", "wasted_energy_j", "pue",
    "emissions_kg", "window_emissions_kg",
)  # fmt: skip
_MONEY = ("cost_", "window_cost_")
_DELAYED = ("mean_unfair_delay_s", "delay_saving")


def summary_table(summary: Summary, *, title: str | None = None) -> Table:
    """Return every metric of one run, one per row, in words and readable units.

    Args:
        summary: Summary of the run.
        title: Title of the table.

    Returns:
        A table to print with `rich.print`.
    """
    table = VerbatimTable(title=title, box=box.SIMPLE_HEAD)
    table.add_column("metric", no_wrap=True)
    table.add_column("value", justify="right")
    for key, value in summary.items():
        table.add_row(Text(metric_name(key)), Text(format_metric(key, value)))
    return table
