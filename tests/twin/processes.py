"""A real emulated cluster and a real twin, each a process of its own, for tests that hurt them."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpctwin.cli import main
from hpctwin.errors import JournalError, UnreachableError
from hpctwin.rms.emulated.client import EmulatedManager
from hpctwin.twin.journal.journal import Journal
from tests.forks import Fork, fork

__all__ = ["Pair", "Process"]

Process = Fork | subprocess.Popen[bytes]


class Pair:
    """Starts and stops them; only processes that it started itself are ended."""

    def __init__(self, folder: Path, *, redis: str | None = None, **config: Any) -> None:
        self.folder = folder
        self.socket = folder / "c.sock"
        self.config = folder / "twin.yaml"
        self.redis = redis
        self.processes: list[Process] = []
        self.twin: Process | None = None
        body: dict[str, Any] = {
            "manager": {"kind": "emulated", "address": str(self.socket)},
            "act": {"mode": "act", "kill_switch": "stop", "starts_per_minute": 1_000_000},
            # Their clock runs so fast that sixteen would be drawn at nearly each decision.
            "core": {"futures": 2},
            "journal": {"path": "journal.sqlite"},
            "gap_timeout": 0.2,
            "heartbeat_interval": 0.2,
            "resync_interval": 1.0,
        }
        if redis is not None:
            body["bus"] = {"kind": "redis", "url": redis, "stream": "events", "claim_after": 1}
        for section, values in config.items():
            body[section] = (
                {**body.get(section, {}), **values} if isinstance(values, dict) else values
            )
        self.config.write_text(yaml.safe_dump(body))

    def begin_cluster(self, *options: str, faults: dict[str, Any] | None = None) -> None:
        extra = ["--redis", self.redis, "--stream-name", "events"] if self.redis else []
        if "--workload" not in options:
            extra += ["--workload", "four-phase"]
        self._start(
            "cluster.log", "hpctwin", "rms", "emulate", str(self.socket), "--history",
            "--faults", json.dumps(faults or {}), *extra, *options,
        )  # fmt: skip
        self.wait(self._answers, 60)

    def begin_twin(self, *options: str, prefix: tuple[str, ...] = ()) -> Process:
        command = ["hpctwin", "twin", "run", "-c", str(self.config), *options]
        self.twin = self._start("twin.log", *command, prefix=prefix)
        return self.twin

    def kill_twin(self, number: int = signal.SIGKILL) -> None:
        assert self.twin is not None
        self.twin.send_signal(number)
        self.twin.wait(120)

    def ask(self, op: str, **body: Any) -> dict[str, Any]:
        manager = EmulatedManager(self.socket, timeout_s=60)
        try:
            return manager.ask(op, **body)
        finally:
            manager.close()

    def state(self) -> dict[str, Any]:
        return self.ask("state")

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command about the twin, in this process: one of its own would take a second to begin."""
        command = ["twin", *arguments, "-c", str(self.config)]
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main(command)
        code = ended.value.code
        assert isinstance(code, int)
        return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())

    def status(self) -> dict[str, Any]:
        """The last status in the journal, without the time that a process of its own would take."""
        nothing = {
            "seq": None, "run": None, "state": None, "killed": None, "waiting": None,
            "rows": {"actions": 0},
        }  # fmt: skip
        try:
            journal = Journal(self.folder / "journal.sqlite", read_only=True)
        except JournalError:
            return nothing
        try:
            found = journal.read_latest("status")
            counts = journal.counts()
        finally:
            journal.close()
        return {
            **(found[1] if found else {"seq": None, "run": None, "state": None}),
            "rows": counts,
        }

    def wait_done(self, seconds: float) -> None:
        self.wait(lambda: self.state()["done"], seconds)

    def wait(self, reached, seconds: float) -> None:
        """Until something is so; for five minutes or more, since the machine may be busy."""
        until = time.monotonic() + max(seconds, 300)
        while not reached():
            if time.monotonic() > until:
                logs = [(self.folder / name) for name in ("cluster.log", "twin.log")]
                said = "\n".join(log.read_text()[-1500:] for log in logs if log.exists())
                raise TimeoutError(f"not reached in {seconds:g} s: {self.state()}\n{said}")
            for process in self.processes:
                if process.poll() not in (None, 0, -signal.SIGKILL, -signal.SIGTERM):
                    said = (self.folder / "twin.log").read_text()[-3000:]
                    raise AssertionError(f"a process ended with {process.returncode}: {said}")
            time.sleep(0.02)

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(180)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _answers(self) -> bool:
        try:
            self.ask("hello")
        except UnreachableError:
            return False
        return True

    def _start(self, log: str, *command: str, prefix: tuple[str, ...] = ()) -> Process:
        """A process, by another program if there is a prefix."""
        path = self.folder / log
        process: Process
        if prefix:
            with path.open("ab") as file:
                process = subprocess.Popen(
                    [*prefix, sys.executable, "-m", *command],
                    stdout=file,
                    stderr=file,
                    cwd=self.folder,
                    env={**os.environ, "PYTHONUNBUFFERED": "1"},
                )
        else:
            process = fork(*command, log=path, cwd=self.folder)
        self.processes.append(process)
        return process
