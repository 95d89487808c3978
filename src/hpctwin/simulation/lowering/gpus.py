"""GPUs that are counted one by one, as jobs ask for parts of them, or nodes have several types of them.

The rules are in docs/engine.md. Of each node they are the last of its amounts, in thousandths, those of each
type together and those of none last. How many GPUs of each type a node has stands right before them, as a
consumable.
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
"""The column of all GPUs of a node together."""


def asks_parts(workload: Workload) -> bool:
    """Whether any task asks for a part of a GPU."""
    if not workload.shares_nodes:
        return False
    asked = workload.chunks["gpus_per_task"][workload.chunks["tasks"] > 0]
    further = [
        kind.asks("gpus") for text in workload.more_tasks.labels for kind in read_more_tasks(text)
    ]
    milli = np.ceil(np.array([*np.unique(asked), *further, 0.0]) * ONE_GPU - 1e-3)
    return bool((milli % ONE_GPU != 0).any())


def has_several_types(cluster: Cluster) -> bool:
    """Whether the GPUs of any node are of several types."""
    return any(group.gpu_kinds > 1 for group in cluster.nodes)


@dataclass(frozen=True)
class SingleGpus:
    """How the GPUs of nodes stand in columns.

    Args:
        at: where those of each type begin, and those of none; then how many there are.
    """

    at: tuple[int, ...]

    @classmethod
    def of(cls, cluster: Cluster) -> SingleGpus:
        """Those of a machine: of each type as many as a node has at most."""
        most = [-(-column.max() // ONE_GPU) for column in _by_type(cluster)]
        return cls((0, *np.cumsum(most, dtype=np.int64).tolist()))

    @classmethod
    def of_sim(cls, sim: Sim) -> SingleGpus | None:
        """Those of a simulation; None if GPUs are not counted one by one."""
        return cls(tuple(sim["type_at"].tolist())) if len(sim["type_at"]) else None

    @property
    def count(self) -> int:
        """How many columns there are."""
        return self.at[-1]

    @property
    def types(self) -> int:
        """How many types."""
        return len(self.at) - 2

    def of_nodes(self, cluster: Cluster) -> IntArray:
        """What each GPU of each node has [nodes, columns]; the last one may be a part."""
        rows = [
            np.clip(milli[:, None] - ONE_GPU * np.arange(upto - begin), 0, ONE_GPU)
            for milli, begin, upto in zip(_by_type(cluster), self.at, self.at[1:], strict=False)
        ]
        counts = [group.count for group in cluster.nodes]
        return np.repeat(np.concatenate(rows, axis=1), counts, axis=0)

    def asked(self, needs: IntArray) -> list[tuple[int, slice]]:
        """Of which columns a task asks how much.

        Args:
            needs: what it asks of each amount of nodes.
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
        """The amounts of GPUs of each type, of a row of amounts [types]."""
        first = row.shape[-1] - self.count - self.types
        return row[..., first : first + self.types]

    def suits(self, needs: IntArray) -> npt.NDArray[np.bool_]:
        """Which GPUs are of a type that a task asks for [columns]; `needs` as of `asked`."""
        found = np.zeros(self.count, np.bool_)
        for _, where in self.asked(needs):
            found[where] = True
        return found

    def by_type(self, taken: IntArray) -> list[int]:
        """How much of each type is in what is taken of each GPU of a node [types]."""
        return [int(taken[self.at[t] : self.at[t + 1]].sum()) for t in range(self.types)]

    def single(self, rows: IntArray) -> IntArray:
        """The columns of single GPUs, of rows of amounts."""
        return rows[..., rows.shape[-1] - self.count :]

    def numbers(self, has: IntArray) -> IntArray:
        """The number that each GPU has on its node [nodes, columns].

        Args:
            has: as of `of_nodes`.
        """
        found: IntArray = np.cumsum(has > 0, axis=1) - 1
        return found

    def room(self, needs: IntArray, left: IntArray) -> IntArray:
        """For how many tasks there is room on the GPUs of each node [nodes].

        Args:
            needs: as of `asked`, of which some GPUs.
            left: of each GPU [nodes, columns].
        """
        rooms = [room_on(amount, left[:, where]) for amount, where in self.asked(needs)]
        found: IntArray = np.min(rooms, axis=0)
        return found

    def lay(self, needs: IntArray, tasks: int, left: IntArray) -> IntArray:
        """What tasks take of each GPU of a node [columns]; see `lay`."""
        taken = np.zeros(self.count, np.int64)
        for amount, where in self.asked(needs):
            taken[where] += lay(amount, tasks, left[where])
        return taken


