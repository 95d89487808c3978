"""Figure and tables of a twin's decisions: chosen policies, and all scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from hpctwin.model import format_duration
from hpctwin.report.figures.style import (
    TimeScale,
    color,
    empty_note,
    line_style,
    new_figure,
    styled,
)
from hpctwin.report.pages.all_figures import Drawn
from hpctwin.report.pages.html import rows_table

__all__ = ["Decided", "decided_figures", "plot_policies"]


@dataclass(frozen=True, eq=False)
class Decided:
    """Decisions of a twin.

    Args:
        label: Name of the twin.
        decisions: A row per decision, in order: ``time_s``, ``policy`` (chosen), ``waiting``,
            ``took_ms``.
        scores: Scores of the candidates if several were compared: ``time_s``, ``policy``,
            ``score``.
        until_s: End of the last policy's time, in seconds.
        accuracy: Accuracy of forecasts, as rows of texts: the forecast wait, the number, the median
            error, the error of nine in ten, the bias, and the share within its interval.
        made: Names and values of the twin's settings.
        unix_time: Whether the cluster's clock counts from 1970.
    """

    label: str
    decisions: pl.DataFrame
    scores: pl.DataFrame
    until_s: float
    accuracy: Sequence[Sequence[str]] = ()
    made: Sequence[tuple[str, str]] = field(default_factory=tuple)
    unix_time: bool = True

    @property
    def ruled(self) -> pl.DataFrame:
        """Periods of one policy: ``policy``, ``start_s``, ``end_s``, ``decisions``."""
        told = self.decisions.select("time_s", "policy")
        stretch = (pl.col("policy") != pl.col("policy").shift()).fill_null(value=True).cum_sum()
        return (
            told.with_columns(stretch=stretch)
            .group_by("stretch", maintain_order=True)
            .agg(pl.col("policy").first(), start_s=pl.col("time_s").first(), decisions=pl.len())
            .with_columns(end_s=pl.col("start_s").shift(-1).fill_null(self.until_s))
            .select("policy", "start_s", "end_s", "decisions")
        )

    def tables(self) -> list[str]:
        """Return each policy's total time, and the accuracy of forecasts, as HTML."""
        ruled = self.ruled.with_columns(span=pl.col("end_s") - pl.col("start_s"))
        total = float(ruled["span"].sum()) or 1.0
        by_policy = ruled.group_by("policy").agg(
            pl.col("span").sum(), pl.col("decisions").sum(), times=pl.len()
        )
        mean = self.scores.group_by("policy").agg(pl.col("score").mean(), compared=pl.len())
        rows = []
        for policy, span, decisions, times, score, compared in (
            by_policy.join(mean, on="policy", how="full", coalesce=True)
            .sort("span", "policy", descending=[True, False], nulls_last=True)
            .select("policy", "span", "decisions", "times", "score", "compared")
            .iter_rows()
        ):
            share = f"{format_duration(round(span or 0))} ({(span or 0) / total:.1%})"
            told = "–" if score is None else f"{score:.4g}"
            rows.append((policy, share, times or 0, decisions or 0, told, compared or 0))
        head = ("policy", "ruled", "times", "decisions", "mean score", "compared")
        found = [rows_table(head, rows)]
        if self.accuracy:
            names = ("wait forecast", "forecasts", "median error", "9 of 10 within", "bias")
            found.append(rows_table((*names, "in their interval"), self.accuracy))
        return [*found, rows_table(("", ""), self.made)] if self.made else found


def decided_figures(all_of_them: Sequence[Decided]) -> list[Drawn]:
    """Return the figure of each twin's policies over time."""
    many = len(all_of_them) > 1
    return [
        Drawn(
            f"Policies of {one.label}",
            f"policies-{number}" if many else "policies",
            "Scores of the candidates (lower is better), with the active policy below",
            plot_policies(one),
        )
        for number, one in enumerate(all_of_them, 1)
    ]


@styled
def plot_policies(one: Decided) -> Figure:
    """Draw the candidates' scores over time, and below them the chosen policy."""
    ruled, scores = one.ruled, one.scores
    names = list(dict.fromkeys([*scores["policy"].sort(), *ruled["policy"].sort()]))
    first = float(one.decisions["time_s"][0]) if len(one.decisions) else 0.0
    span = max(one.until_s - first, 1.0)
    scale = TimeScale.of(span, first if one.unix_time else None)
    figure = new_figure(3.0 + 0.26 * max(1, len(names)), title=f"Policies of {one.label}")
    top, below = figure.subplots(
        2, 1, sharex=True, height_ratios=[2.2, 0.5 + 0.26 * max(1, len(names))]
    )
    for number, name in enumerate(names):
        mine = scores.filter(pl.col("policy") == name)
        if len(mine):
            top.plot(
                scale.at(mine["time_s"].to_numpy() - first),
                mine["score"].to_numpy(),
                drawstyle="steps-post",
                label=name,
                **line_style(number),
            )
        here = ruled.filter(pl.col("policy") == name)
        begin = scale.at(here["start_s"].to_numpy() - first)
        end = scale.at(here["end_s"].to_numpy() - first)
        below.barh(
            np.full(len(here), number), end - begin, left=begin, height=0.7, color=color(number)
        )
    if len(scores):
        figure.legend(
            *top.get_legend_handles_labels(), loc="outside upper right", ncols=min(len(names), 6)
        )
    else:
        empty_note(top, "no two policies were compared")
    top.set_ylabel("score")
    below.set_yticks(range(len(names)), names)
    below.set_ylim(len(names) - 0.5, -0.5)
    below.grid(visible=False)
    scale.apply(below, 0.0, span)
    return figure
