"""On which nodes the jobs are to lie that a decision starts."""

from __future__ import annotations

from collections.abc import Collection

from hpctwin.rms.manager import Where
from hpctwin.simulation.lowering.shared_nodes import taken_by
from hpctwin.twin.core.core import Core

__all__ = ["places"]


def places(core: Core, starts: Collection[str], now_s: float, policy: str) -> dict[str, Where]:
    """Where a policy puts those that it starts now, of the jobs that have parts of nodes.

    Args:
        core: as it was when it decided.
        starts: ids of the jobs that it starts.
        now_s: when it decided.
        policy: which it chose.
    """
    shared = {i for i in starts if core.mirror.jobs[i].spec.tasks}
    if not shared:
        return {}
    now = core.present(now_s, policy)
    run = now.fork()
    names = list(core.mirror.nodes)
    return {
        now.ids[row]: [(names[node], tasks) for node, tasks in sorted(taken_by(run.state, row))]
        for row in now.given_nodes(run).tolist()
        if now.ids[row] in shared
    }
