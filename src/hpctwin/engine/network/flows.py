"""The amounts that flows put on links: sums over the flows of one parallel task."""

from __future__ import annotations

from typing import Any

from hpctwin.engine.compile.jit import Kernel, jit

__all__ = ["ADD_FLOWS"]


@jit
def add_flow(
    amount: float, first: int, last: int, links: Any, fatpipe: Any, sums: Any, used: Any, count: int
) -> int:
    """Add a flow to the sums of its links; return the number of links that are used so far."""
    for i in range(first, last):
        link = links[i]
        if sums[link] == 0.0:
            used[count] = link
            count += 1
        if fatpipe[link]:
            sums[link] = max(sums[link], amount)
        else:
            sums[link] += amount
    return count


def _add_flows(
    places: Any,
    amounts: Any,
    numbers: Any,
    offsets: Any,
    latencies: Any,
    links: Any,
    fatpipe: Any,
    sums: Any,
    used: Any,
    largest: Any,
) -> int:
    count = 0
    ranks = len(places)
    same = len(amounts) == 1
    for i in range(ranks):
        for k in range(ranks):
            amount = amounts[0] if same else amounts[i * ranks + k]
            if amount <= 0.0 or (same and i == k):
                continue
            route = numbers[places[i], places[k]]
            latency = latencies[route]
            largest[0] = max(largest[0], latency)
            largest[1] = max(largest[1], latency * amount)
            first, last = offsets[route], offsets[route + 1]
            count = add_flow(amount, first, last, links, fatpipe, sums, used, count)
    return count


ADD_FLOWS = Kernel(
    _add_flows,
    "int64(int64[::1], float64[::1], int32[:,::1], int64[::1], float64[::1], int32[::1], "
    "bool[::1], float64[::1], int64[::1], float64[::1])",
)
"""Add up the flows of a parallel task; return the number of links that it uses.

``(places, amounts, numbers, offsets, latencies, links, fatpipe, sums, used, largest)``:

- ``places``: row of each rank's host in ``numbers``;
- ``amounts``: bytes [ranks * ranks], or a single number for each pair of ranks;
- ``numbers``: number of the route between two hosts; routes have ``offsets`` into ``links``, and
  ``latencies``;
- ``sums``, ``used``: results, bytes on each link, which are 0 before, and the links;
- ``largest``: results, largest latency, and largest product of latency and bytes.
"""
