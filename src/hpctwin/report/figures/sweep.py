"""Table and figures of a sweep or search: means with intervals, and changes."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from hpctwin.metrics import METRICS, TAU_S
from hpctwin.model.text import format_duration
from hpctwin.report.columns import format_metric, format_paired, is_share, metric_name, tau_note
from hpctwin.report.figures.style import FADED, LINES, color, empty_note, new_figure, styled
from hpctwin.report.tables import parts_that_fit

__all__ = ["plot_search", "plot_sweep", "sweep_table"]

_GAP = 3
TITLE_WIDTH = 42
"""Characters of a panel's title in a line, so that it ends before the next panel's."""
_BETTER = {name: metric.better for name, metric in METRICS.items()}


def sweep_table(compared: pl.DataFrame, *, width: int | None = None, tau_s: float = TAU_S) -> Group:
    """Return a row per policy and other varied values; metrics have their intervals.

    Args:
        compared: Table as of `hpctwin.sweep.SweepResult.compare`.
        width: Characters in a line. If they are too few, intervals are below their values, and the
            remaining metrics in a table below.
        tau_s: Threshold of bounded slowdowns, in seconds.

    Returns:
        A table to print with `rich.print`; an asterisk marks a change whose interval excludes zero.
    """
    if not len(compared):
        return Group()
    varied = _varied(compared)
    shown = [name for name in varied if not _of_policy(compared, name)]
    metrics = compared["metric"].unique(maintain_order=True).to_list()
    heads = [*map(_called, shown), "policy", "runs"]
    columns = [metric_name(metric).replace(" ", "\n", 1) for metric in metrics]
    named: list[list[str]] = []
    figures: list[dict[str, dict[str, Any]]] = []
    for about, rows in compared.group_by([*shown, "policy"], maintain_order=True):
        by_metric = {row["metric"]: row for row in rows.iter_rows(named=True)}
        labels = [_value(*one) for one in zip([*shown, "policy"], about, strict=True)]
        named.append([*labels, f"{max(row['runs'] for row in by_metric.values()):,}"])
        figures.append(by_metric)
    left = sum(_GAP + max(map(len, texts)) for texts in zip(heads, *named, strict=True))
    room = None if width is None else width - min(left, width // 2)
    for between in (" ", "\n"):
        cells = [
            [_cell(row[name], between) if name in row else Text("–") for name in metrics]
            for row in figures
        ]
        widths = [
            _GAP + max(len(line) for cell in texts for line in str(cell).split("\n"))
            for texts in zip(columns, *cells, strict=True)
        ]
        if room is None or sum(widths) <= room:
            break
    tables = [
        _part_table(heads, columns[part], named, [values[part] for values in cells])
        for part in parts_that_fit(widths, room)
    ]
    against = compared["against"].drop_nulls().unique().to_list()
    notes = ["mean [95 % interval]" if compared["low"].count() else "means"]
    if against:
        notes.append(f"below it the change from {against[0]}, paired by jobs")
        notes.append("in percent: geometric mean of the ratios")
        if any(map(is_share, metrics)):
            notes.append("pts: percentage points")
    if compared["difference_low"].count():
        notes.append("* its interval excludes zero")
    tables[-1].caption = "; ".join([*notes, *tau_note(metrics, tau_s)])
    return Group(*tables)


def _part_table(
    heads: Sequence[str],
    columns: Sequence[str],
    named: Sequence[list[str]],
    cells: Sequence[Sequence[Text]],
) -> Table:
    """Return a table of some metrics; a common heading is only in its first row."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption_justify="left")
    for name in heads:
        table.add_column(name, overflow="fold", justify="right" if name == "runs" else "left")
    for name in columns:
        table.add_column(name, justify="right", overflow="fold")
    told: list[str] = []
    for texts, values in zip(named, cells, strict=True):
        group = texts[:-2]
        if told and group != told:
            table.add_section()
        begin = group if group != told else [""] * len(group)
        table.add_row(*begin, *texts[-2:], *values)
        told = group
    return table


