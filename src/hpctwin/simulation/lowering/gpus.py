"""GPUs counted one by one, for parts of GPUs or nodes with several GPU types.

The rules are in docs/reference/rules/shared-nodes.md. The columns of single GPUs come last among
the amounts of a node, in thousandths. GPUs of one type are contiguous, and GPUs without a type come
last. The number of GPUs of each type on a node is a consumable, in the columns directly before
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.state.sim import Sim
from hpctwin.model import Cluster, Workload
from hpctwin.model.requests.chunks import read_more_tasks

__all__ = [
    "SingleGpus",
    "asks_parts",
    "has_several_types",
    "lay",
    "lay_running",
    "room_on",
    "with_gpus",
]

IntArray = npt.NDArray[np.int64]

ONE_GPU = 1000
GPUS = 2
"""Column of the total number of GPUs of a node."""


def asks_parts(workload: Workload) -> bool:
    """Return whether any task asks for a fraction of a GPU."""
    if not workload.shares_nodes:
        return False
    asked = workload.chunks["gpus_per_task"][workload.chunks["tasks"] > 0]
    further = [
        kind.asks("gpus") for text in workload.more_tasks.labels for kind in read_more_tasks(text)
    ]
    milli = np.ceil(np.array([*np.unique(asked), *further, 0.0]) * ONE_GPU - 1e-3)
    return bool((milli % ONE_GPU != 0).any())


def has_several_types(cluster: Cluster) -> bool:
    """Return whether any node has GPUs of several types."""
    return any(group.gpu_kinds > 1 for group in cluster.nodes)


@dataclass(frozen=True)
class SingleGpus:
    """Columns that hold the single GPUs of nodes.

    Args:
        at: First column of each type, then of GPUs without a type; then the number of columns.
    """

    at: tuple[int, ...]

    @classmethod
    def of(cls, cluster: Cluster) -> SingleGpus:
        """Return the columns for a cluster: per type, as many as the largest node has."""
        most = [-(-column.max() // ONE_GPU) for column in _by_type(cluster)]
        return cls((0, *np.cumsum(most, dtype=np.int64).tolist()))

    @classmethod
    def of_sim(cls, sim: Sim) -> SingleGpus | None:
        """Return the columns of a simulation; None if GPUs are not counted one by one."""
        return cls(tuple(sim["type_at"].tolist())) if len(sim["type_at"]) else None

    @property
    def count(self) -> int:
        """Number of columns."""
        return self.at[-1]

    @property
    def types(self) -> int:
        """Number of GPU types."""
        return len(self.at) - 2

    def of_nodes(self, cluster: Cluster) -> IntArray:
        """Return the capacity of each GPU [nodes, columns]; a node's last may be a part."""
        rows = [
            np.clip(milli[:, None] - ONE_GPU * np.arange(upto - begin), 0, ONE_GPU)
            for milli, begin, upto in zip(_by_type(cluster), self.at, self.at[1:], strict=False)
        ]
        counts = [group.count for group in cluster.nodes]
        return np.repeat(np.concatenate(rows, axis=1), counts, axis=0)

    def asked(self, needs: IntArray) -> list[tuple[int, slice]]:
        """Return pairs of the amount a task asks for and the columns that can serve it.

        Args:
            needs: Request of the task, per amount of nodes [amounts].
        """
        types = self.of_types(needs)
        if not types.any():
            return [(int(needs[GPUS]), slice(0, self.count))] if needs[GPUS] else []
        return [
            (amount, slice(self.at[t], self.at[t + 1]))
            for t, amount in enumerate(types.tolist())
            if amount
        ]

    def of_types(self, row: IntArray) -> IntArray:
        """Return the amounts of GPUs of each type from a row of amounts [types]."""
        first = row.shape[-1] - self.count - self.types
        return row[..., first : first + self.types]

    def suits(self, needs: IntArray) -> npt.NDArray[np.bool_]:
        """Return which GPUs suit a task's GPU type [columns]; `needs` as in `asked`."""
        found = np.zeros(self.count, np.bool_)
        for _, where in self.asked(needs):
            found[where] = True
        return found

    def by_type(self, taken: IntArray) -> list[int]:
        """Return how much of each type is in the amounts taken of a node's GPUs [types]."""
        return [int(taken[self.at[t] : self.at[t + 1]].sum()) for t in range(self.types)]

    def single(self, rows: IntArray) -> IntArray:
        """Return the columns of single GPUs from rows of amounts."""
        return rows[..., rows.shape[-1] - self.count :]

    def numbers(self, has: IntArray) -> IntArray:
        """Return the number that each GPU has on its node [nodes, columns].

        Args:
            has: Capacities as returned by `of_nodes`.
        """
        found: IntArray = np.cumsum(has > 0, axis=1) - 1
        return found

    def room(self, needs: IntArray, left: IntArray) -> IntArray:
        """Return how many tasks fit on the free GPUs of each node [nodes].

        Args:
            needs: Request as in `asked`, with at least some GPUs.
            left: Free amount of each GPU [nodes, columns].
        """
        rooms = [room_on(amount, left[:, where]) for amount, where in self.asked(needs)]
        found: IntArray = np.min(rooms, axis=0)
        return found

    def lay(self, needs: IntArray, tasks: int, left: IntArray) -> IntArray:
        """Return what tasks take of each GPU of a node [columns]; see the function `lay`."""
        taken = np.zeros(self.count, np.int64)
        for amount, where in self.asked(needs):
            taken[where] += lay(amount, tasks, left[where])
        return taken


