"""Jobs that the twin leaves to Slurm, and jobs on an idle cluster, start as if there were no twin."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpctwin.rms.records.records import JobSpec
from hpctwin.rms.slurm.manager import SlurmManager
from tests.rms.beside_slurm import Beside, begin_times, beside, running, states
from tests.rms.slurm_cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

NODES, CORES = 2, 4
FIRST_LEASE = "10m"
"""So long that a job that starts within a minute had none, or its lease was ended."""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory, slurm_version: str) -> Iterator[SlurmCluster]:
    """Partition main shares cores; partition over runs several jobs on a core, which is not modeled."""
    with running(
        tmp_path_factory.mktemp("harm"), rule={"lease": FIRST_LEASE}, events=True,
        version=slurm_version, scheduler="backfill", nodes=NODES + 1, cpus=CORES, main=f"n[1-{NODES}]",
        more=(
            f"PartitionName=over Nodes=n{NODES + 1} OverSubscribe=FORCE:2 State=UP",
            f"PartitionName=high Nodes=n[1-{NODES}] PriorityTier=3 MaxTime=INFINITE State=UP",
        ),
    ) as cluster:  # fmt: skip
        yield cluster


@pytest.fixture(scope="module")
def acting(slurm: SlurmCluster) -> Iterator[Beside]:
    with beside(slurm, manager={"first_lease": FIRST_LEASE}) as twin:
        yield twin


@pytest.fixture
def twin(acting: Beside) -> Iterator[Beside]:
    """The queue is empty, and the heartbeat says so after a look that knows of all submissions."""
    begin_s = time.time()

    def is_idle() -> bool:
        told = json.loads(heartbeat(acting))
        idle = told["partitions"].get("main", [0, 0])[:2] == [NODES, NODES * CORES]
        return idle and told["looked_s"] > begin_s + 1

    acting.slurm.wait(is_idle, 60)
    yield acting
    acting.slurm.say("scancel", "-u", "root")
    acting.slurm.wait(lambda: not states(acting.slurm), 60)


def heartbeat(twin: Beside) -> str:
    return twin.heartbeat.read_text()


def leased(slurm: SlurmCluster, jobs: list[str]) -> list[str]:
    """The jobs that wait for a begin time ahead."""
    begins = begin_times(slurm)
    return [job for job in jobs if begins[job] > time.time()]


def submit(slurm: SlurmCluster, *options: str, run_s: float = 60.0) -> str:
    return slurm.submit(1, 5, run_s, *options)


def test_jobs_that_fit_an_idle_cluster_get_no_lease_and_the_next_ones_do(twin: Beside) -> None:
    slurm = twin.slurm
    fit = [submit(slurm, "-n2", "-N1") for _ in range(NODES * CORES // 2)]
    more = [submit(slurm, "-n2", "-N1") for _ in range(2)]
    assert leased(slurm, more) == more
    slurm.wait(lambda: all(states(slurm)[job].startswith("RUNNING") for job in fit), 30)
    assert all("PENDING" in states(slurm)[job] for job in more)
    slurm.say("scancel", *fit)
    slurm.wait(lambda: all(states(slurm)[job].startswith("RUNNING") for job in more), 30)


@pytest.mark.parametrize(
    ("array", "fits"), [("1-2", True), ("1,3-8:3", True), ("1-9", False), ("1-2%1", False)]
)
def test_an_array_gets_no_lease_if_all_its_tasks_fit_an_idle_cluster(
    twin: Beside, array: str, fits: bool
) -> None:
    slurm = twin.slurm
    first = submit(slurm, "-n1", f"--array={array}", run_s=1)
    assert leased(slurm, [first]) == ([] if fits else [first])
    slurm.wait(lambda: not states(slurm), 60)


def test_each_task_of_an_array_has_its_own_begin_time_and_reason(twin: Beside) -> None:
    slurm = twin.slurm
    array = submit(slurm, "-n1", "--array=1-4", "-p", "over", "--begin=now+300")
    slurm.say("scontrol", "update", f"JobId={array}_2", "StartTime=now+200")
    manager = SlurmManager("emul", conf=slurm.conf)

    def specs() -> dict[str, JobSpec]:
        jobs = manager.snapshot().jobs
        return {job.spec.id: job.spec for job in jobs if job.spec.id.startswith(f"{array}_")}

    # Slurm names the reason with its next pass; the second query is answered from the text alone.
    slurm.wait(lambda: all(spec.not_before_s for spec in specs().values()), 90)
    for _ in range(2):
        found = specs()
        assert len(found) == 4
        assert {spec.reason for spec in found.values()} == {""}
        begins_s = {job: spec.not_before_s or 0.0 for job, spec in found.items()}
        first_s = begins_s.pop(f"{array}_2")
        assert all(begin_s - first_s > 50 for begin_s in begins_s.values())


def test_a_whole_node_counts_with_all_its_cores(twin: Beside) -> None:
    slurm = twin.slurm
    alone = [submit(slurm, "-n1", "--exclusive") for _ in range(NODES)]
    more = submit(slurm, "-n1")
    assert leased(slurm, [*alone, more]) == [more]


def test_a_job_of_a_partition_where_the_twin_does_not_act_is_never_delayed(twin: Beside) -> None:
    slurm = twin.slurm
    assert '"over"' not in heartbeat(twin)
    jobs = [submit(slurm, "-p", "over", "-n1") for _ in range(2)]
    assert leased(slurm, jobs) == []
    slurm.wait(lambda: all(states(slurm)[job].startswith("RUNNING") for job in jobs), 30)


def test_a_job_of_a_higher_tier_gets_a_lease_where_slurm_does_not_preempt(twin: Beside) -> None:
    slurm = twin.slurm
    full = submit(slurm, f"-n{NODES * CORES}", f"-N{NODES}", run_s=20)
    low, high = submit(slurm, "-n1"), submit(slurm, "-n1", "-p", "high")
    assert leased(slurm, [low, high]) == [low, high]
    slurm.wait(lambda: states(slurm)[full].startswith("RUNNING"), 30)
    slurm.wait(lambda: all(states(slurm)[job].startswith("RUNNING") for job in (low, high)), 60)


@pytest.mark.parametrize(
    ("preempt", "urgent"), [("partition_prio", ("-p", "high")), ("qos", ("--qos=urgent",))]
)
def test_a_job_for_which_slurm_preempts_gets_no_lease_and_preempts_at_once(
    tmp_path: Path, slurm_version: str, preempt: str, urgent: tuple[str, ...]
) -> None:
    high = "PartitionName=high Nodes=n1 PriorityTier=3 MaxTime=INFINITE State=UP"
    with running(
        tmp_path, version=slurm_version, rule={"lease": FIRST_LEASE}, events=True,
        accounting=preempt == "qos", scheduler="backfill", nodes=1, cpus=CORES,
        partition="PriorityTier=1",
        more=(f"PreemptType=preempt/{preempt}", "PreemptMode=REQUEUE", high),
    ) as slurm:  # fmt: skip
        if preempt == "qos":
            slurm.run("sacctmgr", "-i", "add", "qos", "urgent", "preempt=normal")
            slurm.run("sacctmgr", "-i", "modify", "user", "root", "set", "qos=normal,urgent")
        with beside(slurm, manager={"first_lease": FIRST_LEASE}) as twin:
            slurm.wait(lambda: '"main"' in heartbeat(twin), 60)
            assert ('"high"' in heartbeat(twin)) == (preempt == "qos")
            assert ('"urgent"' in heartbeat(twin)) == (preempt == "qos")
            full = submit(slurm, f"-n{CORES}", "--requeue", run_s=300)
            slurm.wait(lambda: states(slurm)[full].startswith("RUNNING"), 60)
            wide, first = submit(slurm, "-n1"), submit(slurm, "-n1", *urgent)
            assert leased(slurm, [wide, first]) == [wide]
            slurm.wait(lambda: states(slurm)[first].startswith("RUNNING"), 60)
            assert "PENDING" in states(slurm)[full]


def test_the_lease_of_a_job_that_is_not_modeled_is_ended_while_others_wait(twin: Beside) -> None:
    slurm = twin.slurm
    full = submit(slurm, f"-n{(NODES - 1) * CORES + 1}", "-N2", run_s=300)
    wide = submit(slurm, f"-n{NODES * CORES}", "-N2")
    slurm.wait(lambda: leased(slurm, [wide]) == [wide], 30)
    # A stopped twin cannot end the lease before the check.
    assert twin.process is not None
    twin.process.send_signal(signal.SIGSTOP)
    try:
        odd = submit(slurm, "-n1", "-t1", "--ntasks-per-core=1")
        assert leased(slurm, [odd]) == [odd]
    finally:
        twin.process.send_signal(signal.SIGCONT)
    slurm.wait(lambda: states(slurm)[odd].startswith("RUNNING"), 60)
    assert states(slurm)[full].startswith("RUNNING")


def test_a_twin_that_can_act_nowhere_says_so_with_the_reasons(
    tmp_path: Path, slurm_version: str
) -> None:
    with (
        running(
            tmp_path, version=slurm_version, rule=True, events=True, scheduler="backfill", nodes=1,
            cpus=CORES, partition="OverSubscribe=FORCE:2",
        ) as slurm,
        beside(slurm, act={"inactive_after": "2s"}) as twin,
    ):  # fmt: skip
        slurm.wait(lambda: twin.status().get("inactive"), 30)
        assert "active in no partition" in twin.status()["inactive"]
        said = twin.command("twin", "status").stdout
        assert "In control without effect: the twin is active in no partition" in said
        assert "OverSubscribe=FORCE:2" in said
        assert "active in no partition" in (tmp_path / "twin.log").read_text()
        job = submit(slurm, "-n1")
        assert leased(slurm, [job]) == []
