"""Allocation of a simulation's arrays in memory.

Speeds of nodes in the engine's form.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.state.layout import (
    BITS,
    BLOCK,
    BUCKETS,
    HOLES,
    LAYOUT,
    LISTED,
    SCRATCH,
    SIZES,
    SOON,
    STATE,
    WORDS,
)
from hpctwin.model.text import exact

__all__ = [
    "COUNTED",
    "DERIVED_END",
    "NUMBER",
    "Piece",
    "Shapes",
    "address_of",
    "address_of_own",
    "copied",
    "in_bytes",
    "in_rows",
    "piece_of",
    "scratch_piece",
    "speed_columns",
]


def speed_columns(speeds: Iterable[float]) -> dict[str, list[float]]:
    """Return speeds of pools as fields of `records.Pool`: float and exact fraction."""
    found = [float(speed) for speed in speeds]
    fractions = [exact(speed) for speed in found]
    return {
        "speed": found,
        "top": [fraction.numerator for fraction in fractions],
        "bottom": [fraction.denominator for fraction in fractions],
    }


IntArray = npt.NDArray[np.int64]
Shapes = Mapping[str, tuple[int, ...]]

NUMBER = {name: number for number, name in enumerate(LAYOUT)}
"""Number of each array in the table by which kernels find it."""
_ROWS_TOGETHER = 256  # queues of similar length then share one layout
COUNTED = (
    "amount", "pool", "tells", "whole", "shape", "user_limit", "pool_of", "promised", "tree", "switch",
    "claim", "bound", "window",
)  # fmt: skip
"""Known arrays whose lengths determine the layout of scratch memory."""
DERIVED_END = "plan_time"
"""First array of scratch memory whose content does not outlive a pass."""
_ALIGNMENT = 64
LARGEST_TABLE = 1 << 26
"""Maximum number of cells of a table of free cores by time and node, …"""
WIDEST_TABLE = 512
"""… and maximum number of nodes for which it is faster than lists of reservations."""


def address_of(array: npt.NDArray[Any]) -> int:
    """Return the address of an array; 0 if it has no elements."""
    # Asking for the address takes as long as making a small array.
    return array.ctypes.data if array.size else 0


def address_of_own(array: npt.NDArray[Any]) -> int:
    """Return the address of a writable, non-empty array of numbers.

    It takes a third of the time of `address_of`.
    """
    return ctypes.addressof(ctypes.c_char.from_buffer(array))


def in_bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return the memory of a contiguous array as bytes.

    NumPy copies records one by one, which is ten times as slow.
    """
    return array.reshape(-1).view(np.uint8)


def in_rows(table: npt.NDArray[Any]) -> npt.NDArray[np.void]:
    """Return the memory of a table as bytes, row by row [rows].

    A row can then be filled without a loop over its fields.
    """
    return table.view(_bytes_of_row(table.dtype.itemsize))


@cache
def _bytes_of_row(size: int) -> np.dtype[np.void]:
    return np.dtype((np.void, size))


