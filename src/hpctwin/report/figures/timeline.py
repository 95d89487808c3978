"""Figures of the cluster over time: nodes in use, queue, shared resources, links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from hpctwin.metrics import binned, resample
from hpctwin.model.text import format_duration
from hpctwin.report.figures.style import (
    FADED,
    INK,
    PALETTE,
    NodeTicks,
    TimeScale,
    color,
    count_axis,
    empty_note,
    line_style,
    new_figure,
    styled,
)

__all__ = [
    "LinkTables",
    "plot_congestion",
    "plot_fragmentation",
    "plot_heatmap",
    "plot_queue",
    "plot_resource_use",
    "plot_utilization",
]

_NAMES = {"cores": "cores", "memory_gb": "memory", "gpus": "GPUs"}
MOST_ROWS = 400
"""Maximum number of rows; for lack of pixels, more nodes are drawn as means."""


@styled
def plot_heatmap(
    use: pl.DataFrame,
    *,
    ticks: NodeTicks | None = None,
    title: str = "Resources in use per node",
    start_epoch_s: float | None = None,
) -> Figure:
    """Draw each node's allocated share over time; panels are cores, memory and GPUs.

    Args:
        use: Table as of `Result.node_use`.
        ticks: Names of nodes along the axis; default numbers.
        title: Title of the figure.
        start_epoch_s: Unix time of time zero, to show dates.
    """
    shown = [name for name in _NAMES if use[name].is_not_null().any()]
    figure = new_figure(0.8 + 2.4 * max(1, len(shown)), title=title)
    times = use["time_s"].unique().sort().to_numpy()
    nodes = use["node"].n_unique()
    step = times[1] - times[0] if len(times) > 1 else 1.0
    end = float(times[-1] + step)
    scale = TimeScale.of(end, start_epoch_s)
    panels = figure.subplots(max(1, len(shown)), 1, sharex=True, squeeze=False)[:, 0]
    for ax, name in zip(panels, shown, strict=False):
        held = use[name].to_numpy().reshape(nodes, len(times))
        rows = min(nodes, MOST_ROWS)
        first = np.linspace(0, nodes, rows + 1).astype(int)[:-1]
        there = np.add.reduceat(~np.isnan(held), first, axis=0)
        sums = np.add.reduceat(np.nan_to_num(held), first, axis=0)
        mean = np.where(there > 0, sums / np.maximum(there, 1), np.nan)
        left, right = scale.at([0.0, end])
        image = ax.imshow(
            mean, aspect="auto", origin="lower", interpolation="nearest", cmap="Blues", vmin=0, vmax=1,
            extent=(left, right, 0, nodes),
        )  # fmt: skip
        ax.set_facecolor(FADED)
        ax.grid(visible=False)
        ax.set_ylabel("node")
        if ticks is None:
            ax.locator_params(axis="y", nbins=5, integer=True)
        else:
            ax.set_yticks(ticks.at[::2], ticks.names[::2])
        ax.set_title(f"{_NAMES[name]}: {np.nanmean(held):.1%} held", fontsize=9.5, pad=3)
        figure.colorbar(image, ax=ax, format=PercentFormatter(1, decimals=0), pad=0.01)
    scale.apply(panels[-1], 0.0, end)
    return figure


@styled
def plot_fragmentation(
    found: pl.DataFrame,
    *,
    title: str = "Free resources unusable for pending jobs",
    start_epoch_s: float | None = None,
) -> Figure:
    """Draw free and unusable resources over time, one panel for cores and one for GPUs.

    Args:
        found: Table as of `Result.fragmentation`.
        title: Title of the figure.
        start_epoch_s: Unix time of time zero, to show dates.
    """
    shown = [name for name in ("cores", "gpus") if found[f"free_{name}"].max() or name == "cores"]
    figure = new_figure(0.8 + 2.2 * len(shown), title=title)
    time = found["time_s"].to_numpy()
    end = float(time[-1] + time[0])
    scale = TimeScale.of(end, start_epoch_s)
    at = scale.at(time)
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for ax, name in zip(panels, shown, strict=True):
        free = found[f"free_{name}"].to_numpy()
        unusable = found[f"unusable_{name}"].fill_null(0.0).to_numpy()
        ax.fill_between(at, free, color=FADED, step="mid", label="free")
        ax.fill_between(
            at, unusable, color=PALETTE[5], step="mid", label="unusable for pending jobs"
        )
        if name == "gpus":
            ax.plot(at, found["stranded_gpus"], color=INK, label="stranded: unusable for any job")
            ax.plot(
                at,
                found["fragmented_gpus"],
                color=PALETTE[0],
                ls="--",
                label="fragmented, for the mean job",
            )
        ax.set_ylabel(_NAMES[name])
        # Space for the legend above the curves: a quarter of the panel for each of its rows.
        ax.set_ylim(0, (1.25 if name == "cores" else 1.5) * max(1.0, float(free.max())))
        ax.legend(loc="upper right", ncols=2)
    scale.apply(panels[-1], 0.0, end)
    return figure


@styled
def plot_resource_use(
    use: Mapping[str, pl.DataFrame],
    ends_s: Mapping[str, float] | None = None,
    *,
    title: str = "Use of resources over time",
    unit_s: float = 1.0,
    unit: str = "s",
) -> Figure:
    """Draw the share of each resource in use over time, a strip of panels for each policy.

    Args:
        use: Tables by policy: ``time_s`` at equal steps, the same for all, and a column for each
            resource, 0 to 1; see `hpctwin.metrics.time_series.resource_use`.
        ends_s: End of each policy's last job, in seconds, marked by a line.
        title: Title of the figure.
        unit_s: Seconds per unit of the time axis.
        unit: Name of this unit.
    """
    figure = new_figure(0.9 + 0.95 * len(use), title=title)
    panels = figure.subplots(len(use), 1, sharex=True, squeeze=False)[:, 0]
    shown = None
    for panel, (label, table) in zip(panels, use.items(), strict=True):
        names = [name for name in table.columns if name != "time_s"]
        time = table["time_s"].to_numpy() / unit_s
        step = float(time[1] - time[0]) if len(time) > 1 else 1.0
        right = float(time[-1]) + step
        shown = panel.imshow(
            table.select(names).to_numpy().T,
            aspect="auto",
            interpolation="nearest",
            cmap="viridis",
            vmin=0,
            vmax=1,
            extent=(float(time[0]), right, len(names) - 0.5, -0.5),
        )
        panel.grid(visible=False)
        panel.set_yticks(range(len(names)), names)
        panel.tick_params(length=0)
        panel.set_title(label, fontsize=9.5)
        if ends_s is not None:
            end = ends_s[label] / unit_s
            # White marks the time after the end, when nothing runs.
            panel.axvspan(end, right, color="white", lw=0)
            panel.set_title(
                f"ends at {end:,.0f} {unit}", loc="right", fontsize=8.5, weight="normal"
            )
    panels[-1].set_xlabel(f"time ({unit})")
    if shown is not None:
        bar = figure.colorbar(shown, ax=list(panels), pad=0.01, aspect=30)
        bar.set_label("share in use")
        bar.outline.set_visible(False)
    return figure


FloatArray = npt.NDArray[np.float64]

MAX_ROWS = 1500
"""Maximum number of rows; longer series are drawn as means, for lack of pixels."""

_BINS = 130
"""Maximum number of bins; with more, single steps would not be distinguishable."""
_BINS_S = tuple(
    float(s) for s in (1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 604800)
)


@styled
def plot_utilization(
    series: Mapping[str, pl.DataFrame],
    *,
    title: str | None = None,
    start_s: float | None = None,
    end_s: float | None = None,
    start_epoch_s: float | None = None,
) -> Figure:
    """Draw used nodes over time below the line of available nodes, one panel per label.

    Args:
        series: Results of `hpctwin.metrics.time_series` by label, one or more.
        title: Title of the figure; by default names the used unit.
        start_s: Beginning of the window, in seconds; default the first row.
        end_s: End of the window, in seconds; default the last row.
        start_epoch_s: Unix time of time zero, to show dates.

    Returns:
        The figure. Each panel's heading gives the mean utilization within the window. Long series
        are drawn as means over bins, with their peaks as a thin line.
    """
    shown, start, end, note = _prepared(series, start_s, end_s)
    unit = _unit(series)
    height = 2.9 if len(shown) == 1 else 0.7 + 1.35 * len(shown)
    figure = new_figure(height, title=title or f"{unit.capitalize()} in use")
    scale = TimeScale.of(end - start, start_epoch_s)
    panels = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for index, (ax, (label, (steps, edges))) in enumerate(zip(panels, shown.items(), strict=True)):
        if len(steps):
            used, up = steps[f"used_{unit}"].to_numpy(), steps[f"up_{unit}"].to_numpy()
            at = scale.at(edges)
            ax.stairs(used, at, fill=True, color=color(index), alpha=0.75, linewidth=0)
            if "peak" in steps.columns:
                ax.stairs(
                    steps["peak"].to_numpy(), at, color=color(index), linewidth=0.7, baseline=None
                )
            ax.stairs(up, at, color=INK, linewidth=1.0, baseline=None)
            span = np.diff(edges)
            present = (used + steps[f"free_{unit}"].to_numpy()) @ span
            share = f"{used @ span / present:.1%}" if present else "–"
            ax.set_title(f"{label}: {share} used", fontsize=9.5, pad=3)
        else:
            ax.set_title(label, fontsize=9.5, pad=3)
            empty_note(ax)
        count_axis(ax, nbins=4)
    figure.supylabel(unit, fontsize=9.5)
    scale.apply(panels[-1], start, end, note)
    return figure


@styled
def plot_queue(
    series: Mapping[str, pl.DataFrame],
    *,
    title: str = "Queue",
    start_s: float | None = None,
    end_s: float | None = None,
    start_epoch_s: float | None = None,
) -> Figure:
    """Draw pending jobs, and the nodes they request, over time; a line for each label.

    Args:
        series: Results of `hpctwin.metrics.time_series` by label, one or more.
        title: Title of the figure.
        start_s: Beginning of the window, in seconds; default the first row.
        end_s: End of the window, in seconds; default the last row.
        start_epoch_s: Unix time of time zero, to show dates.

    Returns:
        The figure: jobs above, nodes below.
    """
    shown, start, end, note = _prepared(series, start_s, end_s)
    unit = _unit(series)
    figure = new_figure(4.8, title=title)
    scale = TimeScale.of(end - start, start_epoch_s)
    top, bottom = figure.subplots(2, 1, sharex=True)
    for ax, column, label in (
        (top, "queue_length", "waiting jobs"),
        (bottom, f"queued_{unit}", f"{unit} requested"),
    ):
        for index, (name, (steps, edges)) in enumerate(shown.items()):
            if len(steps):
                ax.stairs(
                    steps[column].to_numpy(),
                    scale.at(edges),
                    baseline=None,
                    label=name,
                    linewidth=1.6,
                    **line_style(index),
                )
        ax.set_ylabel(label)
        count_axis(ax)
    if not any(len(steps) for steps, _ in shown.values()):
        empty_note(top)
    elif len(shown) > 1:
        figure.legend(
            *top.get_legend_handles_labels(), loc="outside upper right", ncols=min(len(shown), 6)
        )
    scale.apply(bottom, start, end, note)
    return figure


_Shown = dict[str, tuple[pl.DataFrame, FloatArray]]


def _unit(series: Mapping[str, pl.DataFrame]) -> str:
    """Return the unit of the series: cores if nodes are shared, else nodes."""
    return "cores" if any("used_cores" in steps.columns for steps in series.values()) else "nodes"


def _prepared(
    series: Mapping[str, pl.DataFrame], start_s: float | None, end_s: float | None
) -> tuple[_Shown, float, float, str]:
    """Cut series to a common window, with one bin width, so they are comparable."""
    times = [steps["time_s"] for steps in series.values() if len(steps)]
    start = start_s if start_s is not None else min((float(t[0]) for t in times), default=0.0)
    end = end_s if end_s is not None else max((float(t[-1]) for t in times), default=start)
    cut = {label: _windowed(steps, start, end) for label, steps in series.items()}
    if max((len(steps) for steps in cut.values()), default=0) <= MAX_ROWS:
        return {label: _edges(steps) for label, steps in cut.items()}, start, end, ""
    least = (end - start) / _BINS
    step = next((bin_s for bin_s in _BINS_S if bin_s >= least), np.ceil(least / 86400) * 86400)
    means = {label: _binned(steps, step) for label, steps in cut.items()}
    return means, start, end, f", means over {format_duration(step)}"


def _windowed(steps: pl.DataFrame, start: float, end: float) -> pl.DataFrame:
    """Return the rows valid within the window; first and last are moved to its ends."""
    if not len(steps) or steps["time_s"][-1] <= start or steps["time_s"][0] >= end:
        return steps.clear()
    last = min(float(steps["time_s"][-1]), end)
    time = pl.col("time_s")
    inside = steps.filter((time.shift(-1, fill_value=np.inf) > start) & (time < last))
    inside = inside.with_columns(time.clip(lower_bound=float(start)))
    return pl.concat([inside, inside[-1].with_columns(time_s=pl.lit(last, pl.Float64))])


def _edges(steps: pl.DataFrame) -> tuple[pl.DataFrame, FloatArray]:
    return steps[:-1], steps["time_s"].to_numpy()


def _binned(steps: pl.DataFrame, step: float) -> tuple[pl.DataFrame, FloatArray]:
    as_nodes = {name: name.replace("_cores", "_nodes") for name in steps.columns}
    bins = resample(steps.rename(as_nodes), step).rename({n: c for c, n in as_nodes.items()})
    if not len(bins):
        return bins, np.empty(0)
    edges = np.append(bins["time_s"].to_numpy(), steps["time_s"][-1])
    used = steps["used_cores" if "used_cores" in steps.columns else "used_nodes"]
    _, peak = binned(steps["time_s"].to_numpy(), used.to_numpy().astype(np.float64), edges)
    return bins.with_columns(peak=pl.Series(peak)), edges


_ROWS = 48
"""Rows of pixels of a level: of more links than that, a row shows the busiest of its links."""
_BARS = 10
_NAME = 42
"""Characters of a link's name that are shown."""


