"""Policies to compare with: chosen with foresight, or tuned on the training jobs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpctwin.errors import ConfigError
from hpctwin.facility import Facility
from hpctwin.learn.baselines.baselines import Choose, of_strategy, played
from hpctwin.learn.environments.episodes import Episodes, Source
from hpctwin.learn.environments.policy_selection import PolicySelectionEnv
from hpctwin.metrics import TAU_S
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.simulation import Simulation
from hpctwin.sweep.search import Sought, look_for

__all__ = [
    "CHOSEN",
    "FORMULAS",
    "TIMEOUTS",
    "TRUE_TIMES",
    "PlacementOracle",
    "PolicyOracle",
    "Training",
    "best_for_the_rest",
    "training_of",
]

CHOSEN = "policies known ahead"
TRUE_TIMES = "sgs-t, known runtimes"


class PolicyOracle:
    """Rows of one metric for comparison with an agent that chooses policies.

    It has the interface of `hpctwin.learn.baselines.oracle.Oracle`.
    """

    def __init__(self, metric: str, environment: PolicySelectionEnv) -> None:
        energy = {CHOSEN: "they are chosen by waits only"}
        self.omitted: dict[str, str] = energy if metric == "energy_j" else {}
        self._run = played(environment, best_for_the_rest(metric))

    def rows(self, jobs: Workload, *, served: bool) -> Iterator[dict[str, Any]]:
        """Yield the row of policies chosen with all jobs known; see `best_for_the_rest`.

        Args:
            jobs: Jobs of the episode.
            served: Whether all of them ended under every policy compared.
        """
        if not served:
            self.omitted[CHOSEN] = "some jobs never ran"
        if not self.omitted:
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
    """

    def __init__(self, facility: Facility) -> None:
        self.omitted: dict[str, str] = {}
        self._run = of_strategy("sgs-t", facility, knows="oracle")

    def rows(self, jobs: Workload, *, served: bool) -> Iterator[dict[str, Any]]:
        """Yield the row of CQSim+'s published placement, which uses the true runtimes."""
        yield {**self._run(jobs), "policy": TRUE_TIMES, "kind": "oracle", "us_per_job": None}


PARTS = 8
"""Largest number of parts of the training jobs."""
TRIALS = 120

_SUBMIT = "log10(max(submit,1.0))"
FORMULAS: dict[str, dict[str, Any]] = {
    f"log10(expected)*nodes+{{f1}}*{_SUBMIT}": {"f1": {"low": 1.0, "high": 1e6, "log": True}},
    f"sqrt(expected)*nodes+{{f2}}*{_SUBMIT}": {"f2": {"low": 10.0, "high": 1e8, "log": True}},
    f"expected*nodes+{{f3}}*{_SUBMIT}": {"f3": {"low": 1e3, "high": 1e10, "log": True}},
    f"expected*sqrt(nodes)+{{f4}}*{_SUBMIT}": {"f4": {"low": 1e2, "high": 1e9, "log": True}},
    "-(wait/walltime)**{a}*nodes**{b}": {"a": {"low": 0.1, "high": 5}, "b": {"low": -1, "high": 2}},
    "expected**{p}*nodes**{q}": {"p": {"low": 0, "high": 2}, "q": {"low": -1, "high": 2}},
}
"""Orderings with placeholders and their ranges.

They are F1 to F4, and the shapes of WFP and of the smallest area.
"""

TIMEOUTS: dict[str, dict[str, Any]] = {
    f"{kind}:{{t}}s": {"t": {"low": 30, "high": 14_400, "log": True, "whole": True}}
    for kind in ("psus", "psas-auto", "psas-ipm")
}
"""Power policies with a placeholder for the timeout."""

OBJECTIVES = {"energy_j": "total_energy_j"}
"""Names of metrics in a summary, where they differ."""


@dataclass(frozen=True, eq=False)
class Training:
    """Parts of the jobs that an agent was trained on, each simulated on its own."""

    parts: Mapping[str, Workload]
    cluster: Cluster

    def best(
        self, runners: Mapping[str, Callable[[Workload], Mapping[str, Any]]], metric: str
    ) -> str:
        """Return the name of the runner with the lowest mean metric over the parts."""
        means = {
            name: float(np.mean([run(jobs)[metric] for jobs in self.parts.values()]))
            for name, run in runners.items()
        }
        return min(means, key=lambda name: (means[name], name))

    def tuned(
        self,
        texts: Mapping[str, Mapping[str, Any]],
        metric: str,
        baseline: str,
        progress: Callable[[int, int], None] | None = None,
    ) -> str:
        """Return the policy with the lowest mean metric over the parts that Optuna finds.

        Args:
            texts: Policies with placeholders, and the ranges of these.
            metric: Name of the metric.
            baseline: Policy that has this metric.
            progress: Function called with the number of finished trials, and of all.

        Raises:
            ConfigError: Optuna is not installed.
        """
        end_ms = max(int(jobs.submit_ms[-1]) for jobs in self.parts.values()) + 1
        about = {
            "workloads": list(self.parts), "clusters": ["machine"], "policies": list(texts),
            "parameters": {name: one for places in texts.values() for name, one in places.items()},
            "objectives": [OBJECTIVES.get(metric, metric)], "baseline": baseline,
            "train": [{"begin": "0s", "end": f"{end_ms / MS_PER_S}s"}],
            "trials": TRIALS, "prefixes": [],
        }  # fmt: skip
        sought = Sought.checked(about, "formulas to tune")
        with tempfile.TemporaryDirectory(prefix="hpctwin-tuned-") as folder:
            _, (winner,) = look_for(sought, out=folder, given=self._given, progress=progress)
        return winner

    @property
    def _given(self) -> dict[str, Workload | Cluster]:
        return {**self.parts, "machine": self.cluster}


def training_of(card: Mapping[str, Any], source: Source) -> Training:
    """Return parts of the training jobs, as long as the episodes of the evaluation.

    Raises:
        ConfigError: The training jobs are not in the source's trace, or overlap those of the
            evaluation.
    """
    data = card.get("data", {})
    if not isinstance(source, Episodes):
        raise ConfigError("a generator makes the episodes, so the training jobs are not available")
    if data.get("trace") != source.workload.name:
        raise ConfigError(
            f"the agent was trained on {data.get('trace', 'other jobs')!r}, but this trace "
            f"is {source.workload.name!r}"
        )
    first, last = int(data.get("first", 0)), min(int(data["last"]), len(source.workload))
    end = len(source.workload) if source.last is None else source.last
    if first < end and source.first < last:
        raise ConfigError(
            f"evaluation includes jobs {first:,} to {last:,}, which the agent was trained "
            "on; start after them"
        )
    length = min(source.jobs, last - first)
    count = min(PARTS, max(1, (last - first) // length))
    begins = np.linspace(first, last - length, count).astype(int).tolist()
    whole = Episodes(source.workload, source.cluster, length, first, last)
    parts = {f"part {number}": whole.beginning_at(begin) for number, begin in enumerate(begins, 1)}
    return Training(parts, source.cluster)
