"""Execution of a resource manager's commands, without a shell, with time limits."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from hpctwin.errors import CommandError, UnreachableError

MAX_OUTPUT = 256 * 1024 * 1024
MINUTE_S = 60.0
_SET_FOLDER = "set `manager.folder` or --commands to the folder that contains it"


def not_inherited(*names: str) -> list[str]:
    """Return those variables that are set but not passed on, as ``NAME=value``."""
    return [f"{name}={os.environ[name]}" for name in names if os.environ.get(name)]


def passed_on(*names: str) -> dict[str, str]:
    """Return those of these variables that the environment sets, for `Commands`."""
    return {name: os.environ[name] for name in names if os.environ.get(name)}


class Commands:
    """Runner of one resource manager's commands; it counts the calls.

    Args:
        folder: Folder of the commands; if empty, they are searched on the twin's own path.
        timeout_s: Time limit of each call, in seconds.
        environment: Variables added to a small fixed environment; nothing else is inherited.
    """

    def __init__(
        self,
        folder: str = "",
        *,
        timeout_s: float = 10.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.timeout_s = timeout_s
        self.environment = {
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "LC_ALL": "C.UTF-8",
            **(environment or {}),
        }
        self._calls: deque[float] = deque()
        self._kept: dict[tuple[str, ...], tuple[float, bytes]] = {}

    def again(self) -> Commands:
        """Return an equal runner for another thread, with its own counts and cache."""
        return Commands(self.folder, timeout_s=self.timeout_s, environment=self.environment)

    def run(self, name: str, arguments: Sequence[str]) -> bytes:
        """Return the standard output of a command.

        Raises:
            CommandError: The command ended with an error.
            UnreachableError: The command is missing, took too long, or wrote more than 256 MiB.
        """
        output = self._output(name, arguments, subprocess.PIPE, self.timeout_s)
        if len(output) > MAX_OUTPUT:
            raise UnreachableError(
                f"{name}: its output has {len(output)} bytes; the limit is {MAX_OUTPUT}"
            )
        return output

    def run_into(
        self, file: BinaryIO, name: str, arguments: Sequence[str], *, timeout_s: float
    ) -> None:
        """Run a command that writes into a file, without a limit on its output.

        Args:
            timeout_s: Time limit of this call, in seconds.
        """
        self._output(name, arguments, file, timeout_s)

    def _output(
        self, name: str, arguments: Sequence[str], into: BinaryIO | int, timeout_s: float
    ) -> bytes:
        now = time.monotonic()
        self._calls.append(now)
        while self._calls[0] < now - MINUTE_S:
            self._calls.popleft()
        program = f"{self.folder}/{name}" if self.folder else _on_path(name)
        if program is None:
            raise UnreachableError(f"{name}: command not found in PATH; {_SET_FOLDER}")
        try:
            done = subprocess.run(
                [program, *arguments],
                stdout=into,
                stderr=subprocess.PIPE,
                timeout=timeout_s,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except FileNotFoundError as error:
            raise UnreachableError(f"{program}: command not found; {_SET_FOLDER}") from error
        except OSError as error:
            raise UnreachableError(f"{program}: {error.strerror or error}") from error
        except subprocess.TimeoutExpired as error:
            raise UnreachableError(f"{name}: no answer within {timeout_s:g} s") from error
        output: bytes = done.stdout or b""
        if done.returncode != 0:
            said = (done.stderr or output).decode(errors="replace").strip()
            if re.search(
                r"unable to contact|connection refused|timed out|cannot connect", said, re.I
            ):
                raise UnreachableError(f"{name}: {said.splitlines()[-1]}")
            last = said.splitlines()[-1] if said else f"{name}: exit code {done.returncode}"
            raise CommandError(last, said)
        return output

    def run_at_times(self, name: str, arguments: Sequence[str], every_s: float) -> bytes:
        """Return the output of `run`; reuse an answer younger than ``every_s``."""
        key = (name, *arguments)
        now = time.monotonic()
        if key not in self._kept or self._kept[key][0] < now - every_s:
            self._kept[key] = (now, self.run(name, arguments))
        return self._kept[key][1]

    def calls_per_minute(self) -> int:
        """Return the number of commands run in the last minute."""
        now = time.monotonic()
        # Other threads run commands meanwhile; a copy is made in one step.
        return sum(at >= now - MINUTE_S for at in tuple(self._calls))


def _on_path(name: str) -> str | None:
    """Return the path of a command, found on the twin's own path.

    PBS's and Slurm's commands are often in separate folders. Path entries that depend on the
    current folder do not count.
    """
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return shutil.which(name, path=os.pathsep.join(filter(os.path.isabs, entries)))
