"""GPUs that are counted one by one, where jobs ask for parts of them; the rules are in docs/engine.md.

Of each node they are the last of its amounts, in thousandths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.sim import Sim
from hpctwin.model import Cluster, Workload
from hpctwin.model.chunks import read_more_tasks

__all__ = [
    "asks_parts",
    "gpus_of_nodes",
    "lay",
    "lay_running",
    "room_on",
    "single_gpus",
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


def gpus_of_nodes(cluster: Cluster) -> IntArray:
    """What each GPU of each node has [nodes, GPUs]; the last one may be a part."""
    counts = [group.count for group in cluster.nodes]
    milli = np.floor(np.array([group.gpus or 0.0 for group in cluster.nodes]) * ONE_GPU + 1e-3)
    most = int(-(-milli.max() // ONE_GPU))
    rows = np.clip(milli[:, None] - ONE_GPU * np.arange(most), 0, ONE_GPU)
    return np.repeat(rows.astype(np.int64), counts, axis=0)


def single_gpus(sim: Sim) -> IntArray:
    """What is left of each GPU that is counted one by one [nodes, GPUs]."""
    left: IntArray = sim["left"]
    return left[:, left.shape[1] - int(sim["sharing"]["gpus"][0]) :]


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
    gpus: int,
) -> tuple[npt.NDArray[Any], IntArray, npt.NDArray[np.int8]]:
    """Kinds of jobs, and after them those of what their tasks hold of each GPU of a node.

    Args:
        shape: of kinds of jobs.
        needs: what a task of each asks, of single GPUs nothing [kinds, amounts].
        eligible: which pools of nodes each may use [kinds, pools].
        exclusive: which of them have nodes for themselves [kinds].
        gpus: so many GPUs nodes have at most.

    Returns:
        The same of all kinds.
    """
    asked, shape = needs[:, GPUS], shape.copy()
    shape["gpus"] = np.where(asked > 0, gpus, 0)
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
        amounts.append(one.reshape(-1, needs.shape[1]))
        count += gpus * len(rows)
    owner = np.concatenate(owners)
    more = shape[owner]
    for name, value in {"tasks": 1, "nodes": 1, "popularity": 0, "gpus": 0, "parts": 1}.items():
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
    gpus = int(sim["sharing"]["gpus"][0])
    if not gpus:
        return
    left = sim["whole"][:, -gpus:].copy()
    for row, numbers, held in zip(rows.tolist(), nodes, amounts, strict=True):
        asked = int(sim["needs"][int(sim["job"]["kind"][row]), GPUS])
        for node, part in zip(numbers.tolist(), held, strict=True):
            total = int(part[GPUS])
            if (part == sim["whole"][node]).all():
                continue
            several = asked > 0 and total % asked == 0
            part[-gpus:] = lay(
                asked if several else total, total // asked if several else 1, left[node]
            )
            left[node] -= part[-gpus:]
