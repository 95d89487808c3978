"""Rows of CQSim+'s experiment, by CQSim+'s and hpctwin's rule, with its tables 1 to 5.

Source: Kurkure et al., SIGSIM-PADS 2025, doi 10.1145/3726301.3728404.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import polars as pl

from hpctwin.facility import FacilityResult, FacilitySimulation, Strategy
from hpctwin.metrics import served
from hpctwin.model import Workload
from hpctwin_papers.cqsim_plus.cases import (
    CASES,
    PUBLISHED_WAYS,
    SIZE_EDGES,
    WALLTIME_EDGES_S,
    Case,
)
from hpctwin_papers.cqsim_plus.published_rule import simulate_rule
from hpctwin_papers.experiment import Progress


@dataclass(frozen=True)
class Way:
    """Jobs with the same origin and destination (table 5).

    Args:
        origin, cluster: Origin and destination.
        jobs: Number of jobs.
        siloed_min, mean_wait_min: Mean waits siloed and at the destination, in minutes.
        published: Published number of jobs, and both waits in minutes.
    """

    origin: str
    cluster: str
    jobs: int
    siloed_min: float | None
    mean_wait_min: float
    published: tuple[float, float, float]


@dataclass(frozen=True)
class Row:
    """One strategy in one case.

    Args:
        case, rule, strategy, knowledge, seed: Identity of the run. The rule is ``ours`` or
            ``cqsim+``; knowledge is empty without forecasts.
        jobs: Number of jobs in the means.
        mean_wait_min, mean_turnaround_min: Mean wait and turnaround, in minutes.
        decision_ms_mean: Mean time to place a job, in ms; None by CQSim+'s rule.
        run_s: Duration of the whole run, in seconds.
        utilization_spread: Spread between the clusters, mean over the weeks; None by CQSim+'s rule.
        published_wait_min: Published mean wait, in minutes; None without one.
        bins: Bins by ``size`` and ``walltime``: ``bin``, ``jobs``, ``mean_wait_min``,
            ``published_wait_min``.
        summary: All metrics of the run.
        ways: Waits by origin and destination, if the case groups jobs by them.
    """

    case: str
    rule: str
    strategy: str
    knowledge: str
    seed: int
    jobs: int
    mean_wait_min: float
    mean_turnaround_min: float
    decision_ms_mean: float | None
    run_s: float
    utilization_spread: float | None
    published_wait_min: float | None
    bins: Mapping[str, list[dict[str, Any]]]
    summary: Mapping[str, Any]
    ways: tuple[Way, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return the row in a form for JSON."""
        return dataclasses.asdict(self)


def run_by_our_rule(
    name: str,
    workload: Workload,
    strategy: Strategy,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Row, FacilityResult]:
    """Simulate a case under one strategy.

    Args:
        name: One of `CASES`.
        progress: Function called with the completed share.
    """
    begin = time.perf_counter()
    simulation = FacilitySimulation(CASES[name].facility, workload, strategy, seed=seed)
    result = simulation.run(progress)
    return make_row(name, CASES[name], result, time.perf_counter() - begin), result


def run_by_their_rule(
    name: str, workload: Workload, strategy: str, seed: int = 0, progress: Progress | None = None
) -> tuple[Row, pl.DataFrame]:
    """Simulate a case by CQSim+'s rule; return the row and the jobs."""
    begin = time.perf_counter()
    case = CASES[name]
    jobs = simulate_rule(case.facility, workload, strategy, seed=seed, progress=progress)
    about: dict[str, Any] = {
        "case": name,
        "rule": "cqsim+",
        "strategy": strategy,
        "knowledge": "oracle" if strategy == "sgs-t" else "",
        "seed": seed,
        "decision_ms_mean": None,
        "run_s": time.perf_counter() - begin,
        "utilization_spread": None,
        "summary": {},
    }
    return _row(jobs, case, about), jobs


