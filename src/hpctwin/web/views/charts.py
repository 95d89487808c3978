"""Routes of a timeline, of a live cluster or a run."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Annotated, Protocol

from fastapi import FastAPI, HTTPException, Query, Response

from hpctwin.web.views.timeline import MEDIA_TYPE, Timeline, Window
from hpctwin.web.views.views import BoxView, TimelineView

__all__ = ["HIGHEST", "WIDEST", "Charted", "timeline_routes"]

WIDEST, HIGHEST = 2560, 1024
_KEPT = 8

Seconds = Annotated[float, Query(ge=-1e11, le=1e11, allow_inf_nan=False)]
Lane = Annotated[float, Query(ge=0, le=1e9, allow_inf_nan=False)]


class Charted(Protocol):
    """A source of jobs on nodes over time."""

    def timeline(self) -> Timeline:
        """Return all jobs on nodes."""

    def timeline_view(self) -> TimelineView:
        """Return the range of the timeline."""

    def lane_name(self, lane: int) -> str:
        """Return the node of a lane."""


class _Pictures:
    """Cache of the last pictures, because many viewers request the same ones."""

    def __init__(self, source: Charted) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, Window], bytes] = OrderedDict()

    def of(self, window: Window) -> bytes:
        version = self._source.timeline_view().version
        with self._lock:
            found = self._kept.get((version, window))
        if found is None:
            found = self._source.timeline().picture(window)
            with self._lock:
                self._kept[version, window] = found
                if len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        return found


def timeline_routes(app: FastAPI, source: Charted) -> None:
    """Add the routes from which a browser draws jobs on nodes."""
    pictures = _Pictures(source)

    @app.get("/api/v1/timeline", tags=["look"])
    def timeline() -> TimelineView:
        """Return the range of the Gantt chart of jobs on nodes."""
        return source.timeline_view()

    @app.get(
        "/api/v1/timeline/picture",
        tags=["look"],
        response_class=Response,
        responses={200: {"content": {MEDIA_TYPE: {}}}},
    )
    def picture(
        from_s: Seconds,
        to_s: Seconds,
        top: Lane,
        bottom: Lane,
        width: Annotated[int, Query(ge=1, le=WIDEST)],
        height: Annotated[int, Query(ge=1, le=HIGHEST)],
    ) -> Response:
        """Return the jobs in a window for typed arrays: a JSON head, then the columns.

        A window with few jobs has their boxes. With many jobs, each pixel has its covered share and
        the color with the largest share.
        """
        if not (to_s - from_s > 1e-6 and bottom - top > 1e-6):
            raise HTTPException(409, "from_s is to be before to_s, and top above bottom")
        content = pictures.of(Window(from_s, to_s, top, bottom, width, height))
        return Response(content, media_type=MEDIA_TYPE)

    @app.get("/api/v1/timeline/at", tags=["look"])
    def at(time_s: Seconds, lane: Annotated[int, Query(ge=0, le=10**9)]) -> BoxView | None:
        """Return the job at this point, if there is one."""
        box = source.timeline().at(time_s, lane)
        return None if box is None else BoxView(**vars(box), where=source.lane_name(box.first))
