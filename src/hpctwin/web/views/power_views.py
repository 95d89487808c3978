"""Past, current and future power of a live cluster, with cooling, carbon and cost.

Needs a cluster with a power model. Future jobs draw power when they are forecast to run; running
jobs do so up to their limits. Only the current state of sleeping and failed nodes is known: they
count as idle before, and stay asleep until a job is forecast on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.energy import Series
from hpctwin.energy.accounts.component_energy import ComponentEnergy
from hpctwin.energy.accounts.shared_energy import SharedComponentEnergy
from hpctwin.energy.cooling.model import cool, wet_bulb_means
from hpctwin.energy.power.losses import PARTS
from hpctwin.energy.power.states import state_names
from hpctwin.engine.state.layout import COMPUTING
from hpctwin.metrics import binned
from hpctwin.model import MS_PER_S, Cluster, NodeGroup
from hpctwin.model.cluster.node_group import Sleep, Transition
from hpctwin.model.cluster.power import Component
from hpctwin.model.columns import ms_of
from hpctwin.report.columns import NO_CURRENCY
from hpctwin.rms.records.records import NodeRecord
from hpctwin.web.views.job_history import Stretch, shares_of
from hpctwin.web.views.views import EnergyView, Line

__all__ = ["RATED", "Weather", "energy_of", "energy_view", "power_lines", "rates_of"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Weather = float | str | None

RATED = {"price": "price of the electricity", "carbon": "carbon emitted"}
PUE_STEPS = 60
"""Number of steps up to now in which cooling is computed."""
_NOTHING = Transition(time=0.0, power_w=0.0)
_DOWN = Sleep(name="down", power_w=0.0, switch_off=_NOTHING, switch_on=_NOTHING)
_STATES = {"switching_off": 0, "asleep": 1, "switching_on": 2}


def energy_of(
    machine: Cluster,
    stretches: Sequence[Stretch],
    nodes: Sequence[NodeRecord],
    span_s: tuple[float, float],
    *,
    unix_time: bool = True,
) -> ComponentEnergy:
    """Return the energy accounts of a live cluster between two times of its clock.

    Args:
        machine: Cluster with a power model.
        stretches: Jobs on nodes.
        nodes: All nodes, by number.
        span_s: Begin and end, in seconds; the begin is the accounts' time zero.
        unix_time: Whether the clock counts from 1970.
    """
    from_s, to_s = span_s
    described = machine.model_copy(update={"nodes": tuple(map(_described, machine.nodes))})
    sizes = [len(one.nodes) for one in stretches]
    row = np.repeat(np.arange(len(stretches)), sizes)
    where: IntArray = np.concatenate([np.zeros(0, np.int64), *(one.nodes for one in stretches)])
    start = np.array([max(0.0, one.start_s - from_s) for one in stretches])[row]
    end = np.array([min(to_s, one.end_s) - from_s for one in stretches])[row]
    shared = any(one.amounts is not None for one in stretches)
    begins = np.ones(len(row), bool)
    if not shared:
        begins[1:] = (np.diff(row) > 0) | (np.diff(where) != 1)
    first = np.flatnonzero(begins)
    columns = {
        "job_id": row[first],
        "start_s": start[first],
        "end_s": end[first],
        "first_node": where[first],
        "count": np.diff(np.append(first, len(row))),
    }
    if shared:
        share = np.concatenate([shares_of(machine, one) for one in stretches])
        columns |= {"use": share[:, [0, 2]].max(axis=1), "share": share.max(axis=1)}
    end_ms = round((to_s - from_s) * MS_PER_S)
    log = _away(described, nodes, (from_s, end_ms), where, ms_of(start), ms_of(end))
    spent = np.zeros((len(state_names(described)), len(nodes)), np.int64)
    spent[0] = end_ms
    np.add.at(spent, (log[1], log[0]), log[3] - log[2])
    np.subtract.at(spent[0], log[0], log[3] - log[2])
    return (SharedComponentEnergy if shared else ComponentEnergy)(
        table=pl.DataFrame({"job_id": np.arange(len(stretches))}),
        node_map=pl.DataFrame(columns),
        cluster=described,
        spent_ms=spent,
        log=log,
        start_epoch_s=from_s if unix_time else None,
    )


def _described(group: NodeGroup) -> NodeGroup:
    """Return a group of components with a state 'down'; modes become one component."""
    made: dict[str, object] = {"sleep": (*group.sleep, _DOWN)}
    if not group.components:
        mode = group.initial
        # A node may draw less when it computes than when idle; a component may not.
        whole = Component.model_construct(
            count=1, idle_w=mode.idle, max_w=mode.power_w, uncertainty=0.0
        )
        made["components"] = {"node": whole}
    return group.model_copy(update=made)


def _away(
    machine: Cluster,
    nodes: Sequence[NodeRecord],
    span: tuple[float, int],
    where: IntArray,
    start_ms: IntArray,
    end_ms: IntArray,
) -> IntArray:
    """Return node, state, start and end (ms) of asleep, switching, down nodes [4, …].

    Args:
        machine: Cluster as of `_described`.
        nodes: All nodes.
        span: Begin, in seconds, and the end relative to it, in ms.
        where: Nodes of jobs [jobs' nodes].
        start_ms: Start of the job on each of them [jobs' nodes].
        end_ms: End of the same job [jobs' nodes].
    """
    from_s, last_ms = span
    there = start_ms < end_ms
    where, start_ms, end_ms = where[there], start_ms[there], end_ms[there]
    order = np.argsort(where, kind="stable")
    bounds = np.searchsorted(where[order], np.arange(len(nodes) + 1))
    counts = [group.count for group in machine.nodes]
    down = np.repeat([len(group.sleep) - 1 for group in machine.nodes], counts)
    found = []
    for number, node in enumerate(nodes):
        power = node.power
        if node.state != "down" and (power is None or power.state == "on"):
            continue
        mine = order[bounds[number] : bounds[number + 1]]
        starts, ends = start_ms[mine], end_ms[mine]
        if node.state == "down" or power is None:
            since_ms, until_ms, depth, way = 0, last_ms, int(down[number]), 1
        else:
            since_ms = max(0, round((power.since_s - from_s) * MS_PER_S))
            until_ms = int(starts[starts >= since_ms].min(initial=last_ms))
            depth, way = power.depth, _STATES[power.state]
        since_ms = max(since_ms, int(ends[ends <= until_ms].max(initial=0)))
        if since_ms < until_ms:
            found.append((number, COMPUTING + 1 + 3 * depth + way, since_ms, until_ms))
    return np.array(found, np.int64).reshape(-1, 4).T


def rates_of(machine: Cluster, from_s: float, *, unix_time: bool = True) -> dict[str, Series]:
    """Return the cluster's ``price`` and ``carbon``, if any, with a given time zero.

    Raises:
        ConfigError: A file of them cannot be read on this host.
    """
    found: dict[str, Series] = {}
    kinds: tuple[tuple[Literal["price", "carbon"], float | str | None, str], ...] = (
        ("price", machine.price, machine.currency),
        ("carbon", machine.carbon, "g"),
    )
    for name, rate, unit in kinds:
        if isinstance(rate, str):
            found[name] = Series.read(rate, what=name).aligned(from_s if unix_time else None)[0]
        elif rate is not None:
            found[name] = Series.hourly([rate], unit)
    return found


def energy_view(
    energy: ComponentEnergy, now_s: float, rates: Mapping[str, Series], weather: Weather
) -> EnergyView:
    """Return the current power draw and the energy used so far.

    Args:
        energy: Energy accounts of the cluster.
        now_s: Current time, in seconds after the accounts' time zero.
        rates: Price and carbon, as of `rates_of`.
        weather: Wet-bulb temperature in °C, or a file of weather; None omits cooling.

    Raises:
        ConfigError: The weather cannot be used.
    """
    times, watts = energy.power_over_time()
    power_w = float(watts[max(0, int(np.searchsorted(times, now_s, side="right")) - 1)])
    past = np.minimum(times, now_s)
    used: dict[str, float] = {"energy_j": float(watts[:-1] @ np.diff(past))}
    for name, series in rates.items():
        total = float(watts[:-1] @ np.diff(series.integral(past)))
        used |= {name: total, f"{name}_per_h": power_w * float(series.at(now_s)) * 3600}
    cooled = _cooled(energy, np.linspace(0.0, now_s, PUE_STEPS + 1), weather)
    pue = None if cooled is None else float(cooled[-1])
    unit = rates["price"].unit or NO_CURRENCY if "price" in rates else ""
    return EnergyView(power_w=power_w, past_s=now_s, pue=pue, price_unit=unit, **used)


def power_lines(
    energy: ComponentEnergy, edges_s: FloatArray, rates: Mapping[str, Series], weather: Weather
) -> list[Line]:
    """Return power over time, with PUE, cost and carbon, in bins.

    Args:
        energy: Energy accounts of the cluster.
        edges_s: Edges of equal bins from the accounts' time zero to their end, in seconds [bins +
            1].
        rates: Price and carbon, as of `rates_of`.
        weather: Weather, as of `energy_view`.
    """
    mean, peak = binned(*energy.power_over_time(), edges_s)
    found = [Line(name="power drawn", unit="W", mean=tuple(mean), peak=tuple(peak), most=None)]
    cooled = _cooled(energy, edges_s, weather)
    if cooled is not None:
        pue, says = tuple(cooled.tolist()), "power usage effectiveness (PUE)"
        found.append(Line(name=says, unit="", mean=pue, peak=pue, most=None, least=1.0))
    for name, series in rates.items():
        each = np.diff(series.integral(edges_s)) / np.diff(edges_s) * 3600
        unit = "g/h" if name == "carbon" else f"{series.unit or NO_CURRENCY}/h"
        told = [tuple((each * watts).tolist()) for watts in (mean, peak)]
        found.append(Line(name=RATED[name], unit=unit, mean=told[0], peak=told[1], most=None))
    return found


def _cooled(energy: ComponentEnergy, edges_s: FloatArray, weather: Weather) -> FloatArray | None:
    """Return the PUE in each bin; None if unknown."""
    plant = energy.cluster.cooling
    if weather is None or plant is None or not edges_s[-1] > edges_s[0]:
        return None
    parts = energy.draw.means(edges_s)
    total = parts.sum(axis=0)
    wet = wet_bulb_means(weather, edges_s, energy.start_epoch_s)
    it_w = total - parts[PARTS.index("pumps")]
    return cool(plant, np.diff(edges_s), total, it_w, wet)["pue"].to_numpy()
