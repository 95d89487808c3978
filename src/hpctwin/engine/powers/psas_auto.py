"""Idle nodes go off; jobs get those of the free nodes that are on soonest."""

from __future__ import annotations

from hpctwin.engine.compile.entry_points import UNAWARE
from hpctwin.engine.powers import PowerPass
from hpctwin.engine.state.layout import SOONEST

TAKES_TIMEOUT = NEEDS_TIMEOUT = True
POWER = PowerPass(UNAWARE, preferred=int(SOONEST))
