"""Web server for live twins and simulated runs, and the application of a run."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Query
from fastapi.responses import StreamingResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from hpctwin.errors import ConfigError
from hpctwin.web.server.answers import Application, Receive, Scope, Send, faults
from hpctwin.web.server.api import Bins, Name, application, timeline_routes
from hpctwin.web.server.assembly import (
    JobId,
    Live,
    Part,
    Sees,
    application_of,
    page_routes,
    together,
)
from hpctwin.web.server.gate import PAGES, Access, Gate, is_loopback, made_up, read_tokens
from hpctwin.web.server.prometheus import Collector
from hpctwin.web.server.sign_in import SignIn
from hpctwin.web.views.job_list import RunJobFilter
from hpctwin.web.views.runs import RunSource
from hpctwin.web.views.source import Source
from hpctwin.web.views.views import LinesView, RunGroup, RunHead, RunJob, RunJobs

__all__ = [
    "Brief",
    "Listening",
    "access_of",
    "bounded",
    "room_for_connections",
    "run_application",
    "run_part",
    "serve",
    "server_of",
    "socket_at",
    "twin_part",
]

HEADER_S = 10.0
"""Time within which the header of a request must arrive, in seconds."""
STALLED_S = 60.0
"""Time after which a client that reads nothing is disconnected, in seconds."""
MOST_FILES, MOST_CONNECTIONS = 8192, 2000


def room_for_connections() -> int:
    """Raise the limit of open files as far as allowed; return how many connections fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    # The rest is for files, threads, and connections that are accepted only to be refused.
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, soft // 2)


