"""The choice: candidates judged by the objective, and which of them wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpctwin.policies import Policy, parse_policy
from hpctwin.twin.forecast.records import Forecast
from hpctwin.twin.what_if.objective import Objective
from hpctwin.twin.what_if.run import WhatIf, outlooks_of

__all__ = ["Candidate", "Decision", "choose", "judge", "tie_order"]

TIE = 1e-9
"""Scores that differ by less than this share of the larger are equal."""


@dataclass(frozen=True)
class Candidate:
    """One policy of the pool, judged.

    Args:
        policy: its name.
        score: lower is better.
        metrics: the means over the sampled futures, by name.
        spread: standard deviations over the sampled futures, by name; empty with one future.
        starts: ids of the jobs that it would start now.
        never: waiting jobs that it would never start.
    """

    policy: str
    score: float
    metrics: dict[str, float]
    spread: dict[str, float]
    starts: tuple[str, ...]
    never: int = 0


@dataclass(frozen=True)
class Decision:
    """What the twin would have the cluster do now, and why.

    Args:
        number: counts decisions from 1.
        time_s: the present, by the cluster's clock.
        seq: the last event that it knows.
        state: hash of the mirror.
        seed: of the sampled futures.
        policy: the policy chosen.
        reason: ``lowest score``, ``tie``, ``kept`` (by hysteresis or dwell), ``only one``.
        before: the policy that was in force.
        candidates: all of them, in the order of the pool.
        starts: ids of the jobs to start now, in this order.
        forecasts: start time and interval of each waiting job.
        forecast_by: the policy that they are made under: the one chosen, or the cluster's own.
        unanswered: future and policy of each what-if that did not answer in time. A policy of which this is
            the first future is no candidate; another future counts where all candidates answered.
        waiting, free_nodes: size of the queue, and nodes free before the decision.
    """

    number: int
    time_s: float
    seq: int
    state: str
    seed: int
    policy: str
    reason: str
    before: str
    candidates: tuple[Candidate, ...]
    starts: tuple[str, ...]
    forecasts: Sequence[Forecast]
    waiting: int
    free_nodes: int
    forecast_by: str
    unanswered: tuple[tuple[int, str], ...] = ()


def judge(
    objective: Objective, pool: Sequence[str], futures: Sequence[Sequence[WhatIf]]
) -> list[Candidate]:
    """Score each policy by its mean over the sampled futures, or over the one expected.

    Args:
        objective: what is judged by.
        pool: names of the policies.
        futures: what-ifs by future and policy; the first future is what is expected.
    """
    judged = futures[1:] or futures
    outlooks = [outlooks_of([what_if.course for what_if in future]) for future in judged]
    measured = [
        [found for outlook in future for found in objective.measure_all(outlook)]
        for future in outlooks
    ]
    metrics, spread = _mean_and_spread(measured)
    scores = objective.scores(metrics)
    first = futures[0]
    most = max(len(w.ids) for w in first)
    return [
        Candidate(
            policy=policy,
            score=scores[i],
            metrics=metrics[i],
            spread=spread[i],
            starts=first[i].starts,
            never=most - len(first[i].ids),
        )
        for i, policy in enumerate(pool)
    ]


def _mean_and_spread(
    measured: Sequence[Sequence[dict[str, float]]],
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Of each policy's metrics over the futures; no spread where there is only one."""
    if len(measured) == 1:
        return list(measured[0]), [{} for _ in measured[0]]
    names = list(measured[0][0])
    table = np.array([[[m[name] for name in names] for m in future] for future in measured])

    def named(rows: list[list[float]]) -> list[dict[str, float]]:
        return [dict(zip(names, row, strict=True)) for row in rows]

    return named(table.mean(axis=0).tolist()), named(table.std(axis=0).tolist())


def choose(
    candidates: Sequence[Candidate],
    *,
    current: str | None,
    hysteresis: float,
    ties: Sequence[str],
    free: bool,
) -> tuple[int, str]:
    """The number of the winner, and why it won.

    Args:
        candidates: by `judge`.
        current: the policy in force; None before the first decision.
        hysteresis: it stays unless another is better by this share of the best score.
        ties: names of all policies by preference.
        free: whether there was a choice; with False the one candidate is the policy in force.
    """
    if len(candidates) == 1:
        return 0, "only one" if free else "kept"
    # One that leaves jobs waiting for ever has no comparable waits.
    possible = [i for i, c in enumerate(candidates) if c.never == 0]
    best = min(candidates[i].score for i in possible)
    equal = [i for i in possible if candidates[i].score <= best + abs(best) * TIE]
    mine = next((i for i in possible if candidates[i].policy == current), None)
    if (
        mine is not None
        and mine not in equal
        and candidates[mine].score <= best + abs(best) * hysteresis
    ):
        return mine, "kept"
    if len(equal) == 1:
        return equal[0], "lowest score"
    return min(equal, key=lambda i: ties.index(candidates[i].policy)), "tie"


def tie_order(ties: Sequence[str], pool: Sequence[Policy]) -> list[str]:
    """Names of all policies, those named for ties first, then as in the pool."""
    names = [policy.name for policy in pool]
    wanted = [parse_policy(text).name for text in ties]
    return [name for name in wanted if name in names] + [n for n in names if n not in wanted]
