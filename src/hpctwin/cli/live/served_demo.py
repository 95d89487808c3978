"""``hpctwin demo --serve``: an emulated cluster, a twin and its web page, until interrupted."""

from __future__ import annotations

import signal
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hpctwin.twin.settings.config import Mode
    from hpctwin.web.server.assembly import Part

__all__ = ["serve_demo"]

LOAD = 0.92
"""Share of the capacity that jobs request, such that a queue forms and ends again."""
SHOWN_S = 86_400.0
"""Time of the cluster that the page looks back, in seconds."""
MIN_RETENTION_S = 600.0
"""Minimum age at which records of the journal are deleted, in seconds."""


def serve_demo(*, nodes: int, seed: int, speed: str, mode: Mode, port: int) -> int:
    """Run the cluster, the twin and the page until interrupted; all files are then deleted.

    Args:
        nodes: Number of nodes of the cluster.
        seed: Seed of the jobs.
        speed: Seconds of cluster time per second.
        mode: Mode of the twin.
        port: Port of the page.

    Raises:
        ConfigError: The port is in use, or an option is not valid.
        HpctwinError: The cluster or the twin does not start.
    """
    import tempfile
    import time
    from dataclasses import replace

    from hpctwin.cli.live.emulate import pace_of
    from hpctwin.cli.live.serve import page_address
    from hpctwin.errors import ConfigError
    from hpctwin.twin.emulated.process import emulated_process, running
    from hpctwin.web.server.serve import Listening, access_of, serve, socket_at

    pace = pace_of(speed)
    if nodes < 1:
        raise ConfigError(f"--nodes is {nodes}; it must be 1 or more")
    if pace is None:
        raise ConfigError("--speed max does not work with --serve; give a number such as 60")
    listening = Listening(port=port)
    access = access_of(listening)
    # The user of the demo may also approve decisions.
    access = replace(access, tokens=(replace(access.tokens[0], role="operator"),))
    with (
        suppress(KeyboardInterrupt),
        _interrupted_by_signals(),
        socket_at(listening.host, port) as listens,
        tempfile.TemporaryDirectory(prefix="hpctwin-demo-") as name,
    ):
        config = _write_settings(Path(name), pace, mode)
        with (
            emulated_process(
                Path(name) / "cluster.sock", "--nodes", str(nodes), "--seed", str(seed),
                "--speed", speed, "--load", str(LOAD), "--start", str(int(time.time())), "--dates",
            ),
            running("twin", "run", "-c", str(config)) as twin,
        ):  # fmt: skip
            part = _page_of(config, twin.poll)
            print(page_address(listening, access, listens))
            print(
                f"Emulated cluster of {nodes} nodes at {pace:g} times real time, twin in mode "
                f"{mode}.\nIn another terminal: hpctwin twin top -c {config}\n"
                "Ctrl-C ends the demo and deletes its files.",
                flush=True,
            )
            serve({"demo": part}, listening, access, listens)
    print("The demo has ended.")
    return 0


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Treat the end of the terminal, or a request to end, like Ctrl-C."""
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write_settings(folder: Path, pace: float, mode: Mode) -> Path:
    import yaml

    from hpctwin.model.files import write_atomically
    from hpctwin.twin.emulated.process import PATIENCE_S

    path = folder / "twin.yaml"
    content = {
        "manager": {
            "kind": "emulated", "address": str(folder / "cluster.sock"), "timeout": PATIENCE_S,
        },
        "core": {"site_policy": "fcfs+easy"},
        "act": {"mode": mode, "starts_per_minute": 1_000_000, "kill_switch": "stop-the-twin"},
        "journal": {"path": "journal.sqlite", "retention": max(MIN_RETENTION_S, SHOWN_S / pace)},
        "cycle_interval": 1,
    }  # fmt: skip
    with write_atomically(path) as file:
        file.write(yaml.safe_dump(content, sort_keys=False).encode())
    return path


def _page_of(config: Path, ended: Callable[[], int | None]) -> Part:
    """Return the page of the twin, once the twin has seen the cluster."""
    import time

    from hpctwin.errors import HpctwinError
    from hpctwin.twin.emulated.process import PATIENCE_S
    from hpctwin.twin.settings.config import TwinConfig
    from hpctwin.web.server.serve import twin_part

    settings = TwinConfig.from_yaml(config)
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return twin_part(settings.journal.path, settings.act.kill_switch)
        except HpctwinError as error:
            if ended() is not None or time.monotonic() > until:
                raise HpctwinError(f"the twin of the demo did not start: {error}") from error
            time.sleep(0.1)
