"""Savings of CarbonFlex: a week of GAIA's trace, planned by the carbon intensity.

CarbonFlex, arXiv:2505.18357, 2025.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import polars as pl

from hpctwin.energy.prices.forecast import parse_forecast
from hpctwin.model import Cluster, Workload
from hpctwin_papers.carbon import (
    CALIFORNIA,
    CAPTURED_S,
    MOST,
    PROFILE,
    Run,
    intensity,
    run_jobs,
    saving,
)
from hpctwin_papers.experiment import Experiment, Progress
from hpctwin_papers.results import Finding, Results
from hpctwin_papers.traces import need_trace
from hpctwin_sizing import (
    CarbonFlex,
    CarbonOracle,
    CarbonScaler,
    SizeRule,
    Slots,
    learnt,
    oracle_plan,
)

JOBS = "gaia_alibaba_pai_100k.csv"
WEEK_S = 7 * 86_400


def trace_jobs(week: int, weeks: int = 1, *, seed: int, most: int = 1000) -> Workload:
    """Return the jobs of 1 to 24 h in some weeks of the trace, each requesting one node.

    Args:
        seed: Seed of the sample, if a week has more than `most` jobs.
    """
    table, begin = pl.read_csv(need_trace(JOBS)), week * WEEK_S
    submit = 3600 * pl.col("arrival_time")
    there = submit.is_between(begin, begin + weeks * WEEK_S, closed="left")
    some = table.filter(pl.col("length").is_between(1, 24), there)
    some = some.sample(min(most * weeks, len(some)), seed=seed)
    size = len(some)
    return Workload.build(
        submit_s=3600 * some["arrival_time"].to_numpy() - begin,
        runtime_s=3600 * some["length"].to_numpy(),
        nodes=np.ones(size),
        malleable={
            "max_nodes": np.full(size, MOST),
            "speedup": [PROFILE] * size,
            "suspendable": np.ones(size),
        },
    )


def shared(
    *, week: int = 20, before: int = 3, slack_s: float = CAPTURED_S, name: str = CALIFORNIA
) -> list[Run]:
    """Simulate a week of the trace on a cluster that its jobs use by half.

    Args:
        before: Number of preceding weeks that CarbonFlex learns from.
        slack_s: Time from a job's end, if it ran at once on its node, to its deadline, in seconds.

    Returns:
        ``fcfs+easy``, ``carbonscaler`` and ``carbonflex`` with forecasts of 5 % error, and
        ``oracle``.
    """
    jobs, past = trace_jobs(week, seed=2), trace_jobs(week - before, before, seed=1)
    nodes = round(2 * float(jobs.runtime_ms.sum()) / 1000 / WEEK_S)
    machine = Cluster.uniform(nodes, active_w=1000, idle_w=0)
    series = intensity(week * WEEK_S, name)
    known, told = Slots(series), Slots(series, parse_forecast("5%", series))
    earlier = Slots(intensity((week - before) * WEEK_S, name))
    rules: dict[str, SizeRule | None] = {
        "fcfs+easy": None,
        "carbonscaler": CarbonScaler(told, slack_s),
        "carbonflex": CarbonFlex(told, learnt(past, nodes, earlier, slack_s), slack_s),
        "oracle": CarbonOracle(known, oracle_plan(jobs, nodes, known, slack_s)),
    }
    ends_s = jobs.walltime_ms / 1000 + slack_s
    return [run_jobs(name, jobs, machine, series, ends_s, one) for name, one in rules.items()]


@dataclass(frozen=True)
class Shared(Experiment[None, list[Run]]):
    """A week of jobs on one cluster; see `shared`."""

    title = "a week by the carbon intensity"
    data = (CALIFORNIA, JOBS)

    def points(self) -> Sequence[None]:
        """See `Experiment`; one point, because all ways share one week."""
        return [None]

    def run(self, point: None, progress: Progress) -> list[Run]:
        """See `Experiment`."""
        return shared()

    def results(self, found: Sequence[list[Run]]) -> Results:
        """See `Experiment`."""
        by_name = {run.name: run.emitted_kg for run in found[0]}
        flex, name = by_name["carbonflex"], "carbonflex-savings"
        above = Finding(
            "emissions above the oracle's, %", 2.1, 100 * (flex / by_name["oracle"] - 1), 0.05,
            entries=(name,),
        )  # fmt: skip
        what = "emissions below those of FCFS with EASY, %"
        less = saving(what, 57, flex, by_name["fcfs+easy"], name)
        return Results([less, above], rows=[asdict(run) for run in found[0]])
