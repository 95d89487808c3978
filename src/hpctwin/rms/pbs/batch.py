"""One change to many jobs: a few commands with many job numbers each, and what became of each job."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence

from hpctwin.rms.commands import Commands, Failed
from hpctwin.rms.manager import Outcome, UnreachableError

__all__ = ["MOST_AT_ONCE", "change_jobs"]

MOST_AT_ONCE = 25
"""Jobs in one command: PBS takes some 8 ms for each, and more where the machine is busy."""

_HARMLESS = re.compile(r"has finished|unknown job", re.IGNORECASE)


def change_jobs(
    commands: Commands,
    name: str,
    options: Sequence[str],
    job_ids: Sequence[str],
    until: float = math.inf,
) -> dict[str, Outcome]:
    """Give one command many jobs, some at a time. PBS goes on after a job that it refuses.

    After an answer that is lost nothing more is sent.

    Args:
        commands: PBS's.
        name: of the command.
        options: before the job numbers.
        job_ids: checked to be such.
        until: no other command is sent after this, by `time.monotonic`.
    """
    outcomes: dict[str, Outcome] = {}
    for begin in range(0, len(job_ids), MOST_AT_ONCE):
        if time.monotonic() > until:
            rest = job_ids[begin:]
            return outcomes | dict.fromkeys(rest, Outcome("refused", "not sent: no time left"))
        some = job_ids[begin : begin + MOST_AT_ONCE]
        try:
            commands.run(name, [*options, *some])
            outcomes |= dict.fromkeys(some, Outcome("done"))
        except Failed as error:
            outcomes |= _told(error.said, some)
        except UnreachableError as error:
            outcomes |= dict.fromkeys(some, Outcome("unknown", str(error)))
            rest = job_ids[begin + MOST_AT_ONCE :]
            return outcomes | dict.fromkeys(rest, Outcome("refused", f"not sent: {error}"))
    return outcomes


def _told(said: str, job_ids: Sequence[str]) -> dict[str, Outcome]:
    """What an error says of each job: a line for each that was refused, most with its number."""
    outcomes = dict.fromkeys(job_ids, Outcome("done"))
    unnamed = ""
    for line in filter(None, map(str.strip, said.splitlines())):
        named = [word for word in line.split() if word in outcomes]
        for job_id in named:
            outcomes[job_id] = Outcome("refused", line)
        # Of a job that has ended PBS says no number; to such a job nothing was done, which does no harm.
        if not named and not _HARMLESS.search(line):
            unnamed = line
    if unnamed:
        refused = Outcome("refused", unnamed)
        outcomes = {i: refused if o.result == "done" else o for i, o in outcomes.items()}
    return outcomes
