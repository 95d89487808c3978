"""CQSim+: jobs among two clusters, beside its tables 1 to 5.

Source: Kurkure et al., SIGSIM-PADS 2025, doi 10.1145/3726301.3728404.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from hpctwin.errors import UnknownNameError, WorkloadError
from hpctwin.experiments import theta_year
from hpctwin.experiments.traces import find_trace
from hpctwin.facility import (
    Facility,
    FacilityResult,
    FacilitySimulation,
    Strategy,
    parse_strategy,
)
from hpctwin.formats import SwfRules, read_workload
from hpctwin.metrics import breakdown, served
from hpctwin.model import Workload

__all__ = [
    "CASES",
    "MORE",
    "Case",
    "Row",
    "Way",
    "make_row",
    "oracle",
    "run_case",
    "ways",
]

SIZE_EDGES = (128.0, 256.0, 512.0, 1024.0, 2180.0)
WALLTIME_EDGES_S = tuple(60.0 * m for m in (10, 30, 60, 120, 250, 500, 1000, 1500))
TRIMMED = 1000
"""Jobs left out at each end, by id, as the authors' analysis does."""


def oracle(strategy: str = "sgs-t", **options: Any) -> Strategy:
    """A strategy as CQSim+ has it: it knows all runtimes, and draws among equals."""
    return parse_strategy(strategy, knows="oracle", ties="random", **options)


def _published() -> list[Strategy]:
    return [oracle(), parse_strategy("sgs-t"), parse_strategy("sgs-t", knows="recent")]


def _more() -> list[Strategy]:
    return [
        parse_strategy("round-robin"),
        parse_strategy("least-loaded"),
        parse_strategy("peer"),
        parse_strategy("earliest-start"),
        parse_strategy("sgs(total)"),
        parse_strategy("sgs-t", samples=3),
        parse_strategy("sgs-t", batch=4, window_s=600),
        parse_strategy("sgs-t", move_every_s=3600),
    ]


MORE = _more
"""Further strategies, none of which knows more than walltimes."""


@dataclass(frozen=True)
class Case:
    """One of the published studies.

    Args:
        facility: the clusters.
        workload: reads the trace; the words say which it is.
        strategies: those published first.
        trimmed: jobs left out at each end.
        published: mean waits, minutes: overall and by bin, by strategy.
    """

    facility: Facility
    workload: Callable[[], tuple[Workload, str]]
    strategies: Callable[[], list[Strategy]]
    trimmed: int = 0
    published: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)


def _theta_polaris() -> tuple[Workload, str]:
    path = find_trace("polaris_theta_23.swf")
    if path is None:
        raise WorkloadError(
            "the study of Theta and Polaris needs the trace polaris_theta_23.swf: put it into the folder "
            "that HPCTWIN_TRACES names"
        )
    rules = SwfRules(partition_field="queue")
    return read_workload(path, rules=rules), "Polaris and Theta, September to December 2023"


def _two_halves(factor: float) -> Facility:
    return Facility.model_validate(
        {
            "name": "theta-halves",
            "clusters": [
                {"name": "system-1", "nodes": 2180},
                {"name": "system-2", "nodes": 2180, "factor": factor},
            ],
        }
    )


_ALCF = Facility.model_validate(
    {
        "name": "alcf",
        "kinds": [
            {"name": "polaris-gpu", "user": "0", "partition": "1"},
            {"name": "polaris-cpu", "user": "0"},
            {"name": "theta-cpu", "user": "1"},
        ],
        "origin": {"by": "user", "clusters": {"0": "polaris", "1": "theta"}},
        "clusters": [
            {"name": "polaris", "nodes": 552, "factor": {"theta-cpu": 0.25}},
            {
                "name": "theta",
                "nodes": 4360,
                "kinds": ["polaris-cpu", "theta-cpu"],
                "factor": {"polaris-cpu": 4},
            },
        ],
    }
)

CASES: dict[str, Case] = {
    "homogeneous": Case(
        _two_halves(1.0),
        theta_year.workload,
        lambda: [parse_strategy("random"), *_published()],
        TRIMMED,
        {
            "random": {
                "overall": (551.1,),
                "size": (214.6, 558.1, 879.6, 1748.9, 1741.2),
                "walltime": (534.1, 298.9, 403.1, 410.3, 902.8, 1528.4, 1843.3),
            },
            "sgs-t": {
                "overall": (416.2,),
                "size": (131.4, 416.3, 691.6, 1465.1, 1301.6),
                "walltime": (402.9, 218.0, 338.5, 285.6, 715.1, 1155.5, 1527.6),
            },
        },
    ),
    "heterogeneous": Case(
        _two_halves(1.3),
        theta_year.workload,
        lambda: [parse_strategy("user(0.6)"), *_published()],
        TRIMMED,
        {
            "user(0.6)": {
                "overall": (928.6,),
                "size": (344.0, 952.2, 1456.0, 3006.6, 3073.3),
                "walltime": (1099.9, 576.3, 570.7, 659.8, 1446.1, 2438.3, 4267.4),
            },
            "sgs-t": {
                "overall": (681.7,),
                "size": (218.6, 676.2, 1185.8, 2351.5, 2142.2),
                "walltime": (641.5, 443.1, 439.2, 469.7, 1057.2, 2021.1, 2310.0),
            },
        },
    ),
    "theta-polaris": Case(
        _ALCF,
        _theta_polaris,
        lambda: [parse_strategy("siloed"), parse_strategy("user(0.6)"), *_published()],
    ),
}

