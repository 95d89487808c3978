"""Numbers of the nodes that traces name."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hpctwin.errors import FormatError
from hpctwin.model.text.hostlist import MOST, expand

__all__ = ["named_nodes", "numbers_of"]

IntArray = npt.NDArray[np.int64]

_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})")


def numbers_of(recorded: Sequence[str | None] | None, count: int) -> list[IntArray | None]:
    """Return the numbers of recorded nodes, by job; None if there are none.

    There are none if the nodes are unknown or not in the cluster.

    Names that are numbers count from 0, or from 1 if one is as large as the cluster. Other names
    get numbers in their order, if there are at most as many names as nodes.

    Args:
        recorded: Texts such as ``3,4,5``, ``3-5``, ``n17+n18`` or Slurm's ``n[17-18]`` [jobs].
        count: Number of nodes of the cluster.
    """
    if recorded is None:
        return []
    names = [_names(text or "") for text in recorded]
    number = _numbered({name for one in names for name in one}, count)
    if number is None:
        return [None] * len(names)
    found = [np.unique(np.array([number[name] for name in one], np.int64)) for one in names]
    return [one if len(one) and one[0] >= 0 and one[-1] < count else None for one in found]


def _names(text: str) -> list[str]:
    """Return the node names that a text lists; none if it cannot be read."""
    text = text.strip()
    if text[:1] + text[-1:] in ("[]", "()"):
        text = text[1:-1]
    found: list[str] = []
    for part in re.findall(r"[^\s+;'\"]+", text):
        try:
            found += expand(part) if "[" in part else filter(None, part.split(","))
        except FormatError:
            return []
    return [name for one in found for name in _range(one)]


def _range(name: str) -> list[str]:
    """Return the numbers of ``3-5``; any other name as it is."""
    ends = _RANGE.fullmatch(name)
    if ends is None or int(ends[2]) - int(ends[1]) > MOST:
        return [name]
    return [str(number) for number in range(int(ends[1]), int(ends[2]) + 1)]


def _by_number(name: str) -> list[int | str]:
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", name))]


def named_nodes(
    texts: Sequence[str | None], recorded: Sequence[str | None] | None, count: int
) -> list[list[int]]:
    """Return the node numbers in texts, consistent with the jobs' recorded nodes.

    A name in the recorded nodes has its number in `numbers_of`. The other names get the remaining
    numbers, in their order. If there are more names than nodes in the cluster, the last have none.

    Args:
        texts: Texts as in `numbers_of` [texts].
        recorded: Nodes of jobs; None if unknown.
        count: Number of nodes of the cluster.
    """
    names = [_names(text or "") for text in texts]
    known = {name for text in set(recorded or ()) for name in _names(text or "")}
    wanted = {name for one in names for name in one}
    if _all_numbers(known | wanted):
        base = int(max(map(int, known or wanted), default=0) >= count)
        number = {name: int(name) - base for name in wanted}
    else:
        number = _numbered(known, count) or {}
        left = sorted(set(range(count)) - set(number.values()))
        number |= dict(zip(sorted(wanted - set(number), key=_by_number), left, strict=False))
    return [[n for name in one if 0 <= (n := number.get(name, -1)) < count] for one in names]


def _all_numbers(names: set[str]) -> bool:
    return all(name.isdigit() for name in names)


def _numbered(names: set[str], count: int) -> dict[str, int] | None:
    """Return numbers by name; None if there are more names than nodes."""
    if len(names) > count:
        return None
    if not _all_numbers(names):
        return {name: i for i, name in enumerate(sorted(names, key=_by_number))}
    own = {name: int(name) for name in names}
    base = int(max(own.values(), default=0) >= count)
    return {name: value - base for name, value in own.items()}
