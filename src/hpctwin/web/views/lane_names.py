"""Names of a timeline's lanes: nodes, and the racks or switches that they stand at."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt

__all__ = ["LaneNames"]

MOST_NODES = 80
"""Maximum number of nodes whose names are sent; more do not fit on a screen."""
MOST_PLACES = 300

Label = tuple[int, int, str]


class LaneNames:
    """Names of lanes.

    Args:
        names: Names of the nodes.
        places: Place of each node, such as a rack.
        lanes: Number of lanes of each node.
    """

    def __init__(
        self, names: Sequence[str], places: Sequence[str], lanes: npt.NDArray[np.int64]
    ) -> None:
        self._names = names
        self._ends = np.cumsum(lanes)
        self._first = self._ends - lanes
        runs = [(place, len(list(nodes))) for place, nodes in groupby(places)]
        last = np.cumsum([count for _, count in runs])
        self._places: list[Label] = [
            (
                int(self._first[end - count]),
                int(self._ends[end - 1] - self._first[end - count]),
                place,
            )
            for (place, count), end in zip(runs, last.tolist(), strict=True)
        ]

    def at(self, lane: int) -> str:
        """Return the name of a lane's node; empty if there is none."""
        node = int(np.searchsorted(self._ends, lane, side="right"))
        return self._names[node] if node < len(self._names) else ""

    def labels(self, top: float, bottom: float) -> dict[str, list[Label]]:
        """Return first lane, number of lanes and name of nodes and places in a window.

        Of many nodes, some at equal distances have a name. There are no places if they are too many
        for a screen, or only one.
        """
        begin, end = np.searchsorted(self._ends, [top, bottom], side="right").tolist()
        end = min(end + 1, len(self._names))
        step = -(-(end - begin) // MOST_NODES) or 1
        nodes = [
            (int(self._first[i]), int(self._ends[i] - self._first[i]), self._names[i])
            for i in range(begin, end, step)
        ]
        places = [one for one in self._places if one[0] < bottom and one[0] + one[1] > top]
        if len(self._places) == 1 or len(places) > MOST_PLACES:
            places = []
        return {"nodes": nodes, "places": places}
