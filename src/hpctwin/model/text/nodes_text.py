"""Node numbers as people write them."""

from __future__ import annotations

import re

__all__ = ["parse_nodes"]


def parse_nodes(text: str, count: int) -> list[int]:
    """Node numbers of text such as ``"0-3,7"``, sorted.

    Raises:
        ValueError: the text cannot be read, or a number is not below ``count``.
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
