"""Batsim workloads: ``{"nb_res": …, "jobs": […], "profiles": {…}}``.

A job names a profile, which says what it does: see `hpctwin.formats.json.batsim_profiles`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from hpctwin.errors import TraceError
from hpctwin.formats.files import stem
from hpctwin.formats.json.batsim_profiles import ProfileReader, ProfileWriter, unfit
from hpctwin.formats.json.jobs import (
    SHORTEST_S,
    JsonRecord,
    job_ids,
    job_times,
    machine_size,
    not_read,
    plain_seconds,
    read_jobs,
    write_json,
)
from hpctwin.formats.record import lost_by
from hpctwin.model import ReadNotes, Workload
from hpctwin.model.workload.demands import phases_of
from hpctwin.network.profiles import Delay, Profile, SmpiTrace, per_rank

FINAL_STATES = {
    "completed": "COMPLETED_SUCCESSFULLY",
    "walltime": "COMPLETED_WALLTIME_REACHED",
    "failed": "COMPLETED_FAILED",
    "node_failure": "COMPLETED_FAILED",
    "cancelled": "COMPLETED_KILLED",
    "preempted": "COMPLETED_KILLED",
    "rejected": "REJECTED",
    "dependency": "REJECTED",
}
"""Batsim's names of the states in which jobs end, by hpctwin's."""
_CARRIED = frozenset({"nodes_hint", "profiles", "fails", "communication"})
_LATEST_S = 1e15
"""Latest submission, 30 million years; Batsim's own tests have later ones."""
_OF_JOBS = (
    "id", "subtime", "res", "walltime", "profile", "smpi_ranks_to_hosts_mapping",
    "expected_execution_time",
)  # fmt: skip
_OF_PROFILES = (
    "type", "trace_type", "ret", "delay", "cpu", "com", "generation_strategy", "seq", "repeat", "nb",
    "bytes_to_read", "bytes_to_write", "storage", "host", "size", "direction", "nb_bytes", "from",
    "to", "filename", "trace", "expected_execution_time", "extra_data",
)  # fmt: skip


def is_batsim(document: Any) -> bool:
    """Return whether a JSON document looks like a Batsim workload."""
    return isinstance(document, dict) and "jobs" in document and "profiles" in document


class _Job(NamedTuple):
    """Values that are read from one job."""

    submit_s: float
    nodes: float
    walltime_s: float | None
    profile: Profile
    record: JsonRecord


def read_batsim(path: Path, document: Any, *, skip_invalid: bool) -> Workload:
    """Read a Batsim workload.

    A job whose profile only waits gets that time as its run time. The length of any other job
    depends on its nodes; until a simulation computes it, its walltime stands in as its run time. A
    job without walltime (missing or -1) gets its run time as walltime, or a very long one if that
    is unknown. A job fails if its profile, or a part of it, returns something other than 0
    (``ret``). Fields that are not read are counted in the read notes.

    Args:
        path: File; traces that profiles name are relative to it.

    Raises:
        TraceError: The document is no such workload, a job is faulty, or its profile is not
            supported.
    """
    profiles = document.get("profiles") if isinstance(document, dict) else None
    if not isinstance(profiles, dict):
        raise TraceError(path, "expected an object with an object 'profiles'", field="profiles")
    reader = ProfileReader(path, profiles)

    def read_one(job: JsonRecord) -> _Job:
        limited = job.has("walltime") and job.values["walltime"] != -1
        nodes = job.number("res", least=1, whole=True)
        submit_s = job.number("subtime", most=1e300)
        walltime_s = job.number("walltime", least=SHORTEST_S) if limited else None
        profile = reader.profile(job, job.values.get("profile"), int(nodes))
        return _Job(submit_s, nodes, walltime_s, _as_job_says(job, profile), job)

    ids, jobs, skipped = read_jobs(path, document, "id", read_one, skip_invalid=skip_invalid)
    runtimes, walltimes, added = job_times(
        [job.profile.length_s for job in jobs], [job.walltime_s for job in jobs]
    )
    later = sum(job.submit_s > _LATEST_S for job in jobs)
    notes = {f"submission after {_LATEST_S:g} s, moved to that time": later, **added}
    counts = {what: count for what, count in notes.items() if count}
    document_record = JsonRecord(path, "the workload", document)
    counts |= not_read("a job", [job.record for job in jobs], _OF_JOBS)
    counts |= not_read("a job's profile", reader.records.values(), _OF_PROFILES)
    counts |= not_read("the workload", [document_record], ("nb_res", "jobs", "profiles"))
    return Workload.build(
        job_id=job_ids(ids),
        submit_s=[min(job.submit_s, _LATEST_S) for job in jobs],
        nodes=[job.nodes for job in jobs],
        runtime_s=runtimes,
        walltime_s=walltimes,
        name=stem(path),
        nodes_hint=machine_size(path, document),
        profile=[job.record.values["profile"] for job in jobs],
        fails=[bool(job.profile.end_code) for job in jobs],
        profiles=[job.profile for job in jobs],
        notes=ReadNotes(counts, skipped, size_from="nb_res"),
    )


