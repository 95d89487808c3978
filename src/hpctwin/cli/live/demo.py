"""``hpctwin demo``."""

from __future__ import annotations

import signal
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hpctwin.twin.service.runner import Twin
    from hpctwin.twin.settings.config import Mode
    from hpctwin.web.server.assembly import Part

__all__ = ["demo_command", "serve_demo"]

WATCHABLE_SPEED = 600
NODES = 32


def demo_command(
    *,
    seed: int = 0,
    speed: str | None = None,
    json: bool = False,
    serve: bool = False,
    nodes: int | None = None,
    mode: Literal["observe", "advise", "approve", "act"] | None = None,
    port: int | None = None,
) -> int:
    """Run the live twin on an emulated cluster, and compare it with static policies.

    The cluster of 32 nodes runs in its own process with the 150 jobs of the SchedTwin paper; the
    twin acts. In a terminal, the demo shows it live at 600 times real time; elsewhere it runs at
    full speed.

    With --serve, generated users submit jobs without end, and the twin's web page shows the
    cluster until Ctrl-C.

    Args:
        seed: Seed of the jobs.
        speed: Seconds of cluster time per second, or "max"; with --serve default 60.
        json: Print the comparison as JSON.
        serve: Serve the twin's web page until interrupted, instead of the comparison.
        nodes: With --serve, number of nodes; default 64.
        mode: With --serve, mode of the twin; default act.
        port: With --serve, port of the page; default 8642, or 0 for a free one.
    """
    if serve:
        from hpctwin.cli.live.demo import serve_demo
        from hpctwin.cli.live.serve import need_web
        from hpctwin.errors import ConfigError

        if json:
            raise ConfigError("--json does not work with --serve; the page has a REST interface")
        need_web("hpctwin demo --serve")
        return serve_demo(
            nodes=64 if nodes is None else nodes, seed=seed, speed=speed or "60",
            mode=mode or "act", port=8642 if port is None else port,
        )  # fmt: skip
    given = {"--nodes": nodes, "--mode": mode, "--port": port}
    if wrong := [option for option, value in given.items() if value is not None]:
        from hpctwin.errors import ConfigError

        raise ConfigError(f"{wrong[0]} is only for --serve; add --serve, or remove it")
    import tempfile
    from pathlib import Path

    from hpctwin.cli.output import print_json, print_table, screen
    from hpctwin.generate.four_phase import four_phase
    from hpctwin.twin.service import comparison
    from hpctwin.twin.settings.config import CoreSettings

    console = screen(stderr=json)
    pace = speed or (str(WATCHABLE_SPEED) if console.file.isatty() else "max")
    console.print(
        f"Emulated cluster of {NODES} nodes with 150 jobs in four phases, controlled by "
        "the twin "
        f"({'as fast as possible' if pace == 'max' else pace + ' times real time'})."
    )
    with tempfile.TemporaryDirectory(prefix="hpctwin-") as folder:
        row, last = _run(Path(folder), seed, pace, console)
    jobs = four_phase(seed=seed)
    settings = CoreSettings()
    rows = [comparison.static_row(jobs, NODES, text, seed) for text in comparison.STATIC]
    rows.append(row)
    comparison.judge(rows, settings)
    if json:
        print_json([one.plain() for one in rows])
        return 0
    console.print("[bold]Last decision in which one policy was better than the others:[/]")
    console.print("\n".join(last))
    console.print()
    print_table(comparison.objective_table(comparison.means(rows)))
    console.print(
        f"After a decision, the sampled forecasts of all pending jobs took "
        f"{row.forecast_ms_mean:.1f} ms; the twin makes them at most once per second of the "
        "cluster, unless a job is new."
    )
    shares = ", ".join(f"{name} {share:.0%}" for name, share in row.share_by_policy.items())
    console.print(f"Jobs started by the twin under: {shares}.")
    console.print("`hpctwin experiment schedtwin` repeats this over ten workloads.")
    return 0


