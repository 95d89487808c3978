"""SPARS workloads: JSON with the number of nodes and a list of jobs.

The form is ``{"nb_res": …, "jobs": [{"job_id", "res", "subtime", "reqtime", "runtime"}]}``;
``user_id`` is read if present. An older form calls the id ``id`` and the requested time
``walltime``, and has no run time. Its jobs run for the whole requested time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from hpctwin.formats.files import stem
from hpctwin.formats.json.jobs import (
    SHORTEST_S,
    JsonRecord,
    job_ids,
    machine_size,
    not_read,
    plain_seconds,
    read_jobs,
    write_json,
)
from hpctwin.formats.record import lost_by
from hpctwin.model import Category, ReadNotes, Workload

_CARRIED = frozenset({"user", "nodes_hint"})
_OF_JOBS = (
    "job_id",
    "id",
    "res",
    "subtime",
    "reqtime",
    "walltime",
    "runtime",
    "user_id",
    "profile",
)
_OF_ALL = ("nb_res", "jobs", "profiles")
"""Keys that are read, and keys from Batsim in the older form that are not needed."""


class _Job(NamedTuple):
    submit_s: float
    nodes: float
    walltime_s: float
    runtime_s: float
    user: int | None
    runtime_known: bool


def is_spars(document: Any) -> bool:
    """Return whether a JSON document looks like a SPARS workload, not another format."""
    jobs = document.get("jobs") if isinstance(document, dict) else None
    first = jobs[0] if isinstance(jobs, list) and jobs else None
    # The older form differs from Batsim's only in the user.
    return isinstance(first, dict) and bool({"job_id", "reqtime", "user_id"} & set(first))


def read_spars(path: Path, document: Any, *, skip_invalid: bool) -> Workload:
    """Read a SPARS workload.

    Raises:
        TraceError: The document is no such workload, or a job is faulty.
    """
    records: list[JsonRecord] = []

    def read_one(job: JsonRecord) -> _Job:
        found = _read_one(job)
        records.append(job)
        return found

    ids, jobs, skipped = read_jobs(
        path, document, _id_key(document), read_one, skip_invalid=skip_invalid
    )
    without = sum(not job.runtime_known for job in jobs)
    counts = {"job without run time, given its requested time": without} if without else {}
    counts |= not_read("a job", records, _OF_JOBS)
    counts |= not_read("the workload", [JsonRecord(path, "the workload", document)], _OF_ALL)
    users = [job.user for job in jobs]
    return Workload.build(
        job_id=job_ids(ids),
        submit_s=[job.submit_s for job in jobs],
        runtime_s=[job.runtime_s for job in jobs],
        walltime_s=[job.walltime_s for job in jobs],
        nodes=[job.nodes for job in jobs],
        user=Category.of(users) if any(user is not None for user in users) else None,
        name=stem(path),
        nodes_hint=machine_size(path, document),
        notes=ReadNotes(counts, skipped, size_from="nb_res"),
    )


def write_spars(workload: Workload, path: str | Path) -> tuple[str, ...]:
    """Write a SPARS workload atomically, compressed if the name ends in ``.gz``.

    SPARS accepts only integers as ids and users; others are numbered from 1.

    Returns:
        One sentence for each thing that the format cannot hold.
    """
    lost = list(lost_by("SPARS", workload, _CARRIED))
    ids = workload.job_id.tolist()
    if workload.job_id.dtype.kind != "i":
        lost.append("SPARS stores only integer ids: jobs are renumbered")
        ids = list(range(1, len(ids) + 1))
    labels = workload.user.labels
    users = [*range(1, len(labels) + 1), None]
    if all(label.isascii() and label.isdecimal() and str(int(label)) == label for label in labels):
        users = [*(int(label) for label in labels), None]
    else:
        lost.append("SPARS stores only integer users: users are renumbered")
    jobs = []
    for row, job_id in enumerate(ids):
        job: dict[str, Any] = {
            "job_id": job_id,
            "res": int(workload.nodes[row]),
            "subtime": plain_seconds(int(workload.submit_ms[row])),
            "reqtime": plain_seconds(int(workload.walltime_ms[row])),
            "runtime": plain_seconds(int(workload.runtime_ms[row])),
        }
        user = users[workload.user.codes[row]]
        if user is not None:
            job["user_id"] = user
        jobs.append(job)
    size = workload.nodes_hint or int(workload.nodes.max(initial=1))
    write_json(Path(path), {"nb_res": size, "jobs": jobs})
    return tuple(lost)


def _id_key(document: Any) -> str:
    jobs = document.get("jobs") if isinstance(document, dict) else None
    first = jobs[0] if isinstance(jobs, list) and jobs else None
    return "id" if isinstance(first, dict) and "job_id" not in first and "id" in first else "job_id"


def _read_one(job: JsonRecord) -> _Job:
    old = not job.has("reqtime") and job.has("walltime")
    walltime = job.number("walltime" if old else "reqtime", least=SHORTEST_S)
    runtime_known = not old or job.has("runtime")
    return _Job(
        submit_s=job.number("subtime"),
        nodes=job.number("res", least=1, whole=True),
        walltime_s=walltime,
        runtime_s=job.number("runtime") if runtime_known else walltime,
        user=int(job.number("user_id", least=-1, whole=True)) if job.has("user_id") else None,
        runtime_known=runtime_known,
    )
