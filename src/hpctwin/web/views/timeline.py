"""Jobs on nodes over time for a browser: boxes, or the covered share of each pixel.

A year of a large cluster has a million jobs, and a screen a million pixels. So the amount of data
follows the pixels, not the jobs. If the window has at most `MOST_BOXES` boxes, they are sent as
they are, in groups for colors. Otherwise each pixel is sent as the exact share of it that jobs
cover.

The data are columns of numbers as bytes, for typed arrays in a browser. The format is four bytes
with the length of a JSON head, the head, then the columns. Each column begins at a multiple of
eight bytes; all numbers are little-endian. The head's ``columns`` gives the name, type (``u1``,
``i4``, ``f8``), length and offset after the head of each column.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.web.views.job_list import Groups, Meaning, groups_of

__all__ = [
    "FORECAST",
    "MEDIA_TYPE",
    "MOST_BOXES",
    "RAN",
    "RUNS",
    "Box",
    "LaneNames",
    "Timeline",
    "Window",
    "packed",
]

MOST_NODES = 80
"""Maximum number of nodes whose names are sent; more do not fit on a screen."""
MOST_PLACES = 300

Label = tuple[int, int, str]


class LaneNames:
    """Names of lanes."""

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


MEDIA_TYPE = "application/octet-stream"
_ALIGNED = 8
_TYPES = ("u1", "i4", "f8")


def packed(head: Mapping[str, Any], columns: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return a head and its columns as bytes.

    Args:
        head: Further content of the head, for JSON.
        columns: Arrays of one of the three types.
    """
    told, parts, place = [], [], 0
    for name, values in columns.items():
        kind = values.dtype.str[1:]
        assert kind in _TYPES, kind
        content = values.astype(f"<{kind}", copy=False).tobytes()
        told.append({"name": name, "type": kind, "length": len(values), "at": place})
        content += bytes(-len(content) % _ALIGNED)
        parts.append(content)
        place += len(content)
    text = json.dumps({**head, "columns": told}, separators=(",", ":")).encode()
    text += b" " * (-(4 + len(text)) % _ALIGNED)
    return b"".join([len(text).to_bytes(4, "little"), text, *parts])


FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

RAN, RUNS, FORECAST = 0, 1, 2
KINDS = ("ran", "runs", "forecast")
MOST_BOXES = 8000
MOST_NAMED = 1500
"""Maximum number of boxes that are sent with their job ids."""
_LEVELS = 255
"""Number of steps of a pixel's share."""


class Window(NamedTuple):
    """The visible part of a timeline.

    Args:
        from_s, to_s: Time range, in seconds, the first before the second.
        top, bottom: Range of lanes, the first above the second.
        width, height: Size in pixels, 1 or more.
    """

    from_s: float
    to_s: float
    top: float
    bottom: float
    width: int
    height: int


@dataclass(frozen=True)
class Box:
    """A job on some contiguous lanes.

    Args:
        job: Id of the job.
        kind: ``ran``, ``runs`` or ``forecast``.
        start_s, end_s: Start and end, in seconds.
        first, count: First lane and number of lanes.
        lanes: Number of all lanes of the job at that time, including other boxes.
        where: Name of the first node; empty if unknown.
    """

    job: str
    kind: str
    start_s: float
    end_s: float
    first: int
    count: int
    lanes: int
    where: str


