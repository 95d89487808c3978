"""Nodes are switched from outside, or by a function of one's own."""

from __future__ import annotations

from hpctwin.engine.layout import ONLY_ACTIVE
from hpctwin.engine.power_passes import UNAWARE
from hpctwin.engine.powers import PowerPass

TAKES_TIMEOUT = True
POWER = PowerPass(UNAWARE, shown=int(ONLY_ACTIVE))
