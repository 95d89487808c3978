"""Nodes that are up, over time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.engine.state.sim import Sim
from hpctwin.model import MS_PER_S

__all__ = ["capacity_over_time"]

IntArray = npt.NDArray[np.int64]


def capacity_over_time(
    known: Mapping[str, Any] | Sim,
    outages: tuple[IntArray, IntArray, IntArray],
    worth: IntArray | None = None,
) -> pl.DataFrame:
    """Return the nodes that are neither in maintenance nor failed, as a step function.

    Args:
        known: Pools and maintenance windows, in the engine's form.
        outages: Node, start and end (ms) of each failure.
        worth: Amount that a node of each pool counts [pools]; 1 by default.

    Returns:
        ``time_s``, ``nodes``; the first row holds from the beginning.
    """
    node, start, end = outages
    pools = len(known["pool"])
    window = known["window"]
    amount = known["amount"][:pools]
    if worth is None:
        worth = np.ones(pools, np.int64)
    else:
        amount = amount * worth
    total = int(amount.sum())
    if not len(window) and not len(node):
        return _always(total)
    away = [
        (int(p), *span)
        for p in range(pools)
        for span in _union(
            window["start"][window["pool"] == p],
            window["end"][window["pool"] == p],
        )
    ]
    times = [0]
    changes = [total]
    for p, begins, ends in away:
        times += [begins, ends]
        changes += [-int(amount[p]), int(amount[p])]
    for one in np.unique(node):
        pool = known["pool_of"][one]
        gone = [(begins, ends) for p, begins, ends in away if p == pool]
        mine = node == one
        for begins, ends in _union(start[mine], end[mine]):
            for free_from, free_to in _without(begins, ends, gone):
                times += [free_from, free_to]
                changes += [-int(worth[pool]), int(worth[pool])]
    order = np.argsort(times, kind="stable")
    at, first = np.unique(np.array(times)[order], return_index=True)
    level = np.add.reduceat(np.array(changes)[order], first).cumsum()
    return pl.DataFrame({"time_s": at / MS_PER_S, "nodes": level})


@lru_cache(maxsize=64)
def _always(nodes: int) -> pl.DataFrame:
    return pl.DataFrame({"time_s": [0.0], "nodes": [nodes]})


def _union(start: IntArray, end: IntArray) -> list[tuple[int, int]]:
    """Return the union of intervals that overlap or touch, sorted."""
    spans: list[tuple[int, int]] = []
    for begins, ends in sorted(zip(start.tolist(), end.tolist(), strict=True)):
        if spans and begins <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], ends))
        else:
            spans.append((begins, ends))
    return spans


def _without(begins: int, ends: int, gone: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of an interval outside other, sorted and separate intervals."""
    parts = []
    for gone_from, gone_to in gone:
        if gone_to <= begins or gone_from >= ends:
            continue
        if gone_from > begins:
            parts.append((begins, gone_from))
        begins = gone_to
    if begins < ends:
        parts.append((begins, ends))
    return parts