def copied(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy of a contiguous array."""
    made = np.empty_like(array)
    in_bytes(made)[...] = in_bytes(array)
    return made


class Piece:
    """Arrays one after the other in one piece of memory, so that copying is one copy.

    Args:
        shapes: Shapes of the arrays.
    """

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = dict(shapes)
        self.offsets: dict[str, int] = {}
        size = 0
        words = []
        for name, shape in shapes.items():
            self.offsets[name] = size
            words.append((size, shape[0], shape[1] if len(shape) > 1 else 1))
            length = LAYOUT[name][0].itemsize * prod(shape)
            size += -(-length // _ALIGNMENT) * _ALIGNMENT
        self.size = size
        first = NUMBER[next(iter(shapes))]
        assert [NUMBER[name] for name in shapes] == list(range(first, first + len(shapes)))
        self.numbers = slice(first, first + len(shapes))
        self.words = np.array(words, np.int64)

    def seen(self, memory: npt.NDArray[np.uint8], name: str) -> npt.NDArray[Any]:
        """Return one of the arrays in a piece of memory."""
        dtype = LAYOUT[name][0]
        return np.ndarray(self.shapes[name], dtype, memory, self.offsets[name])

    def describe(self, memory: npt.NDArray[np.uint8], table: IntArray) -> None:
        """Write the descriptors of all arrays."""
        rows = table[self.numbers]
        rows[...] = self.words
        rows[:, 0] += address_of_own(memory) if self.size else 0

    def moved(
        self, before: npt.NDArray[np.uint8], after: npt.NDArray[np.uint8], table: IntArray
    ) -> None:
        """Update the descriptors of all arrays after their piece was copied elsewhere."""
        table[self.numbers, 0] += address_of_own(after) - address_of_own(before)


@lru_cache(maxsize=64)
def piece_of(shapes: tuple[tuple[int, ...], ...]) -> Piece:
    """Return the layout of a state with arrays of these shapes."""
    return Piece(dict(zip(STATE, shapes, strict=True)))


@lru_cache(maxsize=64)
def scratch_piece(
    rows: int,
    jobs: int,
    users: int,
    largest: int,
    lengths: tuple[int, ...],
    amounts: int,
    parts: int,
    *,
    ranked: bool,
    stands: bool,
    planned: int = 0,
    spans: int = 0,
) -> Piece:
    """Return the layout of scratch memory.

    Args:
        rows: Minimum number of rows of a plan.
        jobs: Number of jobs.
        users: Number of users whose running jobs are counted.
        largest: Cores of the largest shared node.
        lengths: Lengths of the known arrays `COUNTED`.
        amounts: Number of amounts of shared nodes, consumables included.
        parts: Maximum number of parts of one job on shared nodes.
        ranked: Whether nodes are scored.
        stands: Whether reservations on whole nodes outlive a pass.
        planned: Number of nodes that are planned as particular nodes; 0 if nodes are only counted.
        spans: Minimum number of spans of such a plan.
    """
    rows = -(-rows // _ROWS_TOGETHER) * _ROWS_TOGETHER
    (
        places,
        pools,
        tells,
        shared,
        shape,
        partitions,
        nodes,
        labels,
        tree,
        switches,
        claims,
        bounds,
        windows,
    ) = lengths
    listed = min(LISTED, largest + 8)
    words = min(-(-shape // BITS), WORDS)
    kept = rows if stands else 0
    holes = min(kept // 4, HOLES)
    tabled = shared <= WIDEST_TABLE and rows * shared <= LARGEST_TABLE
    soon = min(SOON, shape), shared
    shapes = {
        **dict.fromkeys(("race", "walk", "standing", "rooms", "windows"), (1,)),
        **dict.fromkeys(("moves", "near"), (shared,)),
        "soon_of": soon,
        "aligned_at": (shape,),
        "plan_time": (rows,),
        "plan_amount": (rows, places),
        "plan_rows": (1,),
        "shift": (places,),
        "low": (places,),
        "take": (pools,),
        "blocked": (places,),
        "not_before": (places,),
        "reservations_made": (partitions,),
        "order": (jobs + tells,),
        "ranked": (nodes if ranked else 0,),
        "later": (jobs + tells,),
        "stack": (jobs + tells,),
        "owed": (jobs,),
        "levels": (jobs + tells if tells else 0,),
        "fair": (labels + 1,),
        **dict.fromkeys(("standings", "line", "merged"), (tree,)),
        "spare": (pools,),
        **dict.fromkeys(("free_at", "min_free"), (shared, amounts)),
        "fits": (shared,),
        # Twice: placements on empty nodes are computed behind the chosen nodes.
        **dict.fromkeys(("chosen_nodes", "chosen_tasks", "of_kind"), (2 * max(parts, shared),)),
        "seats": (shared, 2),
        "seated": (shared,),
        **dict.fromkeys(("remains", "stays"), (shared, amounts)),
        "under_way": (windows,),
        "open_to": (shared, words),
        "open_block": (-(-shared // BLOCK), words),
        "most": (-(-shared // BLOCK), 3),
        "aligned": (shape,),
        "listed": (shared,),
        **dict.fromkeys(("leaves_at", "leaves_kind", "leaves_tasks"), (shared, listed)),
        "soon": soon,
        "below": (switches, 2),
        "scarce": (shared,),
        **dict.fromkeys(("sum_time", "sums"), (rows if shared else 0,)),
        "free_cores": (rows if tabled else 0, shared),
        **dict.fromkeys(("least_cores", "least_later"), (shared,)),
        "promise_end": (rows if shared else 0,),
        "times": (rows if shared else 0,),
        "racer": (2 << (rows // 2).bit_length(),),
        "fresh": (rows // 4,),
        "path": (128,),
        "group": (max(users, bounds + 1 if bounds else 0),),
        "lightest": (bounds,),
        "back": (64,),
        "ahead": (jobs + tells,),
        "profile": (kept,),
        "where": (kept // 2 + 1,),
        "stay": (kept // 4,),
        "slot": (jobs if stands else 0,),
        "hole": (holes,),
        "room": (SIZES, holes),
        **dict.fromkeys(("shortest", "least_of"), (BUCKETS if stands else 0, SIZES)),
        "reach": (SIZES if stands else 0, BUCKETS),
        "returned": (64 if stands else 0,),
        "victim": (claims,),
        "node_span": (spans,),
        "span_nodes": (spans, -(-planned // BITS)),
        "sets": (4 + pools if planned else 0, -(-planned // BITS)),
        "by_end": (planned,),
        "number_run": (planned // 2 + 1 if planned else 0, 2),
        "clear_until": (planned,),
    }
    assert tuple(shapes) == SCRATCH
    return Piece(shapes)
