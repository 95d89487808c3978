"""Power supply of a cluster: racks, converters, cooling plant and cap."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from hpctwin.errors import ConfigError
from hpctwin.model.settings import Described, Settings

DAY_S = 86_400.0

_MOST_WATTS = 10**15
_POWER = re.compile(r"([0-9.]+)\s*([kM]?)W", re.IGNORECASE)
_WINDOW = re.compile(r"(\d{1,2}):(\d\d)-(\d{1,2}):(\d\d)=(.+)")


@dataclass(frozen=True)
class CapWindow(Described):
    """A time of day with a different cap.

    Args:
        start_s, end_s: Seconds after midnight; the window spans midnight if the end is not after
            the start.
        watts: Cap, in W.
    """

    start_s: float
    end_s: float
    watts: float

    def __post_init__(self) -> None:
        for value in (self.start_s, self.end_s):
            if not 0 <= value <= DAY_S:
                raise ConfigError(f"a time of day is {value!r} s; it must be 0 to 86400")


@dataclass(frozen=True)
class PowerCap(Described):
    """A cap on the total power draw of all nodes.

    Args:
        watts: Cap outside all windows, in W.
        windows: Times of day with other caps.
        lower_modes: Whether DVFS modes are lowered to fit. A job may start if it fits with all node
            groups in their slowest mode; at each event time, the fastest modes that fit are used.
    """

    watts: float
    windows: tuple[CapWindow, ...] = ()
    lower_modes: bool = False

    def __post_init__(self) -> None:
        for value in (self.watts, *(window.watts for window in self.windows)):
            if not 0 < value <= _MOST_WATTS:
                raise ConfigError(
                    f"a power cap is {value!r} W; it must be above 0, and at most {_MOST_WATTS:,} W"
                )

    @classmethod
    def parse(cls, text: str, *, lower_modes: bool = False) -> Self:
        """Read ``20kW``, or ``20kW,22:00-06:00=30kW``.

        Args:
            text: Cap in this form.
            lower_modes: See `PowerCap`.

        Raises:
            ConfigError: The text has another form.
        """
        first, *rest = text.split(",")
        windows = []
        for part in rest:
            match = _WINDOW.fullmatch(part.strip())
            if match is None:
                raise ConfigError(f"power cap {part!r} must be such as 22:00-06:00=30kW")
            hour, minute, to_hour, to_minute = (int(number) for number in match.groups()[:4])
            windows.append(
                CapWindow(
                    3600.0 * hour + 60 * minute, 3600.0 * to_hour + 60 * to_minute, _watts(match[5])
                )
            )
        return cls(_watts(first), tuple(windows), lower_modes)

    @property
    def lowest(self) -> float:
        """Lowest cap of the day, in W."""
        return min(watts for _, watts in self._levels())

    def at(self, time_of_day_s: float) -> float:
        """Return the cap at a time of day, in W: that of the first matching window."""
        for window in self.windows:
            if window.start_s < window.end_s:
                inside = window.start_s <= time_of_day_s < window.end_s
            else:
                inside = time_of_day_s >= window.start_s or time_of_day_s < window.end_s
            if inside:
                return window.watts
        return self.watts

    def _levels(self) -> list[tuple[float, float]]:
        """Return the times of day at which the cap changes, and the new caps.

        The first is midnight.
        """
        times = {0.0}
        for window in self.windows:
            times |= {window.start_s % DAY_S, window.end_s % DAY_S}
        return [(time, self.at(time)) for time in sorted(times)]

    def raised(
        self, start_epoch_s: float | None, until_s: float
    ) -> list[tuple[float, float, float]]:
        """Return start, end and watts above the lowest cap of each raise.

        Start and end are in seconds of simulated time.

        Args:
            start_epoch_s: Unix time of time zero; if unknown, time zero is midnight (UTC).
            until_s: End of the period, in seconds.
        """
        levels = self._levels()
        ends = [*(time for time, _ in levels[1:]), DAY_S]
        midnight = -((start_epoch_s or 0.0) % DAY_S)
        found = []
        for day in range(math.ceil((until_s - midnight) / DAY_S)):
            for (start, level), end in zip(levels, ends, strict=True):
                begin, finish = (max(0.0, midnight + day * DAY_S + time) for time in (start, end))
                if level > self.lowest and finish > begin:
                    found.append((begin, finish, level - self.lowest))
        return found


def _watts(text: str) -> float:
    match = _POWER.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"power {text!r} must be such as 900W, 20kW or 1.5MW")
    try:
        return float(match[1]) * {"": 1.0, "k": 1e3, "m": 1e6}[match[2].lower()]
    except ValueError as error:
        raise ConfigError(f"power {text!r}: {match[1]} is not a number") from error


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
            raise ValueError("curve must have increasing loads, each load once")
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
                raise ValueError(f"missing rack {rack} does not exist; racks are 0 to {places - 1}")
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


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Celsius = Annotated[float, Field(ge=-20, le=70)]


class Cooling(Settings):
    """Water loop from a cluster to evaporative towers; equations in docs/reference/systems.md.

    Args:
        liquid_share: Share of the cluster's heat that the water removes; the rest goes to the air
            of the room.
        air_cop: Heat removed from the room's air per watt of cooling power; by default that power
            is not counted.
        supply_c: Temperature at which the towers keep the supply water if they can, in °C.
        range_k: Temperature rise of the water that the pumps maintain by following the load, in K.
        flow_kg_s: Largest flow of the pumps, in kg/s.
        least_flow: Smallest flow of the pumps, as a share of the largest.
        pump_w: Power draw of the plant's pumps at full flow, in W.
        fan_w: Power draw of the towers' fans at full speed, in W.
        design_heat_w: Heat that the towers reject at the design wet-bulb temperature with full flow
            and full fan speed, if the water leaves at ``supply_c``, in W.
        design_wet_bulb_c: Design wet-bulb temperature, below ``supply_c``, in °C.
        air_kg_s: Air flow of the fans at full speed, in kg/s; by default ``flow_kg_s``.
        water_kg: Water in the loop, in kg.
        cycles: Factor by which salts are concentrated before water is drained.
    """

    liquid_share: float = Field(default=1.0, gt=0, le=1)
    air_cop: Positive | None = None
    supply_c: Celsius
    range_k: Positive
    flow_kg_s: Positive
    least_flow: float = Field(default=0.5, gt=0, le=1)
    pump_w: Watts
    fan_w: Watts
    design_heat_w: Positive
    design_wet_bulb_c: Celsius
    air_kg_s: Positive | None = None
    water_kg: Positive
    cycles: float = Field(default=4.0, gt=1)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.design_wet_bulb_c >= self.supply_c:
            raise ValueError(
                f"design_wet_bulb_c is {self.design_wet_bulb_c:g}; it must be below supply_c, "
                f"{self.supply_c:g}: towers cannot cool water below the wet bulb"
            )
        return self
