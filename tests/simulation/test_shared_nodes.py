"""Machines whose nodes are shared: what holds whatever the workload, and what a user sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload
from hpctwin.errors import ConfigError, WorkloadError
from hpctwin.formats import read_workload, write_workload
from tests import strategies
from tests.examples import each, examples
from tests.reference import Pass, simulate_reference

BACKFILLS = (
    "none", "first-fit", "easy:2", "conservative", "pack:patience=20s",
    "slurm:bf_interval=2s,bf_resolution=2s",
)  # fmt: skip
SWITCH = {"time": 1, "power_w": 1}
SLEEPS = {
    "modes": {"on": {"power_w": 9}},
    "sleep": [{"power_w": 1, "switch_off": SWITCH, "switch_on": SWITCH}],
}
AMOUNTS = ("cores", "memory_gb", "gpus")
NO_SURPRISES: dict[str, Any] = {"outages": False}


def amounts(cluster: Cluster) -> dict[str, list[float]]:
    """What each node has; none of what only other groups state."""
    return {
        name: [getattr(g, name) or 0.0 for g in cluster.nodes for _ in range(g.count)]
        for name in AMOUNTS
        if any(getattr(g, name) is not None for g in cluster.nodes)
    }


@settings(max_examples=examples(25))
@given(data=st.data())
@each("backfill", BACKFILLS)
def test_no_node_ever_gives_more_than_it_has(backfill: str, data: st.DataObject) -> None:
    cluster = data.draw(strategies.shared_clusters())
    several = data.draw(st.booleans())
    workload = data.draw(strategies.shared_workloads(cluster, max_jobs=20, several=several))
    placement = data.draw(st.sampled_from(("first-fit", "best-fit", "spread")))
    result = Simulation(workload, cluster, "fcfs", backfill, placement=placement).run()
    placed = result.placements
    assert placed is not None
    row_of = {job: row for row, job in enumerate(workload.job_id.tolist())}
    for time in placed["start_s"].unique():
        now = placed.filter(pl.col("start_s") <= time, pl.col("end_s") > time)
        for name, whole in amounts(cluster).items():
            for node, held in now.group_by("node").agg(pl.col(name).sum()).rows():
                assert held <= whole[node] + 1e-9
        for node, jobs in now.group_by("node").agg("job_id").rows():
            alone = [
                workload.chunks["exclusive"][row_of[job]]
                or not workload.chunks["tasks"][row_of[job]]
                for job in jobs
            ]
            assert len(jobs) == 1 or not any(alone), (node, jobs)


@settings(max_examples=examples(25))
@given(data=st.data())
@each("backfill", BACKFILLS)
def test_a_job_gets_all_its_tasks_on_as_many_nodes_as_it_asks(
    backfill: str, data: st.DataObject
) -> None:
    cluster = data.draw(strategies.shared_clusters(outages=False))
    workload = data.draw(strategies.shared_workloads(cluster, max_jobs=12))
    placed = Simulation(workload, cluster, "fcfs", backfill).run().placements
    assert placed is not None
    asked = workload.chunks
    for job, nodes, cores in placed.group_by("job_id").agg(pl.len(), "cores").rows():
        row = workload.job_id.tolist().index(job)
        assert nodes >= workload.nodes[row]
        if asked["tasks"][row] and not asked["exclusive"][row]:
            each_task = asked["cores_per_task"][row]
            assert sum(cores) == asked["tasks"][row] * each_task
            if most := asked["tasks_per_node"][row]:
                assert max(cores) <= most * each_task


@settings(max_examples=examples(40))
@given(data=st.data())
@each("backfill", ("easy", "conservative"))
def test_no_start_delays_a_job_that_is_promised_nodes(backfill: str, data: st.DataObject) -> None:
    """Of the reference, which the engine equals."""
    cluster = data.draw(strategies.shared_clusters(partitions=False, **NO_SURPRISES))
    workload = data.draw(strategies.shared_workloads(cluster, max_jobs=12, dependencies=False))
    passes: list[Pass] = []
    jobs = simulate_reference(workload, cluster, backfill=backfill, log=passes)
    first: dict[int, int] = {}
    for one in passes:
        for row, start in one.reservations:
            first.setdefault(row, start)
    for row, start in first.items():
        assert jobs[row].start_ms <= start


@settings(max_examples=examples(25))
@given(data=st.data(), cut=st.integers(1, 5))
@each("backfill", BACKFILLS)
def test_equal_nodes_differ_only_by_their_numbers(
    backfill: str, data: st.DataObject, cut: int
) -> None:
    group = {"cores": 8, "memory_gb": 32, "gpus": 2}
    whole = Cluster.model_validate({"nodes": [{"name": "a", "count": 6, **group}]})
    parts = [{"name": "a", "count": cut, **group}, {"name": "b", "count": 6 - cut, **group}]
    divided = Cluster.model_validate({"nodes": parts})
    workload = data.draw(strategies.shared_workloads(whole, max_jobs=20, per_node=False))
    placement = data.draw(st.sampled_from(("first-fit", "best-fit", "spread")))
    runs = [
        Simulation(workload, cluster, "fcfs", backfill, placement=placement).run()
        for cluster in (whole, divided)
    ]
    assert runs[0].jobs.equals(runs[1].jobs)


@settings(max_examples=examples(25))
@given(workload=strategies.simple_workloads())
@each("backfill", ("none", "first-fit"))
def test_whole_node_jobs_start_on_shared_nodes_when_they_do_on_whole_ones(
    backfill: str, workload: Workload
) -> None:
    cluster = Cluster.model_validate({"nodes": [{"name": "a", "count": 8, "cores": 4}]})
    before = Simulation(workload, cluster, "fcfs", backfill).run().jobs
    more = workload.to_frame().with_columns(tasks=pl.lit(0))
    last = more[-1].with_columns(
        job_id=pl.lit(10**6, pl.Int64), nodes=pl.lit(1, pl.Int64), tasks=pl.lit(99)
    )
    shared = Simulation(Workload.from_frame(pl.concat([more, last])), cluster, "fcfs", backfill)
    after = shared.run().jobs
    assert after["state"][-1] == "rejected"
    assert after[:-1].select("start_s", "end_s").equals(before.select("start_s", "end_s"))


@settings(max_examples=examples(20))
@given(data=st.data(), stop=st.integers(0, 60))
@each("backfill", BACKFILLS)
def test_saved_or_forked_half_way_it_continues_unchanged(
    tmp_path_factory: pytest.TempPathFactory, backfill: str, data: st.DataObject, stop: int
) -> None:
    cluster = data.draw(strategies.shared_clusters())
    several = data.draw(st.booleans())
    workload = data.draw(strategies.shared_workloads(cluster, max_jobs=15, several=several))
    straight = Simulation(workload, cluster, "fcfs", backfill).run()
    halved = Simulation(workload, cluster, "fcfs", backfill)
    halved.advance(until_s=stop)
    path = tmp_path_factory.mktemp("saved") / "half"
    halved.save(path)
    for other in (Simulation.load(path), halved.fork(), halved):
        found = other.run()
        assert found.jobs.equals(straight.jobs)
        assert found.placements is not None
        assert straight.placements is not None
        assert found.placements.equals(straight.placements)


@pytest.mark.parametrize("backfill", ["easy", "easy:2", "conservative"])
def test_several_that_pass_take_nothing_together_of_what_is_promised(backfill: str) -> None:
    """The first runs till 10 s; the second is promised 6 of 8 cores then: 2 are left to who runs longer."""
    workload = Workload.build(
        submit_s=[0, 1, 2, 2, 2],
        runtime_s=[10, 10, 100, 100, 5],
        nodes=[1] * 5,
        chunks={"tasks": [1] * 5, "cores_per_task": [3, 6, 2, 2, 1]},
    )
    cluster = Cluster.model_validate({"nodes": [{"name": "a", "count": 1, "cores": 8}]})
    jobs = Simulation(workload, cluster, "fcfs", backfill).run().jobs
    assert jobs["start_s"].to_list() == [0, 10, 2, 20, 2]


TABLE = """submit_s,runtime_s,walltime_s,nodes,tasks,cores_per_task,gpus_per_task,exclusive
0,100,100,,3,4,,
0,50,60,1,1,8,,true
10,20,30,2,,,,
10,20,30,,2,1,0.5,false
"""


def test_slurm_reserves_whole_nodes_for_jobs_that_start_later() -> None:
    """Four cores are in use for 2 min, then six are kept: two for 10 min would fit beside both."""
    cluster = Cluster.model_validate({"nodes": [{"name": "a", "count": 1, "cores": 8}]})
    walltime_s = [120, 300, 600, 60]
    workload = Workload.build(
        submit_s=[0] * 4,
        runtime_s=walltime_s,
        walltime_s=walltime_s,
        nodes=[1] * 4,
        chunks={"tasks": [1] * 4, "cores_per_task": [4, 6, 2, 2]},
    )
    cycles = "slurm:bf_interval=1s,bf_resolution=1s"
    began = {
        backfill: Simulation(workload, cluster, "fcfs", backfill).run().jobs["start_s"].to_list()
        for backfill in ("easy", "conservative", cycles)
    }
    assert began["easy"] == began["conservative"] == [0, 120, 0, 0]
    assert began[cycles] == [0, 120, 120, 0]


def test_a_table_of_tasks_is_read_simulated_and_written_again(tmp_path: Path) -> None:
    source = tmp_path / "jobs.csv"
    source.write_text(TABLE)
    workload = read_workload(source)
    assert workload.nodes.tolist() == [1, 1, 2, 1]
    assert workload.chunks["cores_per_task"].tolist() == [4, 8, 0, 1]
    for name in ("again.csv", "again.parquet"):
        write_workload(workload, tmp_path / name)
        again = read_workload(tmp_path / name)
        assert all(np.array_equal(again.chunks[c], v) for c, v in workload.chunks.items())
    cluster = Cluster.model_validate({"nodes": [{"name": "a", "count": 3, "cores": 8, "gpus": 1}]})
    result = Simulation(workload, cluster, "fcfs", "easy").run()
    assert result.placements is not None
    assert result.placements.rows() == [
        (1, 0, 0.0, 100.0, 8.0, 0.0, 0.0),
        (1, 1, 0.0, 100.0, 4.0, 0.0, 0.0),
        (2, 2, 0.0, 50.0, 8.0, None, 1.0),
        (4, 1, 10.0, 30.0, 2.0, 0.0, 1.0),
        (3, 0, 100.0, 120.0, 8.0, None, 1.0),
        (3, 1, 100.0, 120.0, 8.0, None, 1.0),
    ]
    figures = result.summary()
    held = (12 * 100 + 8 * 50 + 16 * 20 + 2 * 20) / (24 * 120)
    assert figures["utilization"] == pytest.approx(held)
    assert figures["utilization_gpus"] == pytest.approx((50 + 20 + 40) / (3 * 120))
    assert (figures["nodes"], figures["cores"]) == (3, 24)
    assert result.series["used_cores"].max() == 22


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"tasks": [-1]}, "tasks is -1"),
        ({"tasks": [1.5]}, "tasks is 1.5; it must be a whole number"),
        ({"tasks": [1], "cores_per_task": [0]}, "its tasks request no cores, memory or GPUs"),
        ({"tasks": [1], "exclusive": [2]}, "exclusive is 2; it must be 0 or 1"),
        ({"tasks": [1], "shared_with": [3]}, "shared_with is 3; it must be 0 .anyone., 1 .user."),
        ({"tasks": [1], "spread_job": [2]}, "spread_job is 2; it must be 0 or 1"),
        ({"taks": [1]}, "'taks' of tasks is none of tasks, cores_per_task"),
        ({"tasks": [1], "gpus_per_task": [float("inf")]}, "gpus_per_task is inf"),
    ],
)
def test_an_impossible_request_of_a_job_is_reported(
    asked: dict[str, list[float]], why: str
) -> None:
    with pytest.raises(WorkloadError, match=why):
        Workload.build(submit_s=[0], runtime_s=[1], nodes=[1], chunks=asked)


@pytest.mark.parametrize(
    ("group", "policy", "why"),
    [
        ({}, "fcfs+easy", "cluster 'cluster': no node group has 'cores'"),
        ({"cores": 8}, "fcfs+outside", "'outside' plans exclusive nodes and .* jobs with tasks"),
        ({"cores": 8, **SLEEPS}, "fcfs+none~spars-auto:5", "needs exclusive nodes"),
    ],
)
def test_options_incompatible_with_shared_nodes_are_rejected_by_name(
    group: dict[str, Any], policy: str, why: str
) -> None:
    cluster = Cluster.model_validate({"nodes": [{"name": "a", "count": 2, **group}]})
    workload = Workload.build(submit_s=[0], runtime_s=[1], nodes=[1], chunks={"tasks": [2]})
    with pytest.raises(ConfigError, match=why):
        Simulation(workload, cluster, policy)


def test_options_for_whole_nodes_are_rejected_on_shared_nodes() -> None:
    cluster = Cluster.model_validate({"nodes": [{"name": "a", "count": 2, "cores": 8}]})
    workload = Workload.build(submit_s=[0], runtime_s=[1], nodes=[1], chunks={"tasks": [2]})
    with pytest.raises(ConfigError, match="backfill 'outside' plans exclusive nodes"):
        Simulation(workload, cluster, "fcfs+easy").fork("fcfs+outside")
