"""Energy of clusters: power states, accounts, caps, price and carbon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpctwin.lazy import lazy_names

if TYPE_CHECKING:
    from hpctwin.energy.accounts.accounting import Energy
    from hpctwin.energy.power.control import Orders, PowerView, price_control
    from hpctwin.energy.prices.forecast import Slots
    from hpctwin.energy.prices.series import Series, cheapest_begins
    from hpctwin.energy.sizing.carbon_scaler import CarbonScaler
    from hpctwin.energy.sizing.registry import parse_sizing
    from hpctwin.energy.sizing.sizing import SizedJob, Sizes, SizeView

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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "accounts.accounting": ("Energy",),
        "power.control": (
            "Orders",
            "PowerView",
            "price_control",
        ),
        "prices.series": (
            "Series",
            "cheapest_begins",
        ),
        "prices.forecast": ("Slots",),
        "sizing.carbon_scaler": ("CarbonScaler",),
        "sizing.registry": ("parse_sizing",),
        "sizing.sizing": (
            "SizeView",
            "SizedJob",
            "Sizes",
        ),
    },
)
