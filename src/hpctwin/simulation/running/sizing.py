"""Advance under a sizing, called after each event time to set the sizes of jobs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from hpctwin.energy.sizing.sizing import SizedJob, Sizes, SizeView, Sizing
from hpctwin.engine.jobs.resizing import Lengths, put_lengths, stop_jobs
from hpctwin.engine.operations.clock import go_to
from hpctwin.engine.state import layout
from hpctwin.errors import PolicyError, SimulationError
from hpctwin.model import MS_PER_S, to_ms
from hpctwin.model.workload.malleable import LINEAR, Malleable, Speedup, parse_speedup
from hpctwin.simulation.running.advance import Outcome, asked_again_s
from hpctwin.simulation.state.base import SimulationBase

__all__ = ["advance_sized", "lengths_of", "resize", "resume_sized", "sized_as_plain"]

QUIET_S = 366 * 86_400.0
"""Longest wait of jobs for a sizing to start one if nothing else happens, in s."""


@dataclass(frozen=True)
class _Rules:
    """How the size of a job may change.

    Args:
        nodes: Number of nodes the job asks for.
        least, most: Smallest and largest number of nodes the job runs on.
        speedup: Speed as a function of the number of nodes.
        suspendable: Whether the job may be suspended.
        resize_ms: Time without work whenever the job resumes, in ms.
    """

    nodes: int
    least: int
    most: int
    speedup: Speedup
    suspendable: bool
    resize_ms: int

    def rate(self, nodes: int) -> Fraction:
        """Return the speed on a number of nodes, relative to the nodes the job asks for."""
        return self.speedup.at(nodes) / self.speedup.at(self.nodes)


def advance_sized(
    simulation: SimulationBase,
    sizing: Sizing,
    advance: Callable[..., Outcome],
    *,
    until_s: float | None,
    instants: int | None,
) -> Outcome:
    """Advance one event time after another, and call the sizing after each.

    A job that loses a node to a failure becomes pending, with the work it had done before its last
    stretch.

    Args:
        simulation: Simulation that is advanced.
        sizing: The sizing function.
        advance: Function that advances the simulation without calling the sizing.
        until_s: As for `Simulation.advance`.
        instants: As for `Simulation.advance`.

    Raises:
        PolicyError: The function failed, or gave impossible sizes.
        SimulationError: Jobs wait, and the function starts none.
    """
    left = instants
    while left is None or left > 0:
        again_s = simulation.sized.again_s
        times = [time for time in (until_s, again_s) if time is not None]
        told = int(simulation.state.clock.lost)
        outcome = advance(min(times, default=None), instants=1)
        if simulation.done:
            return "done"
        _ask_anew(simulation, told)
        # Failures to come are always events, so they do not count as something that still happens.
        if outcome == "stepped" and int(simulation.state.clock.only_outages_since) < 0:
            _note(simulation, last_s=simulation.now_s)
        due = again_s is not None and simulation.now_s >= again_s
        if outcome == "reached" and not due:
            return "reached"
        if outcome == "done" and not due and not _goes_on_to_ask(simulation, again_s, until_s):
            return "done"
        if simulation.now_s - simulation.sized.last_s > QUIET_S:
            _give_up(simulation)
        _ask(simulation, sizing, advance)
        if left is not None:
            left -= 1
    return "stepped"


def _note(simulation: SimulationBase, **what: Any) -> None:
    simulation.sized = dataclasses.replace(simulation.sized, **what)


def _ask_anew(simulation: SimulationBase, told: int) -> None:
    """Reset jobs that failures requeued since the last call to the nodes they ask for."""
    lost = simulation.state["lost"][told : simulation.state.clock.lost]
    for row in lost["job"].tolist():
        if int(simulation.column("phase")[row]) == layout.WAITING:
            rules = _rules(simulation, row)
            put_lengths(simulation.state, row, _lengths(simulation, row, rules, rules.nodes))


def _goes_on_to_ask(
    simulation: SimulationBase, again_s: float | None, until_s: float | None
) -> bool:
    """Set the clock to the next call if no event is left; return whether it was set."""
    if not int(simulation.state.clock.queued):
        return False
    if again_s is None:
        _give_up(simulation)
    assert again_s is not None
    if until_s is not None and again_s > until_s:
        return False
    go_to(simulation.state, to_ms(again_s))
    return True


def _give_up(simulation: SimulationBase) -> None:
    raise SimulationError(
        f"{int(simulation.state.clock.queued)} jobs wait at {simulation.now_s:g} s, nothing is left to "
        "happen, and the sizing starts none of them"
    )


def _ask(simulation: SimulationBase, sizing: Sizing, advance: Callable[..., Outcome]) -> None:
    """Call the sizing once and apply what it wants."""
    what = f"sizing {getattr(sizing, 'name', None) or getattr(sizing, '__name__', repr(sizing))!r}"
    try:
        wanted = sizing(_view(simulation))
    except (Exception, SystemExit) as error:
        raise PolicyError(f"{what} failed at {simulation.now_s:g} s: {error!r}") from error
    if wanted is None:
        wanted = Sizes()
    where = f"{what} at {simulation.now_s:g} s"
    if not isinstance(wanted, Sizes):
        raise PolicyError(f"{where} gave {wanted!r}, it must give Sizes or None")
    again_s = asked_again_s(simulation, wanted.again_s, where)
    try:
        resize(simulation, wanted.nodes, advance)
    except SimulationError as error:
        raise PolicyError(f"{where}: {error}") from error
    _note(simulation, again_s=again_s)


# --- view for the sizing -----------------------------------------------------------------------


def _view(simulation: SimulationBase) -> SizeView:
    sim, workload = simulation.state, simulation.workload
    rows = np.concatenate([sim["queue"][: sim.clock.queued], sim.running["job"]])
    return SizeView(
        now_s=simulation.now_s,
        nodes=simulation.cluster.node_count - int(sim["stock"]["down"][: sim.pools].sum()),
        free_nodes=simulation.free_nodes(),
        jobs=tuple(_seen(simulation, row, workload.job_id[row]) for row in np.sort(rows).tolist()),
    )


def _seen(simulation: SimulationBase, row: int, job_id: Any) -> SizedJob:
    rules = _rules(simulation, row)
    runs = bool(simulation.column("phase")[row] == layout.RUNNING)
    expected = simulation.sized.expected_ms[row]
    left = expected - _done(simulation, row, rules)
    return SizedJob(
        job_id=job_id.item() if isinstance(job_id, np.generic) else job_id,
        submit_s=int(simulation.submit_ms[row]) / MS_PER_S,
        nodes=rules.nodes,
        min_nodes=rules.least,
        max_nodes=rules.most,
        size=int(simulation.state["job"]["nodes"][row]) if runs else 0,
        left_s=float(left) / MS_PER_S,
        expected_s=int(expected) / MS_PER_S,
        resize_s=rules.resize_ms / MS_PER_S,
        begun=runs or row in simulation.sized.done,
        suspendable=rules.suspendable,
        speedup=rules.speedup,
    )


def _rules(simulation: SimulationBase, row: int) -> _Rules:
    malleable: Malleable | None = simulation.workload.malleable
    nodes = int(simulation.workload.nodes[row])
    if malleable is None:
        return _Rules(nodes, nodes, nodes, parse_speedup(LINEAR), False, 0)
    return _Rules(
        nodes,
        int(malleable.min_nodes[row]),
        int(malleable.max_nodes[row]),
        malleable.speedup_of(row),
        bool(malleable.suspendable[row]),
        int(malleable.resize_ms[row]),
    )


def _done(simulation: SimulationBase, row: int, rules: _Rules) -> Fraction:
    """Return the work a job has done: ms of its runtime on the nodes it asks for."""
    before = simulation.sized.done.get(row)
    done = Fraction(0) if before is None else before
    if int(simulation.column("phase")[row]) != layout.RUNNING:
        return done
    sim = simulation.state
    idle = 0 if before is None else rules.resize_ms
    worked = max(0, int(sim.clock.now) - int(sim["state"]["start"][row]) - idle)
    return done + worked * rules.rate(int(sim["job"]["nodes"][row]))


# --- changes of size ---------------------------------------------------------------------------


def resize(
    simulation: SimulationBase, sizes: Mapping[Any, int], advance: Callable[..., Outcome]
) -> None:
    """Change the sizes of jobs from now on, in this order; 0 suspends a job.

    Jobs that change stop first. Jobs that want nodes then get them, one after the other. A job that
    does not fit waits, or stays suspended.

    Args:
        simulation: Simulation that holds the jobs.
        sizes: Number of nodes by job id.
        advance: Function that advances the simulation.

    Raises:
        SimulationError: A job does not exist, is neither pending nor running, may not have this
            size, or may not be suspended.
    """
    from hpctwin.engine.passes.outside import name_jobs

    sim = simulation.state
    wanted = {simulation.row_of(job_id): size for job_id, size in sizes.items()}
    rules = {row: _rules(simulation, row) for row in wanted}
    has = {row: _size(simulation, row) for row in wanted}
    for row, size in wanted.items():
        _check(simulation, row, size, rules[row], has[row])
    changes = {row: int(size) for row, size in wanted.items() if int(size) != has[row]}
    if not changes:
        return
    simulation.decided()
    # The engine does not check the space for node records before a pass without an event time.
    simulation.make_room()
    stopped = [row for row in changes if has[row]]
    done = dict(simulation.sized.done)
    for row in stopped:
        if int(sim["state"]["start"][row]) < int(sim.clock.now):
            done[row] = _done(simulation, row, rules[row])
    stop_jobs(sim, np.array(stopped, np.int64))
    _note(simulation, done=done)
    for row, size in changes.items():
        put_lengths(sim, row, _lengths(simulation, row, rules[row], size or rules[row].nodes))
    begun = [row for row, size in changes.items() if size]
    if begun:
        name_jobs(sim, np.array(begun, np.int64))
    advance(instants=0)
    waits = np.array(begun, np.int64)[simulation.column("phase")[begun] == layout.WAITING]
    for row in waits.tolist():
        if has[row] and not rules[row].suspendable:
            why = (
                f"job {simulation.workload.job_id[row]} may not be suspended, and {changes[row]} nodes are "
                "not free for it"
            )
            simulation.broken = why
            raise SimulationError(why)
        put_lengths(sim, row, _lengths(simulation, row, rules[row], rules[row].nodes))
    _note(simulation, last_s=simulation.now_s)


def _size(simulation: SimulationBase, row: int) -> int:
    """Return the number of nodes a job has.

    Raises:
        SimulationError: The job is neither pending nor running.
    """
    phase = int(simulation.column("phase")[row])
    if phase == layout.RUNNING:
        return int(simulation.state["job"]["nodes"][row])
    if phase != layout.WAITING:
        raise SimulationError(
            f"job {simulation.workload.job_id[row]} neither waits nor runs, and its size is given"
        )
    return 0


def _check(simulation: SimulationBase, row: int, size: Any, rules: _Rules, has: int) -> None:
    """Check that a job may have a number of nodes.

    Raises:
        SimulationError: It may not.
    """
    name = f"job {simulation.workload.job_id[row]}"
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
        raise SimulationError(f"{name} is to have {size!r} nodes, it must be a whole number")
    if size == 0:
        if has and not rules.suspendable:
            raise SimulationError(f"{name} may not be suspended")
    elif not rules.least <= size <= rules.most:
        many = f"{rules.least} to {rules.most}" if rules.least < rules.most else f"{rules.least}"
        raise SimulationError(f"{name} is to have {size} nodes, it runs on {many}")


def _lengths(simulation: SimulationBase, row: int, rules: _Rules, size: int) -> Lengths:
    """Return how long a pending job runs from now on, on a number of nodes."""
    workload, done = simulation.workload, simulation.sized.done.get(row)
    return lengths_of(
        size,
        rate=rules.rate(size),
        done=done or Fraction(0),
        idle_ms=0 if done is None else rules.resize_ms,
        runtime_ms=int(workload.runtime_ms[row]),
        walltime_ms=int(workload.walltime_ms[row]),
        expected_ms=int(simulation.sized.expected_ms[row]),
        terminate=simulation.overrun == "terminate",
    )


# --- saving ------------------------------------------------------------------------------------


def sized_as_plain(simulation: SimulationBase) -> dict[str, Any]:
    """Return the state of sized jobs, and their present requests, as plain values."""
    sized, workload, job = simulation.sized, simulation.workload, simulation.state["job"]
    asks = job["nodes"], job["runtime"], job["limit"], job["expected"]
    first = workload.nodes, workload.runtime_ms, workload.walltime_ms, sized.expected_ms
    changed = np.any([now != then for now, then in zip(asks, first, strict=True)], axis=0)
    rows = np.flatnonzero(changed)
    return {
        "done": [[row, one.numerator, one.denominator] for row, one in sized.done.items()],
        "again_s": sized.again_s,
        "last_s": sized.last_s,
        "lengths": np.stack([rows, *(one[rows] for one in asks)], axis=1).tolist(),
    }


def resume_sized(simulation: SimulationBase, plain: Mapping[str, Any]) -> None:
    """Continue from the values that `sized_as_plain` returned."""
    for row, *lengths in plain["lengths"]:
        put_lengths(simulation.state, row, Lengths(*lengths))
    _note(
        simulation,
        done={row: Fraction(over, under) for row, over, under in plain["done"]},
        again_s=plain["again_s"],
        last_s=plain["last_s"],
    )


def lengths_of(
    size: int,
    *,
    rate: Fraction,
    done: Fraction,
    idle_ms: int,
    runtime_ms: int,
    walltime_ms: int,
    expected_ms: int,
    terminate: bool,
) -> Lengths:
    """Return how long the rest of a job takes.

    Args:
        size: Number of nodes.
        rate: Speed on these nodes; 1 on the nodes the job asks for.
        done: Work done, in ms of its runtime.
        idle_ms: Time without work at the beginning, in ms.
        runtime_ms: Runtime of the whole job on the nodes it asks for, in ms.
        walltime_ms: Walltime of the whole job on these nodes, in ms.
        expected_ms: Expected runtime of the whole job on these nodes, in ms.
        terminate: Whether the walltime ends the job.
    """
    runtime, walltime, expected = (
        idle_ms + max(0, math.ceil((whole - done) / rate))
        for whole in (runtime_ms, walltime_ms, expected_ms)
    )
    if terminate and runtime_ms > walltime_ms:
        # Rounding up may make both equal; whether the walltime ends the job is decided by the exact
        # work.
        runtime = walltime + 1
    return Lengths(size, runtime, max(walltime, 1), max(expected, 1))
