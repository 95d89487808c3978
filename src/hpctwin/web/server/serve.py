"""Web server for live twins and simulated runs, and the application of a run."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

from fastapi import FastAPI, Query
from fastapi.responses import StreamingResponse

from hpctwin.errors import ConfigError
from hpctwin.web.server.api import timeline_routes
from hpctwin.web.server.assembly import JobId, Live, application_of
from hpctwin.web.server.gate import Access, is_loopback, made_up, read_tokens
from hpctwin.web.views.runs import RunSource
from hpctwin.web.views.views import LinesView, RunHead, RunJob, RunJobs

if TYPE_CHECKING:
    from hpctwin.web.server.assembly import Part

__all__ = [
    "Listening",
    "access_of",
    "run_application",
    "run_part",
    "serve",
    "socket_at",
    "twin_part",
]


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

    @app.get("/api/v1/lines", tags=["look"])
    def lines(bins: Annotated[int, Query(ge=1, le=2000)] = 400) -> LinesView:
        """Return queue, cluster and power over time, as means and peaks of equal bins."""
        return source.lines(bins)

    @app.get("/api/v1/jobs", tags=["look"])
    def jobs(
        find: Annotated[str, Query(max_length=128)] = "",
        state: Annotated[str | None, Query(max_length=32)] = None,
    ) -> RunJobs:
        """Return the first 500 jobs that match an id, user, account or partition."""
        return source.jobs(find, state)

    @app.get("/api/v1/jobs/{job}", tags=["look"])
    def job(job: JobId) -> RunJob:
        """Return one job."""
        return source.job(job)

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
    """

    host: str = "127.0.0.1"
    port: int = 8642
    tokens: Path | None = None
    no_token: bool = False
    certificate: Path | None = None
    key: Path | None = None
    behind_proxy: bool = False
    allow_hosts: tuple[str, ...] = ()

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
    if not is_loopback(listening.host):
        if not tokens:
            raise ConfigError(
                f"--host {listening.host}: access from other hosts requires a token; give "
                "a file with --tokens"
            )
        if not listening.tls and not listening.behind_proxy:
            raise ConfigError(
                f"--host {listening.host}: tokens would be sent unencrypted; give "
                "--certificate and --private-key, or --behind-proxy if a proxy does TLS"
            )
    if listening.no_token and tokens:
        raise ConfigError("--no-token does not work with --tokens; remove one of them")
    if not tokens and not listening.no_token:
        tokens = (made_up(),)
    hosts = {"localhost", "127.0.0.1", "::1", listening.host.lower()}
    hosts.update(name.lower() for name in listening.allow_hosts)
    # Behind a proxy or on all addresses, the proxy or the network must check host names.
    everywhere = listening.host in ("0.0.0.0", "::") and not listening.allow_hosts
    return Access(tokens, frozenset() if everywhere else frozenset(hosts))


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
    from hpctwin.web.server.api import application
    from hpctwin.web.server.assembly import Live, Part
    from hpctwin.web.views.source import Source

    source = Source(journal, weather)
    live = Live(source)
    return Part(application(source, live=live, kill_switch=kill_switch), live, source.shown)


def run_part(folder: Path) -> Part:
    """Return the page of a simulated run.

    Args:
        folder: Folder of the run.

    Raises:
        ConfigError: The folder is not a run's.
    """
    from hpctwin.web.server.assembly import Live, Part
    from hpctwin.web.views.runs import RunSource

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
    import uvicorn

    from hpctwin.web.server.assembly import together
    from hpctwin.web.server.gate import Gate

    app = next(iter(parts.values())).app if len(parts) == 1 else together(parts)

    class Server(uvicorn.Server):
        """Server that ends listeners' streams on exit, instead of waiting for them."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            for part in parts.values():
                part.live.end()
            super().handle_exit(sig, frame)

    config = uvicorn.Config(
        Gate(app, access),
        ssl_certfile=listening.certificate,
        ssl_keyfile=listening.key,
        proxy_headers=listening.behind_proxy,
        server_header=False,
        access_log=False,
        log_config=None,
        log_level="warning",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=65_536,
    )
    Server(config).run(sockets=[listens])


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
