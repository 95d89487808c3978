"""``hpctwin serve``."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hpctwin.cli.options.options import temperature_or_file
from hpctwin.cli.output.logs import LogOptions

if TYPE_CHECKING:
    from hpctwin.web.server.assembly import Part

__all__ = ["mcp_command", "serve_command"]

_TAKEN = ("api", "static", "healthz", "readyz", "metrics", "favicon.ico")


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
    log: LogOptions = LogOptions(),  # noqa: B008
) -> int:
    """Serve the web page of a live twin or of a simulated run: dashboard, REST, metrics. Until interrupted.

    Of a live twin it reads the journal, also when the twin has ended; the twin itself does not wait for it.
    Of several twins and runs, each has a page, and one lists them.

    Args:
        runs: folders that `hpctwin simulate --out` has written or is writing, or folders of such folders.
        config: a twin's YAML file; if nothing is named, what HPCTWIN_CONFIG names, or hpctwin.yaml.
        journal: a journal, without its YAML file.
        host: address to listen on; beyond loopback it needs tokens, and TLS or a proxy.
        port: to listen on.
        weather: wet-bulb temperature, °C, or a CSV file of weather: a live page tells the PUE, where the
            cluster's description has a cooling plant.
        tokens: file with a line for each token: NAME ROLE SECRET; ROLE is read-only or operator. Or the
            same in the environment variable HPCTWIN_TOKENS. Else one is made up and shown.
        no_token: on loopback only: let every user of this host look.
        certificate: file for TLS.
        private_key: file for TLS.
        behind_proxy: a proxy does TLS.
        allow_host: a name under which the page is asked for.
    """
    from hpctwin.errors import need

    for package in ("fastapi", "prometheus_client", "uvicorn"):
        need(package, "web", "hpctwin serve")
    log.begin()
    from hpctwin.web.server.access import MADE_UP
    from hpctwin.web.server.serve import Listening, access_of, serve, socket_at

    listening = Listening(
        host, port, tokens, no_token, certificate, private_key, behind_proxy, tuple(allow_host)
    )
    access = access_of(listening)
    parts = _parts(runs, config, journal, temperature_or_file(weather))
    with socket_at(host, port) as listens:
        name = f"[{host}]" if ":" in host else host
        scheme = "https" if listening.tls else "http"
        address = f"{scheme}://{name}:{listens.getsockname()[1]}/"
        if access.tokens and access.tokens[0].name == MADE_UP:
            # Browsers send nothing to anybody of what follows this sign.
            address += f"#token={access.tokens[0].secret.decode()}"
        print(address, flush=True)
        serve(parts, listening, access, listens)
    return 0


def _parts(
    runs: tuple[Path, ...],
    config: tuple[Path, ...],
    journal: tuple[Path, ...],
    weather: float | str | None,
) -> dict[str, Part]:
    """All that is to be shown, by names that may stand in an address."""
    import re

    from hpctwin.report.pages.folder import runs_in
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
) -> int:
    """Serve read-only tools for an assistant on standard input and output (Model Context Protocol).

    Args:
        config: the twin's YAML file.
        journal: a journal, instead of the one named in the YAML file.
    """
    from hpctwin.errors import need

    need("mcp", "mcp", "hpctwin mcp")
    from hpctwin.web.server.assistant import assistant
    from hpctwin.web.views.source import Source

    where, _ = _twin(config, journal)
    assistant(Source(where)).run("stdio")
    return 0


def _twin(config: Path | None, journal: Path | None) -> tuple[Path, Path | None]:
    """The journal, and the kill switch if the YAML file names one."""
    from hpctwin.errors import ConfigError
    from hpctwin.twin.settings.config import TwinConfig

    if config is None and journal is None:
        config = Path("hpctwin.yaml")
        if not config.exists():
            raise ConfigError(
                "name the twin's YAML file by --config, its journal by --journal, or a simulated run's folder"
            )
    if config is None:
        assert journal is not None
        return journal, None
    settings = TwinConfig.from_yaml(config)
    return journal or settings.journal.path, settings.act.kill_switch
