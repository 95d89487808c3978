"""All nodes stay on."""

from __future__ import annotations

from hpctwin.engine.power.switching_plan import UNAWARE
from hpctwin.engine.powers import PowerPass

POWER = PowerPass(UNAWARE)
