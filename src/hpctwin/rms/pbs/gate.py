"""Submitting jobs to PBS: the key stands in a variable of the job's environment."""

from __future__ import annotations

import getpass
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hpctwin.errors import CommandError, FormatError, UnreachableError
from hpctwin.rms.commands import Commands
from hpctwin.rms.gate import CommandGate, JobRequest, ListedJob
from hpctwin.rms.mark import Mark
from hpctwin.rms.pbs.listing.output import read_output
from hpctwin.rms.pbs.listing.values import begin_time, objects

__all__ = ["PbsGate"]

VARIABLE = "HPCTWIN_KEY"
"""Environment variable of the job, which holds the mark."""

_ENDED = {"F", "X", "M"}


class PbsGate(CommandGate):
    """See `CommandGate`; the owner of the jobs is whoever we are.

    Args:
        commands: PBS's, with TZ=UTC.
        mark: what is written into the jobs' environments.
        options: further options of ``qsub``, such as ``-W umask=022``.
        changed: called when a job was submitted or admitted: there will be news of it.
    """

    manager = "PBS"
    submitter = "qsub"
    admitter = ("qrls", "-h", "u")
    canceller = ("qdel",)
    id = re.compile(r"\d{1,12}\.[A-Za-z0-9][A-Za-z0-9._-]{0,126}")
    lost = re.compile(
        r"timed out|end of file|connect|communicat|socket|protocol|reset|batch system|errno", re.I
    )

    def __init__(
        self,
        commands: Commands,
        mark: Mark,
        options: Sequence[str] = (),
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        others, self.variables = _apart(options)
        super().__init__(commands, mark, getpass.getuser(), others, changed)

    def _listed(self) -> Iterator[ListedJob]:
        try:
            said = self.commands.run("qstat", ["-f", "-F", "json"])
            rows = objects(read_output(said, "qstat -f -F json", []), "Jobs")
        except (CommandError, FormatError) as error:
            raise UnreachableError(f"PBS: {error}") from error
        for job_id, row in rows.items():
            if str(row.get("job_state")) not in _ENDED and self.id.fullmatch(job_id):
                variables = row.get("Variable_List")
                mark = variables.get(VARIABLE) if isinstance(variables, dict) else None
                owner = str(row.get("Job_Owner")).partition("@")[0]
                yield ListedJob(mark, owner, job_id, _held(row))

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


def _apart(options: Sequence[str]) -> tuple[list[str], list[str]]:
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
