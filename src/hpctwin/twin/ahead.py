"""What-ifs: the mirror run ahead under each policy of the pool."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hpctwin.model import MS_PER_S
from hpctwin.policies import Policy
from hpctwin.twin.objective import Outlook

if TYPE_CHECKING:
    from hpctwin.simulation import Simulation
    from hpctwin.twin.present import Present

__all__ = ["Past", "WhatIf", "look_ahead", "outlook_of", "run_ahead"]

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


@dataclass(frozen=True)
class WhatIf:
    """One policy, run ahead.

    Args:
        policy: its name.
        starts: ids of the jobs that it starts now, where they share nodes in this order.
        ids: of all jobs, by row.
        rows: of the waiting jobs that would start [started].
        start_ms: when each would [started].
        outlook: what the objective judges.
    """

    policy: str
    starts: tuple[str, ...]
    ids: tuple[str, ...]
    rows: npt.NDArray[np.int64]
    start_ms: npt.NDArray[np.int64]
    outlook: Outlook

    @cached_property
    def start_s(self) -> Mapping[str, float]:
        """When each waiting job would start, by id; those that would never are missing."""
        ids = map(self.ids.__getitem__, self.rows.tolist())
        return dict(zip(ids, (self.start_ms / MS_PER_S).tolist(), strict=True))


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
    simulation = now.fork(policy)
    begun(simulation)
    given = None
    if simulation.cluster.has_power or simulation.workload.shares_nodes:
        # Who starts now may have to wait for nodes that are switched on, or start before another one.
        given = now.given_nodes(simulation)
    simulation.advance(None if horizon_s is None else now_s + horizon_s)
    start = simulation.column("start")
    rows = now.waiting[start[now.waiting] >= 0]
    at_once = rows[start[rows] == now.now_ms] if given is None else given
    return WhatIf(
        policy=policy.name,
        starts=tuple([now.ids[row] for row in at_once.tolist()]),
        ids=now.ids,
        rows=rows,
        start_ms=start[rows],
        outlook=outlook_of(now, simulation, past, horizon_s),
    )


def outlook_of(
    now: Present, simulation: Simulation, past: Past, horizon_s: float | None
) -> Outlook:
    """Jobs that wait and jobs sampled to come count, and those of the past; the rest only use nodes.

    Args:
        now: the present.
        simulation: a fork of it that has been run ahead.
        past: jobs that count besides.
        horizon_s: how far it was run; None for to the end.
    """
    workload, rows = simulation.workload, now.others
    now_s = now.now_ms / MS_PER_S
    start_ms, end_ms = simulation.column("start"), simulation.column("end")
    running_end_ms, start_ms, end_ms = end_ms[now.running], start_ms[rows], end_ms[rows]
    if horizon_s is not None:
        limit_ms = now.now_ms + round(horizon_s * MS_PER_S)
        late = (start_ms < 0) & (workload.submit_ms[rows] <= limit_ms)
        start_ms = np.where(late, limit_ms, start_ms)
        end_ms = np.where(late, limit_ms + workload.runtime_ms[rows], end_ms)
    (submit, nodes), begin_s = now.of_others, now_s
    counts = start_ms >= 0
    if not counts.all():
        submit, nodes, start_ms, end_ms = (x[counts] for x in (submit, nodes, start_ms, end_ms))
    start, end = start_ms / MS_PER_S, end_ms / MS_PER_S
    busy = float(np.add.reduce(nodes * (end - start)))
    if len(past.nodes):
        busy += float((past.nodes * (past.end_s - past.start_s)).sum())
        begin_s = float(past.submit_s.min(initial=now_s))
        submit = np.concatenate([past.submit_s, submit])
        start = np.concatenate([past.start_s, start])
        end = np.concatenate([past.end_s, end])
        nodes = np.concatenate([past.nodes, nodes])
    else:
        running_left = np.maximum(running_end_ms / MS_PER_S - now_s, 0.0)
        busy += float(np.add.reduce(workload.nodes[now.running] * running_left))
    return Outlook(
        submit_s=submit,
        start_s=start,
        end_s=end,
        nodes=nodes,
        now_s=now_s,
        machine_nodes=simulation.cluster.node_count,
        busy_node_s=busy,
        begin_s=begin_s,
        energy_j=_energy_j(simulation) if simulation.cluster.has_power else math.nan,
    )


def _energy_j(simulation: Simulation) -> float:
    # Who only asks how things stand does not wait for the simulator to be loaded.
    from hpctwin.simulation.present import energy_j

    return energy_j(simulation)
