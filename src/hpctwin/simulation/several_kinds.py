"""Jobs whose tasks are of several kinds, in the engine's form; see docs/engine.md, "Shared nodes"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.model.chunks import read_more_tasks

__all__ = ["Further", "kinds_fit", "tasks_in", "with_more"]

IntArray = npt.NDArray[np.int64]

Further = Sequence[tuple[int, list[int]]]
"""Of each further kind of a job's tasks how many there are, and what each asks in the engine's units."""


def tasks_in(text: str, units: Mapping[str, int]) -> Further:
    """The further kinds of tasks that text tells of; amounts are rounded up.

    Args:
        text: see `read_more_tasks`.
        units: the engine's in one of ours, by the amount's name, in the engine's order.
    """
    return [
        (kind.tasks, [int(np.ceil((getattr(kind, name) - 1e-6) * n)) for name, n in units.items()])
        for kind in read_more_tasks(text)
    ]


def with_more(
    shape: npt.NDArray[Any],
    needs: IntArray,
    several: IntArray,
    further: Sequence[Further],
    nodes: int,
) -> tuple[npt.NDArray[Any], IntArray, IntArray]:
    """Kinds of jobs, and after them those of their further tasks, each of which the one before it names.

    Args:
        shape: of kinds of jobs, with what the first of their tasks are [kinds].
        needs: what one of these asks [kinds, 4].
        several: row of ``further``; -1 where all tasks are of one kind [kinds].
        further: the other kinds of tasks.
        nodes: of the machine.

    Returns:
        Shapes and needs of all, and the kind of job that each belongs to.
    """
    kinds = len(shape)
    each = [0 if row < 0 else len(further[row]) for row in several.tolist()]
    of = np.repeat(np.arange(kinds), each)
    shape = np.concatenate([shape, shape[of]])
    shape["popularity"][kinds:] = 0
    asked = [amounts for row in several.tolist() if row >= 0 for _, amounts in further[row]]
    last = kinds
    for row in np.flatnonzero(several >= 0).tolist():
        before = row
        for count, _ in further[several[row]]:
            shape["more"][before] = before = last
            shape["tasks"][last] = count
            shape["parts"][row] += min(count, nodes)
            last += 1
    more = np.ones((len(of), needs.shape[1]), np.int64)
    more[:, :-1] = np.array(asked, np.int64).reshape(len(of), needs.shape[1] - 1)
    return shape, np.concatenate([needs, more]), np.concatenate([np.arange(kinds), of])


def kinds_fit(
    kind: int, shape: npt.NDArray[Any], needs: IntArray, whole: IntArray, eligible: IntArray
) -> bool:
    """Whether tasks of several kinds fit a machine, empty: one kind after the other, nodes by number.

    Args:
        kind: that of the job.
        shape: as of `with_more`.
        needs: as of `with_more`.
        whole: what each node has [nodes, 4].
        eligible: which nodes it may use [nodes].
    """
    left, seated = whole.copy(), np.zeros(len(whole), np.int64)
    while kind >= 0:
        room = shape["most"][kind] - seated
        for c in range(needs.shape[1] - 1):
            if needs[kind, c] > 0:
                room = np.minimum(room, left[:, c] // needs[kind, c])
        room = np.where(eligible != 0, np.maximum(room, 0), 0)
        given = np.clip(shape["tasks"][kind] - (np.cumsum(room) - room), 0, room)
        if given.sum() < shape["tasks"][kind]:
            return False
        left -= given[:, None] * needs[kind]
        seated += given
        kind = int(shape["more"][kind])
    return True
