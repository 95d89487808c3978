"""Processes that begin at once: forks of one that has imported everything and read the compiled engine.

A real process each, with its own arguments, folder, environment and end; only what every one of them would
do first, for a second of computing, is done once.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["Fork", "fork"]

ROOT = Path(__file__).parents[1]
MODULES = (
    "hpctwin.cli.live.twin", "hpctwin.formats.clusters", "hpctwin.generate",
    "hpctwin.rms.emulated.client", "hpctwin.rms.emulated.server", "hpctwin.rms.pbs.settings",
    "hpctwin.rms.slurm.settings", "hpctwin.simulation", "hpctwin.twin.emulated",
    "hpctwin.twin.facility.service", "hpctwin.twin.service.runner", "hpctwin.twin.service.service",
)  # fmt: skip


class Fork:
    """A process, as far as possible as `subprocess.Popen` has it."""

    def __init__(self, parent: subprocess.Popen[str], pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._parent = parent

    def poll(self) -> int | None:
        """How it ended, or None."""
        if self.returncode is None:
            self.returncode = _asked(self._parent, {"pid": self.pid})
        return self.returncode

    def wait(self, timeout: float = 300) -> int:
        """Wait for its end."""
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)


def fork(module: str, *arguments: str, log: Path, cwd: Path = ROOT, **environment: str) -> Fork:
    """Run ``python -m module arguments``.

    Args:
        module: what to run.
        arguments: its own.
        log: what it prints is added to this file.
        cwd: where it runs.
        environment: besides what this process has now, which the common parent may have been begun without.
    """
    call = {
        "argv": [module, *arguments],
        "log": str(log),
        "cwd": str(cwd),
        "env": {**os.environ, **environment},
    }
    parent = _parent()
    return Fork(parent, _asked(parent, call))


@functools.cache
def _parent() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.forks"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    atexit.register(process.communicate)
    return process


def _asked(parent: subprocess.Popen[str], question: dict[str, Any]) -> Any:
    assert parent.stdin is not None
    assert parent.stdout is not None
    print(json.dumps(question), file=parent.stdin, flush=True)
    return json.loads(parent.stdout.readline())


def _serve() -> None:
    """Answer each line of standard input; in a fork, come back to be what it is told to be."""
    for name in MODULES:
        importlib.import_module(name)
    from hpctwin.engine.operations.kernel import kernels_of
    from hpctwin.engine.passes import PASSES

    for kernel in kernels_of(PASSES.find("easy"), None):
        kernel.load()
    while line := sys.stdin.readline():
        question = json.loads(line)
        if "pid" in question:
            found, status = os.waitpid(question["pid"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if found else None
        elif (answer := os.fork()) == 0:
            _become(question)
            return
        print(json.dumps(answer), flush=True)


def _become(question: dict[str, Any]) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(question["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number, file in enumerate((nothing, log, log)):
        os.dup2(file, number)
    os.chdir(question["cwd"])
    os.environ.clear()
    os.environ.update(question["env"])
    module, *arguments = question["argv"]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve()