PUBLISHED_WAYS = (
    # Table 5: origin, where SGS-T sent them, jobs, mean wait siloed and under SGS-T, s.
    ("polaris", "polaris", 18_439, 18_707, 16_898),
    ("theta", "polaris", 4_943, 10_363, 5_439),
    ("polaris", "theta", 7_827, 44_061, 2_107),
    ("theta", "theta", 3_338, 27_441, 29_510),
)
PUBLISHED_DECISION_MS = 67.334


@dataclass(frozen=True)
class Way:
    """Jobs by where they came from and where they went (table 5).

    Args:
        origin, cluster: from and to.
        jobs: how many.
        siloed_min, mean_wait_min: their mean wait siloed, and where they went, minutes.
        published: jobs, and both waits in minutes.
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
        case, strategy, knowledge, seed: which; no knowledge where nothing is forecast.
        jobs: that the means are over.
        mean_wait_min, mean_turnaround_min: minutes.
        decision_ms_mean: time to place a job, ms.
        run_s: time of the whole run, seconds.
        utilization_spread: between the clusters, mean over the weeks.
        published_wait_min: the published mean wait; None where there is none.
        bins: by ``size`` and ``walltime``: ``bin``, ``jobs``, ``mean_wait_min``, ``published_wait_min``.
        summary: all figures of the run.
    """

    case: str
    strategy: str
    knowledge: str
    seed: int
    jobs: int
    mean_wait_min: float
    mean_turnaround_min: float
    decision_ms_mean: float
    run_s: float
    utilization_spread: float | None
    published_wait_min: float | None
    bins: Mapping[str, list[dict[str, Any]]]
    summary: Mapping[str, Any]
    ways: tuple[Way, ...] = ()

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return dataclasses.asdict(self)


def run_case(
    name: str,
    workload: Workload,
    strategies: Sequence[Strategy],
    *,
    seeds: int = 1,
    progress: Callable[[str, float], None] | None = None,
) -> tuple[list[Row], dict[str, FacilityResult]]:
    """Simulate a case.

    Args:
        name: one of `CASES`.
        workload: its jobs.
        strategies: what to compare. Those that draw clusters are run once for each seed.
        seeds: how many, from 0.
        progress: called with a strategy's name and the share that is done.

    Returns:
        Rows, and the result of each strategy with seed 0 by its name and knowledge.

    Raises:
        UnknownNameError: there is no such case.
    """
    import time

    if name not in CASES:
        raise UnknownNameError("case", name, CASES)
    case = CASES[name]
    rows = []
    results: dict[str, FacilityResult] = {}
    for strategy in strategies:
        draws = strategy.name.startswith(("random", "user"))
        for seed in range(seeds if draws else 1):
            begin = time.perf_counter()
            simulation = FacilitySimulation(case.facility, workload, strategy, seed=seed)

            def share(done: float, of: Strategy = strategy) -> None:
                if progress is not None:
                    progress(of.name, done)

            result = simulation.run(share)
            run_s = time.perf_counter() - begin
            if seed == 0:
                results[f"{strategy.name} {result.knowledge}".strip()] = result
            row = make_row(name, case, result, run_s)
            if name == "theta-polaris" and strategy.name.startswith("sgs-t"):
                row = dataclasses.replace(row, ways=ways(result, results.get("siloed")))
            rows.append(row)
    return rows, results


def make_row(name: str, case: Case, result: FacilityResult, run_s: float) -> Row:
    """The figures of one run, over the jobs that the authors' analysis is over."""
    ran = served(result.jobs).sort("job_id")
    counted = ran[case.trimmed : len(ran) - case.trimmed]
    published = case.published.get(result.strategy, {})
    bins = {
        "size": _bins(counted, "size", SIZE_EDGES, published.get("size", ())),
        "walltime": _bins(counted, "walltime", WALLTIME_EDGES_S, published.get("walltime", ())),
    }
    summary = result.summary()
    return Row(
        case=name,
        strategy=result.strategy,
        knowledge={"walltime": "honest"}.get(result.knowledge, result.knowledge),
        seed=result.seed,
        jobs=len(counted),
        mean_wait_min=_minutes(counted["wait_s"]),
        mean_turnaround_min=_minutes(counted["turnaround_s"]),
        decision_ms_mean=summary["decision_ms_mean"],
        run_s=run_s,
        utilization_spread=result.utilization_spread,
        published_wait_min=published["overall"][0] if published else None,
        bins=bins,
        summary=summary,
    )


def _bins(
    jobs: pl.DataFrame, by: Any, edges: Sequence[float], published: Sequence[float]
) -> list[dict[str, Any]]:
    found = {row["bin"]: row for row in breakdown(jobs, by, edges).iter_rows(named=True)}
    rows = [
        {
            "bin": label,
            "jobs": row["ran_jobs"],
            "mean_wait_min": row["mean_wait_s"] / 60,
            "published_wait_min": None,
        }
        for label, row in found.items()
    ]
    # The published bins are those from 10 to 1,500 minutes, and all of the sizes.
    inner = [r for r in rows if not r["bin"].startswith(("≤ 10 min", ">"))]
    for row, minutes in zip(inner, published, strict=False):
        row["published_wait_min"] = minutes
    return rows


def ways(result: FacilityResult, siloed: FacilityResult | None) -> tuple[Way, ...]:
    """Waits by origin and destination, beside those of the same jobs siloed."""
    jobs = result.jobs.select("job_id", "origin", "cluster", "wait_s")
    if siloed is not None:
        alone = siloed.jobs.select("job_id", siloed_s="wait_s")
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
