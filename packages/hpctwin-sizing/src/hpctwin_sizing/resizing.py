"""Change the number of nodes of jobs, and keep count of the work that each has done."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.jobs.resizing import Lengths, cleaned_jobs, put_lengths, stop_jobs
from hpctwin.engine.passes.outside import name_jobs
from hpctwin.engine.state import layout
from hpctwin.errors import SimulationError
from hpctwin.model.text import count_text
from hpctwin.model.workload.malleable import LINEAR, Malleable, Speedup, parse_speedup
from hpctwin.simulation.lowering.profiles import UNKNOWN_MS
from hpctwin.simulation.running.advance import Outcome
from hpctwin.simulation.state.base import SimulationBase
from hpctwin_sizing.site_rules import SiteRules

__all__ = [
    "JobRules",
    "SizeState",
    "replace_state",
    "reset_size",
    "resize",
    "resume_sizes",
    "rules_of",
    "saved_sizes",
    "work_done",
]


@dataclass(frozen=True)
class SizeState:
    """State of the jobs of a simulation with a sizing.

    Args:
        expected_ms: Expected runtime of each job on the nodes it asks for, in ms [jobs].
        rules: Rules of the cluster on jobs of any size.
        refused: Whether the cluster refused orders of the last call.
        done: Work done by each job that ran and was stopped, by row: ms of its runtime on the nodes
            it asks for.
        next_call_s: Time at which the sizing wants to be called again, in seconds.
        last_s: Time of the last event other than such a call, in seconds.
    """

    expected_ms: npt.NDArray[np.int64]
    rules: SiteRules
    refused: bool = False
    done: Mapping[int, Fraction] = field(default_factory=dict)
    next_call_s: float | None = None
    last_s: float = 0.0


def replace_state(simulation: SimulationBase, **what: Any) -> None:
    """Replace some fields of a simulation's `SizeState`."""
    simulation.sized = dataclasses.replace(simulation.sized, **what)


