"""Drive a simulation by an external scheduler, per event time or per interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from hpctwin.engine.operations.interactive import stand_by
from hpctwin.engine.state import layout
from hpctwin.errors import SimulationError
from hpctwin.model import MS_PER_S, State, to_ms
from hpctwin.policies.backfills import OUTSIDE
from hpctwin.simulation.result.result import Result
from hpctwin.simulation.running.simulation import Simulation

__all__ = ["Happened", "Orders", "OutsideScheduler", "drive"]

_OVER = (layout.COMPLETED, layout.UNSUBMITTED)
"""Phases from the first up to, but without, the second are those of ended jobs."""


@dataclass(frozen=True)
class Happened:
    """Events since the scheduler was last called.

    Args:
        now_s: Present time, in seconds.
        submitted: Newly pending jobs: ``job_id``, ``submit_s``, ``nodes``, ``walltime_s``, and
            where known ``user``, ``account``, ``partition``, ``qos``, ``priority`` and
            ``resources``. A job whose node failed is listed again.
        ended: Ended jobs and how they ended: ``completed``, ``walltime``, ``failed``,
            ``cancelled``, ``node_failure``.
        refused: Jobs that the last orders started, but that did not fit.
        free_nodes: Number of nodes that are idle and up.
        last: Whether all jobs have been submitted.
    """

    now_s: float
    submitted: tuple[Mapping[str, Any], ...] = ()
    ended: tuple[tuple[Any, str], ...] = ()
    refused: tuple[Any, ...] = ()
    free_nodes: int = 0
    last: bool = False


@dataclass(frozen=True)
class Orders:
    """Orders of a scheduler.

    Args:
        start: Jobs to start now, in this order.
        call_at_s: Time at which the scheduler must be called even without events, in seconds.
        never: Jobs that the scheduler will not start.
    """

    start: Collection[Any] = ()
    call_at_s: float | None = None
    never: Collection[Any] = ()


OutsideScheduler = Callable[[Happened], Orders]
"""External scheduler: it receives events and returns orders."""


def drive(
    simulation: Simulation,
    scheduler: OutsideScheduler,
    *,
    every_s: float | None = None,
    strict: bool = True,
) -> Result:
    """Run a simulation to its end under an external scheduler.

    Args:
        simulation: New simulation with backfill ``outside``.
        scheduler: Function called after each event time with submitted or ended jobs, and when it
            asked to be called.
        every_s: Interval of calls, in seconds. The scheduler is called only at its multiples, if
            something happened since.
        strict: Whether starting a job that does not fit is an error; otherwise the scheduler is
            informed.

    Raises:
        SimulationError: The scheduler failed, gave impossible orders, or left jobs waiting forever;
            or ``every_s`` is not above 0.
    """
    if simulation.policy.backfill != OUTSIDE:
        raise SimulationError(
            f"policy {simulation.policy.name!r} decides itself who starts; take backfill {OUTSIDE!r}"
        )
    if every_s is not None and not every_s > 0:
        raise SimulationError(f"a scheduler is asked every {every_s:g} s; it must be above 0")
    watch = _Watch(simulation)
    call_at_s: float | None = None
    refused: list[Any] = []
    never: set[Any] = set()
    while True:
        if every_s is None:
            until_s, instants = call_at_s, 1
        else:
            until_s, instants = (simulation.now_s // every_s + 1) * every_s, None
        outcome = simulation.advance(until_s, instants=instants)
        if outcome == "done" and until_s is not None and not simulation.done:
            # No event is left, but the scheduler may still start a job at that time.
            stand_by(simulation.state, to_ms(until_s), partial(simulation.advance, until_s))
        happened = watch.look(refused)
        if every_s is not None and until_s is not None:
            happened = replace(happened, now_s=until_s)
        called = call_at_s is not None and simulation.now_s >= call_at_s
        if not (happened.submitted or happened.ended or called):
            if outcome == "done":
                break
            continue
        call_at_s = None if called else call_at_s
        orders = scheduler(happened)
        never.update(orders.never)
        refused = simulation.begin(orders.start)
        if refused and strict:
            raise SimulationError(_does_not_fit(simulation, refused[0]))
        if orders.call_at_s is not None:
            if not orders.call_at_s > simulation.now_s:
                raise SimulationError(
                    f"at {simulation.now_s:g} s the scheduler wants to be asked at {orders.call_at_s:g} s; "
                    "it must be later"
                )
            call_at_s = min(orders.call_at_s, math.inf if call_at_s is None else call_at_s)
    left = [job for job in watch.waiting() if job not in never]
    if left:
        raise SimulationError(
            f"at {simulation.now_s:g} s nothing is left to happen, and the scheduler has left "
            f"{len(left)} jobs waiting, job {left[0]} first"
        )
    return simulation.result()


def _does_not_fit(simulation: Simulation, job: Any) -> str:
    row = simulation.row_of(job)
    return (
        f"at {simulation.now_s:g} s the scheduler starts job {job}, which does not fit: it asks for "
        f"{simulation.workload.nodes[row]} nodes, {simulation.free_nodes()} are free (partition, limits, "
        "resources and maintenance count too)"
    )


class _Watch:
    """Changes of the jobs from one call to the next.

    Args:
        simulation: Simulation that holds the jobs.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.size = len(simulation.workload)
        self.arrived = 0
        # Submitted jobs that have not ended: their rows, and the phase and requeues last seen.
        self.open = self.phase = self.requeues = np.zeros(0, np.int64)

    def look(self, refused: list[Any]) -> Happened:
        """Return what happened since the last call."""
        simulation, state = self.simulation, self.simulation.state["state"]
        arrived = int(simulation.state.clock.arrived)
        if arrived > self.arrived:  # rows are by submission
            new = np.arange(self.arrived, arrived)
            self.arrived = arrived
            self.open = np.concatenate([self.open, new])
            self.phase = np.concatenate([self.phase, np.full(len(new), layout.UNSUBMITTED)])
            self.requeues = np.concatenate([self.requeues, np.zeros(len(new), np.int64)])
        phase, requeues = state["phase"][self.open], state["requeues"][self.open]
        came, ended = [], []
        over = False
        changed = (phase != self.phase) | (requeues != self.requeues)
        for place in np.flatnonzero(changed).tolist():
            row, now = int(self.open[place]), int(phase[place])
            if now == layout.WAITING:
                came.append(_told(simulation, row))
            elif _OVER[0] <= now < _OVER[1]:
                over = True
                # A job that can never run ends without having been reported.
                if state["start"][row] >= 0 or self.phase[place] == layout.WAITING:
                    job_id = _plain(simulation.workload.job_id[row])
                    ended.append((job_id, State(now).label))
        self.phase, self.requeues = phase, requeues
        if over:
            left = (phase < _OVER[0]) | (phase >= _OVER[1])
            self.open, self.phase, self.requeues = self.open[left], phase[left], requeues[left]
        return Happened(
            simulation.now_s,
            tuple(came),
            tuple(ended),
            tuple(refused),
            simulation.free_nodes(),
            arrived >= self.size,
        )

    def waiting(self) -> list[Any]:
        """Return the pending jobs."""
        rows = np.flatnonzero(self.simulation.column("phase")[: self.size] == layout.WAITING)
        return [_plain(job) for job in self.simulation.workload.job_id[rows]]


def _told(simulation: Simulation, row: int) -> dict[str, Any]:
    """Return what a scheduler may know of a job."""
    workload = simulation.workload
    told: dict[str, Any] = {
        "job_id": _plain(workload.job_id[row]),
        "submit_s": int(simulation.submit_ms[row]) / MS_PER_S,
        "nodes": int(workload.nodes[row]),
        "walltime_s": int(workload.walltime_ms[row]) / MS_PER_S,
    }
    for name in ("user", "account", "partition", "qos"):
        label = getattr(workload, name)
        if label.codes[row] >= 0:
            told[name] = label.labels[label.codes[row]]
    if workload.priority[row]:
        told["priority"] = float(workload.priority[row])
    asked = {
        name: int(amounts[row]) for name, amounts in workload.resources.items() if amounts[row]
    }
    if asked:
        told["resources"] = asked
    return told


def _plain(job_id: Any) -> Any:
    return job_id.item() if isinstance(job_id, np.generic) else job_id
