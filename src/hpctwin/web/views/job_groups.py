"""Groups of jobs that have a color each in a timeline: by user, wait, size and so on.

The most frequent names have a group each, and all others share one. Waits and sizes have fixed
steps, so that a color means the same on every page.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.model import format_duration

__all__ = ["MOST_GROUPS", "OTHERS", "Groups", "Meaning", "groups_of"]

Meaning = Literal["user", "account", "partition", "wait", "state", "size"]

MOST_GROUPS = 7
"""Number of colors that people can distinguish; the same in static/colours.js."""
OTHERS = MOST_GROUPS
"""Number of the group of all other jobs."""

_WAITS_S = (60.0, 600.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0)
_SIZES = (1, 4, 16, 64, 256, 1024)


class Groups(NamedTuple):
    """Groups of N boxes.

    Args:
        names: Names of the groups, in words.
        number: Group of each box: the index of its name, or `OTHERS` [N].
        ordered: Whether the groups are steps of a quantity.
    """

    names: tuple[str, ...]
    number: npt.NDArray[np.uint8]
    ordered: bool


def groups_of(by: Meaning, values: pl.Series) -> Groups:
    """Return the groups of boxes.

    Args:
        by: Meaning of the groups.
        values: Name, wait in seconds, or number of nodes of each box's job; null if unknown.
    """
    if by == "wait":
        texts = [format_duration(one) for one in _WAITS_S]
        names = (*(f"up to {text}" for text in texts), f"above {texts[-1]}")
        return _steps(values, _WAITS_S, names)
    if by == "size":
        begins = [low + 1 for low in _SIZES]
        spans = [f"{low:,} to {high:,}" for low, high in zip(begins[:-1], _SIZES[1:], strict=True)]
        return _steps(values, _SIZES, ("1 node", *spans, f"above {_SIZES[-1]:,}"))
    named = values.cast(pl.String).replace("", None).alias("name")
    counts = named.drop_nulls().value_counts().sort("count", "name", descending=[True, False])
    names = tuple(counts["name"].head(MOST_GROUPS).to_list())
    number = named.replace_strict(
        {name: i for i, name in enumerate(names)}, default=OTHERS, return_dtype=pl.UInt8
    )
    return Groups(names, number.to_numpy(), ordered=False)


def _steps(values: pl.Series, upto: tuple[float, ...], names: tuple[str, ...]) -> Groups:
    numbers = values.cast(pl.Float64).to_numpy()
    number = np.searchsorted(np.array(upto), numbers, side="left")
    number[np.isnan(numbers)] = OTHERS
    return Groups(names, number.astype(np.uint8), ordered=True)
