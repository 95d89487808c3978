"""Idle nodes go off; nodes are woken as late as the plan of the waiting jobs allows."""

from __future__ import annotations

from hpctwin.engine.compile.entry_points import MANAGED, MANAGED_SHARED
from hpctwin.engine.powers import PowerPass
from hpctwin.engine.state.layout import ONLY_ACTIVE

TAKES_TIMEOUT = NEEDS_TIMEOUT = True
POWER = PowerPass(MANAGED, shown=int(ONLY_ACTIVE), shared=MANAGED_SHARED)
