"""What acts on a simulation with power states from outside its loop: control functions, caps."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from hpctwin.model import MS_PER_S, Cluster, NodeGroup, PowerCap, State, Workload
from hpctwin.policies import PowerPolicy
from tests.reference.nodes import AWAKE
from tests.reference.power import PoweredSimulation
from tests.reference.shared_requests import further_kinds

__all__ = ["capped", "controlled", "fitted"]

RESOURCE = "power_w"
DAY_MS = 86_400_000
Watch = Callable[[PoweredSimulation], int | None]


class View:
    """What a control function sees."""

    def __init__(self, simulation: PoweredSimulation) -> None:
        now = simulation.now
        self.now_s = now / MS_PER_S
        self.states = np.array([node.state for node in simulation.nodes])
        self.since_s = np.array([(now - node.since) / MS_PER_S for node in simulation.nodes])
        self.waiting = [
            (job.width, job.walltime / MS_PER_S, (now - job.came[0]) / MS_PER_S)
            for job in simulation.in_state(State.WAITING)
        ]

    def nodes(self, state: str) -> Any:
        return np.flatnonzero(self.states == state)


def controlled(control: Callable[[Any], Any]) -> Watch:
    """Asks a control function, does what it says, and says when it wants to be asked again."""

    def watch(simulation: PoweredSimulation) -> int | None:
        orders = control(View(simulation))
        if orders is None:
            return None
        simulation.switch([int(n) for n in orders.on], [int(n) for n in orders.off])
        return None if orders.next_call_s is None else round(orders.next_call_s * MS_PER_S)

    return watch


# --- caps --------------------------------------------------------------------------------------


def by_power(group: NodeGroup) -> list[str]:
    """The mode at the beginning, and those that draw less, the one that draws most first."""
    first = group.first_mode
    less = [m for m in group.modes if group.modes[m].power_w < group.modes[first].power_w]
    return [first, *sorted(less, key=lambda mode: -group.modes[mode].power_w)]


def cap_at(cap: PowerCap, time_ms: int) -> float:
    """The cap at a time, time zero being midnight."""
    time_s = time_ms % DAY_MS / MS_PER_S
    for window in cap.windows:
        if window.start_s < window.end_s:
            inside = window.start_s <= time_s < window.end_s
        else:
            inside = not window.end_s <= time_s < window.start_s
        if inside:
            return window.watts
    return cap.watts


def capped(
    workload: Workload, cluster: Cluster, platform: Cluster, power: PowerPolicy, cap: PowerCap
) -> tuple[Workload, Cluster, list[tuple[int, int, str, int]]]:
    """Jobs that ask for watts, a cluster that has some, and when it has more (over two days)."""
    floors, aboves = 0.0, []
    for group in platform.nodes:
        mode = group.modes[by_power(group)[-1 if cap.lower_modes else 0]]
        draws = [mode.idle]
        if power.kind != "none":
            for sleep in group.sleep:
                draws += [sleep.power_w, sleep.switch_off.power_w, sleep.switch_on.power_w]
        floors += group.count * max(draws)
        aboves.append(max(0.0, mode.power_w - max(draws)))
    above = max(aboves)
    edges = {0, DAY_MS} | {round(t * MS_PER_S) for w in cap.windows for t in (w.start_s, w.end_s)}
    times = sorted(edges)
    lowest = min(cap_at(cap, time) for time in times[:-1])
    left = math.floor(lowest - floors)
    raises = [
        (day + start, day + end, RESOURCE, math.floor(cap_at(cap, start) - lowest))
        for day in (0, DAY_MS)
        for start, end in pairwise(times)
        if cap_at(cap, start) > lowest
    ]
    # What is too wide for the machine is rejected for that.
    asked = np.minimum(workload.nodes * math.ceil(above), left)
    if workload.shares_nodes:
        asked = np.minimum(asked_by_tasks(workload, cluster, aboves), left)
    return (
        workload.replace(resources={**workload.resources, RESOURCE: asked}),
        cluster.model_copy(update={"resources": {**cluster.resources, RESOURCE: left}}),
        raises,
    )


def asked_by_tasks(workload: Workload, cluster: Cluster, aboves: list[float]) -> Any:
    """What jobs with tasks ask for, and those that ask for whole nodes, W."""
    found = []
    for row in range(len(workload)):
        asks = {name: float(column[row]) for name, column in workload.chunks.items()}
        first = (asks["tasks"], asks["cores_per_task"], asks["gpus_per_task"])
        further = further_kinds(workload, row, [])  # watts go by cores and GPUs
        kinds = [first, *((k.tasks, float(k.each[0]), float(k.each[2])) for k in further)]
        if not asks["tasks"] or asks["exclusive"]:
            tasks = sum(kind[0] for kind in kinds)
            nodes = min(tasks, cluster.node_count) if asks["tasks"] else workload.nodes[row]
            found.append(nodes * math.ceil(max(aboves)))
            continue
        watts = 0.0
        for tasks, cores, gpus in kinds:
            most = 0.0
            for group, above in zip(cluster.nodes, aboves, strict=True):
                has = ((cores, group.cores), (gpus, group.gpus))
                shares = [asked / there for asked, there in has if there]
                if max(shares, default=0.0) <= 1:
                    most = max(most, tasks * max(shares, default=0.0) * above)
            watts += most
        found.append(math.ceil(watts - 1e-6))
    return np.array(found, np.int64)


def fitted(cap: PowerCap) -> Watch:
    """Puts all groups into the fastest modes that fit under the cap; they step down together."""

    def watch(simulation: PoweredSimulation) -> None:
        orders = [by_power(group) for group in simulation.platform.nodes]
        for level in range(max(map(len, orders))):
            modes = [order[min(level, len(order) - 1)] for order in orders]
            drawn = 0.0
            for node in simulation.nodes:
                on = node.state in AWAKE
                drawn += simulation.draws(node, modes[node.group] if on else node.depth)
            if drawn <= cap_at(cap, simulation.now):
                break
        for group, mode in enumerate(modes):
            if simulation.mode_of(group) != mode:
                simulation.set_mode(group, mode)

    return watch
