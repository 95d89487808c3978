"""Platforms as SPARS and Batsim write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from hpctwin.errors import ConfigError

__all__ = ["read_batsim_platform", "read_spars_platform"]

_STATES = ("active", "switching_off", "sleeping", "switching_on")
_FOLLOWS = {
    "active": "switching_off",
    "switching_off": "sleeping",
    "sleeping": "switching_on",
    "switching_on": "active",
}


def read_spars_platform(path: Path, text: str) -> dict[str, Any]:
    """SPARS's ``platform.json``: equal machines that follow each other become a node group.

    Raises:
        ConfigError: the file is not such a file; the message names machine and field.
    """
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
                f"{where}: its id is {machine.get('id')!r}, it must be {number}: machines are numbered "
                "from 0 in the order of the list"
            )
        group = _spars_machine(machine, where)
        if groups and {**groups[-1], "count": 1, "name": ""} == {**group, "name": ""}:
            groups[-1]["count"] += 1
        else:
            groups.append({**group, "name": f"machines-from-{number}"})
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
    """The time of the transition out of a state."""
    where = f"{where}, states.{name}"
    transitions = states[name].get("transitions") if isinstance(states[name], dict) else None
    if not isinstance(transitions, list) or not transitions:
        raise ConfigError(f"{where}: no way out: 'transitions' is missing or empty")
    for transition in transitions:
        target = transition.get("state") if isinstance(transition, dict) else None
        if target not in states:
            raise ConfigError(
                f"{where}: a transition leads to {target!r}, which is no state of this machine"
            )
        if target == _FOLLOWS[name]:
            return _number(transition, "transition_time", f"{where}.transitions")
    raise ConfigError(f"{where}: no transition to {_FOLLOWS[name]!r}")


def _number(record: Any, field: str, where: str) -> float:
    value = record.get(field) if isinstance(record, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{where}: {field} is {value!r}, it must be a number")
    if not value >= 0:
        raise ConfigError(f"{where}: {field} is {value!r}, it must not be negative")
    return float(value)


def read_batsim_platform(path: Path, text: str) -> dict[str, Any]:
    raise ConfigError(str(path))
