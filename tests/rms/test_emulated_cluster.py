"""The emulated cluster keeps its books, whatever happens to it."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Simulation, parse_policy
from hpctwin.errors import ConfigError, WorkloadError
from hpctwin.generate import generate
from hpctwin.model import Cluster, Workload
from hpctwin.rms.emulated import EmulatedCluster, Faults
from hpctwin.rms.events import Event, event_json, parse_event
from hpctwin.rms.records import JobDependency, JobSpec, NodeReservation, Snapshot
from hpctwin.twin.emulated import emulated_cluster
from hpctwin.twin.mirror import Mirror
from tests import strategies

EPOCH_S = 1_700_000_000.0
ENDS = {"exit", "walltime", "cancelled", "node_failure", "deleted"}


def run_out(cluster: EmulatedCluster) -> EmulatedCluster:
    while (due_s := cluster.next_time()) is not None:
        cluster.advance(due_s)
    return cluster


def spec(job_id: str, nodes: int = 1, walltime_s: float = 100.0, **about: Any) -> JobSpec:
    return JobSpec(id=job_id, submit_s=0.0, nodes=nodes, walltime_s=walltime_s, **about)


def idle(nodes: int = 4, **about: Any) -> EmulatedCluster:
    """One whose jobs are started from outside."""
    cluster = emulated_cluster(Cluster.uniform(nodes), record=True, **about)
    cluster.take_scheduling()
    return cluster


def started(cluster: EmulatedCluster) -> dict[str, float]:
    """The last start of each job."""
    assert cluster.history is not None
    return {job: time_s for time_s, job, what in cluster.history if what == "started"}


def what_happened(cluster: EmulatedCluster, job_id: str) -> list[str]:
    assert cluster.history is not None
    return [what for _, job, what in cluster.history if job == job_id]


# --- its own scheduling ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", ["fcfs+easy", "sjf+first-fit", "fcfs"])
def test_alone_it_starts_the_four_phase_jobs_exactly_when_a_simulation_does(seed, policy) -> None:
    jobs = generate("four-phase", seed=seed, shortest_run=0.3)
    machine = Cluster.uniform(32)
    cluster = emulated_cluster(machine, jobs, policy=policy, start_s=EPOCH_S, record=True)
    run_out(cluster)
    result = Simulation(jobs, machine, policy=parse_policy(policy)).run().jobs
    expected = dict(zip(result["job_id"].cast(str), result["start_s"], strict=True))
    assert {job: round(s - EPOCH_S, 3) for job, s in started(cluster).items()} == expected


@settings(max_examples=150)
@given(st.data())
def test_alone_it_starts_any_jobs_on_any_machine_when_a_simulation_does(data) -> None:
    # Past maintenance still sorts nodes for the simulation, and so who is hit by an outage.
    maintenance = data.draw(st.booleans())
    machine = data.draw(strategies.clusters(maintenance=maintenance, outages=not maintenance))
    jobs = data.draw(strategies.workloads(machine))
    cluster = run_out(emulated_cluster(machine, jobs, record=True))
    result = Simulation(jobs, machine, policy=parse_policy("fcfs+easy")).run().jobs
    expected = {
        job: start for job, start in zip(result["job_id"].cast(str), result["start_s"], strict=True)
        if start is not None
    }  # fmt: skip
    # A job that failed with its node, or waits again for good, has no start in a result.
    known = {job: s for job, s in started(cluster).items() if job in expected}
    assert known == expected


# --- its books ---------------------------------------------------------------------------------

ACTIONS = st.tuples(
    st.sampled_from(
        ("start", "start", "start", "hold", "release", "cancel", "priority", "modify", "submit",
         "down", "up", "drain", "reserve", "free", "take", "give", "restart")
    ),
    st.integers(0, 40),
    st.sampled_from((0.0, 1.0, 7.0, 25.0)),
)  # fmt: skip


def do(cluster: EmulatedCluster, what: str, number: int) -> None:
    """Anything that somebody could ask for, possible or not."""
    waiting = [i for i, job in cluster.jobs.items() if job.record.start_s is None]
    job_id = waiting[number % len(waiting)] if waiting and number % 4 else str(number)
    name = f"n{number % cluster.machine.node_count + 1:04}"
    match what:
        case "start":
            cluster.start(job_id)
        case "hold":
            cluster.hold(job_id)
        case "release":
            cluster.release(job_id)
        case "cancel":
            cluster.cancel(str(number))
        case "priority":
            cluster.set_priority(job_id, number)
        case "modify":
            cluster.modify(job_id, nodes=number % 5, walltime_s=number)
        case "submit":
            edge = JobDependency(on=job_id, kind="afterok", delay_s=number % 3)
            new = spec(f"u{number}", 1 + number % 3, dependencies=(edge,) if number % 2 else ())
            cluster.submit(new.model_copy(update={"submit_s": cluster.now_s}), number)
        case "down":
            cluster.node_down(name)
        case "up":
            cluster.node_up(name)
        case "drain":
            cluster.node_drain(name)
        case "reserve":
            window = {"start_s": cluster.now_s + number, "end_s": cluster.now_s + number + 9}
            cluster.set_reservation(NodeReservation(name=name, node_names=(name,), **window))
        case "free":
            cluster.remove_reservation(name)
        case "take":
            cluster.take_scheduling()
        case "give":
            cluster.give_scheduling()
        case "restart":
            cluster.restart()


@st.composite
def faults(draw: st.DrawFn, **about: Any) -> Faults:
    return Faults(
        seed=draw(st.integers(0, 99)),
        cleanup_s=draw(st.sampled_from((0.0, 3.0))),
        mtbf_s=draw(st.sampled_from((0.0, 200.0))),
        mttr_s=20.0,
        requeue=draw(st.booleans()),
        refused=draw(st.sampled_from((0.0, 0.2))),
        lost_answers=draw(st.sampled_from((0.0, 0.2))),
        clock_skew_s=draw(st.sampled_from((0.0, 247.5))),
        **about,
    )


def live(data: Any, wrong: Faults) -> tuple[EmulatedCluster, Snapshot, list[Event]]:
    """A cluster after many things happened, its first snapshot, and its events since."""
    machine = data.draw(strategies.clusters(maintenance=True))
    jobs = data.draw(strategies.workloads(machine))
    events: list[Event] = []
    cluster = emulated_cluster(
        machine, jobs, publish=events.append, faults=wrong, start_s=EPOCH_S, record=True
    )
    first = cluster.snapshot()
    cluster.take_scheduling()
    for what, number, pause_s in data.draw(st.lists(ACTIONS, max_size=40)):
        do(cluster, what, number)
        cluster.schedule()
        cluster.advance(cluster.now_s + pause_s)
        nobody_shares_a_node(cluster.snapshot())
    return cluster, first, events


def nobody_shares_a_node(snapshot: Snapshot) -> None:
    held = Counter(name for job in snapshot.jobs for name in job.node_names)
    assert all(count == 1 for count in held.values())
    down = {node.name for node in snapshot.nodes if node.state == "down"}
    assert not down & set(held)
    for job in snapshot.jobs:
        assert len(job.node_names) == (job.spec.nodes if job.start_s is not None else 0)
    Snapshot.model_validate_json(snapshot.model_dump_json())


@settings(max_examples=60)
@given(st.data())
def test_each_job_starts_once_per_requeue_and_ends_once(data) -> None:
    cluster, _, _ = live(data, data.draw(faults()))
    cluster.give_scheduling()
    for job_id in list(cluster.jobs):
        cluster.release(job_id)
    cluster.advance(cluster.now_s + 2000)
    assert cluster.history is not None
    happened: dict[str, list[str]] = {}
    for _, job_id, what in cluster.history:
        happened.setdefault(job_id, []).append(what)
    for job_id, what in happened.items():
        if what == ["rejected"]:
            continue
        assert what[0] == "submitted"
        is_open = job_id in cluster.jobs
        assert sum(w in ENDS for w in what) == (0 if is_open else 1)
        assert is_open or what[-1] in ENDS
        # After its submission a job is started and thrown back in turn.
        runs = [w for w in what[1:] if w not in ENDS]
        assert runs == ["started", "requeued"] * (len(runs) // 2) + ["started"] * (len(runs) % 2)
        assert (what[-1] == "deleted") <= (len(runs) % 2 == 0)
    assert cluster.submitted == cluster.ended + len(cluster.jobs)


@settings(max_examples=60)
@given(st.data())
def test_its_events_lead_from_one_snapshot_to_the_next_without_gaps(data) -> None:
    cluster, first, events = live(data, data.draw(faults()))
    by_run: dict[str, list[int]] = {}
    for event in events:
        assert parse_event(event_json(event)) == event
        by_run.setdefault(event.run, []).append(event.seq)
    for numbers in by_run.values():
        assert numbers == list(range(1, len(numbers) + 1))
    if set(by_run) - {"1"}:
        return
    mirror = Mirror(first)
    for event in events:
        assert mirror.take(event)[0] == "applied"
    assert mirror.difference(cluster.snapshot()) == []
    assert mirror.digest == Mirror(cluster.snapshot()).digest


@settings(max_examples=30)
@given(st.data())
def test_a_bus_that_duplicates_reorders_and_delays_ends_in_the_same_state(data) -> None:
    wrong = Faults(
        duplicated=0.3, reordered=0.3, late=0.2, late_s=20, seed=data.draw(st.integers(0, 9))
    )
    cluster, first, events = live(data, wrong)
    if any(event.run != "1" for event in events):
        return
    run_out(cluster)
    snapshot = cluster.snapshot()
    mirror = Mirror(first)
    for event in events:
        assert mirror.take(event)[0] in ("applied", "early", "duplicate")
    assert mirror.missing is None
    assert mirror.difference(snapshot) == []


@settings(max_examples=30)
@given(st.data())
def test_the_same_seed_gives_the_same_events(data) -> None:
    machine = data.draw(strategies.clusters())
    jobs = data.draw(strategies.workloads(machine))
    wrong = data.draw(faults(duplicated=0.2, dropped=0.1, reordered=0.2, late=0.2, late_s=9))
    actions = data.draw(st.lists(ACTIONS, max_size=15))

    def one() -> list[str]:
        lines: list[str] = []
        cluster = emulated_cluster(
            machine, jobs, publish=lambda e: lines.append(event_json(e)), faults=wrong
        )
        for what, number, pause_s in actions:
            do(cluster, what, number)
            cluster.schedule()
            cluster.advance(cluster.now_s + pause_s)
        return lines

    assert one() == one()


# --- what it refuses ---------------------------------------------------------------------------


def test_a_start_is_refused_where_the_job_may_not_or_cannot_start() -> None:
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
        ("long", "does not wait"), ("wide", "not enough nodes"), ("held", "held"),
        ("after", "waits for job long"), ("later", "not start before"), ("none", "not there"),
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


def test_jobs_that_can_never_run_are_refused_at_submission() -> None:
    machine = Cluster.uniform(
        4,
        resources={"licence": 2},
        partitions=[{"name": "short", "max_walltime": 100, "max_nodes": 2, "default": True}],
    )
    cluster = emulated_cluster(machine, record=True)
    for job, word in (
        (spec("1", 3), "no jobs of 3 nodes"),
        (spec("1", 5), "more than could take it"),
        (spec("1", walltime_s=101), "longer"),
        (spec("1", partition="none"), "no partition"),
        (spec("1", resources={"licence": 3}), "licence"),
        (spec("1", dependencies=(JobDependency(on="0"),)), "not there"),
    ):
        outcome = cluster.submit(job, 1)
        assert (outcome.result, word in outcome.reason) == ("refused", True), outcome
    assert cluster.submit(spec("1"), 1).result == "done"
    assert cluster.submit(spec("1"), 1).result == "refused"
    assert cluster.seq == 1


def test_wrong_changes_are_refused_and_change_nothing() -> None:
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


def test_a_clock_below_zero_and_ids_that_no_command_line_takes_are_refused() -> None:
    machine = Cluster.uniform(2)
    with pytest.raises(ConfigError, match="below 0"):
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


def test_nodes_are_free_and_ends_told_only_after_the_cleanup() -> None:
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


def test_refused_and_lost_actions_are_as_often_as_asked_for_and_what_is_unknown_is_done() -> None:
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
