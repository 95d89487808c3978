"""REST interface and page of a live cluster, and routes of its timeline or a run's."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path as FilePath
from typing import Annotated, Any, Protocol

from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from hpctwin.twin.forecast.accuracy import Accuracy
from hpctwin.twin.journal.journal import Journal
from hpctwin.web.server.assembly import JSON, JobId, Live, application_of
from hpctwin.web.server.gate import Token
from hpctwin.web.server.prometheus import exposition
from hpctwin.web.views.source import Source
from hpctwin.web.views.timeline import MEDIA_TYPE, Timeline, Window
from hpctwin.web.views.views import (
    Approval,
    Bar,
    BoxView,
    Change,
    DecisionView,
    Head,
    JobView,
    KillSwitch,
    LinesView,
    NodeView,
    Session,
    TimelineView,
    Told,
    WhatIfAnswer,
)

__all__ = ["HIGHEST", "WIDEST", "Charted", "application", "timeline_routes"]

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
            raise HTTPException(409, "from_s must be before to_s, and top above bottom")
        content = pictures.of(Window(from_s, to_s, top, bottom, width, height))
        return Response(content, media_type=MEDIA_TYPE)

    @app.get("/api/v1/timeline/at", tags=["look"])
    def at(time_s: Seconds, lane: Annotated[int, Query(ge=0, le=10**9)]) -> BoxView | None:
        """Return the job at this point, if there is one."""
        box = source.timeline().at(time_s, lane)
        return None if box is None else BoxView(**vars(box), where=source.lane_name(box.first))


AT_ONCE = 2
"""Maximum number of parallel what-ifs; further requests must be repeated later."""

Number = Annotated[int, Path(ge=1, lt=2**62)]


def application(
    source: Source,
    *,
    live: Live | None = None,
    kill_switch: FilePath | None = None,
    every_s: float = 0.25,
) -> FastAPI:
    """Return the application of one live cluster, without access control.

    Args:
        source: State of the cluster.
        live: Notifier of listeners; default a new one.
        kill_switch: File of the twin's kill switch; None if there is none, or it is unknown.
        every_s: Time between two polls of the journal, in seconds.
    """
    live = live or Live(source)
    app = application_of(source, live, page="index.html", every_s=every_s)
    app.state.turns = threading.BoundedSemaphore(AT_ONCE)
    _looking(app, source, live)
    timeline_routes(app, source)
    _asking(app, source)
    _acting(app, source, kill_switch)
    return app


def _looking(app: FastAPI, source: Source, live: Live) -> None:
    @app.get("/readyz", tags=["health"])
    def readyz() -> dict[str, str]:
        """Check that the journal can be read and the twin runs."""
        trouble = source.fault or (None if source.head().alive else "the twin is not running")
        if trouble:
            raise HTTPException(503, trouble)
        return {"status": "ready"}

    @app.get("/metrics", tags=["health"], response_class=Response)
    def metrics() -> Response:
        """Return metrics for Prometheus."""
        return Response(exposition(source, live), media_type="text/plain; version=0.0.4")

    @app.get("/api/v1/state", tags=["look"])
    def state() -> Head:
        """Return the state of the cluster and its twin."""
        return source.head()

    @app.get("/api/v1/events", tags=["look"], response_class=StreamingResponse)
    def events() -> StreamingResponse:
        """Stream server-sent events: ``head`` with the content of `/state`, at each change."""
        return live.response()

    @app.get("/api/v1/jobs", tags=["look"], response_model=list[JobView])
    def jobs() -> Response:
        """Return pending jobs by forecast start, then running jobs."""
        return Response(source.jobs(), media_type=JSON)

    @app.get("/api/v1/nodes", tags=["look"], response_model=list[NodeView])
    def nodes() -> Response:
        """Return all nodes by number."""
        return Response(source.nodes(), media_type=JSON)

    @app.get("/api/v1/bars", tags=["look"], response_model=list[Bar])
    def bars() -> Response:
        """Return the jobs of the last day, running jobs and forecast jobs, for a Gantt chart."""
        return Response(source.bars(), media_type=JSON)

    @app.get("/api/v1/lines", tags=["look"])
    def lines(bins: Annotated[int, Query(ge=1, le=2000)] = 400) -> LinesView:
        """Return nodes in use over time, and if known power, PUE, carbon and price."""
        return source.lines(bins)

    @app.get("/api/v1/decisions", tags=["look"])
    def decisions(
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        before: Annotated[int | None, Query(ge=1, lt=2**62)] = None,
    ) -> list[DecisionView]:
        """Return the last decisions, newest first."""
        return source.decisions(limit, before)

    @app.get("/api/v1/decisions/{number}", tags=["look"])
    def decision(number: Number) -> DecisionView:
        """Return one decision."""
        found = source.decision(number)
        if found is None:
            raise HTTPException(404, f"no decision {number}")
        return found

    @app.get("/api/v1/accuracy", tags=["look"])
    def accuracy() -> list[Accuracy]:
        """Return the accuracy of start-time forecasts."""
        return source.accuracy()


def _asking(app: FastAPI, source: Source) -> None:
    @app.get("/api/v1/decisions/{number}/explain", tags=["ask"])
    def explain_decision(number: Number) -> Told:
        """Explain this decision in plain words."""
        if source.decision(number) is None:
            raise HTTPException(404, f"no decision {number}")
        return source.explain_decision(number)

    @app.get("/api/v1/jobs/{job}/when", tags=["ask"])
    def when(job: JobId) -> Told:
        """Forecast when a job starts, and explain why not now."""
        return source.when(job)

    @app.get("/api/v1/jobs/{job}/explain", tags=["ask"])
    def explain_job(job: JobId) -> Told:
        """Forecast and explain a job's start, with all its forecasts and actions."""
        return source.explain_job(job)

    @app.post("/api/v1/what-if", tags=["ask"])
    def what_if(change: Change) -> WhatIfAnswer:
        """Simulate the cluster with and without a change until both queues are empty.

        The real cluster is not changed.
        """
        if not app.state.turns.acquire(blocking=False):
            raise HTTPException(
                429, f"{AT_ONCE} what-ifs are already running; try again in a second"
            )
        try:
            return source.what_if(change)
        finally:
            app.state.turns.release()


