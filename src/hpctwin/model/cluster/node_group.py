"""Groups of equal nodes: resources, speeds, and power in each power state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from hpctwin.model.cluster.racks import Component, Racks, Watts, node_w
from hpctwin.model.input.settings import Duration, Settings
from hpctwin.model.requests.consumables import GPU_TYPE, Amount, check_names

__all__ = ["LYING", "MOST_NODES", "Mode", "NodeGroup", "Sleep", "Transition"]

LYING = ("sockets", "cores_per_socket", "threads_per_core")
"""Fields on the layout of a node's cores."""
MOST_NODES = 10_000_000
"""Limit for one cluster; the state of each node is held in memory."""

# YAML reads a bare off as a truth value.
SleepName = Annotated[str, BeforeValidator(lambda value: "off" if value is False else value)]


class Transition(Settings):
    """Transition into or out of a sleep state.

    Args:
        time: Duration, seconds or text such as ``"45m"``; it must end.
        power_w: Power draw meanwhile, in W.
    """

    time: Duration = Field(ge=0)
    power_w: Watts


Gpus = Annotated[
    float,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0},
                {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
            ]
        }
    ),
]
"""Number of GPUs, or the number of each type."""

_BOTH_WAYS = "a sleep state needs a way in and a way out, with time and power_w"


class Sleep(Settings):
    """A sleep state.

    Args:
        name: Name such as ``suspend`` or ``off``.
        power_w: Power draw in this state, in W.
        switch_off: Transition into it.
        switch_on: Transition back to where jobs can run.
    """

    name: SleepName = "off"
    power_w: Watts
    switch_off: Transition = Field(description=_BOTH_WAYS)
    switch_on: Transition = Field(description=_BOTH_WAYS)


class Mode(Settings):
    """A DVFS mode.

    Args:
        power_w: Power draw while a job runs, in W.
        speed: Speed relative to the group's.
        idle_w: Power draw while no job runs, in W; by default ``power_w``.
    """

    power_w: Watts
    speed: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    idle_w: Watts | None = None

    @property
    def idle(self) -> float:
        """Power draw while no job runs, in W."""
        return self.power_w if self.idle_w is None else self.idle_w


