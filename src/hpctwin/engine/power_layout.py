"""The engine's data of node power states: beside `layout.Sim`, whose rows hold each node's state."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hpctwin.engine.layout import F64, I64, F64x2, I64x2

__all__ = ["Power", "PowerRules"]

# States of a node, in Sim.node row NODE_POWER. The last three once for each sleep depth.
IDLE, COMPUTING, SWITCHING_OFF, ASLEEP, SWITCHING_ON = np.arange(5)
DEPTH_STATES = np.int64(3)

UNAWARE, AUTO, MANAGED, GIVEN_ORDERS = np.arange(4)

# Faults of SPARS's schedulers, each to be had alone on top of the sound rule.
NO_FAULT, THREE_WAITING, LOST_RESERVATION, STOPS_WHILE_OFF, HIDES_SWITCHING_OFF = np.arange(5)

# Rows of Power.count, node, table and log.
HEAP, LOGGED, WAKE_AT, CHANGED = np.arange(4)
POWER_COUNTS = 4
OFF_TIME, ON_TIME = np.arange(2)
LOG_NODE, LOG_STATE, LOG_START, LOG_END = np.arange(4)
SPARE, ALLOWED = np.arange(2)
RELEASED, HELD_BY, CHOSEN = np.arange(3)
ACTIVE_W, BOOT_W = np.arange(2)


class Power(NamedTuple):
    """Power states of the nodes (N nodes, P pools, D sleep depths)."""

    count: I64  # type: ignore[assignment]  # [POWER_COUNTS]
    heap: I64x2  # [2, N] heap of transitions by end
    table: I64x2  # [2, P * D] time to switch off and on, ms
    timeout: I64  # [P * D] idle so long: to this depth, ms; NEVER for not at all
    keep: I64  # [P] so many idle nodes are never switched off
    watts: F64x2  # [2, P] active and switching on
    pool: I64x2  # [2, P] scratch
    node: I64x2  # [3, N] scratch
    cost: F64  # [N] scratch
    log: I64x2  # [4, …] past states: node, state, start, end; [4, 0] if not kept


class PowerRules(NamedTuple):
    """Numbers that choose the power policy."""

    kind: int  # UNAWARE, AUTO, MANAGED, or GIVEN_ORDERS from outside the engine
    as_published: int
    fault: int  # NO_FAULT …
    depths: int
    log: int
    stepped: int  # 1: stop at each instant before the clock goes on, if so many are asked for
