"""ElastiSim's jobs: ``{"jobs": [{"type", "submit_time", "num_nodes", "application_model"}]}``.

An application model, in its own file, says what a job does: see
`hpctwin.formats.json.elastisim_models`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from math import isclose
from pathlib import Path
from typing import Any, NamedTuple

from hpctwin.formats.files import stem
from hpctwin.formats.json.elastisim_models import MOST_NODES, Launch, ModelReader
from hpctwin.formats.json.jobs import JsonRecord, job_ids, job_times, not_read, read_jobs
from hpctwin.model import ReadNotes, Workload
from hpctwin.model.workload.malleable import LINEAR
from hpctwin.network.profiles import Profile

_MOST_SIZES = 64
"""Limit of the numbers of nodes on which the length of a job is computed."""
_TYPES = {
    "rigid": (False, False),
    "moldable": (False, False),
    "malleable": (True, False),
    "evolving": (False, True),
    "adaptive": (True, True),
}
"""Whether a job of a type stops at scheduling points, and at its own requests."""
_OF_JOBS = (
    "id", "type", "submit_time", "walltime", "num_nodes", "num_gpus_per_node", "num_nodes_min",
    "num_nodes_max", "num_gpus_per_node_min", "num_gpus_per_node_max", "application_model",
    "arguments", "attributes",
)  # fmt: skip


class _Job(NamedTuple):
    """Values that are read from one job."""

    kind: str
    submit_s: float
    walltime_s: float
    launch: Launch
    priority: float
    profile: Profile
    sizes: tuple[int, int, str] | None
    """Smallest and largest number of nodes, and speedup, if they are known."""
    record: JsonRecord


def is_elastisim(document: Any) -> bool:
    """Return whether a JSON document looks like jobs of ElastiSim."""
    jobs = document.get("jobs") if isinstance(document, dict) else None
    first = jobs[0] if isinstance(jobs, list) and jobs else None
    return isinstance(first, dict) and "application_model" in first


def read_elastisim(path: Path, document: Any, *, skip_invalid: bool) -> Workload:
    """Read jobs of ElastiSim, and the application models that they name.

    Jobs are numbered from 0 by submission, as in ElastiSim's results. A job that is not rigid runs
    on its largest number of nodes from beginning to end, unless a sizing decides; this needs its
    speedup, which is known if it only waits. A job whose length depends on which nodes it has gets
    its walltime as its run time until a simulation computes it.

    Args:
        path: File; models are in its folder or below.

    Raises:
        TraceError: The document has no list of jobs, or a job or its model is faulty.
    """
    models = ModelReader(path)
    read_one = partial(_read_one, models=models)
    ids, jobs, skipped = read_jobs(
        path, _numbered(document), "id", read_one, skip_invalid=skip_invalid
    )
    runtimes, walltimes, added = job_times(
        [job.profile.length_s for job in jobs], [job.walltime_s for job in jobs]
    )
    kinds = Counter(job.kind for job in jobs)
    notes = {
        **{
            f"{kind} job, which keeps its largest number of nodes": kinds[kind]
            for kind in _TYPES
            if kind != "rigid"
        },
        "job with an evolving request, which is declined": sum(
            job.profile in models.requests and _TYPES[job.kind][1] for job in jobs
        ),
        **added,
    }
    counts = {what: count for what, count in notes.items() if count}
    counts |= not_read("a job", [job.record for job in jobs], _OF_JOBS)
    attributes = [
        JsonRecord(path, "", job.record.values["attributes"])
        for job in jobs
        if job.record.has("attributes")
    ]
    counts |= not_read("a job's attributes", attributes, ("priority",))
    counts |= models.not_read()
    gpus = [job.launch.gpus for job in jobs]
    priorities = [job.priority for job in jobs]
    return Workload.build(
        job_id=job_ids(ids),
        submit_s=[job.submit_s for job in jobs],
        nodes=[job.launch.nodes for job in jobs],
        runtime_s=runtimes,
        walltime_s=walltimes,
        priority=priorities if any(priorities) else None,
        per_node={"gpus": gpus} if any(gpus) else None,
        malleable=_malleable(jobs),
        name=stem(path),
        profiles=[job.profile for job in jobs],
        notes=ReadNotes(counts, skipped),
    )


def _numbered(document: Any) -> Any:
    """Return the document with the numbers of its jobs, which ElastiSim gives by submission."""
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        return document

    def submitted(row: int) -> float:
        job = jobs[row]
        time = job.get("submit_time") if isinstance(job, dict) else None
        return float(time) if isinstance(time, int | float) else float("inf")

    numbers = {row: number for number, row in enumerate(sorted(range(len(jobs)), key=submitted))}
    return {
        "jobs": [
            {**job, "id": numbers[row]} if isinstance(job, dict) else job
            for row, job in enumerate(jobs)
        ]
    }


def _read_one(job: JsonRecord, models: ModelReader) -> _Job:
    kind = str(job.values.get("type")).lower()
    if kind not in _TYPES:
        raise job.wrong("type", ", ".join(_TYPES))
    submit_s = job.number("submit_time")
    walltime_s = job.number("walltime") if job.has("walltime") else 0.0
    attributes = job.values.get("attributes") or {}
    if not isinstance(attributes, dict):
        raise job.wrong("attributes", "an object")
    said = attributes.get("priority")
    priority = float(said) if isinstance(said, int | float) and abs(said) < 1e15 else 0.0
    launch = Launch(
        nodes=_most(job, kind, "num_nodes", 1),
        gpus=_most(job, kind, "num_gpus_per_node", 0),
        fixed=kind == "rigid",
        stops=_TYPES[kind],
        arguments=_arguments(job),
    )
    profile = models.profile(job, launch)
    least = launch.nodes if launch.fixed else int(job.number("num_nodes_min"))
    sizes = None
    if least < launch.nodes and profile.length_s:
        speedup = _speedup(least, launch.nodes, lambda nodes: models.length_s(job, launch, nodes))
        sizes = (least, launch.nodes, speedup) if speedup else None
    return _Job(kind, submit_s, walltime_s, launch, priority, profile, sizes, job)


def _malleable(jobs: list[_Job]) -> dict[str, Any] | None:
    """Return the columns of jobs with several sizes."""
    if not any(job.sizes for job in jobs):
        return None
    unknown = (float("nan"), float("nan"), None)
    least, most, speedup = zip(*(job.sizes or unknown for job in jobs), strict=True)
    return {"min_nodes": least, "max_nodes": most, "speedup": speedup}


def _speedup(least: int, most: int, length_s: Callable[[int], float]) -> str | None:
    """Return the speedup of a job from its length on each number of nodes.

    If there are many numbers of nodes, it is linear or follows Amdahl's law on five of them.

    Returns:
        Text of the speedup; None if it is neither, or if more nodes make the job longer.
    """
    few = most - least < _MOST_SIZES
    middle = (least + most) // 2
    sizes = range(least, most + 1) if few else [least, least + 1, middle, most - 1, most]
    lengths = {nodes: length_s(nodes) for nodes in sizes}
    a, b = (lengths[least], lengths[most])
    # A length is x + y / nodes; the serial share is x of x + y.
    y = (a - b) / (1 / least - 1 / most)
    x = b - y / most
    if y > 0 and all(isclose(x + y / n, s, rel_tol=1e-9) for n, s in lengths.items()):
        if abs(x) <= 1e-9 * b:
            return LINEAR
        if x > 0:
            return f"amdahl:{x / (x + y)!r}"
    speeds = [a / lengths[max(nodes, least)] for nodes in range(1, most + 1)] if few else []
    return "/".join(map(repr, speeds)) if few and speeds == sorted(speeds) else None


def _most(job: JsonRecord, kind: str, key: str, least: int) -> int:
    """Return the number of a rigid job, or the largest one of another."""
    if kind == "rigid":
        given = job.has(key) or least
        return int(job.number(key, least=least, most=MOST_NODES, whole=True)) if given else 0
    if not least and not job.has(f"{key}_max"):
        return 0
    most = job.number(f"{key}_max", least=least, most=MOST_NODES, whole=True)
    if least or job.has(f"{key}_min"):
        low = job.number(f"{key}_min", least=least, most=MOST_NODES, whole=True)
        if low > most:
            raise job.fault(f"{key}_min", f"is {low:g}, above {key}_max, which is {most:g}")
    return int(most)


def _arguments(job: JsonRecord) -> dict[str, float | str]:
    """Return the arguments of a job: numbers, or texts that are none."""
    given = job.values.get("arguments")
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise job.wrong("arguments", "an object")
    found: dict[str, float | str] = {}
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise job.fault("arguments", f"has {name!r:.40}: {value!r:.40}, expected a number")
        try:
            found[name] = float(value)
        except (ValueError, OverflowError):
            found[name] = str(value)
    return found
