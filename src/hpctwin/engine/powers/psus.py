"""Idle nodes go off; jobs get the first free nodes, on or not, and wait for them."""

from __future__ import annotations

from hpctwin.engine.compile.entry_points import UNAWARE
from hpctwin.engine.powers import PowerPass

TAKES_TIMEOUT = NEEDS_TIMEOUT = True
POWER = PowerPass(UNAWARE)
