"""What jobs ask that share nodes with others: tasks, and what each task needs on the node it lies on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.errors import WorkloadError

__all__ = ["CHUNKS", "WHOLE_CHUNKS", "checked_chunks", "totals_asked"]

FloatArray = npt.NDArray[np.float64]

CHUNKS = {
    "tasks": 0.0,
    "cores_per_task": 1.0,
    "memory_gb_per_task": 0.0,
    "gpus_per_task": 0.0,
    "tasks_per_node": 0.0,
    "exclusive": 0.0,
    "shared_with": 0.0,
}
"""The columns, and what holds where a job leaves one open."""

WHOLE_CHUNKS = ("tasks", "tasks_per_node", "exclusive", "shared_with")
"""Those of them that are whole numbers."""

SHARED_WITH = ("anyone", "user", "account")
"""Whose jobs may be on a job's nodes besides: anyone's, its user's, its account's; by number."""

_LARGEST = {"exclusive": (1, "0 or 1"), "shared_with": (2, "0 (anyone), 1 (user) or 2 (account)")}

_AMOUNTS = {
    "cores": "cores_per_task",
    "memory_gb": "memory_gb_per_task",
    "gpus": "gpus_per_task",
}


def checked_chunks(
    given: Mapping[str, npt.ArrayLike] | None, ids: npt.NDArray[Any], nodes: FloatArray
) -> dict[str, FloatArray]:
    """All columns, if any job asks for tasks; none if every job asks for whole nodes.

    Args:
        given: columns by their names in `CHUNKS` [jobs]; NaN where a job leaves it open.
        ids: of the jobs, for messages.
        nodes: so many nodes at least has each job [jobs].

    Raises:
        WorkloadError: a column is none of these or has another length, or what a job asks is impossible.
    """
    columns: dict[str, FloatArray] = {}
    for name, values in (given or {}).items():
        if name not in CHUNKS:
            raise WorkloadError(f"column {name!r} of tasks is none of {', '.join(CHUNKS)}")
        column = np.array(values, np.float64)
        if column.shape != ids.shape:
            raise WorkloadError(f"column {name} has shape {column.shape}, expected {ids.shape}")
        columns[name] = np.where(np.isnan(column), CHUNKS[name], column)
    if "tasks" not in columns:
        return {}
    tasks = columns["tasks"]
    _check_column("tasks", tasks, ids)
    if not tasks.any():
        return {}
    for name, default in CHUNKS.items():
        columns.setdefault(name, np.full(len(ids), default))
    asks = tasks > 0
    for name, column in columns.items():
        _check_column(name, column, ids)
        # A job of whole nodes has no tasks, whatever else its row says.
        column[~asks] = 0.0
    nothing = asks & np.all([columns[name] == 0 for name in _AMOUNTS.values()], axis=0)
    _refuse(nothing, ids, lambda row: "its tasks ask for no cores, memory or GPUs")
    _refuse(
        asks & (nodes > tasks),
        ids,
        lambda row: f"it asks for {nodes[row]:g} nodes at least, but has {tasks[row]:g} tasks",
    )
    return {name: columns[name] for name in CHUNKS}


def _check_column(name: str, column: FloatArray, ids: npt.NDArray[Any]) -> None:
    wrong = ~np.isfinite(column) | (column < 0)
    must = "a number, 0 or more"
    if name in WHOLE_CHUNKS:
        wrong |= column != np.floor(column)
        must = "a whole number, 0 or more"
    if name in _LARGEST:
        largest, must = _LARGEST[name]
        wrong |= column > largest
    _refuse(wrong, ids, lambda row: f"{name} is {column[row]:g}, it must be {must}")


def _refuse(wrong: npt.NDArray[np.bool_], ids: npt.NDArray[Any], why: Callable[[int], str]) -> None:
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise WorkloadError(f"job {ids[row]}: {why(row)}")


def totals_asked(
    chunks: Mapping[str, FloatArray], per_node: Mapping[str, FloatArray], nodes: npt.NDArray[Any]
) -> dict[str, FloatArray]:
    """What all tasks, or all nodes, of each job ask together.

    Args:
        chunks: columns of a workload; empty if all jobs ask for whole nodes.
        per_node: what whole nodes must have.
        nodes: how many.

    Returns:
        ``cores``, ``memory_gb``, ``gpus`` [jobs].
    """
    found = {}
    for name, column in _AMOUNTS.items():
        whole = np.asarray(per_node.get(name, 0.0)) * nodes
        if chunks:
            whole = np.where(chunks["tasks"] > 0, chunks["tasks"] * chunks[column], whole)
        found[name] = whole + np.zeros(len(nodes))
    return found
