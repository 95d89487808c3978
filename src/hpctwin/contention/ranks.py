"""Ranks of running jobs: one on each whole node, or one for each task on shared nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpctwin.engine.operations.power_control import nodes_of_job
from hpctwin.engine.shared.node_resources import ALONE, CORES, GPUS
from hpctwin.engine.state.sim import Sim

__all__ = ["Held", "ranks_of_job"]

IntArray = npt.NDArray[np.int64]
_UNITS = 1000
"""Units of the engine in a core, and in a GPU."""


class Held(NamedTuple):
    """Cores and GPUs that ranks hold of their nodes.

    Args:
        cores: Cores of each rank [ranks].
        gpus: GPUs of each rank [ranks].
    """

    cores: npt.NDArray[np.float64]
    gpus: npt.NDArray[np.float64]


def ranks_of_job(sim: Sim, row: int, whole: Held) -> tuple[IntArray, Held | None]:
    """Return the node of each rank of a running job, and what ranks hold of shared nodes.

    Ranks are in the order of the kinds of tasks in the job's request, then of nodes by number. The
    ranks of an exclusive job share its nodes equally.

    Args:
        sim: The engine's state.
        row: Row of the job.
        whole: Cores and GPUs of all nodes.
    """
    if not len(sim["share"]):
        return np.array(nodes_of_job(sim, row), np.int64), None
    parts, needs = sim["part"], sim["needs"]
    rows, part = [], int(sim["state"]["first_node"][row])
    while part >= 0:
        if needs[parts["kind"][part], ALONE] > 0:  # otherwise the part belongs to a GPU
            rows.append(part)
        part = int(parts["next"][part])
    own = parts[rows]
    own = np.repeat(own, own["tasks"])
    own = own[np.lexsort((own["node"], own["kind"]))]
    nodes = own["node"].astype(np.int64)
    exclusive = sim["shape"]["exclusive"][own["kind"]] != 0
    parts_of_node = np.bincount(nodes)[nodes]
    return nodes, Held(
        *(
            np.where(exclusive, all_of[nodes] / parts_of_node, needs[own["kind"], column] / _UNITS)
            for all_of, column in zip(whole, (CORES, GPUS), strict=True)
        )
    )