@dataclass(frozen=True)
class JobRules:
    """How the size of a job may change.

    Args:
        nodes: Number of nodes the job asks for.
        least, most: Smallest and largest number of nodes the job runs on; no more than the cluster
            allows one job.
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


def rules_of(simulation: SimulationBase, row: int) -> JobRules:
    """Return how the size of the job in a row may change."""
    malleable: Malleable | None = simulation.workload.malleable
    nodes = int(simulation.workload.nodes[row])
    if malleable is None:
        return JobRules(nodes, nodes, nodes, parse_speedup(LINEAR), False, 0)
    resize_ms = int(malleable.resize_ms[row])
    suspendable = bool(malleable.suspendable[row])
    if simulation.cluster.cleanup > 0 and not suspendable and _runs(simulation, row):
        held = int(simulation.state["job"]["nodes"][row])
        return JobRules(nodes, held, held, malleable.speedup_of(row), False, resize_ms)
    least = int(malleable.min_nodes[row])
    largest = int(simulation.sized.rules.largest[row])
    return JobRules(
        nodes,
        least,
        max(least, min(int(malleable.max_nodes[row]), largest)),
        malleable.speedup_of(row),
        suspendable,
        resize_ms,
    )


def _runs(simulation: SimulationBase, row: int) -> bool:
    """Return whether a job has nodes, on or being switched on or cleaned up."""
    return bool(simulation.column("phase")[row] == layout.RUNNING)


def work_done(simulation: SimulationBase, row: int, rules: JobRules) -> Fraction:
    """Return the work a job has done: ms of its runtime on the nodes it asks for."""
    before = simulation.sized.done.get(row)
    done = Fraction(0) if before is None else before
    if not _runs(simulation, row):
        return done
    sim = simulation.state
    idle = 0 if before is None else rules.resize_ms
    worked = max(0, int(sim.clock.now) - int(sim["state"]["start"][row]) - idle)
    return done + worked * rules.rate(int(sim["job"]["nodes"][row]))


# --- changes of size ---------------------------------------------------------------------------


def resize(
    simulation: SimulationBase,
    sizes: Mapping[Any, int],
    advance: Callable[..., Outcome],
    *,
    cleans: bool = True,
) -> list[int]:
    """Change the sizes of jobs from now on, in this order; 0 suspends a job.

    Jobs that change stop first. Jobs that want nodes then get them, one after the other. A job that
    does not fit waits, or stays suspended. With cleanup, jobs that stop wait later, and for a new
    order.

    Args:
        simulation: Simulation that holds the jobs.
        sizes: Number of nodes by job id.
        advance: Function that advances the simulation.
        cleans: Whether nodes are cleaned up after jobs that stop, if the cluster does so.

    Returns:
        Rows of jobs that did not get the nodes they were to have.

    Raises:
        SimulationError: A job does not exist, is neither pending nor running, may not have this
            size, or may not be suspended.
    """
    sim = simulation.state
    wanted = {simulation.row_of(job_id): size for job_id, size in sizes.items()}
    rules = {row: rules_of(simulation, row) for row in wanted}
    has = {row: _size(simulation, row) for row in wanted}
    for row, size in wanted.items():
        _check(simulation, row, size, rules[row], has[row])
    changes = {row: int(size) for row, size in wanted.items() if int(size) != has[row]}
    if not changes:
        return []
    simulation.compiled_policy()
    # The engine does not check the space for node records before a pass without an event time.
    simulation.make_room()
    stopped = [row for row in changes if has[row]]
    done = dict(simulation.sized.done)
    for row in stopped:
        if int(sim["state"]["start"][row]) < int(sim.clock.now):
            done[row] = work_done(simulation, row, rules[row])
    if simulation.network is not None:
        simulation.network.halt(sim, stopped)
    stop_jobs(sim, np.array(stopped, np.int64), cleans=cleans)
    replace_state(simulation, done=done)
    changes = {row: size for row, size in changes.items() if not _runs(simulation, row)}
    for row, size in changes.items():
        _put(simulation, row, _lengths(simulation, row, rules[row], size or rules[row].nodes))
    begun = [row for row, size in changes.items() if size]
    if begun:
        name_jobs(sim, np.array(begun, np.int64))
    advance(instants=0)
    waits = [row for row in begun if simulation.column("phase")[row] == layout.WAITING]
    for row in waits:
        if has[row] and not rules[row].suspendable:
            simulation.broken = (
                f"job {simulation.workload.job_id[row]} may not be suspended, but does not fit: it "
                f"needs {count_text(int(changes[row]), 'more free node')}"
            )
        reset_size(simulation, row)
    replace_state(simulation, last_s=simulation.now_s)
    return waits


def _size(simulation: SimulationBase, row: int) -> int:
    """Return the number of nodes a job has.

    Raises:
        SimulationError: The job is neither pending nor running.
    """
    if _runs(simulation, row) and row not in cleaned_jobs(simulation.state):
        return int(simulation.state["job"]["nodes"][row])
    if int(simulation.column("phase")[row]) != layout.WAITING:
        raise SimulationError(
            f"job {simulation.workload.job_id[row]} is neither pending nor running; give it no size"
        )
    return 0


def _check(simulation: SimulationBase, row: int, size: Any, rules: JobRules, has: int) -> None:
    """Check that a job may have a number of nodes.

    Raises:
        SimulationError: It may not.
    """
    name = f"job {simulation.workload.job_id[row]}"
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
        raise SimulationError(f"{name}: size is {size!r}; it must be a whole number of nodes")
    if size == 0:
        if has and not rules.suspendable:
            raise SimulationError(f"{name} may not be suspended; give it a size above 0")
    elif not rules.least <= size <= rules.most:
        many = f"{rules.least} to {rules.most}" if rules.least < rules.most else f"{rules.least}"
        raise SimulationError(f"{name}: size is {size}; it must be {many}")


def reset_size(simulation: SimulationBase, row: int) -> None:
    """Give a pending job the nodes it asks for again, until a sizing decides."""
    rules = rules_of(simulation, row)
    _put(simulation, row, _lengths(simulation, row, rules, rules.nodes))


def _put(simulation: SimulationBase, row: int, lengths: Lengths) -> None:
    """Set size and length of a pending job, and what it counts on this size."""
    put_lengths(simulation.state, row, lengths)
    simulation.sized.rules.put(simulation.state, row, lengths.nodes)


def _lengths(simulation: SimulationBase, row: int, rules: JobRules, size: int) -> Lengths:
    """Return how long the rest of a pending job takes on a number of nodes."""
    workload, before = simulation.workload, simulation.sized.done.get(row)
    done = before or Fraction(0)
    idle_ms = 0 if before is None else rules.resize_ms
    runtime_ms, walltime_ms = int(workload.runtime_ms[row]), int(workload.walltime_ms[row])
    expected_ms = int(simulation.sized.expected_ms[row])
    rate = rules.rate(size)
    runtime, walltime, expected = (
        idle_ms + max(0, math.ceil((whole - done) / rate))
        for whole in (runtime_ms, walltime_ms, expected_ms)
    )
    if simulation.overrun == "terminate" and runtime_ms > walltime_ms:
        # Rounding up may make both equal; whether the walltime ends the job is decided by the exact
        # work.
        runtime = walltime + 1
    if simulation.network is not None and simulation.network.uses[row]:
        runtime = UNKNOWN_MS
    return Lengths(size, runtime, max(walltime, 1), max(expected, 1))


# --- saving ------------------------------------------------------------------------------------


def saved_sizes(simulation: SimulationBase) -> dict[str, Any]:
    """Return the state of sized jobs, and their present requests, as plain values."""
    sized, workload, job = simulation.sized, simulation.workload, simulation.state["job"]
    cleanup = simulation.state["rules"]["cleanup"]
    asks = job["nodes"], job["runtime"], job["limit"], job["expected"] - cleanup
    first = workload.nodes, workload.runtime_ms, workload.walltime_ms, sized.expected_ms
    changed = np.any([now != then for now, then in zip(asks, first, strict=True)], axis=0)
    rows = np.flatnonzero(changed)
    return {
        "done": [[row, one.numerator, one.denominator] for row, one in sized.done.items()],
        "next_call_s": sized.next_call_s,
        "refused": sized.refused,
        "last_s": sized.last_s,
        "lengths": np.stack([rows, *(one[rows] for one in asks)], axis=1).tolist(),
    }


def resume_sizes(simulation: SimulationBase, plain: Mapping[str, Any]) -> None:
    """Continue from the values that `saved_sizes` returned."""
    for row, *lengths in plain["lengths"]:
        _put(simulation, row, Lengths(*lengths))
    replace_state(
        simulation,
        done={row: Fraction(over, under) for row, over, under in plain["done"]},
        next_call_s=plain["next_call_s"],
        refused=plain["refused"],
        last_s=plain["last_s"],
    )
