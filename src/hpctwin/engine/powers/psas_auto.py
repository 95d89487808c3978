"""Idle nodes go off; jobs get those of the free nodes that are on soonest."""

from __future__ import annotations

from hpctwin.engine.layout import SOONEST
from hpctwin.engine.power_passes import UNAWARE
from hpctwin.engine.powers import PowerPass

TAKES_TIMEOUT = NEEDS_TIMEOUT = True
POWER = PowerPass(UNAWARE, preferred=int(SOONEST))
