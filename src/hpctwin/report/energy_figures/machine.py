"""Figure of a machine under several policies: utilisation, power, PUE, temperature of the water."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from hpctwin.report.figures.axes import TimeScale, new_figure
from hpctwin.report.figures.style import color, styled

__all__ = ["plot_machine"]

_PANELS = (
    ("utilization", "nodes in use, %", 100.0),
    ("power_w", "power, MW", 1e-6),
    ("pue", "PUE", 1.0),
    ("return_c", "to the towers, °C", 1.0),
)


@styled
def plot_machine(
    runs: Mapping[str, pl.DataFrame], *, title: str = "", start_epoch_s: float | None = None
) -> Figure:
    """Draw what a machine did under each policy, one panel above the other.

    Args:
        runs: ``time_s`` and any of ``utilization``, ``power_w``, ``pue``, ``return_c`` in equal steps, by
            name.
        title: above the figure.
        start_epoch_s: Unix time of time zero; None if not known.
    """
    first = next(iter(runs.values()))
    panels = [panel for panel in _PANELS if panel[0] in first.columns]
    figure = new_figure(1.2 + 1.7 * len(panels))
    axes = np.atleast_1d(figure.subplots(len(panels), sharex=True))
    begin, end = float(first["time_s"][0]), float(first["time_s"][-1])
    scale = TimeScale.of(end - begin, start_epoch_s)
    for ax, (column, label, factor) in zip(axes, panels, strict=True):
        for number, (name, table) in enumerate(runs.items()):
            ax.step(
                scale.at(table["time_s"].to_numpy()), factor * table[column].to_numpy(),
                where="post", label=name, color=color(number), linewidth=1.0,
            )  # fmt: skip
        ax.set_ylabel(label)
    axes[0].set_ylim(0, 105)
    axes[0].set_title(title)
    axes[0].legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(runs))
    scale.apply(axes[-1], begin, end)
    return figure
