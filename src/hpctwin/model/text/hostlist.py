"""Node lists: Slurm's form of names, ``n[1-4,7],login2``, and node numbers.

This is own code, one function without a dependency. python-hostlist and ClusterShell give the same
names (a repeated name only once), and take 1.7 and 6 times as long for 9,408 nodes.
"""

from __future__ import annotations

import re

from hpctwin.errors import FormatError

__all__ = ["MOST", "expand", "parse_nodes"]


def parse_nodes(text: str, count: int) -> list[int]:
    """Return the node numbers of text such as ``"0-3,7"``, sorted.

    Raises:
        ValueError: The text cannot be read, or a number is not below ``count``.
    """
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if not match:
            raise ValueError(f"nodes {text!r}: {part!r} is not a number or a range such as 0-127")
        first = int(match[1])
        last = int(match[2] or match[1])
        if last < first or last >= count:
            raise ValueError(f"nodes {text!r}: {part.strip()} is not within 0 to {count - 1}")
        numbers.update(range(first, last + 1))
    return sorted(numbers)


MOST = 1_000_000
"""Largest number of nodes that a list names."""


def expand(text: str) -> list[str]:
    """Return all names, in the order written; ``n[01-03]`` gives n01, n02, n03.

    Raises:
        FormatError: The text cannot be read, or names more than a million nodes.
    """
    names: list[str] = []
    for part in _split(text):
        names += _expand_part(part, text)
        if len(names) > MOST:
            raise FormatError(f"node list {text[:50]!r}… names more than {MOST:,} nodes")
    return names


def _split(text: str) -> list[str]:
    """Split at commas that are not within brackets."""
    parts, depth, begin = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise FormatError(f"node list {text[:50]!r}: brackets do not match")
        if letter == "," and depth == 0:
            parts.append(text[begin:i])
            begin = i + 1
    if depth:
        raise FormatError(f"node list {text[:50]!r}: a bracket is not closed")
    return [part for part in [*parts, text[begin:]] if part]


def _expand_part(part: str, text: str) -> list[str]:
    opening = part.find("[")
    if opening < 0:
        if not re.fullmatch(r"[\w.\-]+", part):
            raise FormatError(f"node list {text[:50]!r}: {part[:50]!r} is not a name")
        return [part]
    closing = part.index("]")
    head, inside, tail = part[:opening], part[opening + 1 : closing], part[closing + 1 :]
    middles: list[str] = []
    for piece in inside.split(","):
        match = re.fullmatch(r"(\d{1,12})(?:-(\d{1,12}))?", piece)
        if not match:
            raise FormatError(f"node list {text[:50]!r}: {piece!r} is not a range of numbers")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first) or int(last) - int(first) >= MOST:
            raise FormatError(f"node list {text[:50]!r}: range {piece!r} is too long or backward")
        middles += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
    tails = _expand_part(tail, text) if tail else [""]
    if len(middles) * len(tails) > MOST:
        raise FormatError(f"node list {text[:50]!r} names more than {MOST:,} nodes")
    return [f"{head}{middle}{end}" for middle in middles for end in tails]