@dataclass(frozen=True, eq=False)
class Timeline:
    """Boxes of jobs (N of them).

    Args:
        job: Ids of jobs, whole numbers or texts [N].
        start_s, end_s: Starts and ends, in seconds [N].
        first, count: First lanes and numbers of lanes [N].
        kind: `RAN`, `RUNS` or `FORECAST` [N].
        lanes: Number of lanes of the timeline.
        about: Function that returns what groups are made by, as for `groups_of` [N]; None if
            nothing is known of the jobs.
        names: Names of the lanes; None if they are invented.
        within_s: Earliest and latest forecast of each start, in seconds; NaN without one [2, N].
    """

    job: npt.NDArray[Any]
    start_s: FloatArray
    end_s: FloatArray
    first: IntArray
    count: IntArray
    kind: npt.NDArray[np.uint8]
    lanes: int
    about: Callable[[Meaning], pl.Series] | None = None
    names: LaneNames | None = None
    within_s: FloatArray | None = None
    _order: IntArray = field(init=False, repr=False)
    _made: dict[Window, bytes] = field(default_factory=dict, init=False, repr=False)
    _groups: dict[tuple[Meaning, str | None], Groups] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        order = np.argsort(self.start_s, kind="stable")
        object.__setattr__(self, "_order", order)
        for name in ("job", "start_s", "end_s", "first", "count", "kind"):
            object.__setattr__(self, name, getattr(self, name)[order])
        if self.within_s is not None:
            object.__setattr__(self, "within_s", self.within_s[:, order])

    def groups(self, by: Meaning, only: str | None = None) -> Groups:
        """Return the groups of the boxes, in the order of their starts; see `picture`."""
        if (by, only) not in self._groups:
            values = pl.Series([None] * len(self.job)) if self.about is None else self.about(by)
            if only is not None and by in ("user", "account") and self.about is not None:
                own = (self.about("user") == only) & (only != "")
                values = pl.select(pl.when(own).then(values)).to_series()
            found = groups_of(by, values)
            self._groups[by, only] = found._replace(number=found.number[self._order])
        return self._groups[by, only]

    def prepare(self, whole: Window) -> bool:
        """Prepare the first picture; return whether it is kept.

        Args:
            whole: Window of the first picture. The picture is kept if it is slow because of many
                jobs.
        """
        if len(self._within(whole)) > MOST_BOXES:
            self._made[whole] = self.picture(whole)
        return whole in self._made

    def picture(self, window: Window, by: Meaning = "user", *, only: str | None = None) -> bytes:
        """Return the content of a window, for `static/gantt.js`; columns as of `packed`.

        The head has the window's ``from_s``, ``to_s``, ``top`` and ``bottom``, the ``labels`` of
        its lanes, and ``boxes``. If that is true, the columns are ``start`` and ``end`` (seconds
        after ``from_s``), ``first``, ``count``, ``group`` and ``kind``, and for forecasts ``low``
        and ``high``; ``jobs`` has the ids if there are few, ``legend`` the names of the groups, and
        ``ordered`` is whether they are steps. Otherwise the head has ``width`` and ``height``, and
        the column ``cells`` has the share of each pixel in row order, in 255 steps.

        Args:
            window: The window.
            by: Meaning of the groups.
            only: The only user whose jobs are in groups of users and accounts; None for all.
        """
        if window in self._made:
            return self._made[window]
        rows = self._within(window)
        where = {name: getattr(window, name) for name in ("from_s", "to_s", "top", "bottom")}
        if self.names is not None:
            where["labels"] = self.names.labels(window.top, window.bottom)
        if len(rows) > MOST_BOXES:
            cells = self._cells(rows, window)
            size = {"width": window.width, "height": window.height}
            return packed({**where, **size, "boxes": False}, {"cells": cells})
        few, groups = len(rows) <= MOST_NAMED, self.groups(by, only)
        columns: dict[str, npt.NDArray[Any]] = {
            "start": self.start_s[rows] - window.from_s,
            "end": self.end_s[rows] - window.from_s,
            "first": self.first[rows].astype(np.int32),
            "count": self.count[rows].astype(np.int32),
            "group": groups.number[rows],
            "kind": self.kind[rows],
        }
        if self.within_s is not None:
            columns["low"], columns["high"] = self.within_s[:, rows] - window.from_s
        jobs = [_text(one) for one in self.job[rows].tolist()] if few else []
        told = {"jobs": jobs, "legend": groups.names, "ordered": groups.ordered}
        return packed({**where, **told, "boxes": True}, columns)

    def at(self, time_s: float, lane: int) -> Box | None:
        """Return the box at a point; the last started one if there are several."""
        upto = int(np.searchsorted(self.start_s, time_s, side="right"))
        first = self.first[:upto]
        there = (self.end_s[:upto] > time_s) & (first <= lane) & (lane < first + self.count[:upto])
        rows = np.flatnonzero(there)
        if not len(rows):
            return None
        row = int(rows[-1])
        own = (self.job == self.job[row]) & (self.start_s == self.start_s[row])
        return Box(
            job=_text(self.job[row].item()),
            kind=KINDS[self.kind[row]],
            start_s=float(self.start_s[row]),
            end_s=float(self.end_s[row]),
            first=int(self.first[row]),
            count=int(self.count[row]),
            lanes=int(self.count[own].sum()),
            where="" if self.names is None else self.names.at(int(self.first[row])),
        )

    def _within(self, window: Window) -> IntArray:
        upto = int(np.searchsorted(self.start_s, window.to_s, side="left"))
        there = self.end_s[:upto] >= window.from_s
        if window.top > 0 or window.bottom < self.lanes:
            first = self.first[:upto]
            there &= (first < window.bottom) & (first + self.count[:upto] > window.top)
        return np.flatnonzero(there)

    def _cells(self, rows: IntArray, window: Window) -> npt.NDArray[np.uint8]:
        """Return the share of each pixel; boxes are cut off at the window."""
        wide, high = window.width, window.height
        across = wide / (window.to_s - window.from_s)
        down = high / (window.bottom - window.top)
        first = self.first[rows]
        left = np.clip((self.start_s[rows] - window.from_s) * across, 0, wide)
        right = np.clip((self.end_s[rows] - window.from_s) * across, 0, wide)
        top = np.clip((first - window.top) * down, 0, high)
        bottom = np.clip((first + self.count[rows] - window.top) * down, 0, high)
        share = np.clip(_covered(left, right, top, bottom, wide, high), 0, 1)
        return np.ceil(share * _LEVELS - 1e-6).astype(np.uint8).ravel()


