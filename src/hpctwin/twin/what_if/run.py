"""Runs of what-ifs: the mirror simulated under each policy of the pool."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from hpctwin.attributes import kept
from hpctwin.metrics.registry import TAU_S
from hpctwin.model import MS_PER_S
from hpctwin.model.columns import every
from hpctwin.policies import Policy
from hpctwin.twin.what_if.objective import Outlook

if TYPE_CHECKING:
    from hpctwin.simulation import Simulation
    from hpctwin.twin.what_if.present import Present

__all__ = ["Course", "Past", "WhatIf", "course_of", "look_ahead", "outlooks_of", "run_ahead"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Past:
    """Jobs that have started already and count in the objective (H of them).

    Args:
        submit_s, start_s: Submission and start of each, in seconds [H].
        end_s: End of each, expected if it still runs, in seconds [H].
        nodes: Number of nodes of each [H].
    """

    submit_s: FloatArray
    start_s: FloatArray
    end_s: FloatArray
    nodes: FloatArray

    @classmethod
    @cache
    def none(cls) -> Past:
        """Return an empty past, with which only the queue counts."""
        return cls(*(np.zeros(0) for _ in range(4)))


class Course(NamedTuple):
    """Starts and ends of jobs in a what-if.

    Pending jobs, sampled arrivals and the jobs of the past count. Running jobs only use nodes.

    Args:
        submit_s, nodes: Submission (in seconds) and nodes of pending and arriving jobs [others].
        running_nodes: Number of nodes of each running job [running].
        now_s: Start of the what-if, in seconds.
        machine_nodes: Number of nodes of the cluster.
        past: Jobs of the past that count.
        start_ms, end_ms: Start and end of pending and arriving jobs, in ms; -1 for never. With a
            horizon, a job starts there at the latest [others].
        running_end_ms: End of each running job, in ms [running].
        energy_j: Energy of all nodes, in J; see ``total_energy_j`` of `Outlook`.
    """

    submit_s: FloatArray
    nodes: FloatArray
    running_nodes: FloatArray
    now_s: float
    machine_nodes: int
    past: Past
    start_ms: npt.NDArray[np.int64]
    end_ms: npt.NDArray[np.int64]
    running_end_ms: npt.NDArray[np.int64]
    energy_j: float


@dataclass(frozen=True)
class WhatIf:
    """Result of simulating one policy.

    Args:
        policy: Name of the policy.
        starts: Ids of the jobs that it starts now. On shared nodes their order matters.
        ids: Ids of the pending jobs that would start [started].
        start_ms: Start of each of these, in ms [started].
        course: Starts and ends of jobs, which the objective judges.
    """

    policy: str
    starts: tuple[str, ...]
    ids: tuple[str, ...]
    start_ms: npt.NDArray[np.int64]
    course: Course

    @kept
    def start_s(self) -> Mapping[str, float]:
        """Start of each pending job that would start, by id, in seconds."""
        return dict(zip(self.ids, (self.start_ms / MS_PER_S).tolist(), strict=True))


def look_ahead(
    now: Present, pool: Sequence[Policy], *, past: Past, horizon_s: float | None = None
) -> list[WhatIf]:
    """Simulate from the present under each policy, one after another; see `run_ahead`."""
    return [run_ahead(now, policy, past, horizon_s) for policy in pool]


def run_ahead(
    now: Present,
    policy: Policy,
    past: Past,
    horizon_s: float | None,
    begun: Callable[[Simulation], None] = lambda simulation: None,
) -> WhatIf:
    """Simulate from the present under a policy.

    Args:
        now: The mirror as a simulation.
        policy: Policy that starts the jobs.
        past: Jobs that count in addition to pending ones.
        horizon_s: Length of the simulation, in seconds; None to run until the queue is empty. A
            job that has not started by then counts as starting at the horizon.
        begun: Function called with the simulation before it runs, so that it can be stopped.
    """
    now_s = now.now_ms / MS_PER_S
    simulation = now.spare.fork(now.base, policy)
    begun(simulation)
    given = None
    if simulation.cluster.has_power or simulation.workload.shares_nodes:
        # Read the jobs with nodes allocated now before the run continues. Their start may be later,
        # when their nodes are switched on, and on shared nodes the order of allocation matters.
        given = now.given_nodes(simulation)
    simulation.advance(None if horizon_s is None else now_s + horizon_s)
    ids, start_ms = now.waiting_ids, simulation.column("start")[now.waiting]
    starts = start_ms >= 0
    if not every(starts):
        ids, start_ms = tuple(compress(ids, starts.tolist())), start_ms[starts]
    at_once = (
        [ids[row] for row in (start_ms == now.now_ms).nonzero()[0].tolist()]
        if given is None
        else [now.ids[row] for row in given.tolist()]
    )
    course = course_of(now, simulation, past, horizon_s)
    now.spare.give_back(simulation)
    return WhatIf(
        policy=policy.name,
        starts=tuple(at_once),
        ids=ids,
        start_ms=start_ms,
        course=course,
    )


def course_of(now: Present, simulation: Simulation, past: Past, horizon_s: float | None) -> Course:
    """Return starts and ends in a fork of the present after a run; see `run_ahead`."""
    rows = now.others
    start_ms, end_ms = simulation.column("start"), simulation.column("end")
    running_end_ms, start_ms, end_ms = end_ms[now.running], start_ms[rows], end_ms[rows]
    if horizon_s is not None:
        workload, limit_ms = simulation.workload, now.now_ms + round(horizon_s * MS_PER_S)
        late = (start_ms < 0) & (workload.submit_ms[rows] <= limit_ms)
        start_ms = np.where(late, limit_ms, start_ms)
        end_ms = np.where(late, limit_ms + workload.runtime_ms[rows], end_ms)
    return Course(
        *now.of_others,
        now.running_nodes,
        now.now_ms / MS_PER_S,
        now.machine_nodes,
        past,
        start_ms,
        end_ms,
        running_end_ms,
        _energy_j(simulation) if simulation.cluster.has_power else math.nan,
    )


def outlooks_of(courses: Sequence[Course], tau_s: float = TAU_S) -> list[Outlook]:
    """Return what the objective judges for what-ifs of one present, in their order.

    Args:
        courses: Courses of the what-ifs.
        tau_s: Threshold of bounded slowdowns, in seconds.

    Returns:
        One outlook for all what-ifs together if all jobs start in all of them; else one for each.
    """
    # Starts and ends [2, what-ifs, others].
    both_ms = np.array([[c.start_ms for c in courses], [c.end_ms for c in courses]])
    counts = both_ms[0] >= 0
    all_count = every(counts)
    # If some jobs never start, the arrays of the what-ifs have different lengths.
    if not all_count and len(courses) > 1:
        return [outlook for course in courses for outlook in outlooks_of([course], tau_s)]
    one = courses[0]
    submit, nodes, past, now_s = one.submit_s, one.nodes, one.past, one.now_s
    begin_s = now_s
    if not all_count:
        submit, nodes, both_ms = submit[counts[0]], nodes[counts[0]], both_ms[:, :, counts[0]]
    start, end = both_ms / MS_PER_S
    busy = partial(_busy_node_s, courses, nodes, start, end)
    if len(past.nodes):
        begin_s = float(past.submit_s.min(initial=now_s))
        submit = np.concatenate([past.submit_s, submit])
        nodes = np.concatenate([past.nodes, nodes])
        start, end = (
            np.concatenate([np.broadcast_to(known, (len(courses), len(known))), coming], axis=1)
            for known, coming in ((past.start_s, start), (past.end_s, end))
        )
    return [
        Outlook(
            submit_s=submit,
            start_s=start,
            end_s=end,
            nodes=nodes,
            now_s=now_s,
            machine_nodes=one.machine_nodes,
            busy=busy,
            begin_s=begin_s,
            total_energy_j=np.array([course.energy_j for course in courses]),
            tau_s=tau_s,
        )
    ]


def _busy_node_s(
    courses: Sequence[Course], nodes: FloatArray, start_s: FloatArray, end_s: FloatArray
) -> FloatArray:
    """Return the node-seconds in use by all jobs that count [what-ifs].

    Running jobs are added from now on, unless the past counts, which includes them.

    Args:
        courses: Courses of what-ifs of one present.
        nodes: Number of nodes of the pending and arriving jobs that start [started].
        start_s: Start of each, in seconds [what-ifs, started].
        end_s: End of each, in seconds [what-ifs, started].
    """
    past, now_s = courses[0].past, courses[0].now_s
    busy: FloatArray = np.add.reduce(nodes * (end_s - start_s), axis=1)
    if len(past.nodes):
        busy += (past.nodes * (past.end_s - past.start_s)).sum()
        return busy
    running_end_ms = np.array([course.running_end_ms for course in courses])
    left_s = np.maximum(running_end_ms / MS_PER_S - now_s, 0.0)
    busy += np.add.reduce(courses[0].running_nodes * left_s, axis=1)
    return busy


def _energy_j(simulation: Simulation) -> float:
    # Imported late, so that a query of the status does not load the simulator.
    from hpctwin.simulation.running.incremental import energy_j

    return energy_j(simulation)
