"""Making the state of a simulation with power states; what goes together and what does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.energy.platform import Platform
from hpctwin.energy.power import PowerPolicy
from hpctwin.engine import layout, power_layout
from hpctwin.engine.layout import Sim
from hpctwin.engine.power_layout import Power
from hpctwin.errors import ConfigError
from hpctwin.model import MS_PER_S, NEVER_MS, to_ms
from hpctwin.policies import Policy

__all__ = ["check_parts", "first_timeout", "new_power", "with_begins", "with_power"]

IntArray = npt.NDArray[np.int64]


def with_power(sim: Sim, depths: int) -> Sim:
    """The state with all nodes on and idle."""
    states = 2 + 3 * depths
    more = np.zeros((layout.POWER_SPENT + states - 3, sim.node.shape[1]), np.int64)
    return sim._replace(node=np.concatenate([sim.node, more]))


def with_begins(sim: Sim, begin_s: npt.NDArray[np.float64], ids: npt.NDArray[Any]) -> Sim:
    """The state with jobs held until they may begin, as by a dependency that comes true then."""
    size = sim.time.shape[1]
    if begin_s.shape != (size,):
        raise ConfigError(f"begin_s has shape {begin_s.shape}, it must be ({size},): one per job")
    wrong = np.flatnonzero(~(begin_s * MS_PER_S < NEVER_MS))
    if len(wrong):
        row = int(wrong[0])
        raise ConfigError(
            f"job {ids[row]}: begin_s is {begin_s[row]:g}, it must be a finite number"
        )
    time = np.full((layout.RELEASE + 1, size), -1, np.int64)
    time[: len(sim.time)] = sim.time
    time[layout.RELEASE] = np.maximum(
        time[layout.RELEASE], np.rint(np.maximum(begin_s, 0.0) * MS_PER_S).astype(np.int64)
    )
    return sim._replace(time=time, releases=np.zeros((2, size), np.int64))


def new_power(platform: Platform, power: PowerPolicy, pool: IntArray, nodes: int) -> Power:
    """The engine's data of node power states at the beginning.

    Args:
        platform: the nodes.
        power: the power policy.
        pool: of each node [nodes].
        nodes: how many.
    """
    depths = max(platform.depths, 1)
    groups = list(platform.group_of_node())
    pools = int(pool.max()) + 1
    table = np.zeros((2, pools * depths), np.int64)
    timeout = np.full(pools * depths, NEVER_MS, np.int64)
    watts = np.zeros((2, pools))
    for p in range(pools):
        group = groups[int(np.flatnonzero(pool == p)[0])]
        watts[power_layout.ACTIVE_W, p] = group.initial.power_w
        for depth, state in enumerate(group.sleep):
            column = p * depths + depth
            table[power_layout.OFF_TIME, column] = to_ms(state.switch_off.time)
            table[power_layout.ON_TIME, column] = to_ms(state.switch_on.time)
            if depth == 0:
                watts[power_layout.BOOT_W, p] = state.switch_on.power_w
                if power.kind != "none" and power.timeout_s is not None:
                    timeout[column] = to_ms(power.timeout_s)
            elif depth <= len(power.deeper_s):
                timeout[column] = to_ms(power.deeper_s[depth - 1])
    count = np.zeros(power_layout.POWER_COUNTS, np.int64)
    count[power_layout.WAKE_AT] = NEVER_MS
    return Power(
        count=count,
        heap=np.zeros((2, nodes), np.int64),
        table=table,
        timeout=timeout,
        keep=np.full(pools, power.keep, np.int64),
        watts=watts,
        pool=np.zeros((2, pools), np.int64),
        node=np.zeros((3, nodes), np.int64),
        cost=np.zeros(nodes),
        log=np.zeros((4, 0), np.int64),
    )


def first_timeout(power: Power, now: int = 0) -> int:
    """When the first node is switched off that has been idle since time zero, ms; NEVER for none.

    Nothing else may happen for long: the first job may come late.

    Args:
        power: at the beginning.
        now: the present, ms; not before that.
    """
    depths = len(power.timeout) // len(power.keep)
    first = int(power.timeout[::depths].min())
    return first if first >= NEVER_MS else max(first, now)


def check_parts(policy: Policy, platform: Platform, power: PowerPolicy) -> None:
    """Whether policy, platform and power policy go together.

    Raises:
        ConfigError: they do not.
    """
    if policy.backfill in ("pack", "pushdown"):
        raise ConfigError(
            f"backfill {policy.backfill!r} does not go with power states; take none, first-fit, easy or "
            "conservative"
        )
    if power.kind != "none" and power.timeout_s is not None and platform.depths == 0:
        raise ConfigError(
            f"platform {platform.name!r}: no node group has a sleep state, so power policy "
            f"{power.kind!r} has nothing to do; give one under 'sleep:'"
        )
    if power.rule == "as-published" and policy.backfill != "none":
        raise ConfigError(
            "SPARS's published rule is there without backfilling only (--backfill none); its EASY forms "
            "are not sound, see docs/energy.md"
        )
    only_one = len(platform.nodes) == 1 and platform.depths <= 1
    if power.rule == "as-published" and power.kind == "psas-ipm" and not only_one:
        raise ConfigError(
            "psas-ipm as published is for one group of equal nodes with one sleep state"
        )
