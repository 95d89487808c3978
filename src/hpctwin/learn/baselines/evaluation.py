"""Comparison of an agent with baselines on episodes that it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.facility import Facility
from hpctwin.learn.baselines import baselines
from hpctwin.learn.baselines.baselines import (
    BY_CHANCE,
    METRICS,
    SCHEDTWIN,
    Machine,
    Metric,
    Runner,
    Setting,
    by_chance,
    name_of,
    of_policy,
    of_rule,
    policy_of,
    twins,
)
from hpctwin.learn.baselines.chosen_policies import (
    FORMULAS,
    TIMEOUTS,
    PlacementOracle,
    PolicyOracle,
    Training,
    training_of,
)
from hpctwin.learn.baselines.oracle import Oracle
from hpctwin.learn.environments.episodes import Source
from hpctwin.learn.environments.placement import PlacementEnv
from hpctwin.learn.environments.policy_selection import PolicySelectionEnv
from hpctwin.learn.training.custom import options_of
from hpctwin.learn.training.training import environment_of
from hpctwin.metrics import mean_interval
from hpctwin.policies import parse_policy
from hpctwin.policies.agents import Network

__all__ = ["HINDSIGHT", "METRICS", "WITHOUT", "Evaluation", "evaluate", "held_out", "policy_of"]

HINDSIGHT = "best in hindsight"

Without = Literal["tuned", "schedtwin", "oracle"]
WITHOUT: tuple[Without, ...] = ("tuned", "schedtwin", "oracle")
"""Baselines that can be omitted because they take time."""

_RUNS = {
    "policy": pl.String, "kind": pl.String, "episode": pl.Int64, "mean_bounded_slowdown": pl.Float64,
    "mean_wait_s": pl.Float64, "mean_turnaround_s": pl.Float64, "energy_j": pl.Float64,
    "us_per_job": pl.Float64, "served": pl.Int64,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Results of an agent and its baselines on the same episodes.

    Args:
        agent: Name of the agent among the policies.
        metric: Metric that is compared and tuned for.
        runs: A row for each policy and episode: ``policy``; ``kind`` (agent, static, random, tuned
            or twin); ``episode``; ``mean_bounded_slowdown``, ``mean_wait_s``, ``mean_turnaround_s``
            (null if an environment does not report it), ``energy_j`` (null without power);
            ``us_per_job``, the time for decisions; ``served``, the number of jobs that ended.
        oracle: The same columns for clairvoyant schedules and bounds; other metrics are null if
            they have none.
        best_before: Static policy that was best on the training jobs; empty if unknown.
        omitted: Reason for each omitted baseline.
    """

    agent: str
    metric: Metric
    runs: pl.DataFrame
    oracle: pl.DataFrame
    best_before: str = ""
    omitted: dict[str, str] = field(default_factory=dict)

    def table(self, metric: str = "") -> pl.DataFrame:
        """Return a row for each policy, the best first.

        Columns are

        - ``policy`` and ``kind``
        - the mean of the metric over episodes
        - ``more``, the difference to the agent's, with the ends ``low`` and ``high`` of its 95 %
          bootstrap interval, paired by episode
        - ``us_per_job``

        `HINDSIGHT` is the best baseline of each episode, without the agent, random choices and
        clairvoyant rows. It is the best that choosing among the baselines could reach.

        Args:
            metric: Column of `runs`; by default the compared metric.
        """
        metric = metric or self.metric
        everybody = pl.concat([self.runs, self.oracle]).filter(pl.col(metric).is_not_null())
        by_policy = {
            (str(name), str(kind)): part.sort("episode")
            for (name, kind), part in everybody.group_by("policy", "kind", maintain_order=True)
        }
        costs = {whose: part["us_per_job"].mean() for whose, part in by_policy.items()}
        found = {whose: part[metric].to_numpy() for whose, part in by_policy.items()}
        own = found[self.agent, "agent"]
        beside = [
            values for (_, kind), values in found.items() if kind in ("static", "tuned", "twin")
        ]
        if beside:
            found[HINDSIGHT, "oracle"] = np.min(beside, axis=0)
        rows = []
        for (name, kind), values in found.items():
            more = mean_interval(values - own)
            rows.append(
                {
                    "policy": name, "kind": kind, metric: float(values.mean()),
                    "more": more.mean, "low": more.low, "high": more.high,
                    "us_per_job": costs.get((name, kind)),
                }
            )  # fmt: skip
        schema = dict.fromkeys((metric, "more", "low", "high", "us_per_job"), pl.Float64)
        return pl.DataFrame(rows, {"policy": pl.String, "kind": pl.String, **schema}).sort(metric)

    def plain(self) -> dict[str, Any]:
        """Return the results as values that JSON can hold."""
        return {
            "metric": self.metric,
            "agent": self.agent,
            "policies": self.table().to_dicts(),
            "best_before": self.best_before or None,
            "omitted": self.omitted,
        }


