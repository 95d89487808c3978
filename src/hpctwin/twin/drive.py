"""A twin and an emulated cluster in one process, in virtual time: for experiments and tests."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from hpctwin.errors import HpctwinError
from hpctwin.rms.emulated import EmulatedCluster
from hpctwin.twin.choice import Decision
from hpctwin.twin.core import Core

__all__ = ["Driven", "drive"]


@dataclass
class Driven:
    """What a driven run was.

    Args:
        started_by: jobs started by policy.
        cycles: how often the twin decided.
        cycle_s: seconds spent in deciding, all in all.
    """

    started_by: Counter[str] = field(default_factory=Counter)
    cycles: int = 0
    cycle_s: float = 0.0

    @property
    def cycle_ms_mean(self) -> float:
        """Milliseconds a decision took in the mean."""
        return 1e3 * self.cycle_s / max(1, self.cycles)


def drive(
    cluster: EmulatedCluster, core: Core, *, watch: Callable[[Decision], None] | None = None
) -> Driven:
    """Run an emulated cluster to its end, its jobs started by a twin.

    The cluster must publish its events to ``core.take_event``.

    Args:
        cluster: with its workload, before its first event.
        core: the twin's core.
        watch: called with each decision.

    Raises:
        HpctwinError: the cluster refused a start, or the mirror lost track: neither can be.
    """
    driven = Driven()
    core.take_snapshot(cluster.snapshot())
    cluster.take_scheduling()
    while (due_s := cluster.next_time()) is not None:
        cluster.advance(due_s)
        cluster.heartbeat(core.mirror.seq or 0)
        if core.mirror.needs_snapshot is not None:
            raise HpctwinError(f"the mirror lost track: {core.mirror.needs_snapshot}")
        if not core.opportunity:
            continue
        begin = time.perf_counter()
        decision = core.decide(cluster.now_s)
        driven.cycle_s += time.perf_counter() - begin
        driven.cycles += decision is not None
        if decision is None:
            continue
        for job_id in decision.starts:
            core.asked_to_start(job_id, cluster.now_s)
            outcome = cluster.start(job_id)
            if outcome.result != "done":
                raise HpctwinError(f"the start of job {job_id} was refused: {outcome.reason}")
        driven.started_by[decision.policy] += len(decision.starts)
        if watch is not None:
            watch(decision)
    return driven
