"""The twin beside a real Slurm of 32 nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from hpctwin.rms.events import Event, JobEnded
from hpctwin.rms.polling import Poller
from hpctwin.rms.probe import probe
from hpctwin.rms.slurm.manager import SlurmManager
from hpctwin.rms.slurm.news import SlurmNews
from hpctwin.rms.spool import Spool
from hpctwin.twin.journal import Journal
from tests.conftest import lacking
from tests.rms.slurm_cluster import SlurmCluster, missing

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

RULE = Path(__file__).parents[2] / "src/hpctwin/rms/slurm/job_submit.lua"


@contextmanager
def running(folder: Path, **options: Any) -> Iterator[SlurmCluster]:
    absent = missing()
    if absent or os.getuid() != 0:
        lacking(f"a real Slurm needs root and {', '.join(absent) or 'nothing else'}")
    cluster = SlurmCluster(folder, **options)
    try:
        cluster.begin()
        yield cluster
    finally:
        cluster.end()


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[SlurmCluster]:
    with running(tmp_path, rule=RULE) as cluster:
        yield cluster


class Beside:
    """A twin process beside it."""

    def __init__(self, slurm: SlurmCluster, **more: Any) -> None:
        self.slurm = slurm
        self.config = slurm.folder / "twin.yaml"
        self.heartbeat = slurm.folder / "alive"
        self.config.write_text(
            yaml.safe_dump(
                {
                    "manager": {
                        "kind": "slurm", "cluster": "emul", "conf": str(slurm.conf),
                        "poll_every": 0.3, "poll_floor": 0.2, "heartbeat": str(self.heartbeat),
                    },
                    "act": {"mode": "act"},
                    "core": {"retry": 2, "start_patience": 10},
                    "journal": {"path": "journal.sqlite"},
                    "heartbeat_every": 0.3,
                    **more,
                }
            )
        )  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        with (self.slurm.folder / "twin.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "hpctwin", "twin", "run", "-c", str(self.config)],
                stdout=log, stderr=log,
            )  # fmt: skip

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(30)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hpctwin", *words, "-c", str(self.config)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip


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


def all_ended(slurm: SlurmCluster, jobs: list[str]) -> bool:
    return not set(slurm.say("squeue", "-h", "-o", "%A").split()) & set(jobs)


def test_the_twin_runs_every_job_once_through_death_restarts_and_a_lost_node(
    slurm: SlurmCluster, twin: Beside
) -> None:
    held = slurm.submit(1, 1, 1, "-H")
    long = slurm.submit(1, 5, 120)
    over = slurm.submit(1, 1, 300)
    jobs = submit_some(slurm, 12, seed=1)
    cancelled = slurm.submit(32, 1, 1)
    time.sleep(1)
    assert slurm.job(jobs[0])["JobState"] == "PENDING"  # held until the twin comes
    twin.begin()
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
    jobs += submit_some(slurm, 4, seed=3)
    time.sleep(2)
    slurm.say("scontrol", "update", "nodename=n32", "state=resume")
    slurm.wait(lambda: all_ended(slurm, jobs), 120)
    done = [slurm.job(i) for i in jobs]
    assert {(j["JobState"], j["Restarts"]) for j in done} == {("COMPLETED", "0")}
    assert slurm.job(held)["JobState"] == "PENDING"  # its user's hold is respected
    assert slurm.job(cancelled)["JobState"] == "CANCELLED"
    assert slurm.job(long)["JobState"] != "PENDING"
    slurm.wait(lambda: slurm.job(over)["JobState"] == "TIMEOUT", 150)
    last = slurm.submit(31, 1, 1)  # fits only if the mirror knows that job's end
    slurm.wait(lambda: slurm.job(last)["JobState"] == "COMPLETED", 30)
    jobs.append(last)
    twin.end()
    journal = Journal(slurm.folder / "journal.sqlite", read_only=True)
    for job in jobs:
        assert any(a.result in ("done", "unknown") for a in journal.read_actions(job=job))
    journal.close()
    assert twin.command("twin", "replay").returncode == 0


def test_without_the_twin_the_handle_gives_scheduling_back_and_with_it_does_nothing(
    slurm: SlurmCluster, twin: Beside
) -> None:
    job = slurm.submit(2, 1, 1)
    held = slurm.submit(2, 1, 1, "-H")
    time.sleep(1)
    assert slurm.job(job)["JobState"] == "PENDING"
    said = twin.command("rms", "deadman", "--once", "--after", "2s")
    assert (said.returncode, said.stdout.strip()) == (0, "scheduling given back: done"), said.stderr
    slurm.wait(lambda: slurm.job(job)["JobState"] == "COMPLETED", 30)
    assert slurm.job(held)["JobState"] == "PENDING"
    twin.begin()
    slurm.wait(lambda: twin.heartbeat.exists(), 20)
    assert twin.command("rms", "deadman", "--once", "--after", "5s").stdout == "the twin lives\n"


def test_only_jobs_held_for_the_twin_are_touched(slurm: SlurmCluster) -> None:
    manager = SlurmManager("emul", conf=slurm.conf)
    owned = slurm.submit(2, 1, 1)
    array = slurm.submit(1, 1, 30, "--array=1-2", "-H")
    users = slurm.submit(2, 1, 1, "-H")
    snapshot = manager.snapshot()
    assert {j.spec.id for j in snapshot.jobs if not j.spec.held} == {owned}
    assert manager.found.owned == {owned}
    assert any("array" in note for note in manager.found.notes)
    for job in (users, array, "99999"):
        assert manager.start(job).result == "refused"
    for job in ("-1", "1;2", "$(id)", "1 2", ""):
        assert "not a job number" in manager.start(job).reason
    assert manager.start(owned).result == "done"
    slurm.wait(lambda: slurm.job(owned)["JobState"] == "COMPLETED", 20)
    assert manager.start(owned).result == "refused"


def test_a_controller_that_is_away_is_named_and_an_answer_that_is_lost_is_unknown(
    slurm: SlurmCluster,
) -> None:
    from hpctwin.rms.manager import UnreachableError

    manager = SlurmManager("emul", conf=slurm.conf, timeout_s=1.0)
    job = slurm.submit(2, 1, 1)
    manager.snapshot()
    slurm.end_controller()
    assert manager.start(job).result == "unknown"
    with pytest.raises(UnreachableError):
        manager.snapshot()
    slurm.begin_controller()
    assert manager.start(job).result == "done"


def test_pushed_news_tell_of_starts_and_ends_between_two_looks(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "hpctwin", "rms", "slurm-events", "--spool", tmp_path / "spool.jsonl"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    script = tmp_path / "events.sh"
    script.write_text(said.stdout)
    script.chmod(0o755)
    events: list[Event] = []
    with running(tmp_path, events=script) as slurm:
        poller = Poller(
            SlurmManager("emul", conf=slurm.conf), events.append, every_s=600.0, floor_s=0.2,
            lines=Spool(tmp_path / "spool.jsonl"), translate=SlurmNews(),
        )  # fmt: skip
        poller.snapshot()
        poller.start()
        first = slurm.submit(2, 1, 3)
        slurm.wait(lambda: (first, "job_started") in kinds(events), 10)
        polls = poller.polls
        slurm.wait(lambda: (first, "job_ended") in kinds(events), 15)
        assert poller.polls == polls  # the end needed no look
        cancelled = slurm.submit(2, 1, 30)
        requeued = slurm.submit(2, 1, 30)
        slurm.wait(lambda: (requeued, "job_started") in kinds(events), 10)
        slurm.say("scancel", cancelled)
        slurm.say("scontrol", "requeue", requeued)
        slurm.wait(lambda: (requeued, "job_requeued") in kinds(events), 15)
        slurm.wait(lambda: (cancelled, "job_ended") in kinds(events), 15)
        ends = {e.job_id: e.reason for e in events if isinstance(e, JobEnded)}
        assert ends == {first: "exit", cancelled: "cancelled"}
        poller.close()


def test_by_priority_slurm_starts_the_jobs_in_the_order_that_the_twin_gives_them(
    tmp_path: Path,
) -> None:
    pool = {"pool": ["sjf+none"], "objective": {"ties": ["sjf+none"]}}
    with running(tmp_path, priority="multifactor") as slurm:
        twin = Beside(slurm, act={"mode": "act", "by": "priority"}, core=pool)
        try:
            first = slurm.submit(32, 1, 6)
            slurm.wait(lambda: slurm.job(first)["JobState"] == "RUNNING", 20)
            jobs = [slurm.submit(32, minutes, 1) for minutes in (30, 20, 2)]
            held = slurm.submit(32, 1, 1, "-H")
            twin.begin()
            slurm.wait(lambda: all_ended(slurm, jobs), 60)
            started = [slurm.job(i)["StartTime"] for i in jobs]
            assert started == sorted(set(started), reverse=True)
            assert slurm.job(held)["Reason"] == "JobHeldUser"
        finally:
            twin.end()


def test_when_tells_of_a_waiting_job_beside_slurms_own_estimate(tmp_path: Path) -> None:
    with running(tmp_path, scheduler="backfill") as slurm:
        twin = Beside(slurm, act={"mode": "observe"}, core={"own_policy": "fcfs+conservative"})
        slurm.submit(32, 2, 60)
        slurm.submit(32, 1, 60)
        job = slurm.submit(4, 1, 60)
        slurm.wait(lambda: job in SlurmManager("emul", conf=slurm.conf).own_estimates(), 40)
        said = twin.command("when", job, "--beside", "--json")
        assert said.returncode == 0, said.stderr
        found = json.loads(said.stdout)
        assert (found["state"], found["source"]) == ("waits", "one look at the resource manager")
        assert abs(found["start_s"] - found["managers_estimate_s"]) <= 60
        assert found["start_s"] - found["as_of_s"] == pytest.approx(180, abs=20)
        said = twin.command("when", "--nodes", "33", "--walltime", "1h", "--json")
        assert json.loads(said.stdout)["state"] == "never"
        assert twin.command("when", "99999").returncode == 1


def test_the_probe_finds_what_this_slurm_lets_the_twin_do(slurm: SlurmCluster) -> None:
    (found,) = [one for one in probe(conf=slurm.conf) if one.manager == "slurm"]
    works = {finding.what: finding.works for finding in found.findings}
    assert works["reading the state"]
    assert works["starting jobs"]
    assert works["rights"]
    assert not works["pushed starts"]
    assert not works["own start-time estimates"]


def kinds(events: list[Event]) -> list[tuple[str, str]]:
    return [(getattr(event, "job_id", ""), event.kind) for event in list(events)]
