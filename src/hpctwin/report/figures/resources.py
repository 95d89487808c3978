"""Heat maps of resource use over time."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from matplotlib.figure import Figure

from hpctwin.report.figures.axes import new_figure
from hpctwin.report.figures.style import styled

__all__ = ["plot_resource_use"]


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
