"""External schedulers: they receive events and return the jobs to start."""

from hpctwin.simulation.schedulers.batsim import BatsimScheduler
from hpctwin.simulation.schedulers.by_policy import (
    BatsimDecisions,
    PolicyScheduler,
    decide_for_batsim,
)
from hpctwin.simulation.schedulers.driving import (
    Happened,
    JsonLinesScheduler,
    Orders,
    OutsideScheduler,
    drive,
)

__all__ = [
    "BatsimDecisions",
    "BatsimScheduler",
    "Happened",
    "JsonLinesScheduler",
    "Orders",
    "OutsideScheduler",
    "PolicyScheduler",
    "decide_for_batsim",
    "drive",
]
