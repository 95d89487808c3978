"""Users of a real cluster in SchedTwin's experiment: submit sleep jobs, query."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from hpctwin.errors import CommandError, ExperimentError
from hpctwin.formats.accounting.slurm_values import number
from hpctwin.rms.commands import Commands
from hpctwin.rms.pbs.listing.output import read_output
from hpctwin.rms.slurm.listing.values import words

TIMEOUT_S = 60.0
"""Timeout of a command, in seconds of an unmodified clock."""


@dataclass(frozen=True)
class Times:
    """Times of a job according to the resource manager.

    Args:
        state: Last state, in the manager's word.
        submit_s, start_s, end_s: Times of the manager's clock, in seconds since the epoch; None if
            not reached.
        runs: Number of starts.
    """

    state: str
    submit_s: float
    start_s: float | None = None
    end_s: float | None = None
    runs: int = 1


class ClusterUser(Protocol):
    """A user that submits jobs to a cluster."""

    limit_step_s: float
    """Step of job limits, in seconds; limits are multiples of it."""

    def version(self) -> str:
        """Return the version of the resource manager."""

    def idle_nodes(self) -> int:
        """Return the number of available idle nodes; 0 while jobs are in the queue."""

    def submit(self, nodes: int, walltime_s: float, runs_s: float) -> str:
        """Submit a job that sleeps `runs_s` seconds; return its id."""

    def jobs(self) -> dict[str, Times]:
        """Return all jobs known to the manager, including recently ended ones."""

    def cancel(self, jobs: Sequence[str]) -> None:
        """Cancel jobs."""


class _ByCommands:
    """A user that runs the manager's commands in the environment of this process.

    Args:
        conf: The manager's configuration file, if not from the environment.
        folder: Folder of its commands; if empty, they are found on the PATH.
        options: Further options of the submitting command.
        clock: Speed of this process's clock, as a factor of real time.
    """

    conf_variable: ClassVar[str]
    limit_step_s: float

    def __init__(
        self,
        *,
        conf: Path | None = None,
        folder: str = "",
        options: Sequence[str] = (),
        clock: float = 1.0,
    ) -> None:
        more = {} if conf is None else {self.conf_variable: str(conf)}
        self.commands = Commands(
            folder, timeout_s=TIMEOUT_S * clock, environment={**os.environ, **more}
        )
        self.options = tuple(options)

    def _ask(self, name: str, *arguments: str) -> bytes:
        try:
            return self.commands.run(name, arguments)
        except CommandError as error:
            raise ExperimentError(f"{name} {' '.join(arguments)}: {error}") from error


class SlurmUser(_ByCommands):
    """A user of Slurm: ``sbatch``, ``squeue``, ``sinfo`` and ``scancel``; see `_ByCommands`."""

    conf_variable = "SLURM_CONF"
    limit_step_s = 60.0

    def version(self) -> str:
        """See `ClusterUser`."""
        return self._ask("sinfo", "--version").decode().strip()

    def idle_nodes(self) -> int:
        """See `ClusterUser`."""
        if self._ask("squeue", "-h").strip():
            return 0
        said = self._ask("sinfo", "-h", "-N", "-t", "idle", "-o", "%N")
        return len(set(said.split()))

    def submit(self, nodes: int, walltime_s: float, runs_s: float) -> str:
        """See `ClusterUser`."""
        said = self._ask(
            "sbatch", "--parsable", f"--nodes={nodes}", f"--time={math.ceil(walltime_s / 60)}",
            "--output=/dev/null", "--chdir=/", "--job-name=schedtwin", *self.options,
            "--wrap", f"exec sleep {runs_s:.3f}",
        )  # fmt: skip
        return said.decode().strip().partition(";")[0]

    def jobs(self) -> dict[str, Times]:
        """See `ClusterUser`."""
        rows = json.loads(self._ask("squeue", "--json", "--states=all"))["jobs"]
        return {str(row["job_id"]): self._times(row) for row in rows}

    def cancel(self, jobs: Sequence[str]) -> None:
        """See `ClusterUser`."""
        if jobs:
            self._ask("scancel", *jobs)

    @staticmethod
    def _times(row: dict[str, Any]) -> Times:
        state = words(row["job_state"])
        waits = "PENDING" in state
        # Slurm plans starts and ends of pending and running jobs; these times are not facts yet.
        ended = not waits and not state & {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED"}
        start = number(row["start_time"]) or None
        return Times(
            "+".join(sorted(state)),
            number(row["submit_time"]) or 0.0,
            None if waits else start,
            number(row["end_time"]) if ended else None,
            1 + int(number(row.get("restart_cnt")) or 0),
        )


class PbsUser(_ByCommands):
    """A user of PBS: ``qsub``, ``qstat``, ``pbsnodes`` and ``qdel``; see `_ByCommands`.

    The server must keep its history (``job_history_enable``).
    """

    conf_variable = "PBS_CONF_FILE"
    limit_step_s = 1.0

    def version(self) -> str:
        """See `ClusterUser`."""
        said = self._ask("qstat", "--version").decode().strip()
        return "PBS " + said.rpartition("=")[2].strip()

    def idle_nodes(self) -> int:
        """See `ClusterUser`."""
        if any(times.end_s is None for times in self.jobs().values()):
            return 0
        said = self._ask("pbsnodes", "-a", "-v", "-F", "json")
        nodes = read_output(said, "pbsnodes", []).get("nodes", {})
        return sum(
            node.get("state") == "free"
            and int(node.get("resources_available", {}).get("ncpus", 0)) > 0
            for node in nodes.values()
        )

    def submit(self, nodes: int, walltime_s: float, runs_s: float) -> str:
        """See `ClusterUser`."""
        said = self._ask(
            "qsub", "-N", "schedtwin", "-l", f"select={nodes}:ncpus=1", "-l", "place=vscatter",
            "-l", f"walltime={math.ceil(walltime_s)}", "-koed", "-o", "/dev/null", "-e", "/dev/null",
            *self.options, "--", "/bin/sleep", f"{runs_s:.3f}",
        )  # fmt: skip
        return said.decode().strip()

    def jobs(self) -> dict[str, Times]:
        """See `ClusterUser`."""
        said = read_output(self._ask("qstat", "-x", "-f", "-F", "json"), "qstat", [])
        return {job_id: self._times(row) for job_id, row in said.get("Jobs", {}).items()}

    def cancel(self, jobs: Sequence[str]) -> None:
        """See `ClusterUser`."""
        if jobs:
            with suppress(ExperimentError):  # qdel fails if one of the jobs has just ended
                self._ask("qdel", *jobs)

    @staticmethod
    def _times(row: dict[str, Any]) -> Times:
        ended = row["job_state"] == "F"
        state = f"F:{row.get('Exit_status', '?')}" if ended else str(row["job_state"])
        return Times(
            state,
            _stamp(row["ctime"]) or 0.0,
            _stamp(row.get("stime")),
            _stamp(row.get("obittime") or row.get("mtime")) if ended else None,
            int(row.get("run_count", 1)),
        )


def _stamp(text: str | None) -> float | None:
    """Return the seconds since the epoch of a time in PBS's format."""
    return None if text is None else time.mktime(time.strptime(text, "%a %b %d %H:%M:%S %Y"))
