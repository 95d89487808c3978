"""Clairvoyant choices of policies and clusters: they know runtimes and arrivals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hpctwin.facility import Facility
from hpctwin.learn.baselines.baselines import Choose, of_strategy, played
from hpctwin.learn.environments.policy_selection import PolicySelection
from hpctwin.metrics import TAU_S
from hpctwin.model import MS_PER_S, Workload
from hpctwin.simulation import Simulation

__all__ = ["CHOSEN", "TRUE_TIMES", "PlacementOracle", "PolicyOracle", "best_for_the_rest"]

CHOSEN = "policies known ahead"
TRUE_TIMES = "sgs-t, run times known"


class PolicyOracle:
    """Rows of one metric for comparison with an agent that chooses policies.

    It has the interface of `hpctwin.learn.baselines.oracle.Oracle`.

    Args:
        metric: Name of the metric.
        environment: Environment of the agent.
    """

    def __init__(self, metric: str, environment: PolicySelection) -> None:
        energy = {CHOSEN: "they are chosen for waiting alone"}
        self.left_out: dict[str, str] = energy if metric == "energy_j" else {}
        self._run = played(environment, best_for_the_rest(metric))

    def rows(self, jobs: Workload, *, served: bool) -> Iterator[dict[str, Any]]:
        """Yield the row of policies chosen with all jobs known; see `best_for_the_rest`.

        Args:
            jobs: Jobs of the episode.
            served: Whether all of them ended under every policy compared.
        """
        if not served:
            self.left_out[CHOSEN] = "some jobs never ran"
        if not self.left_out:
            yield {**self._run(jobs), "policy": CHOSEN, "kind": "oracle", "us_per_job": None}


def best_for_the_rest(metric: str) -> Choose:
    """Return a function that chooses the policy that is best to the end.

    It knows all jobs, and tries each policy to the end. Keeping the present policy is always
    possible, so the result is never worse than that of the best single policy. The optimum over all
    sequences of choices may be better.

    Args:
        metric: ``mean_wait_s`` or ``mean_bounded_slowdown``.
    """

    def choose(environment: Any, seen: Any) -> int:
        rules, found = environment.rules, []
        for number, policy in enumerate(environment.policies):
            fork = environment.simulation.fork(None if number == rules else policy)
            fork.advance()
            found.append(_mean(metric, fork))
        best = int(np.argmin(found))
        return rules if found[rules] <= found[best] else best

    return choose


def _mean(metric: str, simulation: Simulation) -> float:
    """Return the mean of a metric over the jobs that ran."""
    start, end = (simulation.column(name) / MS_PER_S for name in ("start", "end"))
    ran = start >= 0
    wait = (start - simulation.submit_ms / MS_PER_S)[ran]
    if metric == "mean_wait_s":
        return float(wait.mean())
    run = (end - start)[ran]
    return float(np.maximum((wait + run) / np.maximum(run, TAU_S), 1.0).mean())


class PlacementOracle:
    """Rows of one metric for comparison with an agent that chooses clusters.

    It has the interface of `hpctwin.learn.baselines.oracle.Oracle`.

    Args:
        facility: The clusters.
    """

    def __init__(self, facility: Facility) -> None:
        self.left_out: dict[str, str] = {}
        self._run = of_strategy("sgs-t", facility, knows="oracle")

    def rows(self, jobs: Workload, *, served: bool) -> Iterator[dict[str, Any]]:
        """Yield the row of CQSim+'s published placement, which uses the true runtimes.

        Args:
            jobs: Jobs of the episode.
            served: Whether all of them ended.
        """
        yield {**self._run(jobs), "policy": TRUE_TIMES, "kind": "oracle", "us_per_job": None}
