"""GPUs of several types on one node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from hpctwin import Cluster, Simulation, Workload, read_cluster, replay, simulate, simulate_stream
from hpctwin.engine.operations.warm_start import Running
from hpctwin.errors import ConfigError, WorkloadError
from hpctwin.simulation.running.incremental import begin_at
from tests.simulation.test_single_gpus import BACKFILLS

NOBODY = np.zeros(0, np.int64)


def machine(count: int = 1, **gpus: int) -> Cluster:
    group = {"name": "a", "count": count, "cores": 64, "gpus": gpus or {"a100": 2, "t4": 2}}
    return Cluster.model_validate({"nodes": [group]})


def asking(*requests: str, runs_s: float = 100) -> Workload:
    """Jobs that are submitted one a second."""
    frame = pl.DataFrame({"request": requests}).with_row_index("job_id", offset=1)
    return Workload.from_frame(
        frame.with_columns(submit_s=pl.col("job_id") - 1, runtime_s=pl.lit(runs_s))
    )


def starts(workload: Workload, cluster: Cluster, backfill: str = "first-fit") -> list[float]:
    return simulate(workload, cluster, "fcfs", backfill).jobs["start_s"].to_list()


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_a_job_of_any_gpu_is_in_the_way_of_those_of_its_type_alone(backfill: str) -> None:
    """The first two have one GPU of each type; sums would have a T4 for the third job, too, and an A100."""
    workload = asking("-n1 --gpus=1", "-n1 --gpus=t4:1", "-n1 --gpus=a100:1", "-n1 --gpus=1")
    found = starts(workload, machine(a100=1, t4=1), backfill)
    assert found[:2] == [0, 1]
    assert found[2] >= 100
    assert found[3] >= 101


def test_a_reservation_is_of_gpus_of_the_type_that_is_asked_for() -> None:
    """Job 3 is promised both A100 at 100; job 4 may have the T4s meanwhile, job 5 would have an A100 then."""
    workload = asking(
        "-n1 --gpus=a100:1", "-n1 --gpus=a100:1", "-N1 --gres=gpu:a100:2", "-n1 --gpus=t4:2", "-n1 --gpus=1"
    ).replace(
        runtime_ms=np.array([100, 50, 10, 500, 500]) * 1000,
        walltime_ms=np.array([100, 50, 10, 500, 500]) * 1000,
    )  # fmt: skip
    assert starts(workload, machine(), "easy") == [0, 1, 100, 3, 110]


def test_allocations_are_reported_by_type() -> None:
    workload = asking(
        "-n1 --gpus=3", "-n1 --gpus=t4:1", "-N1 --exclusive", "-N1 --gres=gpu:a100:1,gpu:t4:1"
    )
    result = simulate(workload, machine(), "fcfs", "first-fit")
    assert result.placements is not None
    assert result.gpu_shares is not None
    held = result.placements.select("job_id", "gpus", "gpu/a100", "gpu/t4").rows()
    assert sorted(held) == [(1, 3, 2, 1), (2, 1, 0, 1), (3, 4, 2, 2), (4, 2, 1, 1)]
    assert result.gpu_shares.select("job_id", "gpu", "type").rows() == [
        (1, 0, "a100"), (1, 1, "a100"), (1, 2, "t4"), (2, 3, "t4"), (4, 0, "a100"), (4, 2, "t4"),
    ]  # fmt: skip


def test_parts_of_gpus_are_of_a_type_too() -> None:
    workload = Workload.build(
        submit_s=range(4),
        runtime_s=[100] * 4,
        nodes=[1] * 4,
        chunks={"tasks": [1] * 4, "gpus_per_task": [0, 0, 0.5, 0]},
        consumables={"gpu/t4": [0.5, 0.75, 0, 0.5], "gpu/a100": [0] * 4},
    )
    result = simulate(workload, machine(a100=1, t4=1), "fcfs", "first-fit")
    assert result.jobs["start_s"].to_list() == [0, 200, 2, 100]
    assert result.gpu_shares is not None
    # The third could lie anywhere: the T4 is the tighter one.
    assert set(result.gpu_shares["type"]) == {"t4"}


def test_numbers_of_gpus_are_those_of_the_node() -> None:
    """The second node has no A100; its T4s are its first GPUs."""
    cluster = Cluster.model_validate(
        {
            "nodes": [
                {"name": "both", "count": 1, "cores": 8, "gpus": {"a100": 2, "t4": 1}},
                {"name": "one", "count": 1, "cores": 8, "gpus": {"t4": 2}},
                {"name": "none", "count": 1, "cores": 8, "gpus": 1},
            ]
        }
    )
    assert cluster.gpu_types == ("gpu/a100", "gpu/t4")
    result = simulate(asking("-n3 --gpus-per-task=t4:1", "-n3 --gpus=3"), cluster, "fcfs")
    assert result.gpu_shares is not None
    assert result.gpu_shares.select("job_id", "node", "gpu", "type").rows() == [
        (1, 0, 2, "t4"), (1, 1, 0, "t4"), (1, 1, 1, "t4"), (2, 0, 0, "a100"), (2, 0, 1, "a100"),
        (2, 2, 0, None),
    ]  # fmt: skip


def test_requests_that_no_nodes_gpus_hold_are_rejected() -> None:
    cluster = machine(a100=2, t4=1)
    workload = asking(
        "-N1 --gres=gpu:t4:2", "-N1 --gres=gpu:a100:2,gpu:t4:1", "-N2 --gres=gpu:t4:1"
    )
    states = simulate(workload, cluster).jobs["state"].to_list()
    assert states == ["rejected", "completed", "rejected"]


def test_nodes_of_one_type_that_a_feature_reports_give_what_they_gave() -> None:
    """As before types were counted: as many GPUs, on nodes with the feature."""
    cluster = Cluster.model_validate(
        {
            "nodes": [
                {"name": "new", "count": 1, "cores": 8, "gpus": 2, "features": ["a100", "ib"]},
                {"name": "old", "count": 1, "cores": 8, "gpus": 4, "features": ["t4"]},
            ]
        }
    )
    typed = asking(
        "-N1 --gres=gpu:t4:3", "-n1 --gpus=a100:1 -Cib", "-n1 --gpus=2", "-N1 --gres=gpu:t4:2"
    )
    simulation = Simulation(typed, cluster, "fcfs", "first-fit")
    assert simulation.workload.features.to_series("").to_list() == ["t4", "ib&a100", None, "t4"]
    result = simulation.run()
    assert result.gpu_shares is None
    assert result.jobs["start_s"].to_list() == [0, 1, 100, 100]
    of_features = typed.replace(features=simulation.workload.features, consumables={})
    assert starts(of_features, cluster) == [0, 1, 100, 100]


def test_whole_nodes_are_those_with_the_given_number_of_a_type() -> None:
    cluster = Cluster.model_validate(
        {
            "nodes": [
                {"name": "a", "count": 1, "cores": 8, "gpus": {"t4": 1}},
                {"name": "b", "count": 1, "cores": 8, "gpus": {"a100": 1, "t4": 4}},
            ]
        }
    )
    workload = Workload.build(
        submit_s=[0, 0], runtime_s=[10, 10], nodes=[1, 1], consumables={"gpu/t4": [2, 1]}
    )
    result = simulate(workload, cluster, "fcfs", "easy", track_nodes=True)
    assert result.node_map is not None
    assert result.node_map.sort("job_id")["first_node"].to_list() == [1, 0]


def test_running_jobs_are_placed_on_gpus_of_their_type() -> None:
    """A job that asked for any GPU runs, and it is told that it has the A100."""
    workload = asking("-n1 --gpus=1", "-n1 --gpus=a100:1", "-n1 --gpus=t4:1")
    for told, expected in (((1.0, 0.0), [100, 10]), ((0.0, 1.0), [10, 100])):
        simulation = Simulation(workload, machine(a100=1, t4=1), "fcfs", "first-fit")
        running = Running(*np.array([[0], [0], [100_000]]), (np.array([0]),))
        begin_at(simulation, 10_000, running, NOBODY, NOBODY, [np.array([[1.0, 0.0, 1.0, *told]])])
        simulation.advance()
        assert simulation.result().jobs["start_s"].to_list()[1:] == expected


def test_a_fork_and_a_saved_state_continue_identically(tmp_path: Path) -> None:
    ways = (
        "-n1 --gpus=1",
        "-n2 --gpus-per-task=t4:1",
        "-N1 --gres=gpu:a100:1,gpu:t4:1",
        "-n1 --gpus=a100:2",
    )
    workload = asking(*ways * 8, runs_s=7)
    expected = simulate(workload, machine(2), "fcfs", "easy")
    simulation = Simulation(workload, machine(2), "fcfs", "easy")
    simulation.advance(20)
    simulation.save(tmp_path / "state")
    again = Simulation.load(tmp_path / "state")
    for one in (simulation.fork(), again):
        one.advance()
        assert one.result().gpu_shares.equals(expected.gpu_shares)
    found = simulate_stream(workload, machine(2), "fcfs", "easy", out=tmp_path / "out", batch=5)
    assert found.jobs.collect().sort("job_id")["start_s"].equals(expected.jobs["start_s"])


def test_a_replay_has_what_was_recorded() -> None:
    ways = ("-n1 --gpus=1", "-N1 --gres=gpu:a100:1,gpu:t4:1", "-n1 --gpus=t4:1")
    by_feature = {"name": "a", "count": 1, "cores": 64, "gpus": 4, "features": ["a100", "t4"]}
    for cluster in (machine(), Cluster.model_validate({"nodes": [by_feature]})):
        found = simulate(asking(*ways), cluster, "fcfs", "easy")
        past = asking(*ways).replace(
            recorded_start_ms=np.rint(found.jobs["start_s"].to_numpy() * 1000).astype(np.int64)
        )
        again = replay(past, cluster).result
        assert again.placements is not None
        assert again.placements["gpus"].to_list() == [1, 2, 1]
        assert again.jobs["start_s"].equals(found.jobs["start_s"])


def test_gpus_of_other_types_are_of_no_use() -> None:
    """While the first job has the A100, the T4 is free, and of no use to half of the jobs."""
    workload = asking("-n1 --gpus=a100:1", "-n1 --gpus=a100:1")
    found = simulate(workload, machine(a100=1, t4=1), "fcfs").fragmentation(4)
    assert found["free_gpus"].to_list() == [1, 1, 1, 1]
    assert found["fragmented_gpus"].to_list() == [1, 1, 1, 1]
    assert found["unusable_gpus"].to_list() == [1, 1, None, None]
    mixed = asking("-n1 --gpus=a100:1", "-n1 --gpus=t4:1")
    found = simulate(mixed, machine(a100=1, t4=1), "fcfs").fragmentation(101)
    # T4 alone is free in the first step; then nothing is, and then the A100 alone.
    assert found["fragmented_gpus"].to_list()[50] == 0
    assert found["stranded_gpus"].to_list()[0] == 0


@pytest.mark.parametrize(
    ("group", "why"),
    [
        ({"gpus": {"a100": 1.5}}, "has 1.5 of gpu/a100; a GPU type needs a whole number"),
        ({"gpus": {"a100": "two"}}, "gpus of type 'a100' must be a number, such as 2"),
        ({"gpus": {"a100": -1}}, "gpus: it must be 0 or more, not -1"),
        ({"gpus": {"a100": -1, "t4": 2}}, "gpus: it must be 0 or more, not -1 of type 'a100'"),
        ({"gpus": {"a 100": 1}}, "consumable 'gpu/a 100': the name is not valid"),
        (
            {"gpus": 1, "consumables": {"gpu/t4": 2}},
            "has 2 GPUs by type, but gpus is 1: give only the number of each type",
        ),
    ],
)
def test_invalid_gpus_are_rejected(group: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Cluster.model_validate({"nodes": [{"name": "a", "count": 1, "cores": 8, **group}]})


def test_a_cluster_is_written_as_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(
        "nodes: [{name: a, count: 2, cores: 8, gpus: {a100: 2, t4: 4}}]\n"
    )
    cluster = read_cluster(tmp_path / "m.yaml")
    assert cluster.nodes[0].gpus == 6
    assert Cluster.model_validate(cluster.model_dump()) == cluster


@pytest.mark.parametrize(
    ("gpus", "types", "more", "why"),
    [
        (3, {"gpu/a100": 2}, None, "a task requests 3 GPUs, but 2 by type: give either the number of each"),
        (0, {"gpu/a100": 0.5, "gpu/t4": 1}, None, "fractions of GPUs of several types"),
        (0, {}, "1:gpus=3:gpu/t4=1", "a task requests 3 GPUs, but 1 by type"),
        (0, {}, "1:gpu/t4=1:gpu/a100=0.5", "fractions of GPUs of several types"),
        (0, {"gpu/a 1": 1}, None, "the name is not valid"),
    ],
)  # fmt: skip
def test_requests_that_do_not_add_up_are_rejected(
    gpus: float, types: dict[str, float], more: str | None, why: str
) -> None:
    frame = pl.DataFrame(
        {"job_id": [7], "submit_s": [0], "runtime_s": [1], "tasks": [1], "gpus_per_task": [gpus],
         "more_tasks": [more], **{f"consumable_{name}": [n] for name, n in types.items()}},
    )  # fmt: skip
    with pytest.raises(WorkloadError, match=why):
        Workload.from_frame(frame)


def test_a_type_that_no_node_has_is_rejected_by_name() -> None:
    why = r"jobs request GPUs of type 'h100', which no node .* such as gpus: {h100: 2}.*known types: a100, t4"
    with pytest.raises(ConfigError, match=why):
        simulate(asking("-n1 --gpus=h100:1"), machine())


def test_a_request_for_some_of_a_type_and_some_of_any_is_rejected() -> None:
    with pytest.raises(WorkloadError, match="some of its GPUs have a type and others do not"):
        asking("-N1 --gres=gpu:a100:1,gpu:1")