class NodeGroup(Settings):
    """A group of equal nodes.

    Args:
        name: Name of the group.
        count: Number of nodes, at most 10,000,000.
        cores, gpus, memory_gb: Amounts of each node; if omitted, they are not modeled and any job
            fits. GPUs by type, ``{a100: 2, t4: 4}``, become their number, and consumables
            ``gpu/a100`` and ``gpu/t4``.
        consumables: Other resources of each node that jobs use up, by name: ``{scratch_gb: 800,
            fpga: 2}``.
        features: Other properties of its nodes that jobs may request, by name: models of GPUs,
            networks, …
        sockets, cores_per_socket, threads_per_core: Layout of its cores, if known; jobs may request
            it like features, see `all_features`.
        weight: Rank for shared nodes with the placement ``weight``: nodes with the smallest weight
            come first.
        speed: Speed relative to the cluster on which run times were measured; a job on nodes of
            several speeds runs at the slowest.
        modes: DVFS modes by name; if omitted, the nodes have no power model.
        mode: Mode at the beginning; by default the first one.
        sleep: Sleep states, in the order of their wake-up times; if none, nodes are never switched
            off.
        components: Components of each node, by name (cpu, gpu, memory, nic, …), with their power
            draw by use. They define its mode ``base``: all in full use while a job runs, none while
            idle.
        racks: Power supply of the nodes, and its losses.
    """

    name: str
    count: int = Field(ge=1, le=MOST_NODES)
    cores: float | None = Field(default=None, ge=0)
    gpus: Gpus | None = Field(default=None, ge=0)
    memory_gb: float | None = Field(default=None, ge=0)
    consumables: dict[str, Amount] = Field(default_factory=dict)
    features: tuple[str, ...] = ()
    sockets: int | None = Field(default=None, ge=1)
    cores_per_socket: int | None = Field(default=None, ge=1)
    threads_per_core: int | None = Field(default=None, ge=1)
    weight: float = Field(default=0.0, allow_inf_nan=False)
    speed: float = Field(default=1.0, gt=0)
    modes: dict[str, Mode] = Field(default_factory=dict)
    mode: str = ""
    sleep: tuple[Sleep, ...] = ()
    components: dict[str, Component] = Field(default_factory=dict)
    racks: Racks | None = None

    @model_validator(mode="before")
    @classmethod
    def _by_type(cls, content: Any) -> Any:
        """Return GPUs by type as their number and as consumables."""
        by_type = content.get("gpus") if isinstance(content, Mapping) else None
        if not isinstance(by_type, Mapping):
            return content
        for name, count in by_type.items():
            if isinstance(count, bool) or not isinstance(count, int | float):
                raise ValueError(f"gpus of type {name!r} must be a number of them, such as 2")
            if count < 0:
                raise ValueError(f"gpus: it must be 0 or more, not {count:g} of type {name!r}")
        types = {f"{GPU_TYPE}{name}": count for name, count in by_type.items()}
        others = content.get("consumables") or {}
        return {**content, "gpus": sum(by_type.values()), "consumables": {**others, **types}}

    @model_validator(mode="after")
    def _named(self) -> Self:
        check_names(self.consumables)
        types = {n: count for n, count in self.consumables.items() if n.startswith(GPU_TYPE)}
        for name, count in types.items():
            if count != int(count):
                raise ValueError(
                    f"node group {self.name!r} has {count:g} of {name}; of a type there are whole GPUs only"
                )
        if types and sum(types.values()) > (self.gpus or 0):
            raise ValueError(
                f"node group {self.name!r} has {sum(types.values()):g} GPUs by type, and gpus is "
                f"{self.gpus or 0:g}: say how many of each type alone, such as gpus: {{a100: 2, t4: 4}}"
            )
        return self

    @model_validator(mode="after")
    def _lying(self) -> Self:
        lying = (self.sockets, self.cores_per_socket, self.threads_per_core or 1)
        if self.cores is not None and None not in lying:
            most = math.prod(number or 1 for number in lying)
            if self.cores > most:
                raise ValueError(
                    f"node group {self.name!r} has {self.cores:g} cores, more than its sockets, "
                    f"cores_per_socket and threads_per_core come to ({most:,})"
                )
        return self

    @model_validator(mode="after")
    def _made_of(self) -> Self:
        if self.components:
            base = Mode(power_w=node_w(self.components, 1.0), idle_w=node_w(self.components, 0.0))
            if self.modes not in ({}, {"base": base}):
                raise ValueError(
                    f"node group {self.name!r} has 'components' and 'modes': what a node draws follows from "
                    "its components, so leave 'modes' out"
                )
            object.__setattr__(self, "modes", {"base": base})
        if self.racks is not None:
            if not self.components:
                raise ValueError(
                    f"node group {self.name!r} has 'racks' but no 'components': say what a node is made of, "
                    "such as components: {cpu: {count: 2, idle_w: 50, max_w: 250}}"
                )
            if self.racks.places < self.count:
                raise ValueError(
                    f"node group {self.name!r} has {self.count:,} nodes, and its racks room for "
                    f"{self.racks.places:,}"
                )
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.modes and (self.mode or self.sleep):
            given = "sleep" if self.sleep else "mode"
            raise ValueError(
                f"node group {self.name!r} has {given!r} but no 'modes': say what a node draws on, "
                "such as modes: {base: {power_w: 220, idle_w: 95}}"
            )
        if self.mode and self.mode not in self.modes:
            raise ValueError(
                f"node group {self.name!r}: mode {self.mode!r} is not there; known: {', '.join(self.modes)}"
            )
        names = [state.name for state in self.sleep]
        if len(set(names)) < len(names):
            raise ValueError(f"node group {self.name!r}: two sleep states have one name")
        wakes = [state.switch_on.time for state in self.sleep]
        if wakes != sorted(wakes):
            raise ValueError(
                f"node group {self.name!r}: sleep states must be in the order of the time it takes to "
                "wake from them, the quickest first"
            )
        return self

    def amount(self, name: str) -> float | None:
        """Return each node's amount of a resource; None if not given.

        The resource is ``cores``, ``memory_gb``, ``gpus``, or a consumable.
        """
        if name in ("cores", "memory_gb", "gpus"):
            found: float | None = getattr(self, name)
            return found
        return self.consumables.get(name)

    @property
    def gpu_kinds(self) -> int:
        """Number of kinds of GPUs of its nodes.

        Each type is one kind, and so are all GPUs without type.
        """
        types = [count for n, count in self.consumables.items() if n.startswith(GPU_TYPE) and count]
        return len(types) + ((self.gpus or 0) > sum(types))

    @property
    def all_features(self) -> tuple[str, ...]:
        """Its features, and those of the layout of its cores.

        The latter are ``sockets=2``, ``cores_per_socket=16``, ``threads_per_core=2`` and so on.
        """
        told = [(name, getattr(self, name)) for name in LYING]
        return (
            *self.features,
            *(f"{name}={number}" for name, number in told if number is not None),
        )

    @property
    def first_mode(self) -> str:
        """Name of the mode at the beginning."""
        return self.mode or next(iter(self.modes))

    @property
    def initial(self) -> Mode:
        """Mode at the beginning."""
        return self.modes[self.first_mode]

    @property
    def speed_at_first(self) -> float:
        """Speed in the mode at the beginning."""
        return self.speed * self.initial.speed if self.modes else self.speed

    def by_power(self) -> list[str]:
        """Return the mode at the beginning, and modes with less power, by falling power."""
        less = [name for name, mode in self.modes.items() if mode.power_w < self.initial.power_w]
        return [self.first_mode, *sorted(less, key=lambda name: -self.modes[name].power_w)]