def _run(folder: Path, seed: int, speed: str, console: Any) -> tuple[Any, list[str]]:
    """Return the twin's row of the comparison, and the lines of its last explanation."""
    from hpctwin.cli.live.top import live_view
    from hpctwin.policies import Policy, compile_policies
    from hpctwin.twin.core.core import Core
    from hpctwin.twin.emulated.process import PATIENCE_S, emulated_process
    from hpctwin.twin.service.explain import explain_decision
    from hpctwin.twin.service.service import open_twin
    from hpctwin.twin.settings.config import CoreSettings, TwinConfig

    address = folder / "cluster.sock"
    # Beforehand, in one go: the cluster's process would compile a part of it first. No node of it
    # fails, and its queue is short.
    compile_policies(Core(CoreSettings()).pool, Policy.kernels_at_first)
    with emulated_process(
        address, "--nodes", str(NODES), "--workload", "four-phase", "--seed", str(seed),
        "--speed", speed, "--wait", "--history",
    ):  # fmt: skip
        config = TwinConfig.of(
            {
                "manager": {"kind": "emulated", "address": str(address), "timeout": PATIENCE_S},
                "act": {"mode": "act", "starts_per_minute": 1_000_000},
                "journal": {"path": str(folder / "journal.sqlite")},
            }
        )
        with open_twin(config, warm_up=False) as twin:
            # In a pipe, lines have no width.
            with live_view(twin, console) if console.file.isatty() else nullcontext():
                _run_until_done(twin)
            row = _row(twin, seed)
            last = explain_decision(twin.journal, twin.journal.last_choice())
        return row, last


def _run_until_done(twin: Twin) -> None:
    import threading
    import time

    from hpctwin.rms.emulated.client import EmulatedManager

    assert isinstance(twin.manager, EmulatedManager)
    stop = threading.Event()
    address, timeout_s = twin.manager.path, twin.manager.timeout_s

    def look() -> None:
        manager = EmulatedManager(address, timeout_s=timeout_s)
        while not stop.is_set() and not manager.ask("state")["done"]:
            time.sleep(0.2)
        manager.close()
        stop.set()

    threading.Thread(target=look, daemon=True).start()
    try:
        twin.run(stop)
    finally:
        stop.set()


def _row(twin: Twin, seed: int) -> Any:
    """Return the jobs' results from the cluster's history, as a comparison row."""
    from hpctwin.generate.four_phase import four_phase
    from hpctwin.rms.emulated.client import EmulatedManager
    from hpctwin.twin.service import comparison

    assert isinstance(twin.manager, EmulatedManager)
    times: dict[str, list[float]] = {}
    for time_s, job_id, what in twin.manager.ask("state", history=True)["history"]:
        times.setdefault(job_id, [0.0, 0.0, 0.0])[{"submitted": 0, "started": 1}.get(what, 2)] = (
            time_s
        )
    jobs = four_phase(seed=seed)
    nodes = dict(zip(map(str, jobs.job_id.tolist()), jobs.nodes.tolist(), strict=True))
    row = comparison.row_of(comparison.TWIN, seed, [(*times[i], nodes[i]) for i in times], NODES)
    row.share_by_policy = twin.journal.starts_by_policy()
    row.cycle_ms_mean = twin.journal.mean_cycle_ms()
    row.forecast_ms_mean = twin.control.forecasts_ms / max(1, twin.control.decisions)
    return row


LOAD = 0.92
"""Share of the capacity that jobs request, such that a queue forms and ends again."""
SHOWN_S = 86_400.0
"""Time of the cluster that the page looks back, in seconds."""
MIN_RETENTION_S = 600.0
"""Minimum age at which records of the journal are deleted, in seconds."""


def serve_demo(*, nodes: int, seed: int, speed: str, mode: Mode, port: int) -> int:
    """Run the cluster, the twin and the page until interrupted; all files are then deleted.

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
    from hpctwin.twin.emulated.process import emulated_process, running, signals_handled
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
        signals_handled(signal.default_int_handler),
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
