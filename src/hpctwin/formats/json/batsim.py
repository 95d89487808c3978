"""Batsim workloads: ``{"nb_res": …, "jobs": […], "profiles": {…}}``.

A job names a profile, which says what it does. Two types can be read:

- ``delay`` runs for a number of seconds.
- ``parallel_homogeneous``, without communication, computes a number of flops on each node. The
  platform, not the workload, defines their speed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpctwin.errors import ConfigError, TraceError, WorkloadError
from hpctwin.formats.common.files import stem
from hpctwin.formats.common.record import lost_by
from hpctwin.formats.json.jobs import (
    JsonRecord,
    job_ids,
    machine_size,
    not_read,
    plain_seconds,
    read_jobs,
    write_json,
)
from hpctwin.model import ReadNotes, Workload

__all__ = ["is_batsim", "read_batsim", "write_batsim"]

_CARRIED = frozenset({"nodes_hint"})
_SHORTEST_S = 0.001
ASSUMED_FLOPS_PER_S = 1e9
"""Speed of a node if none is given."""
_OF_JOBS = ("id", "subtime", "res", "walltime", "profile")
_OF_PROFILES = ("type", "delay", "cpu", "com", "ret")
_SUPPORTED = "delay, parallel_homogeneous"


def is_batsim(document: Any) -> bool:
    """Return whether a JSON document looks like a Batsim workload."""
    return isinstance(document, dict) and "jobs" in document and "profiles" in document


def read_batsim(path: Path, document: Any, *, flops_per_s: float, skip_invalid: bool) -> Workload:
    """Read a Batsim workload.

    A job without walltime (missing or -1) gets its run time as walltime. A job fails if its profile
    returns something other than 0 (``ret``). Fields that are not read are counted in the read
    notes.

    Args:
        path: File.
        document: Content of the file.
        flops_per_s: Speed of a node, for ``parallel_homogeneous`` profiles.
        skip_invalid: Skip faulty jobs and list them in the read notes.

    Raises:
        TraceError: The document is no such workload, a job is faulty, or its profile is not
            supported.
        ConfigError: ``flops_per_s`` is not a number above 0.
    """
    if not (flops_per_s > 0 and math.isfinite(flops_per_s)):
        raise ConfigError(f"flops_per_s is {flops_per_s!r}, expected a number above 0")
    profiles = document.get("profiles") if isinstance(document, dict) else None
    if not isinstance(profiles, dict):
        raise TraceError(path, "expected an object with an object 'profiles'", field="profiles")

    records: list[JsonRecord] = []

    def read_one(job: JsonRecord) -> tuple[float, float, float, float | None]:
        limited = job.has("walltime") and job.values["walltime"] != -1
        found = (
            job.number("subtime"),
            job.number("res", least=1, whole=True),
            _runtime_s(job, profiles, flops_per_s),
            job.number("walltime", least=_SHORTEST_S) if limited else None,
        )
        records.append(job)
        return found

    ids, jobs, skipped = read_jobs(path, document, "id", read_one, skip_invalid=skip_invalid)
    without = sum(walltime is None for *_, walltime in jobs)
    counts = {"job without walltime, given its run time": without} if without else {}
    named = [profiles.get(job.values.get("profile")) for job in records]
    used = [one if isinstance(one, dict) else {} for one in named]
    computing = sum(one.get("type") == "parallel_homogeneous" for one in used)
    if computing and flops_per_s == ASSUMED_FLOPS_PER_S:
        counts[f"job with computation, on nodes of {flops_per_s / 1e9:g} Gflop/s (assumed)"] = (
            computing
        )
    of_profiles = [JsonRecord(path, "profile", one) for one in used]
    document_record = JsonRecord(path, "the workload", document)
    counts |= not_read("a job", records, _OF_JOBS)
    counts |= not_read("a job's profile", of_profiles, _OF_PROFILES)
    counts |= not_read("the workload", [document_record], ("nb_res", "jobs", "profiles"))
    fails = [bool(one.get("ret")) for one in used]
    try:
        return Workload.build(
            job_id=job_ids(ids),
            submit_s=[submit for submit, *_ in jobs],
            nodes=[nodes for _, nodes, *_ in jobs],
            runtime_s=[runtime for *_, runtime, _ in jobs],
            walltime_s=[
                max(runtime, _SHORTEST_S) if walltime is None else walltime
                for *_, runtime, walltime in jobs
            ],
            name=stem(path),
            nodes_hint=machine_size(path, document),
            fails=fails,
            notes=ReadNotes(counts, skipped, size_from="nb_res"),
        )
    except WorkloadError as error:
        raise error if isinstance(error, TraceError) else TraceError(path, str(error)) from error


def write_batsim(workload: Workload, path: str | Path) -> tuple[str, ...]:
    """Write a Batsim workload with a ``delay`` profile for each run time, atomically.

    Returns:
        One sentence for each thing that the format cannot hold.

    Raises:
        OutputError: The file cannot be written.
    """
    delays = {ms: plain_seconds(ms) for ms in sorted(set(workload.runtime_ms.tolist()))}
    jobs = [
        {
            "id": job_id,
            "subtime": plain_seconds(int(workload.submit_ms[row])),
            "walltime": plain_seconds(int(workload.walltime_ms[row])),
            "res": int(workload.nodes[row]),
            "profile": f"delay_{delays[int(workload.runtime_ms[row])]}",
        }
        for row, job_id in enumerate(workload.job_id.tolist())
    ]
    profiles = {f"delay_{delay}": {"type": "delay", "delay": delay} for delay in delays.values()}
    size = workload.nodes_hint or int(workload.nodes.max(initial=1))
    write_json(Path(path), {"nb_res": size, "profiles": profiles, "jobs": jobs})
    return lost_by("Batsim", workload, _CARRIED)


def _runtime_s(job: JsonRecord, profiles: Mapping[str, Any], flops_per_s: float) -> float:
    name = job.values.get("profile")
    if not isinstance(name, str) or name not in profiles:
        found = "is missing" if name is None else f"{name!r:.40} is not a profile of the file"
        raise job.fault("profile", f"{found}, expected the name of a profile")
    values = profiles[name]
    if not isinstance(values, dict):
        raise job.fault("profile", f"{name!r} is {values!r:.40}, expected an object")
    profile = JsonRecord(job.path, f"{job.where}, profile {name!r}", values)
    kind = values.get("type")
    if kind == "delay":
        return profile.number("delay")
    if kind == "parallel_homogeneous":
        if profile.has("com") and profile.number("com") > 0:
            raise profile.fault("com", f"is {values['com']}, communication is not supported")
        return JsonRecord(job.path, profile.where, {"cpu": _flops(profile) / flops_per_s}).number(
            "cpu"
        )
    raise profile.fault("type", f"is {kind!r:.40}, supported are {_SUPPORTED}")


def _flops(profile: JsonRecord) -> float:
    # Flops exceed any bound that is sensible for times, so only the type is checked here.
    value = profile.values.get("cpu")
    if isinstance(value, bool) or not isinstance(value, int | float):
        found = "is missing" if value is None else f"is {value!r:.40}"
        raise profile.fault("cpu", f"{found}, expected a number of flops, 0 or more")
    try:
        return float(value)
    except OverflowError:
        return math.inf
