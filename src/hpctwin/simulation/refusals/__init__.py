"""Combinations without meaning or support; each is rejected by name, only here."""

from hpctwin.simulation.refusals.asked import check_forecasts
from hpctwin.simulation.refusals.sized import check_sized
from hpctwin.simulation.refusals.streamed import check_streamed
from hpctwin.simulation.refusals.together import check_together, check_usage

__all__ = [
    "check_forecasts",
    "check_sized",
    "check_streamed",
    "check_together",
    "check_usage",
]
