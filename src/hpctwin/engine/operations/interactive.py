"""Simulations that get their jobs one by one, and arrays for their forecasts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from hpctwin.engine.operations.clock import stand_until
from hpctwin.engine.operations.creation import make_parts, new_sim
from hpctwin.engine.operations.warm_start import fill_heap
from hpctwin.engine.passes import Pass
from hpctwin.engine.powers import PowerPass
from hpctwin.engine.state.array_allocation import speed_columns
from hpctwin.engine.state.layout import COMPUTING, DEPTH_STATES, KNOWN, LAYOUT, NEVER
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
_BY_JOB = ("job", "fact", "asks", "claim", *_OF_LIMITS)

IntArray = npt.NDArray[np.int64]


def close_arrivals(sim: Sim) -> None:
    """Stop arrivals and cancellations except on request.

    The simulation then owns the times of both.
    """
    sim.own("job", "by_submit", "by_cancel")
    sim["job"]["cancel"] = NEVER
    sim["clock"]["arrival_end"] = sim["clock"]["alive"] = 0


def know_job(sim: Sim, row: int, job: Mapping[str, float], fact: Mapping[str, float]) -> None:
    """Set the data of a job, in a row that is unused or whose job has ended.

    Args:
        sim: Simulation whose arrivals are closed and that owns ``fact``.
        row: Row of the job.
        job, fact: Values by field of `records.Job` and `records.Fact`.
    """
    for name, fields in (("job", job), ("fact", fact)):
        record = sim[name][row]
        for field, value in fields.items():
            record[field] = value


def end_only_when_told(sim: Sim, now_ms: int, ended: Sequence[int]) -> None:
    """End some running jobs now, and all others later; a pass follows.

    The expected ends of the other jobs do not matter.

    Args:
        sim: Simulation whose arrivals are closed.
        now_ms: Present time, which the simulation has not reached yet.
        ended: Rows of the jobs that end.
    """
    rows, end = sim.running["job"], sim["state"]["end"]
    before = end[rows]
    end[rows] = np.maximum(before, now_ms + 1)
    end[list(ended)] = now_ms
    if (end[rows] != before).any():
        fill_heap(sim["ends"], end[rows], rows)
    sim.clock.timer = now_ms


def hand_over(old: Sim, new: Sim, rows: IntArray) -> None:
    """Copy the data of jobs to other arrays, and close the arrivals of these.

    Args:
        old: Simulation with the data.
        new: Arrays of `transfer.transfer_state` with the same rows; other rows are unused.
        rows: Rows of the jobs.
    """
    close_arrivals(new)
    new.own("fact")
    for name in ("job", "fact"):
        new[name][rows] = old[name][rows]
    new.clock.arrived, new.clock.alive = 0, len(rows)


def stand_by(sim: Sim, until_ms: int, advance: Callable[[], object]) -> None:
    """Continue power states after the last job's end, up to a time.

    Args:
        sim: Simulation whose jobs have ended, or will never end.
        until_ms: The time.
        advance: Function that advances the simulation to it.
    """
    sim.clock.alive += 1  # otherwise nothing would be left to do
    advance()
    sim.clock.alive -= 1
    stand_until(sim, max(int(sim.clock.now), until_ms))


def arrive_at(sim: Sim, row: int, submit_ms: int, cancel_ms: int) -> None:
    """Set the times at which a job is submitted and cancelled.

    Args:
        sim: Simulation whose arrivals are closed.
        row: Row of the job, which must not be among the arrivals yet.
        submit_ms, cancel_ms: The times; ``NEVER`` for none.
    """
    job = sim["job"]
    job["submit"][row] = submit_ms
    if job["cancel"][row] != cancel_ms:
        job["cancel"][row] = cancel_ms
        _sort_cancellations(sim)


def _sort_cancellations(sim: Sim) -> None:
    """Sort the cancellations to come by time."""
    rest = sim["by_cancel"][sim["clock"]["cancels_done"][0] :]
    rest[:] = rest[np.argsort(sim["job"]["cancel"][rest], kind="stable")]


def forecast_arrays(
    sim: Sim, found: Pass, power: PowerPass | None, spare: int, *, one_speed: bool
) -> Sim:
    """Return arrays for forecasts: the jobs of a simulation, and rows for more.

    Args:
        sim: Simulation.
        found: Its scheduling pass.
        power: Its kind of power policy; None if nodes have no power states.
        spare: Number of additional rows.
        one_speed: Whether all nodes get the same speed in it.
    """
    known = {name: sim[name] for name in KNOWN}
    limited = len(known["ceiling"]) > 0
    preempts = len(known["claim"]) > 0
    told = ("job", "fact", "asks", *(_OF_LIMITS if limited else ()))
    told += ("claim",) if preempts else ()
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
        known,
        found,
        power,
        depths=(states - AWAKE_STATES) // DEPTH_STATES if states else 0,
        waits=preempts,
    )
    ahead.own("by_submit", *(told if spare else ("job",)))
    nodes = len(ahead["node"])
    running = ahead.jobs if preempts or len(ahead["share"]) else nodes
    # Jobs that start may be preempted in the same pass.
    lost = 2 * running if preempts else running
    ahead.reshape(
        lost=np.zeros(lost, LAYOUT["lost"][0]),
        segment=np.zeros(2 * nodes, LAYOUT["segment"][0]),
        user_state=sim["user_state"],
    )
    return ahead


def more_ahead(sim: Sim, ahead: Sim, coming: IntArray) -> None:
    """Grow the arrays of a forecast that ran out of rows.

    They then suffice for the present, and are at least twice as large as before.

    Args:
        sim: Simulation.
        ahead: Arrays of `forecast_arrays`.
        coming: Rows of the arriving jobs.
    """
    clock = sim.clock
    waiting = [sim["queue"][: clock.queued], sim["by_submit"][clock.arrived : clock.arrival_end]]
    if len(sim["share"]):
        there = np.concatenate([sim.running["job"], *waiting])
        kind = np.concatenate([sim["job"]["kind"][there], ahead["job"]["kind"][coming]])
        parts = int(sim["shape"]["parts"][kind].sum())
        if len(sim["cut"]):
            parts = 2 * len(kind) * int(sim["sharing"]["widest"][0])
        promises = max(
            int(sim["sharing"]["promises"][0]), min(parts, int(sim["rules"]["promises"][0]))
        )
        make_parts(ahead, parts + len(ahead["part"]), promises)
    rows = 8 * (int(clock.running) + sum(map(len, waiting))) + 256
    ahead.make_room(max(rows, 2 * ahead.plan_rows))


def expect(sim: Sim, rows: IntArray | int | slice, runtime_ms: IntArray | int) -> None:
    """Set the runtime of jobs in forecasts.

    Args:
        sim: Arrays of `forecast_arrays`.
        rows: Rows of the jobs.
        runtime_ms: Runtime of each.
    """
    sim["job"]["runtime"][rows] = runtime_ms


def like(sim: Sim, rows: IntArray, others: IntArray, submit_ms: IntArray) -> None:
    """Copy jobs to rows with other submit times; the copies rank after all other jobs.

    Args:
        sim: Arrays of `forecast_arrays`.
        rows: Rows of the copies.
        others: Rows of the originals.
        submit_ms: Submit times of the copies.
    """
    for name in _BY_JOB:
        if len(sim[name]):
            sim[name][rows] = sim[name][others]
    sim["job"]["submit"][rows] = submit_ms
    sim["job"]["rank"][rows] = rows
