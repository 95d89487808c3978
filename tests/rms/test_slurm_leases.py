"""Leases beside a real Slurm: what the twin keeps waiting, what it never does, and what it leaves behind."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.rms.beside_slurm import (
    NOBODY,
    Beside,
    Wrapped,
    as_user,
    begin_times,
    job_ends,
    readable_folder,
    running,
    states,
)
from tests.rms.slurm_cluster import SlurmCluster
from tests.rms.slurm_roots import NEWEST

pytestmark = [pytest.mark.slurm(NEWEST), pytest.mark.slow]

NODES = 8
LEASE_S, WITHIN_S = 6, 4
FCFS = {"pool": ["fcfs+easy"], "objective": {"tie_break": ["fcfs+easy"]}}


class Site:
    """One Slurm and one twin for all trials that do no lasting harm; the commands can be made to fail."""

    def __init__(self, slurm: SlurmCluster) -> None:
        self.slurm = slurm
        self.wrapped = Wrapped(slurm.folder)
        self.twin = Beside(
            slurm,
            zone="Asia/Tokyo",
            manager={"folder": str(self.wrapped.folder), "timeout": 10},
            act={"lease": LEASE_S, "max_lease": 12, "max_staleness": WITHIN_S},
            core=FCFS,
        )

    def fill(self) -> str:
        """A job on all nodes."""
        job = self.slurm.submit(NODES, 10, 580)
        self.slurm.wait(lambda: states(self.slurm).get(job, "").startswith("RUNNING"), 20)
        return job

    def leased(self, *jobs: str) -> bool:
        """Whether each of Slurm's jobs waits for a begin time ahead."""
        begins, now_s = begin_times(self.slurm), time.time()
        return all(begins[job] > now_s for job in jobs)

    def knows(self, jobs: int) -> bool:
        """Whether the twin has so many jobs to lease."""
        return bool(self.twin.status()["leases"]["jobs"] == jobs)

    def clear(self) -> None:
        self.slurm.say("scancel", "-u", "root")
        self.slurm.say("scancel", "-u", NOBODY)
        self.slurm.wait(lambda: not states(self.slurm), 30)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, slurm_version: str) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with running(
        folder, version=slurm_version, rule={"partition": ("main",)}, events=True,
        scheduler="backfill", nodes=NODES,
        more=("Licenses=matlab:1", "PartitionName=other Nodes=n1 State=UP"),
    ) as slurm:  # fmt: skip
        site = Site(slurm)
        try:
            yield site
        finally:
            site.twin.end()


@pytest.fixture
def site(made: Site) -> Iterator[Site]:
    if made.twin.process is None or made.twin.process.poll() is not None:
        made.twin.begin()
    made.slurm.wait(lambda: made.twin.status()["is_active"], 30)
    yield made
    made.clear()


def submitted(site: Site, *options: str) -> str:
    return site.slurm.submit(1, 1, 1, *options)


@pytest.mark.slurm
def test_arrays_heterogeneous_jobs_and_those_without_a_partition_are_leased_and_run_once(
    site: Site,
) -> None:
    slurm = site.slurm
    full = site.fill()
    plain = submitted(site)
    array = submitted(site, "--array=1-3")
    parts = slurm.submit_script("#SBATCH -N2 -t1\n#SBATCH hetjob\n#SBATCH -N1 -t1\nsleep 1\n")
    other = submitted(site, "-p", "other")
    raw = [plain, array, parts, str(int(parts) + 1)]
    slurm.wait(lambda: site.leased(*raw), 5)
    time.sleep(LEASE_S + 2)
    assert site.leased(*raw)  # renewed, arrays in one piece
    assert slurm.say("squeue", "-h", "-j", array, "-o", "%i").split() == [f"{array}_[1-3]"]
    assert not site.leased(other)  # of a partition that is not the twin's
    slurm.say("scancel", full)
    slurm.wait(lambda: not states(slurm), 60)
    rows = slurm.say("scontrol", "show", "job", "-o").splitlines()
    mine = [
        row for row in rows if any(f"JobId={i} " in row or f"ArrayJobId={i} " in row for i in raw)
    ]
    assert len(mine) == 6
    assert all("JobState=COMPLETED" in row and "Restarts=0" in row for row in mine)


