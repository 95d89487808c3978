"""Nodes of jobs with GPUs under `tightest-run`: as a Slurm 22.05 chose them with the same parts free."""

from __future__ import annotations

from typing import Any

import pytest

from hpctwin import Cluster, Workload, simulate
from hpctwin.model import Category

CORES = 16


def nodes_of(jobs: list[dict[str, Any]], gpus: list[dict[str, int]]) -> list[list[int]]:
    """The nodes of jobs that all start at once, in order, on nodes with 16 cores and GPUs by type."""
    groups = [
        {"name": f"n{place}", "count": 1, "cores": CORES, "gpus": types, "features": [f"f{place}"]}
        for place, types in enumerate(gpus)
    ]
    cluster = Cluster.model_validate({"nodes": groups})
    names = ("tasks", "cores_per_task", "gpus_per_task")
    types = {f"gpu/{name}" for job in jobs for name in job.get("types", {})}
    workload = Workload.build(
        submit_s=range(len(jobs)),
        runtime_s=[100] * len(jobs),
        nodes=[job.get("nodes", 1) for job in jobs],
        features=Category.of([job.get("on") for job in jobs]),
        chunks={name: [float(job.get(name, name == "tasks")) for job in jobs] for name in names},
        consumables={
            name: [float(job.get("types", {}).get(name[4:], 0)) for job in jobs] for name in types
        },
    )
    placed = simulate(workload, cluster, "fcfs+none@tightest-run").placements
    found: list[list[int]] = [[] for _ in jobs]
    for job, node in sorted(set(placed.select("job_id", "node").rows())):
        found[job - 1].append(node)
    return found


def filled(*cores: int) -> list[dict[str, Any]]:
    """Jobs that have so many cores of each node."""
    some = [(place, number) for place, number in enumerate(cores) if number]
    return [{"cores_per_task": number, "on": f"f{place}"} for place, number in some]


def last(jobs: list[dict[str, Any]], gpus: list[dict[str, int]]) -> list[int]:
    return nodes_of(jobs, gpus)[-1]


TWO = {"a": 2}


def test_a_job_with_gpus_gets_the_first_fitting_node_and_one_without_the_tightest() -> None:
    before = filled(2, 15, 9)
    assert last([*before, {"cores_per_task": 1}], [TWO] * 3) == [1]
    assert last([*before, {"cores_per_task": 1, "gpus_per_task": 2}], [TWO] * 3) == [0]


def test_a_job_with_gpus_gets_the_fitting_run_with_the_fewest_nodes() -> None:
    before = filled(0, 8, 16, 2)
    assert last([*before, {"cores_per_task": 1, "gpus_per_task": 1}], [TWO] * 4) == [3]
    assert last([*before, {"cores_per_task": 9, "gpus_per_task": 1}], [TWO] * 4) == [0]


@pytest.mark.parametrize(("tasks", "nodes", "on"), [(3, 1, [1, 2]), (1, 1, [0]), (2, 2, [0, 1])])
def test_nodes_with_more_gpus_free_come_first_as_far_as_the_job_may_have_them(
    tasks: int, nodes: int, on: list[int]
) -> None:
    """One for each of two nodes has no use for a second, but tasks that may lie together have."""
    taken = {"cores_per_task": 1, "gpus_per_task": 1, "on": "f0"}
    job = {"tasks": tasks, "nodes": nodes, "cores_per_task": 1, "gpus_per_task": 1}
    assert last([taken, job], [TWO] * 3) == on


def test_gpus_of_other_types_bring_a_node_no_nearer() -> None:
    job = {"tasks": 3, "cores_per_task": 1, "gpus_per_task": 1, "types": {"a": 1}}
    assert last([job], [{"a": 1, "b": 3}, {"a": 1, "b": 3}, {"a": 2, "b": 1}]) == [0, 2]
