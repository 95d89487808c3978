"""Idle nodes go off; nodes are woken as late as the plan of the waiting jobs allows."""

from __future__ import annotations

from hpctwin.engine.layout import ONLY_ACTIVE
from hpctwin.engine.power_passes import MANAGED
from hpctwin.engine.powers import PowerPass
from hpctwin.engine.shared.managing import MANAGED_SHARED

TAKES_TIMEOUT = NEEDS_TIMEOUT = True
POWER = PowerPass(MANAGED, shown=int(ONLY_ACTIVE), shared=MANAGED_SHARED)
