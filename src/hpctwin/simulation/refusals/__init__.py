"""Combinations that have no meaning or are not supported; each is rejected by name."""

from hpctwin.simulation.refusals.asked import check_forecasts, check_present
from hpctwin.simulation.refusals.sized import check_sized
from hpctwin.simulation.refusals.streamed import check_streamed
from hpctwin.simulation.refusals.together import check_together, check_usage

__all__ = [
    "check_forecasts",
    "check_present",
    "check_sized",
    "check_streamed",
    "check_together",
    "check_usage",
]
