"""Figure of a job's forecast start, as a distribution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from hpctwin.report.figures.axes import TimeScale, new_figure
from hpctwin.report.figures.style import ACCENT, FADED, INK, styled

__all__ = ["plot_start"]

_MARGIN = 0.06


@styled
def plot_start(
    quantiles_s: Sequence[float],
    levels: Sequence[float],
    *,
    now_s: float,
    start_s: float,
    span_s: tuple[float, float],
    title: str = "When it will start",
) -> Figure:
    """Draw the probability over time that a job has started.

    Args:
        quantiles_s: Quantiles of the start at the probabilities ``levels``, in seconds since 1970.
        levels: Increasing probabilities between 0 and 1.
        now_s: Current time, in seconds since 1970.
        start_s: Forecast start, in seconds since 1970.
        span_s: Interval of the start, in seconds since 1970.
        title: Title of the figure.

    Returns:
        The figure, from now until shortly after the last of these times.
    """
    times = np.array([now_s, *quantiles_s])
    share = np.array([0.0, *levels])
    last = max(float(times[-1]), span_s[1], start_s)
    scale = TimeScale.of(last - now_s, start_epoch_s=0.0)
    figure = new_figure(3.4, title=title)
    ax = figure.subplots()
    ax.axvspan(*scale.at(span_s), color=FADED, alpha=0.35, lw=0, label="probably between these")
    ax.plot(scale.at(times), share, color=ACCENT, label="will have started")
    ax.fill_between(scale.at(times), share, color=ACCENT, alpha=0.12, lw=0)
    ax.axvline(float(scale.at(start_s)), color=INK, lw=1.2, ls="--", label="forecast")
    ax.set_ylim(0.0, 1.0)
    room = _MARGIN * (last - now_s)
    scale.apply(ax, now_s, last + room)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_ylabel("probability")
    ax.legend(loc="lower right")
    return figure