def _by_type(cluster: Cluster) -> list[IntArray]:
    """What a node of each group has of GPUs of each type, in thousandths, and of those of none [groups]."""
    amounts = [
        np.array([group.consumables.get(name, 0.0) for group in cluster.nodes])
        for name in cluster.gpu_types
    ]
    every = np.array([group.gpus or 0.0 for group in cluster.nodes])
    amounts.append(every - np.sum([np.zeros(len(every)), *amounts], axis=0))
    return [np.floor(amount * ONE_GPU + 1e-3).astype(np.int64) for amount in amounts]


def room_on(asked: int, left: IntArray) -> IntArray:
    """For how many tasks there is room on the GPUs of each node [nodes].

    Args:
        asked: thousandths of GPUs of a task, above 0.
        left: of each GPU [nodes, GPUs].
    """
    whole, part = divmod(asked, ONE_GPU)
    free: IntArray = (left == ONE_GPU).sum(axis=1)
    if not part:
        return np.asarray(free // whole)
    parts: IntArray = np.where(left == ONE_GPU, 0, np.maximum(left, 0) // part).sum(axis=1)
    each = ONE_GPU // part
    if not whole:
        return np.asarray(parts + free * each)
    broken = np.arange(left.shape[1] + 1)
    room = np.minimum((free[:, None] - broken) // whole, parts[:, None] + broken * each)
    found: IntArray = room.max(axis=1)
    return found


def lay(asked: int, tasks: int, left: IntArray) -> IntArray:
    """What tasks take of each GPU of a node: parts of the tightest, then whole ones by number [GPUs].

    Where too little is left, as of nodes whose jobs were not placed by these rules, it is taken of those
    that have most.

    Args:
        asked: thousandths of GPUs of a task.
        tasks: so many.
        left: of each GPU [GPUs].
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
    """Kinds of jobs, and after them those of what their tasks hold of each GPU of a node.

    Args:
        shape: of kinds of jobs.
        needs: what a task of each asks, of single GPUs nothing [kinds, amounts].
        eligible: which pools of nodes each may use [kinds, pools].
        exclusive: which of them have nodes for themselves [kinds].
        layout: how GPUs of nodes stand in columns.

    Returns:
        The same of all kinds.
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
            # Of which type it is, who asks for a type says already.
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
    """How many GPUs, whole or in part, jobs of each kind hold, given how many a task does [kinds]."""
    own = shape["tasks"].astype(np.int64) * each
    found, more = own.copy(), shape["more"].astype(np.int64)
    while (more >= 0).any():
        found += np.where(more >= 0, own[more], 0)
        more = np.where(more >= 0, shape["more"][more], -1)
    return found


def lay_running(
    sim: Sim, rows: IntArray, nodes: Sequence[IntArray], amounts: Sequence[IntArray]
) -> None:
    """Write down on which GPUs running jobs are, of which it is known what they hold of nodes alone.

    They are laid one after the other, each as so many of its tasks as ask for what it holds.

    Args:
        sim: a simulation of shared nodes.
        rows: of the jobs.
        nodes: of each.
        amounts: what each holds of them, of single GPUs nothing unless it has the node for itself; these are
            filled in.
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
