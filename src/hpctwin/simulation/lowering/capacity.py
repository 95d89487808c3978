"""What the engine knows under a capacity model: whole nodes or shared nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpctwin.model import Cluster, Workload
from hpctwin.model.demand import with_tasks
from hpctwin.simulation.lowering import workload as whole_nodes

if TYPE_CHECKING:
    from hpctwin.network.profiles import Profile

__all__ = ["facts_of", "known_of"]


def known_of(
    workload: Workload,
    cluster: Cluster,
    *,
    expected_ms: npt.NDArray[np.int64] | None = None,
    tracked: bool = False,
    shares: bool = False,
    single_gpus: bool | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Return what is known of jobs and cluster, in the engine's form; see `workload.lower`.

    Args:
        workload: the jobs.
        cluster: the cluster.
        expected_ms: what the scheduler expects jobs to run [jobs]; the walltimes by default.
        tracked: whether nodes have identity; shared nodes always do.
        shares: whether nodes are shared; they always are if any job asks for tasks.
        single_gpus: whether GPUs are counted one by one; by default if any job asks for a part of one.
    """
    shares = shares or workload.shares_nodes
    known = whole_nodes.lower(workload, cluster, expected_ms=expected_ms, tracked=tracked or shares)
    if not shares:
        return known
    from hpctwin.simulation.lowering.shared_nodes import shared_known

    return shared_known(known, with_tasks(workload), cluster, single=single_gpus)


def facts_of(
    workload: Workload,
    cluster: Cluster,
    risk: npt.NDArray[np.float64] | None = None,
    profiles: Sequence[Profile | None] = (),
) -> npt.NDArray[Any]:
    """Return what only some orderings ask of jobs; see `workload.facts_of`."""
    facts = whole_nodes.facts_of(workload, cluster, risk, profiles)
    if not workload.shares_nodes:
        return facts
    from hpctwin.simulation.lowering.shared_nodes import shared_facts

    return shared_facts(facts, workload, cluster)
