"""REST interface and page of a live cluster, and routes of its timeline or a run's."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, Protocol

from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.what_if.pool import StoppableRuns
from hpctwin.web.server.answers import faults
from hpctwin.web.server.assembly import JSON, JobId, Live, Sees, application_of, page_routes
from hpctwin.web.server.gate import PAGES, Person
from hpctwin.web.server.prometheus import EXPOSITION, Collector, exposition
from hpctwin.web.views.job_list import LiveJobFilter, Meaning
from hpctwin.web.views.pages import (
    GroupPage,
    History,
    JobPage,
    NodePage,
    group_page,
    history,
    job_page,
    node_page,
)
from hpctwin.web.views.source import Source
from hpctwin.web.views.timeline import MEDIA_TYPE, Timeline, Window
from hpctwin.web.views.views import (
    AccuracyView,
    Approval,
    Bar,
    BoxView,
    Change,
    DecisionView,
    Explanation,
    Head,
    JobExplanation,
    JobForecast,
    JobList,
    KillSwitch,
    LinesView,
    NodeView,
    TimelineView,
    WhatIfAnswer,
)
from hpctwin.web.views.visibility import Visibility

__all__ = ["HIGHEST", "WIDEST", "Bins", "Charted", "application", "timeline_routes"]

WIDEST, HIGHEST = 2560, 1024
_KEPT = 8

Seconds = Annotated[
    float, Query(ge=-1e11, le=1e11, allow_inf_nan=False, description="Time, in seconds.")
]
Lane = Annotated[
    float, Query(ge=0, le=1e9, allow_inf_nan=False, description="Lane; parts of lanes are allowed.")
]
Bins = Annotated[int, Query(ge=1, le=2000, description="Number of bins.")]


class Charted(Protocol):
    """A source of jobs on nodes over time."""

    def timeline(self) -> Timeline:
        """Return all jobs on nodes."""

    def timeline_view(self) -> TimelineView:
        """Return the range of the timeline."""


class _Pictures:
    """Cache of the last pictures, because many viewers request the same ones."""

    def __init__(self, source: Charted) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, Window, Meaning, str | None], bytes] = OrderedDict()

    def of(self, window: Window, by: Meaning, sees: Visibility) -> bytes:
        only = None if sees.names else sees.user
        asked = self._source.timeline_view().version, window, by, only
        with self._lock:
            found = self._kept.get(asked)
        if found is None:
            found = self._source.timeline().picture(window, by, only=only)
            with self._lock:
                self._kept[asked] = found
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
        responses={200: {"content": {MEDIA_TYPE: {}}}, **faults(409, 422)},
    )
    def timeline_picture(
        from_s: Seconds,
        to_s: Seconds,
        top: Lane,
        bottom: Lane,
        width: Annotated[int, Query(ge=1, le=WIDEST, description="Width in pixels.")],
        height: Annotated[int, Query(ge=1, le=HIGHEST, description="Height in pixels.")],
        sees: Sees,
        by: Annotated[Meaning, Query(description="Meaning of the groups.")] = "user",
    ) -> Response:
        """Return the jobs in a window for typed arrays: a JSON head, then the columns.

        A window with few jobs has their boxes, in groups by `by`. With many jobs, each pixel has
        its covered share.
        """
        if not (to_s - from_s > 1e-6 and bottom - top > 1e-6):
            raise HTTPException(409, "from_s must be before to_s, and top above bottom")
        content = pictures.of(Window(from_s, to_s, top, bottom, width, height), by, sees)
        return Response(content, media_type=MEDIA_TYPE)

    @app.get("/api/v1/timeline/at", tags=["look"], responses=faults(422))
    def timeline_at(
        time_s: Seconds, lane: Annotated[int, Query(ge=0, le=10**9, description="Lane.")]
    ) -> BoxView | None:
        """Return the job at this point, if there is one."""
        box = source.timeline().at(time_s, lane)
        return None if box is None else BoxView(**vars(box))


AT_ONCE = 2
"""Maximum number of parallel what-ifs; further requests must be repeated later."""

Name = Annotated[str, Path(min_length=1, max_length=128, description="Name.", examples=["n1"])]
Number = Annotated[int, Path(ge=1, lt=2**62, description="Number of a decision.", examples=[41])]


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
    _pages(app, source)
    _acting(app, source, kill_switch)
    if kill_switch is not None:
        app.state.kill_switch = kill_switch.exists
    return app


def _looking(app: FastAPI, source: Source, live: Live) -> None:
    @app.get("/metrics", tags=["health"], response_class=Response)
    def metrics() -> Response:
        """Return metrics for Prometheus."""
        return Response(exposition(Collector(source, live)), media_type=EXPOSITION)

    @app.get("/api/v1/state", tags=["look"])
    def state(sees: Sees) -> Head:
        """Return the state of the cluster and its twin."""
        return source.head(sees)

    @app.get("/api/v1/events", tags=["look"], response_class=StreamingResponse)
    def events(sees: Sees) -> StreamingResponse:
        """Stream server-sent events: ``head`` with the content of `/state`, at each change."""
        return live.response(sees)

    @app.get("/api/v1/jobs", tags=["look"], responses=faults(422))
    def jobs(asked: Annotated[LiveJobFilter, Query()], sees: Sees) -> JobList:
        """Return a page of the pending and running jobs that match a filter."""
        return source.jobs(asked, sees)

    @app.get("/api/v1/nodes", tags=["look"], response_model=list[NodeView])
    def nodes() -> Response:
        """Return all nodes by number."""
        return Response(source.nodes(), media_type=JSON)

    @app.get("/api/v1/bars", tags=["look"], response_model=list[Bar])
    def bars() -> Response:
        """Return the jobs of the last day, running jobs and forecast jobs, for a Gantt chart."""
        return Response(source.bars(), media_type=JSON)

    @app.get("/api/v1/lines", tags=["look"], responses=faults(422))
    def lines(bins: Bins = 400) -> LinesView:
        """Return nodes in use over time, and if known power, PUE, carbon and price."""
        return source.lines(bins)

    @app.get("/api/v1/decisions", tags=["look"], responses=faults(422))
    def decisions(
        limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number.")] = 50,
        before: Annotated[
            int | None, Query(ge=1, lt=2**62, description="Return only decisions before this one.")
        ] = None,
    ) -> list[DecisionView]:
        """Return the last decisions, newest first."""
        return source.decisions(limit, before)

    @app.get("/api/v1/decisions/{number}", tags=["look"], responses=faults(404, 422))
    def decision(number: Number) -> DecisionView:
        """Return one decision."""
        found = source.decision(number)
        if found is None:
            raise HTTPException(404, f"no decision {number}")
        return found

    @app.get("/api/v1/accuracy", tags=["look"])
    def accuracy() -> list[AccuracyView]:
        """Return the accuracy of start-time forecasts."""
        return source.accuracy()


def _pages(app: FastAPI, source: Source) -> None:
    page_routes(app, (*PAGES, "history"))

    @app.get("/api/v1/jobs/{job}", tags=["look"], responses=faults(404, 409, 422))
    def job(job: JobId, sees: Sees) -> JobPage:
        """Return a job that is pending, running, or ended within the last day."""
        return job_page(source, job, sees)

    @app.get("/api/v1/nodes/{name}", tags=["look"], responses=faults(404, 422))
    def node(name: Name, sees: Sees) -> NodePage:
        """Return a node with its past, running and forecast jobs."""
        return node_page(source, name, sees)

    @app.get("/api/v1/users/{name:path}", tags=["look"], responses=faults(404, 422))
    def user(name: Name, sees: Sees) -> GroupPage:
        """Return a user with jobs now or within the last day."""
        return group_page(source, "user", name, sees)

    @app.get("/api/v1/partitions/{name:path}", tags=["look"], responses=faults(404, 422))
    def partition(name: Name, sees: Sees) -> GroupPage:
        """Return a partition with its jobs."""
        return group_page(source, "partition", name, sees)

    @app.get("/api/v1/history", tags=["look"], responses=faults(422))
    def history_periods(
        sees: Sees,
        step: Annotated[
            Literal["minute", "hour"], Query(description="Length of the periods.")
        ] = "hour",
        from_s: Seconds = 0.0,
        to_s: Seconds = 1e11,
        limit: Annotated[
            int, Query(ge=1, le=5000, description="Maximum number of periods.")
        ] = 1000,
    ) -> History:
        """Return the history, oldest first: minutes of 3 days, or hours of 26 weeks."""
        return history(source, step, from_s, to_s, limit, sees)


def _asking(app: FastAPI, source: Source) -> None:
    @app.get("/api/v1/decisions/{number}/explain", tags=["ask"], responses=faults(404, 422))
    def explain_decision(number: Number, sees: Sees) -> Explanation:
        """Explain this decision in plain words."""
        if source.decision(number) is None:
            raise HTTPException(404, f"no decision {number}")
        return source.explain_decision(number, sees)

    @app.get("/api/v1/jobs/{job}/when", tags=["ask"], responses=faults(404, 409, 422))
    def when(job: JobId) -> JobForecast:
        """Forecast when a job starts, and explain why not now."""
        found = source.when(job)
        if found.state == "gone":
            raise HTTPException(404, found.why[0])
        return found

    @app.get("/api/v1/jobs/{job}/explain", tags=["ask"], responses=faults(404, 409, 422))
    def explain_job(job: JobId, sees: Sees) -> JobExplanation:
        """Explain a job's start, with its first forecast and all actions of the twin.

        A job that has ended is explained as long as the journal has records of it.
        """
        found = source.explain_job(job, sees)
        if found.state == "gone" and len(found.why) == 1:
            raise HTTPException(404, found.why[0])
        return found

    @app.post("/api/v1/what-if", tags=["ask"], responses=faults(400, 404, 408, 409, 413, 422))
    async def what_if(change: Change, request: Request, sees: Sees) -> WhatIfAnswer:
        """Simulate the cluster with and without a change until both queues are empty.

        The real cluster is not changed.
        """
        if not app.state.turns.acquire(blocking=False):
            raise HTTPException(
                429, f"{AT_ONCE} what-ifs are already running; try again in a second"
            )

        def ended(work: asyncio.Future[WhatIfAnswer]) -> None:
            # If the client has left, the error is for no other reader.
            _ = work.cancelled() or work.exception()
            app.state.turns.release()

        runs = StoppableRuns(sliced=True)
        work = asyncio.ensure_future(asyncio.to_thread(source.what_if, change, sees, runs))
        work.add_done_callback(ended)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise HTTPException(503, "the client has left")
            return work.result()
        finally:
            runs.stop()
            gone.cancel()


async def _disconnected(request: Request) -> None:
    """Wait until the client has left; the body of the request has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


_ACTS = faults(400, 403, 404, 408, 409, 413, 422)


def _acting(app: FastAPI, source: Source, switch: FilePath | None) -> None:
    @app.post("/api/v1/decisions/{number}/approval", tags=["act"], responses=_ACTS)
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

    @app.put("/api/v1/kill-switch", tags=["act"], responses=_ACTS)
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
    who: Person | None = request.scope["state"]["who"]
    if who is None or who.role != "operator":
        raise HTTPException(403, "the role operator is required")
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
