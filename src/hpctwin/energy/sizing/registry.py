"""Sizings by name: functions that decide on how many nodes jobs run."""

from __future__ import annotations

from functools import partial
from typing import Any

from hpctwin.energy.prices.forecast import Slots, parse_forecast
from hpctwin.energy.prices.series import Series
from hpctwin.energy.sizing.carbon_scaler import CarbonScaler
from hpctwin.energy.sizing.sizing import Sizing
from hpctwin.policies.registry import Entry, Parameter, Registry

__all__ = ["SIZINGS", "parse_sizing"]

SIZINGS: Registry[Sizing] = Registry("sizing")
"""Sizings by name; each is made from the `Slots` of a series and settings."""


def _carbon_scaler(slots: Slots, name: str, *, slack: float) -> Sizing:
    return CarbonScaler(slots, slack, name)


SIZINGS.register(
    Entry(
        "carbonscaler",
        "each job is planned to its deadline: more nodes while energy is clean, none while it is not",
        _carbon_scaler,
        (
            Parameter(
                "slack",
                "duration",
                86_400.0,
                help="so much later than at once on its nodes a job may end",
            ),
        ),
        first="slack",
    )
)


def parse_sizing(text: str, series: Series, forecast: str = "past") -> Sizing:
    """Make a sizing from text such as ``carbonscaler:24h``.

    Args:
        text: Name of one of `SIZINGS`, with its settings.
        series: Price or carbon intensity, with the simulation's time zero.
        forecast: Forecast of it, as for `hpctwin.energy.prices.forecast.parse_forecast`.

    Raises:
        UnknownNameError, ConfigError: There is no such sizing, or a setting is invalid.
    """
    name, _, details = text.strip().partition(":")
    entry = SIZINGS.find(name)
    given = entry.read(details)
    values: dict[str, Any] = {one.name: one.default for one in entry.parameters} | given
    slots = Slots(series, parse_forecast(forecast, series))
    return partial(entry.make, slots, entry.text(values, always=(entry.first,)))(**values)
