"""Requests of jobs that share nodes: tasks, and the resources of each task."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpctwin.errors import WorkloadError
from hpctwin.model.requests.resources import GPU_TYPE, NAME, check_names

if TYPE_CHECKING:
    from hpctwin.model.columns import Category

FloatArray = npt.NDArray[np.float64]

CHUNKS = {
    "tasks": 0.0,
    "cores_per_task": 1.0,
    "memory_gb_per_task": 0.0,
    "gpus_per_task": 0.0,
    "tasks_per_node": 0.0,
    "exclusive": 0.0,
    "shared_with": 0.0,
    "spread_job": 0.0,
}
"""Columns, and their defaults."""

WHOLE_CHUNKS = ("tasks", "tasks_per_node", "exclusive", "shared_with", "spread_job")
"""Columns of whole numbers."""

SHARED_WITH = ("anyone", "user", "account")
"""Jobs that may run next to a job on its nodes, by number.

They are any jobs, those of its user, or those of its account.
"""

_LARGEST = {
    "exclusive": (1, "0 or 1"),
    "shared_with": (2, "0 (anyone), 1 (user) or 2 (account)"),
    "spread_job": (1, "0 or 1"),
}

PER_TASK = {
    "cores": "cores_per_task",
    "memory_gb": "memory_gb_per_task",
    "gpus": "gpus_per_task",
}
"""Amounts, and the columns with the request of each task."""

GROUP = r"[A-Za-z][\w-]*"
"""Pattern of names of which all nodes of a job may have the same value."""

_MORE = re.compile(
    r"(?P<tasks>\d{1,9})(?::cores=(?P<cores>[\d.e+-]+?))?(?::memory_gb=(?P<memory_gb>[\d.e+-]+?))?"
    rf"(?::gpus=(?P<gpus>[\d.e+-]+?))?(?P<consumables>(?::{NAME}=[\d.e+-]+?)*)"
)


@dataclass(frozen=True)
class Tasks:
    """Tasks of one kind, of a job that has several.

    Args:
        tasks: Number of tasks.
        cores, memory_gb, gpus: Request of each task, on one node.
        consumables: Names and amounts of further resources of each task.
    """

    tasks: int
    cores: float = 1.0
    memory_gb: float = 0.0
    gpus: float = 0.0
    consumables: tuple[tuple[str, float], ...] = ()

    @property
    def each(self) -> tuple[float, float, float]:
        """Cores, memory and GPUs that each task requests."""
        return self.cores, self.memory_gb, self.gpus

    def asks(self, name: str) -> float:
        """Return each task's ``cores``, ``memory_gb``, ``gpus`` or consumable."""
        if name in PER_TASK:
            found: float = getattr(self, name)
            return found
        return dict(self.consumables).get(name, 0.0)


def together(kinds: Sequence[Tasks]) -> Tasks:
    """Return one task that requests the total of several kinds."""
    consumables = dict.fromkeys(name for kind in kinds for name, _ in kind.consumables)
    names = ("cores", "memory_gb", "gpus", *consumables)
    cores, memory, gpus, *others = (sum(k.tasks * k.asks(name) for k in kinds) for name in names)
    return Tasks(1, cores, memory, gpus, tuple(zip(consumables, others, strict=True)))


def neighbors_merged(kinds: Iterable[Tasks]) -> list[Tasks]:
    """Return kinds of tasks with equal neighbors merged."""
    found: list[Tasks] = []
    for kind in kinds:
        if found and replace(found[-1], tasks=kind.tasks) == kind:
            found[-1] = replace(kind, tasks=found[-1].tasks + kind.tasks)
        else:
            found.append(kind)
    return found


