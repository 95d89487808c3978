"""Clairvoyant schedules and bounds of an episode, for comparison with an agent.

Feasible schedules and switching of nodes if everything is known beforehand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.energy import Energy
from hpctwin.energy.power.states import group_of_node, node_watts
from hpctwin.engine.state.layout import COMPUTING, IDLE
from hpctwin.learn.baselines.baselines import Setting, run_policy
from hpctwin.learn.baselines.lower_bounds import (
    Waiting,
    least_energy_j,
    least_waiting,
    run_s,
    why_no_bound,
)
from hpctwin.learn.environments.episodes import Source
from hpctwin.metrics import TAU_S, with_job_metrics
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.policies import parse_policy
from hpctwin.simulation import Simulation

__all__ = [
    "AHEAD",
    "BOUND",
    "Oracle",
    "energy_ahead_j",
    "starts_ahead",
    "waiting_ahead",
    "why_not_ahead",
]

FloatArray = npt.NDArray[np.float64]

GREEDY = ("sjf+first-fit", "smallest-area+first-fit")
"""Policies that are also tried, with runtimes as walltimes."""


def why_not_ahead(cluster: Cluster) -> str:
    """Return why a schedule by nodes alone may break a cluster's rules; else empty.

    Args:
        cluster: Cluster that has a bound (`hpctwin.learn.baselines.lower_bounds.why_no_bound`).
    """
    rules = {
        "partitions": cluster.partitions,
        "cluster-wide resources": cluster.resources,
        "reservations": cluster.reservations,
        "limits": cluster.limits,
        "a cap": cluster.cap,
        "nodes that are cleaned up after jobs": cluster.cleanup,
    }
    there = [name for name, given in rules.items() if given]
    return f"the machine has {' and '.join(there)}" if there else ""


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
        self.left_out: dict[str, str] = {}
        why = why_no_bound(source.all_jobs(), source.cluster)
        if why:
            self.left_out = {AHEAD: why, BOUND: why}
        elif metric == "energy_j" and setting.pool:
            self.left_out[AHEAD] = "when jobs start is what the agent decides"
        elif metric != "energy_j" and setting.kind == "PowerManagement":
            self.left_out[AHEAD] = "of nodes that are switched it tells energy alone"
        elif metric != "energy_j" and (why := why_not_ahead(source.cluster)):
            self.left_out[AHEAD] = why

    def rows(self, jobs: Workload, *, served: bool) -> Iterator[dict[str, Any]]:
        """Yield the rows of an episode.

        Args:
            jobs: Jobs of the episode.
            served: Whether all of them ended under every policy compared.
        """
        if not served:
            self.left_out |= dict.fromkeys((AHEAD, BOUND), "some jobs never ran")
        if BOUND in self.left_out:
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
        if AHEAD not in self.left_out:
            yield {"policy": AHEAD, "kind": "oracle", metric: reached}
        least = least_waiting(
            metric, jobs, self.cluster.node_count, reached=reached, until_s=until_s
        )
        yield {"policy": BOUND, "kind": "bound", metric: least}
