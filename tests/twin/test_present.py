"""A simulation made of what a resource manager tells goes on as the cluster would."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Simulation, make_policy
from hpctwin.engine.operations.transfer import are_suspended, started_ms
from hpctwin.engine.state import layout
from hpctwin.model import MS_PER_S, Cluster, DependencyKind
from hpctwin.policies import ordering
from hpctwin.rms.records.records import JobRecord, JobSpec, NodeRecord, NodeReservation
from hpctwin.twin.what_if.conversion import id_key
from hpctwin.twin.what_if.present import CORRECTIONS_MS, present, remaining_end_ms
from tests import strategies
from tests.engine.test_preemption import preemptions
from tests.engine.test_suspension import suspensions
from tests.examples import each
from tests.twin.present_cases import EPOCH_S, node_name, records_of

ORDERINGS = {name: ordering(function, name=name) for name, function in strategies.ORDERS.items()}
"""Each is compiled once."""
UP = [NodeRecord(name=node_name(n)) for n in range(4)]
FCFS = make_policy("fcfs")


def waiting(job_id: str, nodes: int = 1, walltime_s: float = 100, **spec: object) -> JobRecord:
    return JobRecord(
        spec=JobSpec(id=job_id, submit_s=0, nodes=nodes, walltime_s=walltime_s, **spec)
    )


def running(job_id: str, names: list[str], start_s: float = 0, walltime_s: float = 100):
    job = waiting(job_id, len(names), walltime_s)
    return JobRecord(spec=job.spec, start_s=start_s, node_names=tuple(names))


def starts(jobs, nodes=UP, reservations=(), now_s=10.0, policy=FCFS):
    machine = Cluster.uniform(len(nodes))
    return present(machine, jobs, nodes, reservations, now_s, policy).starts()


def with_preemption(
    data: st.DataObject, cluster: Cluster, told_of: Callable[[Cluster], Any]
) -> Cluster:
    """The cluster, where jobs preempt others at once, and all that is known of it is in records."""
    told = data.draw(told_of(cluster)) | {"grace": 0, "requeue_after": 0, "checkpoint": None}
    for of in (*told.get("partitions", {}).values(), *told.get("qos", {}).values()):
        of.pop("grace")
    return Cluster.model_validate({**cluster.model_dump(exclude_unset=True), "preemption": told})


@given(data=st.data())
@each("shared", (False, True))
@each("preempts", (None, preemptions, suspensions))
def test_it_continues_exactly_like_an_uninterrupted_simulation(
    shared: bool, preempts: Callable[[Cluster], Any] | None, data: st.DataObject
) -> None:
    clusters = strategies.shared_clusters if shared else strategies.clusters
    cluster = data.draw(clusters(maintenance=False, outages=False))
    groups = tuple(group.model_copy(update={"speed": 1.0}) for group in cluster.nodes)
    cluster = cluster.model_copy(update={"nodes": groups})
    if preempts is not None:
        cluster = with_preemption(data, cluster, preempts)
    workloads = strategies.workloads
    if shared:
        workloads = partial(
            strategies.shared_workloads,
            several=data.draw(st.booleans()),
            owners=data.draw(st.booleans()),
        )
    workload = data.draw(workloads(cluster, cancellations=False))
    workload = workload.replace(runtime_ms=np.maximum(workload.runtime_ms, 1))
    if preempts is suspensions and shared:
        alone = np.where(workload.more_tasks.codes >= 0, 0.0, workload.chunks["exclusive"])
        workload = workload.replace(chunks={**workload.chunks, "exclusive": alone})
    # Conservative reservations and fair-share usage have a memory that records do not tell of.
    backfill = data.draw(st.sampled_from(["none", "first-fit", "easy"]))
    order = ORDERINGS[data.draw(st.sampled_from(sorted(ORDERINGS)))]
    places = ("first-fit", "best-fit", "spread") if shared else (None,)
    policy = make_policy(order, backfill, placement=data.draw(st.sampled_from(places)))
    whole = Simulation(workload, cluster, policy=policy, track_nodes=True)
    stop_s = data.draw(st.integers(0, 80))
    whole.advance(stop_s)
    # Jobs that depend on one not submitted yet are known to the engine, not to a resource manager.
    edges = workload.dependencies
    unsubmitted = whole.column("phase") == layout.UNSUBMITTED
    if unsubmitted[edges.on].any() or (len(edges) and (edges.delay_ms > 0).any()):
        return
    # That a job has started before it was preempted, records do not tell.
    if (whole.column("requeues") > 0).any() and (edges.kind == DependencyKind.AFTER).any():
        return
    # Nor that it has been suspended.
    if are_suspended(whole.state).any():
        return
    # Nor are jobs that their users submit when others have ended.
    if (edges.kind == DependencyKind.THINK).any():
        return
    # That a job will pass its walltime and fail, nobody knows ahead.
    fails = workload.runtime_ms > workload.walltime_ms
    if fails[edges.on[edges.kind == DependencyKind.AFTEROK]].any():
        return
    jobs, nodes, reservations, runtime_s = records_of(whole)
    if any(job.start_s is not None and not job.node_names for job in jobs):
        return
    now = present(cluster, jobs, nodes, reservations, EPOCH_S + stop_s, policy, runtime_s=runtime_s)
    whole = whole.fork(arrivals=False)
    whole.advance()
    ahead = now.fork()
    ahead.advance()
    expected = {
        str(i): (start, end)
        for i, start, end in zip(
            workload.job_id.tolist(),
            started_ms(whole.state).tolist(),
            whole.column("end").tolist(),
            strict=True,
        )
    }
    offset = round(EPOCH_S * MS_PER_S)
    for row, job_id in enumerate(now.ids):
        start = started_ms(ahead.state)[row]
        assert (start - offset if start >= 0 else -1) == expected[job_id][0]


def test_held_jobs_and_jobs_that_wait_for_an_unknown_one_do_not_start() -> None:
    unknown = {"on": "99", "kind": "afterok"}
    jobs = [waiting("1", held=True), waiting("2", dependencies=(unknown,)), waiting("3")]
    jobs += [waiting("4", dependencies=({"on": "1"},)), waiting("5", dependencies=({"on": "4"},))]
    assert starts(jobs) == ["3"]


def test_a_job_that_asks_for_a_later_start_does_not_start_before() -> None:
    jobs = [waiting("1", not_before_s=20.0)]
    assert starts(jobs, now_s=19.0) == []
    assert starts(jobs, now_s=20.0) == ["1"]


def test_down_nodes_cannot_be_used_and_a_drained_one_keeps_its_job_but_takes_no_other() -> None:
    nodes = [NodeRecord(name=node_name(n), state=s) for n, s in enumerate(["up", "down", "up"])]
    assert starts([waiting("1", 3)], nodes) == []
    assert starts([waiting("1", 2)], nodes) == ["1"]
    drained = [NodeRecord(name=node_name(0), state="drained"), *UP[1:3]]
    run = running("1", [node_name(0), node_name(1)])
    now = present(Cluster.uniform(3), [run, waiting("2", 3)], drained, (), 10.0, FCFS)
    ahead = now.fork()
    ahead.advance()
    assert ahead.column("start").tolist()[1] == -1
    now = present(Cluster.uniform(3), [run, waiting("2", 2)], drained, (), 10.0, FCFS)
    ahead = now.fork()
    ahead.advance()
    assert ahead.column("start").tolist()[1] == 100_000


def test_use_of_running_jobs_is_multiplied_by_the_factor_of_their_qos() -> None:
    share = {"by": "user", "half_life": "36500d", "factors": {"q": 0.25}}
    limit = {"account": "root", "used_minutes": {"nodes": 1}}
    cluster = Cluster.uniform(4, fairshare=share, limits=[limit])
    names = [node_name(0), node_name(1)]
    job = waiting("1", 2, user="ada", qos="q")
    job = JobRecord(spec=job.spec, start_s=0, node_names=tuple(names))
    state = present(cluster, [job, waiting("2", user="ben")], UP, (), 80.0, FCFS).fork().state
    used = state["usage"]["used"] / MS_PER_S
    assert used[-1] == pytest.approx(0.25 * 2 * 80)
    assert state["usage"]["nodes"][-1] == 0.25 * 2
    # In thousandths of a node.
    assert state["used"]["amount"].tolist() == [pytest.approx(1000 * 0.25 * 2 * 80 * MS_PER_S)]


def test_no_job_starts_that_would_run_into_a_reservation() -> None:
    reservation = NodeReservation(name="r", start_s=50, end_s=80, node_names=(node_name(0),))
    assert starts([waiting("1", 4)], reservations=(reservation,)) == []
    assert starts([waiting("1", 3)], reservations=(reservation,)) == ["1"]
    assert starts([waiting("1", 4, 40)], reservations=(reservation,)) == ["1"]
    assert starts([waiting("1", 4)], reservations=(reservation,), now_s=80.0) == ["1"]


def test_a_node_in_use_that_is_reserved_now_is_away_once_its_job_has_ended() -> None:
    reservation = NodeReservation(name="r", start_s=0, end_s=500, node_names=(node_name(0),))
    jobs = [running("1", [node_name(0)]), waiting("2", 4, 50), waiting("3", 3, 50)]
    simulation = present(
        Cluster.uniform(4), jobs, UP, (reservation,), 10.0, make_policy("fcfs+easy")
    ).fork()
    simulation.advance()
    start_s = dict(zip("123", (simulation.column("start") / MS_PER_S).tolist(), strict=True))
    assert (start_s["2"], start_s["3"]) == (500, 10)


@pytest.mark.parametrize(
    ("now_s", "end_s"),
    [
        (30, 60),
        (60, 120),
        (119, 120),
        (120, 360),
        (361, 960),
        (999, 1000),
        (1000, 1060),
        (1060, 1120),
    ],
)
def test_an_expected_end_that_has_passed_is_corrected_by_tsafrirs_steps_up_to_the_walltime(
    now_s: int, end_s: int
) -> None:
    end = remaining_end_ms(now_s * 1000, np.array([0]), np.array([60_000]), np.array([1_000_000]))
    assert end.tolist() == [end_s * 1000]
    assert (np.diff(CORRECTIONS_MS) > 0).all()


def test_ids_are_ordered_as_people_order_them() -> None:
    assert sorted(["10.pbs", "9.pbs", "9[2].pbs", "100", "20"], key=id_key) == [
        "9.pbs", "9[2].pbs", "10.pbs", "20", "100",
    ]  # fmt: skip
