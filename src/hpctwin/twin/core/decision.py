"""Decisions: the policy chosen by the objective, and the actions that follow from a decision.

No clock and no connection: all functions depend on their arguments alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hpctwin.policies import Policy, parse_policy
from hpctwin.twin.forecast.records import Forecast
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
"""Only this many jobs at the head of the order get priorities; the others come to the head in time."""


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


@dataclass(frozen=True)
class Actions:
    """What the cluster is told now.

    Args:
        starts: ids of the jobs to start, in this order.
        deferred: Jobs to start that may not fit, depending on where the cluster places the others.
        leases: Until when pending jobs are leased, seconds since the epoch by id; only leases that are due.
    """

    starts: tuple[str, ...]
    deferred: frozenset[str]
    leases: dict[str, float]


@dataclass(frozen=True)
class PendingJob:
    """What a lease depends on.

    Args:
        until_s: The end of the job's lease; 0 without one.
        expected_s: When the job is expected to start; None if there is no forecast.
        fits: Whether enough nodes are free now.
    """

    until_s: float
    expected_s: float | None = None
    fits: bool = True


@dataclass(frozen=True)
class LeaseRule:
    """How long leases are.

    Args:
        short_s: Length for jobs that could start soon.
        longest_s: Maximum for the others; at least ``short_s``.
    """

    short_s: float
    longest_s: float

    def length_s(self, now_s: float, job: PendingJob) -> float:
        """Return the length of a job's lease: short ones doubled, so that few commands renew them all.

        A lease is at most half the time until the job is expected to start. A job that fits the free
        nodes could start now if the twin did not keep it pending, so its lease is short.
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
        rule: How long leases are.
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

    Priorities are only raised, and only where necessary: a job that starts, or arrives at the end,
    changes nothing.

    Args:
        order: Pending jobs, the first to go first.
        priority: Priorities of all pending jobs.
        step: How much higher a job is put than the one after it.

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
