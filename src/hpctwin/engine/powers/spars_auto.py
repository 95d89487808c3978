"""SPARS's Auto On by its published rule: sleeping nodes before idle ones, none that switches off."""

from __future__ import annotations

from typing import Any

from hpctwin.engine.compile.entry_points import UNAWARE
from hpctwin.engine.powers import PowerPass
from hpctwin.engine.state.layout import LEAST_DRAW, NOT_SWITCHING_OFF

__all__ = ["POWER"]

TAKES_TIMEOUT = NEEDS_TIMEOUT = True


def _refuses(cluster: Any, policy: Any) -> str:
    if cluster.cleanup > 0:
        return "SPARS has no 'cleanup'; remove it"
    if policy.backfill != "none":
        return "it is there without backfilling only (--backfill none): SPARS's EASY is not sound"
    return ""


POWER = PowerPass(
    UNAWARE, shown=int(NOT_SWITCHING_OFF), preferred=int(LEAST_DRAW), refuses=_refuses
)
