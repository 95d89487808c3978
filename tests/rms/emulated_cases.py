"""Emulated clusters that tests drive by hand, and what happened in them."""

from __future__ import annotations

from typing import Any

from hpctwin.model import Cluster
from hpctwin.rms.emulated import EmulatedCluster
from hpctwin.rms.records.records import JobSpec
from hpctwin.twin.emulated import emulated_cluster

__all__ = ["EPOCH_S", "idle", "run_out", "spec", "started", "what_happened"]

EPOCH_S = 1_700_000_000.0


def run_out(cluster: EmulatedCluster) -> EmulatedCluster:
    while (due_s := cluster.next_time()) is not None:
        cluster.advance(due_s)
    return cluster


def spec(job_id: str, nodes: int = 1, walltime_s: float = 100.0, **about: Any) -> JobSpec:
    return JobSpec(id=job_id, submit_s=0.0, nodes=nodes, walltime_s=walltime_s, **about)


def idle(nodes: int = 4, **about: Any) -> EmulatedCluster:
    """One whose jobs are started from outside."""
    cluster = emulated_cluster(Cluster.uniform(nodes), record=True, **about)
    cluster.take_scheduling()
    return cluster


def started(cluster: EmulatedCluster) -> dict[str, float]:
    """The last start of each job."""
    assert cluster.history is not None
    return {job: time_s for time_s, job, what in cluster.history if what == "started"}


def what_happened(cluster: EmulatedCluster, job_id: str) -> list[str]:
    assert cluster.history is not None
    return [what for _, job, what in cluster.history if job == job_id]
