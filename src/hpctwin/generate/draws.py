"""Shared parts of the generators: checks of options, and a few distributions."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, in_brief

__all__ = ["above_zero", "choice", "count_of", "gamma_cdf", "generator", "quantile_draw", "within"]

FloatArray = npt.NDArray[np.float64]

_CHOICES = 1 << 12


def generator(seed: int) -> np.random.Generator:
    """Return the random number generator of a seed.

    Raises:
        ConfigError: The seed is not a whole number, 0 or more.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ConfigError(f"seed is {in_brief(seed)}; it must be a whole number, 0 or more")
    return np.random.Generator(np.random.PCG64(seed))


def count_of(name: str, value: int) -> int:
    """Check and return a count.

    Raises:
        ConfigError: It is not a whole number of at least 1.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**40:
        raise ConfigError(f"{name} is {in_brief(value)}; it must be a whole number of at least 1")
    return value


def above_zero(name: str, value: float) -> float:
    """Check and return a quantity.

    Raises:
        ConfigError: It is not a finite number above 0.
    """
    if not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise ConfigError(f"{name} is {in_brief(value)}; it must be a number above 0")
    return float(value)


def within(name: str, value: float, low: float, high: float) -> float:
    """Check and return a number within bounds.

    Raises:
        ConfigError: It is outside the bounds.
    """
    if not isinstance(value, int | float) or not low <= value <= high:
        raise ConfigError(f"{name} is {in_brief(value)}; it must be between {low:g} and {high:g}")
    return float(value)


def choice(rng: np.random.Generator, weights: FloatArray, size: int) -> npt.NDArray[np.int64]:
    """Draw whole numbers from 0 on by their weights.

    The numbers are those of the generator's own ``choice``, in half the time.

    Args:
        rng: Random number generator.
        weights: Weight of each number, above 0.
        size: Number of draws.
    """
    reached = np.cumsum(weights / weights.sum())
    reached /= reached[-1]
    # Index at which to begin the search, by the first bits of the drawn number.
    begin = np.searchsorted(reached, np.arange(_CHOICES) / _CHOICES, side="right")
    most = int(np.diff(begin, append=len(weights) - 1).max())
    drawn = rng.random(size)
    found = begin[(drawn * _CHOICES).astype(np.int32)]
    for _ in range(most):
        found += drawn >= reached[found]
    return found


def gamma_cdf(x: FloatArray, shape: float, scale: float) -> FloatArray:
    """Return the gamma distribution's cumulative probability, to about 1e-6.

    It does not need SciPy.
    """
    grid = np.linspace(0, max(float(x.max()), 1.0), 20_001)
    log_density = (
        (shape - 1) * np.log(np.maximum(grid, 1e-300)) - grid / scale
        - math.lgamma(shape) - shape * math.log(scale)
    )  # fmt: skip
    density = np.exp(log_density)
    steps = (density[1:] + density[:-1]) / 2 * np.diff(grid)
    probability: FloatArray = np.interp(x, grid, np.concatenate([[0.0], np.cumsum(steps)]))
    return probability


def quantile_draw(
    rng: np.random.Generator, size: int, quantiles: tuple[float, ...], least: float = 0.0
) -> FloatArray:
    """Draw from a distribution given by evenly spaced quantiles.

    Between quantiles it is linear on a log scale.

    Args:
        rng: Random number generator.
        size: Number of draws.
        quantiles: Quantiles from the minimum to the maximum.
        least: Number added before the logarithm is taken, for distributions that reach 0.
    """
    at = np.linspace(0, 1, len(quantiles))
    logs = np.log(np.array(quantiles) + least)
    drawn: FloatArray = np.exp(np.interp(rng.random(size), at, logs)) - least
    return drawn
