"""Whom a real Slurm preempts, and whom the simulation does from the settings that are imported of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from hpctwin import Workload, simulate
from hpctwin.model import Category
from hpctwin.rms.importing import import_site
from tests.rms.beside_slurm import running
from tests.rms.slurm_cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

NODES = 12
TIERS = {"main": 1, "mid": 2, "high": 3}
FULL = [("main", 1), ("main", 1), ("main", 2), ("main", 3), ("mid", 1), ("mid", 2), ("mid", 2)]
COMING = [("high", 1), ("high", 3), ("high", 3), ("high", 2)]


@pytest.fixture
def slurm(tmp_path_factory) -> Iterator[SlurmCluster]:
    others = [
        f"PartitionName={name} Nodes=n[1-{NODES}] MaxTime=INFINITE State=UP PriorityTier={tier}"
        for name, tier in TIERS.items()
        if name != "main"
    ]
    more = ("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", *others)
    folder = tmp_path_factory.mktemp("preempting")
    with running(folder, nodes=NODES, partition="PriorityTier=1", more=more) as made:
        yield made


def test_the_same_jobs_are_preempted_for_each_that_comes(slurm, tmp_path):
    jobs = [slurm.submit(nodes, 60, 3000, "-p", name) for name, nodes in FULL]
    for job in jobs:
        slurm.wait(lambda job=job: slurm.job(job)["JobState"] == "RUNNING", 60)
    gone: list[set[int]] = []
    for name, nodes in COMING:
        job = slurm.submit(nodes, 60, 3000, "-p", name)
        slurm.wait(lambda job=job: slurm.job(job)["JobState"] == "RUNNING", 60)
        gone.append({i for i, one in enumerate(jobs) if slurm.job(one)["Restarts"] != "0"})

    shutil.copy(slurm.conf, tmp_path)
    site = import_site("slurm", tmp_path).site
    expected = []
    for count in range(1, len(COMING) + 1):
        names, widths = zip(*FULL, *COMING[:count], strict=True)
        times = [*range(len(FULL)), *range(50, 50 + count)]
        size = len(times)
        workload = Workload.build(
            submit_s=times,
            runtime_s=[3000] * size,
            walltime_s=[3600] * size,
            nodes=widths,
            partition=Category.of(names),
        )
        result = simulate(workload, site.cluster, site.policy)
        times_preempted = result.jobs["preemptions"].to_list()
        expected.append({i for i in range(len(FULL)) if times_preempted[i]})
        assert times_preempted[len(FULL) :] == [0] * count
    assert gone == expected
