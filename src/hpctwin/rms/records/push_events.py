"""What a resource manager pushes by itself, between two looks at it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpctwin.rms.records.changes import End
from hpctwin.rms.records.records import JobRecord, Snapshot

__all__ = ["JobBack", "JobBegan", "JobGone", "JobSeen", "Look", "News", "read_line", "updated"]

MOST_CHARACTERS = 200_000
"""Of a line."""


@dataclass(frozen=True)
class JobSeen:
    """A job was submitted.

    Args:
        time_s: when.
        record: the job.
    """

    time_s: float
    record: JobRecord


@dataclass(frozen=True)
class JobBegan:
    """A job has got its nodes.

    Args:
        time_s: when.
        job_id: which.
        node_names: its nodes.
    """

    time_s: float
    job_id: str
    node_names: tuple[str, ...]


@dataclass(frozen=True)
class JobGone:
    """A job has ended, or is gone from the queue.

    Args:
        time_s: when.
        job_id: which.
        end: how, if it ran.
    """

    time_s: float
    job_id: str
    end: End


@dataclass(frozen=True)
class JobBack:
    """A running job was stopped and waits again.

    Args:
        time_s: when.
        job_id: which.
        requeues: how often that has happened.
    """

    time_s: float
    job_id: str
    requeues: int


@dataclass(frozen=True)
class Look:
    """Something has happened of which only a look tells more.

    Args:
        time_s: when.
    """

    time_s: float


News = JobSeen | JobBegan | JobBack | JobGone | Look


def read_line(line: str) -> tuple[float, Any]:
    """When what a script on the manager's side tells of was, seconds since the epoch, and the line's content.

    Raises:
        ValueError, KeyError, TypeError, RecursionError: it cannot be read.
    """
    if len(line) > MOST_CHARACTERS:
        raise ValueError(f"a line of {len(line)} characters")
    about = json.loads(line)
    time_s = float(about["t"])
    if not 0 < time_s < 1e11:
        raise ValueError(f"time {time_s}")
    return time_s, about


@dataclass(frozen=True)
class Updated:
    """A snapshot with news put in.

    Args:
        snapshot: it.
        ends: how jobs ended that ran in the snapshot before.
        look: whether something is not clear without another look.
    """

    snapshot: Snapshot
    ends: dict[str, End]
    look: bool


def _held(names: Sequence[str], jobs: Mapping[str, JobRecord], shared: Sequence[str]) -> bool:
    wanted = set(names) - set(shared)
    return any(not wanted.isdisjoint(job.node_names) for job in jobs.values())


def updated(snapshot: Snapshot, news: Sequence[News]) -> Updated:
    """Put news into a snapshot; what it holds already changes nothing.

    Args:
        snapshot: what was known.
        news: in the order of its happening.
    """
    jobs = {job.spec.id: job for job in snapshot.jobs}
    nodes = {node.name for node in snapshot.nodes}
    ends: dict[str, End] = {}
    look = False
    time_s = snapshot.time_s
    for item in news:
        time_s = max(time_s, item.time_s)
        if isinstance(item, JobSeen):
            jobs.setdefault(item.record.spec.id, item.record)
        elif isinstance(item, JobBegan):
            job = jobs.get(item.job_id)
            # PBS names also the node of a host that has no cores of its own.
            names = tuple(name for name in item.node_names if name in nodes)
            if job is None or not names or (job.start_s is None and job.spec.shares):
                # Of nodes that are shared, only a look tells what it has.
                look = True
            elif job.start_s is None and _held(names, jobs, snapshot.shared):
                # Whoever had these nodes has ended, of which no news came.
                look = True
            elif job.start_s is None:
                began = {"start_s": item.time_s, "node_names": names}
                jobs[item.job_id] = job.model_copy(update=began)
        elif isinstance(item, JobBack):
            job = jobs.get(item.job_id)
            if job is None:
                look = True
            elif job.requeues < item.requeues:
                back = {"start_s": None, "node_names": (), "parts": (), "requeues": item.requeues}
                jobs[item.job_id] = job.model_copy(update=back)
        elif isinstance(item, JobGone):
            job = jobs.get(item.job_id)
            # A start later than this end is that of a job thrown back into the queue.
            if job is not None and (job.start_s is None or job.start_s <= item.time_s):
                del jobs[item.job_id]
                ends[item.job_id] = item.end
        else:
            look = True
    after = snapshot.model_copy(update={"time_s": time_s, "jobs": tuple(jobs.values())})
    return Updated(after, ends, look)
