"""What nodes draw: power states, accounts, caps, price and carbon."""

from hpctwin.energy.accounting import Energy
from hpctwin.energy.by_price import price_control
from hpctwin.energy.carbon_scaler import CarbonScaler
from hpctwin.energy.control import Orders, PowerView
from hpctwin.energy.series import Series, cheapest_begins
from hpctwin.energy.sizing import SizedJob, Sizes, SizeView
from hpctwin.energy.sizings import parse_sizing
from hpctwin.energy.slots import Slots

__all__ = [
    "CarbonScaler",
    "Energy",
    "Orders",
    "PowerView",
    "Series",
    "SizeView",
    "SizedJob",
    "Sizes",
    "Slots",
    "cheapest_begins",
    "parse_sizing",
    "price_control",
]
