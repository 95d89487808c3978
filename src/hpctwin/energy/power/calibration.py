"""Power from use, fitted to measured power on the past only: rolling lines, their residual, an ensemble.

All series have one step. A forecast for sample ``i`` that is made ``ahead`` samples before is of what was
measured up to sample ``i - ahead``; what is known of use up to sample ``i`` is the caller's to say. Power
that was not measured is NaN: nothing is fitted to it.
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
"""Pull of weights towards 0, relative to the mean square of the columns of use: decides only where columns
say the same, or one has hardly been other than 0."""


@dataclass(frozen=True, eq=False)
class Fit:
    """A line through the past, fitted again and again.

    Args:
        use: a column of ones, and those of use [samples, columns].
        measured_w: measured power [samples].
        weights: those known when each sample has been measured [samples, columns].
    """

    use: FloatArray
    measured_w: FloatArray
    weights: FloatArray

    def forecast(self, ahead: int, use: FloatArray | None = None) -> FloatArray:
        """What the line says of each sample, known so many samples before [samples]; NaN for the first.

        Args:
            ahead: samples.
            use: what is taken for use then, in place of what it was [samples, columns of use].
        """
        later = self.use if use is None else _with_ones(use)
        found = np.full(len(self.use), np.nan)
        found[ahead:] = np.einsum("nk,nk->n", later[ahead:], self.weights[: len(later) - ahead])
        return found

    def residual(self, ahead: int, over: int) -> FloatArray:
        """By how much the last samples were above the line, known so many samples before [samples].

        Args:
            ahead: samples.
            over: of how many samples the mean is taken.
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
    """Fit a line to the samples of a window that ends now, by least squares, again after some samples.

    Args:
        use: columns of use in one unit, such as numbers of nodes [samples, columns].
        measured_w: measured power [samples].
        window: samples that it is fitted to, to a whole number of ``every``.
        every: samples from one fit to the next; a fit sees what was measured before it.
    """
    columns = _with_ones(use)
    size, width = columns.shape
    fits = -(-size // every)
    padded = np.zeros((fits * every, width + 1))
    rows = np.column_stack([columns, measured_w])
    padded[:size] = np.where(np.isnan(measured_w)[:, None], 0.0, rows)
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
    """The power as it was measured last, so many samples before [samples]."""
    at = np.where(np.isnan(measured_w), 0, np.arange(len(measured_w)))
    found = np.full(len(measured_w), np.nan)
    found[ahead:] = measured_w[np.maximum.accumulate(at)[: len(measured_w) - ahead]]
    return found


def ensemble(
    forecasts: Sequence[FloatArray], measured_w: FloatArray, *, ahead: int, window: int
) -> FloatArray:
    """The mean of forecasts, weighted by how small their errors were that are known by then [samples].

    A weight is the mean absolute percentage error over the window to the power of -4, so that of two models
    the one with half the error counts sixteen times.

    Args:
        forecasts: of each model, NaN where it has none [models][samples].
        measured_w: measured power [samples].
        ahead: how many samples before they are made.
        window: errors of so many samples count.
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
    """Forecasts of each sample by model, each calibrated on what was measured before it was made [samples].

    ``as it was`` is the power when the forecast is made; ``line`` is through the use in the window;
    ``line, residual`` adds by how much the last samples were above it; ``ensemble`` weights the three by
    their errors.

    Args:
        use: columns of use in one unit, known of each sample when it is forecast [samples, columns].
        measured_w: measured power, above 0; NaN where there was none [samples].
        ahead: how many samples before a forecast is made.
        window: samples that the line is fitted to.
        every: samples from one fit to the next.
        residual: samples whose residual counts.
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
    """Absolute percentage error of each sample, NaN where there is no forecast [samples]."""
    found: FloatArray = 100 * np.abs(forecast - measured_w) / measured_w
    return found


def mape_pct(forecast: FloatArray, measured_w: FloatArray, first: int) -> float:
    """Mean absolute percentage error of all samples from the first on that have a forecast."""
    return float(np.nanmean(errors_pct(forecast, measured_w)[first:]))


def rolling_mape_pct(
    forecasts: Mapping[str, FloatArray], measured_w: FloatArray, first: int, window: int
) -> dict[str, list[float | None]]:
    """The mean error of each window of samples one after the other, from the first on, by model.

    None where nothing was measured.
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
