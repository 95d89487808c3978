"""Read clusters from files into a `Cluster`.

Supported are hpctwin's YAML, platforms of SPARS and Batsim, and the list of nodes that comes with
Alibaba's data set.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpctwin.errors import ConfigError
from hpctwin.formats.json.jobs import JsonRecord, not_read
from hpctwin.formats.systems import read_system, system_names
from hpctwin.model import Cluster, ReadNotes
from hpctwin.model.arguments import check_arguments
from hpctwin.model.files import cause

if TYPE_CHECKING:
    from hpctwin.network.platform import Platform, PowerStates

_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")


def alibaba_nodes(path: Path, text: str, counts: dict[str, int]) -> dict[str, Any]:
    """Read the nodes of Alibaba's GPU cluster of 2023 (``openb_node_list_*.csv``).

    Equal nodes are a group. Groups are in the order of their first nodes. The model of a node's
    GPUs is a feature, as pods request it.

    Args:
        path: File, for messages and the cluster's name.
        counts: Gets the columns that are not read, with the number of nodes.

    Raises:
        ConfigError: The file is no such list; the message names line and column.

    Source:
        https://github.com/alibaba/clusterdata, cluster-trace-gpu-v2023.
    """
    rows = csv.DictReader(io.StringIO(text))
    if missing := [name for name in _COLUMNS if name not in (rows.fieldnames or ())]:
        raise ConfigError(
            f"{path}, line 1: no column {', '.join(missing)}; the only supported node list in "
            f"CSV is Alibaba's GPU cluster of 2023, with columns {', '.join(_COLUMNS)}; "
            "otherwise write the cluster as YAML"
        )
    kinds: Counter[tuple[int, int, int, str]] = Counter()
    for row in rows:
        where = f"{path}, line {rows.line_num}"
        milli, mib, gpus = (_whole(row[name], name, where) for name in _COLUMNS[1:4])
        kinds[milli, mib, gpus, (row["model"] or "").strip()] += 1
    if not kinds:
        raise ConfigError(f"{path}: contains no nodes")
    nodes = [
        {
            "name": f"{model or 'cpu'}-{number}",
            "count": count,
            "cores": milli / 1000,
            "memory_gb": mib / 1024,
            "gpus": gpus,
            "features": [model] if model else [],
        }
        for number, ((milli, mib, gpus, model), count) in enumerate(kinds.items())
    ]
    columns = dict.fromkeys(rows.fieldnames or ())
    every = [JsonRecord(path, "a node", columns)] * kinds.total()
    counts |= not_read("a node", every, _COLUMNS)
    return {"name": path.stem, "nodes": nodes}


def _whole(text: str | None, name: str, where: str) -> int:
    said = (text or "").strip()
    if not (said.isascii() and said.isdecimal() and len(said) <= 15):
        raise ConfigError(f"{where}, column {name}: {text!r} must be a whole number, 0 or more")
    return int(said)


_STATES = ("active", "switching_off", "sleeping", "switching_on")
_OF_PROFILES = ("power", "compute_speed")
_OF_STATES = (*_OF_PROFILES, "can_run_jobs", "transitions")
"""Known fields of a SPARS state.

``can_run_jobs`` and ``compute_speed`` are implied: in hpctwin, only active machines run jobs, at
the speed of their DVFS profile.
"""
_OF_TRANSITIONS = ("state", "transition_time")
_FOLLOWS = dict(zip(_STATES, (*_STATES[1:], _STATES[0]), strict=True))


@check_arguments()
def read_cluster(path: str | Path) -> Cluster:
    """Read a cluster; the suffix of its file gives the format.

    Formats are hpctwin's YAML, SPARS's ``platform.json``, Batsim's XML and Alibaba's CSV.
    `Cluster.notes` lists the fields of the last three that are not read.

    A name without a suffix is a cluster that comes with the package, if there is no such file. It
    is also that cluster if a folder has the same name, such as one with its data set.

    Raises:
        ConfigError: The file cannot be read or is not valid; the message names node and field.
        UnknownNameError: There is neither such a file nor such a cluster.
    """
    name, path = str(path), Path(path)
    if not path.suffix and name and not name.startswith(("/", ".")):
        known = {one.lower() for one in system_names()}
        if not path.exists() or (path.is_dir() and name.lower() in known):
            return read_system(name)
    foreign = {".json": _spars, ".csv": alibaba_nodes}.get(path.suffix)
    if foreign is None and path.suffix != ".xml":
        return Cluster.from_yaml(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text file") from error
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        raise ConfigError(f"{path}: {cause(error)}") from error
    counts: dict[str, int] = {}
    if foreign is None:
        return read_batsim_platform(path, text)
    cluster = Cluster.checked(foreign(path, text, counts), str(path))
    return cluster.noted(ReadNotes(counts))


def _spars(path: Path, text: str, counts: dict[str, int]) -> dict[str, Any]:
    """Read SPARS's ``platform.json``: consecutive equal machines become a node group."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    machines = document.get("machines") if isinstance(document, dict) else None
    if not isinstance(machines, list) or not machines:
        raise ConfigError(f"{path}: no list 'machines'; is this a SPARS platform?")
    groups: list[dict[str, Any]] = []
    for number, machine in enumerate(machines):
        where = f"{path}, machine {number}"
        if not isinstance(machine, dict):
            raise ConfigError(f"{where}: {machine!r} is not an object")
        if machine.get("id") != number:
            raise ConfigError(
                f"{where}: its id is {machine.get('id')!r}; it must be {number}: ids count from "
                "0 in list order"
            )
        group = _spars_machine(machine, where)
        if groups and {**groups[-1], "count": 1, "name": ""} == {**group, "name": ""}:
            groups[-1]["count"] += 1
        else:
            groups.append({**group, "name": f"machines-from-{number}"})
    states = [machine["states"] for machine in machines]
    profiles = [one for machine in machines for one in machine["dvfs_profiles"].values()]
    each = [state[name] for state in states for name in _STATES]
    modes = [machine["dvfs_profiles"][machine["dvfs_mode"]] for machine in machines]
    own = [
        {
            k: v
            for k in _OF_PROFILES
            if (v := state["active"].get(k, mode[k])) not in ("from_dvfs", mode[k])
        }
        for state, mode in zip(states, modes, strict=True)
    ]
    for what, records, known in (
        ("the platform", [document], ("machines",)),
        ("a machine", machines, ("id", "dvfs_profiles", "dvfs_mode", "states")),
        ("a DVFS profile", profiles, _OF_PROFILES),
        ("a machine's states", states, _STATES),
        ("a state", each, _OF_STATES),
        ("an active state, other than from_dvfs", own, ()),
        ("a transition", [t for state in each for t in state["transitions"]], _OF_TRANSITIONS),
    ):
        objects = [JsonRecord(path, what, one) for one in records if isinstance(one, dict)]
        counts |= not_read(what, objects, known)
    return {"name": path.stem, "nodes": groups}


