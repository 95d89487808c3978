"""Simulations that jobs are given to one by one, and the arrays that forecasts for them run in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from hpctwin.engine.operations.clock import stand_until
from hpctwin.engine.operations.creation import make_parts, new_sim
from hpctwin.engine.operations.warm_start import fill_heap
from hpctwin.engine.passes import Pass
from hpctwin.engine.powers import PowerPass
from hpctwin.engine.state.layout import COMPUTING, DEPTH_STATES, KNOWN, LAYOUT, NEVER
from hpctwin.engine.state.node_speeds import speed_columns
from hpctwin.engine.state.sim import Sim

__all__ = [
    "arrive_at",
    "close_arrivals",
    "end_only_when_told",
    "expect",
    "forecast_arrays",
    "hand_over",
    "know_job",
    "like",
    "more_ahead",
    "stand_by",
]

AWAKE_STATES = COMPUTING + 1
_OF_LIMITS = ("bounds", "charge")
_BY_JOB = ("job", "fact", "asks", *_OF_LIMITS)

IntArray = npt.NDArray[np.int64]


def close_arrivals(sim: Sim) -> None:
    """Nobody arrives, or is cancelled, unless told to; when is the simulation's own from now on."""
    sim.own("job", "by_submit", "by_cancel")
    sim["job"]["cancel"] = NEVER
    sim["clock"]["arrival_end"] = sim["clock"]["alive"] = 0


def know_job(sim: Sim, row: int, job: Mapping[str, float], fact: Mapping[str, float]) -> None:
    """Say what is known of a job, in a row in which there is none, or one that has ended.

    Args:
        sim: arrays of a simulation whose arrivals are closed, and whose ``fact`` is its own.
        row: of the job.
        job, fact: by field of `records.Job` and `records.Fact`.
    """
    for name, fields in (("job", job), ("fact", fact)):
        record = sim[name][row]
        for field, value in fields.items():
            record[field] = value


def end_only_when_told(sim: Sim, now_ms: int, ended: Sequence[int]) -> None:
    """Let some running jobs end now, and all others later, whatever was expected; a pass follows.

    Args:
        sim: arrays of a simulation whose arrivals are closed.
        now_ms: the present, which the simulation has still to reach.
        ended: rows of those that end.
    """
    rows, end = sim.running["job"], sim["state"]["end"]
    before = end[rows]
    end[rows] = np.maximum(before, now_ms + 1)
    end[list(ended)] = now_ms
    if (end[rows] != before).any():
        fill_heap(sim["ends"], end[rows], rows)
    sim.clock.timer = now_ms


def hand_over(old: Sim, new: Sim, rows: IntArray) -> None:
    """Let jobs keep what is known of them in other arrays, whose arrivals are closed.

    Args:
        old: where it is known.
        new: arrays of `transfer.transfer_state` with the same rows; the others are of nobody.
        rows: of the jobs.
    """
    close_arrivals(new)
    new.own("fact")
    for name in ("job", "fact"):
        new[name][rows] = old[name][rows]
    new.clock.arrived, new.clock.alive = 0, len(rows)


def stand_by(sim: Sim, until_ms: int, advance: Callable[[], object]) -> None:
    """Let nodes be switched, and draw what they draw, after the last job has ended, to a time.

    Args:
        sim: arrays of a simulation whose jobs have come to their ends, or never will.
        until_ms: the time.
        advance: goes on to it.
    """
    sim.clock.alive += 1  # else nothing would be left to do
    advance()
    sim.clock.alive -= 1
    stand_until(sim, max(int(sim.clock.now), until_ms))


def arrive_at(sim: Sim, row: int, submit_ms: int, cancel_ms: int) -> None:
    """Say when a job is submitted, and cancelled.

    Args:
        sim: arrays of a simulation whose arrivals are closed.
        row: of the job, which is not on its way.
        submit_ms, cancel_ms: when; ``NEVER`` for not at all.
    """
    job = sim["job"]
    job["submit"][row] = submit_ms
    if job["cancel"][row] != cancel_ms:
        job["cancel"][row] = cancel_ms
        _sort_cancellations(sim)


