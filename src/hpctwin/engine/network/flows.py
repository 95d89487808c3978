"""The amounts that flows put on links: sums over the flows of one parallel task."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpctwin.engine.compile.intrinsics import numbers_at, record_at
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.network.records import numbers_of, reals_of
from hpctwin.engine.state.layout import record_type
from hpctwin.engine.state.records import Int, Real

__all__ = ["ADD_FLOWS", "FLOWS", "Flows"]


class Flows:
    """Routes between hosts: addresses of the descriptors of arrays; and sums over flows."""

    numbers: Int  # [places * places] number of the route from one place to another
    offsets: Int  # [routes + 1] start of each route in ``links``
    latencies: Int  # [routes]
    links: Int
    fatpipe: Int  # [links of the platform] whether a link limits each flow alone
    sums: Int  # [links of the platform] result: bytes on each link; 0 before
    used: Int  # [links of the platform] result: links that are used
    places: Int  # hosts for which there are rows in ``numbers``
    latency: Real  # result: largest latency,
    window: Real  # … and largest product of latency and bytes


FLOWS = record_type(Flows)
_flows_at = record_at(Flows)
_small_at, _flags_at = numbers_at(np.dtype("i4")), numbers_at(np.dtype("i1"))


@jit
def add_flow(route: int, amount: float, used: int, flows: Flows) -> int:
    """Add a flow to the sums of its links; return the number of links that are used so far."""
    links, fatpipe = _small_at(flows.links), _flags_at(flows.fatpipe)
    offsets, sums, listed = numbers_of(flows.offsets), reals_of(flows.sums), numbers_of(flows.used)
    for i in range(offsets[route], offsets[route + 1]):
        link = links[i]
        if sums[link] == 0.0:
            listed[used] = link
            used += 1
        if fatpipe[link] == 1:
            sums[link] = max(sums[link], amount)
        else:
            sums[link] += amount
    return used


def _add_flows(address: int, sources: Any, targets: Any, amounts: Any) -> int:
    flows = _flows_at(address)
    numbers, latencies = _small_at(flows.numbers), reals_of(flows.latencies)
    flows.latency = 0.0
    flows.window = 0.0
    used = 0
    same = len(amounts) == 1
    for i in range(len(sources)):
        amount = amounts[0] if same else amounts[i]
        route = numbers[sources[i] * flows.places + targets[i]]
        flows.latency = max(flows.latency, latencies[route])
        flows.window = max(flows.window, latencies[route] * amount)
        used = add_flow(route, amount, used, flows)
    return used


ADD_FLOWS = Kernel(_add_flows, "int64(int64, int64[::1], int64[::1], float64[::1])")
"""Add up the flows of a parallel task; return the number of links that it uses.

``(address, sources, targets, amounts)``: the places of the hosts that send and receive, and the
bytes of each flow, above 0 [flows]; or one number, [1], for all of them.
"""
