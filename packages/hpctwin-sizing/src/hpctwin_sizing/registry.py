"""Sizings by name, and the option ``--sizing`` of ``hpctwin simulate``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from hpctwin.energy import Series
from hpctwin.energy.prices.forecast import parse_forecast
from hpctwin.errors import ConfigError
from hpctwin.model import Workload
from hpctwin.policies.registry import Entry, Parameter, Registry
from hpctwin_sizing.carbon_scaler import CarbonScaler
from hpctwin_sizing.sizing import Sizing
from hpctwin_sizing.slots import Slots
from hpctwin_sizing.view import SizeRule

__all__ = ["SIZINGS", "parse_sizing", "sizing_option"]

SIZINGS: Registry[SizeRule] = Registry("sizing")
"""Rules by name; each is made from the `Slots` of a series and settings."""


def _carbon_scaler(slots: Slots, name: str, *, slack: float) -> SizeRule:
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
                help="latest end of a job after an immediate run on its nodes",
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
    return Sizing(partial(entry.make, slots, entry.text(values, always=(entry.first,)))(**values))


def sizing_option(
    text: str, workload: Workload, series: Mapping[str, Series], forecast: str
) -> Sizing:
    """Return the sizing of ``--sizing``, by price, else carbon; an entry point calls it.

    Args:
        text: Value of the option.
        workload: The jobs.
        series: Price and carbon by name, from the workload's time zero.
        forecast: Value of ``--forecast``.

    Raises:
        ConfigError, UnknownNameError: There is no series, no job is malleable, or the text is
            invalid.
    """
    if not series:
        raise ConfigError("--sizing needs --price or --carbon")
    if workload.malleable is None:
        raise ConfigError(
            f"--sizing: no job of {workload.name} is malleable; give columns min_nodes, max_nodes, "
            "suspendable (docs/how-to/malleable-jobs.md)"
        )
    return parse_sizing(text, next(iter(series.values())), forecast)
