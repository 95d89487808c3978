"""What nodes draw: power states, accounts, caps, price and carbon."""

from hpctwin.energy.accounting import Energy
from hpctwin.energy.by_price import price_control
from hpctwin.energy.control import Orders, PowerView
from hpctwin.energy.series import Series, cheapest_begins

__all__ = [
    "Energy",
    "Orders",
    "PowerView",
    "Series",
    "cheapest_begins",
    "price_control",
]
