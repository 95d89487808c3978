"""News in the lines that the PBS hook writes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Literal

from hpctwin.rms.pbs.listing.jobs import LeaseMark, how_it_lies, job_mark, job_record, roughly
from hpctwin.rms.pbs.listing.output import vnodes
from hpctwin.rms.pbs.listing.parse import Found, asked_by_name
from hpctwin.rms.records.changes import (
    UNREADABLE,
    End,
    JobBack,
    JobBegan,
    JobGone,
    JobSeen,
    Look,
    News,
    read_line,
)

logger = logging.getLogger(__name__)

RUNJOB, JOBOBIT, POSTQUEUEJOB = 16, 0x800000, 0x8000000

_WALLTIME = -29
_RERUN = {-3, -11, -14, -16, -18, -20}
"""Exit statuses of requeued jobs (job.h: retry, rerun, rerun by a hook, MoM lost)."""
_LIMITS = range(-30, -23)
"""Exit statuses of jobs that were ended for exceeding a limit (job.h).

Other negative ones may mean that the job is pending again.
"""
_KILLED = {256 + 9, 256 + 15}


class PbsNews:
    """Translates lines of the hook.

    Args:
        found: Function that returns the last poll's result, for nodes and their sizes.
        marked: Function called for each new job with the twin's mark, and whether it is left to
            PBS.
        failed: Function called with each error of the hook itself.
        lies: Function called with select and place of each new job that shares vnodes.
    """

    def __init__(
        self,
        found: Callable[[], Found | None],
        marked: Callable[[str, LeaseMark, bool], None] = lambda job_id, mark, left: None,
        failed: Callable[[str], None] = lambda fault: None,
        lies: Callable[[str, tuple[str, str]], None] = lambda job_id, how: None,
    ) -> None:
        self.found = found
        self.marked = marked
        self.failed = failed
        self.lies = lies
        self.unreadable = 0

    def __call__(self, line: str) -> list[News]:
        """Return the events in a line; none if it cannot be read."""
        try:
            time_s, about = read_line(line)
            kind, job = int(about["type"]), _texts(about.get("job"))
            if "fault" in about:
                self.failed(str(about["fault"]))
        except UNREADABLE as error:
            self.unreadable += 1
            if self.unreadable == 1:
                logger.warning("a line of the PBS hook is unreadable: %s", error)
            return []
        return self._news(kind, time_s, job)

    def _news(self, kind: int, time_s: float, job: Mapping[str, str]) -> list[News]:
        job_id = job.get("id", "")
        if kind == POSTQUEUEJOB:
            return [self._submitted(job_id, job, time_s)]
        if kind == RUNJOB and job_id:
            names = vnodes(job.get("exec_vnode", ""))
            return [JobBegan(time_s, job_id, names)]
        if kind == JOBOBIT and job_id:
            return [_ended(job_id, job, time_s)]
        # A job was changed, or a submission is not complete yet.
        return [Look(time_s)]

    def _submitted(self, job_id: str, job: Mapping[str, str], time_s: float) -> News:
        found = self.found()
        if found is None or not job_id or "[]" in job_id or asked_by_name([job]) - found.told:
            return Look(time_s)
        known = {node.name: node for node in found.snapshot.nodes}
        queues = {partition.name for partition in found.snapshot.machine.partitions}
        try:
            record = job_record(job_id, job, known, found.largest, [])
        except ValueError:
            return Look(time_s)
        if record is None or record.spec.partition not in queues:
            return Look(time_s)
        mark = job_mark(job)
        acts = record.spec.partition in found.acted
        if mark is not None and (acts or mark.kept):
            left = not acts or bool(roughly(job, found.largest.sharing))
            self.marked(job_id, mark, left)
        if record.spec.tasks:
            self.lies(job_id, how_it_lies(job))
        return JobSeen(time_s, record)


def _ended(job_id: str, job: Mapping[str, str], time_s: float) -> News:
    try:
        status = int(job.get("Exit_status", "0"))
    except ValueError:
        return Look(time_s)
    if status in _RERUN and job.get("run_count", "").isdecimal():
        return JobBack(time_s, job_id, int(job["run_count"]))
    if status < 0 and status not in _LIMITS:
        return Look(time_s)
    reason: Literal["exit", "cancelled", "walltime"] = "exit"
    if status == _WALLTIME:
        reason = "walltime"
    elif status in _KILLED:
        reason = "cancelled"
    return JobGone(time_s, job_id, End(reason, status))


def _texts(thing: Any) -> dict[str, str]:
    if thing is None:
        return {}
    return {str(name): str(value) for name, value in thing.items()}
