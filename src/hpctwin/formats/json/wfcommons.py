"""Workflows in WfCommons' JSON: each task becomes a job.

Supported are versions 1.0 to 1.6 of WfFormat.

Since version 1.5, ``workflow.specification.tasks`` has the dependencies.
``workflow.execution.tasks`` has the run time and cores of each task. Earlier versions have both in
``workflow.tasks`` (``workflow.jobs`` up to 1.2). See github.com/wfcommons/WfFormat.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hpctwin.errors import TraceError
from hpctwin.formats.files import stem
from hpctwin.formats.json.jobs import SHORTEST_S, JsonRecord
from hpctwin.model import Dependencies, DependencyKind, ReadNotes, Workload
from hpctwin.model.text import epoch_s_of
from hpctwin.model.workload.dependencies import chain_text, waiting_chain

_BYTES_PER_GB = 2**30
_BYTES_PER_OLD_UNIT = 1000
_OF_TASKS = (
    "name", "id", "parents", "children", "runtime", "runtimeInSeconds", "cores", "coreCount",
    "memoryInBytes", "memory", "priority",
)  # fmt: skip


class _Task(NamedTuple):
    runtime_s: float
    cores: float
    memory_gb: float
    priority: float


def is_wfcommons(document: Any) -> bool:
    """Return whether a JSON document looks like a WfCommons workflow."""
    workflow = document.get("workflow") if isinstance(document, dict) else None
    return isinstance(workflow, dict) and bool({"specification", "tasks", "jobs"} & set(workflow))


def read_wfcommons(
    path: Path, document: Any, *, skip_invalid: bool, shared: bool = False
) -> Workload:
    """Read a workflow.

    All jobs are submitted at time 0. Each runs on a node, requests its cores and memory from it,
    and depends (``afterok``) on its parents. The format has no walltimes: jobs get their run time.

    Args:
        skip_invalid: Skip faulty tasks and dependencies on them, and report this in the read notes.
        shared: Whether jobs share nodes. Each is then a task with its cores (1 if none are given)
            and memory.

    Raises:
        TraceError: The document is no workflow, or a task is faulty or depends on a missing task or
            on itself; the message names the chain.
    """
    if not is_wfcommons(document):
        raise TraceError(
            path,
            "expected an object 'workflow' with a 'specification' or 'tasks'",
            field="workflow",
        )
    workflow = document["workflow"]
    execution = _object(path, workflow, "execution")
    specified = _tasks(path, _object(path, workflow, "specification") or workflow)
    ran = {}
    for position, task in enumerate(_tasks(path, execution) if execution else ()):
        ran[_name(JsonRecord(path, f"execution.tasks[{position}]", task), "id")] = task
    names = _names(path, specified)
    skipped: list[str] = []
    read: dict[str, _Task] = {}
    for name, task in zip(names, specified, strict=True):
        try:
            if name in read:
                raise TraceError(path, f"task {name} occurs twice in the file", field="id")
            read[name] = _read_one(JsonRecord(path, f"task {name}", {**task, **ran.get(name, {})}))
        except TraceError as error:
            if not skip_invalid:
                raise
            skipped.append(str(error))
    edges, dropped = _edges(path, specified, names, list(read), bool(skip_invalid))
    size = len(read)
    counts = {"job without walltime, given its run time": size}
    if dropped:
        counts["dependency on an unknown task, ignored"] = dropped
    records = [
        JsonRecord(path, "", {**task, **ran.get(name, {})})
        for name, task in zip(names, specified, strict=True)
    ]
    unread = [f"{what} ({count:,})" for what, count in _unread(records)]
    remarks = (f"fields of tasks that are ignored: {', '.join(unread)}",) if unread else ()
    cores = np.array([task.cores for task in read.values()])
    memory = np.array([task.memory_gb for task in read.values()])
    asked = {"cores": cores, "memory_gb": memory}
    chunks = {
        "tasks": np.ones(size),
        "cores_per_task": np.where(cores > 0, cores, 1.0),
        "memory_gb_per_task": memory,
    }
    machines = execution.get("machines") or workflow.get("machines")
    runtime = np.array([task.runtime_s for task in read.values()])
    return Workload.build(
        job_id=np.array(list(read), np.str_),
        submit_s=np.zeros(size),
        runtime_s=runtime,
        walltime_s=np.maximum(runtime, SHORTEST_S),
        nodes=np.ones(size),
        priority=[task.priority for task in read.values()],
        per_node={name: column for name, column in asked.items() if column.any() and not shared},
        chunks=chunks if shared else None,
        dependencies=edges,
        name=stem(path),
        start_epoch_s=_epoch_s(execution.get("executedAt") or workflow.get("executedAt")),
        nodes_hint=len(machines) if isinstance(machines, list) and machines else None,
        notes=ReadNotes(counts if size else {}, tuple(skipped), remarks, "the list of machines"),
    )


def _object(path: Path, where: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = where.get(key)
    return {} if found is None else _is_object(path, found, key)


def _is_object(path: Path, value: Any, field: str = "tasks") -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TraceError(path, f"found {value!r:.40}, expected an object", field=field)
    return value


def _tasks(path: Path, where: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = where.get("tasks", where.get("jobs"))
    if not isinstance(found, list):
        raise TraceError(path, "expected a list of tasks", field="tasks")
    return [_is_object(path, task) for task in found]


def _names(path: Path, tasks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the jobs.

    These are the tasks' ids if all have one and they are distinct, else the tasks' names.
    """
    key = "id" if all("id" in task for task in tasks) else "name"
    names = [_name(JsonRecord(path, f"tasks[{i}]", task), key) for i, task in enumerate(tasks)]
    if key == "id" and len(set(names)) < len(names) and all("name" in task for task in tasks):
        # Before version 1.5 ids counted the tasks of each program, and names were unique.
        own = [_name(JsonRecord(path, f"tasks[{i}]", task), "name") for i, task in enumerate(tasks)]
        names = own if len(set(own)) == len(own) else names
    return names


