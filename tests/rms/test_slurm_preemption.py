"""Whom a real Slurm preempts, and whom the simulation does from the settings that are imported of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from hpctwin import Workload, simulate
from hpctwin.model import Category
from hpctwin.rms.site_folder import import_site
from tests.rms.beside_slurm import job_ends, running
from tests.rms.slurm_cluster import SlurmCluster
from tests.rms.slurm_roots import NEWEST

pytestmark = [pytest.mark.slurm(NEWEST), pytest.mark.slow]

NODES = 12
TIERS = {"main": 1, "mid": 2, "high": 3}
FULL = [("main", 1), ("main", 1), ("main", 2), ("main", 3), ("mid", 1), ("mid", 2), ("mid", 2)]
COMING = [("high", 1), ("high", 3), ("high", 3), ("high", 2)]


MODES = {
    "off": ("PreemptMode=OFF",),
    "late": ("PreemptMode=REQUEUE", "GraceTime=15"),
    "gone": ("PreemptMode=CANCEL",),
}
GRACE_S = 15


def partitions(of: dict[str, tuple[str, ...]]) -> list[str]:
    return [
        f"PartitionName={name} Nodes=n[1-{NODES}] MaxTime=INFINITE State=UP {' '.join(settings)}"
        for name, settings in of.items()
    ]


@pytest.fixture
def preempting(tmp_path_factory, request, slurm_version) -> Iterator[SlurmCluster]:
    more = ("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", *partitions(request.param))
    folder = tmp_path_factory.mktemp("preempting")
    options = {"nodes": NODES, "partition": "PriorityTier=1", "more": more}
    with running(folder, version=slurm_version, **options) as made:
        yield made


def runs(slurm: SlurmCluster, job: str) -> bool:
    return slurm.job(job)["JobState"] == "RUNNING"


@pytest.mark.parametrize(
    "preempting",
    [{name: (f"PriorityTier={tier}",) for name, tier in TIERS.items() if name != "main"}],
    indirect=True,
)
def test_the_same_jobs_are_preempted_for_each_that_comes(preempting, tmp_path):
    slurm = preempting
    jobs = [slurm.submit(nodes, 60, 3000, "-p", name) for name, nodes in FULL]
    for job in jobs:
        slurm.wait(lambda job=job: runs(slurm, job), 60)
    gone: list[set[int]] = []
    for name, nodes in COMING:
        job = slurm.submit(nodes, 60, 3000, "-p", name)
        slurm.wait(lambda job=job: runs(slurm, job), 60)
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


CORES = 4
SHARED_FULL = [
    ("main", 2), ("main", 2), ("mid", 3), ("main", 1), ("mid", 4), ("main", 3), ("mid", 1), ("main", 4),
]  # fmt: skip
SHARED_COMING = [("high", 1), ("high", 3), ("high", 4), ("mid", 2), ("high", 2)]


@pytest.fixture
def sharing(tmp_path_factory, slurm_version) -> Iterator[SlurmCluster]:
    """Nodes of four cores, which jobs share, in partitions of three tiers."""
    nodes = sum(cores for _, cores in SHARED_FULL) // CORES
    of = [f"PartitionName={name} Nodes=n[1-{nodes}] MaxTime=INFINITE State=UP PriorityTier={tier}"
          for name, tier in TIERS.items() if name != "main"]  # fmt: skip
    more = ("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", *of)
    folder = tmp_path_factory.mktemp("sharing")
    options = {"nodes": nodes, "cpus": CORES, "partition": "PriorityTier=1", "more": more}
    with running(folder, version=slurm_version, **options) as made:
        yield made


def test_the_same_jobs_are_preempted_on_shared_nodes(sharing, tmp_path):
    slurm = sharing

    def submit(name: str, cores: int) -> str:
        job = slurm.submit_tasks(60, 3000, "-N1", f"-n{cores}", "-p", name)
        slurm.wait(lambda: runs(slurm, job), 60)
        return job

    jobs = [submit(*one) for one in SHARED_FULL]
    gone: list[set[int]] = []
    for one in SHARED_COMING:
        jobs.append(submit(*one))
        gone.append({i for i, job in enumerate(jobs) if slurm.job(job)["Restarts"] != "0"})

    shutil.copy(slurm.conf, tmp_path)
    site = import_site("slurm", tmp_path).site
    expected = []
    for count in range(1, len(SHARED_COMING) + 1):
        names, cores = zip(*SHARED_FULL, *SHARED_COMING[:count], strict=True)
        times = [*range(len(SHARED_FULL)), *range(50, 50 + count)]
        size = len(times)
        workload = Workload.build(
            submit_s=times,
            runtime_s=[3000] * size,
            walltime_s=[3600] * size,
            nodes=[1] * size,
            partition=Category.of(names),
            chunks={"tasks": [1] * size, "cores_per_task": cores},
        )
        result = simulate(workload, site.cluster, site.policy)
        expected.append({i for i, n in enumerate(result.jobs["preemptions"].to_list()) if n})
    assert gone == expected


@pytest.mark.parametrize(
    "preempting",
    [
        {
            **{name: ("PriorityTier=1", *mode) for name, mode in MODES.items()},
            "high": ("PriorityTier=3",),
        }
    ],
    indirect=True,
)
def test_a_preempted_job_is_cancelled_requeued_after_its_grace_or_spared(preempting, tmp_path):
    slurm = preempting
    full = [("off", 1), ("late", 3), ("gone", 3), ("main", 5)]
    coming = [3, 2, 3]

    def submit(name: str, nodes: int) -> str:
        # It goes on through its grace, at whose beginning Slurm sends SIGTERM.
        script = (
            f"#SBATCH -N{nodes}\n#SBATCH -t60\n#SBATCH -p {name}\ntrap '' TERM\nexec sleep 3000\n"
        )
        return slurm.submit_script(script)

    jobs = [submit(*one) for one in full]
    for job in jobs:
        slurm.wait(lambda job=job: runs(slurm, job), 60)
    waited = []
    for nodes in coming:
        began = time.monotonic()
        job = submit("high", nodes)
        slurm.wait(lambda job=job: runs(slurm, job), 60)
        waited.append(time.monotonic() - began)
    slurm.wait(lambda: slurm.job(jobs[2])["JobState"] == "PREEMPTED", 60)
    found = [
        (slurm.job(job)["JobState"] == "PREEMPTED", slurm.job(job)["Restarts"]) for job in jobs
    ]

    shutil.copy(slurm.conf, tmp_path)
    site = import_site("slurm", tmp_path).site
    times = [*range(len(full)), 50, *(50 + 2 * GRACE_S + i for i in range(1, len(coming)))]
    workload = Workload.build(
        submit_s=times,
        runtime_s=[3000] * len(times),
        walltime_s=[3600] * len(times),
        nodes=[nodes for _, nodes in full] + coming,
        partition=Category.of([name for name, _ in full] + ["high"] * len(coming)),
    )
    result = simulate(workload, site.cluster, site.policy)
    gone = (result.jobs["state"] == "preempted").to_list()[: len(full)]
    again = result.jobs["preemptions"].to_list()[: len(full)]
    assert found == [(g, str(0 if g else n)) for g, n in zip(gone, again, strict=True)]
    assert gone == [False, False, True, False]
    assert waited[0] >= GRACE_S
    assert result.jobs["wait_s"].to_list()[len(full)] == GRACE_S


SUSPENDED = [  # after so many seconds, partition, nodes, seconds of work
    (0, "main", 4, 30), (0, "main", 2, 30), (5, "high", 3, 20), (9, "main", 1, 5), (12, "high", 1, 8),
    (15, "mid", 2, 25),
]  # fmt: skip
WORK = """i=0
while [ $i -lt {} ]; do
    sleep 0.5
    i=$((i + 1))
