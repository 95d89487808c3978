"""What a user writes of preemption, what is refused, and what is told of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpctwin import Cluster, Simulation, Workload, simulate, simulate_stream
from hpctwin.errors import ConfigError, SimulationError, WorkloadError
from hpctwin.model import Category
from tests.by_hand import cluster_of, labels

TWO = [{"name": "low", "default": True}, {"name": "high"}]
OF_TIERS = {"partitions": {"high": {"tier": 2}}}


def cluster(preemption: dict[str, Any] | None = None, **more: Any) -> Cluster:
    content = {
        "nodes": [{"name": "n", "count": 4, "cores": 8}],
        "partitions": TWO,
        "preemption": OF_TIERS if preemption is None else preemption,
        **more,
    }
    return Cluster.checked(content, "cluster.yaml")


def workload(nodes: int = 2, **more: Any) -> Workload:
    return Workload.build(
        submit_s=[0, 0, 5],
        runtime_s=[20, 30, 10],
        walltime_s=[20, 30, 10],
        nodes=[nodes] * 3,
        partition=Category.of(["low", "low", "high"]),
        **more,
    )


def test_the_result_reports_preempted_jobs_and_the_lost_work():
    result = simulate(workload(), cluster())
    assert result.jobs.select("preemptions", "preempted_s").rows() == [(1, 5.0), (0, 0.0), (0, 0.0)]
    assert result.lost.rows() == [(1, 0.0, 5.0, 2, 0.0)]
    figures = result.summary()
    assert (figures["preemptions"], figures["preempted_jobs"]) == (1, 1)
    assert figures["preempted_node_s"] == figures["wasted_node_s"] == 10


def test_checkpointed_work_is_not_lost():
    figures = simulate(workload(checkpoint_s=[3, 3, 3]), cluster()).summary()
    assert figures["preempted_node_s"] == figures["wasted_node_s"] == 4


def test_without_preemption_nothing_is_reported_about_it():
    plain = Cluster.checked({"nodes": [{"name": "n", "count": 4}]}, "plain")
    result = simulate(workload(checkpoint_s=[3, 3, 3]), plain)
    assert not {"preemptions", "preempted_s"} & {*result.jobs.columns}
    assert "preemptions" not in result.summary()


@pytest.mark.parametrize(
    ("preemption", "says"),
    [
        ({}, "either 'partitions' or 'qos'"),
        ({"partitions": {"hihg": {"tier": 2}}}, "Did you mean 'high'?"),
        ({"partitions": {"urgent": {"tier": 2}}}, "unknown partition 'urgent'; known: low, high."),
        ({"partitions": {"low": {"tier": 1}}}, "all partitions have tier 1"),
        ({**OF_TIERS, "mode": "gang"}, "is not supported; use suspend"),
        ({"qos": {"a": {"preempts": ["b"]}, "b": {"preempts": ["a"]}}}, "a preempts b preempts a"),
        ({"qos": {"a": {"preempts": ["b"]}}}, "QOS 'a' preempts 'b', which is listed neither"),
        ({"qos": {"a": {}}}, "no QOS preempts another"),
        ({**OF_TIERS, "grace": -1}, "grace"),
    ],
)
def test_meaningless_input_is_reported_in_one_line(preemption, says):
    with pytest.raises(ConfigError) as told:
        cluster(preemption)
    assert says in str(told.value)
    assert len(str(told.value).splitlines()) == 1


def test_off_is_read_though_yaml_takes_it_for_no():
    found = cluster({**OF_TIERS, "mode": False}).preemption
    assert found is not None
    assert found.mode == "off"


def test_a_scheduler_outside_that_knows_no_preemption_is_rejected():
    with pytest.raises(
        ConfigError, match=r"'outside' does not support preemption .*; use none, first-fit, easy"
    ):
        Simulation(workload(), cluster(), "fcfs", "outside")


def test_checkpoints_are_rejected_with_failures_where_they_are_not_simulated(tmp_path):
    failing = Cluster.checked(
        {
            "nodes": [{"name": "n", "count": 4}],
            "failures": {"outages": [{"node": 0, "start": 1, "duration": 1}]},
        },
        "failing",
    )
    with pytest.raises(
        ConfigError, match="backfill 'outside' does not support preemption or checkpoints"
    ):
        Simulation(workload(checkpoint_s=[3, 3, 3]), failing, "fcfs", "outside")
    Simulation(workload(), failing, "fcfs", "outside")
    late = workload(checkpoint_s=[3, 3, 3]).replace(submit_ms=10_000 + np.arange(3) * 1000)
    late = late.replace(job_id=late.job_id + 3)
    with pytest.raises(WorkloadError, match="have no column checkpoint_s; add it"):
        simulate_stream([workload(), late], failing, out=tmp_path / "out", batch=3)


def test_checkpoints_go_through_tables_and_parts_of_a_workload():
    made = workload(checkpoint_s=[3, -1, 0])
    again = Workload.from_frame(made.to_frame())
    assert again.checkpoint_ms is not None
    assert again.checkpoint_ms.tolist() == [3000, -1, 0]
    part = made[1:]
    assert part.checkpoint_ms is not None
    assert part.checkpoint_ms.tolist() == [-1, 0]


SUSPEND = {**OF_TIERS, "mode": "suspend"}


def test_the_result_reports_which_jobs_were_suspended_for_how_long_and_where_each_ran():
    result = simulate(workload(), cluster(SUSPEND), track_nodes=True)
    assert result.jobs.select("start_s", "end_s", "suspended_s", "preempted_s").rows() == [
        (0.0, 30.0, 10.0, 0.0),
        (0.0, 30.0, 0.0, 0.0),
        (5.0, 15.0, 0.0, 0.0),
    ]
    assert result.lost.is_empty()
    assert result.stretches.rows() == [
        (1, 0.0, 5.0, 2),
        (1, 15.0, 30.0, 2),
        (2, 0.0, 30.0, 2),
        (3, 5.0, 15.0, 2),
    ]
    assert result.node_map.sort("job_id", "start_s").rows() == [
        (1, 0.0, 5.0, 0, 2),
        (1, 15.0, 30.0, 0, 2),
        (2, 0.0, 30.0, 2, 2),
        (3, 5.0, 15.0, 0, 2),
    ]
    figures = result.summary()
    assert (figures["suspensions"], figures["suspended_s"]) == (1, 10)
    # Four nodes are used all the time, and none twice.
    assert figures["held_node_s"] == 120
    assert figures["utilization"] == 1
    assert figures["wasted_node_s"] == figures["preempted_node_s"] == 0


def test_the_suspended_time_is_that_of_all_jobs_also_if_one_is_cancelled_meanwhile(tmp_path):
    jobs = workload(cancel_s=[8, -1, -1])
    result = simulate(jobs, cluster(SUSPEND))
    assert result.jobs["suspended_s"].to_list() == [3, 0, 0]
    assert result.summary()["suspended_s"] == 3
    assert simulate_stream(jobs, cluster(SUSPEND), out=tmp_path).summary()["suspended_s"] == 3


def test_the_result_reports_suspended_jobs_that_lost_a_node():
    failures = {"outages": [{"node": 0, "start": 10, "duration": 1}]}
    of = cluster(SUSPEND, failures=failures)
    result = simulate(workload(), of, track_nodes=True)
    # Jobs 1 and 3 lose node 0. Job 3 then suspends job 2 on node 2.
    assert result.jobs.select("start_s", "end_s", "suspended_s", "preemptions").rows() == [
        (20.0, 40.0, 5.0, 1),
        (0.0, 40.0, 10.0, 1),
        (10.0, 20.0, 0.0, 0),
    ]
    assert result.lost.sort("job_id").rows() == [(1, 0.0, 10.0, 2, 0.0), (3, 5.0, 10.0, 2, 0.0)]
    assert result.stretches.rows() == [
        (1, 0.0, 5.0, 2),
        (1, 10.0, 10.0, 2),
        (1, 20.0, 40.0, 2),
        (2, 0.0, 10.0, 2),
        (2, 20.0, 40.0, 2),
        (3, 5.0, 10.0, 2),
        (3, 10.0, 20.0, 2),
    ]
    assert result.node_map.sort("job_id", "start_s").rows() == [
        (1, 0.0, 5.0, 0, 2),
        (1, 20.0, 40.0, 0, 2),
        (2, 0.0, 10.0, 2, 2),
        (2, 20.0, 40.0, 2, 2),
        (3, 5.0, 10.0, 0, 2),
        (3, 10.0, 20.0, 1, 2),
    ]
    figures = result.summary()
    assert (figures["suspensions"], figures["suspended_s"]) == (2, 15)
    assert figures["held_node_s"] == 140
    assert figures["wasted_node_s"] == 20
    # Of its first five seconds, job 1 keeps three.
    kept = simulate(workload(checkpoint_s=[3, 3, 3]), of).summary()
    assert kept["wasted_node_s"] == 2 * (2 + 2)


def test_shared_nodes_report_suspended_jobs_that_lost_a_node():
    failures = {"outages": [{"node": 0, "start": 10, "duration": 2}]}
    nodes = [{"name": "n", "count": 2, "cores": 8, "memory_gb": 16}]
    asked = {"tasks": [1, 1, 1], "cores_per_task": [8, 8, 8], "memory_gb_per_task": [4, 4, 8]}
    jobs = workload(1, chunks=asked)
    result = simulate(jobs, cluster(SUSPEND, nodes=nodes, failures=failures))
    assert result.placements is not None
    # Job 3 suspends job 1 on node 0, then job 2 on node 1.
    told = result.placements.sort("job_id", "start_s")
    assert told.select("job_id", "node", "start_s", "end_s", "cores", "memory_gb").rows() == [
        (1, 0, 0.0, 5.0, 8.0, 4.0),
        (1, 0, 5.0, 10.0, 0.0, 4.0),
        (1, 0, 12.0, 32.0, 8.0, 4.0),
        (2, 1, 0.0, 10.0, 8.0, 4.0),
        (2, 1, 10.0, 20.0, 0.0, 4.0),
        (2, 1, 20.0, 40.0, 8.0, 4.0),
        (3, 0, 5.0, 10.0, 8.0, 8.0),
        (3, 1, 10.0, 20.0, 8.0, 8.0),
    ]
    figures = result.summary()
    assert figures["held_core_s"] == 8 * (5 + 20 + 10 + 20 + 5 + 10)
    assert figures["lost_core_s"] == 8 * (5 + 5)


def test_a_job_that_is_suspended_still_says_when_it_started():
    simulation = Simulation(workload(), cluster(SUSPEND))
    simulation.advance(10)
    assert simulation.result().jobs.select("start_s", "suspended_s").rows()[0] == (0.0, 5.0)


def test_a_simulation_with_suspended_jobs_is_saved_and_continues(tmp_path):
    simulation = Simulation(workload(), cluster(SUSPEND))
    simulation.advance(10)
    simulation.save(tmp_path / "half")
    again = Simulation.load(tmp_path / "half").run()
    assert again.jobs.equals(simulate(workload(), cluster(SUSPEND)).jobs)


def test_options_incompatible_with_suspended_jobs_are_rejected():
    asked = {"tasks": [1, 1, 1], "cores_per_task": [1, 1, 1], "exclusive": [1, 0, 0]}
    several = workload(1, chunks=asked, more_tasks=Category.of(["1:cores=1", None, None]))
    with pytest.raises(ConfigError, match="exclusive jobs with tasks of several kinds"):
        Simulation(several, cluster(SUSPEND))


def test_endless_preemption_is_reported_instead_of_an_end() -> None:
    # Each of the two is expected to end soon, so only the other one has to go; neither does before it is
    # its turn again.
    cluster = cluster_of(
        nodes=[{"name": "n", "count": 2}],
        qos={"high": 2, "low": 1},
        preemption={
            "qos": {"high": {"preempts": ["low"]}}, "grace": 5, "exempt": 1, "requeue_after": 1,
            "youngest_first": True,
        },
    )  # fmt: skip
    workload = Workload.build(
        submit_s=[0, 0, 1], runtime_s=[60, 60, 15], walltime_s=[90, 90, 15], nodes=[1, 1, 2],
        qos=labels("low", "low", "high"),
    )  # fmt: skip
    with pytest.raises(
        SimulationError, match=r"job \d was interrupted 1\d\d,\d{3} times until .* would never end"
    ):
        Simulation(workload, cluster, "fcfs+easy", expected_s=[1, 2, 10]).run()
    # What jobs say themselves is enough for all to end.
    assert Simulation(workload, cluster, "fcfs+easy").run().jobs["end_s"].min() > 0


def test_shared_nodes_report_which_job_had_cores_and_memory_when():
    of = cluster(SUSPEND, nodes=[{"name": "n", "count": 1, "cores": 8, "memory_gb": 16}])
    asked = {"tasks": [1, 1, 1], "cores_per_task": [4, 4, 8], "memory_gb_per_task": [4, 4, 8]}
    result = simulate(workload(1, chunks=asked), of)
    assert result.jobs.select("start_s", "end_s", "suspended_s").rows() == [
        (0.0, 30.0, 10.0),
        (0.0, 40.0, 10.0),
        (5.0, 15.0, 0.0),
    ]
    assert result.placements is not None
    told = result.placements.sort("job_id", "start_s")
    assert told.select("job_id", "start_s", "end_s", "cores", "memory_gb").rows() == [
        (1, 0.0, 5.0, 4.0, 4.0),
        (1, 5.0, 15.0, 0.0, 4.0),
        (1, 15.0, 30.0, 4.0, 4.0),
        (2, 0.0, 5.0, 4.0, 4.0),
        (2, 5.0, 15.0, 0.0, 4.0),
        (2, 15.0, 40.0, 4.0, 4.0),
        (3, 5.0, 15.0, 8.0, 8.0),
    ]
    figures = result.summary()
    # Four cores for 20 s, four for 30 s, and all for 10 s.
    assert figures["held_core_s"] == 280
    assert figures["utilization"] == 280 / (8 * 40)
    assert (figures["suspensions"], figures["suspended_s"]) == (2, 20)
    assert result.series["used_cores"].max() == 8


def test_a_currently_suspended_job_has_no_cores_in_the_placements():
    of = cluster(SUSPEND, nodes=[{"name": "n", "count": 1, "cores": 8}])
    asked = {"tasks": [1, 1, 1], "cores_per_task": [4, 4, 8]}
    simulation = Simulation(workload(1, chunks=asked), of)
    simulation.advance(7)
    told = simulation.result().placements
    assert told is not None
    now = told.filter(told["end_s"].is_null()).sort("job_id")
    assert now.select("job_id", "start_s", "cores").rows() == [
        (1, 5.0, 0.0),
        (2, 5.0, 0.0),
        (3, 5.0, 8.0),
    ]