@lru_cache(maxsize=4096)
def read_more_tasks(text: str) -> tuple[Tasks, ...]:
    """Return a job's further kinds of tasks from text.

    ``1:cores=32:gpus=4+2:memory_gb=16`` gives the number of tasks of each kind, and the request of
    a task. By default, a task requests one core, and no memory or GPUs.
    """
    found = []
    for part in text.split("+"):
        match = _MORE.fullmatch(part.strip())
        try:
            said = {} if match is None else {k: v for k, v in match.groupdict().items() if v}
            others = [pair.split("=") for pair in said.pop("consumables", "").split(":")[1:]]
            more = tuple((name, float(amount)) for name, amount in others)
            check_names(name for name, _ in more)
            count = int(said.pop("tasks"))
            kind = Tasks(count, **{k: float(v) for k, v in said.items()}, consumables=more)
        except (KeyError, ValueError):
            kind = Tasks(0)
        asked = np.array([*kind.each, *(amount for _, amount in kind.consumables)])
        if not kind.tasks or not asked.any() or not np.isfinite(asked).all() or (asked < 0).any():
            raise WorkloadError(
                f"more_tasks {text!r}: {part!r} is not a valid group of tasks; write the number "
                "of tasks and their requests in this order, such as "
                "1:cores=32:memory_gb=64:gpus=4:fpga=1, and separate groups by a plus sign"
            )
        types = {n: amount for n, amount in kind.consumables if n.startswith(GPU_TYPE)}
        try:
            found.append(replace(kind, gpus=gpus_of_types(kind.gpus, types)))
        except WorkloadError as error:
            raise WorkloadError(f"more_tasks {text!r}: {error}") from error
    return tuple(found)


def more_tasks_text(kinds: Iterable[Tasks]) -> str:
    """Return text that `read_more_tasks` reads as these kinds."""
    found = []
    for kind in kinds:
        amounts = [("memory_gb", kind.memory_gb), ("gpus", kind.gpus), *kind.consumables]
        said = "".join(f":{name}={amount!r}" for name, amount in amounts if amount)
        found.append(f"{kind.tasks}:cores={kind.cores!r}{said}")
    return "+".join(found)


def check_more_tasks(
    more: Category, chunks: Mapping[str, FloatArray], nodes: FloatArray, ids: npt.NDArray[Any]
) -> None:
    """Check further kinds of tasks, and whether they fit the other requests.

    Args:
        more: Text of each job [jobs].
    """
    for text in more.labels:
        read_more_tasks(text)
    several = more.codes >= 0
    tasks = chunks["tasks"] if chunks else np.zeros(len(ids))
    _refuse(
        several & (tasks == 0),
        ids,
        lambda row: (
            f"more_tasks is {more.labels[more.codes[row]]!r}, but tasks (of the first group) is 0"
        ),
    )
    _refuse(
        several & (nodes > 1),
        ids,
        lambda row: (
            f"its tasks differ, and it requests at least {nodes[row]:g} nodes: this combination "
            "is not modeled; remove nodes, or set tasks_per_node"
        ),
    )
    _refuse(
        several & (chunks["spread_job"] > 0 if chunks else False),
        ids,
        lambda row: (
            "its tasks differ, and it sets spread_job: this combination is not modeled; set "
            "tasks_per_node"
        ),
    )


def gpus_of_types(gpus: float, types: Mapping[str, float]) -> float:
    """Return the total number of GPUs of a task, which may give their types.

    Args:
        gpus: Requested total; with 0, the types give it.

    Raises:
        WorkloadError: The total differs from the sum of the types, or the task requests parts of
            GPUs of several types.
    """
    asked = [amount for amount in types.values() if amount]
    if not asked:
        return gpus
    if gpus not in (0.0, sum(asked)):
        raise WorkloadError(
            f"a task requests {gpus:g} GPUs, but {sum(asked):g} by type: give either the number "
            "of each type or the total"
        )
    if len(asked) > 1 and any(amount % 1 for amount in asked):
        raise WorkloadError(
            "a task requests fractions of GPUs of several types: only one type is supported"
        )
    return sum(asked)


