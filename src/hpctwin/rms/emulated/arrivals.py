"""Jobs of a workload as a resource manager gets them: one by one, at their times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from hpctwin.errors import WorkloadError
from hpctwin.model import MS_PER_S, DependencyKind, Workload
from hpctwin.model.requests.chunks import WHOLE_CHUNKS
from hpctwin.model.settings import first_fault
from hpctwin.rms.records.records import JobDependency, JobId, JobSpec, Label

__all__ = ["Arrival", "arrivals", "waited_for"]

_LABELS = ("user", "account", "partition", "qos", "features")
_NAMED = (*_LABELS, "more_tasks")


@dataclass(frozen=True)
class Arrival:
    """A job that is submitted.

    Args:
        spec: Request of the job; ``submit_s`` is its arrival.
        runtime_s: Runtime on nodes of speed 1, in seconds.
        cancel_s: Time at which its user cancels it, not before its submission; None for never.
        fails: Whether it ends with an error after its runtime.
    """

    spec: JobSpec
    runtime_s: float
    cancel_s: float | None
    fails: bool = False


def arrivals(workload: Workload, start_s: float) -> Iterator[Arrival]:
    """Return the jobs in order of submission; ``start_s`` is the workload's time zero.

    Raises:
        WorkloadError: A resource manager would refuse an id or label, or a job shares its nodes
            only with jobs of its user or account, or requests nodes of one group.
    """
    _check_company(workload)
    _check_groups(workload)
    ids = [str(job_id) for job_id in workload.job_id]
    _check(ids, list[JobId], "job id")
    for name in _LABELS:
        _check(list(getattr(workload, name).labels), list[Label], name)
    return _each(workload, ids, start_s)


def waited_for(workload: Workload) -> set[str]:
    """Return the ids of the jobs that others depend on."""
    return {str(workload.job_id[row]) for row in workload.dependencies.on}


def _check_company(workload: Workload) -> None:
    if workload.chunks and workload.chunks["shared_with"].any():
        row = int(np.argmax(workload.chunks["shared_with"]))
        raise WorkloadError(
            f"job {workload.job_id[row]}: it shares its nodes with jobs of its user or account only, which "
            "an emulated cluster does not; leave 'shared_with' out, or make it 'exclusive'"
        )


def _check_groups(workload: Workload) -> None:
    if workload.group_by.labels:
        row = int(np.argmax(workload.group_by.codes >= 0))
        name = workload.group_by.labels[workload.group_by.codes[row]]
        raise WorkloadError(
            f"job {workload.job_id[row]}: all of its nodes are to be of one {name}, which an emulated "
            "cluster does not see to; leave 'group_by' out"
        )


def _check(values: list[str], kind: Any, what: str) -> None:
    try:
        TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        says = first_fault(error).partition(": ")[2]  # without the place in the list
        raise WorkloadError(f"{what}: {says}") from error


def _each(workload: Workload, ids: list[str], start_s: float) -> Iterator[Arrival]:
    edges = _edges(workload, ids)
    labels = {n: (getattr(workload, n).codes, getattr(workload, n).labels) for n in _NAMED}
    per_node = {name: column for name, column in workload.per_node.items() if column.any()}
    resources = {name: column for name, column in workload.resources.items() if column.any()}
    consumables = {name: column for name, column in workload.consumables.items() if column.any()}
    columns = (workload.submit_ms, workload.runtime_ms, workload.walltime_ms, workload.nodes,
               workload.priority, workload.cancel_ms)  # fmt: skip
    for row, job_id in enumerate(ids):
        submit_ms, runtime_ms, walltime_ms, nodes, priority, cancel_ms = (
            column[row].item() for column in columns
        )
        about: dict[str, Any] = {n: float(column[row]) for n, column in per_node.items()}
        if workload.chunks and workload.chunks["tasks"][row]:
            about |= {name: column[row].item() for name, column in workload.chunks.items()}
            about |= {name: int(about[name]) for name in WHOLE_CHUNKS}
            for name in ("exclusive", "spread_job"):
                about[name] = about[name] == 1
        for name, (codes, known) in labels.items():
            if codes[row] >= 0:
                about[name] = known[codes[row]]
        if resources:
            about["resources"] = {n: int(c[row]) for n, c in resources.items() if c[row]}
        if consumables:
            about["consumables"] = {n: float(c[row]) for n, c in consumables.items() if c[row]}
        if row in edges:
            about["dependencies"] = edges[row]
        spec = JobSpec.model_construct(
            id=job_id,
            submit_s=round(start_s + submit_ms / MS_PER_S, 3),
            nodes=nodes,
            walltime_s=walltime_ms / MS_PER_S,
            priority=priority,
            **about,
        )
        cancel_s = None
        if cancel_ms >= 0:
            cancel_s = round(start_s + max(submit_ms, cancel_ms) / MS_PER_S, 3)
        fails = workload.fails is not None and bool(workload.fails[row])
        yield Arrival(spec, runtime_ms / MS_PER_S, cancel_s, fails)


def _edges(workload: Workload, ids: list[str]) -> dict[int, tuple[JobDependency, ...]]:
    depends = workload.dependencies
    edges: dict[int, tuple[JobDependency, ...]] = {}
    for job, on, kind, delay_ms in zip(
        depends.job.tolist(), depends.on.tolist(), depends.kind.tolist(),
        depends.delay_ms.tolist(), strict=True,
    ):  # fmt: skip
        # Resource managers have no think times: the job waits for the other in the queue.
        kind = DependencyKind.AFTERANY if kind == DependencyKind.THINK else DependencyKind(kind)
        edge = JobDependency.model_validate(
            {"on": ids[on], "kind": kind.name.lower(),
             "delay_s": delay_ms / MS_PER_S}
        )  # fmt: skip
        edges[job] = (*edges.get(job, ()), edge)
    return edges
