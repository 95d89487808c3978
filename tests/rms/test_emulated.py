"""The emulated cluster does what a resource manager does, and tells it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, generate, simulate
from hpctwin.errors import FormatError, UnreachableError
from hpctwin.rms.emulated import EmulatedCluster, Faults
from hpctwin.rms.emulated.client import EmulatedManager
from hpctwin.rms.emulated.server import MAX_REQUEST
from hpctwin.rms.records import events as ev
from hpctwin.rms.records.records import JobSpec, NodeReservation
from hpctwin.twin.core.mirror import Mirror
from hpctwin.twin.emulated import emulated_cluster
from tests import strategies
from tests.examples import examples

NODES = 6
DEEDS = [
    "submit", "submit", "submit", "pass", "pass", "start", "cancel", "hold", "release", "modify",
    "down", "up", "drain", "take", "give", "reserve",
]  # fmt: skip


def job(number: int, nodes: int = 1, walltime_s: float = 60, **about: object) -> JobSpec:
    return JobSpec(id=str(number), submit_s=0, nodes=nodes, walltime_s=walltime_s, **about)


@st.composite
def lives(draw: st.DrawFn) -> tuple[EmulatedCluster, list[ev.Event], Mirror]:
    """A cluster to which anything has been done, its events, and a mirror fed by them."""
    events: list[ev.Event] = []
    faults = Faults(
        cleanup_s=draw(st.sampled_from((0.0, 3.0))),
        requeue=draw(st.booleans()),
        seed=draw(st.integers(0, 9)),
    )
    cluster = emulated_cluster(
        Cluster.uniform(NODES), publish=events.append, faults=faults, record=True
    )
    mirror = Mirror(cluster.snapshot())
    names = st.sampled_from([f"n{i + 1:04}" for i in range(NODES)])
    for number in range(draw(st.integers(1, 40))):
        known = st.sampled_from([*cluster.jobs, "none"])
        what = draw(st.sampled_from(DEEDS))
        if what == "submit":
            on = draw(st.sampled_from([None, *cluster.jobs]))
            kind = draw(st.sampled_from(("after", "afterany", "afterok")))
            delay_s = draw(st.sampled_from((0.0, 7.0)))
            edges = () if on is None else ({"on": on, "kind": kind, "delay_s": delay_s},)
            spec = job(
                number, draw(st.integers(1, NODES)), draw(st.integers(1, 20)), dependencies=edges,
                not_before_s=draw(st.sampled_from((None, cluster.now_s + 5))),
            )  # fmt: skip
            spec = spec.model_copy(update={"submit_s": cluster.now_s})
            cluster.submit(spec, draw(st.integers(0, 25)))
        elif what == "pass":
            cluster.advance(cluster.now_s + draw(st.integers(0, 15)))
        elif what in ("start", "cancel", "hold", "release"):
            getattr(cluster, what)(draw(known))
        elif what == "modify":
            cluster.modify(draw(known), walltime_s=draw(st.integers(1, 20)))
        elif what in ("down", "up", "drain"):
            getattr(cluster, f"node_{what}")(draw(names))
        elif what == "reserve":
            start_s = cluster.now_s + draw(st.integers(0, 10))
            cluster.set_reservation(
                NodeReservation(
                    name="r", start_s=start_s, end_s=start_s + 5, node_names=(draw(names),)
                )
            )
        else:
            getattr(cluster, f"{what}_scheduling")()
        cluster.schedule()
    for event in events:
        mirror.take(event)
    return cluster, events, mirror


@settings(max_examples=examples(60))
@given(lives())
def test_its_events_lead_a_mirror_to_its_snapshot_and_are_numbered_without_gaps(life) -> None:
    cluster, events, mirror = life
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert mirror.needs_snapshot is None
    assert mirror.difference(cluster.snapshot()) == [] or _past_reservation(cluster, mirror)


def _past_reservation(cluster: EmulatedCluster, mirror: Mirror) -> bool:
    """A reservation that is over is not in a snapshot, but no event tells of its end."""
    words = mirror.difference(cluster.snapshot())
    return words == ["reservation 'r' is in one of them only"] and (
        mirror.reservations["r"].end_s <= cluster.now_s
    )


@settings(max_examples=examples(30))
@given(lives())
def test_reported_values_survive_json_and_validation(life) -> None:
    for event in life[1]:
        assert ev.parse_event(ev.event_json(event)) == event


def test_a_damaged_event_is_rejected_with_its_error_in_one_line() -> None:
    spec = JobSpec(id="7", submit_s=1, nodes=1, walltime_s=60, resources={"lic": 1})
    event = ev.JobSubmitted(cluster="c", run="r", seq=1, time_s=5, job=spec)
    text = ev.event_json(event)
    # Cut off anywhere, without a colon or a comma, or with a brace as a value.
    damaged = [text[:i] for i in range(len(text))]
    damaged += [text.replace(":", " ", 1), text.replace(",", " ", 1), text.replace('"r"', "{}", 1)]
    for broken in damaged:
        with pytest.raises(FormatError, match=r"^invalid event: [^\n]+$"):
            ev.parse_event(broken)
    with pytest.raises(FormatError, match=r"version: 2 is unknown\. Known: 1$"):
        ev.parse_event(text.replace('"version":1', '"version":2'))


@settings(max_examples=examples(40))
@given(lives())
def test_no_node_is_held_twice_no_job_ends_twice_and_all_come_to_their_end(life) -> None:
    cluster, events, _ = life
    for event in events:
        if isinstance(event, ev.JobEnded):
            assert event.reason in ("exit", "cancelled", "walltime", "node_failure")
    held: dict[str, str] = {}
    nodes: dict[str, tuple[str, ...]] = {}
    for event in events:
        if isinstance(event, ev.JobStarted):
            for name in event.node_names:
                assert name not in held
                held[name] = event.job_id
            nodes[event.job_id] = event.node_names
        elif isinstance(event, ev.JobEnded | ev.JobRequeued):
            for name in nodes.pop(event.job_id):
                del held[name]
    # Set free what was done to it; then everything must run.
    for name in cluster.nodes.names:
        cluster.node_up(name)
    for job_id in list(cluster.jobs):
        cluster.release(job_id)
    cluster.remove_reservation("r")
    cluster.give_scheduling()
    while (due_s := cluster.next_time()) is not None:
        cluster.advance(due_s)
    assert cluster.jobs == {}
    ends = [i for _, i, what in cluster.history if what not in ("submitted", "started", "requeued")]
    assert len(ends) == len(set(ends)) == cluster.submitted


@given(st.data())
def test_alone_it_schedules_exactly_as_the_simulation(data: st.DataObject) -> None:
    cluster = data.draw(strategies.clusters(max_nodes=8, maintenance=False, outages=False))
    groups = tuple(group.model_copy(update={"speed": 1.0}) for group in cluster.nodes)
    partitions = tuple(
        p.model_copy(
            update={
                "max_jobs_per_user": None,
                "max_walltime": None,
                "min_nodes": 1,
                "max_nodes": None,
            }
        )
        for p in cluster.partitions
    )
    cluster = cluster.model_copy(update={"nodes": groups, "partitions": partitions})
    workload = data.draw(
        strategies.workloads(cluster, max_jobs=15, dependencies=False, cancellations=False)
    )
    workload = workload.replace(runtime_ms=workload.runtime_ms + 1)
    result = simulate(workload, cluster)
    expected = dict(result.jobs.select("job_id", "start_s").iter_rows())
    emulated = emulated_cluster(cluster, workload, record=True)
    while (due_s := emulated.next_time()) is not None:
        emulated.advance(due_s)
    started = {int(i): t for t, i, what in emulated.history if what == "started"}
    assert started == {i: t for i, t in expected.items() if t is not None}


def test_the_same_seed_gives_the_same_events_with_all_faults() -> None:
    workload = generate("four-phase", seed=1)
    faults = Faults(
        cleanup_s=5, late=0.1, late_s=9, duplicated=0.1, dropped=0.1, reordered=0.1, mtbf_s=50_000
    )

    def run() -> list[ev.Event]:
        events: list[ev.Event] = []
        cluster = emulated_cluster(
            Cluster.uniform(32), workload, publish=events.append, faults=faults
        )
        while (due_s := cluster.next_time()) is not None:
            cluster.advance(due_s)
        return events

    assert run() == run()


def test_a_start_is_rejected_with_the_reason() -> None:
    cluster = emulated_cluster(Cluster.uniform(4))
    cluster.take_scheduling()
    cluster.submit(job(1, 3), 50)
    cluster.submit(job(2, 2), 50)
    cluster.submit(job(3, held=True), 50)
    cluster.submit(job(4, dependencies=({"on": "2"},)), 50)
    cluster.submit(job(5, not_before_s=100.0), 50)
    said = {i: cluster.start(i).reason for i in ("1", "2", "3", "4", "5", "6", "1")}
    assert said == {
        "1": "job 1 is not pending", "2": "not enough nodes are free", "3": "job 3 is held",
        "4": "job 4 depends on job 2", "5": "job 5 may not start before 100 s", "6": "job 6 does not exist",
    }  # fmt: skip
    assert "do not fit" in cluster.submit(job(7, 9), 1).reason


def test_a_job_over_its_walltime_is_ended_and_those_that_needed_it_are_deleted() -> None:
    events: list[ev.Event] = []
    cluster = emulated_cluster(Cluster.uniform(1), publish=events.append)
    cluster.submit(job(1, walltime_s=10), 99)
    cluster.schedule()
    cluster.submit(job(2, dependencies=({"on": "1", "kind": "afterok"},)), 1)
    cluster.advance(10)
    kinds = [(e.kind, getattr(e, "reason", None)) for e in events]
    assert kinds[-2:] == [("job_ended", "walltime"), ("job_deleted", None)]


# --- as a process ----------------------------------------------------------------------------------


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as trial:
        return trial.connect_ex(str(path)) == 0


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "c.sock"
    command = [
        sys.executable, "-m", "hpctwin", "rms", "emulate", str(path), "--workload", "none", "--nodes", "4",
        "--takeover", "3", "--speed", "100",
    ]  # fmt: skip
    process = subprocess.Popen(command)
    until = time.monotonic() + 120
    while not answers(path):  # its file is there before it listens
        assert time.monotonic() < until
        time.sleep(0.05)
    yield path
    process.terminate()
    assert process.wait(180) == 0
    assert not path.exists()


def test_over_its_socket_it_is_a_resource_manager(served: Path) -> None:
    manager = EmulatedManager(served)
    lines: list[bytes] = []
    manager.subscribe(lines.append)
    assert manager.take_scheduling().result == "done"
    assert manager.ask("submit", job=job(1).model_dump(), runtime_s=1000)["result"] == "done"
    assert manager.start("1").result == "done"
    assert manager.start("1").reason == "job 1 is not pending"
    until = time.monotonic() + 180
    while len(lines) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    assert [ev.parse_event(line).kind for line in lines[:2]] == ["job_submitted", "job_started"]
    snapshot = manager.snapshot()
    assert [j.spec.id for j in snapshot.jobs] == ["1"]
    assert not snapshot.own_scheduling
    until = time.monotonic() + 180
    while not manager.snapshot().own_scheduling:  # no heartbeat comes
        assert time.monotonic() < until
        time.sleep(0.1)
    manager.close()


def test_nonsense_on_its_socket_is_answered_and_does_no_harm(served: Path) -> None:
    for line in (
        b"nonsense",
        b"[1]",
        b"{}",
        b'{"op": "start"}',
        b'{"op": "submit", "job": 7}',
        b"\xff",
    ):
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(str(served))
            one.sendall(line + b"\n")
            assert b"bad request" in one.makefile("rb").readline()
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(served))
        one.sendall(json.dumps({"op": "x" * (MAX_REQUEST + 10)}).encode() + b"\n")
        assert one.makefile("rb").readline().startswith(b'{"error": "bad request: longer than')
    manager = EmulatedManager(served)
    assert manager.snapshot().jobs == ()
    manager.close()


def test_a_manager_that_is_not_there_is_reported_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="nothing"):
        EmulatedManager(tmp_path / "nothing.sock")
