"""What became of actions gets into the journal, sooner or later."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hpctwin.errors import JournalError
from hpctwin.rms.manager import Outcome
from hpctwin.twin.acting import Actor
from hpctwin.twin.config import ActSettings
from hpctwin.twin.follow import Follower
from hpctwin.twin.guard import Guard
from tests.twin.test_journal import written


def test_outcomes_that_could_not_be_written_are_written_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full for a while: two starts are sent, and nothing can be noted of either."""
    journal = written(tmp_path / "j.sqlite")
    told: Any = SimpleNamespace(
        journal=journal,
        manager=SimpleNamespace(start=lambda job_id: Outcome("done")),
        core=SimpleNamespace(
            asked_to_start=lambda **asked: None,
            told_together=lambda starts, where: starts,
            under_way=frozenset(),
        ),
        now_s=lambda: 3.0,
    )
    settings = ActSettings(mode="act")
    actor = Actor(settings, Guard(settings), cast(Follower, told))

    def planned(*job_ids: str) -> list[tuple[int, str]]:
        with journal.writing():
            return actor.plan(1, job_ids)

    def full(*args: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    first = planned("7", "8")
    with monkeypatch.context() as patched:
        patched.setattr(journal, "outcome", full)
        with pytest.raises(JournalError, match="cannot be written"):
            actor.send(first)
    ids = {action for action, _ in first}
    assert ids <= {action.id for action in journal.unfinished_actions()}
    actor.send(planned("9"))
    assert not ids & {action.id for action in journal.unfinished_actions()}
    assert [action.result for action in journal.read_actions(job="8")] == ["done"]
