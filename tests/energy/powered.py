"""Random machines and power policies, and simulations of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st

from hpctwin import Simulation, Workload
from hpctwin.energy import Energy
from hpctwin.model import Cluster, PowerCap
from hpctwin.policies import Policy, PowerPolicy

__all__ = [
    "KINDS",
    "energy_of",
    "joined",
    "platforms",
    "power_policies",
    "powered_simulation",
    "uniform",
]

KINDS = ("none", "psus", "psas-auto", "psas-ipm")
NODES = 6


def uniform(nodes: int = NODES, *, off_s: float = 4, on_s: float = 7) -> Cluster:
    """Equal nodes with one sleep state."""
    return Cluster.uniform(
        nodes, active_w=200, idle_w=100, sleep_w=10, off_s=off_s, off_w=50, on_s=on_s, on_w=150
    )


def joined(platform: Cluster, rest: Cluster | None) -> Cluster:
    """One machine of what its nodes draw and of all the rest."""
    if rest is None:
        return platform
    groups = [
        group.model_copy(update={"modes": own.modes, "mode": own.mode, "sleep": own.sleep})
        for group, own in zip(rest.nodes, platform.nodes, strict=True)
    ]
    return rest.model_copy(update={"nodes": tuple(groups)})


def powered_simulation(
    workload: Workload,
    machine: Cluster,
    order: str = "fcfs",
    backfill: str = "easy",
    *,
    policy: Policy | None = None,
    power: PowerPolicy | None = None,
    cap: PowerCap | None = None,
    control: Any = None,
    **options: Any,
) -> Simulation:
    """A simulation with its power policy, its cap and its control function given one by one."""
    if cap is not None:
        machine = machine.model_copy(update={"cap": cap})
    if control is not None:
        power = dataclasses.replace(power or PowerPolicy(), control=control)
    parts = {"policy": policy} if policy else {"order": order, "backfill": backfill}
    return Simulation(workload, machine, power=power, **parts, **options)


def energy_of(workload: Workload, machine: Cluster, *policy: str, **options: Any) -> Energy:
    """The accounts of a simulation that was run to its end."""
    energy = powered_simulation(workload, machine, *policy, **options).run().energy
    assert energy is not None
    return energy


@st.composite
def platforms(draw: st.DrawFn, *, nodes: int = NODES, groups: int = 2) -> Cluster:
    """Platforms of one or two node groups with no, one or two sleep states, and odd powers."""
    count = draw(st.integers(1, groups))
    sizes = [nodes] if count == 1 else [nodes - 2, 2]
    watts = st.integers(0, 300)
    times = st.one_of(st.just(0), st.integers(0, 20))
    content: list[dict[str, Any]] = []
    for number, size in enumerate(sizes):
        wakes = sorted(draw(st.lists(times, min_size=0 if number else 1, max_size=2)))
        content.append(
            {
                "name": f"g{number}",
                "count": size,
                "modes": {
                    "base": {
                        "power_w": draw(watts),
                        "idle_w": draw(watts),
                        "speed": draw(st.sampled_from((1.0, 2.0, 0.5))) if number else 1.0,
                    }
                },
                "sleep": [
                    {
                        "name": f"s{depth}",
                        "power_w": draw(watts),
                        "switch_off": {"time": draw(times), "power_w": draw(watts)},
                        "switch_on": {"time": wake, "power_w": draw(watts)},
                    }
                    for depth, wake in enumerate(wakes)
                ],
            }
        )
    return Cluster.model_validate({"nodes": content})


@st.composite
def power_policies(draw: st.DrawFn, kinds: tuple[str, ...] = KINDS) -> PowerPolicy:
    """Sound power policies."""
    return PowerPolicy(
        draw(st.sampled_from(kinds)),
        draw(st.sampled_from((0, 1, 5, 12, None))),
        deeper_s=draw(st.sampled_from(((), (0,), (6,)))),
        keep=draw(st.sampled_from((0, 0, 0, 2))),
    )
