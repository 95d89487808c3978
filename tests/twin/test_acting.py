"""What became of actions gets into the journal, sooner or later."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hpctwin.errors import JournalError
from hpctwin.rms.manager import Outcome
from hpctwin.twin.acting.actuator import KEPT, Actor
from hpctwin.twin.acting.guard import Guard
from hpctwin.twin.following.follower import Follower
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.settings.config import ActSettings
from tests.twin.test_journal import written


def follower(journal: Journal, told_together: Callable[..., Any]) -> Follower:
    """Of a cluster that starts whatever it is told."""
    core = SimpleNamespace(
        asked_to_start=lambda **asked: None,
        told_together=told_together,
        under_way=frozenset(),
        waits=lambda job_id: True,
    )
    manager = SimpleNamespace(start=lambda job_id: Outcome("done"))
    found: Any = SimpleNamespace(journal=journal, manager=manager, core=core, now_s=lambda: 3.0)
    return cast(Follower, found)


def test_a_start_that_may_find_no_room_is_kept_and_noted_once_with_its_reason(
    tmp_path: Path,
) -> None:
    journal = written(tmp_path / "j.sqlite")
    settings = ActSettings(mode="act")
    actor = Actor(settings, Guard(settings), follower(journal, lambda starts, where: starts[:1]))
    for starts in (("8", "9"), ("8", "9"), ("9",)):
        with journal.writing():
            planned = actor.plan(1, starts)
        assert [job for _, job in planned] == list(starts[:1])
        actor.send(planned)
    said = [(action.result, action.reason) for action in journal.read_actions(job="9")]
    assert said == [("refused", f"withheld: {KEPT}"), ("done", "")]


def test_outcomes_that_could_not_be_written_are_written_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full for a while: two starts are sent, and nothing can be noted of either."""
    journal = written(tmp_path / "j.sqlite")
    settings = ActSettings(mode="act")
    actor = Actor(settings, Guard(settings), follower(journal, lambda starts, where: starts))

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
