"""Decisions from outside: a function that switches nodes after each instant, and jobs to start now."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from hpctwin.energy.power.control import Control, Orders, PowerView
from hpctwin.engine.operations.clock import go_to
from hpctwin.engine.state import layout
from hpctwin.errors import PolicyError, SimulationError
from hpctwin.model import State, to_ms
from hpctwin.policies.backfills import OUTSIDE
from hpctwin.simulation.running.advance import Outcome, asked_again_s
from hpctwin.simulation.state.base import SimulationBase
from hpctwin.simulation.state.node_control import switch

__all__ = ["advance_controlled", "begin"]

QUIET_S = 10 * 86_400.0
"""Longest wait of jobs for a control function to switch nodes, in seconds."""


def advance_controlled(
    simulation: SimulationBase,
    control: Control,
    advance: Callable[..., Outcome],
    *,
    until_s: float | None,
    instants: int | None,
) -> Outcome:
    """Advance one event time after another, and call the control function after each.

    Args:
        simulation: Simulation that is advanced.
        control: The control function.
        advance: Function that advances the simulation without calling the control function.
        until_s: As for `Simulation.advance`.
        instants: As for `Simulation.advance`.

    Raises:
        PolicyError: The function failed, or gave impossible orders.
        SimulationError: Jobs wait, and the function keeps the nodes they need switched off.
    """
    left = instants
    if not simulation.outside.asked:
        _note(simulation, asked=True)
        _note(simulation, again_s=_ask(simulation, control))
    while left is None or left > 0:
        again_s = simulation.outside.again_s
        times = [time for time in (until_s, again_s) if time is not None]
        outcome = advance(min(times, default=None), instants=1)
        if simulation.done:
            return "done"
        if outcome == "stepped" and not _only_timers_left(simulation):
            _note(simulation, last_s=simulation.now_s)
        asks = again_s is not None and simulation.now_s >= again_s
        if outcome == "reached" and not asks:
            return "reached"
        if outcome == "done" and not _goes_on_to_ask(simulation, until_s):
            return "done"
        if simulation.now_s - simulation.outside.last_s > QUIET_S:
            _give_up(simulation)
        _note(simulation, again_s=_ask(simulation, control))
        if left is not None:
            left -= 1
    return "stepped"


def _note(simulation: SimulationBase, **what: Any) -> None:
    simulation.outside = dataclasses.replace(simulation.outside, **what)


def _only_timers_left(simulation: SimulationBase) -> bool:
    """Return whether no job runs or arrives any more, and no node is being switched."""
    clock = simulation.state.clock
    return bool(clock.only_outages_since >= 0 and clock.running == 0 and clock.switching == 0)


def _goes_on_to_ask(simulation: SimulationBase, until_s: float | None) -> bool:
    """Set the clock to the next call if no event is left; return whether it was set."""
    waiting = bool(simulation.snapshot()["waiting"])
    again_s = simulation.outside.again_s
    if waiting and again_s is None:
        _give_up(simulation)
    if not waiting or again_s is None or (until_s is not None and again_s > until_s):
        return False
    go_to(simulation.state, to_ms(again_s))
    return True


def _give_up(simulation: SimulationBase) -> None:
    """Raise an error if jobs wait; without jobs, nodes may be switched forever."""
    waiting = len(simulation.snapshot()["waiting"])
    if waiting:
        raise SimulationError(
            f"{waiting} jobs wait at {simulation.now_s:g} s, nothing is left to happen, and the "
            "control function switches no node on"
        )


def _ask(simulation: SimulationBase, control: Control) -> float | None:
    """Call the function once; return the latest time of the next call, in seconds."""
    name = getattr(control, "__name__", repr(control))
    try:
        orders = control(PowerView(simulation))
    except (Exception, SystemExit) as error:
        raise PolicyError(
            f"control function {name!r} failed at {simulation.now_s:g} s: {error!r}"
        ) from error
    if orders is None:
        return None
    if inspect.iscoroutine(orders):
        orders.close()  # otherwise Python later warns that it was never awaited
    if not isinstance(orders, Orders):
        raise PolicyError(
            f"control function {name!r} gave {orders!r} at {simulation.now_s:g} s, it must give Orders "
            "or None"
        )
    where = f"control function {name!r} at {simulation.now_s:g} s"
    on, off = (
        _nodes(nodes, f"{where}: {what}")
        for what, nodes in (("on", orders.on), ("off", orders.off))
    )
    try:
        switch(simulation, on=on, off=off)
    except SimulationError as error:
        raise PolicyError(f"{where}: {error}") from error
    return asked_again_s(simulation, orders.again_s, where)


def _nodes(nodes: Any, what: str) -> list[int]:
    """Return the node numbers that a control function gave.

    Raises:
        PolicyError: The function gave something else.
    """
    if isinstance(nodes, Iterable) and not isinstance(nodes, (str, bytes)):
        found = list(nodes)
        if all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in found):
            return [int(n) for n in found]
    raise PolicyError(f"{what} is {nodes!r}, it must be numbers of nodes")


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
    return "not submitted yet" if phase == layout.UNSUBMITTED else State(phase).label
