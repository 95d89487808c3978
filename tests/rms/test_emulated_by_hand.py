"""The emulated cluster in cases worked out by hand."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from hpctwin.errors import ConfigError, WorkloadError
from hpctwin.generate import generate
from hpctwin.model import Cluster, Workload
from hpctwin.rms.emulated import Faults
from hpctwin.rms.records.events import Event
from hpctwin.rms.records.records import JobDependency, JobSpec, NodeReservation
from hpctwin.twin.core.mirror import Mirror
from hpctwin.twin.emulated import emulated_cluster
from tests.rms.emulated_cases import EPOCH_S, idle, run_out, spec, started, what_happened

# --- what it refuses ---------------------------------------------------------------------------


def test_a_start_is_rejected_where_the_job_may_not_or_cannot_start() -> None:
    cluster = idle()
    cluster.submit(spec("long", 2, 1000), 1000)
    cluster.submit(spec("wide", 3), 10)
    cluster.submit(spec("held", held=True), 10)
    cluster.submit(spec("after", dependencies=(JobDependency(on="long", kind="afterok"),)), 10)
    cluster.submit(spec("later", not_before_s=50), 10)
    assert cluster.start("long").result == "done"
    why = {job: cluster.start(job) for job in ("long", "wide", "held", "after", "later", "none")}
    assert {outcome.result for outcome in why.values()} == {"refused"}
    for job, word in (
        ("long", "not pending"), ("wide", "not enough nodes"), ("held", "held"),
        ("after", "depends on job long"), ("later", "not start before"), ("none", "not exist"),
    ):  # fmt: skip
        assert word in why[job].reason
    cluster.advance(50)
    assert cluster.start("later").result == "done"


def test_no_job_starts_that_would_run_into_a_reservation() -> None:
    cluster = idle(2)
    ends = {"start_s": 100.0, "end_s": 200.0}
    cluster.set_reservation(NodeReservation(name="m", node_names=("n0001",), **ends))
    for job_id, nodes, walltime_s in (("a", 1, 101.0), ("b", 1, 101.0), ("c", 1, 100.0)):
        cluster.submit(spec(job_id, nodes, walltime_s), 5)
    assert cluster.start("a").result == "done"
    assert cluster.snapshot().jobs[0].node_names == ("n0002",)
    assert cluster.start("b").result == "refused"
    assert cluster.start("c").result == "done"
    cluster.advance(100)
    assert cluster.start("b").result == "done"
    cluster.advance(200)
    assert cluster.snapshot().reservations == ()


def test_jobs_that_can_never_run_are_rejected_at_submission() -> None:
    machine = Cluster.uniform(
        4,
        resources={"licence": 2},
        partitions=[{"name": "short", "max_walltime": 100, "max_nodes": 2, "default": True}],
    )
    cluster = emulated_cluster(machine, record=True)
    for job, word in (
        (spec("1", 3), "no jobs with 3 nodes"),
        (spec("1", 5), "do not fit"),
        (spec("1", walltime_s=101), "exceeds max_walltime"),
        (spec("1", partition="none"), "does not exist"),
        (spec("1", resources={"licence": 3}), "licence"),
        (spec("1", dependencies=(JobDependency(on="0"),)), "does not exist"),
    ):
        outcome = cluster.submit(job, 1)
        assert (outcome.result, word in outcome.reason) == ("refused", True), outcome
    assert cluster.submit(spec("1"), 1).result == "done"
    assert cluster.submit(spec("1"), 1).result == "refused"
    assert cluster.seq == 1


def test_wrong_changes_are_rejected_and_change_nothing() -> None:
    cluster = idle()
    cluster.submit(spec("1"), 10)
    seq = cluster.seq
    assert cluster.modify("1", nodes=5).result == "refused"
    assert cluster.modify("1", walltime_s=-1).result == "refused"
    assert cluster.set_priority("1", math.nan).result == "refused"
    assert cluster.hold("2").result == "refused"
    assert cluster.node_down("n9999").result == "refused"
    far = NodeReservation(name="x", start_s=1, end_s=2, node_names=("n9999",))
    assert cluster.set_reservation(far).result == "refused"
    assert cluster.remove_reservation("x").result == "refused"
    assert cluster.seq == seq
    assert cluster.modify("1", nodes=2, walltime_s=7, priority=3).result == "done"
    asked = cluster.snapshot().jobs[0].spec
    assert (asked.nodes, asked.walltime_s, asked.priority) == (2, 7, 3)


def test_a_clock_below_zero_and_ids_that_no_command_line_takes_are_rejected() -> None:
    machine = Cluster.uniform(2)
    with pytest.raises(ConfigError, match="negative times"):
        emulated_cluster(machine, faults=Faults(clock_skew_s=-5))
    jobs = Workload.build(submit_s=[0], runtime_s=[1], nodes=[1], job_id=["-rf"])
    with pytest.raises(WorkloadError, match="-rf"):
        emulated_cluster(machine, jobs)


# --- faults ------------------------------------------------------------------------------------


def test_a_failing_node_throws_its_job_back_or_ends_it() -> None:
    for requeue, expected in ((True, "requeued"), (False, "node_failure")):
        cluster = idle(faults=Faults(requeue=requeue))
        cluster.submit(spec("1", 2), 10)
        cluster.start("1")
        cluster.advance(5)
        cluster.node_down("n0001")
        assert what_happened(cluster, "1")[-1] == expected
        assert run_out(cluster).now_s == 5


def test_at_seven_tenths_of_the_speed_42_s_are_60_s_to_the_millisecond() -> None:
    machine = Cluster.model_validate({"nodes": [{"name": "g", "count": 1, "speed": 0.7}]})
    jobs = Workload.build(submit_s=[0, 0], runtime_s=[42, 1], walltime_s=[99, 9], nodes=[1, 1])
    cluster = run_out(emulated_cluster(machine, jobs, record=True))
    assert started(cluster) == {"1": 0.0, "2": 60.0}


def test_nodes_are_free_and_ends_reported_only_after_the_cleanup() -> None:
    events: list[Event] = []
    cluster = idle(1, publish=events.append, faults=Faults(cleanup_s=4, seed=1))
    for job_id in ("1", "2"):
        cluster.submit(spec(job_id), 10)
    cluster.start("1")
    cluster.advance(10)
    assert cluster.start("2").result == "refused"
    assert cluster.cancel("1").result == "refused"
    cluster.advance(14)
    assert cluster.start("2").result == "done"
    end = next(event for event in events if event.kind == "job_ended")
    assert 10 < end.time_s < 14
    # A node that fails in the cleanup changes nothing: the job was over.
    cluster.advance(end.time_s + 10.001)
    cluster.advance(24)
    cluster.node_down("n0001")
    run_out(cluster)
    assert what_happened(cluster, "2")[-1] == "exit"


def test_rejected_and_lost_actions_are_as_often_as_asked_for_and_what_is_unknown_is_done() -> None:
    cluster = idle(500, faults=Faults(refused=0.2, lost_answers=0.3))
    for number in range(500):
        cluster.submit(spec(str(number)), 10)
    outcomes = {job_id: cluster.start(job_id).result for job_id in list(cluster.jobs)}
    count = Counter(outcomes.values())
    assert 70 < count["refused"] < 130
    assert 90 < count["unknown"] < 150
    running = {job.spec.id for job in cluster.snapshot().jobs if job.start_s is not None}
    assert running == {job_id for job_id, result in outcomes.items() if result != "refused"}


def test_jobs_without_a_runtime_end_early_by_the_share_asked_for() -> None:
    cluster = idle(200, faults=Faults(shortest_run=0.2, longest_run=0.5))
    for number in range(200):
        cluster.submit(spec(str(number)))
        cluster.start(str(number))
    run_out(cluster)
    assert cluster.history is not None
    ends = [time_s for time_s, _, what in cluster.history if what == "exit"]
    assert len(ends) == 200
    assert 20 <= min(ends) < 23
    assert 47 < max(ends) <= 50


def test_a_wrong_clock_is_wrong_by_the_same_in_all_times() -> None:
    jobs = generate("four-phase")
    told: list[list[tuple[float, str]]] = []
    for skew_s in (0.0, -300.0):
        events: list[Event] = []
        cluster = emulated_cluster(
            Cluster.uniform(32), jobs, publish=events.append, start_s=EPOCH_S,
            faults=Faults(clock_skew_s=skew_s),
        )  # fmt: skip
        run_out(cluster)
        told.append([(round(e.time_s - skew_s, 3), e.kind) for e in events])
    assert told[0] == told[1]


def test_with_failing_nodes_it_comes_to_an_end_and_every_job_with_it() -> None:
    jobs = generate("four-phase")
    cluster = emulated_cluster(
        Cluster.uniform(32), jobs, faults=Faults(mtbf_s=20_000, mttr_s=100), record=True
    )
    run_out(cluster)
    assert cluster.history is not None
    what = Counter(w for *_, w in cluster.history)
    assert what["requeued"] > 5
    assert what["exit"] == 150
    assert what["started"] == 150 + what["requeued"]


def test_dropped_events_leave_gaps_and_the_clock_need_not_wait_for_them() -> None:
    events: list[Event] = []
    cluster = emulated_cluster(
        Cluster.uniform(32), generate("four-phase"), publish=events.append,
        faults=Faults(dropped=0.5),
    )  # fmt: skip
    cluster.advance(200)
    assert len(events) < cluster.seq
    assert not cluster.confirmed
    cluster.heartbeat(events[-1].seq)
    assert cluster.confirmed


# --- dependencies ------------------------------------------------------------------------------


def test_a_long_chain_of_jobs_that_cannot_run_any_more_is_deleted() -> None:
    cluster = idle()
    cluster.submit(spec("0"), 10)
    for number in range(1, 3000):
        edge = JobDependency(on=str(number - 1), kind="afterok")
        cluster.submit(spec(str(number), dependencies=(edge,)), 10)
    cluster.cancel("0")
    assert cluster.jobs == {}
    assert cluster.ended == 3000


def test_dependencies_on_jobs_that_have_ended_count_as_they_ended() -> None:
    cluster = idle()
    cluster.submit(spec("good"), 10)
    cluster.submit(spec("bad", walltime_s=5), 10)
    cluster.start("good")
    cluster.start("bad")
    cluster.advance(20)

    def submit(job_id: str, on: str, kind: str, delay_s: float = 0.0) -> str:
        edge = JobDependency(on=on, kind=kind, delay_s=delay_s)  # type: ignore[arg-type]
        return cluster.submit(spec(job_id, dependencies=(edge,)), 1).result

    assert submit("1", "bad", "afterok") == "refused"
    assert submit("2", "bad", "afterany") == "done"
    assert submit("3", "good", "afterok", 15.0) == "done"
    assert cluster.start("2").result == "done"
    assert cluster.start("3").result == "refused"
    cluster.advance(25)
    assert cluster.start("3").result == "done"


def test_a_restart_begins_a_new_run_whose_events_count_from_one() -> None:
    events: list[Event] = []
    cluster = idle(publish=events.append)
    cluster.submit(spec("1"), 10)
    cluster.heartbeat(1)
    cluster.restart()
    assert (events[-1].kind, events[-1].run, events[-1].seq) == ("scheduler_restarted", "2", 1)
    assert not cluster.confirmed
    cluster.heartbeat(7)  # of the run before
    assert not cluster.confirmed
    snapshot = cluster.snapshot()
    assert (snapshot.run, snapshot.seq) == ("2", 1)
    mirror = Mirror(snapshot)
    cluster.submit(spec("2"), 10)
    mirror.take(events[-1])
    assert mirror.difference(cluster.snapshot()) == []


def test_leased_jobs_wait_while_others_start_and_leases_run_out_by_themselves() -> None:
    cluster = emulated_cluster(Cluster.uniform(4))
    for number in (1, 2, 3):
        cluster.submit(JobSpec(id=str(number), submit_s=0, nodes=1, walltime_s=60), 60)
    assert {o.result for o in cluster.lease({"1": 50.0, "2": 500.0}).values()} == {"done"}
    cluster.schedule()
    cluster.advance(10)
    assert cluster.leases() == {"1": 50.0, "2": 500.0}
    cluster.submit(JobSpec(id="4", submit_s=10, nodes=1, walltime_s=60), 60)
    assert cluster.leases()["4"] == 30.0  # a first lease, since leases are given
    assert cluster.admit(["2", "3"])["3"].result == "refused"  # it runs
    cluster.schedule()
    assert cluster.leases().keys() == {"1", "4"}
    cluster.advance(100)
    started = {j.spec.id: j.start_s for j in cluster.snapshot().jobs}
    assert cluster.leases() == {}
    assert started == {"1": 50.0}
    cluster.advance(1000)
    cluster.submit(JobSpec(id="5", submit_s=1000, nodes=1, walltime_s=60), 60)
    assert cluster.leases()["5"] == 0.0  # nobody gives leases any more
