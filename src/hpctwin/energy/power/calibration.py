"""Power fitted to past power and use: rolling lines, their residual, an ensemble.

All series have one step. A forecast for sample ``i`` made ``ahead`` samples earlier depends on
power measured up to sample ``i - ahead``. The caller decides what is known of use up to sample
``i``. Missing power is NaN; nothing is fitted to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = [
    "Fit",
    "calibrate",
    "ensemble",
    "errors_pct",
    "fit_line",
    "last_measured",
    "mape_pct",
    "rolling_mape_pct",
]

FloatArray = npt.NDArray[np.float64]

_PRIOR = 1e-5
"""Pull of weights towards 0, relative to the mean square of the columns of use.

It matters only if columns carry the same information, or a column is almost always 0.
"""


@dataclass(frozen=True, eq=False)
class Fit:
    """Line through past samples, fitted repeatedly.

    Args:
        use: A column of ones, and the columns of use [samples, columns].
        measured_w: Measured power, in W [samples].
        weights: Weights known when each sample has been measured [samples, columns].
    """

    use: FloatArray
    measured_w: FloatArray
    weights: FloatArray

    def forecast(self, ahead: int, use: FloatArray | None = None) -> FloatArray:
        """Return the line's forecast of each sample [samples]; NaN for the first ones.

        Args:
            ahead: Number of samples by which the forecast is earlier.
            use: Use assumed instead of the actual one [samples, columns of use].
        """
        later = self.use if use is None else _with_ones(use)
        found = np.full(len(self.use), np.nan)
        found[ahead:] = np.einsum("nk,nk->n", later[ahead:], self.weights[: len(later) - ahead])
        return found

    def residual(self, ahead: int, over: int) -> FloatArray:
        """Return how far recent samples were above the line, known earlier [samples].

        Args:
            ahead: Number of samples by which it is known earlier.
            over: Number of samples in the mean.
        """
        size = len(self.use)
        total, count = np.zeros(size), np.zeros(size)
        for back in range(min(over, size)):
            past = np.einsum("nk,nk->n", self.use[: size - back], self.weights[back:])
            above = self.measured_w[: size - back] - past
            total[back:] += np.nan_to_num(above)
            count[back:] += ~np.isnan(above)
        found = np.full(size, np.nan)
        found[ahead:] = total[: size - ahead] / np.maximum(count[: size - ahead], 1)
        return found


def fit_line(use: FloatArray, measured_w: FloatArray, *, window: int, every: int) -> Fit:
    """Fit a line by least squares to a moving window of samples, at regular intervals.

    Args:
        use: Columns of use in one unit, such as numbers of nodes [samples, columns].
        measured_w: Measured power, in W [samples].
        window: Number of samples in the window, rounded to whole intervals.
        every: Number of samples between fits; a fit uses the samples before it.
    """
    columns = _with_ones(use)
    size, width = columns.shape
    fits = -(-size // every)
    padded = np.zeros((fits * every, width + 1))
    rows = np.column_stack([columns, measured_w])
    padded[:size] = np.where(np.isnan(measured_w)[:, None], 0.0, rows)
    # Normal equations per block of ``every`` samples; differences of running sums give any window.
    blocks = padded.reshape(fits, every, width + 1)
    sums = np.cumsum(np.matmul(blocks.transpose(0, 2, 1), blocks), axis=0)
    sums = np.concatenate([np.zeros((1, width + 1, width + 1)), sums])
    at = np.arange(fits)
    inner = sums[at] - sums[np.maximum(at - window // every, 0)]
    square, product = inner[:, :width, :width], inner[:, :width, width:]
    size_of_columns = np.trace(square[:, 1:, 1:], axis1=1, axis2=2) / max(width - 1, 1)
    prior = np.zeros((fits, width, width))
    prior[:, range(1, width), range(1, width)] = (_PRIOR * size_of_columns + 1e-9)[:, None]
    prior[:, 0, 0] = 1e-9
    weights = np.linalg.solve(square + prior, product)[:, :, 0]
    return Fit(columns, measured_w, weights[np.arange(size) // every])


def last_measured(measured_w: FloatArray, ahead: int) -> FloatArray:
    """Return the last measured power, known a number of samples earlier [samples]."""
    at = np.where(np.isnan(measured_w), 0, np.arange(len(measured_w)))
    found = np.full(len(measured_w), np.nan)
    found[ahead:] = measured_w[np.maximum.accumulate(at)[: len(measured_w) - ahead]]
    return found


def ensemble(
    forecasts: Sequence[FloatArray], measured_w: FloatArray, *, ahead: int, window: int
) -> FloatArray:
    """Return the mean of forecasts, weighted by their past errors [samples].

    A weight is the mean absolute percentage error over the window to the power of -4. A model with
    half the error of another thus counts sixteen times as much.

    Args:
        forecasts: Forecasts of each model, NaN where it has none [models][samples].
        measured_w: Measured power, in W [samples].
        ahead: Number of samples by which forecasts are earlier.
        window: Number of samples whose errors count.
    """
    every = np.stack(forecasts)
    error = np.abs(every - measured_w) / measured_w
    known = np.cumsum(np.nan_to_num(error), axis=1)
    count = np.cumsum(~np.isnan(error), axis=1)
    now = np.arange(len(measured_w)) - ahead
    low = now - window

    def past(sums: npt.NDArray[np.generic]) -> FloatArray:
        until = np.where(now >= 0, sums[:, np.maximum(now, 0)], 0)
        found: FloatArray = until - np.where(low >= 0, sums[:, np.maximum(low, 0)], 0)
        return found

    mean = past(known) / np.maximum(past(count), 1)
    weight = np.where(np.isnan(every), 0.0, (mean + 1e-4) ** -4)
    with np.errstate(invalid="ignore"):
        found: FloatArray = (weight * np.nan_to_num(every)).sum(axis=0) / weight.sum(axis=0)
    return found


def calibrate(
    use: FloatArray, measured_w: FloatArray, *, ahead: int, window: int, every: int, residual: int
) -> dict[str, FloatArray]:
    """Return forecasts by model, fitted to what was measured before [samples].

    - ``as it was`` is the power at the time of the forecast.
    - ``line`` is the line fitted in the window.
    - ``line, residual`` adds how far the last samples were above the line.
    - ``ensemble`` weights these three by their errors.

    Args:
        use: Columns of use in one unit, known for each sample when it is forecast [samples,
            columns].
        measured_w: Measured power in W, above 0; NaN if missing [samples].
        ahead: Number of samples by which forecasts are earlier.
        window: Number of samples that the line is fitted to.
        every: Number of samples between fits.
        residual: Number of samples whose residual counts.
    """
    fit = fit_line(use, measured_w, window=window, every=every)
    line = fit.forecast(ahead)
    found = {
        "as it was": last_measured(measured_w, ahead),
        "line": line,
        "line, residual": line + fit.residual(ahead, residual),
    }
    models = list(found.values())
    found["ensemble"] = ensemble(models, measured_w, ahead=ahead, window=max(6 * ahead, every))
    return found


def errors_pct(forecast: FloatArray, measured_w: FloatArray) -> FloatArray:
    """Return the absolute percentage error of each sample; NaN without a forecast."""
    found: FloatArray = 100 * np.abs(forecast - measured_w) / measured_w
    return found


def mape_pct(forecast: FloatArray, measured_w: FloatArray, first: int) -> float:
    """Return the mean absolute percentage error from a first sample on."""
    return float(np.nanmean(errors_pct(forecast, measured_w)[first:]))


def rolling_mape_pct(
    forecasts: Mapping[str, FloatArray], measured_w: FloatArray, first: int, window: int
) -> dict[str, list[float | None]]:
    """Return the mean error of consecutive windows of samples, by model.

    Windows start at ``first``. The error is None where no power was measured.
    """
    found = {}
    for name, forecast in forecasts.items():
        error = errors_pct(forecast, measured_w)[first:]
        cuts = range(window, len(error), window)
        parts = [part[~np.isnan(part)] for part in np.split(error, cuts) if len(part)]
        found[name] = [float(part.mean()) if len(part) else None for part in parts]
    return found


def _with_ones(use: FloatArray) -> FloatArray:
    return np.column_stack([np.ones(len(use)), use])
