"""Figures that compare policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator

from hpctwin.metrics import (
    Summary,
    breakdown,
    kiviat_scores,
    mean_interval,
    served,
    with_job_metrics,
)
from hpctwin.metrics.comparison import shares_of_best
from hpctwin.report.columns import (
    Column,
    best_labels,
    column_of,
    format_change,
    format_metric,
    tau_note,
    tau_of,
)
from hpctwin.report.figures.style import (
    FADED,
    INK,
    PALETTE,
    RC,
    color,
    empty_note,
    line_style,
    log_durations,
    new_figure,
    styled,
)

__all__ = [
    "plot_compare_bars",
    "plot_differences",
    "plot_radar",
    "plot_radars",
    "plot_wait_by_size",
    "plot_wait_cdf",
]

_BARS = [
    column_of(key) for key in ("mean_wait_s", "p95_wait_s", "mean_bounded_slowdown", "utilization")
]
_RADAR = [
    column_of(key)
    for key in ("max_wait_s", "mean_wait_s", "max_slowdown", "mean_slowdown", "utilization")
]
_POINTS = 1000
_MARKERS = "osD^vPX*"
_STEPS_S = (
    *(0.1 * 10**k * f for k in range(3) for f in (1, 2, 5)),
    *(60.0 * f for f in (1, 2, 5, 10, 15, 30, 60, 120, 240, 360, 720, 1440, 2880)),
    *(86400.0 * 5 * 2**k for k in range(40)),
)


@styled
def plot_wait_cdf(jobs: Mapping[str, pl.DataFrame], *, title: str = "Waiting times") -> Figure:
    """Draw the cumulative distribution of waits.

    Args:
        jobs: Jobs of results by label, one or more. Only jobs that started and ended count.
        title: Title of the figure.

    Returns:
        The figure. Waits have a logarithmic scale, so curves begin at the share of jobs that waited
        at most a second.
    """
    figure = new_figure(3.8)
    ax = figure.subplots()
    ax.set_title(title)
    longest = 60.0
    for index, (label, frame) in enumerate(jobs.items()):
        wait = np.sort(with_job_metrics(served(frame))["wait_s"].to_numpy())
        if not len(wait):
            continue
        longest = max(longest, float(wait[-1]))
        # Even steps in share suffice for a curve; a step per job would make the file too large.
        share = np.linspace(0, 1, min(_POINTS, len(wait) + 1))
        at = np.quantile(wait, share, method="inverted_cdf")
        ax.step(np.maximum(at, 1.0), share, where="post", label=label, **line_style(index))
    log_durations(ax, "x", 1.0, longest)
    ax.set_xlim(1.0, longest)
    ax.set_ylim(0, 1.02)
    ax.yaxis.set_major_formatter(lambda share, _: f"{share * 100:.0f} %")
    ax.set_xlabel("wait from submission to start (up to 1 s at the left edge)")
    ax.set_ylabel("jobs with at most this wait")
    _legend_or_note(figure, bool(ax.lines), len(jobs))
    return figure


@styled
def plot_compare_bars(
    summaries: Mapping[str, Summary],
    columns: Sequence[Column] = _BARS,
    *,
    title: str = "Comparison",
    replicates: Mapping[str, Sequence[Summary]] | None = None,
) -> Figure:
    """Draw a panel of bars for each metric; the best value is highlighted.

    Args:
        summaries: Summaries by label, one or more.
        columns: The metrics.
        title: Title of the figure.
        replicates: Summaries of each label's runs; ``summaries`` then has their means. Each run is
            a point; six runs or more also give an error bar, the mean's 95 % interval.

    Returns:
        The figure, two panels to a row.
    """
    rows = -(-len(columns) // 2)
    figure = new_figure(0.6 + rows * (0.75 + 0.3 * len(summaries)), title=title)
    panels = figure.subplots(rows, 2, squeeze=False, sharey=True)
    labels = list(summaries)
    for ax, column in zip(panels.flat, columns, strict=False):
        values = [summaries[label].get(column.key) for label in labels]
        best = best_labels(column, summaries)
        ax.barh(
            labels,
            [value or 0.0 for value in values],
            color=[PALETTE[2] if label in best else FADED for label in labels],
            height=0.7,
        )
        longest = 0.0
        for row, (label, value) in enumerate(zip(labels, values, strict=True)):
            found = [run.get(column.key) for run in (replicates or {}).get(label, ())]
            end = max(value or 0.0, _spread(ax, row, [one for one in found if one is not None]))
            longest = max(longest, end)
            text = format_metric(column.key, value) + (" (best)" if label in best else "")
            ax.annotate(
                text, (end, row), (4, 0), textcoords="offset points", va="center", fontsize=8.5,
                color=INK,
            )  # fmt: skip
        arrow = {"low": "lower is better", "high": "higher is better", None: ""}[column.better]
        note = tau_note([column.key], tau_of(summaries.values()), "")
        ax.set_title(", ".join([column.header, *note]), fontsize=10)
        ax.set_xlabel(arrow, fontsize=8.5)
        ax.set_xticks([])
        ax.grid(visible=False)
        ax.spines.bottom.set_visible(False)
        # Space for the numbers to the right of the longest bar.
        ax.set_xlim(0, longest * 1.38 or 1.0)
        ax.tick_params(axis="y", length=0)
    panels[0, 0].invert_yaxis()
    for ax in panels.flat[len(columns) :]:
        ax.set_visible(False)
    return figure


def _spread(ax: Axes, row: int, values: Sequence[float]) -> float:
    """Draw the values of replicates and their mean's interval; return the largest drawn value."""
    if len(values) < 2:
        return 0.0
    ax.plot(values, [row] * len(values), "o", color=INK, ms=3, alpha=0.45, mew=0)
    mean, low, high = mean_interval(values)
    if low is None or high is None:
        return max(values)
    ax.errorbar(mean, row, xerr=[[mean - low], [high - mean]], color=INK, capsize=4, lw=1.3)
    return max(*values, high)


