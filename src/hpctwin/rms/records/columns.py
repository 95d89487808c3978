"""The jobs and nodes of a resource manager as columns, read from each record once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, compress
from operator import attrgetter, is_
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from hpctwin.model import PER_NODE
from hpctwin.model.input.cached_attributes import kept
from hpctwin.model.requests.chunks import CHUNKS
from hpctwin.rms.records.records import JobRecord, JobSpec, NodeRecord

__all__ = ["LABELS", "JobRows", "Jobs", "NodeRows", "jobs_to_come"]

LABELS = ("user", "account", "partition", "qos", "features", "more_tasks")
_LABELS_OF = attrgetter(*LABELS)
LONGEST = 16
"""Numbers of fewer digits are exact as floats."""

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
    """Jobs by row; nobody may write it.

    Args:
        numbers: see `of` [kinds, jobs].
        objects: what is not a number; see `told` [jobs, kinds].
    """

    numbers: FloatArray
    objects: npt.NDArray[np.object_]

    def __len__(self) -> int:
        return len(self.objects)

    def of(self, name: str) -> FloatArray:
        """A number [jobs].

        Args:
            name: ``submit_s``, ``walltime_s``, ``priority``, ``nodes``, ``tasks``; ``start_s`` and
                ``not_before_s``, NaN where there is none; the needs per node, and whether there are any
                (``needs``); the id as a ``number``, -1 where it is not written as one; ``barred``: whether it
                is held, or the resource manager would not start it; whether it ``depends`` on others,
                whether it ``uses`` resources or consumables, whether it may begin ``later`` only, and whether
                it has each of `LABELS`.
        """
        found: FloatArray = self.numbers[_NUMBERS[name]]
        return found

    @kept
    def known(self) -> frozenset[str]:
        """What any has of that of which most have nothing: ``tasks``, ``needs`` … see `of`."""
        most = np.maximum.reduce(self.numbers[-len(_SELDOM) :], axis=1, initial=0.0)
        return frozenset(compress(_SELDOM, most.tolist()))

    def told(self, name: str, rows: npt.NDArray[np.int64] | slice = slice(None)) -> list[Any]:
        """Something that is not a number, of some [rows] or all [jobs].

        Args:
            name: ``id``, one of `LABELS`; ``resources``, ``consumables``, ``dependencies``, or by the names
                of `CHUNKS` what the ``tasks`` ask, None where there are none; ``held``: numbers of its nodes,
                the ``amounts`` that it has of them, None where it has them whole, and the record of one that
                ``uses_up`` consumables besides, else None.
            rows: of whom.
        """
        found: list[Any] = self.objects[:, _OBJECTS[name]][rows].tolist()
        return found

    @kept
    def runs(self) -> npt.NDArray[np.bool_]:
        """Whether each has started, or has the nodes that it will start on [jobs]."""
        has: npt.NDArray[np.bool_] = ~np.isnan(self.of("start_s"))
        return has

    @property
    def waiting(self) -> dict[str, int]:
        """How many nodes each asks for that does not run, by id."""
        rows = (~self.runs).nonzero()[0]
        nodes = self.of("nodes")[rows].astype(np.int64)
        return dict(zip(self.told("id", rows), nodes.tolist(), strict=True))

    @kept
    def held(self) -> npt.NDArray[np.int64]:
        """The numbers of the nodes that they hold, once for each job that does."""
        return np.concatenate([_NO_NODES, *self.told("held", self.runs.nonzero()[0])])

    def take(self, rows: npt.NDArray[np.int64]) -> Jobs:
        """Some of them, in another order."""
        return Jobs(self.numbers.take(rows, axis=1), self.objects.take(rows, axis=0))

    def in_order(self, rows: npt.NDArray[np.int64]) -> Jobs:
        """All of them, in another order; what is known of them is not looked for again."""
        found = self.take(rows)
        vars(found).update(known=self.known, runs=self.runs.take(rows))
        return found

    def and_also(self, others: Jobs) -> Jobs:
        """With others behind them."""
        if not len(others):
            return self
        return Jobs(
            np.concatenate([self.numbers, others.numbers], axis=1),
            np.concatenate([self.objects, others.objects]),
        )


def same_objects(some: Sequence[Any], others: tuple[Any, ...]) -> bool:
    """Whether they are the same objects in the same order."""
    return some is others or (len(some) == len(others) and all(map(is_, some, others)))


class _Kept(NamedTuple):
    """Jobs that were read.

    Args:
        number: which each node's name was.
        jobs: themselves, so that no other object has the id of one.
        names: the ids of these objects, rising [jobs].
        row: of each of these [jobs].
        rows: what was read.
    """

    number: dict[str, int]
    jobs: tuple[JobRecord, ...]
    names: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]
    rows: Jobs

    @classmethod
    def nothing(cls, number: dict[str, int]) -> Self:
        """None was read yet."""
        return cls(number, (), _NO_NODES, _NO_NODES, _read([]))


class JobRows:
    """Reads jobs; one that it has read before, and that is the same object still, is not read again.

    Nodes are read so by ``nodes``.
    """

    def __init__(self) -> None:
        self.nodes = NodeRows()
        self._kept = _Kept.nothing(self.nodes.number)

    def jobs(self, jobs: Sequence[JobRecord], nodes: Sequence[NodeRecord]) -> Jobs:
        """These jobs, in their order.

        Args:
            jobs: not two of one id; where they are the same tuple as before, they are not gone through.
            nodes: in the order of their numbers; as with jobs.
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
        # At once, so that whoever looks from another thread finds what goes together.
        self._kept = _Kept(number, tuple(jobs), names[row], row, rows)
        return rows

    def _rows(self, jobs: Sequence[JobRecord], names: npt.NDArray[np.int64], kept: _Kept) -> Jobs:
        """These jobs, of which some may be among those that were read."""
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
    """Jobs that are not there yet."""
    return _read([_row(spec) for spec in specs])


class NodeRows:
    """Reads nodes; what is the same object as before is not read again.

    Args:
        nodes: in the order of their numbers.
    """

    def __init__(self, nodes: Sequence[NodeRecord] = ()) -> None:
        self.number: dict[str, int] = {}
        self._nodes: tuple[NodeRecord, ...] = ()
        self.up = self.on = np.zeros(0, bool)
        self.gone = _NO_NODES
        self.see(nodes)

    def see(self, nodes: Sequence[NodeRecord]) -> None:
        """The nodes are these now.

        ``number`` is which each name is, another object whenever that has changed; ``up`` which can run jobs,
        ``on`` which of these are switched on [nodes]; ``gone`` the numbers of those that cannot run jobs.
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
        """The numbers of nodes; one that is not there has none."""
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
    if spec.id.isascii() and spec.id.isdigit() and len(spec.id) < LONGEST:
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
