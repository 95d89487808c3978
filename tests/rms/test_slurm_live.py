"""The twin beside a real Slurm of 32 nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from hpctwin.rms.slurm.manager import SlurmManager
from hpctwin.twin.journal import Journal
from tests.conftest import lacking
from tests.rms.slurm_cluster import SlurmCluster, missing

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

RULE = Path(__file__).parents[2] / "src/hpctwin/rms/slurm/job_submit.lua"


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[SlurmCluster]:
    absent = missing()
    if absent or os.getuid() != 0:
        lacking(f"a real Slurm needs root and {', '.join(absent) or 'nothing else'}")
    cluster = SlurmCluster(tmp_path, rule=RULE)
    try:
        cluster.begin()
        yield cluster
    finally:
        cluster.end()


class Beside:
    """A twin process beside it."""

    def __init__(self, slurm: SlurmCluster) -> None:
        self.slurm = slurm
        self.config = slurm.folder / "twin.yaml"
        self.heartbeat = slurm.folder / "alive"
        self.config.write_text(
            yaml.safe_dump(
                {
                    "manager": {
                        "kind": "slurm", "cluster": "emul", "conf": str(slurm.conf),
                        "poll_every": 0.3, "heartbeat": str(self.heartbeat),
                    },
                    "act": {"mode": "act"},
                    "core": {"retry": 2, "start_patience": 10},
                    "journal": {"path": "journal.sqlite"},
                    "heartbeat_every": 0.3,
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


def all_ended(slurm: SlurmCluster, jobs: list[str]) -> bool:
    return not set(slurm.say("squeue", "-h", "-o", "%A").split()) & set(jobs)


def test_the_twin_runs_every_job_once_through_death_restarts_and_a_lost_node(
    slurm: SlurmCluster, twin: Beside
) -> None:
    held = slurm.submit(1, 1, 1, "-H")
    long = slurm.submit(1, 5, 120)
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
    twin.begin()
    slurm.say("scontrol", "update", "nodename=n32", "state=down", "reason=test")
    jobs += submit_some(slurm, 4, seed=3)
    time.sleep(2)
    slurm.say("scontrol", "update", "nodename=n32", "state=resume")
    slurm.wait(lambda: all_ended(slurm, jobs), 120)
    done = [slurm.job(i) for i in jobs]
    assert {j["JobState"] for j in done} <= {"COMPLETED", "NODE_FAIL"}
    assert [j["Restarts"] for j in done].count("0") >= len(jobs) - 1
    assert slurm.job(held)["JobState"] == "PENDING"  # its user's hold is respected
    assert slurm.job(cancelled)["JobState"] == "CANCELLED"
    assert slurm.job(long)["JobState"] != "PENDING"
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
