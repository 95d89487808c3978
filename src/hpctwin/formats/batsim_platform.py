"""Clusters from Batsim's platforms: the hosts that compute are nodes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from hpctwin.errors import ConfigError
from hpctwin.formats.simgrid_platform import read_platform
from hpctwin.model import Cluster, ReadNotes
from hpctwin.network.platform import Platform, PowerStates


def read_batsim_platform(path: Path, text: str) -> Cluster:
    """Read a cluster from a platform of Batsim or SimGrid.

    Nodes are in Batsim's order: by name, with numbers in names by value. Consecutive equal hosts
    become a node group. Power states that are not in ``sleep_pstates`` are DVFS modes; speeds are
    relative to the first node's at the beginning. A transition takes the time of one flop in its
    switching state. A power state that lacks a wattage or a speed is ignored.

    Raises:
        ConfigError: The file is not a valid platform; the message names line and tag.
    """
    counts: dict[str, int] = {}
    platform = read_platform(path, text, counts)
    nodes = platform.hosts_of("compute_node").tolist()
    if not nodes:
        raise ConfigError(
            f"{path}: no 'host' or 'cluster' that computes; is this a Batsim platform?"
        )
    reference = float(platform.host_speed[nodes[0]])
    if reference <= 0:
        raise ConfigError(
            f"{path}, host {platform.host_names[nodes[0]]!r}: its speed is 0; give a host without "
            "speed the property role='storage'"
        )
    ignored: Counter[str] = Counter()
    made: dict[tuple[object, ...], dict[str, Any]] = {}
    groups: list[dict[str, Any]] = []
    members: list[list[int]] = []
    for host in nodes:
        key = (
            platform.host_speeds[host],
            platform.host_pstate[host],
            platform.host_power[host],
            platform.host_cores[host],
            platform.host_devices[host].gpus,
        )
        if key not in made:
            made[key] = _node(
                platform, host, reference, ignored, f"{path}, host {platform.host_names[host]!r}"
            )
        if groups and made[key] is groups[-1]:
            members[-1].append(host)
        else:
            groups.append(made[key])
            members.append([host])
    sizes = Counter(platform.point_zone[platform.host_point].tolist())
    named = [
        {**group, "name": _name(platform, hosts, sizes), "count": len(hosts)}
        for group, hosts in zip(groups, members, strict=True)
    ]
    cluster = Cluster.checked({"name": platform.name, "nodes": named}, str(path))
    return cluster.noted(ReadNotes({**counts, **ignored})).connected(platform)


def _name(platform: Platform, hosts: list[int], sizes: Counter[int]) -> str:
    """Return the name of the hosts' zone if it has no others, else of the first host."""
    zones = set(platform.point_zone[platform.host_point[hosts]].tolist())
    whole = len(hosts) > 1 and len(zones) == 1 and sizes[min(zones)] == len(hosts)
    return platform.zones[min(zones)].name if whole else platform.host_names[hosts[0]]


def _node(
    platform: Platform, host: int, reference: float, ignored: Counter[str], where: str
) -> dict[str, Any]:
    """Return the fields of a node group of hosts like this one."""
    speeds, first = platform.host_speeds[host], int(platform.host_pstate[host])
    cores = int(platform.host_cores[host])
    node: dict[str, Any] = {"cores": cores} if cores > 1 else {}
    gpus = platform.host_devices[host].gpus
    node |= {"gpus": gpus} if gpus else {}
    power = platform.host_power[host]
    if power is None or first >= len(power.idle_w):
        if speeds[first] <= 0:
            raise ConfigError(f"{where}: its speed is 0; give it the property role='storage'")
        return {**node, "speed": speeds[first] / reference}
    used: set[int] = set()
    sleep = []
    for state in power.sleep:
        used |= set(state)
        if max(state) >= min(len(speeds), len(power.idle_w)):
            ignored["sleep state without a wattage or a speed, ignored"] += 1
            continue
        for number in (state.off, state.on):
            if speeds[number] <= 0:
                raise ConfigError(
                    f"{where}: the transition in power state {number} never ends: its speed is 0"
                )
        sleep.append(_sleep(power, state.asleep, state.off, state.on, speeds))
    if first in used:
        raise ConfigError(
            f"{where}: pstate is {first}, which is a sleep or switching state; give one in which "
            "the node computes"
        )
    states = [number for number in range(len(speeds)) if number not in used]
    known = [number for number in states if number < len(power.idle_w) and speeds[number] > 0]
    if len(known) < len(states):
        ignored["power state without a wattage or with speed 0, ignored"] += len(states) - len(
            known
        )
    modes = {
        f"pstate-{number}": {
            "power_w": power.busy_w[number],
            "idle_w": power.idle_w[number],
            **_above_idle(power, number),
            "speed": speeds[number] / reference,
        }
        for number in known
    }
    return {
        **node,
        "modes": modes,
        "mode": f"pstate-{first}",
        "sleep": sorted(sleep, key=lambda one: one["switch_on"]["time"]),
    }


def _above_idle(power: PowerStates, number: int) -> dict[str, float]:
    """Return the draw at the smallest load, if it is not that of an idle host."""
    least_w = power.one_core_w[number]
    return {} if least_w == power.idle_w[number] else {"min_load_w": least_w}


def _sleep(
    power: PowerStates, asleep: int, off: int, on: int, speeds: tuple[float, ...]
) -> dict[str, Any]:
    return {
        "name": f"pstate-{asleep}",
        "power_w": power.idle_w[asleep],
        "switch_off": {"time": round(1 / speeds[off], 3), "power_w": power.busy_w[off]},
        "switch_on": {"time": round(1 / speeds[on], 3), "power_w": power.busy_w[on]},
    }
