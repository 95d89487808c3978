"""Every table and figure with results in the five papers, those of others, and how each is made again.

Diagrams and descriptions (SPARS figure 2 and tables 1 to 4, CQSim+ figures 1 to 4, SchedTwin figure 2, PAS
figure 1, S-RAPS figures 1 to 3 and 9 and table 1) have no results.
"""

from __future__ import annotations

from functools import partial

from hpctwin.errors import UnknownNameError
from hpctwin.experiments.entries import Entry
from hpctwin.experiments.papers import (
    cqsim_plus,
    malleable,
    pas,
    rlscheduler,
    s_raps,
    schedtwin,
    spars,
)

__all__ = ["ENTRIES", "find_entry"]

ENTRIES: dict[str, Entry] = {
    one.name: one
    for paper, of in {
        "SPARS": spars.entries,
        "PAS": pas.entries,
        "SchedTwin": schedtwin.entries,
        "CQSim+": cqsim_plus.entries,
        "S-RAPS": s_raps.entries,
        "RLScheduler": rlscheduler.entries,
        "CarbonScaler": malleable.carbonscaler,
        "CarbonFlex": malleable.carbonflex,
    }.items()
    for one in of(partial(Entry, paper=paper))
}
"""All of them, by name."""


def find_entry(name: str) -> Entry:
    """The entry of a name.

    Raises:
        UnknownNameError: there is none.
    """
    if name not in ENTRIES:
        raise UnknownNameError("published table or figure", name, ENTRIES)
    return ENTRIES[name]
