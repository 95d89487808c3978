"""A simulation that somebody else's scheduler drives: event by event, or in steps of time."""

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
"""From the first to before the second, a job has come to its end."""


@dataclass(frozen=True)
class Happened:
    """What happened since the scheduler was asked last.

    Args:
        now_s: the time, seconds.
        submitted: jobs that wait since: ``job_id``, ``submit_s``, ``nodes``, ``walltime_s``, and where known
            ``user``, ``account``, ``partition``, ``qos``, ``priority`` and ``resources``. A job whose node
            failed is there again.
        ended: jobs that have ended, and how: ``completed``, ``walltime``, ``failed``, ``cancelled``,
            ``node_failure``.
        refused: jobs that were to start when it was asked last, and did not fit.
        free_nodes: nodes that are idle and up.
        last: whether nobody is submitted any more.
    """

    now_s: float
    submitted: tuple[Mapping[str, Any], ...] = ()
    ended: tuple[tuple[Any, str], ...] = ()
    refused: tuple[Any, ...] = ()
    free_nodes: int = 0
    last: bool = False


@dataclass(frozen=True)
class Orders:
    """What a scheduler wants.

    Args:
        start: jobs to start now, in this order.
        call_at_s: a time at which it is to be asked in any case.
        never: jobs that it will not start.
    """

    start: Collection[Any] = ()
    call_at_s: float | None = None
    never: Collection[Any] = ()


OutsideScheduler = Callable[[Happened], Orders]
"""Somebody else's scheduler: it is told what happened, and gives orders."""


def drive(
    simulation: Simulation,
    scheduler: OutsideScheduler,
    *,
    every_s: float | None = None,
    strict: bool = True,
) -> Result:
    """Run a simulation to its end under a scheduler from outside.

    Args:
        simulation: a new one, with backfill ``outside``.
        scheduler: asked after each instant at which jobs were submitted or ended, or as it wished.
        every_s: it is asked at multiples of this time only, where something happened since; seconds.
        strict: whether it is an error to start a job that does not fit; else the scheduler is told.

    Raises:
        SimulationError: the scheduler failed, ordered what cannot be, or left jobs waiting for ever; or
            ``every_s`` is not above 0.
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
            # Nothing is left to happen by itself, but the scheduler may still start somebody then.
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
    """What changes from one look at the jobs to the next.

    Args:
        simulation: whose jobs they are.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.size = len(simulation.workload)
        self.arrived = 0
        # Of the jobs that have been submitted and are not over: row, and what was seen of each.
        self.open = self.phase = self.requeues = np.zeros(0, np.int64)

    def look(self, refused: list[Any]) -> Happened:
        """What happened since the last look."""
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
                # A job that can never run is over without having been seen.
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
        """Jobs that wait."""
        rows = np.flatnonzero(self.simulation.column("phase")[: self.size] == layout.WAITING)
        return [_plain(job) for job in self.simulation.workload.job_id[rows]]


def _told(simulation: Simulation, row: int) -> dict[str, Any]:
    """What a scheduler may know of a job."""
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
