"""News that a resource manager pushes by itself, between two polls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpctwin.rms.records.changes import End
from hpctwin.rms.records.records import JobRecord, Snapshot

__all__ = ["JobBack", "JobBegan", "JobGone", "JobSeen", "Look", "News", "read_line", "updated"]

MOST_CHARACTERS = 200_000
"""Longest line, in characters."""


@dataclass(frozen=True)
class JobSeen:
    """A job was submitted.

    Args:
        time_s: Time of the event, in seconds since the epoch.
        record: The job.
    """

    time_s: float
    record: JobRecord


@dataclass(frozen=True)
class JobBegan:
    """A job has its nodes.

    Args:
        time_s: Time of the event, in seconds since the epoch.
        job_id: Id of the job.
        node_names: Its nodes.
    """

    time_s: float
    job_id: str
    node_names: tuple[str, ...]


@dataclass(frozen=True)
class JobGone:
    """A job has ended, or is gone from the queue.

    Args:
        time_s: Time of the event, in seconds since the epoch.
        job_id: Id of the job.
        end: How it ended, if it ran.
    """

    time_s: float
    job_id: str
    end: End


@dataclass(frozen=True)
class JobBack:
    """A running job was stopped and is pending again.

    Args:
        time_s: Time of the event, in seconds since the epoch.
        job_id: Id of the job.
        requeues: Number of its requeues so far.
    """

    time_s: float
    job_id: str
    requeues: int


@dataclass(frozen=True)
class Look:
    """An event whose result only a poll can show.

    Args:
        time_s: Time of the event, in seconds since the epoch.
    """

    time_s: float


News = JobSeen | JobBegan | JobBack | JobGone | Look


def read_line(line: str) -> tuple[float, Any]:
    """Return the time, in seconds since the epoch, and the content of a script's line.

    The script runs on the manager's side.

    Raises:
        ValueError, KeyError, TypeError, RecursionError: The line cannot be read.
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
    """A snapshot with news applied.

    Args:
        snapshot: The snapshot.
        ends: How jobs ended that ran in the snapshot before.
        look: Whether something stays unclear without another poll.
    """

    snapshot: Snapshot
    ends: dict[str, End]
    look: bool


def _held(names: Sequence[str], jobs: Mapping[str, JobRecord], shared: Sequence[str]) -> bool:
    wanted = set(names) - set(shared)
    return any(not wanted.isdisjoint(job.node_names) for job in jobs.values())


def updated(snapshot: Snapshot, news: Sequence[News]) -> Updated:
    """Apply news to a snapshot; news that it contains already change nothing.

    Args:
        snapshot: Last known state.
        news: News in the order of the events.
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
            # PBS also names the node of a host that has no cores itself.
            names = tuple(name for name in item.node_names if name in nodes)
            if job is None or not names or (job.start_s is None and job.spec.shares):
                # If its nodes are shared, only a poll shows what it holds.
                look = True
            elif job.start_s is None and _held(names, jobs, snapshot.shared):
                # The job that held these nodes has ended, and no news of it came.
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
            # A start later than this end is that of a requeued job.
            if job is not None and (job.start_s is None or job.start_s <= item.time_s):
                del jobs[item.job_id]
                ends[item.job_id] = item.end
        else:
            look = True
    after = snapshot.model_copy(update={"time_s": time_s, "jobs": tuple(jobs.values())})
    return Updated(after, ends, look)
