"""A cap on what all nodes draw together, as a resource of the engine.

A node that does not compute is counted with the most it draws then; a job is counted with what its nodes
draw above that. So the cap holds at every instant, whatever nodes are switched on or off, and a plan
with reservations knows when it falls.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hpctwin.energy.platform import Platform
from hpctwin.energy.power import PowerPolicy
from hpctwin.engine.layout import COMPUTING, IDLE
from hpctwin.errors import ConfigError
from hpctwin.model import Cluster, Workload, to_ms
from hpctwin.simulation.lower import changes_of

__all__ = ["CapWindow", "PowerCap", "with_cap", "with_cap_windows"]

RESOURCE = "power_w"
DAY_S = 86_400.0
AFTER_S = 30 * DAY_S
"""Raised caps come back each day until so long after the last submission; then the lowest holds."""

_POWER = re.compile(r"([0-9.]+)\s*([kM]?)W", re.IGNORECASE)
_WINDOW = re.compile(r"(\d{1,2}):(\d\d)-(\d{1,2}):(\d\d)=(.+)")


@dataclass(frozen=True)
class CapWindow:
    """A time of day with a cap of its own.

    Args:
        start_s, end_s: seconds after midnight; over midnight if the end is not after the start.
        watts: the cap, W.
    """

    start_s: float
    end_s: float
    watts: float

    def __post_init__(self) -> None:
        for value in (self.start_s, self.end_s):
            if not 0 <= value <= DAY_S:
                raise ConfigError(f"a time of day is {value!r} s, it must be 0 to 86400")


@dataclass(frozen=True)
class PowerCap:
    """What all nodes may draw together.

    Args:
        watts: at times that no window is for, W.
        windows: times of day with other caps.
        lower_modes: whether DVFS modes are lowered to fit: a job may start if it fits with all node groups in
            their slowest mode, and at each instant the fastest modes that fit are taken.
    """

    watts: float
    windows: tuple[CapWindow, ...] = ()
    lower_modes: bool = False

    def __post_init__(self) -> None:
        for value in (self.watts, *(window.watts for window in self.windows)):
            if not (value > 0 and math.isfinite(value)):
                raise ConfigError(f"a power cap is {value!r} W, it must be above 0")

    @classmethod
    def parse(cls, text: str, *, lower_modes: bool = False) -> Self:
        """Read ``20kW``, or ``20kW,22:00-06:00=30kW``.

        Args:
            text: so written.
            lower_modes: as of `PowerCap`.

        Raises:
            ConfigError: it cannot be read so.
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
        """The lowest cap of the day, W."""
        return float(self._levels()[1].min())

    def at(self, time_of_day_s: float) -> float:
        """The cap at a time of day, W: that of the first window it is in."""
        for window in self.windows:
            if window.start_s < window.end_s:
                inside = window.start_s <= time_of_day_s < window.end_s
            else:
                inside = time_of_day_s >= window.start_s or time_of_day_s < window.end_s
            if inside:
                return window.watts
        return self.watts

    def _levels(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """When the cap changes over a day, from midnight, and what it is from then on."""
        times = {0.0}
        for window in self.windows:
            times |= {window.start_s % DAY_S, window.end_s % DAY_S}
        at = np.array(sorted(times))
        return at, np.array([self.at(time) for time in at])

    def raised(
        self, start_epoch_s: float | None, until_s: float
    ) -> list[tuple[float, float, float]]:
        """Start and end in seconds of simulated time, and watts above the lowest cap, of each raise.

        Args:
            start_epoch_s: Unix time of time zero; midnight (UTC) if not known.
            until_s: seconds.
        """
        times, watts = self._levels()
        ends = np.append(times[1:], DAY_S)
        midnight = -((start_epoch_s or 0.0) % DAY_S)
        found = []
        for day in range(math.ceil((until_s - midnight) / DAY_S)):
            for start, end, level in zip(times, ends, watts, strict=True):
                begin, finish = (max(0.0, midnight + day * DAY_S + float(t)) for t in (start, end))
                if level > self.lowest and finish > begin:
                    found.append((begin, finish, float(level) - self.lowest))
        return found


def _watts(text: str) -> float:
    match = _POWER.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"power {text!r} must be such as 900W, 20kW or 1.5MW")
    try:
        return float(match[1]) * {"": 1.0, "k": 1e3, "m": 1e6}[match[2].lower()]
    except ValueError as error:
        raise ConfigError(f"power {text!r}: {match[1]} is not a number") from error


def with_cap(
    workload: Workload, machine: Cluster, platform: Platform, power: PowerPolicy, cap: PowerCap
) -> tuple[Workload, Cluster]:
    """The jobs with what they draw as a resource, and the cluster with the lowest cap of it.

    Raises:
        ConfigError: the cap cannot be kept, or a job alone is above it; the message names it.
    """
    if cap.windows and power.kind in ("psus", "psas-auto"):
        raise ConfigError(
            f"a cap by time of day does not go with power policy {power.kind!r}, whose plan does not know "
            "when jobs begin; take psas-ipm"
        )
    watts = (platform.slowest() if cap.lower_modes else platform).watts()
    # Without power management nodes are never anything but idle and computing.
    rest = watts[[IDLE]] if power.kind == "none" else np.delete(watts, COMPUTING, axis=0)
    floor = rest.max(axis=0)
    above = np.maximum(watts[COMPUTING] - floor, 0.0)
    left = cap.lowest - float(floor.sum())
    if left < 0:
        raise ConfigError(
            f"the power cap of {cap.lowest:,.0f} W is below the {floor.sum():,.0f} W that the "
            f"{platform.node_count} nodes of platform {platform.name!r} may draw when none computes"
        )
    each = math.ceil(float(above.max()))
    needs = workload.nodes * each
    over = np.flatnonzero((needs > left) & (workload.nodes <= platform.node_count))
    if len(over):
        job = int(over[0])
        raise ConfigError(
            f"job {workload.job_id[job]} on {workload.nodes[job]} nodes draws {needs[job]:,} W above what "
            f"idle nodes may draw; the power cap leaves {left:,.0f} W, so it could never start. For all jobs "
            f"the cap must be {floor.sum() + needs[over].max():,.0f} W or more"
        )
    needs = np.minimum(needs, math.floor(left))  # too wide for the machine: rejected for that
    return (
        workload.replace(resources={**workload.resources, RESOURCE: needs}),
        machine.model_copy(update={"resources": {**machine.resources, RESOURCE: math.floor(left)}}),
    )


def with_cap_windows(
    known: Mapping[str, npt.NDArray[Any]], machine: Cluster, workload: Workload, cap: PowerCap
) -> dict[str, npt.NDArray[Any]]:
    """What the engine knows, with the times at which the cap is higher than at its lowest."""
    last_s = float(workload.submit_ms.max(initial=0)) / 1000 + AFTER_S
    column = len(known["pool"]) + list(machine.resources).index(RESOURCE)
    rows = [
        (to_ms(start), to_ms(end), column, -math.floor(more))
        for start, end, more in cap.raised(workload.start_epoch_s, last_s)
    ]
    windows = np.concatenate([known["window"], np.array(rows, known["window"].dtype)])
    return {**known, "window": windows, "change": changes_of(windows)}