@pytest.mark.slurm
def test_an_array_at_its_task_limit_keeps_no_other_job_of_its_user_waiting(site: Site) -> None:
    slurm = site.slurm
    full = site.fill()
    array = slurm.submit(1, 10, 580, "--array=1-4%1")
    slurm.wait(lambda: site.leased(array), 20)
    slurm.say("scancel", full)

    def limited() -> bool:
        said = slurm.say("squeue", "-h", "-r", "-j", array, "-o", "%r").split()
        return "JobArrayTaskLimit" in said

    slurm.wait(limited, 60)
    # Its other nodes are taken, so that the twin decides about the next job.
    others = slurm.submit(NODES - 1, 10, 580)
    slurm.wait(lambda: states(slurm).get(others, "").startswith("RUNNING"), 60)
    late = slurm.submit(1, 11, 580)
    slurm.wait(lambda: site.leased(late), 20)
    time.sleep(LEASE_S)
    slurm.say("scancel", others)
    slurm.wait(lambda: states(slurm).get(late, "").startswith("RUNNING"), 60)
    assert limited()


def test_a_wide_job_goes_before_the_tasks_of_an_array_submitted_after_it(site: Site) -> None:
    slurm = site.slurm
    full = site.fill()
    wide = slurm.submit(NODES, 1, 1)
    array = slurm.submit(1, 1, 3, "--array=1-40")
    slurm.say("scancel", full)
    slurm.wait(lambda: wide not in states(slurm), 30)
    waiting = [i for i, state in states(slurm).items() if "PENDING" in state]
    assert len([i for i in waiting if i.startswith(f"{array}_")]) >= 40 - NODES


@pytest.mark.slurm
def test_a_job_held_by_a_user_or_an_administrator_stays_held_until_they_release_it(
    site: Site,
) -> None:
    slurm = site.slurm
    full = site.fill()
    first, second = submitted(site), submitted(site)
    slurm.wait(lambda: site.leased(first, second), 5)
    slurm.say("scontrol", "hold", first)
    slurm.say("scontrol", "uhold", second)
    slurm.say("scancel", full)
    last = submitted(site)
    slurm.wait(lambda: job_ends(slurm, [last]), 30)
    assert states(slurm) == {first: "PENDING JobHeldAdmin", second: "PENDING JobHeldUser"}
    site.twin.end()  # what it leaves behind releases nothing
    time.sleep(2)
    assert states(slurm) == {first: "PENDING JobHeldAdmin", second: "PENDING JobHeldUser"}
    site.twin.begin()
    slurm.say("scontrol", "release", f"{first},{second}")
    slurm.wait(lambda: job_ends(slurm, [first, second]), 30)


def test_a_users_begin_time_is_kept_and_users_cannot_end_a_lease(site: Site) -> None:
    slurm = site.slurm
    begin = ("sbatch", "--parsable", "-N1", "-t1", "-o", "/dev/null", "--wrap", "sleep 1")
    asked_at = int(time.time())
    asked = as_user(slurm, *begin, "--begin=now+12").stdout.strip()
    slurm.wait(lambda: job_ends(slurm, [asked]), 40)
    assert datetime.fromisoformat(slurm.job(asked)["StartTime"]).timestamp() >= asked_at + 12
    site.fill()
    jobs = [as_user(slurm, *begin).stdout.strip() for _ in range(2)]
    slurm.wait(lambda: site.leased(*jobs), 5)
    assert as_user(slurm, "scontrol", "update", f"JobId={jobs[0]}", "StartTime=now").returncode == 0
    assert site.leased(jobs[0])
    done = as_user(slurm, "scontrol", "update", f"JobId={jobs[1]}", "StartTime=now+3600")
    assert done.returncode == 0
    # Noted where only an operator can write, and kept.
    slurm.wait(lambda: "hpctwin:" in slurm.job(jobs[1])["AdminComment"], 20)
    time.sleep(LEASE_S)
    assert begin_times(slurm)[jobs[1]] > time.time() + 3000
    denied = as_user(slurm, "scontrol", "update", f"JobId={jobs[0]}", "AdminComment=x")
    assert denied.returncode != 0


