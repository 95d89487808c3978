"""The compiled entry where nodes have power states; apart, since few runs need it."""

from __future__ import annotations

from numba import int64, types

from hpctwin.engine import power_loop
from hpctwin.engine.jit import jit
from hpctwin.engine.kernel import JOBS, MACHINE, ORDER, RULES, SIM, WORK, bundle
from hpctwin.engine.power_layout import Power, PowerRules

__all__ = ["advance_powered", "give_orders"]

POWER_RULES = types.NamedUniTuple(int64, len(PowerRules._fields), PowerRules)
advance_powered = jit(
    int64(
        ORDER,
        ORDER,
        JOBS,
        MACHINE,
        SIM,
        RULES,
        WORK,
        bundle(Power),
        POWER_RULES,
        RULES,
        RULES,
        int64,
        int64,
    )
)(power_loop.advance_powered)
give_orders = jit(
    types.void(types.Array(int64, 1, "C"), int64, MACHINE, SIM, bundle(Power), POWER_RULES)
)(power_loop.give_orders)
