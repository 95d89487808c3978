"""Placements that are defined on shared nodes, where all jobs have whole nodes; and random ones of tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from hpctwin import Cluster, Simulation, Workload, compare, ordering, simulate
from hpctwin.errors import PolicyError, SimulationError
from hpctwin.model import Category
from hpctwin.network.profiles import HomogeneousTask
from hpctwin.simulation import explain
from hpctwin.simulation.running.incremental import OpenSimulation
from hpctwin.simulation.schedulers import PolicyScheduler
from hpctwin.simulation.streaming.stream import simulate_stream

PLACEMENTS = ("weight", "round-robin", "tightest-run", "fragmentation")
STEP = {"time": 10, "power_w": 100}
POWER: dict[str, Any] = {
    "modes": {"base": {"power_w": 300, "idle_w": 100}},
    "sleep": [{"name": "off", "power_w": 5, "switch_off": STEP, "switch_on": STEP}],
}


def cluster(group: dict[str, Any] | None = None, **about: Any) -> Cluster:
    """Eight nodes, of which the last four come first by weight."""
    halves = [
        {"name": n, "count": 4, "weight": w, **(group or {})} for n, w in (("a", 2), ("b", 1))
    ]
    return Cluster.model_validate({"nodes": halves, **about})


def jobs(size: int = 60, seed: int = 1, tiny: bool = False) -> Workload:
    """Jobs of whole nodes; long after them, if asked, one that asks for a part of a node."""
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.integers(0, 400, size)).astype(float)
    columns: dict[str, Any] = {
        "submit_s": np.append(submit, 1e6),
        "runtime_s": np.append(rng.integers(1, 60, size), 1),
        "walltime_s": np.append(rng.integers(20, 90, size), 1),
        "nodes": np.append(rng.integers(1, 7, size), 1),
    }
    if not tiny:
        return Workload.build(**{name: values[:-1] for name, values in columns.items()})
    tasks = np.append(np.zeros(size), 1)
    return Workload.build(**columns, chunks={"tasks": tasks, "cores_per_task": 0.5 * tasks})


def nodes_of(table: pl.DataFrame) -> list[tuple[int, int]]:
    """Job and node of each row of a node map or of placements."""
    if "count" in table.columns:
        table = table.select(
            "job_id", node=pl.int_ranges("first_node", pl.col("first_node") + pl.col("count"))
        ).explode("node")
    return sorted(table.select("job_id", "node").rows())


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("backfill", ["none", "easy", "conservative", "slurm", "pbs", "pack"])
@pytest.mark.parametrize(
    "about", [{}, {"failures": {"mtbf": 3000, "mttr": 60, "seed": 3}}], ids=("", "failures")
)
def test_whole_nodes_are_had_as_next_to_a_job_that_asks_for_tasks(
    placement: str, backfill: str, about: dict[str, Any]
) -> None:
    machine, policy = cluster({"cores": 4}, **about), f"fcfs+{backfill}@{placement}"
    plain, mixed = simulate(jobs(), machine, policy), simulate(jobs(tiny=True), machine, policy)
    columns = ["job_id", "eligible_s", "start_s", "end_s", "state", "requeues"]
    assert plain.jobs.select(columns).equals(mixed.jobs.head(60).select(columns))
    assert plain.node_map is not None
    assert mixed.placements is not None
    assert nodes_of(plain.node_map) == nodes_of(mixed.placements.filter(pl.col("job_id") <= 60))
    # Without cores nothing changes, and results count nodes.
    bare = simulate(jobs(), cluster(**about), policy)
    assert bare.jobs.equals(plain.jobs)
    assert bare.node_map is not None
    assert bare.node_map.equals(plain.node_map)
    assert bare.placements is None
    assert bare.summary().keys() == simulate(jobs(), cluster(**about)).summary().keys()


def test_the_order_of_nodes_is_that_of_the_placement() -> None:
    workload = Workload.build(submit_s=[0, 1, 2, 3], runtime_s=[1.5, 9, 9, 9], nodes=[1, 1, 2, 3])
    found = {
        name: nodes_of(simulate(workload, cluster(), f"@{name}", track_nodes=True).node_map)
        for name in ("first-fit", *PLACEMENTS)
    }
    assert found == {
        "first-fit": [(1, 0), (2, 1), (3, 0), (3, 2), (4, 3), (4, 4), (4, 5)],
        "weight": [(1, 4), (2, 5), (3, 4), (3, 6), (4, 0), (4, 1), (4, 7)],
        "round-robin": [(1, 0), (2, 1), (3, 2), (3, 3), (4, 4), (4, 5), (4, 6)],
        "tightest-run": [(1, 0), (2, 1), (3, 2), (3, 3), (4, 4), (4, 5), (4, 6)],
        "fragmentation": [(1, 0), (2, 1), (3, 0), (3, 2), (4, 3), (4, 4), (4, 5)],
    }


def test_energy_and_explanations_are_those_of_whole_nodes(tmp_path: Path) -> None:
    workload = Workload.build(submit_s=[0, 0], runtime_s=[10, 10], nodes=[2, 7])
    for power in ("none", "psus:5"):
        policies = [f"fcfs+easy@{name}~{power}" for name in ("first-fit", "weight")]
        first, weight = compare(workload, cluster(POWER), policies).values()
        assert weight.summary()["total_energy_j"] == first.summary()["total_energy_j"]
        assert weight.energy.jobs["energy_j"].equals(first.energy.jobs["energy_j"])
        assert weight.jobs.equals(first.jobs)


def test_a_job_of_whole_nodes_is_explained_as_such() -> None:
    workload = Workload.build(submit_s=[0, 0], runtime_s=[10, 10], nodes=[5, 6])
    told = [one.text for one in explain(Simulation(workload, cluster(), "@round-robin"), 2)]
    assert told[0] == "submitted; requests nodes 6"
    assert any("waited 10 s: too few free nodes" in text for text in told)


def test_simulations_are_saved_and_forked_but_not_into_another_capacity_model(
    tmp_path: Path,
) -> None:
    simulation = Simulation(jobs(), cluster(), "fcfs+conservative@round-robin")
    simulation.advance(150)
    simulation.save(tmp_path / "half")
    whole = simulation.fork().run()
    assert Simulation.load(tmp_path / "half").run().node_map.equals(whole.node_map)
    assert simulation.fork("sjf+easy@weight").run().jobs["end_s"].null_count() == 0
    for begun, other in (("first-fit", "weight"), ("weight", "first-fit")):
        one = Simulation(jobs(), cluster(), f"@{begun}")
        with pytest.raises(SimulationError, match=f"placement '{other}' cannot replace '{begun}'"):
            one.fork(f"@{other}")


def test_policies_compared_at_once_are_as_each_alone() -> None:
    policies = [f"fcfs+easy@{name}" for name in ("round-robin", "first-fit", "weight", "random")]
    for result in compare(jobs(), cluster(), policies).values():
        assert result.jobs.equals(simulate(jobs(), cluster(), result.policy).jobs)


def test_jobs_come_one_by_one_and_are_forecast() -> None:
    simulation = OpenSimulation(Simulation(jobs(), cluster(), "fcfs+easy@round-robin"))
    expected = simulate(jobs(), cluster(), "fcfs+easy@round-robin").jobs["start_s"]
    for row, at_ms in enumerate(jobs().submit_ms.tolist()):
        simulation.advance_before(at_ms)
        assert simulation.may_start(row)
        forecast = simulation.forecast(at_ms, np.array([row]), np.array([row]))
        assert forecast[0, 0] >= at_ms
        simulation.arrive(row, at_ms)
    simulation.finish()
    assert simulation.result().jobs["start_s"].equals(expected)


def test_an_external_scheduler_that_counts_nodes_rejects_them() -> None:
    with pytest.raises(PolicyError, match="placement 'weight' plans each node"):
        PolicyScheduler("fcfs+easy@weight", 8)


STAR = {"topology": "star", "bandwidth": "1 GB/s", "core_speed": "1 Gflop/s"}


def test_ranks_of_jobs_on_the_network_are_on_the_nodes_that_the_placement_chooses() -> None:
    profiles = [HomogeneousTask(cpu=1e9, com=1e9)] * 3
    workload = Workload.build(
        submit_s=[0, 0, 0],
        walltime_s=[60] * 3,
        runtime_s=[60] * 3,
        nodes=[2, 3, 2],
        profiles=profiles,
    )
    ends = [
        simulate(workload, cluster(network=STAR), f"@{name}", sharing="fair")
        .jobs["end_s"]
        .to_list()
        for name in ("first-fit", "round-robin", "weight")
    ]
    assert ends[0] == ends[1] == ends[2]


def test_the_communication_of_tasks_is_that_of_as_many_ranks() -> None:
    seen = ordering(lambda now, job: -job.communication, name="seen")
    talks, works = HomogeneousTask(cpu=9e9, com=1e9), HomogeneousTask(cpu=9e9, com=0)
    workload = Workload.build(
        submit_s=[0, 1, 2],
        walltime_s=[60] * 3,
        runtime_s=[60] * 3,
        nodes=[1] * 3,
        profiles=[works, works, talks],
        chunks={"tasks": [4, 4, 4], "cores_per_task": [1, 1, 1]},
    )
    machine = Cluster.model_validate(
        {"nodes": [{"name": "n", "count": 1, "cores": 4}], "network": STAR}
    )
    simulation = Simulation(workload, machine, seen, "none", sharing="fair")
    start_s = simulation.run().jobs["start_s"].to_list()
    assert start_s[2] < start_s[1]


TREE = {"topology": "fat-tree", "children": [2, 3], "parents": [1, 1], "bandwidth": "1 GB/s"}


def test_tasks_that_communicate_get_whole_blocks_and_others_the_gaps() -> None:
    talks, works = HomogeneousTask(cpu=1e9, com=1e12), HomogeneousTask(cpu=1e12, com=1e6)
    network = {**TREE, "core_speed": "1 Gflop/s"}
    nodes = [{"name": "n", "count": 6, "cores": 2}]
    machine = Cluster.model_validate({"nodes": nodes, "network": network})
    tasks, profiles = [1, 4, 4, 2], [works, talks, works, talks]
    workload = Workload.build(
        submit_s=range(4), walltime_s=[60] * 4, runtime_s=[60] * 4, nodes=[1] * 4, profiles=profiles,
        chunks={"tasks": tasks, "cores_per_task": [1] * 4},
    )  # fmt: skip

    def placed(placement: str) -> list[tuple[int, int, float]]:
        simulation = Simulation(workload, machine, f"@{placement}", sharing="fair")
        simulation.advance(5)
        table = simulation.result().placements
        assert table is not None
        return sorted(table.select("job_id", "node", "cores").rows())

    # Job 2 gets block 1 and leaves the rest of block 0; job 3 fills the last block.
    assert placed("communication-aware") == [
        (1, 0, 1), (2, 2, 2), (2, 3, 2), (3, 4, 2), (3, 5, 2), (4, 0, 1), (4, 1, 1),
    ]  # fmt: skip


def tasks(size: int = 40) -> Workload:
    """Jobs of one or two tasks."""
    rng = np.random.default_rng(5)
    chunks = {"tasks": rng.integers(1, 3, size), "cores_per_task": rng.integers(1, 4, size)}
    submit = np.sort(rng.integers(0, 200, size))
    users = Category.of(rng.integers(1, 4, size))
    runtimes = rng.integers(1, 60, size)
    return Workload.build(
        submit_s=submit, runtime_s=runtimes, nodes=[1] * size, chunks=chunks, user=users
    )


def test_random_nodes_of_tasks_depend_on_the_seed_alone(tmp_path: Path) -> None:
    machine, policy = cluster({"cores": 4}), "fcfs+easy@random"
    one, again, other = (simulate(tasks(), machine, policy, seed=seed) for seed in (3, 3, 4))
    assert one.placements is not None
    assert one.placements.equals(again.placements)
    assert not one.placements.equals(other.placements)
    simulation = Simulation(tasks(), machine, policy, seed=3)
    simulation.advance(100)
    assert simulation.fork().run().placements.equals(one.placements)
    assert compare(tasks(), machine, [policy], seed=3)[policy].placements.equals(one.placements)
    streamed = simulate_stream(tasks(), machine, policy, seed=3, out=tmp_path, batch=7)
    rows = ["start_s", "job_id", "node"]
    assert streamed.placements is not None
    assert streamed.placements.collect().sort(rows).equals(one.placements.sort(rows))


def test_random_nodes_of_tasks_are_spread_over_the_cluster() -> None:
    size = 400
    workload = Workload.build(
        submit_s=range(size), runtime_s=[0.5] * size, nodes=[1] * size, chunks={"tasks": [1] * size}
    )
    placed = simulate(workload, cluster({"cores": 4}), "@random").placements
    assert placed is not None
    counts = np.bincount(placed["node"].to_numpy(), minlength=8)
    # 50 of each are expected; the standard deviation is 6.6.
    assert 25 < counts.min() <= counts.max() < 75
