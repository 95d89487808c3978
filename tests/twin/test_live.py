"""A real twin beside a real emulated cluster, and what must hold when things go wrong."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import pytest

from hpctwin.errors import JournalError
from hpctwin.rms.emulated.client import EmulatedManager
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.service.explain import explain_decision
from tests.twin.processes import Pair

pytestmark = pytest.mark.slow


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.end()


def every_job_ran_once(pair: Pair, jobs: int = 150) -> None:
    """By the cluster's own history."""
    history = pair.ask("state", history=True)["history"]
    happened = Counter((job, what) for _, job, what in history)
    ids = {job for job, _ in happened}
    assert len(ids) == jobs
    for job in ids:
        assert happened[job, "submitted"] == 1
        assert happened[job, "started"] == 1 + happened[job, "requeued"]
        assert happened[job, "exit"] + happened[job, "walltime"] == 1


def the_mirror_is_the_cluster(pair: Pair) -> None:
    """The twin's last word equals a snapshot of the cluster, by hash; nodes may still fail and return."""
    from hpctwin.twin.core.mirror import Mirror

    manager = EmulatedManager(pair.socket)

    def equal() -> bool:
        snapshot = manager.snapshot()
        status = pair.status()
        told = status["seq"], status["run"], status["state"]
        return told == (snapshot.seq, snapshot.run, Mirror(snapshot).digest)

    pair.wait(equal, 20)
    manager.close()


def the_journal_is_consistent(pair: Pair) -> None:
    """Actions have outcomes but a last decision's; nothing is half written, and decisions come out again."""
    path = pair.folder / "journal.sqlite"
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    journal = Journal(path, read_only=True)
    numbers = [row[0] for row in journal._db.execute("SELECT id FROM decisions").fetchall()]
    done = journal._db.execute("SELECT count(*) FROM actions WHERE result='done'").fetchone()[0]
    open_actions = journal.unfinished_actions()
    journal.close()
    assert done > 0
    assert len({action.decision for action in open_actions}) <= 1
    for number in random.Random(1).sample(numbers, min(5, len(numbers))):
        again = pair.command("verify", str(number), "--json")
        assert again.returncode == 0, again.stdout + again.stderr
        assert json.loads(again.stdout)["same"]


def run_to_the_end(pair: Pair, *options: str, speed: str = "max", **faults: Any) -> None:
    pair.begin_cluster("--speed", speed, "--wait", *options, faults=faults)
    pair.begin_twin()
    pair.wait_done(120)


def test_the_twin_starts_every_job_once_and_decides_each_time_as_its_journal_says(
    pair: Pair,
) -> None:
    run_to_the_end(pair)
    every_job_ran_once(pair)
    the_mirror_is_the_cluster(pair)
    state = pair.state()
    assert state["takeovers"] == 0
    pair.kill_twin(signal.SIGTERM)
    the_journal_is_consistent(pair)
    status = pair.status()
    assert status["counts"]["starts"] == 150
    assert status["ended"]
    assert "does not run" in pair.command("status").stdout
    assert pair.state()["own_scheduling"]


def test_a_kill_at_any_moment_and_a_restart_lose_or_repeat_no_job(pair: Pair) -> None:
    pair.begin_cluster("--speed", "2000", "--wait", "--takeover", "1")
    rng = random.Random(3)
    pair.begin_twin()
    pair.wait(lambda: pair.status()["rows"]["actions"] > 0, 30)
    kills = 0
    while not pair.state()["done"] and kills < 8:
        time.sleep(rng.uniform(0.3, 1.2))
        pair.kill_twin()
        kills += 1
        pair.begin_twin()
        time.sleep(1.0)
    pair.wait_done(90)
    every_job_ran_once(pair)
    the_mirror_is_the_cluster(pair)
    pair.kill_twin(signal.SIGTERM)
    the_journal_is_consistent(pair)


def test_when_the_twin_is_lost_the_cluster_schedules_by_itself_in_time_and_the_twin_may_return(
    pair: Pair,
) -> None:
    pair.begin_cluster("--speed", "2000", "--wait", "--takeover", "1")
    pair.begin_twin()
    pair.wait(lambda: pair.state()["submitted"] > 20, 30)
    assert not pair.state()["own_scheduling"]
    pair.kill_twin()
    killed = time.monotonic()
    pair.wait(lambda: pair.state()["own_scheduling"], 10)
    # After one second, and a little for who looks when; on a busy machine that may be much more.
    assert time.monotonic() - killed < 180
    pair.begin_twin()
    pair.wait(lambda: not pair.state()["own_scheduling"], 20)
    pair.wait_done(90)
    every_job_ran_once(pair)


