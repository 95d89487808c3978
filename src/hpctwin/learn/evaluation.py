"""What an agent is worth: beside the policies that need no training, on episodes that it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from hpctwin.errors import PolicyError
from hpctwin.learn.episodes import Source
from hpctwin.metrics import mean_interval, with_job_metrics
from hpctwin.model import Workload
from hpctwin.policies import Policy, parse_policy
from hpctwin.policies.network import Network
from hpctwin.simulation import Simulation

__all__ = ["BASELINES", "HINDSIGHT", "Evaluation", "evaluate", "held_out", "policy_of"]

HINDSIGHT = "best in hindsight"

BASELINES: dict[str, tuple[str, ...]] = {
    "JobSelection": ("fcfs", "sjf", "smallest", "smallest-area", "wfp", "unicef", "f1", "f2", "f3", "f4"),
    "PowerManagement": (
        "none", "psus:5m", "psus:20m", "psus:1h", "psas-auto:20m",
        "psas-ipm:5m", "psas-ipm:20m", "psas-ipm:1h",
    ),
}  # fmt: skip
"""Orderings, or power policies, beside an agent of each kind."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How policies did on the same episodes.

    Args:
        agent: the first of them.
        runs: a row for each policy and episode: ``policy``, ``episode``, ``mean_bounded_slowdown``,
            ``mean_wait_s``,
            ``energy_j`` (null without power) and ``us_per_job``, the engine's time.
    """

    agent: str
    runs: pl.DataFrame

    def table(self, metric: str = "mean_bounded_slowdown") -> pl.DataFrame:
        """A row for each policy, the best first.

        ``policy``; the mean of the metric over episodes; ``more``, by how much that is above the
        agent's, with the ends
        ``low`` and ``high`` of its 95 % bootstrap interval, paired by episode; ``us_per_job``. `HINDSIGHT` is
        on each episode the best of the others: what choosing among them could reach at most.

        Args:
            metric: a column of `runs`.
        """
        by_policy = {
            str(name): part.sort("episode")
            for (name,), part in self.runs.group_by("policy", maintain_order=True)
        }
        costs = {name: part["us_per_job"].mean() for name, part in by_policy.items()}
        found = {name: part[metric].to_numpy() for name, part in by_policy.items()}
        own = found[self.agent]
        beside = [values for name, values in found.items() if name != self.agent]
        if beside:
            found[HINDSIGHT] = np.min(beside, axis=0)
        rows = []
        for name, values in found.items():
            more = mean_interval(values - own)
            rows.append(
                {
                    "policy": name,
                    metric: float(values.mean()),
                    "more": more.mean,
                    "low": more.low,
                    "high": more.high,
                    "us_per_job": costs.get(name),
                }
            )
        schema = dict.fromkeys((metric, "more", "low", "high", "us_per_job"), pl.Float64)
        return pl.DataFrame(rows, schema={"policy": pl.String, **schema}).sort(metric)


def policy_of(path: str | Path) -> Policy:
    """The policy that an agent is, with the backfill, or order, that it was trained with.

    Raises:
        PolicyError: it is no such file, or can be no part of a policy.
    """
    card = Network.load(path).card
    options = card.get("options", {})
    if card.get("environment") == "JobSelection":
        return parse_policy(f"{path}+{'easy' if options.get('backfilling') else 'none'}")
    if card.get("environment") == "PowerManagement":
        base, _, _ = str(options.get("policy", "fcfs+easy~orders")).rpartition("~")
        return parse_policy(f"{base}~{path}")
    raise PolicyError(
        f"{path} is an agent of {card.get('environment')}, which is no part of a policy"
    )


def baselines_of(path: str | Path) -> list[Policy]:
    """The policies beside an agent: all else is the same."""
    kind = str(Network.load(path).card["environment"])
    own = policy_of(path)
    if kind == "JobSelection":
        return [parse_policy(f"{name}+{own.backfill}") for name in BASELINES[kind]]
    return [parse_policy(f"{own.order.name}+{own.backfill}~{name}") for name in BASELINES[kind]]


def evaluate(
    path: str | Path,
    source: Source,
    *,
    episodes: int = 10,
    seed: int = 0,
    policies: Iterable[str] = (),
    progress: Callable[[float], None] | None = None,
) -> Evaluation:
    """Run an agent and the policies beside it on the same episodes.

    Args:
        path: the agent's file.
        source: where episodes come from.
        episodes: how many.
        seed: of which are drawn.
        policies: further ones.
        progress: called with the share done.

    Raises:
        PolicyError: the agent is no part of a policy, or a policy is none.
    """
    agent = policy_of(path)
    beside = [*baselines_of(path), *map(parse_policy, policies)]
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for number in range(episodes):
        jobs = source.draw(rng).make()
        for place, policy in enumerate([agent, *beside]):
            rows.append({"policy": policy.name, "episode": number, **_run(jobs, source, policy)})
            if progress is not None:
                progress((number + (place + 1) / (len(beside) + 1)) / episodes)
    return Evaluation(agent.name, pl.DataFrame(rows, infer_schema_length=None))


def held_out(path: str | Path, source: Source, *, episodes: int = 8) -> dict[str, Any] | None:
    """What an agent does beside the best policy on jobs it was not trained on, for its card.

    Args:
        path: its file.
        source: of such jobs.
        episodes: how many.

    Returns:
        The metric, the agent's mean, the best policy and its mean, by how much the agent is above it and the
        ends of the 95 % interval; None for an agent that is no part of a policy.
    """
    try:
        found = evaluate(path, source, episodes=episodes)
    except PolicyError:
        return None
    powered = found.runs["energy_j"].null_count() == 0
    metric = "energy_j" if powered else "mean_bounded_slowdown"
    rows = {row["policy"]: row for row in found.table(metric).iter_rows(named=True)}
    own = rows.pop(found.agent)
    rows.pop(HINDSIGHT, None)
    best = min(rows.values(), key=lambda row: float(row[metric]))
    more = mean_interval(
        found.runs.filter(pl.col("policy") == found.agent).sort("episode")[metric].to_numpy()
        - found.runs.filter(pl.col("policy") == best["policy"]).sort("episode")[metric].to_numpy()
    )
    return {
        "metric": metric,
        "episodes": episodes,
        "agent": own[metric],
        "best": best["policy"],
        "of_best": best[metric],
        "more": [more.mean, more.low, more.high],
    }


def _run(jobs: Workload, source: Source, policy: Policy) -> dict[str, float | None]:
    simulation = Simulation(jobs, source.cluster, policy)
    simulation.decided()
    found = simulation.run()
    served = with_job_metrics(found.jobs)
    means: Sequence[Any] = served.select("bounded_slowdown", "wait_s").mean().row(0)
    return {
        "mean_bounded_slowdown": means[0],
        "mean_wait_s": means[1],
        "energy_j": None if found.energy is None else found.energy.total_j,
        "us_per_job": simulation.engine_s * 1e6 / len(jobs),
    }
