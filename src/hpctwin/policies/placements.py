"""Placements: on which nodes a job is put."""

from __future__ import annotations

from hpctwin.engine import layout
from hpctwin.policies.registry import Entry, Registry

__all__ = ["PLACEMENTS", "needs_nodes"]

PLACEMENTS: Registry[int] = Registry("placement")
"""By name; made, each is the engine's number of it."""

for _name, _number, _help in (
    ("first-fit", layout.FIRST_FIT, "as many as possible of each pool in turn, the lowest free numbers"),
    ("best-fit", layout.BEST_FIT, "the pool with the fewest sufficient free nodes, the lowest free numbers"),
    ("contiguous", layout.CONTIGUOUS, "the shortest sufficient run of free numbers"),
    ("random", layout.RANDOM, "free nodes drawn with the seed"),
    ("spread", layout.SPREAD, "one by one from the pool with most left, evenly over its free nodes"),
):  # fmt: skip

    def _make(number: int = int(_number)) -> int:
        return number

    PLACEMENTS.register(Entry(_name, _help, _make))


def needs_nodes(placement: str) -> bool:
    """Whether nodes must have identity for it; else it is enough to count them."""
    return placement not in ("first-fit", "best-fit")
