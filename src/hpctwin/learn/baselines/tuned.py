"""Best static policy and tuned formulas on the jobs that an agent was trained on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpctwin.errors import ConfigError
from hpctwin.learn.environments.episodes import Episodes, Source
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.sweep.search import Sought, look_for

__all__ = ["FORMULAS", "TIMEOUTS", "Training", "training_of"]

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
    """Parts of the jobs that an agent was trained on, each simulated on its own.

    Args:
        parts: Jobs of each part, by name.
        cluster: The cluster.
    """

    parts: Mapping[str, Workload]
    cluster: Cluster

    def best(
        self, runners: Mapping[str, Callable[[Workload], Mapping[str, Any]]], metric: str
    ) -> str:
        """Return the name of the runner with the lowest mean metric over the parts.

        Args:
            runners: Functions that run a part, by name.
            metric: Name of the metric.
        """
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
        sought = Sought.checked(about, "formulas to be tuned")
        with tempfile.TemporaryDirectory(prefix="hpctwin-tuned-") as folder:
            _, (winner,) = look_for(sought, out=folder, given=self._given, progress=progress)
        return winner

    @property
    def _given(self) -> dict[str, Workload | Cluster]:
        return {**self.parts, "machine": self.cluster}


def training_of(card: Mapping[str, Any], source: Source) -> Training:
    """Return parts of the training jobs, as long as the episodes of the evaluation.

    Args:
        card: Card of the agent.
        source: Source of the evaluation's episodes.

    Raises:
        ConfigError: The training jobs are not in the source's trace, or overlap those of the
            evaluation.
    """
    data = card.get("data", {})
    if not isinstance(source, Episodes):
        raise ConfigError(
            "episodes are made by a generator, and the jobs of training are not there"
        )
    if data.get("trace") != source.workload.name:
        raise ConfigError(
            f"the agent was trained on {data.get('trace', 'other jobs')!r}, and this trace is "
            f"{source.workload.name!r}"
        )
    first, last = int(data.get("first", 0)), min(int(data["last"]), len(source.workload))
    end = len(source.workload) if source.last is None else source.last
    if first < end and source.first < last:
        raise ConfigError(
            f"jobs {first:,} to {last:,}, which the agent was trained on, are among those that it is "
            "evaluated on; begin after them"
        )
    length = min(source.jobs, last - first)
    count = min(PARTS, max(1, (last - first) // length))
    begins = np.linspace(first, last - length, count).astype(int).tolist()
    whole = Episodes(source.workload, source.cluster, length, first, last)
    parts = {f"part {number}": whole.beginning_at(begin) for number, begin in enumerate(begins, 1)}
    return Training(parts, source.cluster)