def _by_type(cluster: Cluster) -> list[IntArray]:
    """Return the GPUs of a node of each group, in thousandths, per type.

    Each array is [groups]; GPUs without a type are the last.
    """
    amounts = [
        np.array([group.consumables.get(name, 0.0) for group in cluster.nodes])
        for name in cluster.gpu_types
    ]
    every = np.array([group.gpus or 0.0 for group in cluster.nodes])
    amounts.append(every - np.sum([np.zeros(len(every)), *amounts], axis=0))
    return [np.floor(amount * ONE_GPU + 1e-3).astype(np.int64) for amount in amounts]


def room_on(asked: int, left: IntArray) -> IntArray:
    """Return how many tasks fit on the free GPUs of each node [nodes].

    Args:
        asked: Thousandths of GPUs per task, above 0.
        left: Free amount of each GPU [nodes, GPUs].
    """
    whole, part = divmod(asked, ONE_GPU)
    free: IntArray = (left == ONE_GPU).sum(axis=1)
    if not part:
        return np.asarray(free // whole)
    parts: IntArray = np.where(left == ONE_GPU, 0, np.maximum(left, 0) // part).sum(axis=1)
    each = ONE_GPU // part
    if not whole:
        return np.asarray(parts + free * each)
    # Tasks ask for whole GPUs and a part. Try every number of free GPUs that are split for the
    # parts, and keep the best.
    broken = np.arange(left.shape[1] + 1)
    room = np.minimum((free[:, None] - broken) // whole, parts[:, None] + broken * each)
    found: IntArray = room.max(axis=1)
    return found


def lay(asked: int, tasks: int, left: IntArray) -> IntArray:
    """Return what tasks take of each GPU: parts of the fullest, then whole GPUs.

    If too little is left, the amount is taken from the GPUs with most left. This happens on nodes
    whose jobs were not placed by these rules.

    Args:
        asked: Thousandths of GPUs per task.
        tasks: Number of tasks.
        left: Free amount of each GPU [GPUs].
    """
    taken = np.zeros(len(left), np.int64)
    whole, part = divmod(asked, ONE_GPU)
    for size, count in ((part, tasks if part else 0), (ONE_GPU, tasks * whole)):
        for _ in range(count):
            free = left - taken
            fits = np.flatnonzero(free >= size)
            gpu = fits[free[fits].argmin()] if len(fits) else free.argmax()
            taken[gpu] += size
    return taken


def with_gpus(
    shape: npt.NDArray[Any],
    needs: IntArray,
    eligible: npt.NDArray[np.int8],
    exclusive: npt.NDArray[np.bool_],
    layout: SingleGpus,
) -> tuple[npt.NDArray[Any], IntArray, npt.NDArray[np.int8]]:
    """Append to kinds of jobs the kinds of what their tasks hold of each single GPU.

    Args:
        shape: Kinds of jobs.
        needs: Request of one task of each kind, zero for single GPUs [kinds, amounts].
        eligible: Pools of nodes that each kind may use [kinds, pools].
        exclusive: Kinds that have nodes for themselves [kinds].
        layout: Columns of single GPUs.

    Returns:
        ``shape``, ``needs`` and ``eligible`` of all kinds.
    """
    asked, shape, gpus = needs[:, GPUS], shape.copy(), layout.count
    typed: npt.NDArray[np.bool_] = np.any(layout.of_types(needs), axis=1)
    shape["gpus"] = np.where(asked > 0, gpus, 0)
    shape["typed"] = typed
    shape["part_on"] = shape["whole_on"] = -1
    lies = (asked > 0) & ~exclusive
    shape["parts"] += _parts(shape, np.where(lies, -(-asked // ONE_GPU), 0))
    amounts, owners, count = [], [], len(shape)
    for name, size in (
        ("part_on", asked % ONE_GPU),
        ("whole_on", np.where(asked >= ONE_GPU, ONE_GPU, 0)),
    ):
        rows = np.flatnonzero(lies & (size > 0))
        shape[name][rows] = count + gpus * np.arange(len(rows))
        owners.append(np.repeat(rows, gpus))
        one = np.zeros((len(rows), gpus, needs.shape[1]), np.int64)
        place = np.arange(gpus)
        one[:, place, needs.shape[1] - gpus + place] = size[rows, None]
        for t in range(layout.types):
            # A request for a type already counts in the type's column.
            of_type = slice(layout.at[t], layout.at[t + 1])
            amount = np.where(typed[rows], 0, size[rows])
            one[:, of_type, needs.shape[1] - gpus - layout.types + t] = amount[:, None]
        amounts.append(one.reshape(-1, needs.shape[1]))
        count += gpus * len(rows)
    owner = np.concatenate(owners)
    more = shape[owner]
    for name, value in {
        "tasks": 1,
        "nodes": 1,
        "popularity": 0,
        "gpus": 0,
        "typed": 0,
        "parts": 1,
    }.items():
        more[name] = value
    for name in ("more", "among", "part_on", "whole_on"):
        more[name] = -1
    found = np.concatenate([shape, more])
    return found, np.concatenate([needs, *amounts]), np.concatenate([eligible, eligible[owner]])


def _parts(shape: npt.NDArray[Any], each: IntArray) -> IntArray:
    """Return how many GPUs, whole or in part, jobs of each kind hold [kinds].

    ``each`` is the number that one task holds; the tasks of a job's further kinds are added.
    """
    own = shape["tasks"].astype(np.int64) * each
    found, more = own.copy(), shape["more"].astype(np.int64)
    while (more >= 0).any():
        found += np.where(more >= 0, own[more], 0)
        more = np.where(more >= 0, shape["more"][more], -1)
    return found


def lay_running(
    sim: Sim, rows: IntArray, nodes: Sequence[IntArray], amounts: Sequence[IntArray]
) -> None:
    """Fill in which GPUs running jobs hold, where only the nodes' amounts are known.

    Jobs are placed one after the other. A job counts as the number of tasks whose requests add up
    to what it holds.

    Args:
        sim: Simulation with shared nodes.
        rows: Rows of the jobs.
        nodes: Node numbers of each job.
        amounts: What each job holds of its nodes, filled in here. Single GPUs are zero, except
            where the job has the node for itself.
    """
    if (layout := SingleGpus.of_sim(sim)) is None:
        return
    left = layout.single(sim["whole"]).copy()
    for row, numbers, held in zip(rows.tolist(), nodes, amounts, strict=True):
        asked = int(sim["needs"][int(sim["job"]["kind"][row]), GPUS])
        for node, part in zip(numbers.tolist(), held, strict=True):
            if (part == sim["whole"][node]).all():
                continue
            taken = layout.single(part)
            for total, where in layout.asked(part):
                several = asked > 0 and total % asked == 0
                each, tasks = (asked, total // asked) if several else (total, 1)
                taken[where] += lay(each, tasks, left[node, where])
            rest = int(part[GPUS] - taken.sum())
            if rest > 0:
                taken += lay(rest, 1, left[node] - taken)
            left[node] -= taken
            layout.of_types(part)[:] = layout.by_type(taken)
