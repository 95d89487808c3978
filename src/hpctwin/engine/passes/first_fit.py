"""First fit: each job that fits starts, in order; no job is protected."""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.passes import Pass, capacity
from hpctwin.engine.state.layout import ANYONE_PASSES, ZERO, Arrays

__all__ = ["PASS", "pass_first_fit"]


@jit
def pass_first_fit(sim: Arrays) -> None:
    """Start jobs that fit, in order.

    Nodes are reserved for a job that waits for jobs it preempted.
    """
    capacity.begin_pass(sim)
    if not capacity.any_may_start(sim):
        return
    for i in range(capacity.list_startable(sim)):
        j = sim.later[i]
        if not (capacity.may_fit(j, sim) or capacity.may_preempt(j, sim)):
            continue
        if capacity.is_skipped(j, sim):
            continue
        if capacity.start_or_preempt(j, sim):
            if not capacity.any_may_start(sim):
                return
        elif capacity.awaits_nodes(j, sim):
            capacity.reserve(j, ZERO, sim)


PASS = Pass(
    pass_first_fit,
    others=ANYONE_PASSES,
    keeps="its user may run no more, or too few nodes that suit it are free",
    reservations=lambda numbers, partitions: 0,
)
