"""Simulations whose jobs share hosts and links: engine and network advance by turns."""

from __future__ import annotations

from collections.abc import Callable

from hpctwin.model import MS_PER_S, NEVER_MS, to_ms
from hpctwin.simulation.running.advance import Outcome
from hpctwin.simulation.state.base import SimulationBase

__all__ = ["advance_contended"]


def advance_contended(
    simulation: SimulationBase,
    advance: Callable[..., Outcome],
    until_s: float | None = None,
    *,
    instants: int | None = None,
) -> Outcome:
    """Advance one event time after another, with ends of jobs from the network.

    The engine never passes a time at which something happens on the network. There, the network
    advances first, so that all ends of this time are known when the engine applies its events.

    Args:
        simulation: Simulation that is advanced; it has jobs on a network.
        advance: Function that advances the simulation without the network.
        until_s: As for `Simulation.advance`.
        instants: As for `Simulation.advance`.
    """
    sim, jobs = simulation.state, simulation.network
    assert jobs is not None
    until_ms = NEVER_MS if until_s is None else to_ms(until_s)
    left = instants
    if sim.clock.pass_due:
        advance(until_s, instants=0)
    jobs.follow(sim)
    while left is None or left > 0:
        next_ms = jobs.next_ms(sim)
        stop_ms = min(until_ms, next_ms - 1)
        outcome = advance(None if stop_ms >= NEVER_MS else stop_ms / MS_PER_S, instants=1)
        jobs.follow(sim)
        if outcome == "done":
            return "done"
        if outcome == "stepped":
            left = None if left is None else left - 1
        elif stop_ms == until_ms:
            return "reached"
        else:
            jobs.advance(sim, next_ms)
    return "stepped"
