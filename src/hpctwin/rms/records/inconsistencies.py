"""Nodes of which jobs hold otherwise than the resource manager says."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Doubts"]

LASTING_S = 10.0
"""A node that is doubtful for so long is not known well enough to act on.

Jobs and nodes are asked for one after the other, and a job that completes gives back node by node.
"""


class Doubts:
    """Since when which nodes have been doubtful, and why.

    One that differs otherwise than at the last look is doubtful since now: where jobs come and go, each look
    has some whose job began or ended just then.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._differs: dict[str, str] = {}
        self._seen_s = 0.0

    def seen(self, differs: Mapping[str, str], now_s: float) -> None:
        """These are doubtful now, and no others.

        Args:
            differs: how, by name.
            now_s: the present.
        """
        same = {name for name, how in differs.items() if self._differs.get(name) == how}
        self._since = {name: self._since[name] if name in same else now_s for name in differs}
        self._differs = dict(differs)
        self._seen_s = now_s

    def lasting(self) -> set[str]:
        """Those that had been for some time when they were last seen."""
        return {n for n, since_s in self._since.items() if self._seen_s - since_s >= LASTING_S}