def make_row(name: str, case: Case, result: FacilityResult, run_s: float) -> Row:
    """Return the metrics of a run by hpctwin's rule, over the authors' jobs."""
    summary = result.summary()
    return _row(
        served(result.jobs),
        case,
        {
            "case": name,
            "rule": "ours",
            "strategy": result.strategy,
            "knowledge": {"walltime": "honest"}.get(result.knowledge, result.knowledge),
            "seed": result.seed,
            "decision_ms_mean": summary["decision_ms_mean"],
            "run_s": run_s,
            "utilization_spread": result.utilization_spread,
            "summary": summary,
        },
    )


def _row(ran: pl.DataFrame, case: Case, about: dict[str, Any]) -> Row:
    ran = ran.sort("job_id")
    counted = ran[case.trimmed : len(ran) - case.trimmed]
    published = case.published.get(about["strategy"])
    nothing: Mapping[float, float] = {}
    return Row(
        jobs=len(counted),
        mean_wait_min=_minutes(counted["wait_s"]),
        mean_turnaround_min=_minutes(counted["turnaround_s"]),
        published_wait_min=None if published is None else published.overall,
        bins={
            "size": bins(
                counted, "nodes", SIZE_EDGES, nothing if published is None else published.size
            ),
            "walltime": bins(
                counted,
                "walltime_s",
                WALLTIME_EDGES_S,
                nothing if published is None else published.walltime,
                unit=60,
            ),
        },
        **about,
    )


def bins(
    jobs: pl.DataFrame,
    column: str,
    edges: Sequence[float],
    published: Mapping[float, float],
    *,
    unit: float = 1,
) -> list[dict[str, Any]]:
    """Return mean waits by bin, each with the published value for the same edge.

    Args:
        jobs: Jobs with ``wait_s`` and the column.
        edges: Inclusive upper bounds of the bins, increasing; one more bin is above the last.
        published: Published mean waits by upper edge, in minutes.

    Returns:
        ``bin``, ``jobs``, ``mean_wait_min``, ``published_wait_min`` of each bin with jobs or a
        published value; missing values are None.
    """
    told = [f"{edge / unit:g}" for edge in edges]
    labels = [f"≤ {told[0]}", *(f"({a}, {b}]" for a, b in pairwise(told)), f"> {told[-1]}"]
    place = pl.Series(edges, dtype=pl.Float64).search_sorted(
        jobs[column].cast(pl.Float64), side="left"
    )
    rows = []
    for index, (edge, label) in enumerate(zip([*edges, math.inf], labels, strict=True)):
        here = jobs["wait_s"].filter(place == index)
        if len(here) or edge in published:
            rows.append(
                {
                    "bin": label,
                    "jobs": len(here),
                    "mean_wait_min": _minutes(here) if len(here) else None,
                    "published_wait_min": published.get(edge),
                }
            )
    return rows


def ways(jobs: pl.DataFrame, siloed: pl.DataFrame | None) -> tuple[Way, ...]:
    """Return waits by origin and destination, with the waits of the same jobs siloed.

    Args:
        jobs: Jobs with ``job_id``, ``origin``, ``cluster``, ``wait_s``.
        siloed: The same jobs, each at its origin.
    """
    jobs = jobs.select("job_id", "origin", "cluster", "wait_s")
    if siloed is not None:
        alone = siloed.select("job_id", siloed_s="wait_s")
        jobs = jobs.join(alone, on="job_id", how="left")
    found = []
    for origin, cluster, count, siloed_s, wait_s in PUBLISHED_WAYS:
        here = jobs.filter((pl.col("origin") == origin) & (pl.col("cluster") == cluster))
        found.append(
            Way(
                origin,
                cluster,
                len(here),
                _minutes(here["siloed_s"]) if siloed is not None else None,
                _minutes(here["wait_s"]),
                (count, siloed_s / 60, wait_s / 60),
            )
        )
    return tuple(found)


def _minutes(seconds: pl.Series) -> float:
    mean = seconds.mean()
    return float(mean) / 60 if isinstance(mean, (int, float)) else float("nan")
