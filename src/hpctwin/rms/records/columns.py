"""Jobs and nodes of a resource manager as columns; each record is read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, compress
from operator import attrgetter, is_
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from hpctwin.attributes import kept
from hpctwin.model import PER_NODE
from hpctwin.model.requests.chunks import CHUNKS
from hpctwin.rms.records.records import JobRecord, JobSpec, NodeRecord

LABELS = ("user", "account", "partition", "qos", "features", "more_tasks")
_LABELS_OF = attrgetter(*LABELS)
LONGEST = 16
"""Numbers with fewer digits are exact as floats."""

FloatArray = npt.NDArray[np.float64]

_NEVER = np.nan
_NO_NODES = np.zeros(0, np.int64)
_SELDOM = ("tasks", "needs", "depends", "uses", "later", *LABELS)
_NUMBERS = {name: place for place, name in enumerate((
    "submit_s", "start_s", "not_before_s", "walltime_s", "priority", *PER_NODE, "number", "nodes", "barred",
    *_SELDOM,
))}  # fmt: skip
_OBJECTS = {name: place for place, name in enumerate((
    "id", *LABELS, "resources", "consumables", "dependencies", "tasks", "held", "amounts", "uses_up",
))}  # fmt: skip


@dataclass(frozen=True)
class Jobs:
    """Jobs by row, read-only.

    Args:
        numbers: Numbers, see `of` [kinds, jobs].
        objects: Other values, see `told` [jobs, kinds].
    """

    numbers: FloatArray
    objects: npt.NDArray[np.object_]

    def __len__(self) -> int:
        return len(self.objects)

    def of(self, name: str) -> FloatArray:
        """Return a number of each job [jobs].

        These are the names:

        - ``submit_s``, ``walltime_s``, ``priority``, ``nodes``, ``tasks``
        - ``start_s`` and ``not_before_s``: NaN without one
        - the needs per node, and ``needs``: whether there are any
        - ``number``: the id as a number, -1 if it is not written as one
        - ``barred``: whether it is held, or the resource manager would not start it
        - ``depends``: whether it depends on other jobs
        - ``uses``: whether it uses resources or consumables
        - ``later``: whether it has an earliest begin time
        - each of `LABELS`: whether it has that label
        """
        found: FloatArray = self.numbers[_NUMBERS[name]]
        return found

    @kept
    def known(self) -> frozenset[str]:
        """Return the rare properties that any job has: ``tasks``, ``needs`` … see `of`."""
        most = np.maximum.reduce(self.numbers[-len(_SELDOM) :], axis=1, initial=0.0)
        return frozenset(compress(_SELDOM, most.tolist()))

    def told(self, name: str, rows: npt.NDArray[np.int64] | slice = slice(None)) -> list[Any]:
        """Return a value that is not a number, of some jobs [rows] or all [jobs].

        These are the names:

        - ``id`` or one of `LABELS`
        - ``resources``, ``consumables``, ``dependencies``: None without any
        - ``tasks``: their request in the order of `CHUNKS`, None without any
        - ``held``: numbers of its nodes
        - ``amounts``: amounts that it holds of them, None if it has them whole
        - ``uses_up``: its record if it holds consumables, else None
        """
        found: list[Any] = self.objects[:, _OBJECTS[name]][rows].tolist()
        return found

    @kept
    def runs(self) -> npt.NDArray[np.bool_]:
        """Return whether each job has started or has the nodes it will start on [jobs]."""
        has: npt.NDArray[np.bool_] = ~np.isnan(self.of("start_s"))
        return has

    @property
    def waiting(self) -> dict[str, int]:
        """Number of requested nodes of each job that does not run, by id."""
        rows = (~self.runs).nonzero()[0]
        nodes = self.of("nodes")[rows].astype(np.int64)
        return dict(zip(self.told("id", rows), nodes.tolist(), strict=True))

    @kept
    def held(self) -> npt.NDArray[np.int64]:
        """Return the numbers of the nodes held, once for each job that holds them."""
        return np.concatenate([_NO_NODES, *self.told("held", self.runs.nonzero()[0])])

    def take(self, rows: npt.NDArray[np.int64]) -> Jobs:
        """Return some of the jobs, in another order."""
        return Jobs(self.numbers.take(rows, axis=1), self.objects.take(rows, axis=0))

    def in_order(self, rows: npt.NDArray[np.int64]) -> Jobs:
        """Return all of the jobs in another order; cached results are kept."""
        found = self.take(rows)
        vars(found).update(known=self.known, runs=self.runs.take(rows))
        return found

    def and_also(self, others: Jobs) -> Jobs:
        """Return these jobs followed by others."""
        if not len(others):
            return self
        return Jobs(
            np.concatenate([self.numbers, others.numbers], axis=1),
            np.concatenate([self.objects, others.objects]),
        )


def same_objects(some: Sequence[Any], others: tuple[Any, ...]) -> bool:
    """Return whether both hold the same objects in the same order."""
    return some is others or (len(some) == len(others) and all(map(is_, some, others)))


class _Kept(NamedTuple):
    """Jobs that were read.

    Args:
        number: Number of each node's name.
        jobs: The records, kept so that no other object has the id of one.
        names: Ids of these objects, rising [jobs].
        row: Row of each of these [jobs].
        rows: Columns read.
    """

    number: dict[str, int]
    jobs: tuple[JobRecord, ...]
    names: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]
    rows: Jobs

    @classmethod
    def nothing(cls, number: dict[str, int]) -> Self:
        """Return the state before any job was read."""
        return cls(number, (), _NO_NODES, _NO_NODES, _read([]))


class JobRows:
    """Reads jobs; the same object is read only once.

    ``nodes`` reads nodes in the same way.
    """

    def __init__(self) -> None:
        self.nodes = NodeRows()
        self._kept = _Kept.nothing(self.nodes.number)

    def jobs(self, jobs: Sequence[JobRecord], nodes: Sequence[NodeRecord]) -> Jobs:
        """Return these jobs as columns, in their order.

        Args:
            jobs: Jobs with distinct ids; the same tuple as before is not read again.
            nodes: Nodes in the order of their numbers; the same holds for them.
        """
        self.nodes.see(nodes)
        number, kept = self.nodes.number, self._kept
        if number is not kept.number:
            kept = _Kept.nothing(number)
        elif same_objects(jobs, kept.jobs):
            return kept.rows
        # A changed job is another object: they are frozen.
        names = np.fromiter(map(id, jobs), np.int64, len(jobs))
        rows = self._rows(jobs, names, kept)
        row = names.argsort()
        # At once, so that a reader in another thread finds consistent values.
        self._kept = _Kept(number, tuple(jobs), names[row], row, rows)
        return rows

    def _rows(self, jobs: Sequence[JobRecord], names: npt.NDArray[np.int64], kept: _Kept) -> Jobs:
        """Return these jobs as columns; some of them may have been read before."""
        if not kept.jobs or not len(names):
            return _read([self._row(job) for job in jobs])
        place = kept.names.searchsorted(names)
        new = (kept.names.take(place, mode="clip") != names).nonzero()[0]
        rows = kept.rows.take(kept.row.take(place, mode="clip"))
        if len(new):
            fresh = _read([self._row(jobs[i]) for i in new.tolist()])
            rows.numbers[:, new], rows.objects[new] = fresh.numbers, fresh.objects
        return rows

    def _row(self, job: JobRecord) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        held = self.nodes.numbers_of(job.node_names) if job.node_names else _NO_NODES
        uses_up = job if len(held) and job.uses_up else None
        return _row(job.spec, job.start_s, held, job.amounts if len(held) else None, uses_up)


def jobs_to_come(specs: Sequence[JobSpec]) -> Jobs:
    """Return jobs that do not exist yet as columns."""
    return _read([_row(spec) for spec in specs])


class NodeRows:
    """Reads nodes; the same objects are read only once.

    Args:
        nodes: Nodes in the order of their numbers.
    """

    def __init__(self, nodes: Sequence[NodeRecord] = ()) -> None:
        self.number: dict[str, int] = {}
        self._nodes: tuple[NodeRecord, ...] = ()
        self.up = self.on = np.zeros(0, bool)
        self.gone = _NO_NODES
        self.see(nodes)

    def see(self, nodes: Sequence[NodeRecord]) -> None:
        """Set the current nodes.

        ``number`` is the number of each name; it is another object whenever it has changed. ``up``
        says which nodes can run jobs, and ``on`` which of these are switched on [nodes]. ``gone``
        has the numbers of the nodes that cannot run jobs.
        """
        # A changed node is another object: they are frozen.
        if same_objects(nodes, self._nodes):
            return
        number = {node.name: i for i, node in enumerate(nodes)}
        if number != self.number:
            self.number = number
        self.up = np.array([node.state == "up" for node in nodes], bool)
        self.gone = (~self.up).nonzero()[0]
        off = [i for i, node in enumerate(nodes) if node.power and node.power.state != "on"]
        on = self.up.copy()
        on[off] = False
        self.on, self._nodes = on, tuple(nodes)

    def numbers_of(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the numbers of nodes; unknown ones are omitted."""
        number = self.number
        return np.array([number[name] for name in names if name in number], np.int64)


