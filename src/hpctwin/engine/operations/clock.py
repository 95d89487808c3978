"""What is asked from outside of a simulation's clock."""

from __future__ import annotations

from hpctwin.engine.state.layout import NEVER
from hpctwin.engine.state.sim import Sim

__all__ = [
    "begins", "come_back_at", "draw_anew", "end_arrivals", "go_to", "schedule_anew", "schedule_later",
    "stand_until", "stop_at_start_of",
]  # fmt: skip


def begins(sim: Sim) -> bool:
    """Whether a simulation stands where it was made: nothing has happened, and all jobs are to come."""
    clock = sim["clock"][0]  # read as it lies, in half the time of `Sim.clock`
    past = clock["now"] or clock["instants"] or clock["arrived"] or clock["pass_due"]
    return bool(not past and clock["arrival_end"] == clock["alive"] == sim.jobs)


def draw_anew(sim: Sim, seed: int) -> None:
    """Have random placements drawn by another seed."""
    sim.clock.random = seed


def come_back_at(sim: Sim, time: int) -> None:
    """Make a time an instant, ms, in place of the one that was asked for before."""
    sim.clock.timer = time


def end_arrivals(sim: Sim) -> None:
    """Nobody is submitted any more who was not yet."""
    sim.clock.arrival_end = sim.clock.arrived


def go_to(sim: Sim, time: int) -> None:
    """Put the clock to a time, ms, before which nothing happens."""
    sim.clock.now = time


def stand_until(sim: Sim, time: int) -> None:
    """Put the clock to a time, ms, after the last job; power states count up to it."""
    sim.clock.now = sim.clock.ended = time


def schedule_anew(sim: Sim) -> None:
    """Have a scheduling pass at the present time, whatever the last one asked for."""
    clock = sim["clock"]
    clock["pass_due"], clock["timer"] = 1, NEVER


def schedule_later(sim: Sim, time: int) -> None:
    """Have no pass at the present time, but make a later one an instant, ms."""
    sim.clock.pass_due = 0
    sim.clock.timer = time


def stop_at_start_of(sim: Sim, row: int) -> None:
    """Have the engine stop when a job has started; -1 for none."""
    sim.clock.stop_job = row