def _acting(app: FastAPI, source: Source, switch: FilePath | None) -> None:
    @app.get("/api/v1/session", tags=["look"])
    def session(request: Request) -> Session:
        """Return the name and role of your token, and the state of the kill switch."""
        who: Token | None = request.scope["state"]["who"]
        return Session(
            name="" if who is None else who.name,
            role="read-only" if who is None else who.role,
            kill_switch=None if switch is None else switch.exists(),
        )

    @app.post("/api/v1/decisions/{number}/approval", tags=["act"])
    def approve(number: Number, asked: Approval, who: Operator) -> DecisionView:
        """Approve or reject a decision that waits for a person; recorded with your name."""
        with _writing(source) as journal:
            said = "approved" if asked.approved else "rejected"
            with journal.writing():
                if not journal.approve(number, said):
                    waiting = ", ".join(str(row) for row, _ in journal.approvals("pending"))
                    raise HTTPException(
                        409,
                        f"decision {number} is not awaiting approval; awaiting: {waiting or 'none'}",
                    )
                journal.input("approval", _by(who, decision=number, said=said), time.time())
        found = source.decision(number)
        assert found is not None
        return found

    @app.put("/api/v1/kill-switch", tags=["act"])
    def kill_switch(asked: KillSwitch, who: Operator) -> KillSwitch:
        """Set or release the kill switch; recorded with your name."""
        if switch is None:
            raise HTTPException(
                409, "act.kill_switch is not set, or this page was started without --config"
            )
        _throw(switch, asked.thrown)
        with _writing(source) as journal, journal.writing():
            journal.input("kill switch", _by(who, thrown=asked.thrown), time.time())
        return asked


def _operator(request: Request) -> str:
    who: Token | None = request.scope["state"]["who"]
    if who is None or who.role != "operator":
        raise HTTPException(403, "the token of an operator is required")
    return who.name


Operator = Annotated[str, Depends(_operator)]


def _by(who: str, **what: Any) -> str:
    return json.dumps({"by": who, **what})


@contextmanager
def _writing(source: Source) -> Iterator[Journal]:
    with closing(Journal(source.path)) as journal:
        yield journal


def _throw(file: FilePath, thrown: bool) -> None:
    try:
        if thrown:
            file.touch()
        else:
            file.unlink(missing_ok=True)
    except OSError as error:
        raise HTTPException(503, f"{file}: {error.strerror}") from error
