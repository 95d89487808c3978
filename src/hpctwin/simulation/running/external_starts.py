"""Start jobs on request from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from hpctwin.engine.state import layout
from hpctwin.errors import SimulationError
from hpctwin.policies.backfills import OUTSIDE
from hpctwin.simulation.state.base import SimulationBase

__all__ = ["begin"]


def begin(
    simulation: SimulationBase, job_ids: Iterable[Any], advance: Callable[..., object]
) -> list[Any]:
    """Start pending jobs now; arguments, result and errors as for `Simulation.begin`.

    Args:
        simulation: Simulation that holds the jobs.
        job_ids: Ids of pending jobs.
        advance: Function that advances the simulation.
    """
    from hpctwin.engine.passes.outside import name_jobs

    if simulation.policy.backfill != OUTSIDE:
        raise SimulationError(
            f"policy {simulation.policy.name!r} decides itself who starts; to begin jobs from outside, take "
            f"backfill {OUTSIDE!r}"
        )
    given = list(job_ids)
    rows = np.array([simulation.row_of(one) for one in given], np.int64)
    phases = simulation.column("phase")[rows]
    for one, phase in zip(given, phases.tolist(), strict=True):
        if phase != layout.WAITING:
            raise SimulationError(
                f"job {one} does not wait at {simulation.now_s:g} s: it is {_phase(phase)}"
            )
    if len(set(given)) < len(given):
        twice = next(one for one in given if given.count(one) > 1)
        raise SimulationError(f"job {twice} is named twice")
    if not given:
        return []
    simulation.decided()
    if simulation.tracked:
        # The engine does not check the space for node records before a pass without an event time.
        simulation.make_room()
    name_jobs(simulation.state, rows)
    advance(instants=0)
    started = simulation.column("phase")[rows] != layout.WAITING
    return [one for one, ran in zip(given, started.tolist(), strict=True) if not ran]


def _phase(phase: int) -> str:
    from hpctwin.model import State

    return "not submitted yet" if phase == layout.UNSUBMITTED else State(phase).label
