"""Combinations without meaning or support; each is rejected by name, only here."""

from typing import TYPE_CHECKING

from hpctwin.lazy import lazy_names

if TYPE_CHECKING:
    from hpctwin.simulation.refusals.asked import check_forecasts
    from hpctwin.simulation.refusals.streamed import check_streamed
    from hpctwin.simulation.refusals.together import (
        check_contended,
        check_together,
        check_usage,
    )

__all__ = [
    "check_contended",
    "check_forecasts",
    "check_streamed",
    "check_together",
    "check_usage",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "asked": ("check_forecasts",),
        "streamed": ("check_streamed",),
        "together": ("check_contended", "check_together", "check_usage"),
    },
)