def _sort_cancellations(sim: Sim) -> None:
    """Put those to come in order of time again."""
    rest = sim["by_cancel"][sim["clock"]["cancels_done"][0] :]
    rest[:] = rest[np.argsort(sim["job"]["cancel"][rest], kind="stable")]


def forecast_arrays(
    sim: Sim, found: Pass, power: PowerPass | None, spare: int, *, one_speed: bool
) -> Sim:
    """The arrays that forecasts run in: the jobs of a simulation, and room for some more.

    Args:
        sim: the simulation.
        found: its pass.
        power: its kind of power policy; None where nodes have no power states.
        spare: so many more jobs.
        one_speed: whether all nodes are equally fast in it.
    """
    known = {name: sim[name] for name in KNOWN}
    limited = len(known["ceiling"]) > 0
    told = ("job", "fact", "asks", *(_OF_LIMITS if limited else ()))
    if spare:
        for name in told:
            more = np.zeros((spare, *known[name].shape[1:]), LAYOUT[name][0])
            known[name] = np.concatenate([known[name], more])
    known["by_submit"] = np.zeros(len(known["job"]), np.int64)
    known["by_cancel"] = np.zeros(0, np.int64)
    if one_speed:
        known["pool"] = known["pool"].copy()
        for name, column in speed_columns([1.0]).items():
            known["pool"][name] = column
    states = sim["spent"].shape[1]
    ahead = new_sim(
        known, found, power, depths=(states - AWAKE_STATES) // DEPTH_STATES if states else 0
    )
    ahead.own("by_submit", *(told if spare else ("job",)))
    nodes = len(ahead["node"])
    running = ahead.jobs if len(ahead["share"]) else nodes
    ahead.reshape(
        lost=np.zeros(running, LAYOUT["lost"][0]), segment=np.zeros(2 * nodes, LAYOUT["segment"][0])
    )
    return ahead


def more_ahead(sim: Sim, ahead: Sim, coming: IntArray) -> None:
    """Room for a forecast that found too little: for the present, and at least twice as much as before.

    Args:
        sim: the simulation.
        ahead: arrays of `forecast_arrays`.
        coming: rows of the jobs that come.
    """
    clock = sim.clock
    waiting = [sim["queue"][: clock.queued], sim["by_submit"][clock.arrived : clock.arrival_end]]
    if len(sim["share"]):
        there = np.concatenate([sim.running["job"], *waiting])
        kind = np.concatenate([sim["job"]["kind"][there], ahead["job"]["kind"][coming]])
        parts = int(sim["shape"]["parts"][kind].sum())
        promises = max(
            int(sim["sharing"]["promises"][0]), min(parts, int(sim["rules"]["promises"][0]))
        )
        make_parts(ahead, parts + len(ahead["part"]), promises)
    rows = 8 * (int(clock.running) + sum(map(len, waiting))) + 256
    ahead.make_room(max(rows, 2 * ahead.plan_rows))


def expect(sim: Sim, rows: IntArray | int | slice, runtime_ms: IntArray | int) -> None:
    """Say how long jobs run in forecasts.

    Args:
        sim: arrays of `forecast_arrays`.
        rows: of the jobs.
        runtime_ms: of each.
    """
    sim["job"]["runtime"][rows] = runtime_ms


def like(sim: Sim, rows: IntArray, others: IntArray, submit_ms: IntArray) -> None:
    """Make jobs that are like others but are submitted at another time, and come after all others.

    Args:
        sim: arrays of `forecast_arrays`.
        rows: of the jobs.
        others: rows of those they are like.
        submit_ms: when they are submitted.
    """
    for name in _BY_JOB:
        if len(sim[name]):
            sim[name][rows] = sim[name][others]
    sim["job"]["submit"][rows] = submit_ms
    sim["job"]["rank"][rows] = rows
