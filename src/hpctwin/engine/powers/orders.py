"""Nodes are switched from outside, or by a custom function."""

from __future__ import annotations

from hpctwin.engine.compile.entry_points import UNAWARE
from hpctwin.engine.powers import PowerPass
from hpctwin.engine.state.layout import ONLY_ACTIVE

TAKES_TIMEOUT = True
POWER = PowerPass(UNAWARE, shown=int(ONLY_ACTIVE))