class LinkTables(NamedTuple):
    """Use of links; see `hpctwin.simulation.result.link_use.LinkUse`."""

    totals: pl.DataFrame
    loads: pl.DataFrame
    levels: pl.DataFrame
    switches: pl.DataFrame


@styled
def plot_congestion(
    tables: LinkTables, *, title: str = "Use of links", start_epoch_s: float | None = None
) -> Figure:
    """Draw the utilization of used links over time by level of the network, and the busiest links.

    Args:
        tables: Use of links.
        title: Title of the figure.
        start_epoch_s: Unix time of time zero, to show dates.
    """
    links = tables.totals
    levels = links.group_by("level", maintain_order=True)
    used = levels.agg(pl.len().alias("links"), (pl.col("bytes") > 0).sum().alias("used"))
    used = used.filter(pl.col("used") > 0)
    names = used["level"].to_list()
    top = links.filter(pl.col("bytes") > 0).top_k(_BARS, by="mean_utilization")
    heights = [0.7 + 0.55 * max(len(names), 1), 0.7 + 0.24 * max(len(top), 1)]
    figure = new_figure(0.5 + sum(heights), title=title)
    map_, bars = figure.subplots(2, 1, height_ratios=heights)
    if not names:
        empty_note(map_, "no link carried anything")
        empty_note(bars, "no link carried anything")
        return figure
    times = tables.levels["time_s"].unique().sort().to_numpy()
    busiest = top.row(0, named=True)
    span_s = busiest["bytes"] / busiest["bandwidth"] / busiest["mean_utilization"]
    begin, end = float(times[0]), float(times[0]) + span_s
    scale = TimeScale.of(end - begin, start_epoch_s)
    left, right = scale.at([begin, times[-1] + (times[1] - times[0] if len(times) > 1 else span_s)])
    image = map_.imshow(
        np.vstack([_rows(tables, name, times) for name in names]),
        aspect="auto", interpolation="nearest", cmap="YlOrRd", vmin=0, vmax=1,
        extent=(left, right, len(names), 0),
    )  # fmt: skip
    map_.grid(visible=False)
    map_.hlines(range(1, len(names)), left, right, color="white", lw=1.5)
    labels = [f"{name}\n{some:,} of {every:,}" for name, every, some in used.iter_rows()]
    map_.set_yticks(np.arange(len(names)) + 0.5, labels)
    map_.tick_params(axis="y", length=0)
    figure.colorbar(
        image, ax=map_, format=PercentFormatter(1, decimals=0), pad=0.01, label="of bandwidth"
    )
    scale.apply(map_, begin, end)
    at = np.arange(len(top))
    bars.barh(at, top["mean_utilization"], height=0.7, color=PALETTE[0], label="mean utilization")
    bars.barh(
        at, top["full_s"] / span_s, height=0.25, color=PALETTE[1], label="time at full bandwidth"
    )
    bars.set_yticks(at, [_short(name) for name in top["link"]])
    bars.invert_yaxis()
    bars.set_xlim(0, 1)
    bars.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    bars.set_title("Busiest links", fontsize=9.5, pad=3)
    bars.legend(loc="lower right")
    return figure


def _rows(tables: LinkTables, level: str, times: FloatArray) -> FloatArray:
    """Return the utilization of the used links of a level, as equally many rows for each level."""
    in_level, used = pl.col("level") == level, pl.col("bytes") > 0
    own = tables.totals.filter(in_level & used)["link"]
    number = {link: row for row, link in enumerate(own)}
    loads = tables.loads.filter(in_level)
    found = np.zeros((len(own), len(times)))
    row = loads["link"].replace_strict(number, return_dtype=pl.Int64).to_numpy()
    found[row, np.searchsorted(times, loads["time_s"].to_numpy())] = loads["utilization"]
    first = (np.arange(_ROWS) * len(own)) // _ROWS
    # For few links, a link has several rows: `reduceat` repeats it.
    rows: FloatArray = np.maximum.reduceat(found, first, axis=0)
    return rows


def _short(name: str) -> str:
    return name if len(name) <= _NAME else f"…{name[1 - _NAME :]}"
