"""Figures and tables of facilities: several clusters under placement strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich import box
from rich.table import Table
from rich.text import Text

from hpctwin.metrics import breakdown
from hpctwin.model import format_duration
from hpctwin.model.text import count_text
from hpctwin.report.columns import tau_note, tau_of
from hpctwin.report.figures.style import PALETTE, color, empty_note, new_figure, styled
from hpctwin.report.verbatim import VerbatimTable

__all__ = ["facility_table", "plot_moved", "plot_waits_by_bin", "plot_waits_by_size", "plot_weeks"]

WEEK_S = 7 * 86_400.0
TURNAROUND_EDGES_H = (0, 1, 2, 4, 8, 16, 32, 64, 128, np.inf)


@styled
def plot_weeks(weeks: Mapping[str, pl.DataFrame], *, title: str = "Utilization by week") -> Figure:
    """Draw each cluster's utilization by week, and below it the jobs placed there.

    Args:
        weeks: `FacilityResult.weeks` by strategy, one or more; each has a column of panels.
        title: Title of the figure.
    """
    figure = new_figure(4.4, 4.6 * len(weeks) if len(weeks) > 1 else 9.0, title=title)
    panels = figure.subplots(
        2, len(weeks), sharex="col", sharey="row", squeeze=False, height_ratios=(3, 2)
    )
    for column, (label, table) in enumerate(weeks.items()):
        above, below = panels[0, column], panels[1, column]
        above.set_title(label)
        names = table["cluster"].unique(maintain_order=True).to_list()
        for index, name in enumerate(names):
            one = table.filter(pl.col("cluster") == name)
            week = one["week"].to_numpy() - int(table["week"].to_numpy().min())
            above.plot(week, 100 * one["utilization"], color=color(index), label=name, lw=1.4)
            width = 0.8 / len(names)
            at = week + (index - (len(names) - 1) / 2) * width
            below.bar(at, one["jobs"], width, color=color(index))
        above.set_ylim(0, 103)
        below.set_xlabel("week")
    panels[0, 0].set_ylabel("utilization (%)")
    panels[1, 0].set_ylabel("jobs submitted")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside right upper")
    return figure


@styled
def plot_waits_by_size(
    jobs: Mapping[str, pl.DataFrame],
    edges: Mapping[str, Sequence[float]],
    *,
    title: str = "Mean wait and number of jobs by size",
) -> Figure:
    """Draw the mean wait and the number of each cluster's jobs by size class.

    Args:
        jobs: `FacilityResult.jobs` by strategy.
        edges: Upper bounds of the size classes, by cluster; each cluster has a row of panels.
        title: Title of the figure.
    """
    figure = new_figure(2.9 * len(edges), title=title)
    panels = figure.subplots(len(edges), 2, squeeze=False)
    for row, (cluster, ends) in enumerate(edges.items()):
        tables = {
            label: breakdown(table.filter(pl.col("cluster") == cluster), "size", ends)
            for label, table in jobs.items()
        }
        longest = max(tables.values(), key=len)["bin"].to_list()
        bins = sorted({b for t in tables.values() for b in t["bin"]}, key=_first_number)
        bins = bins or longest
        for index, (label, table) in enumerate(tables.items()):
            by_bin = {r["bin"]: r for r in table.iter_rows(named=True)}
            wait = [(by_bin.get(b, {}).get("mean_wait_s") or 0.0) / 3600 for b in bins]
            count = [by_bin.get(b, {}).get("ran_jobs", 0) for b in bins]
            _bars(panels[row, 0], wait, index, len(tables), label)
            _bars(panels[row, 1], count, index, len(tables), label)
        for ax, what in zip(panels[row], ("mean wait (h)", "jobs"), strict=True):
            ax.set_xticks(range(len(bins)), bins, rotation=20)
            ax.set_ylabel(what)
            ax.set_title(f"on {cluster}", fontsize=9.5)
        panels[row, 0].set_xlabel("nodes")
        panels[row, 1].set_xlabel("nodes")
        panels[row, 1].set_yscale("symlog", linthresh=10)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside right upper")
    return figure


@styled
def plot_waits_by_bin(
    waits: Mapping[tuple[str, str], Mapping[str, Mapping[str, float | None]]],
    *,
    title: str = "Mean wait by bin",
) -> Figure:
    """Draw mean waits by bin from several sources side by side.

    Args:
        waits: Minutes by bin, by source, by panel; a panel is a strategy and the property of its
            bins. A missing value has no bar.
        title: Title of the figure.
    """
    strategies = list(dict.fromkeys(strategy for strategy, _ in waits))
    kinds = list(dict.fromkeys(by for _, by in waits))
    sources = list(dict.fromkeys(source for panel in waits.values() for source in panel))
    figure = new_figure(2.9 * len(strategies), title=title)
    panels = figure.subplots(len(strategies), len(kinds), squeeze=False)
    for (strategy, by), panel in waits.items():
        ax = panels[strategies.index(strategy), kinds.index(by)]
        names = list(dict.fromkeys(name for table in panel.values() for name in table))
        here = [source for source in sources if source in panel]
        for index, source in enumerate(here):
            heights = [panel[source].get(name) for name in names]
            color = PALETTE[sources.index(source) % len(PALETTE)]
            width = 0.8 / len(here)
            at = np.arange(len(names)) + (index - (len(here) - 1) / 2) * width
            ax.bar(at, [height or 0.0 for height in heights], width, color=color, label=source)
        ax.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor")
        ax.set_xlabel(by)
        ax.set_ylabel("mean wait (min)")
        ax.set_title(strategy, fontsize=9.5)
    found = {
        label: handle
        for ax in panels.flat
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(found.values(), found.keys(), loc="outside right upper")
    return figure


@styled
def plot_moved(
    jobs: Mapping[str, pl.DataFrame], *, origin: str, cluster: str, title: str | None = None
) -> Figure:
    """Draw, for each strategy, the jobs that the last one moved to another cluster.

    Args:
        jobs: `FacilityResult.jobs` by strategy; the last one selects the jobs.
        origin: Cluster of the jobs' submission.
        cluster: Cluster that the last strategy placed them on.
        title: Title of the figure.
    """
    last = list(jobs.values())[-1]
    sent = last.filter((pl.col("origin") == origin) & (pl.col("cluster") == cluster))["job_id"]
    heading = title or f"{count_text(len(sent), 'job')} of {origin} that ran on {cluster}"
    figure = new_figure(3.4, title=heading)
    left, right = figure.subplots(1, 2)
    names = [
        f"{low:g}–{high:g}" if np.isfinite(high) else f"> {low:g}"
        for low, high in pairwise(TURNAROUND_EDGES_H)
    ]
    for index, (label, table) in enumerate(jobs.items()):
        these = table.filter(pl.col("job_id").is_in(sent.implode()))
        for ax, column in ((left, "turnaround_s"), (right, "wait_s")):
            hours = these[column].drop_nulls().to_numpy() / 3600
            if not len(hours):
                empty_note(ax)
                continue
            count, _ = np.histogram(hours, TURNAROUND_EDGES_H)
            _bars(ax, count.tolist(), index, len(jobs), label)
    for ax, what in ((left, "turnaround (h)"), (right, "wait (h)")):
        ax.set_xticks(range(len(names)), names, rotation=30)
        ax.set_xlabel(what)
    left.set_ylabel("jobs")
    figure.legend(*left.get_legend_handles_labels(), loc="outside right upper")
    return figure


def _bars(ax: Axes, values: Sequence[float], index: int, of: int, label: str) -> None:
    width = 0.8 / of
    at = np.arange(len(values)) + (index - (of - 1) / 2) * width
    ax.bar(at, values, width, color=PALETTE[index % len(PALETTE)], label=label)


def _first_number(label: str) -> float:
    digits = "".join(ch if ch.isdecimal() else " " for ch in label).split()
    return float(digits[0]) + (0.5 if label.startswith(">") else 0.0)


def facility_table(summaries: Mapping[str, Mapping[str, Any]], clusters: Sequence[str]) -> Table:
    """Return strategies as rows, with main metrics; best wait and turnaround are marked.

    Args:
        summaries: `FacilityResult.summary` by strategy.
        clusters: Names of the clusters.
    """
    table = VerbatimTable(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("strategy", overflow="fold", min_width=12)
    table.add_column("knows")
    heads = [
        "mean\nwait",
        "p95\nwait",
        "turn-\naround",
        "slow-\ndown",
        "spread",
        "moves",
        "ms a\njob",
    ]
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for name in clusters:
        table.add_column(f"jobs\n{name}", justify="right", overflow="fold")
    for name in clusters:
        table.add_column(f"util.\n{name}", justify="right", overflow="fold")
    least = {
        key: min((s[key] for s in summaries.values() if s[key] is not None), default=None)
        for key in ("mean_wait_s", "mean_turnaround_s")
    }
    for s in summaries.values():

        def marked(key: str, s: Mapping[str, Any] = s) -> Text:
            best = s[key] == least[key] and len(summaries) > 1
            return Text(f"{_duration(s[key])}{'*' if best else ''}", "bold green" if best else "")

        table.add_row(
            Text(s["strategy"]),
            s["knowledge"],
            marked("mean_wait_s"),
            _duration(s["p95_wait_s"]),
            marked("mean_turnaround_s"),
            _number(s["mean_bounded_slowdown"], ".1f"),
            _number(s["utilization_spread"], ".1%"),
            f"{s['moves']:,}",
            _number(s["decision_ms_mean"], ".2f"),
            *(f"{s[f'jobs_{name}']:,}" for name in clusters),
            *(_number(s[f"utilization_{name}"], ".1%") for name in clusters),
        )
    notes = ["* lowest of its column"] if len(summaries) > 1 else []
    notes += tau_note(["mean_bounded_slowdown"], tau_of(summaries.values()))
    table.caption = "; ".join(notes) or None
    table.caption_justify = "left"
    return table


def _duration(seconds: float | None) -> str:
    return "–" if seconds is None else format_duration(seconds)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
