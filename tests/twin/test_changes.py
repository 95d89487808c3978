"""Events made of two snapshots lead a mirror from the one to the other."""

from __future__ import annotations

from hypothesis import given

from hpctwin.rms.changes import Changes
from hpctwin.rms.events import event_json, parse_event
from hpctwin.twin.mirror import Mirror
from tests.twin.test_mirror import stories


@given(stories())
def test_the_events_between_two_snapshots_lead_from_one_to_the_other(story) -> None:
    _, first, last = story
    changes = Changes(first.model_copy(update={"seq": 0}), "poll")
    mirror = Mirror(changes.last)
    for event in changes.to(last):
        assert mirror.take(parse_event(event_json(event)))[0] == "applied"
    assert mirror.difference(changes.last) == []
    assert mirror.seq == changes.last.seq
    assert changes.to(last) == [] or any(job.spec.dependencies for job in last.jobs)