def _name(record: JsonRecord, key: str) -> str:
    value = record.values.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value or not value.isprintable():
        raise record.wrong(key, "printable text")
    return value


def _unread(records: Iterable[JsonRecord]) -> list[tuple[str, int]]:
    """Return fields of tasks that are not read, and the number of tasks with each."""
    return Counter(key for one in records for key in one.unread(_OF_TASKS)).most_common()


def _read_one(task: JsonRecord) -> _Task:
    runtime = "runtime" if task.has("runtime") else "runtimeInSeconds"
    cores = "cores" if task.has("cores") else "coreCount"
    memory = 0.0
    if task.has("memoryInBytes"):
        memory = task.number("memoryInBytes") / _BYTES_PER_GB
    elif task.has("memory"):
        memory = task.number("memory") * _BYTES_PER_OLD_UNIT / _BYTES_PER_GB
    return _Task(
        runtime_s=task.number(runtime),
        cores=task.number(cores) if task.has(cores) else 0.0,
        memory_gb=memory,
        priority=task.number("priority", least=-1e12) if task.has("priority") else 0.0,
    )


def _edges(
    path: Path,
    tasks: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    kept: Sequence[str],
    forgive: bool,
) -> tuple[Dependencies, int]:
    """Return the dependencies, and the number of those on a missing task.

    Either of the two tasks may state the dependency.
    """
    row_of = {name: row for row, name in enumerate(kept)}
    known = {str(task.get("name")): name for task, name in zip(tasks, names, strict=True)}
    known |= {str(task.get("id")): name for task, name in zip(tasks, names, strict=True)}
    known |= {name: name for name in names}
    said = [
        (known.get(job, job), known.get(on, on), key, name)
        for task, name in zip(tasks, names, strict=True)
        for job, on, key in _said(path, task, name)
    ]
    dropped = 0
    edges: dict[tuple[int, int], None] = {}
    for job, on, key, name in said:
        if job in row_of and on in row_of:
            edges[row_of[job], row_of[on]] = None
        elif forgive:
            dropped += 1
        else:
            missing = job if job not in row_of else on
            waits: dict[str, str] = {}
            for one, other, *_ in said:
                waits.setdefault(other, one)
            chain = chain_text(waiting_chain(waits, on))
            raise TraceError(
                path,
                f"task {name}: {key} names {missing!r}, which does not exist (chain {chain}; "
                "each waits for the next)",
                field=key,
            )
    return Dependencies.of([(*edge, DependencyKind.AFTEROK, 0) for edge in edges]), dropped


def _said(path: Path, task: Mapping[str, Any], name: str) -> Iterator[tuple[str, str, str]]:
    """Yield each dependency that a task states.

    It is the waiting task, the other task, and the key.
    """
    for key in ("parents", "children"):
        others = task.get(key) or []
        if not isinstance(others, list) or not all(isinstance(o, str | int) for o in others):
            raise TraceError(
                path, f"task {name}: found {others!r:.40}, expected a list of tasks", field=key
            )
        for other in others:
            yield (name, str(other), key) if key == "parents" else (str(other), name, key)


def _epoch_s(text: Any) -> float | None:
    """Return the Unix time of an ISO 8601 date; None for other texts."""
    try:
        return epoch_s_of(text)
    except ValueError:
        return None
