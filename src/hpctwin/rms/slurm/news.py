"""What the lines that the event script writes say."""

from __future__ import annotations

import json
import logging
import re

from hpctwin.rms.changes import End
from hpctwin.rms.hostlist import HostlistError, expand
from hpctwin.rms.news import JobBegan, JobGone, Look, News

__all__ = ["SlurmNews"]

logger = logging.getLogger(__name__)

MOST_CHARACTERS = 200_000

_ENDS = {
    "COMPLETED": End(),
    "FAILED": End("exit", 1),
    "OUT_OF_MEMORY": End("exit", 1),
    "CANCELLED": End("cancelled"),
    "TIMEOUT": End("walltime"),
    "DEADLINE": End("cancelled"),
}
"""Job states after which a job is gone for good; after others it may wait again."""


class SlurmNews:
    """Translates lines of the event script, and counts those that cannot be read."""

    def __init__(self) -> None:
        self.unreadable = 0

    def __call__(self, line: str) -> list[News]:
        """The news in a line; none where it cannot be read."""
        try:
            if len(line) > MOST_CHARACTERS:
                raise ValueError(f"a line of {len(line)} characters")
            about = json.loads(line)
            time_s, kind = float(about["t"]), str(about["kind"])
            job_id = str(about.get("job", ""))
            if not 0 < time_s < 1e11:
                raise ValueError(f"time {time_s}")
            if not re.fullmatch(r"[1-9]\d{0,11}", job_id):
                return [Look(time_s)]
            if kind == "begin":
                return [JobBegan(time_s, job_id, tuple(expand(str(about.get("nodes", "")))))]
            end = _ENDS.get(str(about.get("state", "")))
        except (
            ValueError, KeyError, TypeError, AttributeError, RecursionError, HostlistError,
        ) as error:  # fmt: skip
            self.unreadable += 1
            if self.unreadable == 1:
                logger.warning("a line of Slurm's event script cannot be read: %s", error)
            return []
        if kind == "end" and end is not None:
            return [JobGone(time_s, job_id, end)]
        return [Look(time_s)]
