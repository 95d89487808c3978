"""Catalog of the published tables and figures with results, and how to reproduce each.

Diagrams and descriptions have no results: SPARS figure 2 and tables 1 to 4, CQSim+ figures 1 to 4,
SchedTwin figure 2, PAS figure 1, S-RAPS figures 1 to 3 and 9 and table 1.
"""

from __future__ import annotations

from functools import partial

from hpctwin.errors import UnknownNameError
from hpctwin_papers.carbonflex import entries as carbonflex
from hpctwin_papers.carbonscaler import entries as carbonscaler
from hpctwin_papers.cqsim_plus import entries as cqsim_plus
from hpctwin_papers.entry import Entry
from hpctwin_papers.pas import entries as pas
from hpctwin_papers.rlscheduler import entries as rlscheduler
from hpctwin_papers.s_raps import entries as s_raps
from hpctwin_papers.schedtwin import entries as schedtwin
from hpctwin_papers.spars import entries as spars

ENTRIES: dict[str, Entry] = {
    one.name: one
    for paper, module in {
        "SPARS": spars,
        "PAS": pas,
        "SchedTwin": schedtwin,
        "CQSim+": cqsim_plus,
        "S-RAPS": s_raps,
        "RLScheduler": rlscheduler,
        "CarbonScaler": carbonscaler,
        "CarbonFlex": carbonflex,
    }.items()
    for one in module.entries(partial(Entry, paper=paper))
}
"""All entries by name."""


def find_entry(name: str) -> Entry:
    """Return the entry of a name."""
    if name not in ENTRIES:
        raise UnknownNameError("published table or figure", name, ENTRIES)
    return ENTRIES[name]
