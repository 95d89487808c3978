"""No backfilling: jobs start in order."""

from __future__ import annotations

from hpctwin.engine.capacity.blocked_pools import is_blocked
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.passes import Pass, capacity
from hpctwin.engine.state.layout import NOBODY_PASSES, Arrays

__all__ = ["PASS", "pass_none"]


@jit
def pass_none(sim: Arrays) -> None:
    """Start jobs in order; one that does not fit blocks its pools and resources."""
    capacity.begin_pass(sim)
    # If the queue is sorted, trying its first jobs costs less than this check.
    if not (capacity.is_sorted(sim) or capacity.any_may_start(sim)):
        return
    size = capacity.order_jobs(sim)
    for i in range(size):
        j = capacity.job_at(i, size, sim)
        if capacity.is_skipped(j, sim):
            continue
        tries = not is_blocked(j, sim) and (
            capacity.may_fit(j, sim) or capacity.may_preempt(j, sim)
        )
        if not (tries and capacity.start_or_preempt(j, sim)) and not capacity.block(j, sim):
            return


PASS = Pass(
    pass_none,
    in_order=True,
    others=NOBODY_PASSES,
    keeps="a job before it does not fit, and nobody passes",
    reservations=lambda numbers, partitions: 0,
)
