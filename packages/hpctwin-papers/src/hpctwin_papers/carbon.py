"""Common parts of CarbonScaler's and CarbonFlex's experiments.

The papers do not publish the workloads and regions behind the numbers of their abstracts. Here jobs
have the profile of the N-body code that CarbonScaler's authors measured, on 1 to 7 servers. Only
nodes that compute draw power.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hpctwin.energy import Series
from hpctwin.model import Cluster, Workload
from hpctwin.simulation import simulate
from hpctwin_papers.results import Finding
from hpctwin_papers.traces import need_trace
from hpctwin_sizing import SizeRule, Sizing

PROFILE = "1/1.989/2.904/3.790/4.593/5.374/6.114"
"""Throughput on 1 to 7 servers (CarbonScaler's repository, nbody100k)."""

CALIFORNIA = "emaps_US-CAL-CISO_2022_hourly.csv"
CAPTURED_S = 24 * 3600.0
MOST = 1 + PROFILE.count("/")


@dataclass(frozen=True)
class Run:
    """Result of one way of running jobs.

    Args:
        name: Name of the way.
        emitted_kg: Emissions of all jobs, in kg.
        turnaround_h: Mean turnaround, in hours.
        late: Number of jobs that ended after their deadline.
    """

    name: str
    emitted_kg: float
    turnaround_h: float
    late: int


def intensity(begin_s: float = 0.0, name: str = CALIFORNIA) -> Series:
    """Return a year's hourly carbon intensity, from a time of the year on."""
    whole = Series.read(need_trace(name))
    return Series.hourly(whole.per_kwh[int(begin_s // 3600) :], whole.unit)


def run_jobs(
    name: str, jobs: Workload, machine: Cluster, series: Series, ends_s: Any, rule: SizeRule | None
) -> Run:
    """Simulate jobs; a job is late if its turnaround exceeds ``ends_s``."""
    if rule is None:
        result = simulate(jobs, machine, "fcfs+easy", log=True)
    else:
        result = simulate(jobs, machine, sizing=Sizing(rule), log=True)
    assert result.energy is not None
    took = result.jobs["turnaround_s"].to_numpy()
    late = int((took > ends_s + 0.01).sum())
    return Run(name, result.energy.cost(series) / 1000, float(took.mean()) / 3600, late)


def saving(what: str, published: float, here: float, than: float, entry: str) -> Finding:
    """Return the emissions saved over another way, in percent, with the published share."""
    return Finding(what, published, 100 * (1 - here / than), 0.05, entries=(entry,))