def _cell(row: dict[str, Any], between: str) -> Text:
    """Return mean and change with their intervals, and the text before each interval."""
    metric, mean = row["metric"], row["mean"]
    cell = Text(format_metric(metric, mean), "bold")
    if row["low"] is not None:
        cell.append(
            f"{between}[{format_metric(metric, row['low'])}, {format_metric(metric, row['high'])}]",
            "not bold",
        )
    if row["difference"] is None:
        return cell
    text, sure = format_paired(metric, row, between)
    better = _BETTER.get(metric)
    style = "not bold"
    if sure and better is not None:
        fell = text.startswith("−")
        style = "not bold green" if fell == (better == "low") else "not bold red"
    cell.append(f"\n{text}", style)
    return cell


@styled
def plot_sweep(compared: pl.DataFrame, *, title: str = "Sweep", tau_s: float = TAU_S) -> Figure:
    """Draw a panel per metric: over the first varied number, else a line for each policy.

    Args:
        compared: Table as of `hpctwin.sweep.SweepResult.compare`.
        title: Title of the figure.
        tau_s: Threshold of bounded slowdowns, in seconds.

    Returns:
        The figure, with means and their intervals.
    """
    metrics = compared["metric"].unique(maintain_order=True).to_list() if len(compared) else []
    if not metrics:
        figure = new_figure(3)
        empty_note(figure.subplots(), "no point has finished")
        return figure
    numeric = [name for name in _varied(compared) if compared[name].dtype.is_numeric()]
    across = numeric[0] if numeric else None
    labels = _labels(compared, across)
    rows = -(-len(metrics) // 2)
    height = 2.9 if across else 0.9 + 0.24 * labels.n_unique()
    figure = new_figure(0.6 + rows * height, title=title)
    panels = figure.subplots(rows, 2, squeeze=False, sharey=not across)
    labelled = compared.with_columns(label=labels)
    for ax, metric in zip(panels.flat, metrics, strict=False):
        unit, name = _unit(metric, labelled)
        of = labelled.filter(pl.col("metric") == metric).with_columns(
            pl.col("mean", "low", "high") / unit
        )
        if across:
            _lines(ax, of, across)
        else:
            _dots(ax, of)
        better = _BETTER.get(metric)
        words = [f"{metric_name(metric)}{name}", *tau_note([metric], tau_s, "")]
        text = ", ".join([*words, *([f"{better}er is better"] if better else [])])
        ax.set_title(textwrap.fill(text, TITLE_WIDTH), fontsize=10)
        if not name:
            axis = ax.yaxis if across else ax.xaxis
            axis.set_major_formatter(partial(_formatted, metric))
    for ax in panels.flat[len(metrics) :]:
        ax.set_visible(False)
    if across and labels.n_unique() > 1:
        handles, names = panels.flat[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=min(3, len(names)))
    return figure


@styled
def plot_search(trials: pl.DataFrame, objectives: Mapping[str, str]) -> Figure:
    """Draw the trials of a search: two objectives, or one by trial number.

    Args:
        trials: Table as of `hpctwin.sweep.Found`.
        objectives: Metrics, each ``low`` or ``high``.

    Returns:
        The figure, with the completed trials and the best of them.
    """
    whole = trials.filter(pl.col("state") == "complete")
    figure = new_figure(4)
    ax = figure.subplots()
    first, *others = objectives
    values = whole[first].to_numpy()
    falling = objectives[first] == "low"
    if not others:
        best = np.minimum.accumulate(values) if falling else np.maximum.accumulate(values)
        ax.plot(whole["trial"], values, ".", color=FADED, label="trials on all jobs")
        ax.step(whole["trial"], best, where="post", color=color(0), label="best so far")
        ax.set_xlabel("trial")
        axes: list[tuple[Axis, str]] = [(ax.yaxis, first)]
    else:
        signs = [1 if objectives[name] == "low" else -1 for name in objectives]
        points = whole.select(*objectives).to_numpy()
        signed = points * signs
        front = [
            not ((signed <= one).all(axis=1) & (signed < one).any(axis=1)).any() for one in signed
        ]
        ax.plot(points[:, 0], points[:, 1], ".", color=FADED, label="trials on all jobs")
        chosen = points[front][np.argsort(points[front][:, 0])]
        ax.plot(
            chosen[:, 0],
            chosen[:, 1],
            "o-",
            color=color(0),
            markersize=4,
            label="not dominated",
        )
        axes = [(ax.xaxis, first), (ax.yaxis, others[0])]
    for axis, name in axes:
        axis.set_label_text(f"{metric_name(name)} ({objectives[name]}er is better)")
        axis.set_major_formatter(partial(_formatted, name))
        axis.set_major_locator(MaxNLocator(6))
    ax.set_title("Policies tried")
    ax.legend()
    return figure


def _formatted(metric: str, value: float, _: int) -> str:
    return format_metric(metric, value)


def _unit(metric: str, rows: pl.DataFrame) -> tuple[float, str]:
    """Return the divisor of durations for round ticks, and the unit's name."""
    if not metric.endswith("_s") or metric.endswith("_node_s"):
        return 1.0, ""
    most = rows.filter(pl.col("metric") == metric)["mean"].max()
    longest = float(most) if isinstance(most, (int, float)) else 0.0
    units = ((1, "s"), (60, "min"), (3600, "h"), (86400, "d"))
    unit, name = next((one for one in reversed(units) if longest >= 2 * one[0]), units[0])
    return float(unit), f" ({name})"


def _lines(ax: Axes, rows: pl.DataFrame, across: str) -> None:
    values = rows[across].drop_nulls()
    ends = (float(values.min()), float(values.max()))  # type: ignore[arg-type]
    for index, (label, of) in enumerate(rows.group_by("label", maintain_order=True)):
        of = of.sort(across)
        x, mean = of[across].to_numpy(), of["mean"].to_numpy()
        low, high = (of[name].cast(pl.Float64).to_numpy() for name in ("low", "high"))
        alone = of[across].null_count() == len(of)
        if alone:  # a policy without the parameter
            x, mean, low, high = (np.repeat(one[:1], 2) for one in (x, mean, low, high))
            x = np.array(ends)
        ax.plot(
            x, mean, color=color(index), linestyle=LINES[index // 8 % len(LINES)],
            marker="" if alone else "o", markersize=4, label=str(label[0]),
        )  # fmt: skip
        ax.fill_between(x, low, high, color=color(index), alpha=0.14, linewidth=0)
    ax.set_xlabel("shift (s)" if across == "shift_s" else _called(across))


def _dots(ax: Axes, rows: pl.DataFrame) -> None:
    labels = rows["label"].to_list()
    mean = rows["mean"].to_numpy()
    low, high = (
        rows[name].cast(pl.Float64).fill_null(rows["mean"]).to_numpy() for name in ("low", "high")
    )
    places = np.arange(len(labels))
    beside = [np.maximum(mean - low, 0), np.maximum(high - mean, 0)]
    ax.errorbar(mean, places, xerr=beside, fmt="o", markersize=5, color=color(0), capsize=3)
    ax.set_yticks(places, labels)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.locator_params(axis="x", nbins=5)


def _labels(compared: pl.DataFrame, across: str | None) -> pl.Series:
    """Return the legend texts: the values that the points of a line share."""
    own = "written" if across and _of_policy(compared, across) else "policy"
    others = [n for n in _varied(compared) if n != across and not _of_policy(compared, n)]

    def words(row: dict[str, Any]) -> str:
        more = [
            f"{_called(name)} {_value(name, row[name])}"
            if compared[name].dtype.is_numeric()
            else f"{row[name]}"
            for name in others
            if row[name] is not None
        ]
        return ", ".join([str(row[own]), *more])

    return pl.Series("label", [words(row) for row in compared.iter_rows(named=True)], pl.String)


def _varied(compared: pl.DataFrame) -> list[str]:
    return compared.columns[: compared.columns.index("policy")]


def _of_policy(compared: pl.DataFrame, name: str) -> bool:
    """Return whether a column only repeats the policy's text."""
    return name.startswith("parameter_") and bool(
        compared.group_by("policy").agg(pl.col(name).n_unique() == 1)[name].all()
    )


def _called(name: str) -> str:
    return "shift" if name == "shift_s" else name.removeprefix("parameter_")


def _value(name: str, value: Any) -> str:
    """Return a varied value as text; a shift with its unit."""
    if isinstance(value, float):
        return format_duration(value) if name == "shift_s" else f"{value:g}"
    return "–" if value is None else str(value)
