"""What CarbonScaler's and CarbonFlex's experiments share: jobs' profile, intensity, emissions of a run.

The papers do not publish their workloads and regions together with the numbers of their abstracts. Here
jobs have the profile of the N-body code that CarbonScaler's authors measured, on 1 to 7 servers, and only
nodes that compute draw power.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hpctwin.energy import Series
from hpctwin.energy.sizing.sizing import Sizing
from hpctwin.model import Cluster, Workload
from hpctwin.simulation import simulate
from hpctwin_papers.results import Finding
from hpctwin_papers.traces import need_trace

__all__ = ["CALIFORNIA", "CAPTURED_S", "MOST", "PROFILE", "Run", "intensity", "run_jobs", "saving"]

PROFILE = "1/1.989/2.904/3.790/4.593/5.374/6.114"
"""Throughput on 1 to 7 servers (CarbonScaler's repository, nbody100k)."""

CALIFORNIA = "emaps_US-CAL-CISO_2022_hourly.csv"
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


def run_jobs(
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


def saving(what: str, published: float, here: float, than: float, entry: str) -> Finding:
    """Return by how much less is emitted than by another way, in percent, beside the published share."""
    return Finding(what, published, 100 * (1 - here / than), 0.05, entries=(entry,))
