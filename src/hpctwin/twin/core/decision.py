"""Decisions: the chosen policy, and the actions that follow from it.

No clock and no connection: all functions depend on their arguments alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hpctwin.policies import Policy, parse_policy
from hpctwin.twin.forecast.forecaster import Forecast
from hpctwin.twin.what_if.objective import Objective
from hpctwin.twin.what_if.run import WhatIf, outlooks_of

__all__ = [
    "MAX_RAISED",
    "Actions",
    "Candidate",
    "Decision",
    "LeaseRule",
    "PendingJob",
    "choose",
    "judge",
    "leases_due",
    "raised",
    "tie_order",
]

TIE = 1e-9
"""Scores that differ by less than this share of the larger are equal."""
MAX_RAISED = 20
"""Number of jobs at the head of the order that get priorities.

Later jobs reach the head in time.
"""


@dataclass(frozen=True)
class Candidate:
    """One policy of the pool, with its score.

    Args:
        policy: Name of the policy.
        score: Score by the objective; lower is better.
        metrics: Means over the sampled futures, by name.
        spread: Standard deviations over the sampled futures, by name; empty with one future.
        starts: Ids of the jobs that it would start now.
        never: Number of pending jobs that it would never start.
    """

    policy: str
    score: float
    metrics: dict[str, float]
    spread: dict[str, float]
    starts: tuple[str, ...]
    never: int = 0


@dataclass(frozen=True)
class Decision:
    """The policy, starts and forecasts that the twin chose, and the reason.

    Args:
        number: Number of the decision, from 1.
        time_s: The present by the cluster's clock.
        seq: Sequence number of the last event that the decision includes.
        state: Hash of the mirror.
        seed: Seed of the sampled futures.
        policy: The policy chosen.
        reason: ``lowest score``, ``tie``, ``kept`` (by hysteresis or dwell), ``only one``.
        before: The policy that was in force.
        candidates: All candidates, in the order of the pool.
        starts: Ids of the jobs to start now, in this order.
        forecasts: Start time and interval of each pending job.
        forecast_by: The policy of the forecasts: the one chosen, or the cluster's own.
        unanswered: Future and policy of each what-if that did not answer in time. A policy without
            an answer for the first future is no candidate. Another future counts if all candidates
            answered.
        waiting, free_nodes: Number of pending jobs, and of free nodes before the decision.
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


@dataclass(frozen=True)
class Actions:
    """Requests to the cluster that are due now.

    Args:
        starts: Ids of the jobs to start, in this order.
        deferred: Jobs to start that may not fit, depending on where the cluster places the others.
        leases: New ends of the leases that are due, in seconds since the epoch, by job id.
    """

    starts: tuple[str, ...]
    deferred: frozenset[str]
    leases: dict[str, float]


@dataclass(frozen=True)
class PendingJob:
    """Inputs of the length of a lease.

    Args:
        until_s: End of the job's lease; 0 without one.
        expected_s: Expected start of the job; None without a forecast.
        fits: Whether enough nodes are free now.
    """

    until_s: float
    expected_s: float | None = None
    fits: bool = True


@dataclass(frozen=True)
class LeaseRule:
    """Lengths of leases.

    Args:
        short_s: Length for jobs that could start soon, in seconds.
        longest_s: Maximum for the others; at least ``short_s``.
    """

    short_s: float
    longest_s: float

    def length_s(self, now_s: float, job: PendingJob) -> float:
        """Return the length of a job's lease: ``short_s``, doubled as often as allowed.

        Long leases need few commands to renew. A lease is at most half the time until the job is
        expected to start. A job that fits the free nodes could start now if the twin did not keep
        it pending, so its lease is short.
        """
        if job.fits or job.expected_s is None:
            return self.short_s
        length_s = self.short_s
        while 2 * length_s <= min(self.longest_s, (job.expected_s - now_s) / 2):
            length_s *= 2
        return length_s


def leases_due(
    now_s: float, jobs: Mapping[str, PendingJob], released: Collection[str], rule: LeaseRule
) -> dict[str, float]:
    """Return the new ends of the leases that are due.

    A lease is renewed in its second half. It is never shortened: jobs to start are admitted.

    Args:
        now_s: The present by the manager's clock.
        jobs: The twin's pending jobs.
        released: Jobs that get no lease: admitted, blocked, or not modeled.
        rule: Lengths of leases.
    """
    due = {}
    for job_id, job in jobs.items():
        if job_id in released:
            continue
        length_s = rule.length_s(now_s, job)
        if job.until_s < now_s + length_s / 2:
            due[job_id] = now_s + length_s
    return due


def raised(
    order: Sequence[str], priority: Mapping[str, float], step: float = 1.0
) -> list[tuple[str, float]]:
    """Return the fewest changes of priority that put the first jobs of an order first.

    Priorities are only raised, and only if necessary: a job that starts, or arrives at the end,
    changes nothing.

    Args:
        order: Pending jobs, the next to start first.
        priority: Priorities of all pending jobs.
        step: Difference between the priorities of a raised job and the one after it.

    Returns:
        Job and new priority, the last job first.
    """
    head = order[:MAX_RAISED]
    behind = priority.keys() - set(head)
    floor = max((priority[i] for i in behind), default=-float("inf"))
    changes = []
    for job_id in reversed(head):
        if priority[job_id] <= floor:
            floor += step
            changes.append((job_id, floor))
        else:
            floor = priority[job_id]
    return changes


def judge(
    objective: Objective, pool: Sequence[str], futures: Sequence[Sequence[WhatIf]]
) -> list[Candidate]:
    """Score each policy by its mean over the sampled futures.

    Without sampled futures, the expected one decides.

    Args:
        objective: The objective.
        pool: Names of the policies.
        futures: What-ifs by future and policy; the first future is the expected one.
    """
    judged = futures[1:] or futures
    outlooks = [
        outlooks_of([what_if.course for what_if in future], objective.tau_s) for future in judged
    ]
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
    """Return the means of each policy's metrics over the futures, and their spread.

    With one future the spread is empty.
    """
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
    """Return the index of the winner, and the reason.

    Args:
        candidates: Candidates of `judge`.
        current: The policy in force; None before the first decision.
        hysteresis: Share of the best score by which another policy must be better to replace it.
        ties: Names of all policies by preference.
        free: Whether there was a choice; if False, the one candidate is the policy in force.
    """
    if len(candidates) == 1:
        return 0, "only one" if free else "kept"
    # The waits of a policy that never starts some jobs are not comparable.
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
    """Return the names of all policies: those in ``ties`` first, then as in the pool."""
    names = [policy.name for policy in pool]
    wanted = [parse_policy(text).name for text in ties]
    return [name for name in wanted if name in names] + [n for n in names if n not in wanted]