def _spars_machine(machine: dict[str, Any], where: str) -> dict[str, Any]:
    profiles = machine.get("dvfs_profiles")
    if not isinstance(profiles, dict) or not profiles:
        raise ConfigError(f"{where}: 'dvfs_profiles' is missing or empty")
    modes = {
        name: {
            "power_w": _number(profile, "power", f"{where}, dvfs_profiles.{name}"),
            "speed": _number(profile, "compute_speed", f"{where}, dvfs_profiles.{name}"),
        }
        for name, profile in profiles.items()
    }
    mode = machine.get("dvfs_mode")
    if mode not in modes:
        raise ConfigError(
            f"{where}: dvfs_mode {mode!r} is not in dvfs_profiles: {', '.join(modes)}"
        )
    states = machine.get("states")
    if not isinstance(states, dict):
        raise ConfigError(f"{where}: 'states' is missing")
    for name in _STATES:
        if name not in states:
            raise ConfigError(f"{where}: state {name!r} is missing")
    times = {name: _exit_time(states, name, where) for name in _STATES}
    power = {
        name: _number(states[name], "power", f"{where}, states.{name}") for name in _STATES[1:]
    }
    # SPARS adds the time of the step from sleeping to switching on to that of switching on itself.
    return {
        "name": "",
        "count": 1,
        "modes": modes,
        "mode": mode,
        "sleep": [
            {
                "name": "off",
                "power_w": power["sleeping"],
                "switch_off": {"time": times["switching_off"], "power_w": power["switching_off"]},
                "switch_on": {
                    "time": times["sleeping"] + times["switching_on"],
                    "power_w": power["switching_on"],
                },
            }
        ],
    }


def _exit_time(states: dict[str, Any], name: str, where: str) -> float:
    """Return the time of the transition out of a state."""
    where = f"{where}, states.{name}"
    transitions = states[name].get("transitions") if isinstance(states[name], dict) else None
    if not isinstance(transitions, list) or not transitions:
        raise ConfigError(f"{where}: 'transitions' is missing or empty")
    for transition in transitions:
        target = transition.get("state") if isinstance(transition, dict) else None
        if target not in states:
            raise ConfigError(
                f"{where}: a transition leads to {target!r}, which is not a state of this machine"
            )
        if target == _FOLLOWS[name]:
            return _number(transition, "transition_time", f"{where}.transitions")
    raise ConfigError(f"{where}: no transition to {_FOLLOWS[name]!r}")


def _number(record: Any, field: str, where: str) -> float:
    value = record.get(field) if isinstance(record, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{where}: {field} is {value!r}; it must be a number")
    if not value >= 0:
        raise ConfigError(f"{where}: {field} is {value!r}; it must not be negative")
    return float(value)


def read_batsim_platform(path: Path, text: str) -> Cluster:
    """Read a cluster from a platform of Batsim or SimGrid.

    Nodes are in Batsim's order: by name, with numbers in names by value. Consecutive equal hosts
    become a node group. Power states that are not in ``sleep_pstates`` are DVFS modes; speeds are
    relative to the first node's at the beginning. A transition takes the time of one flop in its
    switching state. A power state that lacks a wattage or a speed is ignored.

    Raises:
        ConfigError: The file is not a valid platform; the message names line and tag.
    """
    from hpctwin.formats.simgrid_platform import read_platform

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
