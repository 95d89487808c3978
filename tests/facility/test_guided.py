"""Objectives, sampled futures and the look-ahead tree."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Workload
from hpctwin.errors import ConfigError
from hpctwin.facility import Facility, parse_strategy, simulate_facility
from hpctwin.facility.guided import Futures, Tree
from hpctwin.facility.objective import carbon_g, energy_j, parse_objective, price
from hpctwin.facility.state import FacilityState
from hpctwin.model import Category
from tests import strategies as drawn
from tests.examples import examples
from tests.facility.test_facility import facility, jobs

HOURLY = tuple(float(100 + 10 * hour) for hour in range(24))
HOUR_MS = 3_600_000


@given(
    start=st.integers(0, 60 * HOUR_MS),
    length=st.integers(0, 60 * HOUR_MS),
    epoch_h=st.integers(0, 30),
)
def test_carbon_is_the_integral_of_the_hourly_intensity(
    start: int, length: int, epoch_h: int
) -> None:
    (cluster,) = facility({"nodes": 9, "power_w": 2000, "carbon": HOURLY}).clusters
    edges = np.unique(np.clip(np.arange(0, 130) * HOUR_MS, start, start + length))
    hour = (edges[:-1] // HOUR_MS + epoch_h) % 24
    expected = 2.0 * 3 * sum(np.array(HOURLY)[hour] * np.diff(edges) / HOUR_MS)
    found = carbon_g(cluster, 3, start / 1000, (start + length) / 1000, 3600.0 * epoch_h)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_energy_and_price_are_of_the_nodes_in_use() -> None:
    (cluster,) = facility(
        {
            "nodes": 9,
            "power_w": 500,
            "node_hour_price": 2,
            "price": 0.1,
            "carbon": 300,
        }
    ).clusters
    assert energy_j(cluster, 4, 3600) == 4 * 500 * 3600
    assert price(cluster, 4, 0, 3600) == pytest.approx(2 * 4 + 0.1 * 2)
    assert carbon_g(cluster, 4, 0, 3600) == pytest.approx(300 * 2)


def test_price_and_carbon_belong_to_the_cluster_and_are_in_one_place(tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("s,price EUR/MWh\n0,100\n3600,300\n")
    machine = tmp_path / "machine.yaml"
    machine.write_text(
        "nodes: [{name: n, count: 4, modes: {base: {power_w: 500}}}]\nprice: prices.csv\n"
        "carbon: 200\n"
    )
    path = tmp_path / "facility.yaml"
    path.write_text("clusters:\n  - {name: a, machine: machine.yaml}\n")
    (cluster,) = Facility.from_yaml(path).clusters
    assert price(cluster, 4, 0, 7200) == pytest.approx(2 * 0.1 + 2 * 0.3)
    assert carbon_g(cluster, [4, 2], [0, 0], [3600, 3600]) == pytest.approx(3 * 200)
    path.write_text("clusters:\n  - {name: a, nodes: 4, power_w: 500, price: prices.csv}\n")
    (cluster,) = Facility.from_yaml(path).clusters
    assert price(cluster, 4, 0, 7200) == pytest.approx(2 * 0.1 + 2 * 0.3)
    path.write_text("clusters:\n  - {name: a, machine: machine.yaml, price: 1}\n")
    with pytest.raises(ConfigError, match="its cluster file already defines 'price'"):
        Facility.from_yaml(path)


def test_each_objective_sends_the_job_where_it_costs_least() -> None:
    """c0 is fast, dear and dirty; c1 is slow, cheap and clean, and has somebody on it."""
    workload = jobs(submit_s=[0, 100], runtime_s=[100, 100])
    two = facility(
        {"nodes": 1, "power_w": 900, "node_hour_price": 5, "carbon": 500},
        {"nodes": 1, "power_w": 100, "node_hour_price": 1, "carbon": 50, "factor": 2},
    )
    went = {
        text: simulate_facility(two, workload, f"sgs({text})").jobs["cluster"][1]
        for text in ("turnaround", "wait", "energy", "cost", "carbon", "10*turnaround+energy")
    }
    assert went == {
        "turnaround": "c0", "wait": "c0", "energy": "c1", "cost": "c1", "carbon": "c1",
        "10*turnaround+energy": "c0",
    }  # fmt: skip


def test_a_clean_hour_is_waited_for_where_carbon_counts() -> None:
    """Both are equally clean in the mean; at c0, where it would start at once, it is a dirty hour."""
    dirty_first = (900.0, *(100.0,) * 23)
    workload = jobs(submit_s=[0, 1], runtime_s=[3600, 1800], start_epoch_s=0)
    two = facility(
        {"nodes": 1, "power_w": 1000, "carbon": dirty_first},
        {"nodes": 1, "power_w": 1000, "carbon": 500, "factor": 2},
    )
    # The first goes to c0 for carbon (900 < 2 · 500); the second would start at c1 at once.
    assert simulate_facility(two, workload, "sgs(carbon)").jobs["start_s"].to_list() == [0, 3600]
    assert simulate_facility(two, workload, "sgs(wait)").jobs["start_s"].to_list() == [0, 1]


def test_weights_are_read_and_costs_of_different_units_are_made_comparable() -> None:
    objective = parse_objective("turnaround + 0.5*energy")
    assert objective.name == "turnaround+0.5*energy"
    scores = objective.scores(np.array([[10.0, 30.0], [3e6, 1e6]]))
    assert scores == pytest.approx([0.5 + 0.75, 1.5 + 0.25])
    assert objective.scores(np.array([[10.0, 30.0], [0.0, 0.0]])) == pytest.approx([0.5, 1.5])
    # Negative prices: the second cluster earns most.
    scores = parse_objective("cost + turnaround").scores(np.array([[-1.0, -3.0], [5.0, 5.0]]))
    assert scores == pytest.approx([-0.5 + 1, -1.5 + 1])


def total(state: FacilityState, rows: list[int], where: tuple[int, ...]) -> int:
    """The sum of the ends when jobs go where they are told, forecast anew."""
    ends = 0
    for cluster in range(len(state.clusters)):
        here = np.array([r for r, c in zip(rows, where, strict=True) if c == cluster], np.int64)
        found = state.clusters[cluster].forecast(state.now_ms, here, here)
        ends += int(found[1].sum())
    return ends


@settings(max_examples=examples(30))
@given(workload=drawn.simple_workloads(nodes=4, max_jobs=14), size=st.integers(1, 4))
def test_the_tree_finds_the_best_of_all_combinations(workload: Workload, size: int) -> None:
    several = facility(
        {"nodes": 4}, {"nodes": 4, "factor": 2, "policy": "sjf+easy"}, {"nodes": 4, "factor": 3}
    )
    state = FacilityState(several, workload, knowledge="oracle")
    first = max(0, len(workload) - size)
    for row in range(first):
        state.now_ms = int(workload.submit_ms[row])
        state.place(row, row % 3)
    rows = list(range(first, len(workload)))
    state.now_ms = int(workload.submit_ms[-1])
    where, found = Tree(state).search(rows)
    assert found == total(state, rows, where)
    sums = {
        combination: total(state, rows, combination)
        for combination in product(range(3), repeat=len(rows))
    }
    # A branch is left when the jobs placed so far end no earlier than the best combination. With EASY a
    # further job may, rarely, let others end earlier; combinations that live by that can be missed.
    steady = [
        whole
        for combination, whole in sums.items()
        if all(total(state, rows[:i], combination[:i]) <= whole for i in range(1, len(rows)))
    ]
    assert found <= min(steady)
    greedy: tuple[int, ...] = ()
    for i in range(len(rows)):
        choices = [(total(state, rows[: i + 1], (*greedy, c)), c) for c in range(3)]
        greedy = (*greedy, min(choices)[1])
    assert found <= sums[greedy]


def test_sampled_futures_are_blocks_of_the_past_with_their_distances() -> None:
    workload = jobs(submit_s=[0, 10, 30, 5000, 6000], runtime_s=[1] * 5, nodes=[1, 2, 3, 4, 1])
    state = FacilityState(facility({"nodes": 9}), workload, spare=Futures.MOST, seed=1)
    for row in range(4):
        state.now_ms = int(workload.submit_ms[row])
        state.place(row, 0)
    state.now_ms = 6_000_000
    futures = Futures(state, 0, 4, 50, horizon_s=3600)
    seen = set()
    for _ in range(50):
        rows = futures._sample()
        job = futures.site._ahead["job"]
        seen.add(tuple((int(job["nodes"][r]), int(job["submit"][r]) - 6_000_001) for r in rows))
    assert seen == {
        ((1, 0), (2, 10_000), (3, 30_000)),
        ((2, 0), (3, 20_000)),
        ((3, 0),),
        ((4, 0),),
    }


def test_a_cluster_where_many_later_jobs_go_first_is_avoided() -> None:
    """Under shortest first, a long job at c0 is passed by the short ones that keep coming there."""
    short = 60
    workload = jobs(
        submit_s=[*range(0, 10 * short, 10), 600],
        runtime_s=[9] * (short - 1) + [40, 100],
        user=Category.of(["s"] * short + ["l"]),
    )
    two = facility(
        {"nodes": 1, "policy": "sjf+none", "kinds": ["any", "short"]},
        {"nodes": 1, "kinds": ["any"], "factor": 1.4},
        kinds=[{"name": "short", "user": "s"}],
    )
    at_once = simulate_facility(two, workload, "sgs(turnaround)").jobs
    assert at_once["cluster"][-1] == "c0"
    sampled = simulate_facility(two, workload, parse_strategy("sgs-t", samples=20)).jobs
    assert sampled["cluster"][-1] == "c1"