def bounded(most: int) -> type[H11Protocol]:
    """Return uvicorn's protocol with limits that it does not have itself.

    A connection that waits for the header of a request is closed after `HEADER_S`. If there are too
    many connections, the one that has waited longest is closed for a new one. A client that does not
    read its answer is disconnected after `STALLED_S`.
    """
    waiting: dict[Bounded, asyncio.TimerHandle | None] = {}

    class Bounded(H11Protocol):
        _stalled: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            waiting[self] = self.loop.call_later(HEADER_S, transport.abort)
            if len(self.connections) > most:
                oldest = next(iter(waiting))
                oldest.transport.abort()
                oldest.connections.discard(oldest)
                oldest.forget()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.busy:
                self.forget()
            elif waiting.get(self, self) is None:
                # The next request on this connection has begun.
                waiting[self] = self.loop.call_later(HEADER_S, self.transport.abort)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self.busy and not self.transport.is_closing():
                waiting[self] = None

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stalled = self.loop.call_later(STALLED_S, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self.read_again()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self.read_again()
            self.forget()

        @property
        def busy(self) -> bool:
            """Whether a request is being answered."""
            return self.cycle is not None and not self.cycle.response_complete

        def forget(self) -> None:
            """Note that this connection does not wait for a request."""
            timer = waiting.pop(self, None)
            if timer is not None:
                timer.cancel()

        def read_again(self) -> None:
            """Note that the client reads its answer, or has gone."""
            if self._stalled is not None:
                self._stalled.cancel()
                self._stalled = None

    return Bounded


class Brief(logging.Filter):
    """Log filter that lets a few messages pass, then one from time to time.

    Args:
        burst: Number of messages that pass at once.
        every_s: Time until one more passes, in seconds.
    """

    def __init__(self, burst: int = 50, every_s: float = 10.0) -> None:
        super().__init__()
        self._burst, self._every_s = burst, every_s
        self._left, self._at = float(burst), time.monotonic()
        self._omitted = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a message passes; one that does also counts those before it."""
        now = time.monotonic()
        self._left = min(float(self._burst), self._left + (now - self._at) / self._every_s)
        self._at = now
        if self._left < 1.0:
            self._omitted += 1
            return False
        self._left -= 1.0
        if self._omitted:
            record.msg = f"{record.getMessage()} ({self._omitted} similar messages omitted)"
            record.args = None
            self._omitted = 0
        return True


SWITCH_S = 0.0005
"""Time after which a thread lets another one run, in seconds."""
NICE = 5
"""Increment of the niceness of a server's process."""
MOST_QUEUED = 4096
"""Maximum number of connections that the kernel queues."""


def run_application(
    source: RunSource, *, live: Live | None = None, every_s: float = 1.0
) -> FastAPI:
    """Return the application of one run, without access control.

    Args:
        source: The run.
        live: Notifier of listeners; default a new one.
        every_s: Time between two polls of the run's folder, in seconds.
    """
    live = live or Live(source)
    app = application_of(source, live, page="run.html", every_s=every_s)
    timeline_routes(app, source)

    @app.get("/api/v1/state", tags=["look"])
    def state() -> RunHead:
        """Return the run's settings and its state."""
        return source.head()

    @app.get("/api/v1/events", tags=["look"], response_class=StreamingResponse)
    def events() -> StreamingResponse:
        """Stream events: ``head`` with the content of `/state`, at each change of the files."""
        return live.response()

    @app.get("/api/v1/lines", tags=["look"], responses=faults(422))
    def lines(bins: Bins = 400) -> LinesView:
        """Return queue, cluster and power over time, as means and peaks of equal bins."""
        return source.lines(bins)

    @app.get("/api/v1/jobs", tags=["look"], responses=faults(422))
    def jobs(asked: Annotated[RunJobFilter, Query()], sees: Sees) -> RunJobs:
        """Return a page of the jobs that match a filter."""
        return source.jobs(asked, sees)

    @app.get("/api/v1/jobs/{job}", tags=["look"], responses=faults(404, 422))
    def job(job: JobId, sees: Sees) -> RunJob:
        """Return one job."""
        return source.job(job, sees)

    @app.get("/api/v1/users/{name:path}", tags=["look"], responses=faults(404, 422))
    def user(name: Name, sees: Sees) -> RunGroup:
        """Return the jobs of a user."""
        return source.group("user", name, sees)

    @app.get("/api/v1/partitions/{name:path}", tags=["look"], responses=faults(404, 422))
    def partition(name: Name, sees: Sees) -> RunGroup:
        """Return the jobs of a partition."""
        return source.group("partition", name, sees)

    page_routes(app, PAGES)

    return app


@dataclass(frozen=True)
class Listening:
    """Address and security of the server.

    Args:
        host, port: Address to listen on.
        tokens: File of tokens; without it and ``HPCTWIN_TOKENS``, a token is generated for this
            run.
        no_token: Whether all users of this host may read.
        certificate, key: Files for TLS.
        behind_proxy: Whether a proxy on this host or next to it provides TLS.
        allow_hosts: Host names that requests may use, in addition to that of the address.
        sign_in: YAML file of `SignInSettings`; None without sign-in.
        hide_names: Whether only operators see the names of other users.
    """

    host: str = "127.0.0.1"
    port: int = 8642
    tokens: Path | None = None
    no_token: bool = False
    certificate: Path | None = None
    key: Path | None = None
    behind_proxy: bool = False
    allow_hosts: tuple[str, ...] = ()
    sign_in: Path | None = None
    hide_names: bool = False

    @property
    def tls(self) -> bool:
        """Whether this server itself encrypts."""
        return self.certificate is not None


def access_of(listening: Listening) -> Access:
    """Return the accepted tokens and host names.

    Raises:
        ConfigError: The options are unsafe or incompatible.
    """
    if (listening.certificate is None) != (listening.key is None):
        raise ConfigError("--certificate and --private-key are required together")
    tokens = read_tokens(listening.tokens)
    sign_in = None if listening.sign_in is None else SignIn.from_yaml(listening.sign_in)
    if not is_loopback(listening.host):
        if not tokens and sign_in is None:
            raise ConfigError(
                f"--host {listening.host}: access from other hosts requires a token; give "
                "a file with --tokens, or --sign-in"
            )
        if not listening.tls and not listening.behind_proxy:
            raise ConfigError(
                f"--host {listening.host}: tokens would be sent unencrypted; give "
                "--certificate and --private-key, or --behind-proxy if a proxy does TLS"
            )
    if listening.no_token and (tokens or sign_in is not None):
        other = "--tokens" if tokens else "--sign-in"
        raise ConfigError(f"--no-token does not work with {other}; remove one of them")
    if not tokens and not listening.no_token and sign_in is None:
        if _goes_to_log():
            raise ConfigError(
                "--tokens: the output of this service goes to the system's log, where a generated "
                "token would stay; give a file with --tokens, or --sign-in"
            )
        tokens = (made_up(),)
    hosts = {"localhost", "127.0.0.1", "::1", listening.host.lower()}
    hosts.update(name.lower() for name in listening.allow_hosts)
    # Behind a proxy or on all addresses, the proxy or the network must check host names.
    everywhere = listening.host in ("0.0.0.0", "::") and not listening.allow_hosts
    names = frozenset() if everywhere else frozenset(hosts)
    return Access(tokens, names, sign_in, listening.hide_names)


def _goes_to_log() -> bool:
    """Return whether systemd has connected the standard output to its journal."""
    about = os.fstat(1)
    return os.environ.get("JOURNAL_STREAM") == f"{about.st_dev}:{about.st_ino}"


def twin_part(
    journal: Path, kill_switch: Path | None = None, weather: float | str | None = None
) -> Part:
    """Return the page of a live cluster.

    Args:
        journal: Journal of its twin.
        kill_switch: File of the twin's kill switch, if known.
        weather: Wet-bulb temperature in °C, or a file of weather, for cooling; None without
            cooling.

    Raises:
        HpctwinError: The journal does not exist, or has no snapshot of the cluster yet.
    """
    source = Source(journal, weather)
    live = Live(source)
    app = application(source, live=live, kill_switch=kill_switch)
    return Part(app, live, source.shown, Collector(source, live))


def run_part(folder: Path) -> Part:
    """Return the page of a simulated run.

    Raises:
        ConfigError: The folder is not a run's.
    """
    source = RunSource(folder)
    live = Live(source)
    return Part(run_application(source, live=live), live, source.shown)


def serve(
    parts: Mapping[str, Part], listening: Listening, access: Access, listens: socket.socket
) -> None:
    """Serve pages until interrupted.

    Args:
        parts: Pages by name; a single page is served at ``/``.
        listening: Address and security.
        access: Accepted tokens and host names.
        listens: Listening socket from `socket_at`.
    """
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(Brief())
    # Threads with what-ifs let the thread that answers go first more often than every 5 ms.
    sys.setswitchinterval(SWITCH_S)
    # A twin on the same computer goes first.
    os.nice(NICE)
    # The state at the beginning stays: collections of garbage need not walk through it.
    gc.collect()
    gc.freeze()
    server_of(parts, listening, access).run(sockets=[listens])


def server_of(parts: Mapping[str, Part], listening: Listening, access: Access) -> uvicorn.Server:
    """Return the server of pages; arguments as for `serve`."""
    app = next(iter(parts.values())).app if len(parts) == 1 else together(parts)

    class Server(uvicorn.Server):
        """Server that ends listeners' streams on exit, instead of waiting for them."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            for part in parts.values():
                part.live.end()
            super().handle_exit(sig, frame)

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            """Start, and let the kernel queue more connections than are accepted at once."""
            await super().startup(sockets)
            for one in sockets or ():
                one.listen(MOST_QUEUED)

    most = room_for_connections()
    config = uvicorn.Config(
        _behind(listening, access, Gate(app, access)),
        http=bounded(most),
        ws="none",
        # As many are accepted at once; until too many are closed, each needs a file, too.
        backlog=max(16, most // 8),
        ssl_certfile=listening.certificate,
        ssl_keyfile=listening.key,
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        log_level="warning",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=65_536,
    )
    return Server(config)


def _behind(listening: Listening, access: Access, gate: Application) -> Application:
    """Return an application that knows the client by a proxy's headers, and the proxy itself."""
    from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

    if not listening.behind_proxy and access.sign_in is None:
        return gate
    proxies = getattr(access.sign_in, "proxies", ())
    trusted = list(proxies) or os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1")
    inside: Any = ProxyHeadersMiddleware(gate, trusted) if listening.behind_proxy else gate  # type: ignore[arg-type]

    async def outside(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["peer"] = (scope.get("client") or ("",))[0]
        await inside(scope, receive, send)

    return outside


def socket_at(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address.

    Raises:
        ConfigError: The address is not one of this host, or the port is in use.
    """
    if not 0 <= port < 65_536:
        raise ConfigError(f"--port is {port}; it must be 0 (a free port) to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        # From now on, a client with the address is accepted as soon as the server runs.
        made.listen(128)
    except (OSError, OverflowError) as error:
        says = getattr(error, "strerror", None) or error
        raise ConfigError(f"--host {host} --port {port}: {says}") from error
    return made