def evaluate(
    path: str | Path,
    source: Source,
    *,
    episodes: int = 10,
    seed: int = 0,
    policies: Iterable[str] = (),
    metric: Metric | None = None,
    without: Collection[Without] = (),
    progress: Callable[[float], None] | None = None,
    facility: Facility | None = None,
    observation: str | None = None,
) -> Evaluation:
    """Run an agent and its baselines (docs/how-to/train-agents.md) on the same episodes.

    Args:
        path: File of the agent.
        source: Source of episodes.
        episodes: Number of episodes.
        seed: Seed of the episodes drawn.
        policies: Further policies; strategies for a facility.
        metric: Metric to compare; by default the one the agent was trained for.
        without: Baselines of `WITHOUT` to omit.
        progress: Function called with the share of work done.
        facility: Clusters, for an agent of Placement.
        observation: ``FILE.py:NAME`` of the agent's custom observation, if the file is elsewhere
            than in training.

    Raises:
        PolicyError: The agent has no baselines, or a policy is invalid.
        ConfigError: The metric is not available, or a facility is missing or not expected.
        UnknownNameError: A name in ``without`` is unknown.
    """
    for unwanted in without:
        if unwanted not in WITHOUT:
            raise UnknownNameError("baseline", unwanted, WITHOUT)
    network = Network.load(path)
    setting = Setting.of(network)
    metric = metric or setting.earns
    own, run_own = baselines.agent(path, source, facility, observation)
    machine = source.cluster if facility is None else facility
    _check_metric(metric, machine)
    static = {text: of_rule(text, machine) for text in setting.static(machine)}
    more = {name_of(text, machine): of_rule(text, machine) for text in policies}
    omitted: dict[str, str] = dict.fromkeys(without, "as asked")
    runners: list[tuple[str, str, Runner]] = [(own, "agent", run_own)]
    runners += [(name, "static", run) for name, run in {**static, **more}.items() if name != own]
    environment = None
    if setting.pool or facility is not None:
        environment = environment_of(
            setting.kind, source, options_of(network.card, observation), facility
        )
        runners.append((BY_CHANCE, "random", by_chance(environment)))
    best_before = ""
    try:
        training = training_of(network.card, source)
        best_before = training.best(static, metric)
    except ConfigError as error:
        omitted.setdefault("tuned", str(error))
        omitted["best before"] = str(error)
    if "tuned" not in omitted:
        try:
            found = tuned(training, setting, metric)
            runners.append((found, "tuned", of_policy(parse_policy(found), source.cluster)))
        except ConfigError as error:
            omitted["tuned"] = str(error)
    if why := _why_no_twin(setting, metric):
        omitted[SCHEDTWIN] = why
    if SCHEDTWIN not in omitted:
        runners += [(name, "twin", run) for name, run in twins(setting, source.cluster).items()]
    oracles = [] if "oracle" in omitted else _oracles(metric, setting, source, environment)
    rows: list[dict[str, Any]] = []
    ahead: list[dict[str, Any]] = []
    rng = np.random.default_rng(seed)
    for number in range(episodes):
        jobs = source.draw(rng).make()
        for place, (name, kind, run) in enumerate(runners):
            rows.append({"policy": name, "kind": kind, "episode": number, **run(jobs)})
            if progress is not None:
                progress((number + (place + 1) / (len(runners) + 1)) / episodes)
        served = all(row["served"] == len(jobs) for row in rows[-len(runners) :])
        for oracle in oracles:
            ahead += [{**row, "episode": number} for row in oracle.rows(jobs, served=served)]
    for oracle in oracles:
        omitted |= oracle.omitted
    ahead = [row for row in ahead if row["policy"] not in omitted]
    if progress is not None:
        progress(1.0)
    return Evaluation(
        own, metric, pl.DataFrame(rows, _RUNS), pl.DataFrame(ahead, _RUNS), best_before, omitted
    )


