"""Components of nodes and their power supply: racks, converters, and losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from hpctwin.model.input.settings import Settings

__all__ = ["Component", "Converter", "Racks", "Watts", "node_w"]

Watts = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Efficiency = Annotated[float, Field(gt=0, le=1)]
FloatArray = npt.NDArray[np.float64]


class Component(Settings):
    """Equal devices of a node.

    A device draws ``idle_w`` without use and ``max_w`` in full use, and is linear between.

    Args:
        count: Number of devices in each node.
        idle_w: Power draw of one device without use, in W.
        max_w: Power draw of one device in full use, in W; by default ``idle_w``.
        uncertainty: Relative standard deviation of both, which vary independently.
    """

    count: int = Field(default=1, ge=0)
    idle_w: Watts
    max_w: Watts | None = None
    uncertainty: float = Field(default=0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.full_w < self.idle_w:
            raise ValueError(f"max_w is {self.full_w:g}, less than idle_w, {self.idle_w:g}")
        return self

    @property
    def full_w(self) -> float:
        """Power draw of one device in full use, in W."""
        return self.idle_w if self.max_w is None else self.max_w

    def watts(self, use: npt.ArrayLike) -> FloatArray:
        """Return the power draw of a node's devices at a mean use from 0 to 1, in W."""
        part: FloatArray = np.asarray(use, np.float64)
        return self.count * (self.idle_w + part * (self.full_w - self.idle_w))


def node_w(components: Mapping[str, Component], use: float) -> float:
    """Return a node's power draw with all components at one use from 0 to 1, in W.

    Conversion losses are not included.
    """
    return float(sum(component.watts(use) for component in components.values()))


class Converter(Settings):
    """A stage of conversion.

    To supply ``P`` it draws ``(P + constant_w) / efficiency``.

    Args:
        constant_w: Loss at any load, in W.
        efficiency: Efficiency of the rest, more than 0 and at most 1.
        curve: Efficiency by load, instead of ``efficiency``: pairs of W supplied and efficiency, by
            rising load; linear between, and the nearest value beyond.
    """

    constant_w: Watts = 0.0
    efficiency: Efficiency = 1.0
    curve: tuple[tuple[Watts, Efficiency], ...] = ()

    @model_validator(mode="after")
    def _rising(self) -> Self:
        loads = [load for load, _ in self.curve]
        if loads != sorted(set(loads)):
            raise ValueError("curve must be by rising load, each load once")
        if self.curve and self.efficiency != 1:
            raise ValueError("give efficiency or curve, not both")
        return self

    @property
    def linear(self) -> bool:
        """Whether the power drawn is linear in the power supplied."""
        return not self.curve

    def taken(self, given_w: npt.ArrayLike) -> FloatArray:
        """Return the power drawn to supply a power, in W."""
        given = np.asarray(given_w, np.float64)
        efficiency: float | FloatArray = self.efficiency
        if self.curve:
            loads, values = np.array(self.curve).T
            efficiency = np.interp(given, loads, values)
        found: FloatArray = (given + self.constant_w) / efficiency
        return found


class Racks(Settings):
    """Chassis and racks of a group's nodes, with their power supply and cooling.

    Nodes fill the chassis in order. A chassis feeds its nodes, each through a converter, and its
    switches by rectifiers, which share the load equally. A missing node draws nothing.

    Args:
        cdus: Number of coolant distribution units.
        racks_per_cdu: Number of racks that each of them serves.
        missing: Numbers, from 0, of racks that do not exist.
        chassis_per_rack: Number of chassis in a rack.
        nodes_per_chassis: Number of nodes in a chassis.
        converter: Converter of each node.
        switches: Number of switches in each chassis.
        switch_w: Power draw of one switch, in W.
        rectifiers: Number of rectifiers in each chassis.
        rectifier: Conversion of one rectifier.
        rectifier_load_w: Largest load of a rectifier, in W; the fewest rectifiers work that keep
            it. By default all work.
        cdu_w: Power draw of the pumps of one coolant distribution unit, in W.
    """

    cdus: int = Field(default=1, ge=1)
    racks_per_cdu: int = Field(default=1, ge=1)
    missing: tuple[Annotated[int, Field(ge=0)], ...] = ()
    chassis_per_rack: int = Field(default=1, ge=1)
    nodes_per_chassis: int = Field(ge=1)
    converter: Converter = Converter()
    switches: int = Field(default=0, ge=0)
    switch_w: Watts = 0.0
    rectifiers: int = Field(default=1, ge=1)
    rectifier: Converter = Converter()
    rectifier_load_w: float | None = Field(default=None, gt=0)
    cdu_w: Watts = 0.0

    @model_validator(mode="after")
    def _there(self) -> Self:
        places = self.cdus * self.racks_per_cdu
        for rack in self.missing:
            if rack >= places:
                raise ValueError(f"missing rack {rack} is not one of 0 to {places - 1}")
        return self

    @property
    def racks(self) -> int:
        """Number of racks that exist."""
        return self.cdus * self.racks_per_cdu - len(set(self.missing))

    @property
    def chassis(self) -> int:
        """Number of chassis that exist."""
        return self.racks * self.chassis_per_rack

    @property
    def places(self) -> int:
        """Number of nodes that fit."""
        return self.chassis * self.nodes_per_chassis

    @property
    def linear(self) -> bool:
        """Whether the power that a chassis draws is linear in that of its nodes."""
        return self.rectifier.linear and self.rectifier_load_w is None

    @property
    def chassis_of_cdu(self) -> npt.NDArray[np.int64]:
        """Coolant distribution unit of each existing chassis [chassis]."""
        there = np.setdiff1d(np.arange(self.cdus * self.racks_per_cdu), self.missing)
        return np.repeat(there // self.racks_per_cdu, self.chassis_per_rack)

    def chassis_taken(self, nodes_w: npt.ArrayLike) -> FloatArray:
        """Return the power that a chassis draws, in W.

        ``nodes_w`` is the power draw of its nodes with their converters [any shape].
        """
        load = np.asarray(nodes_w, np.float64) + self.switches * self.switch_w
        working: int | FloatArray = self.rectifiers
        if self.rectifier_load_w is not None:
            working = np.clip(np.ceil(load / self.rectifier_load_w), 1, self.rectifiers)
        found: FloatArray = working * self.rectifier.taken(load / working)
        return found