done
"""
"""A job whose time stands still while it is stopped; that of one long sleep does not."""
APART_S = 4


def settings_of_tiers(nodes: int) -> tuple[str, ...]:
    """Jobs are suspended for those of higher tiers."""
    return (
        "PreemptType=preempt/partition_prio", "PreemptMode=SUSPEND,GANG",
        *(f"PartitionName={name} Nodes=n[1-{nodes}] MaxTime=INFINITE State=UP PriorityTier={tier}"
          for name, tier in TIERS.items() if name != "main"),
    )  # fmt: skip


@pytest.fixture
def suspending(tmp_path_factory, slurm_version) -> Iterator[SlurmCluster]:
    folder = tmp_path_factory.mktemp("suspending")
    more = settings_of_tiers(6)
    with running(
        folder, version=slurm_version, nodes=6, scheduler="backfill", partition="PriorityTier=1",
        more=more,
    ) as made:  # fmt: skip
        yield made


def check_suspended(
    slurm: SlurmCluster,
    folder: Path,
    jobs: list[tuple[float, str, str, float]],
    suspended: list[bool],
    **columns: Any,
) -> None:
    """The real jobs, and those of the simulation, start, end and are suspended at the same times.

    Args:
        slurm: of which settings are imported, too.
        folder: an empty one.
        jobs: after so many seconds, partition, what it asks for, seconds of work.
        suspended: whether each is.
        columns: what each asks for, of the workload.
    """
    began = time.monotonic()
    submitted = []
    for after, name, asked, work_s in jobs:
        slurm.wait(lambda after=after: time.monotonic() - began >= after, 60)
        head = f"#SBATCH {asked}\n#SBATCH -t5\n#SBATCH -p {name}\n"
        submitted.append(slurm.submit_script(head + WORK.format(2 * work_s)))
    slurm.wait(lambda: job_ends(slurm, submitted), 200)
    rows = [slurm.job(job) for job in submitted]
    assert {row["JobState"] for row in rows} == {"COMPLETED"}
    submit, start, end = (
        [datetime.fromisoformat(row[key]).timestamp() for row in rows]
        for key in ("SubmitTime", "StartTime", "EndTime")
    )
    ran = [span_s(row["RunTime"]) for row in rows]

    shutil.copy(slurm.conf, folder)
    site = import_site("slurm", folder).site
    workload = Workload.build(
        submit_s=[time_s - submit[0] for time_s in submit],
        runtime_s=ran,
        walltime_s=[300] * len(rows),
        partition=Category.of([name for _, name, *_ in jobs]),
        **columns,
    )
    found = simulate(workload, site.cluster, site.policy).jobs
    paused = [e - s - r for s, e, r in zip(start, end, ran, strict=True)]
    assert [one > 1 for one in paused] == suspended
    assert (found["suspended_s"] > 0).to_list() == suspended
    for ours, theirs in (
        ("suspended_s", paused),
        ("start_s", [time_s - submit[0] for time_s in start]),
        ("end_s", [time_s - submit[0] for time_s in end]),
    ):
        apart = (found[ours] - pl.Series(theirs)).abs()
        assert apart.max() <= APART_S, (ours, found[ours].to_list(), theirs)


def test_the_same_jobs_are_suspended_for_as_long(suspending, tmp_path):
    check_suspended(
        suspending,
        tmp_path,
        [(after, name, f"-N{nodes}", work_s) for after, name, nodes, work_s in SUSPENDED],
        [True, True, False, False, False, False],
        nodes=[nodes for _, _, nodes, _ in SUSPENDED],
    )


SHARED_SUSPENDED = [  # … nodes, cores, MB and GPUs of each node, seconds of work
    (0, "main", 1, 4, 5000, 0, 26), (0, "main", 1, 4, 2000, 1, 26), (5, "high", 1, 3, 3500, 0, 12),
    (9, "high", 1, 4, 2000, 2, 6), (12, "mid", 2, 2, 1000, 0, 8), (14, "main", 1, 1, 500, 0, 4),
]  # fmt: skip


@pytest.fixture
def suspending_shared(
    tmp_path_factory, request, slurm_version
) -> Iterator[tuple[SlurmCluster, str]]:
    """Two nodes of four cores, 8,000 MB and two GPUs; and by what they are shared."""
    folder = tmp_path_factory.mktemp("suspending")
    with running(
        folder, version=slurm_version, nodes=2, cpus=CORES, select=request.param, memory=8000, gpus=2,
        scheduler="backfill", partition="PriorityTier=1", more=settings_of_tiers(2),
    ) as made:  # fmt: skip
        yield made, request.param


@pytest.mark.parametrize("suspending_shared", ["CR_Core", "CR_Core_Memory"], indirect=True)
def test_on_shared_nodes_too_and_they_keep_memory_and_gpus(suspending_shared, tmp_path):
    slurm, select = suspending_shared
    _, _, nodes, cores, memory_mb, gpus, _ = zip(*SHARED_SUSPENDED, strict=True)
    jobs = []
    for after, name, wide, per_node, mb, of_gpus, work_s in SHARED_SUSPENDED:
        asked = f"-N{wide} --ntasks-per-node=1 -c{per_node} --mem={mb} --gres=gpu:{of_gpus}"
        jobs.append((after, name, asked.removesuffix(" --gres=gpu:0"), work_s))
    counts_memory = select == "CR_Core_Memory"
    check_suspended(
        slurm,
        tmp_path,
        jobs,
        [True, True, False, False, False, False],
        nodes=nodes,
        chunks={
            "tasks": nodes,
            "tasks_per_node": [1] * len(jobs),
            "cores_per_task": cores,
            "memory_gb_per_task": [mb / 1024 * counts_memory for mb in memory_mb],
            "gpus_per_task": gpus,
        },
    )


def span_s(text: str) -> float:
    hours, minutes, seconds = text.split(":")
    return 3600 * float(hours) + 60 * float(minutes) + float(seconds)
