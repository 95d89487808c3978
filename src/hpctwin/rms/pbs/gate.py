"""Submitting jobs to PBS: the key stands in a variable of the job's environment."""

from __future__ import annotations

import getpass
import math
import re
import tempfile
import time
from collections.abc import Callable
from typing import Any

from hpctwin.errors import CommandError, FormatError, UnreachableError
from hpctwin.rms.commands import Commands
from hpctwin.rms.gate import JobRequest, SubmittedJob
from hpctwin.rms.manager import Outcome
from hpctwin.rms.mark import Mark
from hpctwin.rms.pbs.output import read_output
from hpctwin.rms.pbs.values import begin_time, objects

__all__ = ["PbsGate"]

VARIABLE = "HPCTWIN_KEY"
"""Environment variable of the job, which holds the mark."""

_ID = re.compile(r"\d{1,12}\.[A-Za-z0-9][A-Za-z0-9._-]{0,126}")
_ENDED = {"F", "X", "M"}
_UNKNOWN = re.compile(
    r"timed out|end of file|connect|communicat|socket|protocol|reset|batch system|errno", re.I
)


class PbsGate:
    """Jobs run as whoever submits them; scripts are handed to ``qsub`` as files.

    Only jobs of that user count as submitted with a key: what another user writes into a job's environment,
    made up or copied, adopts nothing and cancels nothing.

    Args:
        commands: PBS's, with TZ=UTC.
        mark: what is written into the jobs' environments.
        options: further options of ``qsub``, such as ``-W umask=022``.
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
        self.owner = getpass.getuser()
        self.options, self.variables = _apart(options)
        self.changed = changed

    def submit(self, job: JobRequest, *, delay_s: float = 0.0) -> tuple[Outcome, str]:
        """See `Gate`."""
        with tempfile.NamedTemporaryFile("w", suffix=".sh", encoding="utf-8") as script:
            script.write(job.script or "#!/bin/sh\n")
            script.flush()
            try:
                said = self.commands.run(
                    "qsub", [*self._asked(job, delay_s), *self.options, script.name]
                )
            except CommandError as error:
                # An error that is not the server's word leaves open whether the job got in.
                lost = _UNKNOWN.search(error.said) is not None
                return Outcome("unknown" if lost else "refused", str(error)), ""
            except UnreachableError as error:
                return Outcome("unknown", str(error)), ""
        job_id = said.decode(errors="replace").strip()
        if not _ID.fullmatch(job_id):
            return Outcome("unknown", f"qsub said {job_id[:80]!r}, not a job number"), ""
        self.changed()
        return Outcome("done"), job_id

    def jobs(self) -> dict[str, list[SubmittedJob]]:
        """See `Gate`."""
        try:
            said = self.commands.run("qstat", ["-f", "-F", "json"])
            rows = objects(read_output(said, "qstat -f -F json", []), "Jobs")
        except (CommandError, FormatError) as error:
            raise UnreachableError(f"PBS: {error}") from error
        found: dict[str, list[SubmittedJob]] = {}
        for job_id, row in rows.items():
            variables = row.get("Variable_List")
            key = self.mark.key(variables.get(VARIABLE)) if isinstance(variables, dict) else None
            if key is None or str(row.get("Job_Owner")).partition("@")[0] != self.owner:
                continue
            if str(row.get("job_state")) not in _ENDED and _ID.fullmatch(job_id):
                found.setdefault(key, []).append(SubmittedJob(job_id, _held(row)))
        return {key: sorted(jobs, key=lambda job: _number(job.id)) for key, jobs in found.items()}

    def admit(self, job_id: str) -> Outcome:
        """See `Gate`."""
        return self._do("qrls", "-h", "u", job_id)

    def cancel(self, job_id: str) -> Outcome:
        """See `Gate`."""
        return self._do("qdel", job_id)

    def _do(self, name: str, *arguments: str) -> Outcome:
        if not _ID.fullmatch(arguments[-1]):
            return Outcome("refused", f"{arguments[-1]!r} is not a job number of PBS")
        try:
            self.commands.run(name, arguments)
        except CommandError as error:
            return Outcome("refused", str(error))
        except UnreachableError as error:
            return Outcome("unknown", str(error))
        self.changed()
        return Outcome("done")

    def _asked(self, job: JobRequest, delay_s: float) -> list[str]:
        chunk = [f"{job.nodes}:ncpus={max(1, math.ceil(job.cores))}"]
        if job.gpus:
            chunk.append(f"ngpus={math.ceil(job.gpus)}")
        if job.memory_gb:
            chunk.append(f"mem={math.ceil(1024 * job.memory_gb)}mb")
        variables = ",".join([*self.variables, f"{VARIABLE}={self.mark.of(job.key)}"])
        asked = {
            "-N": _name(job.name or job.key),
            "-q": job.partition,
            "-A": job.account,
            "-a": begin_time(math.ceil(time.time() + delay_s)) if delay_s > 0 else "",
            "-v": variables,
        }
        options = [word for name, value in asked.items() if value for word in (name, value)]
        resources = [f"select={':'.join(chunk)}", "place=vscatter"]
        resources.append(f"walltime={math.ceil(job.walltime_s)}")
        # -h: held. -f: qsub itself sends it, and leaves no process behind that keeps its output open.
        return ["-f", "-h", *options, *(word for r in resources for word in ("-l", r))]


def _apart(options: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Options without ``-v``, and what it names: of two, qsub takes the last one only."""
    others: list[str] = []
    variables: list[str] = []
    words = iter(options)
    for word in words:
        if word == "-v":
            variables.append(next(words, ""))
        elif word.startswith("-v"):
            variables.append(word[2:].strip())
        else:
            others.append(word)
    return others, list(filter(None, variables))


def _name(text: str) -> str:
    """A name that PBS takes: up to 230 characters, a letter first."""
    name = re.sub(r"[^A-Za-z0-9._+-]", "_", text)[:200]
    return name if name[0].isalpha() else f"j{name}"


def _held(row: dict[str, Any]) -> bool:
    return str(row.get("job_state")) == "H" and "u" in str(row.get("Hold_Types", "n"))


def _number(job_id: str) -> int:
    return int(job_id.partition(".")[0])