def _gpus_of_types(gpus: FloatArray, types: Mapping[str, FloatArray], ids: Any) -> FloatArray:
    """Return the result of `gpus_of_types` for the tasks of each job [jobs]."""
    if not types:
        return gpus
    asked = np.stack(list(types.values()))
    in_all = asked.sum(axis=0)
    # Requests of one type, with an equal total or none, are valid; the others are few.
    unclear = (np.count_nonzero(asked, axis=0) > 1) | ((gpus != 0) & (gpus != in_all))
    for row in np.flatnonzero(unclear & (in_all != 0)):
        try:
            gpus_of_types(float(gpus[row]), dict(zip(types, asked[:, row].tolist(), strict=True)))
        except WorkloadError as error:
            raise WorkloadError(f"job {ids[row]}: {error}") from error
    return np.where(in_all != 0, in_all, gpus)


def spread_over(room: Sequence[int], tasks: int) -> list[int]:
    """Return the number of tasks on each node for a job that is to be spread.

    Args:
        room: Number of tasks that fit on each node, 1 or more.
        tasks: Number of tasks, at most as many as fit.
    """
    most, left = [], tasks
    for has in room[:tasks]:
        most.append(min(has, max(1, left)))
        left -= most[-1]
    given = np.zeros(len(most), np.int64)
    left = tasks
    while left > 0:
        may = np.flatnonzero(given < most)
        rounds = max(1, left // len(may))
        more = np.minimum(rounds, np.array(most)[may] - given[may])
        more = np.clip(left - (np.cumsum(more) - more), 0, more)
        given[may] += more
        left -= int(more.sum())
    return given.tolist()


def check_group_by(
    group_by: Category, chunks: Mapping[str, FloatArray], ids: npt.NDArray[Any]
) -> None:
    """Check that jobs with ``group_by`` have tasks, and a name in it.

    Args:
        group_by: Name for each job [jobs].
    """
    no_name = [re.fullmatch(GROUP, label) is None for label in group_by.labels]
    _refuse(
        np.array([*no_name, False])[group_by.codes],
        ids,
        lambda row: (
            f"group_by is {group_by.labels[group_by.codes[row]]!r}; it must be a name without a "
            "value, such as rack if node groups have the features rack=r1 and rack=r2"
        ),
    )
    tasks = chunks["tasks"] if chunks else np.zeros(len(ids))
    _refuse(
        (group_by.codes >= 0) & (tasks == 0),
        ids,
        lambda row: (
            f"group_by is {group_by.labels[group_by.codes[row]]!r}, but it requests whole nodes; "
            "group_by is modeled only for tasks, such as exclusive tasks of all cores of a node"
        ),
    )


def checked_chunks(
    given: Mapping[str, npt.ArrayLike] | None,
    ids: npt.NDArray[Any],
    nodes: FloatArray,
    consumables: Mapping[str, FloatArray],
) -> dict[str, FloatArray]:
    """Return all columns if any job requests tasks; none for whole nodes only.

    Args:
        given: Columns by their names in `CHUNKS` [jobs]; NaN for the default.
        consumables: Requests of jobs by consumable [jobs].

    Raises:
        WorkloadError: A column is unknown or has another length, or a request is impossible.
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
        # A job of whole nodes has no tasks, whatever else its row contains.
        column[~asks] = 0.0
    types = {
        name: np.where(asks, c, 0.0) for name, c in consumables.items() if name.startswith(GPU_TYPE)
    }
    columns["gpus_per_task"] = _gpus_of_types(columns["gpus_per_task"], types, ids)
    amounts = [*(columns[name] for name in PER_TASK.values()), *consumables.values()]
    nothing = asks & np.all([amount == 0 for amount in amounts], axis=0)
    _refuse(nothing, ids, lambda row: "its tasks request no cores, memory or GPUs")
    _refuse(
        asks & (nodes > tasks),
        ids,
        lambda row: f"it requests at least {nodes[row]:g} nodes, but has {tasks[row]:g} tasks",
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
    _refuse(wrong, ids, lambda row: f"{name} is {column[row]:g}; it must be {must}")


def _refuse(wrong: npt.NDArray[np.bool_], ids: npt.NDArray[Any], why: Callable[[int], str]) -> None:
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise WorkloadError(f"job {ids[row]}: {why(row)}")
