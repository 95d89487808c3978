"""Starts of deferrable jobs by forecasts of a price or a carbon intensity.

A forecast is made in each step of the series, for that step and later ones; the value of the step
itself is known. Waiting jobs are decided again in each step.

Time slots of a price or carbon intensity, with what is known of later slots.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from hpctwin.energy.prices.series import Series
from hpctwin.errors import ConfigError

__all__ = [
    "Forecast",
    "equal_steps",
    "erring",
    "forecast_start_times",
    "from_past",
    "parse_forecast",
    "saving",
]

FloatArray = npt.NDArray[np.float64]

IntArray = npt.NDArray[np.int64]

Forecast = Callable[[int, int], FloatArray]
"""Values of steps, given the number of the first step and the count."""

_DAY_S = 86_400.0
_DAYS, _FADING = 14, 0.85
_PERSISTENCE = 0.95
"""Fraction of a deviation, and of a forecast error, that remains after an hour."""
_LAGS_H = (0, 1, 2, 6, 23, 24)
_FIRST_DAYS = 21
_PULL = 0.001
"""Pull of regression weights towards 0, relative to the mean square of deviations."""


def from_past(series: Series) -> Forecast:
    """Return a forecast from the series' past: usual day plus present deviation.

    The usual day is the mean of the last fourteen days, each weighted 0.85 times as much as the
    next. Deviations up to two days ahead are a regression on those of now and 1, 2, 6, 23 and 24
    hours ago. The regression is fitted each week by least squares to the last year. In the first
    three weeks, the present deviation decays to 0.95 of itself per hour. On the first day, it is
    the deviation from the mean so far.

    Raises:
        ConfigError: The series has no equal steps, or a day is not a whole number of them.
    """
    values, step_s = _steps(series)
    day = round(_DAY_S / step_s)
    if abs(day * step_s - _DAY_S) > 1e-6 * _DAY_S:
        raise ConfigError(
            f"{series.name}: a day must be a whole number of its steps of {step_s:g} s"
        )
    past = _Past(values, day)
    kept = _PERSISTENCE ** (step_s / 3600)

    def forecast(now: int, count: int) -> FloatArray:
        ahead = np.arange(count)
        if now + 1 < day:
            so_far = values[np.arange(now + 1) % len(values)]
            return np.asarray(so_far.mean() + (so_far[-1] - so_far.mean()) * kept**ahead)
        past.reach(now)
        found = past.usual[past.known(now, ahead)]
        if now < _FIRST_DAYS * day:
            return np.asarray(found + past.deviation[now] * kept**ahead)
        told = past.deviations(now)[: max(count - 1, 0)]
        found[1 : 1 + len(told)] += told
        found[:1] = past.values[now]
        return found

    return forecast


class _Past:
    """A series and its usual days, as far as requested; it repeats after its end."""

    def __init__(self, values: FloatArray, day: int) -> None:
        self._period, self._day = values, day
        self._lags = np.unique(np.round(np.array(_LAGS_H) * day / 24).astype(int))
        self._weights: dict[int, FloatArray] = {}
        self._take(len(values))

    def reach(self, now: int) -> None:
        """Extend the values to a step."""
        if now >= len(self.values):
            self._take(2 * now)

    def _take(self, size: int) -> None:
        day = self._day
        self.values = self._period[np.arange(size) % len(self._period)]
        usual, weight = np.zeros(size + day), np.zeros(size + day)
        for back in range(1, min(_DAYS, size // day) + 1):
            usual[day * back :] += _FADING ** (back - 1) * self.values[: size + day - day * back]
            weight[day * back :] += _FADING ** (back - 1)
        self.usual = usual / np.maximum(weight, 1e-9)
        self.deviation = np.where(np.arange(size) < day, 0.0, self.values - self.usual[:size])

    def known(self, now: int | IntArray, ahead: int | IntArray) -> IntArray:
        """Return the step whose usual value is known now and stands for a later step."""
        found: IntArray = now + ahead - np.maximum(ahead - 1, 0) // self._day * self._day
        return found

    def deviations(self, now: int) -> FloatArray:
        """Return the expected deviations of the next two days from the usual day [steps]."""
        week = now // (7 * self._day)
        if week not in self._weights:
            self._weights[week] = self._fitted(7 * self._day * week)
        found: FloatArray = self.deviation[now - self._lags] @ self._weights[week]
        return found

    def _fitted(self, now: int) -> FloatArray:
        """Return regression weights from what is known before a step [lags, steps ahead]."""
        steps = 2 * self._day
        first = max(self._day + int(self._lags.max()), now - 365 * self._day)
        at = np.arange(first, now - steps)
        columns = np.stack([self.deviation[at - lag] for lag in self._lags])
        square = columns @ columns.T
        square += _PULL * np.trace(square) / len(square) * np.eye(len(square))
        came = [
            columns @ (self.values[at + ahead] - self.usual[self.known(at, ahead)])
            for ahead in range(1, steps + 1)
        ]
        found: FloatArray = np.linalg.lstsq(square, np.stack(came, axis=1), rcond=None)[0]
        return found


def erring(series: Series, error: float, seed: int = 0) -> Forecast:
    """Return a forecast with random errors that grow with the time ahead.

    Errors are normal and relative. From step to step they persist, except for 5 % per hour.

    Args:
        series: The true values.
        error: Mean absolute error far ahead, as a fraction such as 0.05.
        seed: Seed of the errors.

    Raises:
        ConfigError: The series has no equal steps, or the error is below 0.
    """
    if not error >= 0:
        raise ConfigError(f"error of a forecast is {error!r}; it must be 0 or more")
    values, step_s = _steps(series)
    kept = _PERSISTENCE ** (step_s / 3600)
    spread = error * np.sqrt(np.pi / 2) * np.sqrt(1 - kept**2)

    def forecast(now: int, count: int) -> FloatArray:
        fresh = np.random.default_rng([seed, now]).normal(0, spread, count)
        fresh[:1] = 0.0
        # e[k] = kept * e[k - 1] + fresh[k], in blocks short enough that kept**-k does not overflow.
        errors = np.zeros(count)
        last = 0.0
        for low in range(0, count, 256):
            part = fresh[low : low + 256]
            powers = kept ** np.arange(1, len(part) + 1)
            errors[low : low + 256] = powers * (last + np.cumsum(part / powers))
            last = float(errors[min(low + 256, count) - 1])
        truth = values[np.arange(now, now + count) % len(values)]
        return np.asarray(truth * (1 + errors))

    return forecast


def parse_forecast(text: str, series: Series) -> Forecast | None:
    """Return the forecast that a text names: ``past``, a mean error or ``oracle``.

    ``oracle`` stands for no forecast (None).

    Raises:
        ConfigError: The text names no forecast.
    """
    if text == "oracle":
        return None
    if text == "past":
        return from_past(series)
    try:
        return erring(series, float(text.removesuffix("%")) / 100)
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"forecast {text!r} is invalid; give past, oracle, or a mean error such as 5%"
        ) from error


def forecast_start_times(
    submit_s: FloatArray,
    length_s: FloatArray,
    may_wait_s: FloatArray,
    series: Series,
    forecast: Forecast,
) -> FloatArray:
    """Return the starts of jobs that wait for the cheapest time by the forecast.

    The start is decided when the job is submitted, and again in each step until it begins.
    Candidates are the times at which the start or the end of the job meets a change of the series,
    and the ends of the rest of its window.

    Args:
        submit_s: Submit times, in seconds [jobs].
        length_s: Expected runtimes, in seconds [jobs].
        may_wait_s: Longest delay of each job after its submission, in seconds [jobs].
        series: Price or carbon intensity; only its steps are used.
        forecast: Forecast of the series.

    Returns:
        Start times, in seconds [jobs].

    Raises:
        ConfigError: The series has no equal steps.
    """
    _, step_s, first_s = equal_steps(series)
    begins = submit_s.copy()
    able = np.flatnonzero(may_wait_s > 0)
    # From here on, times are in steps.
    submit, length, wait = (one[able] for one in (submit_s - first_s, length_s, may_wait_s))
    submit, length, wait = submit / step_s, length / step_s, wait / step_s
    order = np.argsort(submit, kind="stable")
    arrives = np.floor(submit[order]).astype(np.int64)
    waiting = np.zeros(0, np.int64)
    came, now = 0, int(arrives[0]) if len(arrives) else 0
    while came < len(order) or len(waiting):
        if not len(waiting):
            now = int(arrives[came])
        until = int(np.searchsorted(arrives, now, side="right"))
        waiting = np.concatenate([waiting, order[came:until]])
        came = until
        chosen = _chosen(
            np.maximum(submit[waiting] - now, 0), submit[waiting] + wait[waiting] - now,
            length[waiting], forecast, now,
        )  # fmt: skip
        goes = chosen < 1
        done = waiting[goes]
        begins[able[done]] = first_s + (now + chosen[goes]) * step_s
        waiting = waiting[~goes]
        now += 1
    return np.clip(begins, submit_s, submit_s + may_wait_s)


def _chosen(
    first: FloatArray, last: FloatArray, length: FloatArray, forecast: Forecast, now: int
) -> FloatArray:
    """Return the best start of each job by the forecast, in steps from now [jobs]."""
    most = int(np.ceil(last.max(initial=0)))
    ahead = np.arange(1, most + 1)
    # The cost of a job is the difference of the running sum of values at its end and its start.
    values = forecast(now, int(np.ceil((last + length).max(initial=0))) + 1)
    total = np.concatenate([[0.0], np.cumsum(values)])
    edges = np.arange(len(total))
    size = (len(first), len(ahead))
    choices = np.concatenate(
        [
            first[:, None],
            np.broadcast_to(ahead, size),
            ahead - (length % 1)[:, None],
            last[:, None],
        ],
        axis=1,
    )
    cost = np.interp(choices + length[:, None], edges, total) - np.interp(choices, edges, total)
    outside = (choices < first[:, None]) | (choices > last[:, None])
    cost[outside] = np.inf
    best = cost.min(axis=1)
    # The tolerance keeps rounding from delaying a job for no gain.
    near = cost <= (best + 1e-9 * np.abs(best))[:, None]
    found: FloatArray = np.where(near, choices, np.inf).min(axis=1)
    return found


def saving(
    begin_s: FloatArray,
    submit_s: FloatArray,
    length_s: FloatArray,
    amount: FloatArray,
    series: Series,
) -> float:
    """Return the fraction by which these starts cost less than immediate ones.

    Args:
        begin_s: Start times, in seconds [jobs].
        submit_s: Submit times, the immediate starts, in seconds [jobs].
        length_s: Runtimes, in seconds [jobs].
        amount: Power of each job while it runs, or a proxy such as nodes [jobs].
        series: Price or carbon intensity.
    """
    then, at_once = (
        float(amount @ (series.integral(at + length_s) - series.integral(at)))
        for at in (begin_s, submit_s)
    )
    return (at_once - then) / abs(at_once) if at_once else 0.0


def equal_steps(series: Series) -> tuple[FloatArray, float, float]:
    """Return values and length of equal steps, and the first start, in seconds.

    Raises:
        ConfigError: The series has no equal steps.
    """
    values, step_s = _steps(series)
    return values, step_s, float(series.times_s[1]) - step_s if len(series.times_s) > 1 else 0.0


def _steps(series: Series) -> tuple[FloatArray, float]:
    """Return the values of equal steps, and their length in seconds."""
    lengths = np.diff(np.append(series.times_s, series.period_s))
    step = float(np.median(lengths))
    inner = lengths[1:-1] if len(lengths) > 2 else lengths
    if not (np.abs(inner - step) <= 1e-6 * step).all() or lengths[0] > step * (1 + 1e-6):
        raise ConfigError(
            f"{series.name}: steps are not equal, as a forecast requires; use --forecast oracle"
        )
    # If time zero cuts a step, its beginning is at the end of the period.
    return series.values[: max(round(series.period_s / step), 1)], step
