"""The REST interface and the page of a simulated run."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.responses import StreamingResponse

from hpctwin.web.server.assembly import JobId, application_of
from hpctwin.web.server.live import Live
from hpctwin.web.views.charts import timeline_routes
from hpctwin.web.views.runs import RunSource
from hpctwin.web.views.views import LinesView, RunHead, RunJob, RunJobs

__all__ = ["run_application"]


def run_application(
    source: RunSource, *, live: Live | None = None, every_s: float = 1.0
) -> FastAPI:
    """The page of one run, without a gate before it.

    Args:
        source: what is shown.
        live: tells listeners of changes; one of its own if left out.
        every_s: how often the run's folder is looked at.
    """
    live = live or Live(source)
    app = application_of(source, live, page="run.html", every_s=every_s)
    timeline_routes(app, source)

    @app.get("/api/v1/state", tags=["look"])
    def state() -> RunHead:
        """What the run was, and how it stands."""
        return source.head()

    @app.get("/api/v1/events", tags=["look"], response_class=StreamingResponse)
    def events() -> StreamingResponse:
        """Server-sent events: ``head`` with what `/state` answers, whenever the run's files have changed."""
        return live.response()

    @app.get("/api/v1/lines", tags=["look"])
    def lines(bins: Annotated[int, Query(ge=1, le=2000)] = 400) -> LinesView:
        """Queue, machine and power over time: means and peaks over bins of equal length."""
        return source.lines(bins)

    @app.get("/api/v1/jobs", tags=["look"])
    def jobs(
        find: Annotated[str, Query(max_length=128)] = "",
        state: Annotated[str | None, Query(max_length=32)] = None,
    ) -> RunJobs:
        """Jobs by their id, user, account or partition; the first 500 of them."""
        return source.jobs(find, state)

    @app.get("/api/v1/jobs/{job}", tags=["look"])
    def job(job: JobId) -> RunJob:
        """One job."""
        return source.job(job)

    return app
