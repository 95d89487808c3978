"""The mirror ends in the truth whatever the bus does to the events on their way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.model import Cluster
from hpctwin.rms.records import events as ev
from hpctwin.rms.records.records import (
    JobRecord,
    JobSpec,
    NodeRecord,
    NodeReservation,
    Snapshot,
)
from hpctwin.twin.core.mirror import MAX_EARLY, Mirror
from tests.twin.source import Source


@st.composite
def stories(draw: st.DrawFn) -> tuple[Source, Snapshot, Snapshot]:
    """A source after some steps, its snapshot at a moment, and its last one."""
    source = Source(draw)
    first = source.snapshot()
    middle = draw(st.integers(0, 15))
    for number in range(draw(st.integers(1, 30))):
        if number == middle:
            first = source.snapshot()
        source.step()
    return source, first, source.snapshot()


def agrees(mirror: Mirror, truth: Snapshot) -> None:
    assert mirror.needs_snapshot is None
    assert mirror.missing is None
    assert mirror.difference(truth) == []
    assert mirror.digest == Mirror(truth).digest
    assert mirror.seq == truth.seq


@given(stories())
def test_events_in_order_lead_to_what_the_snapshot_says(story) -> None:
    source, first, last = story
    mirror = Mirror(first)
    for event in source.events:
        taken, _ = mirror.take(event)
        assert taken == ("duplicate" if event.seq <= first.seq else "applied")
    agrees(mirror, last)


@given(stories())
def test_jobs_that_the_manager_would_not_start_are_known_as_if_all_were_queried(story) -> None:
    source, first, _ = story
    mirror = Mirror(first)
    for event in source.events:
        mirror.take(event)
        jobs = mirror.jobs.values()
        asked = [job.spec for job in jobs if job.start_s is None and job.spec.reason]
        assert mirror.not_started == asked


@given(stories(), st.data())
def test_duplicates_and_any_other_order_do_no_harm(story, data) -> None:
    source, first, last = story
    copies = [e for e in source.events for _ in range(data.draw(st.integers(1, 2)))]
    mirror = Mirror(first)
    for event in data.draw(st.permutations(copies)):
        mirror.take(event)
    agrees(mirror, last)


@given(stories(), st.data())
def test_after_losses_a_snapshot_sets_it_right_whenever_it_comes(story, data) -> None:
    source, first, last = story
    kept = [e for e in source.events if data.draw(st.booleans())]
    later = [e for e in kept if data.draw(st.booleans())]
    mirror = Mirror(first)
    for event in kept:
        mirror.take(event)
    mirror.give_up_waiting()
    taken, _ = mirror.adopt(last)
    assert taken
    for event in later:
        mirror.take(event)
    agrees(mirror, last)


@given(stories())
def test_events_that_come_before_the_first_snapshot_are_not_lost(story) -> None:
    source, first, last = story
    mirror = Mirror()
    for event in source.events:
        mirror.take(event)
    assert mirror.needs_snapshot
    mirror.adopt(first)
    agrees(mirror, last)


@given(stories())
def test_a_snapshot_older_than_the_mirror_is_not_taken(story) -> None:
    _source, first, last = story
    mirror = Mirror(last)
    if first.seq < last.seq:
        assert mirror.adopt(first) == (False, [])
    agrees(mirror, last)


@given(stories(), stories())
def test_after_a_restart_of_the_scheduler_only_the_new_run_counts(before, after) -> None:
    old, first, _ = before
    new, start, last = after
    run2 = [e.model_copy(update={"run": "r2"}) for e in new.events]
    mirror = Mirror(first)
    for event in old.events[: len(old.events) // 2]:
        mirror.take(event)
    for event in run2:
        mirror.take(event)
    assert mirror.needs_snapshot or not run2
    mirror.adopt(start.model_copy(update={"run": "r2"}))
    for event in old.events:
        assert mirror.take(event)[0] == "ignored"
    agrees(mirror, last.model_copy(update={"run": "r2"}))


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (
            ev.JobStarted(cluster="c", seq=1, time_s=1, job_id="9", node_names=("n0",)),
            "job 9 is unknown",
        ),
        (ev.JobEnded(cluster="c", seq=1, time_s=1, job_id="1"), "is not running"),
        (ev.NodeDown(cluster="c", seq=1, time_s=1, node_name="x"), "node x is unknown"),
        (ev.JobStarted(cluster="c", seq=1, time_s=1, job_id="1", node_names=("x",)), "node x"),
        (
            ev.JobSubmitted(
                cluster="c", seq=1, time_s=1, job=JobSpec(id="1", submit_s=0, nodes=1, walltime_s=1)
            ),
            "was submitted again",
        ),
    ],
)
def test_an_event_that_cannot_be_true_changes_nothing_and_asks_for_a_snapshot(event, says) -> None:
    source = Source(None, run="", time_s=0.0)
    spec = JobSpec(id="1", submit_s=0, nodes=1, walltime_s=60)
    truth = source.snapshot().model_copy(update={"jobs": (_waiting(spec),), "run": "x"})
    mirror = Mirror(truth)
    digest = mirror.digest
    taken, applied = mirror.take(event.model_copy(update={"run": "x"}))
    assert (taken, applied, mirror.digest) == ("contradiction", [], digest)
    assert says in mirror.needs_snapshot


def _waiting(spec: JobSpec):
    from hpctwin.rms.records.records import JobRecord

    return JobRecord(spec=spec)


def test_a_snapshot_without_sequence_number_includes_the_events_up_to_its_time() -> None:
    source = Source(None, run="", time_s=100.0)
    mirror = Mirror(source.snapshot())
    spec = JobSpec(id="1", submit_s=0, nodes=1, walltime_s=60)
    old = ev.JobSubmitted(cluster="c", seq=7, time_s=99.0, job=spec)
    new = ev.JobSubmitted(cluster="c", seq=8, time_s=101.0, job=spec)
    assert mirror.take(old)[0] == "ignored"
    assert mirror.take(new)[0] == "applied"
    assert mirror.take(new)[0] == "duplicate"


def test_the_wait_for_a_missing_event_is_bounded() -> None:
    mirror = Mirror(Source(None, run="x").snapshot())
    for seq in range(2, MAX_EARLY + 5):
        mirror.take(ev.NodeUp(cluster="c", run="x", seq=seq, time_s=1.0, node_name="n0"))
    assert "are waiting for a missing one" in mirror.needs_snapshot
    assert len(mirror._early) <= MAX_EARLY


def test_the_difference_names_what_differs() -> None:
    source = Source(None, run="x")
    mirror = Mirror(source.snapshot())
    spec = JobSpec(id="1", submit_s=0, nodes=1, walltime_s=60)
    nodes = (NodeRecord(name="n0", state="down"), *source.snapshot().nodes[1:])
    other = source.snapshot().model_copy(update={"jobs": (_waiting(spec),), "nodes": nodes})
    assert mirror.difference(other) == ["job 1 is only in the snapshot", "node n0 is down, not up"]
    again = Mirror(other)
    changed = other.model_copy(
        update={"jobs": (_waiting(spec.model_copy(update={"walltime_s": 61.0})),)}
    )
    assert again.difference(changed) == ["job 1: walltime_s is 61.0, not 60.0"]


def test_a_snapshot_in_which_a_job_holds_an_unknown_node_is_refused() -> None:
    spec = JobSpec(id="7", submit_s=0, nodes=1, walltime_s=60)
    with pytest.raises(ValueError, match="job 7 holds node zz, which is not listed"):
        Snapshot(
            cluster="c",
            time_s=10,
            machine=Cluster.uniform(1),
            nodes=(NodeRecord(name="n0"),),
            jobs=(JobRecord(spec=spec, start_s=5, node_names=("zz",)),),
        )


def test_a_snapshot_in_which_a_reservation_is_on_an_unknown_node_is_refused() -> None:
    with pytest.raises(ValueError, match="reservation 'r' is on node zz, which is not listed"):
        Snapshot(
            cluster="c",
            time_s=10,
            machine=Cluster.uniform(1),
            nodes=(NodeRecord(name="n0"),),
            reservations=(NodeReservation(name="r", start_s=5, end_s=9, node_names=("zz",)),),
        )


@pytest.mark.parametrize(
    "fields",
    [{"cores_per_task": 1e18, "tasks": 1}, {"tasks_per_node": 2**63}, {"resources": {"x": 2**64}}],
)
def test_a_request_beyond_what_the_engine_can_hold_is_no_event(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="less than or equal to"):
        JobSpec(id="7", submit_s=0, nodes=1, walltime_s=60, **fields)  # type: ignore[arg-type]
