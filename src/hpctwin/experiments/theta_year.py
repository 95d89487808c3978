"""A year of Theta under a handful of policies."""

from __future__ import annotations

from collections.abc import Callable

from hpctwin.experiments.traces import find_trace
from hpctwin.formats import read_workload
from hpctwin.generate import generate
from hpctwin.model import Cluster, Workload
from hpctwin.simulation import Result
from hpctwin.sweep import compare

__all__ = ["NODES", "POLICIES", "run", "workload"]

NODES = 4360
POLICIES = ("fcfs+none", "fcfs+easy", "fcfs+conservative", "sjf+easy", "wfp+easy")


def workload() -> tuple[Workload, str]:
    """The real trace of 2022 where the trace folder has it, else a generated year; and which it is."""
    path = find_trace("theta_2022.swf")
    if path is not None:
        return read_workload(path), "the real trace of Theta, 2022"
    return generate("theta-year"), (
        "a generated year with the statistics of Theta's 2022 (set HPCTWIN_TRACES to a folder with "
        "theta_2022.swf for the real one)"
    )


def run(jobs: Workload, *, progress: Callable[[str], None] | None = None) -> dict[str, Result]:
    """Simulate it under `POLICIES`."""
    return compare(jobs, Cluster.uniform(nodes=NODES, name="theta"), POLICIES, progress=progress)
