"""What is chosen without an agent on the jobs that it was trained on: the best policy, tuned formulas."""

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
"""Of the jobs of training, at most."""
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
"""Orderings with places, and what may stand there: F1 to F4, the shapes of WFP and of the smallest area."""

TIMEOUTS: dict[str, dict[str, Any]] = {
    f"{kind}:{{t}}s": {"t": {"low": 30, "high": 14_400, "log": True, "whole": True}}
    for kind in ("psus", "psas-auto", "psas-ipm")
}
"""Power policies with a place for the timeout."""

OBJECTIVES = {"energy_j": "total_energy_j"}
"""What a summary calls a metric that it calls otherwise."""


@dataclass(frozen=True, eq=False)
class Training:
    """Parts of what an agent was trained on, each by itself.

    Args:
        parts: their jobs, by name.
        cluster: the machine.
    """

    parts: Mapping[str, Workload]
    cluster: Cluster

    def best(
        self, runners: Mapping[str, Callable[[Workload], Mapping[str, Any]]], metric: str
    ) -> str:
        """The name of the one whose metric is lowest in the mean of the parts.

        Args:
            runners: run a part each, by name.
            metric: which.
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
        """The policy whose metric is lowest in the mean of the parts, of those that Optuna tries.

        Args:
            texts: policies with places, and what may stand in these.
            metric: which.
            baseline: a policy that has such a metric.
            progress: called with how many trials are over, and of how many.

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
    """Parts of what an agent was trained on, as long as the episodes that it is evaluated on.

    Args:
        card: the agent's.
        source: of these episodes.

    Raises:
        ConfigError: those jobs are not in the source's trace, or are among those evaluated on.
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