def _covered(
    left: FloatArray, right: FloatArray, top: FloatArray, bottom: FloatArray, wide: int, high: int
) -> FloatArray:
    """Return the covered share of each pixel, in pixels; overlapping boxes add up."""
    size = wide + 2
    found: FloatArray = np.zeros((high + 2, size))
    thin = (right - left < 1, bottom - top < 1)
    for thin_x in (True, False):
        for thin_y in (True, False):
            own = np.flatnonzero((thin[0] == thin_x) & (thin[1] == thin_y))
            if not len(own):
                continue
            places, weights = [], []
            for row, by_row in _parts(top[own], bottom[own], thin_y):
                for column, by_column in _parts(left[own], right[own], thin_x):
                    weight = by_row * by_column
                    kept = np.flatnonzero(weight)
                    places.append(row[kept] * size + column[kept])
                    weights.append(weight[kept])
            counts = np.bincount(np.concatenate(places), np.concatenate(weights), found.size)
            plane = counts.reshape(found.shape)
            if not thin_y:
                plane = plane.cumsum(axis=0)
            if not thin_x:
                plane = plane.cumsum(axis=1)
            found += plane
    return found[:high, :wide]


def _parts(begin: FloatArray, end: FloatArray, thin: bool) -> list[tuple[IntArray, FloatArray]]:
    """Return cells and weights of intervals in a row, from which each cell's cover follows.

    An interval shorter than a cell is in one or two cells, and its weights are its cover of them.
    For other intervals, the cover is the running sum of the weights at begin and end: a half line's
    cover rises only once, over the two cells at its begin.
    """
    cell = begin.astype(np.int64)
    if thin:
        inside = np.minimum(end, cell + 1) - begin
        return [(cell, inside), (cell + 1, end - begin - inside)]
    last = end.astype(np.int64)
    part, rest = begin - cell, end - last
    return [(cell, 1 - part), (cell + 1, part), (last, rest - 1), (last + 1, -rest)]


def _text(job: object) -> str:
    return job.decode() if isinstance(job, bytes) else str(job)