def _row(
    spec: JobSpec,
    start_s: float | None = None,
    held: npt.NDArray[np.int64] = _NO_NODES,
    amounts: FloatArray | None = None,
    uses_up: JobRecord | None = None,
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    needs = (spec.cores, spec.gpus, spec.memory_gb)
    labels = _LABELS_OF(spec)
    number = -1
    if spec.id.isascii() and spec.id.isdecimal() and len(spec.id) < LONGEST:
        number = int(spec.id) if spec.id == str(int(spec.id)) else -1
    numbers = (
        spec.submit_s, _NEVER if start_s is None else start_s,
        _NEVER if spec.not_before_s is None else spec.not_before_s, spec.walltime_s, spec.priority, *needs,
        number, spec.nodes, spec.held or bool(spec.reason), spec.tasks, any(needs), bool(spec.dependencies),
        bool(spec.resources or spec.consumables), spec.not_before_s is not None, *map(bool, labels),
    )  # fmt: skip
    objects = (
        spec.id, *labels, spec.resources or None, spec.consumables or None, spec.dependencies or None,
        _tasks(spec) if spec.tasks else None, held, amounts, uses_up,
    )  # fmt: skip
    return numbers, objects


def _read(rows: Sequence[tuple[tuple[Any, ...], tuple[Any, ...]]]) -> Jobs:
    told = chain.from_iterable([objects for _, objects in rows])
    objects = np.fromiter(told, object, len(rows) * len(_OBJECTS)).reshape(-1, len(_OBJECTS))
    numbers = np.array([numbers for numbers, _ in rows], np.float64)
    return Jobs(np.ascontiguousarray(numbers.reshape(-1, len(_NUMBERS)).T), objects)


def _tasks(spec: JobSpec) -> tuple[float, ...]:
    return tuple(float(getattr(spec, name)) for name in CHUNKS)
