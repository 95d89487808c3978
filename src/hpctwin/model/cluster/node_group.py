"""Groups of equal nodes: resources, speeds, and power in each power state.

Numbers of the nodes that traces name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from hpctwin.errors import FormatError
from hpctwin.model.cluster.power import Component, Racks, Watts, node_w
from hpctwin.model.requests.resources import GPU_TYPE, Amount, check_names
from hpctwin.model.settings import Duration, Settings
from hpctwin.model.text import MOST, expand

IntArray = npt.NDArray[np.int64]

_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})")


def numbers_of(recorded: Sequence[str | None] | None, count: int) -> list[IntArray | None]:
    """Return the numbers of recorded nodes, by job; None if there are none.

    There are none if the nodes are unknown or not in the cluster.

    Names that are numbers count from 0, or from 1 if one is as large as the cluster. Other names
    get numbers in their order, if there are at most as many names as nodes.

    Args:
        recorded: Texts such as ``3,4,5``, ``3-5``, ``n17+n18`` or Slurm's ``n[17-18]`` [jobs].
    """
    if recorded is None:
        return []
    names = [_names(text or "") for text in recorded]
    number = _numbered({name for one in names for name in one}, count)
    if number is None:
        return [None] * len(names)
    found = [np.unique(np.array([number[name] for name in one], np.int64)) for one in names]
    return [one if len(one) and one[0] >= 0 and one[-1] < count else None for one in found]


def _names(text: str) -> list[str]:
    """Return the node names that a text lists; none if it cannot be read."""
    text = text.strip()
    if text[:1] + text[-1:] in ("[]", "()"):
        text = text[1:-1]
    found: list[str] = []
    for part in re.findall(r"[^\s+;'\"]+", text):
        try:
            found += expand(part) if "[" in part else filter(None, part.split(","))
        except FormatError:
            return []
    return [name for one in found for name in _range(one)]


def _range(name: str) -> list[str]:
    """Return the numbers of ``3-5``; any other name as it is."""
    ends = _RANGE.fullmatch(name)
    if ends is None or int(ends[2]) - int(ends[1]) > MOST:
        return [name]
    return [str(number) for number in range(int(ends[1]), int(ends[2]) + 1)]


def _by_number(name: str) -> list[int | str]:
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", name))]


def named_nodes(
    texts: Sequence[str | None], recorded: Sequence[str | None] | None, count: int
) -> list[list[int]]:
    """Return the node numbers in texts, consistent with the jobs' recorded nodes.

    A name in the recorded nodes has its number in `numbers_of`. The other names get the remaining
    numbers, in their order. If there are more names than nodes in the cluster, the last have none.

    Args:
        texts: Texts as in `numbers_of` [texts].
        recorded: Nodes of jobs; None if unknown.
    """
    names = [_names(text or "") for text in texts]
    known = {name for text in set(recorded or ()) for name in _names(text or "")}
    wanted = {name for one in names for name in one}
    if _all_numbers(known | wanted):
        base = int(max(map(int, known or wanted), default=0) >= count)
        number = {name: int(name) - base for name in wanted}
    else:
        number = _numbered(known, count) or {}
        left = sorted(set(range(count)) - set(number.values()))
        number |= dict(zip(sorted(wanted - set(number), key=_by_number), left, strict=False))
    return [[n for name in one if 0 <= (n := number.get(name, -1)) < count] for one in names]


def _all_numbers(names: set[str]) -> bool:
    return all(name.isdecimal() for name in names)


def _numbered(names: set[str], count: int) -> dict[str, int] | None:
    """Return numbers by name; None if there are more names than nodes."""
    if len(names) > count:
        return None
    if not _all_numbers(names):
        return {name: i for i, name in enumerate(sorted(names, key=_by_number))}
    own = {name: int(name) for name in names}
    base = int(max(own.values(), default=0) >= count)
    return {name: value - base for name, value in own.items()}


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

_BOTH_WAYS = "a sleep state needs a transition in and a transition out, each with time and power_w"


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
        min_load_w: Power draw of a node that computes at the smallest load, in W, for jobs that
            share the network; by default ``idle_w``.
    """

    power_w: Watts
    speed: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    idle_w: Watts | None = None
    min_load_w: Watts | None = None

    @property
    def idle(self) -> float:
        """Power draw while no job runs, in W."""
        return self.power_w if self.idle_w is None else self.idle_w

    @property
    def at_min_load(self) -> float:
        """Power draw at the smallest load, in W."""
        return self.idle if self.min_load_w is None else self.min_load_w


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
                raise ValueError(f"gpus of type {name!r} must be a number, such as 2")
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
                    f"node group {self.name!r} has {count:g} of {name}; a GPU type needs "
                    "a whole number"
                )
        if types and sum(types.values()) > (self.gpus or 0):
            raise ValueError(
                f"node group {self.name!r} has {sum(types.values()):g} GPUs by type, but gpus is "
                f"{self.gpus or 0:g}: give only the number of each type, such as gpus: {{a100: "
                "2, t4: 4}"
            )
        return self

    @model_validator(mode="after")
    def _lying(self) -> Self:
        lying = (self.sockets, self.cores_per_socket, self.threads_per_core or 1)
        if self.cores is not None and None not in lying:
            most = math.prod(number or 1 for number in lying)
            if self.cores > most:
                raise ValueError(
                    f"node group {self.name!r} has {self.cores:g} cores, more than sockets × "
                    f"cores_per_socket × threads_per_core ({most:,})"
                )
        return self

    @model_validator(mode="after")
    def _made_of(self) -> Self:
        if self.components:
            base = Mode(power_w=node_w(self.components, 1.0), idle_w=node_w(self.components, 0.0))
            if self.modes not in ({}, {"base": base}):
                raise ValueError(
                    f"node group {self.name!r} has 'components' and 'modes': the components "
                    "define the power draw, so remove 'modes'"
                )
            object.__setattr__(self, "modes", {"base": base})
        if self.racks is not None:
            if not self.components:
                raise ValueError(
                    f"node group {self.name!r} has 'racks' but no 'components': add components, "
                    "such as components: {cpu: {count: 2, idle_w: 50, max_w: 250}}"
                )
            if self.racks.places < self.count:
                raise ValueError(
                    f"node group {self.name!r} has {self.count:,} nodes, but its racks have "
                    f"{self.racks.places:,} places"
                )
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.modes and (self.mode or self.sleep):
            given = "sleep" if self.sleep else "mode"
            raise ValueError(
                f"node group {self.name!r} has {given!r} but no 'modes': add the power draw of a "
                "node, such as modes: {base: {power_w: 220, idle_w: 95}}"
            )
        if self.mode and self.mode not in self.modes:
            raise ValueError(
                f"node group {self.name!r}: unknown mode {self.mode!r}; known: "
                f"{', '.join(self.modes)}"
            )
        names = [state.name for state in self.sleep]
        if len(set(names)) < len(names):
            raise ValueError(f"node group {self.name!r}: two sleep states have the same name")
        wakes = [state.switch_on.time for state in self.sleep]
        if wakes != sorted(wakes):
            raise ValueError(
                f"node group {self.name!r}: sleep states must be sorted by wake-up time, the "
                "shortest first"
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
