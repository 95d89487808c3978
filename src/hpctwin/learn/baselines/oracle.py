"""Clairvoyant schedules and bounds of an episode, for comparison with an agent.

Schedules and the switching of nodes are feasible if everything is known beforehand. No schedule
beats the lower bounds on wait and energy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hpctwin.energy import Energy
from hpctwin.energy.power.states import group_of_node, node_watts
from hpctwin.engine.state.layout import COMPUTING, IDLE
from hpctwin.learn.baselines.baselines import Setting, run_policy
from hpctwin.learn.environments.episodes import Source
from hpctwin.metrics import TAU_S, with_job_metrics
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.policies import parse_policy
from hpctwin.simulation import Simulation

__all__ = [
    "AHEAD",
    "BOUND",
    "Oracle",
    "Waiting",
    "energy_ahead_j",
    "least_energy_j",
    "least_waiting",
    "starts_ahead",
    "waiting_ahead",
    "why_no_bound",
    "why_not_ahead",
]

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


GREEDY = ("sjf+first-fit", "smallest-area+first-fit")
"""Policies that are also tried, with runtimes as walltimes."""


def why_not_ahead(cluster: Cluster) -> str:
    """Return why a schedule by nodes alone may break a cluster's rules; else empty.

    Args:
        cluster: Cluster that has a bound (`hpctwin.learn.baselines.oracle.why_no_bound`).
    """
    rules = {
        "partitions": cluster.partitions,
        "cluster-wide resources": cluster.resources,
        "reservations": cluster.reservations,
        "limits": cluster.limits,
        "a cap": cluster.cap,
        "node cleanup": cluster.cleanup,
    }
    there = [name for name, given in rules.items() if given]
    return f"the cluster has {' and '.join(there)}" if there else ""


def waiting_ahead(metric: Waiting, jobs: Workload, cluster: Cluster) -> tuple[float, float]:
    """Return a metric's mean in the best of some clairvoyant schedules, and its end.

    Jobs get their nodes one after the other, each where it waits least. They are ordered by
    runtime, by area (nodes times runtime), or by area over the cost of waiting (W. E. Smith, 1956).
    An earlier job may choose from all time, and later jobs use the remaining gaps. The policies of
    `GREEDY` are tried too. The end is in seconds.

    Args:
        metric: Name of the metric.
        jobs: The jobs.
        cluster: The cluster; see `why_not_ahead`.
    """
    submit, run = jobs.submit_ms / MS_PER_S, run_s(jobs)
    area = run * jobs.nodes
    keys = [run, area]
    if metric == "mean_bounded_slowdown":
        keys.append(area * np.maximum(run, TAU_S))  # waiting costs more, the shorter a job is
    found = []
    for key in keys:
        start = starts_ahead(jobs, cluster.node_count, np.argsort(key, kind="stable"))
        wait = start - submit
        slowdown = np.maximum((wait + run) / np.maximum(run, TAU_S), 1.0)
        mean = wait.mean() if metric == "mean_wait_s" else slowdown.mean()
        found.append((float(mean), float((start + run).max())))
    known = dataclasses.replace(jobs, walltime_ms=np.minimum(jobs.runtime_ms, jobs.walltime_ms))
    for policy in GREEDY:
        table = with_job_metrics(Simulation(known, cluster, parse_policy(policy)).run().jobs)
        values, ends = (table[name].to_numpy() for name in (metric.removeprefix("mean_"), "end_s"))
        found.append((float(values.mean()), float(ends.max())))
    return min(found)


def starts_ahead(jobs: Workload, nodes: int, order: npt.NDArray[np.int64]) -> FloatArray:
    """Return each job's start if jobs are placed in order, each as early as possible.

    Args:
        jobs: Submit times, runtimes and nodes.
        nodes: Number of nodes of the cluster.
        order: Rows of the jobs in the order of placement.

    Returns:
        Start times, in s [jobs].
    """
    submit, run = jobs.submit_ms / MS_PER_S, run_s(jobs)
    times, free = np.array([submit.min(initial=0.0)]), np.array([nodes])
    start = np.zeros(len(jobs))
    for row in order.tolist():
        wanted = int(jobs.nodes[row])
        first = int(np.searchsorted(times, submit[row], "right")) - 1
        full = first + np.flatnonzero(free[first:] < wanted)
        # A job can start at its submission, or after any span that is too full. The next such span
        # must begin no earlier than the job would end.
        begins = np.concatenate([[submit[row]], times[full + 1]])
        nexts = np.concatenate([times[full], [np.inf]])
        start[row] = begin = float(begins[np.argmax(nexts - begins >= run[row])])
        end = begin + run[row]
        if end <= begin:
            continue
        for edge in (begin, end):
            place = int(np.searchsorted(times, edge))
            if place == len(times) or times[place] != edge:
                times = np.insert(times, place, edge)
                free = np.insert(free, place, free[place - 1])
        free[np.searchsorted(times, begin) : np.searchsorted(times, end)] -= wanted
    return start


def energy_ahead_j(energy: Energy) -> float:
    """Return the energy if each node were off in every gap where that saves, in J.

    Jobs start when and where they did while all nodes stayed on. Each node is on again exactly in
    time, which requires knowing when its next job starts. The best sleep state of each gap counts.

    Args:
        energy: Energy of a run under power policy ``none``.
    """
    watts = node_watts(energy.cluster)
    groups = list(group_of_node(energy.cluster))
    spans = energy.node_map
    counts = spans["count"].to_numpy()
    row = np.repeat(np.arange(len(spans)), counts)
    offset = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    node = spans["first_node"].to_numpy()[row] + offset
    start, end = spans["start_s"].to_numpy()[row], spans["end_s"].to_numpy()[row]
    # The time of each node is its jobs, with an edge before the first and after the last.
    nodes = np.arange(len(groups))
    node = np.concatenate([nodes, node, nodes])
    first, final = (np.full(len(nodes), time) for time in (energy.begin_s, energy.now_s))
    start = np.concatenate([first, start, final])
    end = np.concatenate([first, end, final])
    order = np.lexsort((end, start, node))
    node, start, end = node[order], start[order], end[order]
    total = float(((end - start) * watts[COMPUTING, node]).sum())
    within = node[1:] == node[:-1]
    gap, of = (start[1:] - end[:-1])[within], node[1:][within]
    last = np.append(node[2:] != node[1:-1], True)[within]
    cost = gap * watts[IDLE, of]
    for depth in range(energy.cluster.depths):
        has = np.array([len(group.sleep) > depth for group in groups])[of]
        states = [group.sleep[depth] if len(group.sleep) > depth else None for group in groups]
        off_s = np.array([0.0 if one is None else one.switch_off.time for one in states])[of]
        on_s = np.array([0.0 if one is None else one.switch_on.time for one in states])[of]
        off_w, asleep_w, on_w = watts[2 + 3 * depth : 5 + 3 * depth, of]
        # After its last job a node need not be on, or even fully asleep, when the run ends.
        away = np.where(last, np.minimum(off_s, gap), off_s)
        back = np.where(last, 0.0, on_s)
        slept = off_w * away + asleep_w * (gap - away - back) + on_w * back
        fits = has & (gap >= away + back)
        cost = np.where(fits, np.minimum(cost, slept), cost)
    return total + float(cost.sum())


AHEAD = "known ahead"
BOUND = "lower bound"


class Oracle:
    """Clairvoyant rows of one metric; impossible rows are omitted with a reason.

    Args:
        metric: Name of the metric.
        setting: Fixed part of the agent's decisions.
        source: Source of episodes.
    """

    def __init__(self, metric: str, setting: Setting, source: Source) -> None:
        self.metric, self.setting, self.cluster = metric, setting, source.cluster
        self.omitted: dict[str, str] = {}
        why = why_no_bound(source.all_jobs(), source.cluster)
        if why:
            self.omitted = {AHEAD: why, BOUND: why}
        elif metric == "energy_j" and setting.pool:
            self.omitted[AHEAD] = "the agent itself decides when jobs start"
        elif metric != "energy_j" and setting.kind == "PowerManagement":
            self.omitted[AHEAD] = "the bound covers only energy if nodes are switched"
        elif metric != "energy_j" and (why := why_not_ahead(source.cluster)):
            self.omitted[AHEAD] = why

    def rows(self, jobs: Workload, *, served: bool) -> Iterator[dict[str, Any]]:
        """Yield the rows of an episode.

        Args:
            jobs: Jobs of the episode.
            served: Whether all of them ended under every policy compared.
        """
        if not served:
            self.omitted |= dict.fromkeys((AHEAD, BOUND), "some jobs never ran")
        if BOUND in self.omitted:
            return
        yield from self._of_energy(jobs) if self.metric == "energy_j" else self._of_waiting(jobs)

    def _of_energy(self, jobs: Workload) -> Iterator[dict[str, Any]]:
        policy = parse_policy(self.setting.powered("none"))
        result = run_policy(jobs, self.cluster, policy).result()
        assert result.energy is not None
        served = with_job_metrics(result.jobs)
        slowdown, wait = served.select("bounded_slowdown", "wait_s").mean().row(0)
        yield {
            "policy": AHEAD, "kind": "oracle", "energy_j": energy_ahead_j(result.energy),
            "mean_bounded_slowdown": slowdown, "mean_wait_s": wait,
        }  # fmt: skip
        yield {"policy": BOUND, "kind": "bound", "energy_j": least_energy_j(jobs, self.cluster)}

    def _of_waiting(self, jobs: Workload) -> Iterator[dict[str, Any]]:
        metric: Any = self.metric
        reached, until_s = waiting_ahead(metric, jobs, self.cluster)
        if AHEAD not in self.omitted:
            yield {"policy": AHEAD, "kind": "oracle", metric: reached}
        least = least_waiting(
            metric, jobs, self.cluster.node_count, reached=reached, until_s=until_s
        )
        yield {"policy": BOUND, "kind": "bound", metric: least}