@pytest.mark.parametrize(
    "faults",
    [
        {"duplicated": 0.3},
        {"reordered": 0.3},
        {"late": 0.2, "late_s": 20},
        {"dropped": 0.05},
        {"cleanup_s": 5},
        {"refused": 0.2},
        {"lost_answers": 0.2},
        {"clock_skew_s": 247.0},
        {"mtbf_s": 50_000, "mttr_s": 500},
        {"duplicated": 0.1, "reordered": 0.1, "dropped": 0.005, "late": 0.1, "late_s": 5,
         "refused": 0.05, "lost_answers": 0.05, "cleanup_s": 2, "clock_skew_s": -300.0},
    ],
    ids=lambda faults: "+".join(faults),
)  # fmt: skip
def test_every_job_runs_once_whatever_the_bus_and_the_cluster_do(pair: Pair, faults) -> None:
    run_to_the_end(pair, "--start", "1000000", speed="5000", **faults)
    every_job_ran_once(pair)
    if "dropped" not in faults:
        the_mirror_is_the_cluster(pair)
    pair.kill_twin(signal.SIGTERM)
    the_journal_is_consistent(pair)


def test_the_kill_switch_stops_all_actions_and_gives_scheduling_back(pair: Pair) -> None:
    pair.begin_cluster("--speed", "300", "--wait")
    pair.begin_twin()
    pair.wait(lambda: pair.state()["submitted"] > 10, 30)
    (pair.folder / "stop").touch()
    pair.wait(lambda: pair.state()["own_scheduling"], 5)
    pair.wait(lambda: pair.status()["killed"], 5)
    starts = pair.status()["counts"]["starts"]
    ended = pair.state()["ended"]
    pair.wait(lambda: pair.state()["ended"] > ended + 5, 30)
    assert pair.status()["counts"]["starts"] == starts
    (pair.folder / "stop").unlink()
    pair.wait(lambda: not pair.state()["own_scheduling"], 5)


def test_with_a_full_disk_the_twin_observes_reports_it_and_the_cluster_continues(
    pair: Pair,
) -> None:
    pair.begin_cluster("--speed", "1500", "--wait")
    # No file of this process may grow beyond 400 kB: as with a full disk, SQLite cannot write.
    # Python would keep bytecode that it could write only in part.
    limit = ("env", "PYTHONDONTWRITEBYTECODE=1", "prlimit", "--fsize=400000:unlimited")
    pair.begin_twin(prefix=limit)
    pair.wait(lambda: "cannot be written" in (pair.folder / "twin.log").read_text(), 60)
    pair.wait(lambda: pair.state()["own_scheduling"], 5)
    ended = pair.state()["ended"]
    pair.wait(lambda: pair.state()["ended"] > ended + 5, 60)
    assert pair.twin.poll() is None
    subprocess.run(["prlimit", f"--pid={pair.twin.pid}", "--fsize=unlimited:unlimited"], check=True)
    pair.wait(lambda: not pair.state()["own_scheduling"], 30)
    pair.wait_done(120)
    every_job_ran_once(pair)
    the_mirror_is_the_cluster(pair)
    pair.kill_twin(signal.SIGTERM)
    the_journal_is_consistent(pair)


@pytest.mark.parametrize("mode", ["observe", "advise"])
def test_without_the_right_to_act_nothing_is_sent_but_everything_is_forecast(
    tmp_path, mode
) -> None:
    pair = Pair(tmp_path, act={"mode": mode}, core={"site_policy": "fcfs+easy"})
    try:
        pair.begin_cluster("--speed", "1000", "--wait")
        pair.begin_twin()
        # The clock stands until the twin is there, however long it takes to begin.
        pair.wait(lambda: pair.status()["seq"] is not None, 60)
        pair.ask("heartbeat", seq=0)
        pair.wait_done(60)
        every_job_ran_once(pair)
        pair.wait(lambda: pair.status()["waiting"] == 0, 10)
        status = pair.status()
        assert status["counts"]["starts"] == 0
        assert status["rows"]["actions"] == 0
        assert status["counts"]["decisions"] > 3
        assert pair.state()["own_scheduling"]
        rows = json.loads(pair.command("accuracy", "--json").stdout)
        assert rows[0]["forecasts"] > 20
    finally:
        pair.end()


def test_in_mode_approve_only_confirmed_jobs_start(tmp_path) -> None:
    pair = Pair(tmp_path, act={"mode": "approve"})
    try:
        pair.begin_cluster("--speed", "20", "--wait")
        pair.begin_twin()
        path = pair.folder / "journal.sqlite"
        pair.wait(lambda: bool(_pending(path)), 30)
        time.sleep(1)
        assert not any(w == "started" for *_, w in pair.ask("state", history=True)["history"])
        pair.ask("heartbeat", seq=0)
        number = 0

        def approved() -> bool:
            # A later decision may supersede the one that is being approved.
            nonlocal number
            number = next(iter(_pending(path)), 0)
            return pair.command("approve", str(number)).returncode == 0

        pair.wait(approved, 60)
        pair.wait(
            lambda: any(w == "started" for *_, w in pair.ask("state", history=True)["history"]), 20
        )
        assert pair.command("approve", str(number)).returncode == 1
    finally:
        pair.end()


