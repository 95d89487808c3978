"""The jobs of a resource manager as columns, read from each record once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.model import PER_NODE
from hpctwin.model.chunks import CHUNKS
from hpctwin.rms.records import JobDependency, JobSpec

__all__ = ["Columns", "SpecRows"]

FloatArray = npt.NDArray[np.float64]

LABELS = ("user", "account", "partition", "qos", "features")
LONGEST = 19
"""Numbers of fewer digits fit into 64 bits."""
_Row = tuple[Any, ...]


@dataclass(frozen=True)
class Columns:
    """What jobs ask for, by field.

    Args:
        ids: of each job [jobs].
        numbers: the ids where all of them are plain numbers [jobs]; else None.
        submit_s, walltime_s, priority: of each [jobs].
        nodes: of each [jobs].
        labels: of each, by name [jobs].
        per_node: needs per node by name, where any job has such [jobs].
        not_before_s: row and time of those that have one.
        resources: row and amounts of those that have some.
        dependencies: row and dependencies of those that have some.
        chunks: what tasks ask, by the names of `CHUNKS`, if any job asks for tasks [jobs]; else empty.
    """

    ids: tuple[str, ...]
    numbers: npt.NDArray[np.int64] | None
    submit_s: FloatArray
    walltime_s: FloatArray
    priority: FloatArray
    nodes: npt.NDArray[np.int64]
    labels: Mapping[str, tuple[str, ...]]
    per_node: Mapping[str, FloatArray]
    not_before_s: Sequence[tuple[int, float]]
    resources: Sequence[tuple[int, Mapping[str, int]]]
    dependencies: Sequence[tuple[int, tuple[JobDependency, ...]]]
    chunks: Mapping[str, FloatArray]


class SpecRows:
    """Reads specs; one that it has read before, and that is the same object still, is not read again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[JobSpec, _Row]] = {}

    def columns(self, specs: Sequence[JobSpec]) -> Columns:
        """The fields of these, in their order; those of all others are forgotten."""
        known, before = {}, self._known
        rows: list[_Row] = []
        for spec in specs:
            found = before.get(spec.id)
            # A changed spec is another object: they are frozen.
            if found is None or found[0] is not spec:
                found = (spec, _row(spec))
            known[spec.id] = found
            rows.append(found[1])
        self._known = known
        if not rows:
            return _columns([()] * 19)
        return _columns(list(zip(*rows, strict=True)))


def _row(spec: JobSpec) -> _Row:
    needs = (spec.cores, spec.gpus, spec.memory_gb)
    number = int(spec.id) if spec.id.isdigit() and len(spec.id) < LONGEST else None
    return (
        spec.id, number, spec.submit_s, spec.walltime_s, spec.priority, spec.nodes, spec.user, spec.account,
        spec.partition, spec.qos, spec.features, *needs, any(needs), spec.not_before_s,
        spec.resources or None, spec.dependencies or None, _tasks(spec) if spec.tasks else None,
    )  # fmt: skip


def _tasks(spec: JobSpec) -> tuple[float, ...]:
    return tuple(float(getattr(spec, name)) for name in CHUNKS)


def _columns(fields: Sequence[tuple[Any, ...]]) -> Columns:
    ids, numbers, submit, walltime, priority, nodes, *rest = fields
    labels, per_node, (needs, not_before, resources, dependencies, tasks) = (
        rest[:5], rest[5:8], rest[8:],
    )  # fmt: skip
    needed = zip(PER_NODE, per_node, strict=True) if any(needs) else ()
    return Columns(
        ids=ids,
        numbers=None if None in numbers else np.array(numbers, np.int64),
        submit_s=np.array(submit, np.float64),
        walltime_s=np.array(walltime, np.float64),
        priority=np.array(priority, np.float64),
        nodes=np.array(nodes, np.int64),
        labels=dict(zip(LABELS, labels, strict=True)),
        per_node={name: np.array(values) for name, values in needed},
        not_before_s=_set(not_before),
        resources=_set(resources),
        dependencies=_set(dependencies),
        chunks=_chunks(tasks),
    )


def _chunks(tasks: tuple[Any, ...]) -> dict[str, FloatArray]:
    if not any(tasks):
        return {}
    nothing = (0.0,) * len(CHUNKS)
    table = np.array([nothing if row is None else row for row in tasks], np.float64)
    return dict(zip(CHUNKS, table.T.copy(), strict=True))


def _set(values: tuple[Any, ...]) -> list[tuple[int, Any]]:
    """Row and value of those that are not None."""
    return [(i, value) for i, value in enumerate(values) if value is not None]
