"""Loads of links in a simulation: in all, and over time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["LinkLoads", "meter_arrays", "read_meter"]

FloatArray = npt.NDArray[np.float64]

_MOST_BINS = 512
_ROUNDING = 1e-6
"""Part of a bin by which times may be off."""
_MOST_CELLS = 1 << 22
"""Bins of all links together, which bounds the memory to 32 MiB."""


def _widths_s() -> FloatArray:
    """Return the widths that bins may have: round numbers, each a multiple of the one before."""
    second = [10.0**power * digit for power in (-3, -2, -1) for digit in (1, 2)]
    clock = [1.0, 2.0, 10.0, 20.0, 60.0, 120.0, 600.0, 1200.0, 3600.0, 7200.0, 21600.0, 43200.0]
    days = [86400.0 * 10.0**power * digit for power in range(10) for digit in (1, 2)]
    return np.array([*second, *clock, *days])


@dataclass(frozen=True, eq=False)
class LinkLoads:
    """Bytes that each link carried.

    Links of kind ``FATPIPE`` limit each flow alone, so that nothing is recorded for them.

    Args:
        begin_s, end_s: The time covered: from the first start of a job on the network on.
        step_s: Width of the bins, in seconds.
        bytes: Bytes that each link carried [links].
        peak: Largest bytes per second [links].
        full_s: Time at full bandwidth, in seconds [links].
        over_time: Bytes that each link carried in each bin [links, bins].
    """

    begin_s: float
    end_s: float
    step_s: float
    bytes: FloatArray
    peak: FloatArray
    full_s: FloatArray
    over_time: FloatArray


def meter_arrays(net: npt.NDArray[Any], hosts: int, links: int) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a meter of links, and set its numbers.

    Args:
        net: Record of the network.
        hosts: Number of hosts, which are the first resources.
        links: Number of links.
    """
    bins = min(_MOST_BINS, max(_MOST_CELLS // max(links, 1), 32))
    net["metered"], net["first_link"], net["bin_count"] = 1, hosts, bins
    names = ("carried", "carried_since", "bytes", "peak", "full")
    return {
        **{name: np.zeros(links) for name in names},
        "bins": np.zeros(links * bins),
        "widths": _widths_s(),
    }


def read_meter(
    net: npt.NDArray[Any], arrays: dict[str, npt.NDArray[Any]], begin_s: float, end_s: float
) -> LinkLoads:
    """Return what a meter has recorded.

    Args:
        net: Record of the network.
        arrays: Its arrays.
        begin_s: Time at which the bins begin.
        end_s: Time until which the meter has recorded.
    """
    step_s = float(arrays["widths"][net["width"][0]])
    used = max(1, math.ceil((end_s - begin_s) / step_s - _ROUNDING))
    over_time = arrays["bins"].reshape(-1, int(net["bin_count"][0]))[:, :used]
    return LinkLoads(
        begin_s, end_s, step_s, arrays["bytes"], arrays["peak"], arrays["full"], over_time
    )
