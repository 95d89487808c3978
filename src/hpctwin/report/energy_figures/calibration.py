"""Figure of a calibration: measured power, its forecast, and the errors of all models."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from hpctwin.energy.power.calibration import errors_pct
from hpctwin.report.figures.axes import TimeScale, new_figure
from hpctwin.report.figures.style import color, styled

__all__ = ["plot_calibration"]

FloatArray = npt.NDArray[np.float64]


@styled
def plot_calibration(
    time_s: FloatArray,
    measured_w: FloatArray,
    forecasts: Mapping[str, FloatArray],
    *,
    rolling: int,
    first: int,
) -> Figure:
    """Draw measured power and the last model's forecast, and the error of each model over a rolling window.

    Args:
        time_s: of the samples [samples].
        measured_w: measured power [samples].
        forecasts: by model [samples].
        rolling: samples of the window.
        first: the sample from which on forecasts count.
    """
    figure = new_figure(4.4)
    above, below = figure.subplots(2, sharex=True)
    scale = TimeScale.of(float(time_s[-1] - time_s[0]), None)
    at = scale.at(time_s - time_s[0])
    name = list(forecasts)[-1]
    above.plot(at, measured_w / 1000, label="measured", color="#555555", linewidth=0.9)
    above.plot(
        at[first:], forecasts[name][first:] / 1000, label=name, color=color(0), linewidth=0.7
    )
    above.set_ylabel("kW")
    above.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    for number, (model, forecast) in enumerate(forecasts.items()):
        error = errors_pct(forecast, measured_w)
        error[:first] = np.nan
        total = np.concatenate([[0.0], np.cumsum(np.nan_to_num(error))])
        count = np.concatenate([[0], np.cumsum(~np.isnan(error))])
        end = np.arange(first, len(error)) + 1
        begin = np.maximum(end - rolling, first)
        below.plot(
            at[first:],
            (total[end] - total[begin]) / np.maximum(count[end] - count[begin], 1),
            label=model,
            color=color(number),
            linewidth=0.9,
        )
    below.set_ylabel("mean error, %")
    below.set_ylim(bottom=0)
    below.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4)
    scale.apply(below, 0.0, float(time_s[-1] - time_s[0]))
    return figure
