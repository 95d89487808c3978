"""``hpctwin serve``."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hpctwin.cli.logs import LogOptions
from hpctwin.cli.options import temperature_or_file

if TYPE_CHECKING:
    from socket import socket

    from hpctwin.web.server.assembly import Part
    from hpctwin.web.server.gate import Access
    from hpctwin.web.server.serve import Listening

__all__ = ["mcp_command", "need_web", "page_address", "serve_command"]

_TAKEN = (
    "api", "static", "healthz", "readyz", "metrics", "favicon.ico", "sign-in", "sign-out",
    "job", "node", "user", "partition", "decision", "history", "compare",
)  # fmt: skip
"""Names that no part of a server may have; with those of pages, an address would be ambiguous."""


def serve_command(
    *runs: Path,
    config: Annotated[tuple[Path, ...], Parameter(name=["--config", "-c"])] = (),
    journal: tuple[Path, ...] = (),
    host: str = "127.0.0.1",
    port: int = 8642,
    weather: str | None = None,
    tokens: Path | None = None,
    no_token: bool = False,
    certificate: Path | None = None,
    private_key: Path | None = None,
    behind_proxy: bool = False,
    allow_host: tuple[str, ...] = (),
    sign_in: Path | None = None,
    hide_names: bool = False,
    log: LogOptions = LogOptions(),  # noqa: B008
) -> int:
    """Serve web pages of live twins or simulated runs: dashboard, REST, metrics.

    Runs until interrupted. For a live twin, it reads the journal, also after the twin has ended;
    the twin never waits for it. With several twins and runs, each has its page, and an index lists
    them.

    Args:
        runs: Folders of `hpctwin simulate --out`, finished or in progress, or their parent folders.
        config: A twin's YAML file; default HPCTWIN_CONFIG, else hpctwin.yaml.
        journal: A journal without its YAML file.
        host: Address to listen on; beyond loopback it needs tokens, and TLS or a proxy.
        port: Port to listen on.
        weather: Wet-bulb temperature in °C, or a CSV file of weather; a live page then shows the
            PUE if the cluster has a cooling plant.
        tokens: File with a line NAME ROLE SECRET for each token; ROLE is viewer, user or operator.
            The environment variable HPCTWIN_TOKENS has the same form. Without both, and without
            --sign-in, a token is generated and shown.
        no_token: Let every user of this host read the pages; only on loopback.
        certificate: Certificate file for TLS.
        private_key: Private key file for TLS.
        behind_proxy: A proxy provides TLS.
        allow_host: Also answer requests to this name of the host, such as a proxy's.
        sign_in: YAML file for sign-in by a reverse proxy's header, or by OpenID Connect.
        hide_names: Show users, accounts and names of other users' jobs only to operators.
    """
    need_web("hpctwin serve")
    log.begin()
    from hpctwin.web.server.serve import Listening, access_of, serve, socket_at

    listening = Listening(
        host, port, tokens, no_token, certificate, private_key, behind_proxy, tuple(allow_host),
        sign_in, hide_names,
    )  # fmt: skip
    access = access_of(listening)
    parts = _parts(runs, config, journal, temperature_or_file(weather))
    with socket_at(host, port) as listens:
        print(page_address(listening, access, listens), flush=True)
        serve(parts, listening, access, listens)
    return 0


def need_web(command: str) -> None:
    """Raise an error unless the packages of the page can be imported.

    Raises:
        ConfigError: One of them is not installed.
    """
    from hpctwin.errors import need

    for package in ("fastapi", "prometheus_client", "uvicorn"):
        need(package, "web", command)


def page_address(listening: Listening, access: Access, listens: socket) -> str:
    """Return the address of the page, with the token if one was generated."""
    from hpctwin.web.server.gate import MADE_UP

    name = f"[{listening.host}]" if ":" in listening.host else listening.host
    scheme = "https" if listening.tls else "http"
    address = f"{scheme}://{name}:{listens.getsockname()[1]}/"
    if access.tokens and access.tokens[0].name == MADE_UP:
        # Browsers send no server the part of an address after '#'.
        address += f"#token={access.tokens[0].secret.decode()}"
    return address


def _parts(
    runs: tuple[Path, ...],
    config: tuple[Path, ...],
    journal: tuple[Path, ...],
    weather: float | str | None,
) -> dict[str, Part]:
    """Return the twins and runs to show, by names that are valid in an address."""
    import re

    from hpctwin.report.pages.run import runs_in
    from hpctwin.web.server.serve import run_part, twin_part

    parts: dict[str, Part] = {}

    def add(name: str, part: Part) -> None:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"
        taken = {*parts, *_TAKEN}
        number = next(n for n in itertools.count(1) if f"{name}{n if n > 1 else ''}" not in taken)
        parts[f"{name}{number if number > 1 else ''}"] = part

    for folder in itertools.chain.from_iterable(map(runs_in, runs)):
        add(folder.resolve().name, run_part(folder))
    for path in config:
        where, kill_switch = _twin(path, None)
        add(path.stem, twin_part(where, kill_switch, weather))
    for path in journal:
        add(path.stem, twin_part(path, None, weather))
    if not parts:
        named = os.environ.get("HPCTWIN_CONFIG")
        add("twin", twin_part(*_twin(Path(named) if named else None, None), weather))
    return parts


def mcp_command(
    *,
    config: Annotated[
        Path | None, Parameter(name=["--config", "-c"], env_var="HPCTWIN_CONFIG")
    ] = None,
    journal: Path | None = None,
    hide_names: bool = False,
) -> int:
    """Serve read-only tools for an assistant over MCP, on standard input and output.

    Args:
        config: The twin's YAML file.
        journal: A journal to use instead of the one in the YAML file.
        hide_names: Leave out users, accounts and names of jobs.
    """
    from hpctwin.errors import need

    need("mcp", "mcp", "hpctwin mcp")
    from hpctwin.web.server.assistant import assistant
    from hpctwin.web.views.source import Source
    from hpctwin.web.views.visibility import Visibility

    where, _ = _twin(config, journal)
    assistant(Source(where), Visibility(names=not hide_names)).run("stdio")
    return 0


def _twin(config: Path | None, journal: Path | None) -> tuple[Path, Path | None]:
    """Return the journal's path, and the kill switch if the YAML file has one."""
    from hpctwin.errors import ConfigError
    from hpctwin.twin.settings.config import TwinConfig

    if config is None and journal is None:
        config = Path("hpctwin.yaml")
        if not config.exists():
            raise ConfigError(
                "give the twin's YAML file with --config, its journal with --journal, or "
                "the folder of a simulated run"
            )
    if config is None:
        assert journal is not None
        return journal, None
    settings = TwinConfig.from_yaml(config)
    return journal or settings.journal.path, settings.act.kill_switch
