"""What nodes are made of and how they are fed: components, racks, converters, and what these lose."""

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
    """Equal devices of a node: they draw ``idle_w`` when not used, ``max_w`` in full use, linear between.

    Args:
        count: devices in each node.
        idle_w: one draws not used, W.
        max_w: one draws in full use, W; ``idle_w`` if left out.
        uncertainty: relative standard deviation of both, which are unsure each for itself.
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
        """One draws in full use, W."""
        return self.idle_w if self.max_w is None else self.max_w

    def watts(self, use: npt.ArrayLike) -> FloatArray:
        """All of a node's draw at a use from 0 to 1 (their mean), W."""
        part: FloatArray = np.asarray(use, np.float64)
        return self.count * (self.idle_w + part * (self.full_w - self.idle_w))


def node_w(components: Mapping[str, Component], use: float) -> float:
    """What a node draws with all its components at one use from 0 to 1, before conversion, W."""
    return float(sum(component.watts(use) for component in components.values()))


class Converter(Settings):
    """A stage of conversion: to give ``P`` it takes ``(P + constant_w) / efficiency``.

    Args:
        constant_w: lost at any load, W.
        efficiency: of the rest, more than 0 and at most 1.
        curve: efficiency by load, in place of ``efficiency``: pairs of W given and efficiency, by rising
            load; linear between, and the nearest beyond.
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
        """Whether what is taken is linear in what is given."""
        return not self.curve

    def taken(self, given_w: npt.ArrayLike) -> FloatArray:
        """What it takes to give so much, W."""
        given = np.asarray(given_w, np.float64)
        efficiency: float | FloatArray = self.efficiency
        if self.curve:
            loads, values = np.array(self.curve).T
            efficiency = np.interp(given, loads, values)
        found: FloatArray = (given + self.constant_w) / efficiency
        return found


class Racks(Settings):
    """How the nodes of a group stand in chassis and racks, and what feeds and cools these.

    Nodes fill the chassis in order. A chassis feeds its nodes, each through a converter, and its switches by
    rectifiers, which share the load equally. A node that is not there draws nothing.

    Args:
        cdus: coolant distribution units.
        racks_per_cdu: racks that each of them serves.
        missing: numbers, from 0, of racks that are not there.
        chassis_per_rack: chassis in a rack.
        nodes_per_chassis: nodes in a chassis.
        converter: of each node.
        switches: in each chassis.
        switch_w: drawn by one, W.
        rectifiers: in each chassis.
        rectifier: one of them.
        rectifier_load_w: so few rectifiers work that none is loaded above this, W; all if left out.
        cdu_w: drawn by the pumps of one coolant distribution unit, W.
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
        """Racks that are there."""
        return self.cdus * self.racks_per_cdu - len(set(self.missing))

    @property
    def chassis(self) -> int:
        """Chassis that are there."""
        return self.racks * self.chassis_per_rack

    @property
    def places(self) -> int:
        """Nodes for which there is room."""
        return self.chassis * self.nodes_per_chassis

    @property
    def linear(self) -> bool:
        """Whether what a chassis takes is linear in what its nodes take."""
        return self.rectifier.linear and self.rectifier_load_w is None

    @property
    def chassis_of_cdu(self) -> npt.NDArray[np.int64]:
        """The coolant distribution unit of each chassis that is there [chassis]."""
        there = np.setdiff1d(np.arange(self.cdus * self.racks_per_cdu), self.missing)
        return np.repeat(there // self.racks_per_cdu, self.chassis_per_rack)

    def chassis_taken(self, nodes_w: npt.ArrayLike) -> FloatArray:
        """What a chassis takes when its nodes, with their converters, take so much [any shape], W."""
        load = np.asarray(nodes_w, np.float64) + self.switches * self.switch_w
        working: int | FloatArray = self.rectifiers
        if self.rectifier_load_w is not None:
            working = np.clip(np.ceil(load / self.rectifier_load_w), 1, self.rectifiers)
        found: FloatArray = working * self.rectifier.taken(load / working)
        return found
