"""The journal keeps what it was given, whole, and says so when it cannot."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from hpctwin.errors import JournalError
from hpctwin.rms.manager import Outcome
from hpctwin.twin.core.decision import Candidate, Decision
from hpctwin.twin.forecast.forecaster import Forecast
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.journal.restore import restored_core


def decision(number: int = 1) -> Decision:
    candidates = (
        Candidate("wfp+easy", 0.1, {"mean_wait_s": 0.1 + 0.2}, {}, ("7",)),
        Candidate("fcfs+easy", 0.3, {"mean_wait_s": 1e-17}, {}, ()),
    )
    forecasts = (
        Forecast("7", 10.0, 10.0, 10.0, 70.0, False, True),
        Forecast("8", 10.0, 50.0, 10.0, 90.0, False, False),
    )
    return Decision(
        number, 10.0, 5, "ff", 3, "wfp+easy", "lowest score", "fcfs+easy", candidates, ("7",),
        forecasts, 2, 4, "fcfs+easy",
    )  # fmt: skip


def written(path: Path) -> Journal:
    journal = Journal(path)
    with journal.writing():
        journal.settings({"core": {}}, 1.0)
        input_id = journal.input("decide", "{}", 1.0)
        row = journal.decision(decision(), input_id=input_id, at_s=2.0, took_ms=1.5, approval=None)
        journal.intend(row, "start", "7", 2.0)
    return journal


def test_a_decision_comes_back_as_it_was_to_the_last_bit(tmp_path: Path) -> None:
    journal = written(tmp_path / "j.sqlite")
    found = journal.read_decision()
    original = decision()
    assert tuple(found["candidates"]) == original.candidates
    for name in ("number", "time_s", "seq", "state", "seed", "policy", "reason", "starts"):
        assert found[name] == getattr(original, name)
    assert journal.read_decision(99) is None


def test_only_kept_forecasts_are_written_and_completed_when_the_job_starts(tmp_path: Path) -> None:
    journal = written(tmp_path / "j.sqlite")
    ((said, came),) = journal.read_forecasts()
    assert (said, came) == (decision().forecasts[0], None)
    with journal.writing():
        journal.came_true("7", 12.0)
        journal.came_true("8", 12.0)
    assert journal.read_forecasts("7")[0][1] == 12.0


def test_an_action_without_an_outcome_is_found_after_a_crash(tmp_path: Path) -> None:
    journal = written(tmp_path / "j.sqlite")
    journal.close()
    journal = Journal(tmp_path / "j.sqlite")
    (action,) = journal.unfinished_actions()
    with journal.writing():
        journal.outcome(action.id, Outcome("done"), 3.0)
    assert journal.unfinished_actions() == []
    assert journal.read_actions(job="7")[0].result == "done"


def test_files_written_together_exist_together_or_not_at_all(tmp_path: Path) -> None:
    journal = written(tmp_path / "j.sqlite")
    before = journal.counts()

    def fail() -> None:
        with journal.writing():
            journal.input("event", "{}", 1.0)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        fail()
    assert journal.counts() == before


@pytest.mark.slow
def test_after_kill_9_in_the_middle_of_writing_every_commit_is_there(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    script = textwrap.dedent(
        f"""
        from pathlib import Path
        from hpctwin.twin.journal.journal import Journal
        journal = Journal(Path({str(path)!r}))
        for number in range(10**9):
            with journal.writing():
                journal.input("event", str(number), 0.0)
                journal.input("event", str(number), 0.0)
            print(number, flush=True)
        """
    )
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
        )
        said = [process.stdout.readline() for _ in range(200)]
        os.kill(process.pid, signal.SIGKILL)
        said += process.stdout.readlines()
        process.wait()
        process.stdout.close()
        bodies = [one.body for one in Journal(path, read_only=True).read_inputs()[1]]
        assert len(bodies) % 2 == 0
        last = [line for line in said if line.endswith("\n")][-1].strip()
        assert last in bodies[-4:]


def test_a_full_disk_is_named_and_nothing_is_half_written(tmp_path: Path) -> None:
    journal = written(tmp_path / "j.sqlite")
    pages = journal._db.execute("PRAGMA page_count").fetchone()[0]
    journal._db.execute(f"PRAGMA max_page_count={pages + 2}")

    def fill() -> None:
        with journal.writing():
            for _ in range(100):
                journal.input("event", "x" * 4000, 0.0)

    before = journal.counts()
    with pytest.raises(JournalError, match="full"):
        fill()
    assert journal.counts() == before
    journal._db.execute(f"PRAGMA max_page_count={pages + 1000}")
    fill()
    assert journal.counts()["inputs"] == before["inputs"] + 100


@pytest.mark.parametrize("copied_back", [False, True])
def test_a_journal_that_is_deleted_or_replaced_under_a_twin_is_written_no_more(
    tmp_path: Path, copied_back: bool
) -> None:
    path = tmp_path / "j.sqlite"
    journal = written(path)
    shutil.copy(path, tmp_path / "yesterday.sqlite")
    path.unlink()
    if copied_back:
        (tmp_path / "yesterday.sqlite").rename(path)
    with (
        pytest.raises(
            JournalError, match=r"j\.sqlite: was deleted or replaced .* restart the twin"
        ),
        journal.writing(),
    ):
        journal.input("event", "x", 0.0)
    journal.close()


def test_deleting_old_records_keeps_what_younger_decisions_are_made_from(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    with journal.writing():
        journal.settings({}, 0.0)
        for at_s in range(10):
            if at_s % 4 == 0:
                journal.checkpoint({"at": at_s}, float(at_s))
            number = journal.input("decide", str(at_s), float(at_s))
            journal.decision(
                decision(), input_id=number, at_s=float(at_s), took_ms=0, approval=None
            )
        journal.delete_before(6.0)
    state, inputs = journal.read_inputs(journal.read_decision(7)["input"])
    assert state == {"at": 4}
    assert [one.body for one in inputs] == ["4", "5", "6"]
    assert journal.read_decision(6) is None


def test_a_file_that_is_no_journal_is_reported_by_name(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to be read as one" * 50)
    with pytest.raises(JournalError, match="not a usable journal"):
        Journal(tmp_path / "text")
    with pytest.raises(JournalError, match="journal does not exist"):
        Journal(tmp_path / "nothing", read_only=True)
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE meta (key TEXT, value TEXT)")
    other.execute("INSERT INTO meta VALUES ('schema', '99')")
    other.commit()
    other.close()
    before = (tmp_path / "other").read_bytes()
    for read_only in (True, False):
        with pytest.raises(JournalError, match=r"format 99; .* reads format 2: use the version"):
            Journal(tmp_path / "other", read_only=read_only)
    assert (tmp_path / "other").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"text", "other"}


def test_a_decision_whose_state_another_version_recorded_is_not_made_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    with journal.writing():
        journal.settings({"manager": {"kind": "emulated", "address": "c.sock"}}, 0.0)
        journal.checkpoint({"snapshot": {"of": "another version"}}, 1.0)
    with pytest.raises(JournalError, match="recorded by another version than"):
        restored_core(Journal(tmp_path / "j", read_only=True))


def test_an_approval_that_another_process_has_given_is_not_overwritten(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "j.sqlite")) as journal:
        with journal.writing():
            input_id = journal.input("decide", "{}", 1.0)
            row = journal.decision(
                decision(), input_id=input_id, at_s=2.0, took_ms=1.5, approval="pending"
            )
        with closing(Journal(tmp_path / "j.sqlite")) as other, other.writing():
            assert other.approve(row, "approved")
        with journal.writing():
            assert not journal.approve(row, "lapsed")
        assert journal.approvals("approved") == [(row, 2.0)]
