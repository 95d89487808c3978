"""Events made of two snapshots lead a mirror from the one to the other."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from hpctwin.model import Cluster, Partition
from hpctwin.rms.records.changes import Changes
from hpctwin.rms.records.events import event_json, parse_event
from hpctwin.rms.records.records import JobDependency, JobRecord, JobSpec, NodeRecord, Snapshot
from hpctwin.twin.core.mirror import Mirror
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
    assert changes.to(last) == []


def _snapshot(*jobs: JobRecord, time_s: float = 1000.0) -> Snapshot:
    nodes = tuple(NodeRecord(name=f"n{i}") for i in range(4))
    return Snapshot(
        cluster="c", time_s=time_s, machine=Cluster.uniform(4), nodes=nodes, jobs=tuple(jobs)
    )


def _job(job_id: str, start_s: float | None = None, *names: str, **spec: Any) -> JobRecord:
    about = JobSpec(id=job_id, submit_s=1.0, nodes=1, walltime_s=60.0, **spec)
    return JobRecord(spec=about, start_s=start_s, node_names=names)


def _mirrored(changes: Changes, *looks: Snapshot) -> list[str]:
    """Kinds of all events of a series of looks; the mirror is never other than the snapshot."""
    mirror = Mirror(changes.last)
    kinds = []
    for look in looks:
        for event in changes.to(look):
            assert mirror.take(parse_event(event_json(event)))[0] == "applied"
            kinds.append(event.kind)
        assert mirror.difference(changes.last) == []
    return kinds


def test_where_nodes_or_partitions_become_others_the_mirror_asks_for_all_of_it() -> None:
    changes = Changes(_snapshot(_job("1", 500.0, "n0")), "r")
    mirror = Mirror(changes.last)
    partitions = (Partition(name="new"),)
    machine = Cluster.uniform(4).model_copy(update={"partitions": partitions})
    look = _snapshot(_job("2", partition="new")).model_copy(update={"machine": machine})
    events = changes.to(look)
    assert [event.kind for event in events] == ["scheduler_restarted", "job_ended", "job_submitted"]
    assert [mirror.take(event)[0] for event in events] == ["applied"] * 3
    assert mirror.needs_snapshot is not None
    assert mirror.adopt(changes.last)[0]
    assert mirror.needs_snapshot is None
    assert mirror.machine.partitions == partitions


def test_a_start_reported_in_fractions_of_a_second_equals_the_one_listed_in_seconds() -> None:
    changes = Changes(_snapshot(_job("1")), "r")
    told = _snapshot(_job("1", 1000.731, "n0", "n1"))
    listed = _snapshot(_job("1", 1000.0, "n1", "n0"))
    assert _mirrored(changes, told, listed, listed) == ["job_started"]
    assert changes.last.jobs[0].start_s == 1000.731


def test_a_start_at_another_time_or_on_other_nodes_is_reported() -> None:
    changes = Changes(_snapshot(_job("1", 500.0, "n0")), "r")
    again = ["job_requeued", "job_started"]
    assert _mirrored(changes, _snapshot(_job("1", 900.0, "n0"))) == again
    assert _mirrored(changes, _snapshot(_job("1", 900.0, "n2"))) == again


def test_a_dependency_without_any_event_is_reported_once() -> None:
    waits = _job("2", dependencies=(JobDependency(on="1", kind="afterok"),))
    changes = Changes(_snapshot(_job("1", 5.0, "n0")), "r")
    looks = [_snapshot(_job("1", 5.0, "n0"), waits, time_s=1000.0 + i) for i in range(5)]
    assert _mirrored(changes, *looks) == ["job_submitted"]
    # The job waited for has ended, which strikes it out; the list still has it.
    assert _mirrored(changes, _snapshot(waits)) == ["job_ended", "job_modified"]
    assert _mirrored(changes, _snapshot(_job("2"))) == ["job_modified"]
