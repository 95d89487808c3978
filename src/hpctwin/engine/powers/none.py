"""All nodes stay on."""

from __future__ import annotations

from hpctwin.engine.compile.entry_points import UNAWARE
from hpctwin.engine.powers import PowerPass

POWER = PowerPass(UNAWARE)
