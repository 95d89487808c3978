"""News in the lines that the event script writes."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping

from hpctwin.model.text import expand
from hpctwin.rms.records.changes import End, JobBegan, JobGone, Look, News, read_line

logger = logging.getLogger(__name__)

_ENDS = {
    "COMPLETED": End(),
    "FAILED": End("exit", 1),
    "OUT_OF_MEMORY": End("exit", 1),
    "CANCELLED": End("cancelled"),
    "TIMEOUT": End("walltime"),
    "DEADLINE": End("cancelled"),
}
"""Job states after which a job is gone for good; after others it may be requeued."""


class SlurmNews:
    """Translates lines of event script and submit rule; counts unreadable ones.

    Args:
        wished: Function called with job and time, in seconds since the epoch, when a user requests
            another begin time.
        names: Function that returns the ids of jobs by Slurm's own number, if the two differ.
    """

    def __init__(
        self,
        wished: Callable[[str, float], None] = lambda job_id, begin_s: None,
        names: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.wished = wished
        self.names = names
        self.unreadable = 0

    def __call__(self, line: str) -> list[News]:
        """Return the events in a line; none if it cannot be read."""
        try:
            time_s, about = read_line(line)
            kind, job_id = str(about["kind"]), str(about.get("job", ""))
            if kind == "submit" or not re.fullmatch(r"[1-9]\d{0,11}(_\d{1,7})?", job_id):
                return [Look(time_s)]
            if kind == "begin_time":
                self.wished(job_id, float(about["at"]))
                return [Look(time_s)]
            if job_id in (names := self.names()):
                if "_" not in names[job_id]:
                    # A part of a heterogeneous job.
                    return [Look(time_s)]
                job_id = names[job_id]
            if kind == "begin":
                return [JobBegan(time_s, job_id, tuple(expand(str(about.get("nodes", "")))))]
            end = _ENDS.get(str(about.get("state", "")))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self.unreadable += 1
            if self.unreadable == 1:
                logger.warning("a line of Slurm's event script is unreadable: %s", error)
            return []
        if kind == "end" and end is not None:
            return [JobGone(time_s, job_id, end)]
        return [Look(time_s)]
