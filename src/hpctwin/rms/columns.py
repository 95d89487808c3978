"""The jobs and nodes of a resource manager as columns, read from each record once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.model import PER_NODE
from hpctwin.model.chunks import CHUNKS
from hpctwin.rms.records import JobDependency, JobRecord, JobSpec, NodeRecord

__all__ = ["Columns", "NodeRows", "SpecRows"]

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
    """Reads specs; one that it has read before, and that is the same object still, is not read again.

    Nodes are read so by ``nodes``.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[JobSpec, _Row]] = {}
        self.nodes = NodeRows()

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


class NodeRows:
    """Reads nodes, and which of them jobs hold; what is the same object as before is not read again.

    Args:
        nodes: in the order of their numbers.
    """

    def __init__(self, nodes: Sequence[NodeRecord] = ()) -> None:
        self._number: dict[str, int] = {}
        self._held: dict[str, tuple[tuple[str, ...], npt.NDArray[np.int64]]] = {}
        self._nodes: tuple[NodeRecord, ...] = ()
        self.up = self.on = np.zeros(0, bool)
        self.see(nodes)

    def see(self, nodes: Sequence[NodeRecord]) -> None:
        """The nodes are these now.

        ``up`` is which can run jobs, ``on`` which of these are switched on [nodes].
        """
        # A changed node is another object: they are frozen.
        if len(nodes) == len(self._nodes) and all(map(is_, nodes, self._nodes)):
            return
        number = {node.name: i for i, node in enumerate(nodes)}
        if number != self._number:
            self._number, self._held = number, {}
        self.up = np.array([node.state == "up" for node in nodes], bool)
        off = [i for i, node in enumerate(nodes) if node.power and node.power.state != "on"]
        on = self.up.copy()
        on[off] = False
        self.on, self._nodes = on, tuple(nodes)

    def held_by(self, jobs: Sequence[JobRecord]) -> list[npt.NDArray[np.int64]]:
        """The numbers of the nodes that each job holds; those of all other jobs are forgotten.

        A node that is not there has no number.
        """
        held, before, number = {}, self._held, self._number
        found = []
        for job in jobs:
            names = job.node_names
            if not names:
                found.append(_NO_NODES)
                continue
            known = before.get(job.spec.id)
            if known is None or known[0] is not names:
                rows = [number[name] for name in names if name in number]
                known = names, np.array(rows, np.int64)
            held[job.spec.id] = known
            found.append(known[1])
        self._held = held
        return found


_NO_NODES = np.zeros(0, np.int64)


def _row(spec: JobSpec) -> _Row:
    needs = (spec.cores, spec.gpus, spec.memory_gb)
    number = int(spec.id) if spec.id.isdigit() and len(spec.id) < LONGEST else None
    return (
        spec.id, number, spec.submit_s, spec.walltime_s, spec.priority, spec.nodes, spec.user, spec.account,
        spec.partition, spec.qos, spec.features, *needs, any(needs), spec.not_before_s,
        spec.resources or None, spec.dependencies or None, _tasks(spec) if spec.tasks else None,
    )  # fmt: skip


def _tasks(spec: JobSpec) -> tuple[float, ...]:
    # Jobs that share nodes with some only are left to the cluster, and count as alone.
    asked = (getattr(spec, name) for name in CHUNKS if name != "shared_with")
    return (*map(float, asked), 0.0)


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
