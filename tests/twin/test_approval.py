"""Mode approve: which decisions await a person."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from hpctwin.twin.service.explain import explain_decision, status_lines
from tests.twin.test_runner import Setting


class Asking(Setting):
    """A twin in mode approve next to a cluster of 8 nodes."""

    def __init__(self, folder: Path, **act: Any) -> None:
        super().__init__(folder, act={"mode": "approve", **act})

    def asks(self) -> list[tuple[str, ...]]:
        """Decide, and return the starts of the decisions that await approval."""
        for _ in range(3):
            self.twin.core.opportunity = True
            self.turn(1)
        found = [self.journal.read_decision(row) for row, _ in self.journal.approvals("pending")]
        return [tuple(one["starts"]) for one in found if one]

    def approval(self, number: int) -> str | None:
        found = self.journal.read_decision(number)
        assert found is not None
        return cast(str, found["approval"])


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    found = Asking(tmp_path)
    yield found
    found.twin.end()
    found.journal.close()


def test_a_later_decision_supersedes_one_that_awaits_approval(asking: Asking) -> None:
    asking.submit(1, nodes=1)
    assert asking.asks() == [("1",)]
    ((first, _),) = asking.journal.approvals("pending")
    assert asking.asks() == [("1",)]
    assert asking.journal.approvals("pending")[0][0] == first
    for number in (2, 3, 4):
        asking.submit(number, nodes=1)
        asking.asks()
    assert [len(starts) for starts in asking.asks()] == [4]
    assert asking.approval(first) == "superseded"


def test_a_decision_whose_jobs_have_started_or_ended_no_longer_awaits(asking: Asking) -> None:
    asking.submit(1, nodes=2)
    asking.submit(2, nodes=2)
    assert asking.asks() == [("1", "2")]
    ((first, _),) = asking.journal.approvals("pending")
    asking.cluster.start("1")
    # What is left of it is still what the twin wants.
    assert asking.asks() == [("1", "2")]
    asking.cluster.cancel("2")
    assert asking.asks() == []
    assert asking.approval(first) == "superseded"


def test_what_a_person_has_approved_is_started_and_not_superseded(asking: Asking) -> None:
    asking.submit(1, nodes=1)
    asking.asks()
    ((first, _),) = asking.journal.approvals("pending")
    with asking.journal.writing():
        assert asking.journal.approve(first, "approved")
    asking.submit(2, nodes=1)
    asking.asks()
    assert asking.approval(first) == "done"
    assert asking.manager.started == ["1"]


def test_a_request_that_is_not_answered_in_time_lapses(tmp_path: Path) -> None:
    asking = Asking(tmp_path, approval_timeout=0.001)
    asking.submit(1, nodes=1)
    asking.asks()
    ((first, _), *_) = asking.journal.approvals("lapsed")
    assert asking.approval(first) == "lapsed"
    asking.twin.end()
    asking.journal.close()


def test_status_and_explanation_name_the_decision_that_awaits_approval(asking: Asking) -> None:
    asking.submit(1, nodes=1)
    asking.asks()
    ((first, _),) = asking.journal.approvals("pending")
    said = f"Decision {first} would start job 1 and awaits approval: run `hpctwin twin approve {first}`."
    assert said in _status(asking)
    assert explain_decision(asking.journal, first)[-1].startswith("It awaits approval")
    with asking.journal.writing():
        asking.journal.approve(first, "rejected")
    assert said not in _status(asking)
    assert explain_decision(asking.journal, first)[-1] == "A person rejected it."


def _status(asking: Asking) -> list[str]:
    return status_lines({**asking.twin.status(), "age_s": 0.0, "running_now": True})
