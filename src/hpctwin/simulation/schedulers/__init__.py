"""External schedulers: they receive events and return the jobs to start."""

from hpctwin.simulation.schedulers.batsim import BatsimScheduler
from hpctwin.simulation.schedulers.batsim_decisions import BatsimDecisions, decide_for_batsim
from hpctwin.simulation.schedulers.by_policy import PolicyScheduler
from hpctwin.simulation.schedulers.driving import Happened, Orders, OutsideScheduler, drive
from hpctwin.simulation.schedulers.json_lines import JsonLinesScheduler

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
