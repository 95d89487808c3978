"""A scheduler that is a program: it reads a line of JSON from its standard input, and writes one.

    → {"type": "begin", "cluster": "theta", "nodes": 4360}
    → {"type": "happened", "now_s": 0.0, "submitted": [{"job_id": 1, "submit_s": 0.0, "nodes": 16,
       "walltime_s": 3600.0}], "ended": [], "refused": [], "free_nodes": 4360, "last": false}
    ← {"start": [1]}
    → {"type": "happened", "now_s": 60.0, "submitted": [], "ended": [[1, "completed"]], …}
    ← {"start": [], "call_at_s": 90.0}
    → {"type": "end"}

The program answers each ``happened`` with one line, and writes nothing else; its standard error is shown.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import queue
import shlex
import subprocess
import threading
from collections.abc import Sequence
from typing import IO, Any, Self

from hpctwin.errors import SimulationError
from hpctwin.model import Cluster
from hpctwin.simulation.schedulers.driving import Happened, Orders

__all__ = ["JsonLinesScheduler"]

_KEYS = {"start", "call_at_s", "never"}


class JsonLinesScheduler:
    """A scheduler as a program; a context that starts and ends it.

    Args:
        command: the program and its arguments; a text is split as a shell does.
        cluster: the machine, of which the program is told name and size.
        timeout_s: so long it may take to answer, seconds.

    Raises:
        SimulationError: it cannot be started, or does not answer as it should.
    """

    def __init__(
        self, command: str | Sequence[str], cluster: Cluster, *, timeout_s: float = 60.0
    ) -> None:
        self.command = shlex.split(command) if isinstance(command, str) else list(command)
        self.cluster = cluster
        self.timeout_s = timeout_s
        self._lines: queue.Queue[str | None] = queue.Queue()

    def __enter__(self) -> Self:
        if not self.command:
            raise SimulationError("the scheduler is no command; give a program and its arguments")
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
            raise SimulationError(
                f"scheduler {self.command[0]!r} cannot be started: {error}"
            ) from error
        assert self._process.stdout is not None
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), daemon=True
        )
        self._reader.start()
        self._say({"type": "begin", "cluster": self.cluster.name, "nodes": self.cluster.node_count})
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if kind is None:
            self._say({"type": "end"})
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(5.0 if kind is None else 0.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()

    @property
    def exit_code(self) -> int | None:
        """The program's; None while it runs."""
        return self._process.poll()

    def __call__(self, happened: Happened) -> Orders:
        """Tell what happened, and get orders."""
        self._say({"type": "happened", **dataclasses.asdict(happened)})
        try:
            line = self._lines.get(timeout=self.timeout_s)
        except queue.Empty:
            raise SimulationError(
                f"scheduler {self.command[0]!r} has not answered for {self.timeout_s:g} s at "
                f"{happened.now_s:g} s of the simulation"
            ) from None
        if line is None:
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
        assert self._process.stdin is not None
        # That it is gone is told when its answer is missing.
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def _read(self, output: IO[str]) -> None:
        for line in output:
            self._lines.put(line)
        self._lines.put(None)