@styled
def plot_differences(
    differences: pl.DataFrame, columns: Sequence[Column] = _BARS, *, title: str | None = None
) -> Figure:
    """Draw each policy's mean difference to the first over workloads, with intervals.

    Args:
        differences: Table as of `hpctwin.metrics.paired_differences`.
        columns: The metrics; missing ones are skipped.
        title: Title of the figure.

    Returns:
        The figure, two panels to a row. A hollow point has no interval, or one that includes 0.
    """
    known = set(differences["metric"])
    columns = [column for column in columns if column.key in known]
    labels = list(dict.fromkeys(differences["policy"]))
    rows = max(1, -(-len(columns) // 2))
    of = ", ".join(dict.fromkeys(differences["against"]))
    heading = title or f"Compared with {of}, paired, with 95 % intervals"
    figure = new_figure(0.9 + rows * (0.9 + 0.3 * len(labels)), title=heading)
    panels = figure.subplots(rows, 2, squeeze=False, sharey=True)
    for ax, column in zip(panels.flat, columns, strict=False):
        ax.axvline(0, color=FADED, linewidth=1)
        for row in differences.filter(pl.col("metric") == column.key).iter_rows(named=True):
            low, high = (
                row["difference"] if row[end] is None else row[end] for end in ("low", "high")
            )
            surely = row["low"] is not None and not low <= 0 <= high
            gain = row["difference"] * {"low": -1, "high": 1, None: 0}[column.better]
            shade = PALETTE[2] if gain > 0 else PALETTE[5] if gain < 0 else FADED
            ax.plot([low, high], [row["policy"]] * 2, color=INK, linewidth=1.2)
            ax.plot(
                row["difference"], row["policy"], "o", color=shade,
                markerfacecolor=None if surely else "white", zorder=3,
            )  # fmt: skip
        ax.set_title(column.header, fontsize=10)
        ax.xaxis.set_major_formatter(lambda x, _, key=column.key: format_change(key, x))
        ax.xaxis.set_major_locator(MaxNLocator(4))
        if column.key.endswith("_s"):
            begin, end = ax.get_xlim()
            ax.xaxis.set_major_locator(
                MultipleLocator(next(s for s in _STEPS_S if s >= (end - begin) / 5))
            )
    panels[0, 0].set_ylim(len(labels) - 0.5, -0.5)
    for ax in panels.flat[len(columns) :]:
        ax.set_visible(False)
    figure.supxlabel("green: better, red: worse; filled: significant", fontsize=8.5)
    return figure


Scale = Literal["best", "range"]
"""Scale of Kiviat diagrams: share of the best value, or from the worst value to the best."""


@styled
def plot_radar(
    summaries: Mapping[str, Summary],
    columns: Sequence[Column] = _RADAR,
    *,
    title: str = "Policies on several metrics (outer is better)",
    scale: Scale = "best",
) -> Figure:
    """Draw a Kiviat diagram: each metric as a share of the best policy's.

    A policy is half way to the rim if its wait is twice the shortest one, or its utilization half
    of the highest one. So small differences look small. With the scale ``range``, the worst policy
    is in the center, as in fig. 3 of the SchedTwin paper (Zhang et al. 2025); that shows only ranks
    and relative distances. The area of a polygon depends on the order of the axes and must not be
    read as a score.

    Args:
        summaries: Summaries by label, two or more for a meaningful figure.
        columns: The axes; metrics that a summary lacks are skipped.
        title: Title of the figure.
        scale: ``best`` or ``range``.

    Returns:
        The figure.
    """
    figure = new_figure(5.6, 7.0, title=title)
    if _radar(figure.add_subplot(projection="polar"), summaries, columns, scale):
        figure.legend(loc="outside lower center", ncols=2)
    return figure


@styled
def plot_radars(
    charts: Mapping[str, Mapping[str, Summary]],
    columns: Sequence[Column] = _RADAR,
    *,
    title: str = "Policies on several metrics (outer is better)",
    scale: Scale = "best",
) -> Figure:
    """Draw Kiviat diagrams side by side, each with its own best values; see `plot_radar`.

    Args:
        charts: Summaries by label, by the name of the chart; one or more.
        columns: The axes.
        title: Title of the figure.
        scale: ``best`` or ``range``.

    Returns:
        The figure, with a legend under each chart.
    """
    figure = new_figure(4.9, 3.6 * len(charts), title=title)
    for index, (name, summaries) in enumerate(charts.items()):
        ax = figure.add_subplot(1, len(charts), index + 1, projection="polar")
        if _radar(ax, summaries, columns, scale):
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)
        ax.set_title(name, fontweight="bold", pad=24)
    return figure


def _radar(
    ax: Axes, summaries: Mapping[str, Summary], columns: Sequence[Column], scale: Scale
) -> bool:
    """Draw one Kiviat diagram on polar axes; return False if there are too few metrics."""
    axes = [
        column
        for column in columns
        if summaries and all(summary.get(column.key) is not None for summary in summaries.values())
    ]
    if len(axes) < 3:
        ax.set_axis_off()
        empty_note(ax, "fewer than three metrics are available for every policy")
        return False
    raw = np.array([[float(s[c.key] or 0) for c in axes] for s in summaries.values()])
    scores = kiviat_scores if scale == "range" else shares_of_best
    score = scores(raw, np.array([column.better == "high" for column in axes]))
    angle = np.linspace(0, 2 * np.pi, len(axes), endpoint=False)
    around = np.append(angle, angle[0])
    for index, label in enumerate(summaries):
        values = np.append(score[index], score[index][0])
        ax.plot(around, values, label=label, marker=_MARKERS[index % 8], ms=4, **line_style(index))
        ax.fill(around, values, color=color(index), alpha=0.07)
    # Matplotlib's type hints treat polar axes as plain ones.
    ax.set_theta_offset(np.pi / 2)  # type: ignore[attr-defined]
    ax.set_theta_direction(-1)  # type: ignore[attr-defined]
    ax.set_xticks(angle, [column.header for column in axes])
    ax.tick_params(axis="x", pad=14)
    shares = [0.25, 0.5, 0.75, 1.0]
    named = scale == "best"
    ax.set_yticks(shares, [f"{100 * share:.0f} %" for share in shares] if named else [], fontsize=7)
    ax.set_rlabel_position(180 / len(axes))  # type: ignore[attr-defined]
    ax.set_ylim(0, 1.03)
    ax.spines["polar"].set_visible(False)
    return True


@styled
def plot_wait_by_size(
    jobs: Mapping[str, pl.DataFrame], *, of: str = "nodes", title: str = "Mean wait by job size"
) -> Figure:
    """Draw the mean wait of each size class.

    Args:
        jobs: Jobs of results by label, one or more, of the same workload.
        of: Unit of their column ``nodes``.
        title: Title of the figure.

    Returns:
        The figure. Waits have a logarithmic scale; waits below a second are at its lower end.
    """
    tables = {
        label: breakdown(frame, "size").filter(pl.col("ran_jobs") > 0)
        for label, frame in jobs.items()
    }
    bins = sorted(
        {name for table in tables.values() for name in table["bin"]},
        key=lambda name: int(name.split("–")[0]),
    )
    figure = new_figure(3.8)
    ax = figure.subplots()
    ax.set_title(title)
    longest = 60.0
    for index, (label, table) in enumerate(tables.items()):
        wait = table["mean_wait_s"].to_numpy()
        if not len(wait):
            continue
        longest = max(longest, float(wait.max()))
        at = [bins.index(name) for name in table["bin"]]
        ax.plot(
            at,
            np.maximum(wait, 1.0),
            label=label,
            marker=_MARKERS[index % 8],
            ms=5,
            **line_style(index),
        )
    log_durations(ax, "y", 1.0, longest * 1.5)
    ax.set_ylim(0.8, longest * 1.5)
    # Long names of wide classes are slanted if they would overlap.
    aslant: dict[str, Any] = {"rotation": 30, "ha": "right"} if sum(map(len, bins)) > 60 else {}
    ax.set_xticks(range(len(bins)), bins, **aslant)
    ax.set_xlabel(f"{of} requested")
    ax.set_ylabel("mean wait (up to 1 s at the bottom)")
    _legend_or_note(figure, bool(ax.lines), len(jobs))
    return figure


def _legend_or_note(figure: Figure, drawn: bool, labels: int) -> None:
    if not drawn:
        empty_note(figure.axes[0])
    elif labels > 1:
        # All labels fit into the height of the figure.
        size = min(RC["legend.fontsize"], 34 * figure.get_figheight() / labels)
        figure.legend(loc="outside right upper", fontsize=size)
