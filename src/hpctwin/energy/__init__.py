"""What nodes draw: power states, accounts, caps, price and carbon."""

from hpctwin.energy.accounting import Energy
from hpctwin.energy.by_price import price_control
from hpctwin.energy.control import Orders, PowerView
from hpctwin.energy.series import Series, cheapest_begins
from hpctwin.energy.spars_config import SparsRun, read_spars_config

__all__ = [
    "Energy",
    "Orders",
    "PowerView",
    "Series",
    "SparsRun",
    "cheapest_begins",
    "price_control",
    "read_spars_config",
]
