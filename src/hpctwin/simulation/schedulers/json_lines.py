"""Scheduler as a program that reads and writes one line of JSON per decision.

    → {"type": "begin", "cluster": "theta", "nodes": 4360}
    → {"type": "happened", "now_s": 0.0, "submitted": [{"job_id": 1, "submit_s": 0.0, "nodes": 16,
       "walltime_s": 3600.0}], "ended": [], "refused": [], "free_nodes": 4360, "last": false}
    ← {"start": [1]}
    → {"type": "happened", "now_s": 60.0, "submitted": [], "ended": [[1, "completed"]], …}
    ← {"start": [], "call_at_s": 90.0}
    → {"type": "end"}

The program reads from standard input. It answers each ``happened`` with one line on standard output
and writes nothing else there; its standard error is shown.
"""

from __future__ import annotations

import contextlib
import json
import math
import shlex
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import IO, Any, Self

from hpctwin.errors import ConfigError, SimulationError
from hpctwin.model import Cluster
from hpctwin.simulation.schedulers.driving import Happened, Orders

__all__ = ["JsonLinesScheduler"]

_KEYS = {"start", "call_at_s", "never"}


class JsonLinesScheduler:
    """External scheduler that runs as a program.

    As a context manager it starts and ends the program.

    Args:
        command: Program and its arguments; a string is split as a shell does.
        cluster: The cluster; the program receives its name and size.
        timeout_s: Longest time to wait for an answer, in seconds.

    Raises:
        ConfigError: The program cannot be started.
        SimulationError: The program does not answer as it should.
    """

    def __init__(
        self, command: str | Sequence[str], cluster: Cluster, *, timeout_s: float = 60.0
    ) -> None:
        self.command = shlex.split(command) if isinstance(command, str) else list(command)
        self.cluster = cluster
        self.timeout_s = timeout_s

    def __enter__(self) -> Self:
        if not self.command:
            raise ConfigError("the scheduler is no command; give a program and its arguments")
        try:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                bufsize=1,
            )
        except OSError as error:
            raise ConfigError(
                f"scheduler {self.command[0]!r} cannot be started: {error}"
            ) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to: IO[str] = self._process.stdin
        self._from: IO[str] = self._process.stdout
        # Waiting for the answer in this thread costs a tenth of waiting for a thread that reads it.
        # The watch thread therefore only kills a program that is late.
        self._late_at_s = math.inf
        self._late = False
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._end_the_late, daemon=True)
        self._watch.start()
        self._say({"type": "begin", "cluster": self.cluster.name, "nodes": self.cluster.node_count})
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._say({"type": "end"})
        with contextlib.suppress(BrokenPipeError):
            self._to.close()
        try:
            self._process.wait(5.0 if kind is None else 0.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._over.set()
        self._watch.join()
        self._from.close()

    @property
    def exit_code(self) -> int | None:
        """The program's exit code; None while it runs."""
        return self._process.poll()

    def __call__(self, happened: Happened) -> Orders:
        """Send what happened and return the program's orders."""
        self._late_at_s = time.monotonic() + self.timeout_s
        self._say({"type": "happened", **vars(happened)})
        line = self._from.readline()
        self._late_at_s = math.inf
        if self._late:
            raise SimulationError(
                f"scheduler {self.command[0]!r} has not answered for {self.timeout_s:g} s at "
                f"{happened.now_s:g} s of the simulation"
            )
        if not line:
            raise SimulationError(
                f"scheduler {self.command[0]!r} ended (exit code {self._process.wait()}) at "
                f"{happened.now_s:g} s of the simulation"
            )
        return self._orders(line, happened.now_s)

    def _orders(self, line: str, now_s: float) -> Orders:
        try:
            given = json.loads(line)
        except ValueError:
            given = None
        wrong = None
        if not isinstance(given, dict):
            wrong = 'expected an object such as {"start": [1, 2]}'
        elif set(given) - _KEYS:
            wrong = (
                f"unknown key {sorted(set(given) - _KEYS)[0]!r}; known: {', '.join(sorted(_KEYS))}"
            )
        elif not all(isinstance(given.get(key, []), list) for key in ("start", "never")):
            wrong = "start and never are lists of job ids"
        elif not isinstance(given.get("call_at_s", 0.0), int | float | None):
            wrong = "call_at_s is a time in seconds"
        if wrong is not None or given is None:
            raise SimulationError(
                f"scheduler {self.command[0]!r} answered {line.strip()[:80]!r} at {now_s:g} s of the "
                f"simulation: {wrong}"
            )
        return Orders(given.get("start", []), given.get("call_at_s"), given.get("never", []))

    def _say(self, message: dict[str, Any]) -> None:
        # A program that has ended is reported when its answer is missing.
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._to.write(json.dumps(message) + "\n")
            self._to.flush()

    def _end_the_late(self) -> None:
        """Kill the program if an answer does not come in time."""
        while not self._over.wait(min(self.timeout_s, self._late_at_s - time.monotonic())):
            if time.monotonic() >= self._late_at_s:
                self._late = True
                self._process.kill()
                return
