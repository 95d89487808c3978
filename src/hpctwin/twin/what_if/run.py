"""What-ifs: the mirror run ahead under each policy of the pool."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from hpctwin.model import MS_PER_S
from hpctwin.model.columns import every
from hpctwin.model.input.cached_attributes import kept
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
        submit_s, start_s, end_s, nodes: of each, the end expected where it still runs [H].
    """

    submit_s: FloatArray
    start_s: FloatArray
    end_s: FloatArray
    nodes: FloatArray

    @classmethod
    @cache
    def none(cls) -> Past:
        """Nothing counts but the queue."""
        return cls(*(np.zeros(0) for _ in range(4)))


class Course(NamedTuple):
    """How jobs fare in a what-if.

    Those that wait and those sampled to come count, and those of the past; the rest only use nodes.

    Args:
        submit_s, nodes: of those that wait or come [others].
        running_nodes: of those that run [running].
        now_s: when it began.
        machine_nodes: nodes of the cluster.
        past: jobs that count besides.
        start_ms, end_ms: of those that wait or come, -1 for never, or the horizon at last [others].
        running_end_ms: of those that run [running].
        energy_j: ``total_energy_j`` of `Outlook`.
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
    """One policy, run ahead.

    Args:
        policy: its name.
        starts: ids of the jobs that it starts now, where they share nodes in this order.
        ids: of the waiting jobs that would start [started].
        start_ms: when each would [started].
        course: what the objective judges.
    """

    policy: str
    starts: tuple[str, ...]
    ids: tuple[str, ...]
    start_ms: npt.NDArray[np.int64]
    course: Course

    @kept
    def start_s(self) -> Mapping[str, float]:
        """When each waiting job would start, by id; those that would never are missing."""
        return dict(zip(self.ids, (self.start_ms / MS_PER_S).tolist(), strict=True))


def look_ahead(
    now: Present, pool: Sequence[Policy], *, past: Past, horizon_s: float | None = None
) -> list[WhatIf]:
    """Run the present ahead under each policy, one after another; see `run_ahead`."""
    return [run_ahead(now, policy, past, horizon_s) for policy in pool]


def run_ahead(
    now: Present,
    policy: Policy,
    past: Past,
    horizon_s: float | None,
    begun: Callable[[Simulation], None] = lambda simulation: None,
) -> WhatIf:
    """Run the present ahead under a policy, until the queue is empty.

    Args:
        now: the mirror as a simulation.
        policy: what starts jobs.
        past: jobs that count besides those that wait.
        horizon_s: stop so long after now; a job that has not started by then counts as starting
            there. None to go on until the queue is empty.
        begun: told of the simulation before it is run, to be able to stop it.
    """
    now_s = now.now_ms / MS_PER_S
    simulation = now.spare.fork(now.base, policy)
    begun(simulation)
    given = None
    if simulation.cluster.has_power or simulation.workload.shares_nodes:
        # Who starts now may have to wait for nodes that are switched on, or start before another one.
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
    """How jobs fare in a fork of the present that has been run ahead so far; see `run_ahead`."""
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


def outlooks_of(courses: Sequence[Course]) -> list[Outlook]:
    """What the objective judges of what-ifs of one present, in their order.

    Returns:
        One of all together, if all jobs start in all of them; else one of each.
    """
    both_ms = np.array([[c.start_ms for c in courses], [c.end_ms for c in courses]])
    counts = both_ms[0] >= 0
    all_count = every(counts)
    if not all_count and len(courses) > 1:
        return [outlook for course in courses for outlook in outlooks_of([course])]
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
        )
    ]


def _busy_node_s(
    courses: Sequence[Course], nodes: FloatArray, start_s: FloatArray, end_s: FloatArray
) -> FloatArray:
    """Node-seconds in use: of the jobs that count, and of those that run, where the past does not count.

    Args:
        courses: of what-ifs of one present.
        nodes: of those that wait or come and start [started].
        start_s: when each of these does [what-ifs, started].
        end_s: when it ends.
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
    # Who only asks how things stand does not wait for the simulator to be loaded.
    from hpctwin.simulation.running.present import energy_j

    return energy_j(simulation)
