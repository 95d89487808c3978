"""Nodes of which jobs hold otherwise than the resource manager says."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Doubts"]

LASTING_S = 10.0
"""A node that is doubtful for so long is not known well enough to act on.

Jobs and nodes are asked for one after the other, and a job that completes gives back node by node.
"""


class Doubts:
    """Since when which nodes have been doubtful."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def seen(self, names: Iterable[str], now_s: float) -> None:
        """These are doubtful now, and no others."""
        self._since = {name: self._since.get(name, now_s) for name in names}

    def lasting(self, now_s: float) -> set[str]:
        """Those that have been for some time."""
        return {name for name, since_s in self._since.items() if now_s - since_s >= LASTING_S}
