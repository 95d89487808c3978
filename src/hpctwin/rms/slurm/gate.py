"""Submitting jobs to Slurm: the key stands in the comment."""

from __future__ import annotations

import json
import math
import os
import pwd
import re
import tempfile
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from hpctwin.errors import CommandError, ConfigError, UnreachableError
from hpctwin.rms.commands import Commands
from hpctwin.rms.gate import JobRequest, SubmittedJob
from hpctwin.rms.manager import Outcome
from hpctwin.rms.mark import Mark
from hpctwin.rms.slurm.values import number

__all__ = ["SlurmGate"]

_ID = re.compile(r"[1-9]\d{0,11}")
_ENDED = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "REVOKED", "TIMEOUT",
}  # fmt: skip
_UNKNOWN = re.compile(r"timed out|took longer|socket|communication", re.IGNORECASE)


class SlurmGate:
    """Jobs run as whoever submits them; scripts are handed to ``sbatch`` as files.

    Only jobs of that user count as submitted with a key: what another user writes into a comment, made up or
    copied, adopts nothing and cancels nothing.

    Args:
        commands: Slurm's.
        mark: what is written into comments.
        options: further options of ``sbatch``, such as ``--chdir=/scratch``.
        changed: called when a job was submitted or admitted: there will be news of it.
    """

    def __init__(
        self,
        commands: Commands,
        mark: Mark,
        options: tuple[str, ...] = (),
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.commands = commands
        self.mark = mark
        self.owner = _owner(options)
        self.options = options
        self.changed = changed

    def submit(self, job: JobRequest, *, delay_s: float = 0.0) -> tuple[Outcome, str]:
        """See `Gate`."""
        with tempfile.NamedTemporaryFile("w", suffix=".sh", encoding="utf-8") as script:
            script.write(job.script or "#!/bin/sh\n")
            script.flush()
            try:
                said = self.commands.run(
                    "sbatch", [*self._asked(job, delay_s), *self.options, script.name]
                )
            except CommandError as error:
                # An error that is not the controller's word leaves open whether the job got in.
                lost = _UNKNOWN.search(str(error)) is not None
                return Outcome("unknown" if lost else "refused", str(error)), ""
            except UnreachableError as error:
                return Outcome("unknown", str(error)), ""
        job_id = said.decode(errors="replace").strip().partition(";")[0]
        if not _ID.fullmatch(job_id):
            return Outcome("unknown", f"sbatch said {job_id!r}, not a job number"), ""
        self.changed()
        return Outcome("done"), job_id

    def jobs(self) -> dict[str, list[SubmittedJob]]:
        """See `Gate`."""
        try:
            said = json.loads(self.commands.run("squeue", ["--json"]))
            rows = said["jobs"]
        except CommandError as error:
            raise UnreachableError(f"Slurm: {error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise UnreachableError("Slurm: squeue gave no list of jobs in JSON") from error
        found: dict[str, list[SubmittedJob]] = {}
        for row in rows:
            key = self.mark.key(_text(row.get("comment")))
            if key is None or number(row.get("user_id")) != self.owner:
                continue
            if _ENDED & set(_states(row)):
                continue
            one = SubmittedJob(str(row["job_id"]), _held(row))
            found.setdefault(key, []).append(one)
        return {key: sorted(jobs, key=lambda job: int(job.id)) for key, jobs in found.items()}

    def admit(self, job_id: str) -> Outcome:
        """See `Gate`."""
        return self._do("scontrol", "release", job_id)

    def cancel(self, job_id: str) -> Outcome:
        """See `Gate`."""
        return self._do("scancel", job_id)

    def _do(self, name: str, *arguments: str) -> Outcome:
        if not _ID.fullmatch(arguments[-1]):
            return Outcome("refused", f"{arguments[-1]!r} is not a job number of Slurm")
        try:
            self.commands.run(name, arguments)
        except CommandError as error:
            return Outcome("refused", str(error))
        except UnreachableError as error:
            return Outcome("unknown", str(error))
        self.changed()
        return Outcome("done")

    def _asked(self, job: JobRequest, delay_s: float) -> list[str]:
        asked = {
            "nodes": str(job.nodes),
            "time": str(math.ceil(job.walltime_s / 60)),
            "job-name": job.name or job.key,
            "partition": job.partition,
            "account": job.account,
            "qos": job.qos,
            "begin": f"now+{math.ceil(delay_s)}seconds" if delay_s > 0 else "",
            "mincpus": str(math.ceil(job.cores)) if job.cores else "",
            "gpus-per-node": str(math.ceil(job.gpus)) if job.gpus else "",
            "mem": f"{math.ceil(1024 * job.memory_gb)}M" if job.memory_gb else "",
            "comment": self.mark.of(job.key),
        }
        options = [f"--{name}={value}" for name, value in asked.items() if value]
        return ["--parsable", "--hold", *options]


def _owner(options: tuple[str, ...]) -> int:
    """Whose jobs ``sbatch`` submits: ours, or of the user that its option ``--uid`` names.

    Raises:
        ConfigError: there is no such user.
    """
    said = [*options, ""]
    for option, following in pairwise(said):
        name, equals, value = option.partition("=")
        if name != "--uid":
            continue
        user = value if equals else following
        try:
            return int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid
        except KeyError as error:
            raise ConfigError(f"options: --uid {user}: there is no such user") from error
    return os.getuid()


def _text(value: Any) -> Any:
    """A text of any version: plain, or in an object."""
    return value.get("string") if isinstance(value, dict) else value


def _states(row: dict[str, Any]) -> list[str]:
    """One word up to 22.05, a list since."""
    state = row.get("job_state", [])
    return [str(s) for s in state] if isinstance(state, list) else [str(state)]


def _held(row: dict[str, Any]) -> bool:
    """A held job has priority 0, given as a number or as ``{"set": …, "number": …}``."""
    priority = row.get("priority")
    if isinstance(priority, dict):
        priority = priority.get("number")
    return "PENDING" in _states(row) and priority == 0