def test_jobs_that_slurm_will_not_start_hold_no_nodes_in_the_twins_model(site: Site) -> None:
    slurm = site.slurm
    taken = slurm.submit(1, 10, 580, "-L", "matlab:1")
    slurm.wait(lambda: states(slurm)[taken].startswith("RUNNING"), 20)
    behind = [submitted(site, "-L", "matlab:1") for _ in range(5)]
    slurm.wait(lambda: any("Licenses" in state for state in states(slurm).values()), 20)
    ones = [slurm.submit(1, 1, 3) for _ in range(NODES - 1)]
    slurm.wait(lambda: all(states(slurm).get(i, "RUNNING").startswith("RUNNING") for i in ones), 15)
    # Those that Slurm refuses stand for all others like them, which are not asked for in vain.
    later = [submitted(site, "-L", "matlab:1") for _ in range(2)]
    time.sleep(LEASE_S)
    assert site.leased(*later)
    slurm.say("scancel", taken)
    slurm.wait(lambda: job_ends(slurm, behind + later), 60)


def test_a_job_in_a_reservation_runs_there_at_once_and_no_other_does(site: Site) -> None:
    slurm = site.slurm
    slurm.say(
        "scontrol", "create", "reservation", "ReservationName=course", "StartTime=now",
        "Duration=10", f"Nodes=n[1-{NODES // 2}]", "Users=root",
    )  # fmt: skip
    try:
        inside = slurm.submit(NODES // 2, 1, 20, "--reservation=course")
        outside = slurm.submit(NODES // 2, 1, 1)
        wide = slurm.submit(NODES, 1, 1)
        slurm.wait(lambda: job_ends(slurm, [outside]), 70)
        job = slurm.job(inside)
        assert job["EligibleTime"] == job["SubmitTime"]  # it had no lease
        assert "PENDING" in states(slurm)[wide]
    finally:
        slurm.say("scancel", "-u", "root")
        slurm.wait(lambda: not states(slurm), 30)
        slurm.say("scontrol", "delete", "ReservationName=course")


@pytest.mark.parametrize(("command", "fault"), [("squeue", "hang"), ("scontrol", "garbage")])
def test_a_blind_twin_is_not_in_charge_and_delays_no_job(
    site: Site, command: str, fault: str
) -> None:
    slurm = site.slurm
    full = site.fill()
    jobs = [submitted(site) for _ in range(3)]
    slurm.wait(lambda: site.leased(*jobs), 5)
    site.wrapped.set(command, fault)
    try:
        slurm.wait(lambda: not site.twin.status()["is_active"], WITHIN_S + 15)
        assert site.twin.status()["fault"]
        slurm.say("scancel", full)
        # The leases run out by themselves: none is longer than the longest.
        slurm.wait(lambda: job_ends(slurm, jobs), 30)
        late = submitted(site)
        slurm.wait(lambda: job_ends(slurm, [late]), 40)
    finally:
        site.wrapped.set(command, None)
    slurm.wait(lambda: site.twin.status()["is_active"], 30)
    assert site.twin.status()["fault"] is None


def test_a_twin_that_is_ended_leaves_no_lease_behind_and_one_that_is_killed_short_ones(
    site: Site,
) -> None:
    slurm = site.slurm
    site.fill()
    jobs = [slurm.submit(NODES, 1, 1) for _ in range(3)]
    slurm.wait(lambda: site.knows(3), 20)
    site.twin.end()
    assert not any(site.leased(job) for job in jobs)
    site.twin.begin()
    slurm.wait(lambda: site.leased(*jobs), 20)
    site.twin.end(9)
    assert max(begin_times(slurm)[job] for job in jobs) <= time.time() + 13
    site.twin.begin()
    slurm.wait(lambda: site.leased(*jobs), 20)


@pytest.mark.slurm
def test_on_a_slurm_as_shipped_each_submission_starts_by_the_twins_word(
    tmp_path: Any, slurm_version: str
) -> None:
    with running(
        tmp_path, version=slurm_version, rule=True, events=True, scheduler="backfill", nodes=4,
        parameters="",
    ) as slurm:  # fmt: skip
        twin = Beside(slurm, act={"idle_starts": False})
        try:
            twin.begin()
            jobs = []
            for pause_s in (0.0, 0.7, 1.6, 2.3, 4.1):
                time.sleep(pause_s)
                jobs.append(submitted_in(slurm))
            slurm.wait(lambda: job_ends(slurm, jobs), 40)
            twin.end()  # what it did last is written by then
            assert twin.status()["counts"]["starts"] == len(jobs)
            found = twin.command("twin", "verify")
            assert found.returncode == 0, found.stdout
        finally:
            twin.end()


@pytest.mark.slurm
def test_a_job_of_a_higher_tier_preempts_at_once_whatever_the_twin_leases(
    tmp_path: Any, slurm_version: str
) -> None:
    tiers = ("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE")
    urgent = "PartitionName=urgent Nodes=n[1-2] PriorityTier=10 MaxTime=INFINITE State=UP"
    with running(
        tmp_path, version=slurm_version, rule=True, events=True, scheduler="backfill", nodes=2,
        partition="PriorityTier=1", more=(*tiers, urgent),
    ) as slurm:  # fmt: skip
        twin = Beside(slurm, core=FCFS)
        try:
            twin.begin()
            low = slurm.submit(2, 10, 580, "--requeue")
            slurm.wait(lambda: states(slurm).get(low, "").startswith("RUNNING"), 20)
            high = slurm.submit(2, 1, 1, "-p", "urgent")
            slurm.wait(lambda: job_ends(slurm, [high]), 20)
            job = slurm.job(high)
            assert job["EligibleTime"] == job["SubmitTime"]  # it had no lease
            assert slurm.job(low)["Restarts"] == "1"
            assert twin.status()["fault"] is None
        finally:
            twin.end()


def submitted_in(slurm: SlurmCluster) -> str:
    return slurm.submit(1, 1, 0.5)


@pytest.mark.slurm
def test_on_shared_nodes_the_twin_chooses_and_slurm_fills_them(
    tmp_path: Any, slurm_version: str
) -> None:
    shared = {"nodes": 2, "cpus": 4, "scheduler": "backfill"}
    with running(tmp_path, version=slurm_version, rule=True, **shared) as slurm:
        twin = Beside(slurm, manager={"poll_interval": 1}, core={"pool": ["sjf+easy"]})
        try:
            twin.begin()
            first = [slurm.submit_tasks(30, 1800, "-n1") for _ in range(8)]
            slurm.wait(lambda: twin.status()["running"] == 8, 60)
            long = slurm.submit_tasks(9, 60, "-n3")
            slurm.wait(lambda: twin.status()["waiting"] == 1, 30)
            short = slurm.submit_tasks(2, 60, "-n1")
            slurm.wait(lambda: twin.status()["waiting"] == 2, 30)
            assert twin.status()["leases"]["jobs"] == 2
            said = twin.command("when", long).stdout
            assert "There is no capacity for it now" in said, (
                said + slurm.say("squeue", "-l") + str(twin.status())
            )
            slurm.say("scancel", *first[:3])
            # The shortest first: the long one would fit as well, but not both.
            slurm.wait(lambda: states(slurm).get(short, "").startswith("RUNNING"), 60)
            assert states(slurm)[long].startswith("PENDING")
            slurm.say("scancel", first[3])
            slurm.wait(lambda: states(slurm).get(long, "").startswith("RUNNING"), 60)
            status = twin.status()
            assert (status["fault"], status["drift"], status["not_read"]) == (None, [], [])
        finally:
            twin.end()


@pytest.mark.slurm
def test_no_job_is_sent_to_nodes_of_another_user_and_none_waits_forever(
    slurm_version: str,
) -> None:
    one, other = ("--uid=daemon",), ("--uid=games",)
    shared = {"nodes": 2, "cpus": 4, "scheduler": "backfill", "version": slurm_version}
    with readable_folder() as folder, running(folder, rule=True, **shared) as slurm:
        pool = {"pool": ["fcfs+first-fit"]}
        twin = Beside(slurm, manager={"poll_interval": 1}, act={"idle_starts": False}, core=pool)

        def running_are(jobs: list[str]) -> bool:
            now = {i for i, said in states(slurm).items() if said.startswith("RUNNING")}
            return now == set(jobs)

        try:
            twin.begin()
            alone = slurm.submit_tasks(30, 1800, *one, "-n1", "--exclusive=user")
            slurm.wait(lambda: running_are([alone]), 60)
            full = slurm.submit_tasks(30, 1800, *other, "-n4")
            slurm.wait(lambda: running_are([alone, full]), 60)
            # It comes first, and there are cores for it; but they are kept for another user.
            kept_off = slurm.submit_tasks(30, 1800, *other, "-n1")
            slurm.wait(lambda: twin.status()["waiting"] == 1, 30)
            beside_it = slurm.submit_tasks(30, 1800, *one, "-n2")
            slurm.wait(lambda: running_are([alone, full, beside_it]), 60)
            assert "There is no capacity for it now" in twin.command("when", kept_off).stdout
            wants_alone = slurm.submit_tasks(30, 1800, *other, "-n1", "--exclusive=user")
            slurm.wait(lambda: twin.status()["waiting"] == 2, 30)
            assert set(told_to_go(slurm)) == {alone, full, beside_it}
            slurm.say("scancel", alone)
            slurm.wait(lambda: running_are([full, beside_it, kept_off]), 60)
            slurm.say("scancel", full)
            slurm.wait(lambda: running_are([beside_it, kept_off, wants_alone]), 60)
            assert set(told_to_go(slurm).values()) == {1}
            status = twin.status()
            assert (status["fault"], status["drift"], status["not_read"]) == (None, [], [])
        finally:
            twin.end()


def told_to_go(slurm: SlurmCluster) -> dict[str, int]:
    """How often the twin told each job to go, by its journal."""
    with contextlib.closing(sqlite3.connect(slurm.folder / "journal.sqlite")) as journal:
        return dict(
            journal.execute(
                "SELECT job, count(*) FROM actions WHERE reason IS NULL OR reason NOT LIKE 'withheld%'"
                " GROUP BY job"
            )
        )


@pytest.mark.slurm
def test_if_jobs_may_have_the_same_cores_the_twin_observes_says_why_and_slurm_fills_them(
    tmp_path: Any, slurm_version: str
) -> None:
    shared = {"nodes": 2, "cpus": 2, "partition": "OverSubscribe=FORCE:2"}
    with running(
        tmp_path, version=slurm_version, rule=True, scheduler="backfill", **shared
    ) as slurm:
        twin = Beside(slurm, manager={"poll_interval": 1})
        try:
            twin.begin(wait=False)
            jobs = [slurm.submit_tasks(30, 1800, "-n1") for _ in range(8)]
            slurm.wait(lambda: all(s.startswith("RUNNING") for s in states(slurm).values()), 60)
            slurm.wait(lambda: twin.status().get("running") == 8, 60)
            waits = slurm.submit_tasks(30, 60, "-n1")
            slurm.wait(lambda: twin.status()["waiting"] == 1, 30)
            status = twin.status()
            assert (status["fault"], status["drift"]) == (None, [])
            assert any("shared between jobs" in note for note in status["not_read"])
            assert status["leases"]["jobs"] == 0
            for words in ((waits,), (waits, "--fresh")):
                said = twin.command("when", *words)
                assert said.returncode == 0, said.stderr
            said = subprocess.run(
                [sys.executable, "-m", "hpctwin", "rms", "probe", "--manager-conf", str(slurm.conf)],
                capture_output=True, text=True, check=True, env={**slurm.env, "COLUMNS": "200"},
            )  # fmt: skip
            assert "shared between jobs" in said.stdout
            slurm.say("scancel", *jobs, waits)
        finally:
            twin.end()
