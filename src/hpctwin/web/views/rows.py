"""Where the bars of a Gantt chart lie: rows are nodes, in the order of their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["Rows", "Runs", "numbers_of", "runs_of"]

IntArray = npt.NDArray[np.int64]
Runs = tuple[tuple[int, int], ...]


def runs_of(numbers: IntArray) -> Runs:
    """Node numbers, rising, as runs: first, count."""
    if not len(numbers):
        return ()
    begins = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 2) != 1)
    counts = np.diff(begins, append=len(numbers))
    return tuple(zip(numbers[begins].tolist(), counts.tolist(), strict=True))


class Rows:
    """Guesses on which nodes jobs to come will lie: on the lowest that are free by then.

    A simulation of whole nodes counts them where their names make no difference, so which ones a job
    gets is not known; as many as it needs are free when it starts.

    Args:
        free_s: when each node that can be used becomes free, by its number.
    """

    def __init__(self, free_s: Mapping[int, float]) -> None:
        self._free_s = np.full(max(free_s, default=-1) + 1, np.inf)
        self._free_s[list(free_s)] = list(free_s.values())

    def place(self, start_s: float, end_s: float, nodes: int) -> IntArray:
        """The rows of the next job in order of starts; fewer than its nodes if so many are not free."""
        taken = np.flatnonzero(self._free_s <= start_s)[:nodes]
        self._free_s[taken] = end_s
        return taken


def numbers_of(names: Sequence[str], number: Mapping[str, int]) -> list[int]:
    """Numbers of nodes by their names; those that are not known are left out."""
    return [number[name] for name in names if name in number]
