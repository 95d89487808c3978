"""How low waiting and energy can be at all: bounds that no schedule passes, with everything known ahead."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from hpctwin.energy.power.states import group_of_node, node_watts
from hpctwin.engine.state.layout import COMPUTING
from hpctwin.metrics import TAU_S
from hpctwin.model import MS_PER_S, Cluster, Workload

__all__ = ["Waiting", "least_energy_j", "least_waiting", "why_no_bound"]

FloatArray = npt.NDArray[np.float64]
Waiting = Literal["mean_bounded_slowdown", "mean_wait_s"]

CELLS = 192
"""Of the time that has a price."""
ROUNDS = 120
"""Of prices; the best counts."""
PATIENCE = 6
"""After so many rounds without a better bound, steps are half as long."""


def why_no_bound(jobs: Workload, cluster: Cluster) -> str:
    """Why a job's nodes or run time are not known ahead, so that there is no bound; empty if there is one.

    Args:
        jobs: such as those of the episodes.
        cluster: their machine.
    """
    if jobs.shares_nodes:
        return "jobs share nodes"
    if cluster.failures != type(cluster.failures)():
        return "nodes fail"
    if cluster.preemption is not None:
        return "jobs are preempted"
    if {group.speed_at_first for group in cluster.nodes} != {1.0}:
        return "nodes differ in speed"
    if any(mode.speed != 1.0 for group in cluster.nodes for mode in group.modes.values()):
        return "nodes have modes of several speeds"
    return ""


def run_s(jobs: Workload) -> FloatArray:
    """How long each job runs, s [jobs]: to its walltime at most."""
    found: FloatArray = np.minimum(jobs.runtime_ms, jobs.walltime_ms) / MS_PER_S
    return found


def least_waiting(
    metric: Waiting, jobs: Workload, nodes: int, *, reached: float, until_s: float
) -> float:
    """A bound below the mean of a metric under any schedule: one that knows all jobs ahead, too.

    Lagrangian relaxation of the formulation by start times (M. E. Dyer and L. A. Wolsey, "Formulating the
    single machine sequencing problem with release dates as a mixed integer program", Discrete Applied
    Mathematics 26, 1990): each node-second has a price, each job starts where waiting and nodes together are
    cheapest, and what all nodes are worth is taken off. For any prices that is a bound; subgradient steps
    (B. T. Polyak, "Minimization of unsmooth functionals", 1969) look for good ones.

    Args:
        metric: which.
        jobs: submit times, run times and nodes.
        nodes: of the machine.
        reached: the metric of some schedule.
        until_s: when its last job ended; prices are of the time before.
    """
    if len(jobs) == 0:
        return reached
    prices = _Prices(metric, jobs, nodes, until_s)
    price = np.zeros(CELLS)
    best, without, step = -np.inf, 0, 1.0
    for _ in range(ROUNDS):
        value, excess = prices.bound(price)
        without = 0 if value > best else without + 1
        best = max(best, value)
        length = float(excess @ excess)
        gap = reached * len(jobs) - value
        if length == 0.0 or gap <= 0.0:
            break
        if without == PATIENCE:
            without, step = 0, step / 2
        price = np.maximum(price + step * gap / length * excess, 0.0)
    return min(best / len(jobs), reached)


class _Prices:
    """Where jobs start, given what a node-second costs in each cell of time.

    A job's cost is piecewise linear in its start, so it is least where the start or the end is at the edge
    of a cell, at the submission, or where a short job's slowdown begins to rise.
    """

    def __init__(self, metric: Waiting, jobs: Workload, nodes: int, until_s: float) -> None:
        submit = jobs.submit_ms / MS_PER_S
        run = run_s(jobs)
        self.total, self.nodes = nodes, jobs.nodes.astype(np.float64)
        self.begin = float(submit.min())
        self.width = max(until_s - self.begin, 1.0) / CELLS
        edges = self.begin + self.width * np.arange(CELLS + 1)
        rises = np.maximum(submit + TAU_S - run, submit)
        starts = np.concatenate(
            [
                np.broadcast_to(edges, (len(run), CELLS + 1)),
                edges - run[:, None],
                submit[:, None],
                rises[:, None],
            ],
            axis=1,
        )
        wait = starts - submit[:, None]
        allowed = wait >= 0
        if metric == "mean_wait_s":
            cost = wait
        else:
            cost = np.maximum((wait + run[:, None]) / np.maximum(run, TAU_S)[:, None], 1.0)
        self.cost = np.where(allowed, cost, np.inf)
        self.starts, self.run = starts, run
        self._first = self._place(starts)
        self._last = self._place(starts + run[:, None])

    def _place(self, times: FloatArray) -> tuple[npt.NDArray[np.int64], FloatArray]:
        """The cell of each time, and which share of it lies before; after the last edge nothing costs."""
        at = np.clip((times - self.begin) / self.width, 0.0, CELLS)
        cell = np.minimum(at.astype(np.int64), CELLS - 1)
        return cell, at - cell

    def bound(self, price: FloatArray) -> tuple[float, FloatArray]:
        """The bound on the sum of costs, and node-seconds taken in each cell above those that there are.

        Args:
            price: of a node-second in each cell [CELLS].
        """
        worth = np.concatenate([[0.0], np.cumsum(price * self.width)])
        paid = self._until(worth, self._last) - self._until(worth, self._first)
        costs = self.cost + self.nodes[:, None] * paid
        chosen = costs.argmin(axis=1)
        rows = np.arange(len(costs))
        start = self.starts[rows, chosen]
        edges = self.begin + self.width * np.arange(CELLS + 1)
        taken = np.diff(self.nodes @ np.clip(edges - start[:, None], 0.0, self.run[:, None]))
        there = self.total * self.width
        value = float(costs[rows, chosen].sum() - there * price.sum())
        return value, taken - there

    @staticmethod
    def _until(worth: FloatArray, place: tuple[npt.NDArray[np.int64], FloatArray]) -> FloatArray:
        cell, share = place
        found: FloatArray = worth[cell] + share * (worth[cell + 1] - worth[cell])
        return found


def least_energy_j(jobs: Workload, cluster: Cluster) -> float:
    """A bound below the energy of all nodes, from the first submission to the last end, J.

    It holds under any policy.

    Each node draws at each time what it draws least in any state, and more while it computes; and the last
    job ends no sooner than if none had waited.

    Args:
        jobs: submit times, run times and nodes.
        cluster: its nodes are all as fast as each other.
    """
    watts = node_watts(cluster)
    there = np.ones_like(watts, dtype=np.bool_)
    for node, group in enumerate(group_of_node(cluster)):
        there[2 + 3 * len(group.sleep) :, node] = False  # depths that only other groups have
    least = np.where(there, watts, np.inf).min(axis=0)
    run = run_s(jobs)
    submit = jobs.submit_ms / MS_PER_S
    span_s = float((submit + run).max(initial=0.0)) - float(submit[:1].sum())
    more = float((watts[COMPUTING] - least).min())
    return span_s * float(least.sum()) + more * float(run @ jobs.nodes)
