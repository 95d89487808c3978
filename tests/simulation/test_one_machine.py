"""One machine, one policy, one simulation: power states with all the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Result, Simulation, Workload, compare, simulate
from hpctwin.errors import ConfigError, UnknownNameError
from tests.examples import examples
from tests.strategies import simple_workloads

MACHINE = """
name: mixed
nodes:
  - name: thin
    count: 5
    modes: {base: {power_w: 200, idle_w: 90}, slow: {power_w: 120, idle_w: 70, speed: 0.5}}
    sleep:
      - {name: suspend, power_w: 15, switch_off: {time: 2, power_w: 90}, switch_on: {time: 3, power_w: 110}}
      - {name: off, power_w: 4, switch_off: {time: 4, power_w: 90}, switch_on: {time: 9, power_w: 180}}
  - name: fat
    count: 3
    modes: {base: {power_w: 900, idle_w: 400}}
    sleep: [{power_w: 10, switch_off: {time: 5, power_w: 300}, switch_on: {time: 7, power_w: 500}}]
"""
POLICIES = (
    "fcfs+easy~psus:5s",
    "sjf+conservative@best-fit~psas-ipm:3s,deeper=20s",
    "wfp+pack~psas-auto:0s,keep=1",
)
NODES = 8


def machine(folder: Path, more: str = "") -> Path:
    path = folder / "machine.yaml"
    path.write_text(MACHINE + more)
    return path


CLUSTER = Cluster.checked(yaml.safe_load(MACHINE), "machine")


def same(one: Result, other: Result) -> None:
    assert one.jobs.equals(other.jobs)
    assert one.node_map is not None
    assert one.node_map.equals(other.node_map)
    assert one.energy is not None
    assert other.energy is not None
    assert (one.energy.spent_ms == other.energy.spent_ms).all()
    assert one.energy.total_j == other.energy.total_j


def test_a_cluster_a_policy_and_jobs_are_sufficient(tmp_path: Path) -> None:
    workload = Workload.build(
        submit_s=[0, 100], runtime_s=[10, 10], walltime_s=[10, 10], nodes=[8, 8]
    )
    result = simulate(workload, machine(tmp_path), "easy~psus:20s")
    assert result.policy == "fcfs+easy~psus:20s"
    assert result.energy is not None
    # All sleep after 30 s and are woken at 100 s: the thin ones in 3 s, the fat ones in 7 s.
    assert result.jobs["start_s"].to_list() == [0, 107]
    assert result.energy.total_j == 5 * (
        10 * 200 + 20 * 90 + 2 * 90 + 68 * 15 + 3 * 110 + 4 * 90 + 10 * 200
    ) + 3 * (10 * 900 + 20 * 400 + 5 * 300 + 65 * 10 + 7 * 500 + 10 * 900)
    assert result.summary()["total_energy_j"] == result.energy.total_j


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=examples(40))
@given(
    workload=simple_workloads(nodes=NODES, max_jobs=15),
    at_s=st.integers(0, 60),
    change=st.booleans(),
)
def test_saved_or_forked_half_way_or_run_in_one_it_is_the_same(
    policy: str,
    workload: Workload,
    at_s: int,
    change: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("saved") / "half.npz"

    def begun() -> Simulation:
        simulation = Simulation(workload, CLUSTER, policy, log=True)
        if change:
            simulation.advance(at_s / 2)
            simulation.set_mode("thin", "slow")
        simulation.advance(at_s)
        return simulation

    whole = begun().run()
    halves = begun()
    halves.save(path)
    fork = halves.fork()
    loaded = Simulation.load(path)
    assert loaded.policy.name == policy
    assert loaded.modes == halves.modes
    assert loaded.node_states == halves.node_states
    for one in (fork, loaded, halves):
        same(one.run(), whole)
    assert (loaded.result().energy.spans() == whole.energy.spans()).all()  # type: ignore[union-attr]


def test_a_control_function_in_a_file_continues_where_it_was_saved(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from hpctwin.energy import Orders\n\n\ndef later(view):\n"
        "    idle = view.nodes('idle')\n"
        "    if view.waiting:\n        return Orders(on=view.nodes('sleeping'))\n"
        "    return Orders(off=idle[view.since_s[idle] >= 7], next_call_s=view.now_s + 7)\n"
    )
    workload = Workload.build(submit_s=[0, 60], runtime_s=[10, 5], walltime_s=[10, 5], nodes=[3, 8])
    whole = simulate(workload, CLUSTER, f"fcfs+none~{mine}:later")
    simulation = Simulation(workload, CLUSTER, f"fcfs+none~{mine}:later")
    simulation.advance(20)
    simulation.save(tmp_path / "half.npz")
    same(Simulation.load(tmp_path / "half.npz").run(), whole)
    assert whole.energy is not None
    assert whole.energy.state_s()["sleeping:off"] == 0  # nobody sends them deeper
    assert whole.energy.state_s()["sleeping:depth 1"] > 0


def test_policies_with_power_are_compared(tmp_path: Path) -> None:
    workload = Workload.build(
        submit_s=[0, 100, 130], runtime_s=[10, 10, 5], walltime_s=[10, 10, 5], nodes=[8, 8, 2]
    )
    results = compare(workload, machine(tmp_path), [*POLICIES, "fcfs+easy"])
    assert list(results) == [*POLICIES, "fcfs+easy"]
    for name, result in results.items():
        same(result, simulate(workload, CLUSTER, name))
    joules = {name: result.summary()["total_energy_j"] for name, result in results.items()}
    assert max(joules, key=joules.__getitem__) == "fcfs+easy"


@settings(max_examples=examples(40))
@given(workload=simple_workloads(nodes=NODES, max_jobs=15))
@pytest.mark.parametrize("backfill", ["pack", "pushdown:every=1,interval=1s", "easy:2/sjf"])
def test_power_states_that_switch_nothing_change_no_schedule(
    backfill: str, workload: Workload
) -> None:
    plain = CLUSTER.model_copy(
        update={
            "nodes": tuple(g.model_copy(update={"modes": {}, "sleep": ()}) for g in CLUSTER.nodes)
        }
    )
    expected = simulate(workload, plain, f"fcfs+{backfill}").jobs
    assert simulate(workload, CLUSTER, f"fcfs+{backfill}").jobs.equals(expected)
    assert simulate(workload, CLUSTER, f"fcfs+{backfill}~psus:never").jobs.equals(expected)


def failing(outages: list[tuple[int, int, int]], then: str) -> Cluster:
    failures = {
        "outages": [{"node": n, "start": start, "duration": s} for n, start, s in outages],
        "on_failure": then,
    }
    reservations = [{"start": 30, "end": 50, "nodes": "2-5"}]
    content = {**CLUSTER.model_dump(), "failures": failures, "reservations": reservations}
    return Cluster.checked({**content, "cap": "6kW"}, "machine")


@pytest.mark.parametrize("policy", [*POLICIES, "fcfs+easy", "sjf+first-fit@spread~psas-ipm:0s"])
@settings(max_examples=examples(40))
@given(
    workload=simple_workloads(nodes=NODES, max_jobs=15),
    outages=st.lists(
        st.tuples(st.integers(0, NODES - 1), st.integers(0, 80), st.integers(1, 30)), max_size=6
    ),
    then=st.sampled_from(("requeue", "fail")),
    at_s=st.integers(0, 60),
)
def test_failures_maintenance_a_cap_and_power_states_go_together_and_with_saving(
    policy: str,
    workload: Workload,
    outages: list[tuple[int, int, int]],
    then: str,
    at_s: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    cluster = failing(outages, then)
    path = tmp_path_factory.mktemp("saved") / "half.npz"
    simulation = Simulation(workload, cluster, policy, log=True)
    simulation.advance(at_s)
    simulation.save(path)
    whole = simulate(workload, cluster, policy, log=True)
    for one in (simulation.fork(), Simulation.load(path), simulation):
        same(one.run(), whole)
    energy = whole.energy
    assert energy is not None
    assert (energy.spent_ms.sum(axis=0) == energy.spent_ms[:, 0].sum()).all()
    assert energy.power_over_time()[1].max(initial=0) <= 6000
    assert whole.jobs["state"].is_in(["completed", "walltime", "node_failure"]).all()


@pytest.mark.parametrize(
    ("cluster", "policy", "error", "says"),
    [
        (
            CLUSTER,
            "easy~psis:20m",
            UnknownNameError,
            "unknown power policy 'psis'. Did you mean 'psus'",
        ),
        (
            Cluster.uniform(8),
            "easy~psus:20m",
            ConfigError,
            "has no power model; add 'modes'",
        ),
        (CLUSTER, "easy~psus", ConfigError, "'psus' needs a timeout .*; write psus:20m"),
        (CLUSTER, "easy~psus:timeuot=20m", UnknownNameError, "Did you mean 'timeout'"),
        (
            CLUSTER,
            "pushdown~psas-ipm:20m",
            ConfigError,
            "backfill 'pushdown', which has several; use psus",
        ),
        (CLUSTER, "easy@bestfit", UnknownNameError, "Did you mean 'best-fit'"),
    ],
)
def test_errors_are_reported_in_one_line(
    cluster: Cluster, policy: str, error: type[Exception], says: str
) -> None:
    workload = Workload.build(submit_s=[0], runtime_s=[1], walltime_s=[1], nodes=[1])
    with pytest.raises(error, match=says) as told:
        simulate(workload, cluster, policy)
    assert len(str(told.value).splitlines()) == 1
