"""Features: names of what nodes have that is no amount."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctwin import Cluster, Workload, simulate
from hpctwin.errors import WorkloadError
from hpctwin.formats import read_workload, write_workload
from hpctwin.model.columns import Category

MACHINE = Cluster.model_validate(
    {
        "nodes": [
            {"name": "old", "count": 1, "cores": 8, "features": ["v100"]},
            {"name": "new", "count": 1, "cores": 8, "features": ["a100", "ib"]},
        ]
    }
)


def asking(*features: str | None, tasks: int) -> Workload:
    size = len(features)
    return Workload.build(
        submit_s=[0] * size,
        runtime_s=[10] * size,
        nodes=[1] * size,
        features=Category.of(list(features)),
        chunks={"tasks": [tasks] * size, "cores_per_task": [8] * size} if tasks else None,
    )


@pytest.mark.parametrize("tasks", [0, 1])
def test_a_job_waits_for_a_node_that_has_what_it_asks_for(tasks: int) -> None:
    jobs = asking("a100&ib", "a100", "v100|a100", "v100&ib", tasks=tasks)
    result = simulate(jobs, MACHINE, "fcfs+easy")
    assert result.jobs["start_s"].to_list() == [0, 10, 0, None]
    assert result.rejection_reasons == {"need features that no node has (v100&ib)": 1}


@pytest.mark.parametrize("tasks", [0, 1])
def test_any_of_some_and_all_of_others_are_asked_for_together(tasks: int) -> None:
    result = simulate(
        asking("(v100|a100)&ib", "(v100|a100)&(ib|opa)", tasks=tasks), MACHINE, "fcfs"
    )
    assert result.jobs["start_s"].to_list() == [0, 10]


LYING = {"sockets": 2, "cores_per_socket": 4, "threads_per_core": 1}


@pytest.mark.parametrize("tasks", [0, 1])
def test_a_job_waits_for_a_node_with_its_cores_in_the_requested_layout(tasks: int) -> None:
    groups = [
        {"name": "one", "count": 1, "cores": 8},
        {"name": "two", "count": 1, "cores": 8, **LYING},
    ]
    machine = Cluster.model_validate({"nodes": groups})
    jobs = asking("sockets=2", "sockets=2&threads_per_core=1", None, "sockets=4", tasks=tasks)
    result = simulate(jobs, machine, "fcfs+easy")
    assert result.jobs["start_s"].to_list() == [0, 10, 0, None]


def test_more_cores_than_sockets_can_have_are_rejected() -> None:
    group = {"name": "two", "count": 1, "cores": 9, **LYING}
    with pytest.raises(ValueError, match=r"9 cores, more than sockets .* \(8\)"):
        Cluster.model_validate({"nodes": [group]})


def test_features_come_back_from_a_table(tmp_path: Path) -> None:
    write_workload(asking("a100|v100", None, tasks=1), tmp_path / "jobs.csv")
    again = read_workload(tmp_path / "jobs.csv")
    assert again.features.to_series("features").to_list() == ["a100|v100", None]


@pytest.mark.parametrize("text", ["a100&ib|v100", "a100&", "(a100)", "a100 v100"])
def test_features_that_cannot_be_parsed_are_reported(text: str) -> None:
    with pytest.raises(WorkloadError, match="features"):
        asking(text, tasks=1)
