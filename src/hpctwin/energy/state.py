"""What the engine knows of a cluster's nodes and a power policy; what goes together and what does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.energy.power import PASS_FAULTS, PowerPolicy
from hpctwin.energy.states import group_of_node
from hpctwin.engine.sim import records
from hpctwin.errors import ConfigError
from hpctwin.model import MS_PER_S, NEVER_MS, Cluster, to_ms
from hpctwin.policies import Policy

__all__ = ["begins_ms", "check_parts", "first_timeout", "published_watts", "sleeps"]

IntArray = npt.NDArray[np.int64]


def begins_ms(begin_s: npt.NDArray[np.float64], ids: npt.NDArray[Any]) -> IntArray:
    """When jobs may begin, ms [jobs].

    Raises:
        ConfigError: there is not one time for each job, or one is no time.
    """
    size = len(ids)
    if begin_s.shape != (size,):
        raise ConfigError(f"begin_s has shape {begin_s.shape}, it must be ({size},): one per job")
    wrong = np.flatnonzero(~(begin_s * MS_PER_S < NEVER_MS))
    if len(wrong):
        row = int(wrong[0])
        raise ConfigError(
            f"job {ids[row]}: begin_s is {begin_s[row]:g}, it must be a finite number"
        )
    ms: IntArray = np.rint(np.maximum(begin_s, 0.0) * MS_PER_S).astype(np.int64)
    return ms


def sleeps(cluster: Cluster, power: PowerPolicy, pool: IntArray) -> npt.NDArray[Any]:
    """The sleep depths of the nodes of each pool, as the engine has them [pools * depths].

    Args:
        cluster: the nodes.
        power: the power policy.
        pool: of each node [nodes].
    """
    depths = max(cluster.depths, 1)
    groups = list(group_of_node(cluster))
    pools = int(pool.max()) + 1
    table = records("sleep", pools * depths, timeout=NEVER_MS)
    for p in range(pools):
        group = groups[int(np.flatnonzero(pool == p)[0])]
        for depth, state in enumerate(group.sleep):
            row = table[p * depths + depth : p * depths + depth + 1]
            row["off_time"] = to_ms(state.switch_off.time)
            row["on_time"] = to_ms(state.switch_on.time)
            if depth == 0:
                if power.kind != "none" and power.timeout_s is not None:
                    row["timeout"] = to_ms(power.timeout_s)
            elif depth <= len(power.deeper_s):
                row["timeout"] = to_ms(power.deeper_s[depth - 1])
    return table


def published_watts(cluster: Cluster) -> dict[str, float]:
    """What a node draws, as SPARS's published rule reckons, W."""
    group = cluster.nodes[0]
    return {
        "active_w": group.initial.power_w,
        "boot_w": group.sleep[0].switch_on.power_w if group.sleep else 0.0,
    }


def first_timeout(sleep: npt.NDArray[Any], depths: int, now: int = 0) -> int:
    """When the first node is switched off that has been idle since time zero, ms; NEVER for none.

    Nothing else may happen for long: the first job may come late.

    Args:
        sleep: what `sleeps` gave.
        depths: how many to a pool.
        now: the present, ms; not before that.
    """
    first = int(sleep["timeout"][::depths].min())
    return first if first >= NEVER_MS else max(first, now)


def check_parts(policy: Policy, cluster: Cluster, power: PowerPolicy) -> None:
    """Whether policy, cluster and power policy go together.

    Raises:
        ConfigError: they do not.
    """
    if policy.backfill in ("pack", "pushdown"):
        raise ConfigError(
            f"backfill {policy.backfill!r} does not go with power states; take none, first-fit, easy or "
            "conservative"
        )
    if power.kind != "none" and power.timeout_s is not None and cluster.depths == 0:
        raise ConfigError(
            f"cluster {cluster.name!r}: no node group has a sleep state, so power policy "
            f"{power.kind!r} has nothing to do; give one under 'sleep:'"
        )
    if power.rule == "as-published" and policy.backfill != "none":
        raise ConfigError(
            "SPARS's published rule is there without backfilling only (--backfill none); its EASY forms "
            "are not sound, see docs/energy.md"
        )
    if power.fault in PASS_FAULTS and policy.backfill != "easy":
        raise ConfigError(
            f"fault {power.fault!r} goes with backfill 'easy', not {policy.backfill!r}"
        )
    only_one = len(cluster.nodes) == 1 and cluster.depths <= 1
    if power.rule == "as-published" and power.kind == "psas-ipm" and not only_one:
        raise ConfigError(
            "psas-ipm as published is for one group of equal nodes with one sleep state"
        )
