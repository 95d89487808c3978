"""Nodes with power states: what the engine is told of them, and how it is with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpctwin.energy.power.states import group_of_node, nodes_of_group, state_names
from hpctwin.engine.operations.power_control import (
    Work,
    hide_nodes,
    state_rows,
)
from hpctwin.engine.state.sim import Sim, records
from hpctwin.model import NEVER_MS, Cluster, Workload, to_ms
from hpctwin.policies import Policy, PowerPolicy
from hpctwin.policies.backfills import OUTSIDE
from hpctwin.simulation.lowering.cluster import changes_of

if TYPE_CHECKING:
    from hpctwin.energy.power.modes import ModeChange

__all__ = [
    "Outside",
    "change_power",
    "first_instant",
    "modes_of",
    "node_states",
    "power_known",
    "power_rules",
    "sleeps",
    "speeds",
    "untouched",
]

IntArray = npt.NDArray[np.int64]
Known = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Outside:
    """What was done to the nodes of a simulation from outside, and when that goes on.

    Args:
        changes: of DVFS modes so far.
        work: what was left of jobs when their speed changed last.
        asked: whether the control function was asked at the beginning.
        again_s: when it wants to be asked again, seconds.
        last_s: when something else than that happened last, seconds.
    """

    changes: tuple[ModeChange, ...] = ()
    work: Work = field(default_factory=dict)
    asked: bool = False
    again_s: float | None = None
    last_s: float = 0.0


# --- what the engine is told ---------------------------------------------------------------------


def power_known(
    known: Known, cluster: Cluster, workload: Workload, power: PowerPolicy, pool: IntArray
) -> dict[str, npt.NDArray[Any]]:
    """What the engine knows, with sleep states and with the times at which a cap is raised.

    Args:
        known: what it knows otherwise.
        cluster: the machine, with the cap as a resource.
        workload: the jobs.
        power: the power policy.
        pool: of each node [nodes].
    """
    found = {**known, "sleep": sleeps(cluster, power, pool), "pool": known["pool"].copy()}
    found["pool"]["keep"] = power.keep
    if cluster.cap is not None:
        from hpctwin.energy.power.cap import RESOURCE, raised_caps

        column = len(known["pool"]) + list(cluster.resources).index(RESOURCE)
        rows = [(*times, column, -more) for *times, more in raised_caps(cluster.cap, workload)]
        windows = np.concatenate([known["window"], np.array(rows, known["window"].dtype)])
        windows = windows[np.argsort(windows["start"], kind="stable")]
        found |= {"window": windows, "change": changes_of(windows)}
    return found


def sleeps(cluster: Cluster, power: PowerPolicy, pool: IntArray) -> npt.NDArray[Any]:
    """The sleep depths of the nodes of each pool, as the engine has them [pools * depths].

    Args:
        cluster: the machine.
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
            row["off_w"], row["on_w"] = state.switch_off.power_w, state.switch_on.power_w
            row["asleep_w"] = state.power_w
            if depth == 0:
                if power.switches and power.timeout_s is not None:
                    row["timeout"] = to_ms(power.timeout_s)
            elif depth <= len(power.deeper_s):
                row["timeout"] = to_ms(power.deeper_s[depth - 1])
    return table


def first_instant(power: PowerPolicy, sim: Sim) -> int:
    """When the power policy first acts on nodes that have been idle since the beginning, ms.

    Nothing else may happen for long, as jobs may be held back. `NEVER_MS` if it never acts.

    Args:
        power: the power policy.
        sim: a simulation in which nothing has happened.
    """
    now = int(sim.clock.now)
    if power.power_pass.from_start:
        return now
    sleep = sim["sleep"]
    first = int(sleep["timeout"][:: len(sleep) // sim.pools].min())
    return first if first >= NEVER_MS else max(int(sim["node"]["since"].min()) + first, now)


def untouched(sim: Sim) -> bool:
    """Whether nothing has happened yet, and no node was switched."""
    return not sim.clock.instants and not sim["node"]["power"].any()


def change_power(sim: Sim, cluster: Cluster, power: PowerPolicy) -> None:
    """Go on under a power policy; nodes are hidden from jobs as it hides them."""
    pool = sim["pool"].copy()
    pool["keep"] = power.keep
    sim.know(sleep=sleeps(cluster, power, sim["pool_of"]), pool=pool)
    hide_nodes(sim, power.power_pass.shown)


def power_rules(cluster: Cluster, policy: Policy, *, log: bool) -> dict[str, Any]:
    """Fields of `engine.state.layout.Rules` that are otherwise where nodes have power states."""
    power = policy.power
    lowers = cluster.cap is not None and cluster.cap.lower_modes
    return {
        "shown": power.power_pass.shown,
        "preferred": power.power_pass.preferred,
        "depths": max(cluster.depths, 1),
        "log": log,
        "stepped": power.kind == "orders" or lowers or policy.backfill == OUTSIDE,
    }


# --- how it is with nodes ------------------------------------------------------------------------


def node_states(sim: Sim, cluster: Cluster) -> list[str]:
    """The state each node is in [nodes]."""
    names = state_names(cluster)
    return [names[row] for row in state_rows(sim)]


def modes_of(cluster: Cluster, outside: Outside) -> list[str]:
    """The DVFS mode each node group is in."""
    found = [group.first_mode for group in cluster.nodes]
    for change in outside.changes:
        found[change.group] = change.mode
    return found


def speeds(sim: Sim, cluster: Cluster, changed: Mapping[int, str]) -> npt.NDArray[np.float64]:
    """The speeds of all pools, with some node groups in other modes."""
    found: npt.NDArray[np.float64] = sim["pool"]["speed"].copy()
    for number, mode in changed.items():
        own = cluster.nodes[number]
        pools = np.unique(sim["pool_of"][nodes_of_group(cluster, number)])
        found[pools] = own.speed * own.modes[mode].speed
    return found
