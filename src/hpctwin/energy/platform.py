"""The platform: what nodes draw in each power state, and how long switching takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from hpctwin.errors import ConfigError
from hpctwin.model import Cluster, parse_yaml
from hpctwin.model.cluster import MOST_NODES
from hpctwin.model.units import parse_duration_s

__all__ = ["Mode", "NodePower", "Platform", "Sleep", "Transition"]

Duration = Annotated[
    float, BeforeValidator(lambda value: parse_duration_s(value)), Field(ge=0, allow_inf_nan=False)
]
"""Seconds, or text such as ``"45m"``."""
Watts = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# YAML reads a bare off as a truth value.
SleepName = Annotated[str, BeforeValidator(lambda value: "off" if value is False else value)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Transition(_Model):
    """On the way into or out of a sleep state.

    Args:
        time: how long it takes, seconds or text such as ``"45m"``; it must end.
        power_w: drawn meanwhile, W.
    """

    time: Duration
    power_w: Watts


class Sleep(_Model):
    """A sleep state.

    Args:
        name: such as ``suspend`` or ``off``.
        power_w: drawn meanwhile, W.
        switch_off: the way into it.
        switch_on: the way back to where jobs can run.
    """

    name: SleepName = "off"
    power_w: Watts
    switch_off: Transition
    switch_on: Transition


class Mode(_Model):
    """A DVFS mode.

    Args:
        power_w: drawn while a job runs, W.
        speed: relative to the machine the runtimes were measured on.
        idle_w: drawn while no job runs, W; as ``power_w`` if left out.
    """

    power_w: Watts
    speed: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    idle_w: Watts | None = None

    @property
    def idle(self) -> float:
        """Drawn while no job runs, W."""
        return self.power_w if self.idle_w is None else self.idle_w


class NodePower(_Model):
    """Nodes that are alike.

    Args:
        name: of the node group.
        count: how many nodes.
        modes: DVFS modes by name.
        mode: the mode at the beginning; the first one if left out.
        sleep: sleep states, the one that is quickest to wake from first; none: never switched off.
    """

    name: str
    count: int = Field(ge=1, le=MOST_NODES)
    modes: dict[str, Mode] = Field(min_length=1)
    mode: str = ""
    sleep: tuple[Sleep, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.mode and self.mode not in self.modes:
            raise ValueError(
                f"node group {self.name!r}: mode {self.mode!r} is not there; "
                f"known: {', '.join(self.modes)}"
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

    @property
    def initial(self) -> Mode:
        """The mode at the beginning."""
        return self.modes[self.mode or next(iter(self.modes))]

    def by_power(self) -> list[str]:
        """The mode at the beginning, and those that draw less, the one that draws most first."""
        first = self.mode or next(iter(self.modes))
        less = [name for name, mode in self.modes.items() if mode.power_w < self.initial.power_w]
        return [first, *sorted(less, key=lambda name: -self.modes[name].power_w)]


class Platform(_Model):
    """All nodes of a machine, by group; nodes are numbered from 0 through the groups in order.

    Args:
        name: the name.
        nodes: the groups.
    """

    name: str = "platform"
    nodes: tuple[NodePower, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [group.name for group in self.nodes]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"node group {name!r} is there twice")
        return self

    @property
    def node_count(self) -> int:
        """All nodes."""
        return sum(group.count for group in self.nodes)

    @property
    def depths(self) -> int:
        """The most sleep states a group has."""
        return max(len(group.sleep) for group in self.nodes)

    @classmethod
    def uniform(
        cls,
        nodes: int,
        *,
        active_w: float,
        idle_w: float | None = None,
        sleep_w: float = 0.0,
        off_s: float = 0.0,
        off_w: float = 0.0,
        on_s: float = 0.0,
        on_w: float = 0.0,
        name: str = "platform",
    ) -> Self:
        """Equal nodes with one mode and one sleep state.

        Args:
            nodes: how many.
            active_w: drawn while a job runs, W.
            idle_w: drawn while no job runs, W; as ``active_w`` if left out.
            sleep_w: drawn asleep, W.
            off_s: time to switch off, s.
            off_w: drawn meanwhile, W.
            on_s: time to switch on, s.
            on_w: drawn meanwhile, W.
            name: the platform's name.

        Raises:
            ConfigError: a value is not valid.
        """
        return cls.checked(
            {
                "name": name,
                "nodes": [
                    {
                        "name": "node",
                        "count": nodes,
                        "modes": {"base": {"power_w": active_w, "idle_w": idle_w}},
                        "sleep": [
                            {
                                "power_w": sleep_w,
                                "switch_off": {"time": off_s, "power_w": off_w},
                                "switch_on": {"time": on_s, "power_w": on_w},
                            }
                        ],
                    }
                ],
            },
            "platform",
        )

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a platform: YAML, SPARS's ``platform.json`` or Batsim's XML, by the file's name.

        Raises:
            ConfigError: the file cannot be read or is not valid; the message names node and field.
        """
        from hpctwin.energy.foreign import read_batsim_platform, read_spars_platform

        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}: not a text file ({error.reason})") from error
        if path.suffix == ".json":
            return cls.checked(read_spars_platform(path, text), str(path))
        if path.suffix == ".xml":
            return cls.checked(read_batsim_platform(path, text), str(path))
        return cls.checked(parse_yaml(text, str(path), "nodes"), str(path))

    @classmethod
    def checked(cls, content: dict[str, Any], where: str) -> Self:
        """Make a platform of plain values.

        Raises:
            ConfigError: a value is not valid; the message names ``where`` and the field.
        """
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise ConfigError("\n".join(_faults(error, content, where))) from error

    def cluster(self, base: Cluster | None = None) -> Cluster:
        """The cluster of these nodes, at the speed of their modes.

        Args:
            base: the rest of the cluster; its node groups must have the platform's names and sizes.

        Raises:
            ConfigError: they have not.
        """
        if base is None:
            groups = [
                {"name": group.name, "count": group.count, "speed": group.initial.speed}
                for group in self.nodes
            ]
            return Cluster.model_validate({"name": self.name, "nodes": groups})
        theirs = [(group.name, group.count) for group in base.nodes]
        ours = [(group.name, group.count) for group in self.nodes]
        if [count for _, count in theirs] != [count for _, count in ours] or (
            len(ours) > 1 and theirs != ours
        ):
            raise ConfigError(
                f"platform {self.name!r} has the node groups {_listed(ours)}, cluster {base.name!r} has "
                f"{_listed(theirs)}; they must be the same"
            )
        nodes = tuple(
            group.model_copy(update={"speed": group.speed * power.initial.speed})
            for group, power in zip(base.nodes, self.nodes, strict=True)
        )
        return base.model_copy(update={"nodes": nodes})

    def slowest(self) -> Self:
        """The platform with each group in the mode that draws least."""
        groups = tuple(
            group.model_copy(update={"mode": group.by_power()[-1]}) for group in self.nodes
        )
        return self.model_copy(update={"nodes": groups})

    def state_names(self) -> list[str]:
        """The names of the rows of `watts`: sleeping and switching once for each depth."""
        names = ["idle", "computing"]
        for depth in range(self.depths):
            own = {g.sleep[depth].name for g in self.nodes if len(g.sleep) > depth}
            label = own.pop() if len(own) == 1 else f"depth {depth + 1}"
            names += [f"switching_off:{label}", f"sleeping:{label}", f"switching_on:{label}"]
        return names

    def watts(self) -> npt.NDArray[np.float64]:
        """What each node draws in each state, W [states, nodes]."""
        columns = []
        for group in self.nodes:
            column = [group.initial.idle, group.initial.power_w]
            for depth in range(self.depths):
                if depth < len(group.sleep):
                    state = group.sleep[depth]
                    column += [state.switch_off.power_w, state.power_w, state.switch_on.power_w]
                else:
                    column += [0.0, 0.0, 0.0]
            columns.append(np.repeat(np.array(column)[:, None], group.count, axis=1))
        return np.concatenate(columns, axis=1)

    def group_of_node(self) -> Iterator[NodePower]:
        """The group of each node."""
        for group in self.nodes:
            for _ in range(group.count):
                yield group


def _faults(error: ValidationError, content: dict[str, Any], where: str) -> Iterator[str]:
    """What is wrong, a line for each field; node groups by their names."""
    found = [fault for fault in error.errors() if fault["type"] != "too_short"]
    for fault in found or error.errors():
        place = list(fault["loc"])
        text = fault["msg"].removeprefix("Value error, ")
        if len(place) >= 2 and place[0] == "nodes" and isinstance(place[1], int):
            group = content["nodes"][place[1]]
            name = group.get("name") if isinstance(group, dict) else None
            place[:2] = [f"node group {name!r}" if name else f"nodes[{place[1]}]"]
        if fault["type"] == "missing" and place[-1] in ("switch_on", "switch_off"):
            text = "a sleep state needs a way in and a way out, with time and power_w"
        elif fault["type"] not in ("value_error", "missing"):
            text += f", not {fault['input']!r}"
        field = ".".join(str(part) for part in place)
        yield f"{where}{', ' + field if field else ''}: {text}"


def _listed(groups: list[tuple[str, int]]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in groups)
