"""Energy of clusters: power states, accounts, caps, price and carbon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpctwin.lazy import lazy_names

if TYPE_CHECKING:
    from hpctwin.energy.accounts.accounting import Energy
    from hpctwin.energy.power.control import Orders, PowerView, price_control
    from hpctwin.energy.prices.series import Series, cheapest_start_times

__all__ = [
    "Energy",
    "Orders",
    "PowerView",
    "Series",
    "cheapest_start_times",
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
            "cheapest_start_times",
        ),
    },
)
