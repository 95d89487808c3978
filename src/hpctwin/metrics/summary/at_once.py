"""A run in whole milliseconds, summed up in one call of the engine: what `running.RunningSummary` finds."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.engine.summary.exact_sums import LIMBS
from hpctwin.engine.summary.level_sums import HIGH_BITS, SUMS
from hpctwin.engine.summary.run_summary import (
    BINS,
    COUNTS,
    FIRST,
    LAST,
    LEVELS,
    LONGEST,
    SHARES,
    STATES,
    SUM_UP,
    USERS,
    USERS_AT,
)
from hpctwin.metrics.jobs.jobs import ROWS, TAU_S
from hpctwin.metrics.summary.running import in_vain
from hpctwin.metrics.summary.sources import LABELS, JobsInMs
from hpctwin.metrics.summary.sums import ExactSum
from hpctwin.metrics.summary.totals import SPREAD_ROWS, Totals
from hpctwin.metrics.time.levels import CHANGES, KIND_BITS, floats, other_keys, room_ms
from hpctwin.metrics.time.over_time import whole_capacity
from hpctwin.model import MS_PER_S

__all__ = ["totals_at_once"]

IntArray = npt.NDArray[np.int64]


def totals_at_once(jobs: JobsInMs, lost: pl.DataFrame, capacity: pl.DataFrame) -> Totals | None:
    """Sum up a run.

    Args:
        jobs: the jobs.
        lost: attempts that were cut off.
        capacity: nodes that are up, as a step function.

    Returns:
        None if a time is no whole millisecond, or too late for an event to be one number.
    """
    beside = _beside(jobs.nodes, lost, capacity)
    if beside is None:
        return None
    keys, node_bits, up = beside
    size, users = len(jobs), len(jobs.user.labels)
    table = np.empty((len(ROWS) + 1, max(size, 2)))
    counts = np.zeros(COUNTS, np.int64)
    told = np.empty(USERS_AT + users)
    summed = SUM_UP(
        jobs.submit,
        jobs.eligible,
        jobs.start,
        jobs.end,
        jobs.nodes,
        jobs.state,
        jobs.user.codes if users else _NOBODY,
        keys,
        np.array((node_bits, KIND_BITS)),
        CHANGES,
        *up,
        room_ms(node_bits),
        TAU_S,
        table,
        table.reshape(-1).view(np.int64),
        np.empty(size, np.bool_),
        np.empty(2 * (3 * size + len(keys)) + 2 * BINS, np.int64),
        np.zeros((len(ROWS) + users) * LIMBS, np.int64),
        np.zeros(users, np.int64),
        counts,
        told,
    )
    return _totals(counts.tolist(), told.tolist(), size, lost) if summed else None


def _beside(
    nodes: IntArray, lost: pl.DataFrame, capacity: pl.DataFrame
) -> tuple[IntArray, int, tuple[IntArray, IntArray]] | None:
    """Events that are none of jobs, how many bits of one are nodes, and how many are up from when, ms.

    Returns:
        None if a time is no whole ms, or a number of nodes is none.
    """
    if not len(lost) and len(capacity) == 1 and not (up := capacity.item(0, "nodes")) % 1:
        return _NOTHING, int(nodes.max(initial=0)).bit_length(), _always(int(up))
    steps = whole_capacity(capacity)
    others = other_keys(nodes, lost, floats(capacity, "time_s"))
    return None if steps is None or others is None else (*others, steps)


@lru_cache(maxsize=64)
def _always(nodes: int) -> tuple[IntArray, IntArray]:
    """So many nodes are up at all times; nobody writes it."""
    return np.zeros(1, np.int64), np.array([nodes])


_NOTHING: IntArray = np.zeros(0, np.int64)
_NOBODY: npt.NDArray[np.int32] = np.zeros(0, np.int32)


def _totals(counts: list[int], told: list[float], size: int, lost: pl.DataFrame) -> Totals:
    """What the engine told, by name."""
    states = {label: count for label, count in zip(LABELS, counts[:STATES], strict=True) if count}
    rows, sums = counts[STATES:FIRST], counts[LEVELS:]
    vain_node_s = 0.0
    if len(lost):
        vain = ExactSum()
        vain.add(in_vain(lost))
        vain_node_s = vain.total()
    each = len(SHARES) + 1
    none: list[float | None] = [None] * each
    spreads = [
        told[at : at + each] if rows[row] else none
        for row, at in zip(SPREAD_ROWS, range(len(ROWS), USERS_AT, each), strict=True)
    ]
    return Totals(
        states=states,
        counts=rows,
        means=told[: len(ROWS)],
        quantiles=[one[:-1] for one in spreads],
        largest=[one[-1] for one in spreads],
        first_s=counts[FIRST] / MS_PER_S if size else None,
        last_s=counts[LAST] / MS_PER_S if counts[LAST] >= 0 else None,
        over_time={
            name: (sums[2 * i] << HIGH_BITS) + sums[2 * i + 1] for i, name in enumerate(SUMS)
        },
        longest=counts[LONGEST],
        lost_node_s=vain_node_s,
        by_user=told[USERS_AT : USERS_AT + counts[USERS]],
    )