def _as_job_says(job: JsonRecord, profile: Profile) -> Profile:
    """Return a job's profile with what the job itself states about it."""
    if job.has("expected_execution_time"):
        profile = replace(profile, expected_s=job.number("expected_execution_time"))
    mapping = job.values.get("smpi_ranks_to_hosts_mapping")
    if mapping is None or not isinstance(profile, SmpiTrace):
        return profile
    nodes = int(job.number("res"))
    places = mapping if isinstance(mapping, list) else []
    if len(places) != len(profile.ranks) or not all(
        isinstance(place, int) and 0 <= place < nodes for place in places
    ):
        each = f"a number from 0 to {nodes - 1} for each of the {len(profile.ranks)} ranks"
        raise job.wrong("smpi_ranks_to_hosts_mapping", each)
    return replace(profile, placement=tuple(places))


def write_batsim(workload: Workload, path: str | Path) -> tuple[str, ...]:
    """Write a Batsim workload with the names of Batsim 3 to 4, atomically.

    A job without a profile gets one of its demands, or a ``delay`` profile of its run time. So does
    a job with a recorded trace, which is in separate files, or with tasks of ranks. A job that fails
    has ``ret`` 1.

    Returns:
        One sentence for each thing that the format cannot hold.
    """
    writer = ProfileWriter()
    delays: dict[tuple[int, bool], Profile] = {}
    jobs = []
    profiles = workload.profiles or (None,) * len(workload)
    phases = phases_of(workload.demands, workload.runtime_ms) if workload.demands else profiles
    for row, job_id in enumerate(workload.job_id.tolist()):
        found, phase = profiles[row], phases[row]
        fails = workload.fails is not None and bool(workload.fails[row])
        if found is not None:
            found = per_rank(found, int(workload.nodes[row]))
        elif phase is not None:
            found = replace(per_rank(phase, int(workload.nodes[row])), exit_code=int(fails))
        if found is None or unfit(found):
            runtime_ms = int(workload.runtime_ms[row])
            delay = Delay(plain_seconds(runtime_ms), exit_code=int(fails))
            found = delays.setdefault((runtime_ms, fails), delay)
        jobs.append(
            {
                "id": job_id,
                "subtime": plain_seconds(int(workload.submit_ms[row])),
                "walltime": plain_seconds(int(workload.walltime_ms[row])),
                "res": int(workload.nodes[row]),
                "profile": writer.name_of(found),
            }
        )
    size = workload.nodes_hint or int(workload.nodes.max(initial=1))
    write_json(Path(path), {"nb_res": size, "profiles": writer.profiles, "jobs": jobs})
    lost = {what for one in workload.profiles or () if one is not None for what in unfit(one)}
    return (
        *lost_by("Batsim", workload, _CARRIED),
        *(
            f"Batsim cannot store {what}, so the length of these jobs is an upper bound"
            for what in sorted(lost)
        ),
    )
