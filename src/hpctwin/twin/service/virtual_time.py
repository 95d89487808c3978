"""A twin and an emulated cluster in virtual time, in one process.

Experiments and tests use it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from hpctwin.errors import HpctwinError
from hpctwin.rms.emulated import EmulatedCluster
from hpctwin.twin.core.core import Core
from hpctwin.twin.core.decision import Decision, choose, judge, tie_order
from hpctwin.twin.what_if.run import Past, look_ahead

__all__ = ["Driven", "drive", "drive_each"]


@dataclass
class Driven:
    """Statistics of a run in virtual time.

    Args:
        started_by: Number of started jobs by policy.
        cycles: Number of decisions.
        cycle_s: Total time until policies were chosen, in seconds.
        forecast_s: Total time of the forecasts that followed, in seconds.
    """

    started_by: Counter[str] = field(default_factory=Counter)
    cycles: int = 0
    cycle_s: float = 0.0
    forecast_s: float = 0.0

    @property
    def cycle_ms_mean(self) -> float:
        """Mean time until a policy is chosen, in milliseconds."""
        return 1e3 * self.cycle_s / max(1, self.cycles)

    @property
    def forecast_ms_mean(self) -> float:
        """Mean time of the forecasts that follow, in milliseconds."""
        return 1e3 * self.forecast_s / max(1, self.cycles)


def _note_time(times: list[float]) -> None:
    times.append(time.perf_counter())


def drive(
    cluster: EmulatedCluster, core: Core, *, watch: Callable[[Decision], None] | None = None
) -> Driven:
    """Run an emulated cluster to its end while a twin starts its jobs.

    The cluster must publish its events to ``core.take_event``.

    Args:
        cluster: The cluster with its workload, before its first event.
        core: The core of the twin.
        watch: Function called with each decision.

    Raises:
        HpctwinError: The cluster refused a start, or the mirror missed events. Both are bugs.
    """
    driven = Driven()
    core.take_snapshot(cluster.snapshot())
    cluster.take_scheduling()
    while (due_s := cluster.next_time()) is not None:
        _go_on(cluster, core, due_s)
        kept = True
        while core.opportunity and kept:
            times = [time.perf_counter()]
            decision = core.decide(cluster.now_s, chosen_now=partial(_note_time, times))
            if decision is None:
                break
            begin, chosen = times
            driven.cycles += 1
            driven.cycle_s += chosen - begin
            driven.forecast_s += time.perf_counter() - chosen
            told = _start(cluster, core, decision.starts)
            kept = 0 < told < len(decision.starts)
            driven.started_by[decision.policy] += told
            if watch is not None:
                watch(decision)
    return driven


def drive_each(
    cluster: EmulatedCluster,
    core: Core,
    every_s: float,
    *,
    watch: Callable[[float, str], None] | None = None,
) -> Driven:
    """Run a cluster as `drive` does, but choose the policy at regular times only.

    The times are the multiples of ``every_s``. Until the first of them, the first policy of the
    pool is in force; a chosen policy is in force until the next of them. At each of these times:

    1. Events of that time are processed, and jobs start, under the policy in force.
    2. The policy of the best what-if is chosen, even if no pending job fits.
    3. If the policy has changed, the new one starts jobs at once.

    These are the times and rules of `hpctwin.learn.PolicySelection`.

    Args:
        cluster: The cluster with its workload, before its first event.
        core: The core of the twin.
        every_s: Time between two choices, in seconds.
        watch: Function called after each choice with its time in seconds and the chosen policy.

    Raises:
        HpctwinError: See `drive`.
    """
    driven = Driven()
    core.take_snapshot(cluster.snapshot())
    cluster.take_scheduling()
    ties = tie_order(core.settings.objective.tie_break, core.pool)
    force, number = core.pool[0], 1
    while (next_s := cluster.next_time()) is not None:
        choice_s = number * every_s
        _go_on(cluster, core, min(next_s, choice_s))
        begin = time.perf_counter()
        starts: Sequence[str] = ()
        if core.opportunity:
            core.opportunity = False
            starts = core.present(cluster.now_s, force).starts()
        driven.cycle_s += time.perf_counter() - begin
        driven.started_by[force.name] += _start(cluster, core, starts)
        if next_s < choice_s:
            continue
        number += 1
        begin = time.perf_counter()
        now = core.present(cluster.now_s, force)
        if not len(now.waiting):
            continue
        answers = look_ahead(now, core.pool, past=Past.none())
        candidates = judge(core.objective, [policy.name for policy in core.pool], [answers])
        chosen, _ = choose(
            candidates,
            current=force.name,
            hysteresis=core.settings.objective.hysteresis,
            ties=ties,
            free=True,
        )
        driven.cycle_s += time.perf_counter() - begin
        driven.cycles += 1
        if watch is not None:
            watch(choice_s, core.pool[chosen].name)
        if core.pool[chosen] is force:
            continue
        force = core.pool[chosen]
        driven.started_by[force.name] += _start(cluster, core, candidates[chosen].starts)
    return driven


def _go_on(cluster: EmulatedCluster, core: Core, until_s: float) -> None:
    """Advance the cluster to a time, and check that the mirror missed no event."""
    cluster.advance(until_s)
    cluster.heartbeat(core.mirror.seq or 0)
    if core.mirror.needs_snapshot is not None:
        raise HpctwinError(f"the mirror lost synchronization: {core.mirror.needs_snapshot}")


def _start(cluster: EmulatedCluster, core: Core, job_ids: Sequence[str]) -> int:
    """Start the jobs that fit wherever the cluster places the others; return how many."""
    told = core.actions(cluster.now_s, job_ids).starts
    for job_id in told:
        core.asked_to_start(job_id, cluster.now_s)
        outcome = cluster.start(job_id)
        if outcome.result != "done":
            raise HpctwinError(f"start of job {job_id} was rejected: {outcome.reason}")
    # If some starts had to wait for the placement of others, decide again: it is known by now.
    core.opportunity |= len(told) < len(job_ids)
    return len(told)
