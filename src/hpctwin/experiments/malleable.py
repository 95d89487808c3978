"""What malleable jobs save: CarbonScaler's and CarbonFlex's claims, on real intensities and GAIA's trace.

The papers: W. A. Hanafy et al., CarbonScaler, Proc. ACM Meas. Anal. Comput. Syst. 7(3), 2023; and CarbonFlex,
arXiv:2505.18357, 2025. Their workloads and regions are not published together with the numbers of their
abstracts: here jobs have the profile of the N-body code that CarbonScaler's authors measured, on 1 to 7
servers, and only nodes that compute draw power.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from hpctwin.energy import CarbonScaler, Series, Slots
from hpctwin.energy.prices.forecast import parse_forecast
from hpctwin.energy.sizing.carbon_flex import CarbonFlex, CarbonOracle, learnt, oracle_plan
from hpctwin.energy.sizing.sizing import Sizing
from hpctwin.experiments.traces import need_trace
from hpctwin.model import Cluster, Workload
from hpctwin.model.workload.speedup import parse_speedup
from hpctwin.simulation import simulate

__all__ = ["CALIFORNIA", "CAPTURED_S", "JOBS", "PROFILE", "Run", "alone", "shared", "trace_jobs"]

PROFILE = "1/1.989/2.904/3.790/4.593/5.374/6.114"
"""Throughput on 1 to 7 servers (CarbonScaler's repository, nbody100k)."""

CALIFORNIA = "emaps_US-CAL-CISO_2022_hourly.csv"
JOBS = "gaia_alibaba_pai_100k.csv"
WEEK_S = 7 * 86_400
CAPTURED_S = 24 * 3600.0
MOST = 1 + PROFILE.count("/")


@dataclass(frozen=True)
class Run:
    """What one way of running jobs gives.

    Args:
        name: of it.
        emitted_kg: by all jobs.
        turnaround_h: mean.
        late: jobs that ended after their deadline.
    """

    name: str
    emitted_kg: float
    turnaround_h: float
    late: int


def intensity(begin_s: float = 0.0, name: str = CALIFORNIA) -> Series:
    """A year's intensity by hours, from a time of it on.

    Raises:
        WorkloadError: it is not there.
    """
    whole = Series.read(need_trace(name))
    return Series.hourly(whole.per_kwh[int(begin_s // 3600) :], whole.unit)


def alone(
    series: Series, *, jobs: int = 180, hours: float = 24, slack_s: float = CAPTURED_S
) -> list[Run]:
    """Long jobs that begin every other day, each with as many nodes as it likes.

    Returns:
        How it is if they run at once on one node (``at once``), on one node in the cleanest hours (``suspend
        and resume``), on the best fixed number of nodes in the cleanest hours (``static``), and as
        CarbonScaler has it (``carbonscaler``).
    """
    submit = np.arange(jobs) * 2 * 86_400.0
    curve = parse_speedup(PROFILE)

    def work(least: int, most: int) -> Workload:
        size = np.ones(jobs)
        runtime = hours * 3600 / float(curve.at(least))
        return Workload.build(
            submit_s=submit,
            runtime_s=runtime * size,
            nodes=least * size,
            malleable={
                "min_nodes": least * size, "max_nodes": most * size, "speedup": [PROFILE] * jobs,
                "suspendable": size,
            },
        )  # fmt: skip

    machine = Cluster.uniform(4 * MOST, active_w=1000, idle_w=0)
    # All have the deadline of a job that runs on one node.
    slots, end_s = Slots(series), hours * 3600 + slack_s

    def scaled(least: int, most: int, name: str) -> Run:
        jobs_ = work(least, most)
        slack = end_s - float(jobs_.walltime_ms[0]) / 1000
        return _run(name, jobs_, machine, series, end_s, CarbonScaler(slots, slack))

    fixed = [scaled(nodes, nodes, "static") for nodes in range(1, MOST + 1)]
    return [
        _run("at once", work(1, 1), machine, series, end_s, None),
        Run("suspend and resume", *_figures(fixed[0])),
        min(fixed, key=lambda one: one.emitted_kg),
        scaled(1, MOST, "carbonscaler"),
    ]


def _figures(run: Run) -> tuple[float, float, int]:
    return run.emitted_kg, run.turnaround_h, run.late


def trace_jobs(week: int, weeks: int = 1, *, seed: int, most: int = 1000) -> Workload:
    """Jobs of 1 to 24 h of some weeks of the trace, each asking for one node.

    Args:
        week: the first.
        weeks: so many.
        seed: of which are drawn, where there are more than `most` a week.
        most: so many a week.

    Raises:
        WorkloadError: the trace is not there.
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
    """A week of the trace on a machine of which its jobs use half.

    Args:
        week: which.
        before: CarbonFlex learns of so many weeks before it.
        slack_s: deadlines are so much later than if each job ran at once on its node.
        name: of the intensity's file.

    Returns:
        ``fcfs+easy``, ``carbonscaler`` and ``carbonflex`` by forecasts with an error of 5 %, and ``oracle``.

    Raises:
        WorkloadError: the trace or the intensity is not there.
    """
    jobs, past = trace_jobs(week, seed=2), trace_jobs(week - before, before, seed=1)
    nodes = round(2 * float(jobs.runtime_ms.sum()) / 1000 / WEEK_S)
    machine = Cluster.uniform(nodes, active_w=1000, idle_w=0)
    series = intensity(week * WEEK_S, name)
    known, told = Slots(series), Slots(series, parse_forecast("5%", series))
    earlier = Slots(intensity((week - before) * WEEK_S, name))
    sizings: dict[str, Sizing | None] = {
        "fcfs+easy": None,
        "carbonscaler": CarbonScaler(told, slack_s),
        "carbonflex": CarbonFlex(told, learnt(past, nodes, earlier, slack_s), slack_s),
        "oracle": CarbonOracle(known, oracle_plan(jobs, nodes, known, slack_s)),
    }
    ends_s = jobs.walltime_ms / 1000 + slack_s
    return [_run(name, jobs, machine, series, ends_s, one) for name, one in sizings.items()]


def _run(
    name: str, jobs: Workload, machine: Cluster, series: Series, ends_s: Any, sizing: Sizing | None
) -> Run:
    """What comes of it; jobs are late that take longer than ``ends_s``."""
    if sizing is None:
        result = simulate(jobs, machine, "fcfs+easy", log=True)
    else:
        result = simulate(jobs, machine, sizing=sizing, log=True)
    assert result.energy is not None
    took = result.jobs["turnaround_s"].to_numpy()
    late = int((took > ends_s + 0.01).sum())
    return Run(name, result.energy.cost(series) / 1000, float(took.mean()) / 3600, late)
