"""Figures of shared nodes: allocated shares, and free but unusable resources."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from hpctwin.report.figures.axes import NodeTicks, TimeScale, new_figure
from hpctwin.report.figures.style import FADED, INK, PALETTE, styled

__all__ = ["plot_fragmentation", "plot_heatmap"]

_NAMES = {"cores": "cores", "memory_gb": "memory", "gpus": "GPUs"}
MOST_ROWS = 400
"""Maximum number of rows; for lack of pixels, more nodes are drawn as means."""


@styled
def plot_heatmap(
    use: pl.DataFrame,
    *,
    ticks: NodeTicks | None = None,
    title: str = "Held of each node",
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
        figure.colorbar(image, ax=ax, format="{x:.0%}", pad=0.01)
    scale.apply(panels[-1], 0.0, end)
    return figure


@styled
def plot_fragmentation(
    found: pl.DataFrame,
    *,
    title: str = "Free, and of no use to the jobs that wait",
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
        ax.fill_between(at, unusable, color=PALETTE[5], step="mid", label="of no use to who waits")
        if name == "gpus":
            ax.plot(at, found["stranded_gpus"], color=INK, label="stranded: of use to no job")
            ax.plot(
                at,
                found["fragmented_gpus"],
                color=PALETTE[0],
                ls="--",
                label="fragmented, by the mean job",
            )
        ax.set_ylabel(_NAMES[name])
        ax.set_ylim(0, 1.25 * max(1.0, float(free.max())))
        ax.legend(loc="upper right", ncols=2)
    scale.apply(panels[-1], 0.0, end)
    return figure
