"""Figure of the network: how busy its links are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from hpctwin.report.figures.style import PALETTE, TimeScale, empty_note, new_figure, styled

__all__ = ["LinkTables", "plot_congestion"]

FloatArray = npt.NDArray[np.float64]

_ROWS = 48
"""Rows of pixels of a level: of more links than that, a row shows the busiest of its links."""
_BARS = 10
_NAME = 42
"""Characters of a link's name that are shown."""


class LinkTables(NamedTuple):
    """Use of links; see `hpctwin.simulation.result.link_use.LinkUse`.

    Args:
        totals: Links in all.
        loads: Links over time.
        levels: Levels of the network over time.
        switches: Switches in all.
    """

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
