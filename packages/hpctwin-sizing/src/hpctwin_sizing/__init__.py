"""Sizes of malleable jobs, decided while they run: by carbon, by price, or by your function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpctwin.lazy import lazy_names

if TYPE_CHECKING:
    from hpctwin_sizing.carbon_flex import CarbonFlex, CarbonOracle, learnt, oracle_plan
    from hpctwin_sizing.carbon_scaler import CarbonScaler
    from hpctwin_sizing.registry import SIZINGS, parse_sizing
    from hpctwin_sizing.sizing import Sizing
    from hpctwin_sizing.slots import Slots
    from hpctwin_sizing.view import SizedJob, SizeRule, Sizes, SizeView

__all__ = [
    "SIZINGS",
    "CarbonFlex",
    "CarbonOracle",
    "CarbonScaler",
    "SizeRule",
    "SizeView",
    "SizedJob",
    "Sizes",
    "Sizing",
    "Slots",
    "learnt",
    "oracle_plan",
    "parse_sizing",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "carbon_flex": ("CarbonFlex", "CarbonOracle", "learnt", "oracle_plan"),
        "carbon_scaler": ("CarbonScaler",),
        "registry": ("SIZINGS", "parse_sizing"),
        "sizing": ("Sizing",),
        "slots": ("Slots",),
        "view": ("SizedJob", "SizeRule", "Sizes", "SizeView"),
    },
)
