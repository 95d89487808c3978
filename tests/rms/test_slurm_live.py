"""The twin beside a real Slurm of 32 nodes."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from hpctwin.rms.managers import probe
from hpctwin.rms.polling.poller import Poller
from hpctwin.rms.polling.spool import Spool
from hpctwin.rms.records.events import Event, JobEnded
from hpctwin.rms.slurm.manager import SlurmManager, SlurmNews
from hpctwin.twin.journal.journal import Journal
from tests.rms.beside_slurm import Beside, job_ends, running
from tests.rms.slurm_cluster import SlurmCluster
from tests.rms.slurm_roots import NEWEST

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


@pytest.fixture
def slurm(tmp_path: Path, slurm_version: str) -> Iterator[SlurmCluster]:
    with running(tmp_path, version=slurm_version, rule=True) as cluster:
        yield cluster


@pytest.fixture
def twin(slurm: SlurmCluster) -> Iterator[Beside]:
    twin = Beside(slurm)
    yield twin
    twin.end()


def submit_some(slurm: SlurmCluster, jobs: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [
        slurm.submit(int(rng.integers(2, 20)), 1, float(rng.uniform(0.5, 2))) for _ in range(jobs)
    ]


def running_jobs(slurm: SlurmCluster) -> list[str]:
    return slurm.say("squeue", "-h", "-t", "R,CG", "-o", "%A").split()


@pytest.mark.slurm(NEWEST)
def test_the_twin_runs_every_job_once_through_death_restarts_and_a_lost_node(
    slurm: SlurmCluster, twin: Beside
) -> None:
    held = slurm.submit(1, 1, 1, "-H")
    long = slurm.submit(1, 5, 120)
    over = slurm.submit(1, 1, 300)
    slurm.wait(lambda: set(running_jobs(slurm)) == {long, over}, 20)  # without a twin, Slurm starts
    twin.begin()
    jobs = submit_some(slurm, 12, seed=1)
    cancelled = slurm.submit(32, 1, 1)
    slurm.wait(lambda: slurm.job(jobs[0])["JobState"] != "PENDING", 30)
    slurm.say("scancel", cancelled)
    twin.end(signal.SIGKILL)
    jobs += submit_some(slurm, 4, seed=2)
    slurm.end_controller()
    slurm.begin_controller()
    # Slurm keeps a job that lost its node back for two minutes: let none be there.
    slurm.wait(lambda: set(running_jobs(slurm)) <= {long, over}, 30)
    slurm.say("scontrol", "update", "nodename=n32", "state=down", "reason=test")
    twin.begin()
    last = submit_some(slurm, 4, seed=3)
    jobs += last
    time.sleep(2)
    slurm.say("scontrol", "update", "nodename=n32", "state=resume")
    slurm.wait(lambda: job_ends(slurm, jobs), 120)
    done = [slurm.job(i) for i in jobs]
    assert {(j["JobState"], j["Restarts"]) for j in done} == {("COMPLETED", "0")}
    assert slurm.job(held)["JobState"] == "PENDING"  # its user's hold is respected
    assert slurm.job(cancelled)["JobState"] == "CANCELLED"
    assert slurm.job(long)["JobState"] != "PENDING"
    slurm.wait(lambda: slurm.job(over)["JobState"] == "TIMEOUT", 150)
    last.append(slurm.submit(31, 1, 1))  # fits only if the mirror knows that job's end
    slurm.wait(lambda: slurm.job(last[-1])["JobState"] == "COMPLETED", 30)
    twin.end()
    journal = Journal(slurm.folder / "journal.sqlite", read_only=True)
    for job in last:
        acted = any(a.result in ("done", "unknown") for a in journal.read_actions(job=job))
        # A job that fits on idle nodes gets no lease, and nothing needs to be done for it.
        assert acted or slurm.job(job)["EligibleTime"] == slurm.job(job)["SubmitTime"]
    journal.close()
    assert twin.command("twin", "verify").returncode == 0


def test_only_the_twins_jobs_are_leased_and_admitted(slurm: SlurmCluster) -> None:
    manager = SlurmManager("emul", conf=slurm.conf)
    full = slurm.submit(32, 10, 580)
    slurm.wait(lambda: slurm.job(full)["JobState"] == "RUNNING", 20)
    owned = slurm.submit(2, 1, 1)
    held = slurm.submit(2, 1, 1, "-H")
    other = slurm.submit(2, 1, 1)
    slurm.say("scontrol", "update", f"JobId={other}", "AdminComment=mine")
    snapshot = manager.snapshot()
    assert {j.spec.id for j in snapshot.jobs if j.spec.held} == {held}
    assert set(manager.leases()) == {owned, held}
    until_s = time.time() + 100
    outcomes = manager.lease(dict.fromkeys((owned, other, full, "99999", "$(id)", "-1"), until_s))
    assert {i for i, one in outcomes.items() if one.result == "done"} == {owned}
    assert manager.leases()[owned] == int(until_s)
    manager.snapshot()
    assert manager.leases()[owned] == int(until_s)
    slurm.say("scancel", full)
    assert manager.admit([owned, other])[other].result == "refused"
    assert manager.admit([held])[held].result == "done"
    slurm.wait(lambda: slurm.job(owned)["JobState"] == "COMPLETED", 20)
    assert slurm.job(held)["Reason"] == "JobHeldUser"  # what a user holds stays held
    assert manager.admit([owned])[owned].result == "refused"
    assert manager.start(owned).result == "refused"


def test_a_controller_that_is_away_is_named_and_an_answer_that_is_lost_is_unknown(
    slurm: SlurmCluster,
) -> None:
    from hpctwin.errors import UnreachableError

    manager = SlurmManager("emul", conf=slurm.conf, timeout_s=1.0)
    job = slurm.submit(2, 1, 1, "--begin=now+3600")
    manager.snapshot()
    slurm.end_controller()
    assert manager.lease({job: time.time() + 60})[job].result == "unknown"
    with pytest.raises(UnreachableError):
        manager.snapshot()


def test_pushed_events_report_starts_and_ends_between_two_queries(
    tmp_path: Path, slurm_version: str
) -> None:
    events: list[Event] = []
    with running(tmp_path, version=slurm_version, events=True) as slurm:
        poller = Poller(
            SlurmManager("emul", conf=slurm.conf), events.append, every_s=600.0, floor_s=0.2,
            lines=Spool(tmp_path / "news.jsonl"), translate=SlurmNews(),
        )  # fmt: skip
        poller.snapshot()
        poller.start()
        slurm.wait(lambda: poller.polls >= 2, 10)
        # It ends when its start has been seen, however long a look takes.
        ends = tmp_path / "ends"
        first = slurm.submit_script(
            f"#SBATCH -N2 -t30\nwhile [ ! -e {ends} ]; do sleep 0.1; done\n"
        )
        slurm.wait(lambda: (first, "job_started") in kinds(events), 10)
        polls = poller.polls
        ends.touch()
        slurm.wait(lambda: (first, "job_ended") in kinds(events), 15)
        assert poller.polls == polls  # the end needed no look
        cancelled = slurm.submit(2, 10, 580)
        requeued = slurm.submit(2, 10, 580)
        slurm.wait(lambda: (requeued, "job_started") in kinds(events), 10)
        slurm.say("scancel", cancelled)
        slurm.say("scontrol", "requeue", requeued)
        slurm.wait(lambda: (requeued, "job_requeued") in kinds(events), 15)
        slurm.wait(lambda: (cancelled, "job_ended") in kinds(events), 15)
        reasons = {e.job_id: e.reason for e in events if isinstance(e, JobEnded)}
        assert reasons == {first: "exit", cancelled: "cancelled"}
        poller.close()


def test_by_priority_slurm_starts_the_jobs_in_the_order_that_the_twin_gives_them(
    tmp_path: Path, slurm_version: str
) -> None:
    pool = {"pool": ["sjf+none"], "objective": {"tie_break": ["sjf+none"]}}
    with running(tmp_path, version=slurm_version, priority="multifactor") as slurm:
        twin = Beside(slurm, act={"by": "priority"}, core=pool)
        try:
            first = slurm.submit(32, 10, 580)
            slurm.wait(lambda: slurm.job(first)["JobState"] == "RUNNING", 20)
            jobs = [slurm.submit(32, minutes, 1) for minutes in (30, 20, 2)]
            held = slurm.submit(32, 1, 1, "-H")
            twin.begin(wait=False)

            def in_order() -> bool:
                priority = [int(slurm.job(i)["Priority"]) for i in jobs]
                return priority == sorted(set(priority))

            slurm.wait(in_order, 60)
            slurm.say("scancel", first)
            slurm.wait(lambda: job_ends(slurm, jobs), 60)
            started = [slurm.job(i)["StartTime"] for i in jobs]
            assert started == sorted(set(started), reverse=True)
            assert slurm.job(held)["Reason"] == "JobHeldUser"
        finally:
            twin.end()


def test_when_reports_a_pending_job_next_to_slurms_estimate(
    tmp_path: Path, slurm_version: str
) -> None:
    with running(tmp_path, version=slurm_version, scheduler="backfill") as slurm:
        twin = Beside(slurm, act={"mode": "observe"}, core={"site_policy": "fcfs+conservative"})
        first = slurm.submit(32, 5, 290)
        slurm.submit(32, 1, 60)
        job = slurm.submit(4, 1, 60)
        slurm.wait(lambda: slurm.job(first)["JobState"] == "RUNNING", 40)
        began = datetime.fromisoformat(slurm.job(first)["StartTime"]).timestamp()
        slurm.wait(lambda: job in SlurmManager("emul", conf=slurm.conf).own_estimates(), 40)
        said = twin.command("when", job, "--compare-rm", "--json")
        assert said.returncode == 0, said.stderr
        found = json.loads(said.stdout)
        assert (found["state"], found["source"]) == ("waiting", "one query of the resource manager")
        assert abs(found["start_s"] - found["managers_estimate_s"]) <= 60
        # However long the asking took: the first job has its nodes for five minutes, the second for one.
        assert found["start_s"] - began == pytest.approx(360, abs=20)
        said = twin.command("when", "--nodes", "33", "--walltime", "1h", "--json")
        assert json.loads(said.stdout)["state"] == "never"
        assert twin.command("when", "99999").returncode == 1


def test_the_probe_finds_what_this_slurm_lets_the_twin_do(slurm: SlurmCluster) -> None:
    (found,) = [one for one in probe(conf=slurm.conf) if one.manager == "slurm"]
    works = {finding.what: finding.works for finding in found.findings}
    assert works["reading the state"]
    assert works["acting by lease"]
    assert works["rights"]
    assert not works["pushed starts"]
    assert not works["own start-time estimates"]


def kinds(events: list[Event]) -> list[tuple[str, str]]:
    return [(getattr(event, "job_id", ""), event.kind) for event in list(events)]


@pytest.mark.slurm(NEWEST)
def test_an_ended_cluster_leaves_no_job_for_the_next_one(
    tmp_path: Path, slurm_version: str
) -> None:
    with running(tmp_path, version=slurm_version, nodes=2) as slurm:
        job = slurm.submit(2, 10, 580)
        slurm.wait(lambda: slurm.job(job)["JobState"] == "RUNNING", 20)
    ours = f"SLURM_CONF={slurm.conf}".encode()

    def watched() -> bool:
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                own = ours in (process / "environ").read_bytes().split(b"\0")
                if own and (process / "comm").read_text().strip() == "slurmstepd":
                    return True
        return False

    slurm.wait(lambda: not watched(), 20)