def _check_metric(metric: str, machine: Machine) -> None:
    """Check that a metric is available.

    Raises:
        ConfigError: It is not.
    """
    if isinstance(machine, Facility):
        if metric == "energy_j":
            raise ConfigError(
                "agents that choose clusters are compared by waits, slowdowns and turnarounds only"
            )
    elif metric == "energy_j" and not machine.has_power:
        raise ConfigError("energy_j is unavailable, because the cluster has no power model")
    elif metric == "mean_turnaround_s":
        raise ConfigError(
            "mean_turnaround_s is only for agents that choose clusters; on one cluster use "
            "mean_wait_s"
        )


def _why_no_twin(setting: Setting, metric: str) -> str:
    """Return why SchedTwin is not among the baselines; empty if it is."""
    if setting.kind == "PowerManagement":
        return "a twin starts jobs and switches no nodes"
    if setting.kind == "Placement":
        return "a twin controls one cluster; earliest-start and sgs-t look ahead instead"
    if metric == "energy_j" or any(parse_policy(one).power.name != "none" for one in setting.pool):
        return "the emulated cluster of the twin reports no energy and switches no nodes"
    return ""


def _oracles(metric: str, setting: Setting, source: Source, environment: Any) -> list[Any]:
    """Return the clairvoyant baselines.

    ``environment`` is that of an agent that chooses policies or clusters; otherwise None.
    """
    if isinstance(environment, PlacementEnv):
        return [PlacementOracle(environment.facility)]
    known: list[Any] = [Oracle(metric, setting, source)]
    if isinstance(environment, PolicySelectionEnv):
        known.append(PolicyOracle(metric, environment))
    return known


def tuned(training: Training, setting: Setting, metric: Metric) -> str:
    """Return the policy of the setting that Optuna finds on the training jobs.

    Raises:
        ConfigError: There is nothing to tune, or Optuna is not installed.
    """
    if setting.kind == "Placement":
        raise ConfigError("no formulas of clusters can be tuned")
    if setting.kind == "PowerManagement":
        texts = {setting.powered(power): places for power, places in TIMEOUTS.items()}
    else:
        texts = {f"{order}+{setting.backfill}": places for order, places in FORMULAS.items()}
    return training.tuned(texts, metric, setting.static(training.cluster)[0])


def held_out(
    path: str | Path, source: Source, *, episodes: int = 8, facility: Facility | None = None
) -> dict[str, Any]:
    """Return an agent's results on held-out jobs and the baselines, for its card.

    Returns:
        The metric; the agent's mean; the best policy that is not clairvoyant and its mean; how far
        the agent is above it, with the ends of the 95 % interval; the table, and the omitted
        baselines.
    """
    found = evaluate(path, source, episodes=episodes, facility=facility)
    rows = found.table().to_dicts()
    own = next(row for row in rows if row["kind"] == "agent")
    best = next(row for row in rows if row["kind"] in ("static", "tuned", "twin"))
    ends = (best["more"], best["high"], best["low"])
    return {
        "metric": found.metric,
        "episodes": episodes,
        "agent": own[found.metric],
        "best": best["policy"],
        "of_best": best[found.metric],
        "more": [None if end is None else -end for end in ends],
        "beside": rows,
        "best_before": found.best_before or None,
        "omitted": found.omitted,
    }
