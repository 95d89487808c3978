"""What is held of shared nodes over time, and what is free and of no use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Workload, simulate
from hpctwin.errors import ConfigError
from hpctwin.model import Category
from tests import strategies
from tests.examples import examples

# Two nodes of 8 cores and 4 GPUs.
MACHINE = Cluster.model_validate({"nodes": [{"name": "a", "count": 2, "cores": 8, "gpus": 4}]})


def asking(**chunks: list[float]) -> Workload:
    size = len(chunks["tasks"])
    return Workload.build(
        submit_s=[0] * size, runtime_s=[100] * size, nodes=[1] * size, chunks=chunks
    )


def test_gpus_without_free_cores_next_to_them_are_stranded() -> None:
    """Node 0 has 1.5 GPUs free and no core; node 1 is in full use; a job of one GPU and a core waits."""
    jobs = asking(tasks=[1, 1, 1], cores_per_task=[8, 8, 1], gpus_per_task=[2.5, 4, 1])
    found = simulate(jobs, MACHINE, "fcfs+easy").fragmentation(2).to_dicts()
    assert found[0] == {
        "time_s": 50.0,
        "waiting": 1,
        "free_cores": 0.0,
        "unusable_cores": 0.0,
        "free_gpus": 1.5,
        "unusable_gpus": 1.5,
        "stranded_gpus": 1.5,
        "fragmented_gpus": 1.5,
    }
    # The last one runs alone; of the 3 GPUs and 7 cores left on its node the jobs of 8 cores can use none.
    assert (found[1]["waiting"], found[1]["unusable_gpus"]) == (0, None)
    assert found[1]["stranded_gpus"] == 0.0
    assert found[1]["fragmented_gpus"] == pytest.approx((3 + 3 + 0) / 3)


def test_what_only_a_further_kind_of_tasks_could_use_is_of_use() -> None:
    """Beside a job of 7 cores and no GPU one core and 4 GPUs are free on each node; who waits asks so."""
    jobs = Workload.build(
        submit_s=[0, 0],
        runtime_s=[100, 100],
        nodes=[1, 1],
        chunks={"tasks": [2, 1], "cores_per_task": [7, 8]},
        more_tasks=Category.of([None, "1:gpus=1"]),
    )
    first = simulate(jobs, MACHINE, "fcfs+easy").fragmentation(2).to_dicts()[0]
    assert (first["free_cores"], first["unusable_cores"]) == (2.0, 0.0)
    assert (first["unusable_gpus"], first["stranded_gpus"]) == (0.0, 0.0)


def test_unusable_cores_are_reported_after_a_long_time_without_pending_jobs() -> None:
    """For more than the hundred rows from which a table's types are guessed."""
    jobs = Workload.build(
        submit_s=[0, 9000, 9000],
        runtime_s=[100, 100, 100],
        nodes=[1, 1, 1],
        chunks={"tasks": [1, 1, 2], "cores_per_task": [1, 1, 8]},
    )
    found = simulate(jobs, MACHINE, "fcfs+easy").fragmentation(200)
    assert found["unusable_cores"].null_count() > 100
    assert set(found["unusable_cores"].drop_nulls()) == {7.0}
    alone = simulate(asking(tasks=[1]), MACHINE, "fcfs+easy").fragmentation(2)
    assert alone["unusable_gpus"].dtype == found["unusable_cores"].dtype


def test_a_heat_map_shows_how_much_of_each_node_is_held_on_average() -> None:
    jobs = asking(tasks=[1], cores_per_task=[4], gpus_per_task=[1])
    use = simulate(jobs, MACHINE, "fcfs+easy").node_use(2)
    assert use["cores"].to_list() == [0.5, 0.5, 0, 0]
    assert use["gpus"].to_list() == [0.25, 0.25, 0, 0]
    assert use["memory_gb"].null_count() == 4


@settings(max_examples=examples(25))
@given(data=st.data())
def test_resources_held_on_each_node_sum_to_those_of_jobs(data: st.DataObject) -> None:
    cluster = data.draw(strategies.shared_clusters())
    workload = data.draw(strategies.shared_workloads(cluster, max_jobs=15))
    result = simulate(workload, cluster, "fcfs+easy")
    assert result.placements is not None
    use = result.node_use(7)
    length = use["time_s"][1] - use["time_s"][0]
    has = np.repeat([g.cores or 0.0 for g in cluster.nodes], [g.count for g in cluster.nodes])
    held = (use["cores"].fill_null(0.0).to_numpy() * np.repeat(has, 7)).sum() * length
    seconds = result.placements["end_s"] - result.placements["start_s"]
    assert held == pytest.approx((seconds * result.placements["cores"].fill_null(0.0)).sum())
    found = result.fragmentation(7)
    for name in ("cores", "gpus"):
        assert (found[f"unusable_{name}"].fill_null(0.0) <= found[f"free_{name}"]).all()
    assert (found["stranded_gpus"] <= found["free_gpus"]).all()


@pytest.mark.parametrize("steps", [0, -1])
def test_invalid_steps_are_reported(steps: int) -> None:
    result = simulate(asking(tasks=[1]), MACHINE, "fcfs+easy")
    for ask in (result.node_use, result.fragmentation):
        with pytest.raises(ConfigError, match="steps is"):
            ask(steps)


def test_whole_nodes_have_no_parts() -> None:
    jobs: Any = Workload.build(submit_s=[0], runtime_s=[1], nodes=[1])
    with pytest.raises(ConfigError, match="request exclusive nodes"):
        simulate(jobs, MACHINE, "fcfs+easy").node_use()
