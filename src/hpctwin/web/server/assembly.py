"""Parts of every page: its files, errors in words, health, and live updates.

Live updates notify each listener of a change, with the head of the page. A slow listener misses
updates and then gets the latest one; nothing is stored for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib import resources
from typing import Annotated, Any, Protocol

from fastapi import Depends, FastAPI, HTTPException, Path, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles

from hpctwin._version import __version__
from hpctwin.web.server.answers import document, faults, handle_errors
from hpctwin.web.server.gate import PAGES
from hpctwin.web.server.prometheus import EXPOSITION, Collector, exposition
from hpctwin.web.views.views import Head, Me, RunHead, Shown
from hpctwin.web.views.visibility import EVERYTHING, Visibility

__all__ = [
    "JSON",
    "MOST_LISTENERS",
    "JobId",
    "Live",
    "Part",
    "Sees",
    "application_of",
    "page_routes",
    "together",
]

KEEP_ALIVE_S = 15.0
MOST_LISTENERS = 1000


class Headed(Protocol):
    """A source with a head, which changes with its version."""

    version: int

    def head(self, sees: Visibility = EVERYTHING) -> Head | RunHead:
        """Return the head of the page."""


class Live:
    """Notifier of listeners about changes."""

    def __init__(self, source: Headed) -> None:
        self._source = source
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._texts: dict[bool, tuple[int, str]] = {}
        self._making = asyncio.Lock()
        self.listeners = 0
        self._ended = False

    def begin(self) -> None:
        """Start; call it in the event loop of the listeners."""
        self._loop = asyncio.get_running_loop()
        self._making = asyncio.Lock()

    def told(self) -> None:
        """Notify the listeners of a change; may be called in any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def end(self) -> None:
        """End the streams of all listeners."""
        self._ended = True
        self.told()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def response(self, sees: Visibility = EVERYTHING) -> StreamingResponse:
        """Return the event stream for a new listener.

        Raises:
            HTTPException: There are too many listeners.
        """
        if self.listeners >= MOST_LISTENERS:
            raise HTTPException(503, f"{MOST_LISTENERS} listen already")
        return StreamingResponse(self.events(sees), media_type="text/event-stream")

    async def events(self, sees: Visibility = EVERYTHING) -> AsyncIterator[str]:
        """Yield server-sent events for one listener, first the current state."""
        self.listeners += 1
        try:
            while not self._ended:
                changed = self._changed
                yield await self._now(sees)
                try:
                    await asyncio.wait_for(changed.wait(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield ": nothing new\n\n"
        finally:
            self.listeners -= 1

    async def _now(self, sees: Visibility) -> str:
        # The head has no names of single users: it differs only with whether all names are visible.
        # It is made once, in another thread: it waits for the thread that reads the journal.
        async with self._making:
            version = self._source.version
            known = self._texts.get(sees.names)
            if known is None or known[0] != version:
                # It is an older one while another answer takes long.
                head = await asyncio.to_thread(self._source.head, sees)
                known = self._texts[sees.names] = (
                    head.version,
                    f"id: {head.version}\nevent: head\ndata: {head.model_dump_json()}\n\n",
                )
            return known[1]


JSON = "application/json"

JobId = Annotated[
    str,
    Path(
        min_length=1,
        max_length=128,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:+\[\]-]*$",
        description="Id of a job; for PBS, the server's name is optional.",
        examples=["4711"],
    ),
]


def _sees(request: Request) -> Visibility:
    sees: Visibility = request.scope.get("state", {}).get("visibility", EVERYTHING)
    return sees


Sees = Annotated[Visibility, Depends(_sees)]
"""Names that the visitor may see, in a route."""


class Followed(Protocol):
    """A source that changes by itself."""

    version: int

    def follow(self, stop: threading.Event, told: Callable[[], None], every_s: float) -> None:
        """Read new data until `stop` is set."""

    def head(self, sees: Visibility = EVERYTHING) -> Head | RunHead:
        """Return the head of the page."""

    def not_ready(self) -> str | None:
        """Return why the state is not current; None if it is. It waits for no lock."""


@dataclass(frozen=True)
class Part:
    """One of several pages of a server.

    Args:
        app: Application of the page.
        live: Notifier of its listeners.
        shown: Function that returns its entry in the list of pages, by its name and for a visitor.
        collector: Collector of its metrics; None for a run.
    """

    app: FastAPI
    live: Live
    shown: Callable[[str, Visibility], Shown]
    collector: Collector | None = None


def application_of(source: Followed, live: Live, *, page: str, every_s: float) -> FastAPI:
    """Return an application with page, health and readable errors; add routes to it.

    Args:
        source: Source, followed while the application runs.
        live: Notifier for its changes.
        page: File of the page at ``/``.
        every_s: Time between two polls for changes, in seconds.
    """
    stop = threading.Event()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        live.begin()
        thread = threading.Thread(
            target=source.follow, args=(stop, live.told, every_s), name="follow", daemon=True
        )
        thread.start()
        yield
        stop.set()
        thread.join(5.0)

    app = _bare(lifespan, page)
    app.state.source, app.state.live = source, live
    _ready(app, {"": source})
    return app


def together(parts: Mapping[str, Part]) -> FastAPI:
    """Return several applications as one, each under ``/NAME/``, and an index page."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for part in parts.values():
                await stack.enter_async_context(part.app.router.lifespan_context(part.app))
            yield

    app = _bare(lifespan, "shown.html")

    @app.get("/api/v1/shown", tags=["look"])
    def shown(sees: Sees) -> Sequence[Shown]:
        """Return all clusters and runs of this server with their states."""
        return [part.shown(name, sees) for name, part in parts.items()]

    @app.get("/metrics", tags=["health"], response_class=Response)
    def metrics() -> Response:
        """Return the metrics of all clusters for Prometheus."""
        collectors = [part.collector for part in parts.values() if part.collector is not None]
        return Response(exposition(*collectors), media_type=EXPOSITION)

    page_routes(app, ("compare",))
    _ready(app, {f"{name}: ": part.app.state.source for name, part in parts.items()})
    for name, part in parts.items():
        part.app.state.listed = True
        app.mount(f"/{name}", part.app)
    return app


def page_routes(app: FastAPI, kinds: Sequence[str]) -> None:
    """Add the addresses of pages: ``/KIND/NAME``, or ``/KIND`` for a page about many things."""
    text = (resources.files("hpctwin.web") / "static" / "page.html").read_text()

    def page() -> HTMLResponse:
        return HTMLResponse(text)

    for kind in kinds:
        path = f"/{kind}/{{name:path}}" if kind in PAGES else f"/{kind}"
        app.get(path, include_in_schema=False)(page)


def _ready(app: FastAPI, sources: Mapping[str, Followed]) -> None:
    @app.get("/readyz", tags=["health"])
    async def readyz() -> dict[str, str]:
        """Check that the files can be read and the twins run."""
        reasons = [(name, source.not_ready()) for name, source in sources.items()]
        trouble = "; ".join(f"{name}{reason}" for name, reason in reasons if reason)
        if trouble:
            raise HTTPException(503, trouble)
        return {"status": "ready"}


def _bare(lifespan: Any, page: str) -> FastAPI:
    app = FastAPI(
        title="hpctwin",
        version=__version__,
        summary="Digital twin for HPC batch scheduling: state, forecasts and decisions.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        lifespan=lifespan,
        responses=faults(401, 421, 429, 503),
        generate_unique_id_function=lambda route: route.name,
    )

    handle_errors(app)
    document(app)
    folder = resources.files("hpctwin.web") / "static"
    with resources.as_file(folder) as path:
        app.mount("/static", StaticFiles(directory=path), name="static")
    text = (folder / page).read_text()

    @app.get("/", include_in_schema=False)
    def index() -> HTMLResponse:
        return HTMLResponse(text)

    @app.get("/api/v1/me", tags=["look"])
    def me(request: Request, sees: Sees) -> Me:
        """Return your name and role on this server."""
        state = request.scope.get("state", {})
        who = state.get("who")
        return Me(
            name="" if who is None else who.name,
            role="viewer" if who is None else who.role,
            names_hidden=not sees.names,
            sign_in=state.get("sign_in"),
            kill_switch=getattr(app.state, "kill_switch", lambda: None)(),
            listed=getattr(app.state, "listed", False),
        )

    @app.get("/favicon.ico", include_in_schema=False)
    def icon() -> Response:
        return Response((folder / "icon.svg").read_bytes(), media_type="image/svg+xml")

    @app.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, str]:
        """Report that this server runs."""
        return {"status": "ok"}

    return app
