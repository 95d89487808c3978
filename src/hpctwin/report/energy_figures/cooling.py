"""Figure of cooling: power, PUE, and the water's temperatures over time."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from hpctwin.report.figures.axes import TimeScale, new_figure
from hpctwin.report.figures.style import color, styled

__all__ = ["plot_cooling"]


@styled
def plot_cooling(
    cooled: pl.DataFrame, *, title: str = "Cooling", start_epoch_s: float | None = None
) -> Figure:
    """Draw what a machine and its cooling take, its PUE, and how warm the water is.

    Args:
        cooled: as of `ComponentEnergy.cooled`.
        title: above the figure.
        start_epoch_s: Unix time of time zero; None if not known.
    """
    figure = new_figure(5.6)
    power, pue, water = figure.subplots(3, sharex=True)
    power.set_title(title)
    begin = float(cooled["time_s"][0])
    end = float(cooled["time_s"][-1] + cooled["step_s"][-1])
    scale = TimeScale.of(end - begin, start_epoch_s)
    at = scale.at(np.append(cooled["time_s"].to_numpy(), end))
    plant = cooled["pump_w"] + cooled["fan_w"] + cooled["air_w"]
    for ax, label, values in (
        (power, "machine", (cooled["heat_w"] + cooled["air_heat_w"]) / 1e6),
        (power, "cooling", plant / 1e6),
        (pue, "", cooled["pue"]),
        (water, "to the towers", cooled["return_c"]),
        (water, "to the machine", cooled["supply_c"]),
        (water, "wet bulb", cooled["wet_bulb_c"]),
    ):
        steps = np.append(values.to_numpy(), values[-1])
        ax.step(at, steps, where="post", label=label, color=color(len(ax.lines)), linewidth=0.9)
    for ax, unit in ((power, "MW"), (pue, "PUE"), (water, "°C")):
        ax.set_ylabel(unit)
        if len(ax.lines) > 1:
            ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3)
    power.set_ylim(bottom=0)
    scale.apply(water, begin, end)
    return figure
