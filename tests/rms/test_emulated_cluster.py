"""The emulated cluster keeps its books, whatever happens to it."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hpctwin import Simulation, parse_policy
from hpctwin.generate import generate
from hpctwin.model import Cluster, DependencyKind
from hpctwin.rms.emulated import EmulatedCluster, Faults
from hpctwin.rms.records.events import Event, event_json, parse_event
from hpctwin.rms.records.records import JobDependency, NodeReservation, Snapshot
from hpctwin.twin.core.mirror import Mirror
from hpctwin.twin.emulated import emulated_cluster
from tests import strategies
from tests.examples import each, examples
from tests.rms.emulated_cases import EPOCH_S, run_out, spec, started

ENDS = {"exit", "walltime", "cancelled", "node_failure", "deleted"}


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


@settings(max_examples=examples(150))
@given(data=st.data())
@each("shared", (False, True))
def test_alone_it_starts_any_jobs_on_any_cluster_when_a_simulation_does(shared, data) -> None:
    # Past maintenance still sorts nodes for the simulation, and so who is hit by an outage.
    maintenance = data.draw(st.booleans())
    clusters = strategies.shared_clusters if shared else strategies.clusters
    workloads = strategies.workloads
    if shared:
        workloads = partial(strategies.shared_workloads, several=data.draw(st.booleans()))
    machine = data.draw(clusters(maintenance=maintenance, outages=not maintenance))
    jobs = data.draw(workloads(machine))
    # The emulated cluster submits a job with a think time as any other: it knows no users who think.
    assume(not (jobs.dependencies.kind == DependencyKind.THINK).any())
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
    machine = data.draw(strategies.clusters(maintenance=True, cleanup=True))
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


@settings(max_examples=examples(60))
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


@settings(max_examples=examples(60))
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


@settings(max_examples=examples(30))
@given(st.data())
def test_a_bus_that_duplicates_reorders_and_delays_ends_in_the_same_state(data) -> None:
    wrong = Faults(
        duplicated=0.3, reordered=0.3, late=0.2, late_s=20, seed=data.draw(st.integers(0, 9))
    )
    cluster, first, events = live(data, wrong)
    run_out(cluster)
    # What began anew may tell of it only when the next job ends.
    if any(event.run != "1" for event in events):
        return
    snapshot = cluster.snapshot()
    mirror = Mirror(first)
    for event in events:
        assert mirror.take(event)[0] in ("applied", "early", "duplicate")
    assert mirror.missing is None
    assert mirror.difference(snapshot) == []


@settings(max_examples=examples(30))
@given(st.data())
def test_the_same_seed_gives_the_same_events(data) -> None:
    machine = data.draw(strategies.clusters(cleanup=True))
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