def _pending(path: Path) -> list[int]:
    try:
        journal = Journal(path, read_only=True)
    except JournalError:  # the twin has not made it yet
        return []
    try:
        return [row for row, _ in journal.approvals("pending")]
    finally:
        journal.close()


def test_a_restart_of_the_resource_manager_is_resynced(pair: Pair) -> None:
    pair.begin_cluster("--speed", "3000", "--wait")
    pair.begin_twin()
    pair.wait(lambda: pair.state()["submitted"] > 30, 30)
    pair.ask("restart")
    pair.wait(lambda: pair.status()["run"] == "2", 10)
    pair.wait_done(90)
    every_job_ran_once(pair)
    the_mirror_is_the_cluster(pair)


def test_a_failing_objective_is_reported_and_the_cluster_continues(
    tmp_path,
) -> None:
    (tmp_path / "mine.py").write_text(
        "def cost(outlook):\n"
        "    if len(outlook.nodes) == 3:\n"
        "        raise ValueError('three')\n"
        "    return outlook.wait_s.sum()\n"
    )
    objective = {"function": "mine:cost"}
    pair = Pair(tmp_path, core={"objective": objective}, cycle_interval=0.5)
    try:
        pair.begin_cluster("--speed", "3000", "--wait")
        pair.begin_twin(prefix=("env", f"PYTHONPATH={tmp_path}"))
        pair.wait_done(90)
        every_job_ran_once(pair)
        log = tmp_path / "twin.log"
        pair.wait(lambda: "fixed: cannot decide" in log.read_text(), 30)
        said = "cannot decide: the objective's function failed: ValueError('three')"
        assert said in log.read_text()
        assert pair.twin.poll() is None
    finally:
        pair.end()


def test_the_twins_clock_is_the_clusters(pair: Pair) -> None:
    pair.begin_cluster("--speed", "100", "--wait", faults={"clock_skew_s": 100_000.0})
    pair.begin_twin()
    pair.wait(lambda: pair.state()["submitted"] > 20, 30)
    seen = pair.status()["time_s"]
    # The status is some seconds old, at a hundredfold speed; a clock of its own would be far off.
    assert -50_000 < seen - pair.state()["now_s"] < 10


def test_status_explain_and_accuracy_answer_during_a_running_twin(pair: Pair) -> None:
    pair.begin_cluster("--speed", "60", "--wait", "--takeover", "120")
    # However long this test takes, one job runs on and another waits for it. Others pass between them.
    for name, nodes in (("long", 16), ("wide", 32)):
        body = {"id": name, "submit_s": 0, "nodes": nodes, "walltime_s": 1e8}
        pair.ask("submit", job=body, runtime_s=1e8)
    pair.begin_twin()
    path = pair.folder / "journal.sqlite"
    pair.wait(lambda: bool(_compared(path)), 120)
    pair.wait(lambda: pair.status()["is_active"], 60)
    assert ", in control of scheduling" in pair.command("status").stdout
    assert "lower is better" in pair.command("explain", "decision", str(_compared(path)[0])).stdout
    assert "has been running since" in pair.command("explain", "job", "long").stdout
    said = pair.command("explain", "job", "wide").stdout
    assert "has been pending since" in said
    assert "it starts at" in said
    assert pair.command("accuracy").returncode == 0
    assert pair.command("explain", "job", "no-such-job").returncode == 0
    assert pair.command("explain", "decision", "999999").returncode == 2


def _compared(path: Path) -> list[int]:
    """The decisions that had something to choose."""
    try:
        journal = Journal(path, read_only=True)
    except JournalError:  # the twin has not made it yet
        return []
    with closing(journal):
        made = takewhile(bool, map(journal.read_decision, count(1)))
        return [row["id"] for row in made if row and len(row["candidates"]) > 1]


def test_a_policy_that_takes_too_long_is_skipped_and_the_twin_stays_in_charge(
    tmp_path: Path,
) -> None:
    # As first come first served, but each score takes milliseconds.
    (tmp_path / "slow.py").write_text(
        "def slow(time, job):\n"
        "    turns = 0.0\n"
        "    for i in range(3_000_000):\n"
        "        turns = turns * 0.5 + i\n"
        "    return job.submit + 1e-30 * turns\n"
    )
    pair = Pair(
        tmp_path,
        core={"futures": 0, "pool": ["fcfs+easy", "slow.py:slow+easy"]},
        what_ifs={"deadline": 0.02},
    )
    try:
        run_to_the_end(pair)
        every_job_ran_once(pair)
        assert pair.state()["takeovers"] == 0
        pair.kill_twin(signal.SIGTERM)
        the_journal_is_consistent(pair)
        with closing(Journal(tmp_path / "journal.sqlite", read_only=True)) as journal:
            made = [journal.read_decision(i) for i in journal.decision_ids(10_000)]
            late = [one["id"] for one in made if one is not None and journal.unanswered(one)]
            assert late
            slow = f"{tmp_path / 'slow.py'}:slow+easy"
            omitted = f"Excluded without an answer by the deadline: {slow}."
            assert omitted in explain_decision(journal, late[0])
    finally:
        pair.end()
