"""Whom a real Slurm preempts, and whom the simulation does from the settings that are imported of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from hpctwin import Workload, simulate
from hpctwin.model import Category
from hpctwin.rms.importing import import_site
from tests.conftest import lacking
from tests.rms.beside_slurm import job_ends, running
from tests.rms.slurm_accounting import Accounting, missing_accounting, settings_of
from tests.rms.slurm_cluster import SlurmCluster, free_ports

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

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
def preempting(tmp_path_factory, request) -> Iterator[SlurmCluster]:
    more = ("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", *partitions(request.param))
    folder = tmp_path_factory.mktemp("preempting")
    with running(folder, nodes=NODES, partition="PriorityTier=1", more=more) as made:
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
def sharing(tmp_path_factory) -> Iterator[SlurmCluster]:
    """Nodes of four cores, which jobs share, in partitions of three tiers."""
    nodes = sum(cores for _, cores in SHARED_FULL) // CORES
    of = [f"PartitionName={name} Nodes=n[1-{nodes}] MaxTime=INFINITE State=UP PriorityTier={tier}"
          for name, tier in TIERS.items() if name != "main"]  # fmt: skip
    more = ("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", *of)
    folder = tmp_path_factory.mktemp("sharing")
    with running(folder, nodes=nodes, cpus=CORES, partition="PriorityTier=1", more=more) as made:
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
def test_who_is_preempted_is_cancelled_requeued_after_its_grace_or_spared(preempting, tmp_path):
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


Submission = tuple[float, str, int, float, str]
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


@pytest.fixture
def suspending(tmp_path_factory) -> Iterator[SlurmCluster]:
    more = (
        "PreemptType=preempt/partition_prio", "PreemptMode=SUSPEND,GANG",
        *(f"PartitionName={name} Nodes=n[1-6] MaxTime=INFINITE State=UP PriorityTier={tier}"
          for name, tier in TIERS.items() if name != "main"),
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("suspending")
    with running(
        folder, nodes=6, scheduler="backfill", partition="PriorityTier=1", more=more
    ) as made:
        yield made


def test_the_same_jobs_are_suspended_for_as_long(suspending, tmp_path):
    found = run_beside(suspending, [(*one, "") for one in SUSPENDED], tmp_path)
    assert (found["suspended_s"] > 0).to_list() == [True, True, False, False, False, False]


def run_beside(slurm: SlurmCluster, rows: list[Submission], folder: Path) -> pl.DataFrame:
    """What becomes of jobs in the simulation, once it is seen that the same does on Slurm.

    Args:
        slurm: it.
        rows: the jobs.
        folder: what is imported is put there, beside what it has already.
    """
    began = time.monotonic()
    jobs = []
    for after, name, nodes, work_s, qos in rows:
        slurm.wait(lambda after=after: time.monotonic() - began >= after, 60)
        head = f"#SBATCH -N{nodes}\n#SBATCH -t5\n#SBATCH -p {name}\n"
        head += f"#SBATCH --qos={qos} -A physics\n" if qos else ""
        jobs.append(slurm.submit_script(head + WORK.format(2 * work_s)))
    slurm.wait(lambda: job_ends(slurm, jobs), 200)
    told = [slurm.job(job) for job in jobs]
    assert {row["JobState"] for row in told} == {"COMPLETED"}
    submit, start, end = (
        [datetime.fromisoformat(row[key]).timestamp() for row in told]
        for key in ("SubmitTime", "StartTime", "EndTime")
    )
    ran = [span_s(row["RunTime"]) for row in told]

    shutil.copy(slurm.conf, folder)
    site = import_site("slurm", folder).site
    _, names, nodes, _, qos = zip(*rows, strict=True)
    workload = Workload.build(
        submit_s=[time_s - submit[0] for time_s in submit],
        runtime_s=ran,
        walltime_s=[300] * len(rows),
        nodes=nodes,
        partition=Category.of(names),
        qos=Category.of([one or None for one in qos]),
    )
    found = simulate(workload, site.cluster, site.policy).jobs
    paused = [e - s - r for s, e, r in zip(start, end, ran, strict=True)]
    assert (found["suspended_s"] > 0).to_list() == [one > 1 for one in paused]
    for ours, theirs in (
        ("suspended_s", paused),
        ("start_s", [time_s - submit[0] for time_s in start]),
        ("end_s", [time_s - submit[0] for time_s in end]),
    ):
        apart = (found[ours] - pl.Series(theirs)).abs()
        assert apart.max() <= APART_S, (ours, found[ours].to_list(), theirs)
    return found


EXEMPT_S = 15
BY_QOS = [  # as above, and of a QOS
    (0, "main", 4, 40, "low"), (0, "main", 2, 40, "low"), (6, "fast", 3, 20, "high"),
    (10, "main", 1, 5, "low"), (14, "fast", 1, 8, "high"), (17, "main", 1, 6, "normal"),
]  # fmt: skip


@pytest.fixture
def suspending_by_qos(tmp_path_factory) -> Iterator[SlurmCluster]:
    if absent := missing_accounting():
        lacking(f"accounting of a real Slurm needs {', '.join(absent)}")
    port = free_ports(1)
    more = (
        "PreemptType=preempt/qos", "PreemptMode=SUSPEND,GANG",
        f"PreemptExemptTime=00:00:{EXEMPT_S}", *settings_of(port),
        # Else Slurm runs jobs of both on the same nodes at once.
        "PartitionName=fast Nodes=n[1-6] MaxTime=INFINITE State=UP PriorityTier=2",
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("by_qos")
    slurm = SlurmCluster(
        folder, nodes=6, scheduler="backfill", partition="PriorityTier=1", more=more
    )
    accounting = Accounting(slurm, port)
    try:
        accounting.begin()
        slurm.begin()
        for name in ("low", "high"):
            accounting.tell("add", "qos", name)
        accounting.tell("modify", "qos", "high", "set", "Preempt=low")
        accounting.tell("add", "account", "physics", "QOS=normal,low,high")
        accounting.tell("add", "user", "root", "Account=physics")
        for known in ("Account=physics UserName=root(", "QOS=high("):
            slurm.wait(lambda known=known: known in slurm.say("scontrol", "show", "assoc_mgr"), 60)
        yield slurm
    finally:
        slurm.end()
        accounting.end()


def test_who_is_suspended_by_qos_is_spared_for_the_exempt_time(suspending_by_qos, tmp_path):
    slurm = suspending_by_qos
    (tmp_path / "qos.txt").write_text(slurm.say("sacctmgr", "-P", "show", "qos"))
    found = run_beside(slurm, BY_QOS, tmp_path)
    assert (found["suspended_s"] > 0).to_list() == [True, True, False, False, False, False]
    # Two came before who runs had run for so long.
    assert (found["start_s"][2], found["start_s"][4]) == (EXEMPT_S, EXEMPT_S)


def span_s(text: str) -> float:
    hours, minutes, seconds = text.split(":")
    return 3600 * float(hours) + 60 * float(minutes) + float(seconds)
