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
from hpctwin.twin.acting.authority import Guard
from hpctwin.twin.acting.executor import DEFERRED, Chosen, Executor
from hpctwin.twin.core.decision import Actions
from hpctwin.twin.following.follower import Follower
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.settings.config import ActSettings
from tests.twin.test_journal import written


class Cluster:
    """Starts whatever it is told, and knows what that was."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def start(self, job_id: str) -> Outcome:
        self.started.append(job_id)
        return Outcome("done")


def executor(
    journal: Journal, cluster: Cluster, told: Callable[[tuple[str, ...]], tuple[str, ...]]
) -> Executor:
    """Of a cluster that starts whatever it is told."""

    def actions(now_s: float, starts: tuple[str, ...], *more: Any, **about: Any) -> Actions:
        return Actions(told(starts), frozenset(starts).difference(told(starts)), {})

    core = SimpleNamespace(
        asked_to_start=lambda **asked: None,
        actions=actions,
        under_way=frozenset(),
        waits=lambda job_id: True,
    )
    found: Any = SimpleNamespace(journal=journal, manager=cluster, core=core, now_s=lambda: 3.0)
    settings = ActSettings(mode="act")
    return Executor(settings, Guard(settings), cast(Follower, found), leases=False)


def test_a_start_that_may_not_fit_is_kept_and_noted_once_with_its_reason(
    tmp_path: Path,
) -> None:
    journal, cluster = written(tmp_path / "j.sqlite"), Cluster()
    acts = executor(journal, cluster, lambda starts: starts[:1])
    for starts in (("8", "9"), ("8", "9"), ("9",)):
        cluster.started.clear()
        acts.act(None, [Chosen(1, starts)])
        assert cluster.started == list(starts[:1])
    said = [(action.result, action.reason) for action in journal.read_actions(job="9")]
    assert said == [("refused", f"withheld: {DEFERRED}"), ("done", "")]


def test_outcomes_that_could_not_be_written_are_written_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full for a while: two starts are sent, and nothing can be noted of either."""
    journal, cluster = written(tmp_path / "j.sqlite"), Cluster()
    acts = executor(journal, cluster, lambda starts: starts)
    before = {action.id for action in journal.unfinished_actions()}

    def full(*args: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(journal, "outcome", full)
        with pytest.raises(JournalError, match="cannot be written"):
            acts.act(None, [Chosen(1, ("7", "8"))])
    assert cluster.started == ["7", "8"]
    ids = {action.id for action in journal.unfinished_actions()} - before
    assert len(ids) == 2
    acts.act(None, [Chosen(1, ("9",))])
    assert not ids & {action.id for action in journal.unfinished_actions()}
    assert [action.result for action in journal.read_actions(job="8")] == ["done"]
