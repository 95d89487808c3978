"""Lower bounds on wait and energy that no schedule beats, even a clairvoyant one."""

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
"""Number of time cells that have a price."""
ROUNDS = 120
"""Number of price updates; the best bound counts."""
PATIENCE = 6
"""Number of rounds without a better bound after which the step is halved."""


def why_no_bound(jobs: Workload, cluster: Cluster) -> str:
    """Return why there is no bound, as nodes or runtimes vary; empty if there is one.

    Args:
        jobs: Jobs like those of the episodes.
        cluster: Their cluster.
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
    """Return how long each job runs, at most its walltime, in s [jobs]."""
    found: FloatArray = np.minimum(jobs.runtime_ms, jobs.walltime_ms) / MS_PER_S
    return found


def least_waiting(
    metric: Waiting, jobs: Workload, nodes: int, *, reached: float, until_s: float
) -> float:
    """Return a lower bound on the mean of a metric that holds for any schedule.

    The schedule may be clairvoyant. The bound is the Lagrangian relaxation of the formulation by
    start times (M. E. Dyer and L. A. Wolsey, "Formulating the single machine sequencing problem
    with release dates as a mixed integer program", Discrete Applied Mathematics 26, 1990). Each
    node-second has a price. Each job starts where its wait and its nodes together are cheapest. The
    value of all nodes is subtracted. The result is a bound for any prices. Subgradient steps (B. T.
    Polyak, "Minimization of unsmooth functionals", 1969) search for good prices.

    Args:
        metric: Name of the metric.
        jobs: Submit times, runtimes and nodes.
        nodes: Number of nodes of the cluster.
        reached: Metric of some schedule.
        until_s: End of its last job, in s; the time before has prices.
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
    """Start times of jobs for given prices of a node-second in each time cell.

    The cost of a job is piecewise linear in its start. Its minimum is therefore where the start or
    the end is at the edge of a cell, at the submission, or where the slowdown of a short job begins
    to rise.
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
        """Return each time's cell and the fraction of the cell before it.

        Times after the last edge cost nothing.
        """
        at = np.clip((times - self.begin) / self.width, 0.0, CELLS)
        cell = np.minimum(at.astype(np.int64), CELLS - 1)
        return cell, at - cell

    def bound(self, price: FloatArray) -> tuple[float, FloatArray]:
        """Return the bound on the sum of costs, and the excess node-seconds of each cell.

        The excess is the node-seconds used minus those available.

        Args:
            price: Price of a node-second in each cell [CELLS].
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
    """Return a lower bound on the energy of all nodes, in J.

    It holds under any policy, and covers the time from the first submission to the last end. Each
    node draws at least its smallest power in any state, and more while it computes. The last job
    ends no earlier than if no job had waited.

    Args:
        jobs: Submit times, runtimes and nodes.
        cluster: Cluster whose nodes all have the same speed.
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
