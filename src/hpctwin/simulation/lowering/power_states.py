"""Power states of nodes: the engine's arrays for them, and their present state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.state.layout import IDLE
from hpctwin.engine.state.sim import Sim, records
from hpctwin.model import NEVER_MS, Cluster, Workload, to_ms
from hpctwin.policies import Policy, PowerPolicy
from hpctwin.simulation.lowering.cluster import changes_of

if TYPE_CHECKING:
    from hpctwin.energy.power.states import ModeChange
    from hpctwin.engine.operations.power_control import Work

__all__ = [
    "Outside",
    "carried",
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
    """Changes made to nodes from outside, and when the next one is due.

    Args:
        changes: DVFS mode changes so far.
        work: Remaining work of jobs at their last change of speed.
        asked: Whether the control function was called at the beginning.
        next_call_s: Time at which the control function wants to be called again, in seconds.
        last_s: Time of the last event other than such a call, in seconds.
    """

    changes: tuple[ModeChange, ...] = ()
    work: Work = field(default_factory=dict)
    asked: bool = False
    next_call_s: float | None = None
    last_s: float = 0.0


def carried(outside: Outside, cluster: Cluster, place: IntArray, until_ms: int) -> Outside:
    """Return the changes with other rows of jobs, and with few mode changes up to a time.

    Args:
        outside: Changes so far.
        cluster: The cluster.
        place: New row of each job by its row, -1 for none.
        until_ms: Time up to which it does not matter when modes changed, in ms.
    """
    from hpctwin.energy.power.states import folded

    work = {int(place[job]): left for job, left in outside.work.items() if place[job] >= 0}
    return replace(outside, work=work, changes=folded(cluster, outside.changes, until_ms))


# --- arrays for the engine -----------------------------------------------------------------------


def power_known(
    known: Known, cluster: Cluster, workload: Workload, power: PowerPolicy, pool: IntArray
) -> dict[str, npt.NDArray[Any]]:
    """Return the engine's arrays with sleep states and with times of a raised cap.

    Args:
        known: The engine's other arrays.
        cluster: The cluster, with the cap as a resource.
        workload: The jobs.
        power: The power policy.
        pool: Pool of each node [nodes].
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
    """Return the sleep depths of each pool in the engine's form [pools * depths].

    Args:
        cluster: The cluster.
        power: The power policy.
        pool: Pool of each node [nodes].
    """
    from hpctwin.energy.power.states import group_of_node

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
    """Return when the power policy first acts on nodes idle since the start, in ms.

    No other event may happen for a long time, because jobs may be held back. The result is
    `NEVER_MS` if the policy never acts.

    Args:
        power: The power policy.
        sim: Simulation in which nothing has happened.
    """
    now = int(sim.clock.now)
    if power.power_pass.from_start:
        return now
    sleep = sim["sleep"]
    first = int(sleep["timeout"][:: len(sleep) // sim.pools].min())
    return first if first >= NEVER_MS else max(int(sim["node"]["since"].min()) + first, now)


def untouched(sim: Sim) -> bool:
    """Return whether nothing has happened yet and no node was switched."""
    return not sim.clock.instants and not sim["node"]["power"].any()


def change_power(sim: Sim, cluster: Cluster, power: PowerPolicy) -> None:
    """Continue under another power policy, with nodes hidden from jobs as it requires."""
    from hpctwin.engine.operations.power_control import hide_nodes

    pool = sim["pool"].copy()
    pool["keep"] = power.keep
    sim.know(sleep=sleeps(cluster, power, sim["pool_of"]), pool=pool)
    hide_nodes(sim, power.power_pass.shown)


def power_rules(cluster: Cluster, policy: Policy, *, log: bool) -> dict[str, Any]:
    """Return the fields of `engine.state.layout.Rules` that differ with power states."""
    power = policy.power
    lowers = cluster.cap is not None and cluster.cap.lower_modes
    stepped = {"stepped": True} if power.kind == "orders" or lowers else {}
    return stepped | {
        "shown": power.power_pass.shown,
        "preferred": power.power_pass.preferred,
        "depths": max(cluster.depths, 1),
        "log": log,
    }


# --- present state of nodes ----------------------------------------------------------------------


def node_states(sim: Sim, cluster: Cluster) -> list[str]:
    """Return the name of each node's power state [nodes].

    An idle node that a job holds is ``held``: the job is suspended, or its nodes are cleaned up.
    """
    from hpctwin.energy.power.states import state_names
    from hpctwin.engine.operations.power_control import state_rows

    names = state_names(cluster)
    rows = state_rows(sim)
    held = (rows == IDLE) & (sim["node"]["job"] >= 0)
    return ["held" if is_held else names[row] for row, is_held in zip(rows, held, strict=True)]


def modes_of(cluster: Cluster, outside: Outside) -> list[str]:
    """Return the DVFS mode of each node group."""
    found = [group.first_mode for group in cluster.nodes]
    for change in outside.changes:
        found[change.group] = change.mode
    return found


def speeds(sim: Sim, cluster: Cluster, changed: Mapping[int, str]) -> npt.NDArray[np.float64]:
    """Return the speeds of all pools, with some node groups in other modes [pools]."""
    from hpctwin.energy.power.states import nodes_of_group

    found: npt.NDArray[np.float64] = sim["pool"]["speed"].copy()
    for number, mode in changed.items():
        own = cluster.nodes[number]
        pools = np.unique(sim["pool_of"][nodes_of_group(cluster, number)])
        found[pools] = own.speed * own.modes[mode].speed
    return found
