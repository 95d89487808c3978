"""Simulations that jobs are given to one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, parse_policy
from hpctwin.errors import SimulationError, WorkloadError
from hpctwin.model import Dependencies, DependencyKind, NodeGroup
from hpctwin.simulation.running.incremental import OpenSimulation
from tests import strategies
from tests.engine.test_preemption import preemptions, with_checkpoints, with_preemption
from tests.engine.test_suspension import suspensions
from tests.examples import examples

POLICIES = (
    "fcfs+easy", "sjf+easy:2", "wfp+easy/sjf", "fcfs+none", "fcfs+first-fit", "fcfs+conservative",
    "nodes - wait/walltime+conservative", "fairshare+easy", "fcfs+easy@spread", "sjf+easy@contiguous",
)  # fmt: skip
SHARED = (
    "fcfs+easy", "sjf+easy:2", "fcfs+none", "fcfs+first-fit", "fcfs+conservative", "fairshare+easy",
    "fcfs+easy@spread", "wfp+conservative@round-robin", "fcfs+easy@fragmentation",
)  # fmt: skip
LISTED = ("fcfs+pushdown", "sjf+pushdown:parallel=any,adjacent=any,interval=3")
PREEMPTING = ("fcfs+easy", "sjf+conservative", "wfp+pack", "fcfs+slurm", "sjf+pushdown")
NOBODY = np.zeros(0, np.int64)


def opened(
    workload: Workload, cluster: Cluster, policy: str, *, knows: str = "oracle", spare: int = 0
) -> OpenSimulation:
    simulation = Simulation(workload, cluster, policy=parse_policy(policy))
    return OpenSimulation(
        simulation, None if knows == "oracle" else workload.walltime_ms, spare=spare
    )


def exact(workload: Workload) -> Workload:
    """The same jobs with walltimes that are their runtimes."""
    runtime = np.maximum(np.minimum(workload.runtime_ms, workload.walltime_ms), 1)
    return workload.replace(runtime_ms=runtime, walltime_ms=runtime)


def drawn(
    data: st.DataObject, *, outages: bool = True, **omitted: bool
) -> tuple[Cluster, Workload, str]:
    """A machine, jobs and a policy; nodes are shared or not, and jobs may preempt others."""
    told_of = data.draw(st.sampled_from((None, preemptions, suspensions)))
    if data.draw(st.booleans()):
        clusters = strategies.shared_clusters(outages=outages, cleanup=True)
        cluster = data.draw(clusters.flatmap(strategies.racked))
        if data.draw(st.booleans()):
            cluster = data.draw(strategies.stocked(cluster))
        what = {name: data.draw(st.booleans()) for name in ("several", "grouped")}
        jobs = data.draw(
            strategies.shared_workloads(cluster, dependencies=False, max_jobs=20, **what, **omitted)
        )
        if told_of is None:
            return cluster, jobs, data.draw(st.sampled_from(SHARED))
        cluster = with_preemption(data.draw, cluster, told_of)
        alone = np.where(jobs.more_tasks.codes >= 0, 0.0, jobs.chunks["exclusive"])
        jobs = jobs.replace(chunks={**jobs.chunks, "exclusive": alone})
        return cluster, with_checkpoints(data.draw, jobs), data.draw(st.sampled_from(PREEMPTING))
    cluster = data.draw(strategies.clusters(outages=outages, cleanup=True))
    workload = data.draw(strategies.workloads(cluster, dependencies=False, **omitted))
    if told_of is None:
        return cluster, workload, data.draw(st.sampled_from((*POLICIES, *LISTED)))
    cluster = with_preemption(data.draw, cluster, told_of)
    return cluster, with_checkpoints(data.draw, workload), data.draw(st.sampled_from(PREEMPTING))


@settings(max_examples=examples(100))
@given(data=st.data())
def test_jobs_submitted_by_calls_start_like_those_of_a_trace(
    data: st.DataObject,
) -> None:
    cluster, workload, policy = drawn(data)
    simulation = opened(workload, cluster, policy)
    for row, submit in enumerate(workload.submit_ms.tolist()):
        if data.draw(st.booleans()):  # looking ahead leaves no trace
            look = np.array([row])
            simulation.forecast(submit, look, look)
        else:
            simulation.advance_before(submit)
        simulation.arrive(row, submit)
    simulation.finish()
    alone = Simulation(workload, cluster, policy=parse_policy(policy)).run()
    assert simulation.result().jobs.equals(alone.jobs)
    assert simulation.result().lost.equals(alone.lost)
    if alone.placements is not None:
        assert simulation.result().placements.equals(alone.placements)


@settings(max_examples=examples(100))
@given(data=st.data())
def test_the_forecast_of_the_last_job_is_what_happens(data: st.DataObject) -> None:
    """Runtimes known, or walltimes exact, and nobody later: then the forecast is exact."""
    cluster, workload, policy = drawn(data, outages=False, cancellations=False)
    knows = data.draw(st.sampled_from(("oracle", "walltime")))
    if knows == "walltime":
        workload = exact(workload)
        cluster = cluster.model_copy(
            update={"nodes": tuple(g.model_copy(update={"speed": 1.0}) for g in cluster.nodes)}
        )
    simulation = opened(workload, cluster, policy, knows=knows)
    *earlier, last = range(len(workload))
    for row in earlier:
        simulation.arrive(row, int(workload.submit_ms[row]))
    if simulation.rejected_mask()[last]:
        return
    now = int(workload.submit_ms[last])
    start, end = simulation.forecast(now, np.array([last]), np.array([last]))[:, 0]
    simulation.arrive(last, now)
    simulation.finish()
    job = simulation.result().jobs.row(last, named=True)
    if job.get("preemptions"):
        return  # by jobs that waited, after it had started
    if job["start_s"] is None:
        assert start == -1
    else:
        assert (start, end) == (round(1000 * job["start_s"]), round(1000 * job["end_s"]))


@settings(max_examples=examples(60))
@given(data=st.data())
def test_a_limit_on_starts_only_hides_later_ones(data: st.DataObject) -> None:
    cluster, workload, policy = drawn(data)
    simulation = opened(workload, cluster, policy)
    for row, submit in enumerate(workload.submit_ms.tolist()):
        look = np.array([row])
        if not simulation.rejected_mask()[row]:
            whole = simulation.forecast(submit, look, look)
            limit = submit + data.draw(st.integers(0, 60_000))
            limited = simulation.forecast(submit, look, look, latest_ms=limit)
            early = 0 <= whole[0, 0] <= limit
            assert limited.tolist() == (whole.tolist() if early else [[-1], [-1]])
        simulation.arrive(row, submit)


@settings(max_examples=examples(60))
@given(data=st.data())
def test_earlier_forecasts_change_no_later_one(data: st.DataObject) -> None:
    """All forecasts run in the same arrays, where the earlier ones leave what they derived."""
    cluster, workload, policy = drawn(data)
    if workload.shares_nodes and cluster.preemption is None:
        policy = data.draw(st.sampled_from((policy, "fcfs+easy:3", "wfp+pack")))
    knows = data.draw(st.sampled_from(("oracle", "walltime")))
    often, once = (opened(workload, cluster, policy, knows=knows) for _ in range(2))
    asked = data.draw(st.integers(0, len(workload) - 1))
    for row, submit in enumerate(workload.submit_ms[: asked + 1].tolist()):
        if not often.rejected_mask()[row]:
            look = np.array([row])
            found = often.forecast(submit, look, look)
            if row == asked:
                assert found.tolist() == once.forecast(submit, look, look).tolist()
        often.arrive(row, submit)
        once.arrive(row, submit)


def narrow(**columns: object) -> Workload:
    """Jobs of one node."""
    size = len(columns["submit_s"])  # type: ignore[arg-type]
    return Workload.build(**{"nodes": [1] * size, **columns})  # type: ignore[arg-type]


def test_a_job_that_outlives_what_is_known_of_it_is_expected_to_run_to_its_walltime() -> None:
    workload = narrow(submit_s=[0, 50], runtime_s=[80, 10], walltime_s=[100, 10])
    simulation = opened(workload, Cluster.uniform(nodes=1), "fcfs+easy", knows="walltime")
    simulation.expect_runtime(0, 20_000)
    simulation.arrive(0, 0)
    rows = np.array([1])
    assert simulation.forecast(10_000, rows, rows, arrival_ms=10_000)[0, 0] == 20_000
    assert simulation.forecast(50_000, rows, rows)[0, 0] == 100_000


def test_reservations_of_an_earlier_forecast_are_forgotten() -> None:
    """Two reservations on a node must not become a list without an end in the next forecast."""
    length = [100, 50, 10, 10, 10, 200]
    workload = narrow(
        submit_s=[0, 0, 1, 1, 2, 2], runtime_s=length, walltime_s=length,
        chunks={"tasks": [1, 1, 2, 2, 1, 1], "cores_per_task": [4, 2, 4, 4, 2, 2]},
    )  # fmt: skip
    cluster = Cluster(name="c", nodes=(NodeGroup(name="n", count=2, cores=4),))
    simulation = opened(workload, cluster, "fcfs+easy:2")
    for row in range(4):
        simulation.arrive(row, int(workload.submit_ms[row]))
    for row, start_ms in ((5, 120_000), (4, 2000), (5, 120_000)):
        rows = np.array([row])
        assert simulation.forecast(2000, rows, rows)[0, 0] == start_ms


def test_the_next_job_starts_when_the_one_before_it_is_withdrawn() -> None:
    simulation = opened(
        narrow(submit_s=[0, 1, 2], runtime_s=[100, 100, 10], nodes=[1, 2, 1]),
        Cluster.uniform(nodes=2),
        "fcfs+none",
    )
    for row in range(3):
        simulation.arrive(row, 1000 * row)
    simulation.advance_before(7000)
    simulation.withdraw(1, 7000)
    simulation.finish()
    jobs = simulation.result().jobs
    assert jobs["start_s"].to_list() == [0, None, 7]
    assert jobs["state"].to_list() == ["completed", "pending", "completed"]


def test_a_withdrawn_job_can_come_back_and_be_cancelled_then() -> None:
    workload = narrow(submit_s=[0, 0], runtime_s=[100, 100], cancel_s=[-1, 150])
    simulation = opened(workload, Cluster.uniform(nodes=1), "fcfs+easy")
    simulation.arrive(0, 0)
    simulation.arrive(1, 0)
    simulation.advance_before(10_000)
    simulation.withdraw(1, 10_000)
    simulation.advance_before(20_000)
    assert simulation.queued == 0
    simulation.arrive(1, 20_000)
    simulation.finish()
    job = simulation.result().jobs.row(1, named=True)
    assert (job["start_s"], job["end_s"], job["state"]) == (100, 150, "cancelled")


def test_jobs_announced_to_a_forecast_delay_others_and_are_forgotten() -> None:
    workload = narrow(submit_s=[0, 0, 10], runtime_s=[50, 30, 5], nodes=[1, 2, 1])
    simulation = opened(workload, Cluster.uniform(nodes=2), "sjf+none", spare=3)
    simulation.arrive(0, 0)
    later = simulation.tell(np.array([0, 0]), np.array([12_000, 13_000]))
    rows = np.array([2])
    both = np.concatenate([rows, later])
    found = simulation.forecast(10_000, both, both)
    assert found[0].tolist() == [10_000, 15_000, 50_000]
    assert simulation.forecast(10_000, rows, rows)[0, 0] == 10_000
    assert simulation.queued == 0


def test_the_past_cannot_be_changed_and_dependent_jobs_are_rejected() -> None:
    workload = narrow(submit_s=[0, 5], runtime_s=[10, 10])
    simulation = opened(workload, Cluster.uniform(nodes=1), "fcfs+easy")
    simulation.arrive(0, 0)
    simulation.advance_before(20_000)
    with pytest.raises(SimulationError, match="job 2 is submitted at 5 s"):
        simulation.arrive(1, 5000)
    depends = Dependencies.of([(1, 0, DependencyKind.AFTEROK, 0)])
    with pytest.raises(WorkloadError, match="has jobs with dependencies, which cannot be added"):
        opened(workload.replace(dependencies=depends), Cluster.uniform(nodes=1), "fcfs+easy")


def test_an_ordering_that_fails_in_a_forecast_says_so() -> None:
    workload = narrow(submit_s=[0, 10], runtime_s=[100, 10])
    simulation = opened(workload, Cluster.uniform(nodes=1), "sqrt(50 - wait)+easy")
    simulation.arrive(0, 0)
    rows = np.array([1])
    with pytest.raises(SimulationError, match="not a number"):
        simulation.forecast(10_000, rows, rows)
