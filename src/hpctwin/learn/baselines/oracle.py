"""Clairvoyant schedules and bounds of an episode, for comparison with an agent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hpctwin.learn.baselines.baselines import Setting, run_policy
from hpctwin.learn.baselines.clairvoyant import energy_ahead_j, waiting_ahead, why_not_ahead
from hpctwin.learn.baselines.lower_bounds import least_energy_j, least_waiting, why_no_bound
from hpctwin.learn.environments.episodes import Source
from hpctwin.metrics import with_job_metrics
from hpctwin.model import Workload
from hpctwin.policies import parse_policy

__all__ = ["AHEAD", "BOUND", "Oracle"]

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
