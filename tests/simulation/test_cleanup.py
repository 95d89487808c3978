"""Nodes that are cleaned up after jobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpctwin import Cluster, Simulation, Workload, simulate
from hpctwin.energy import Orders
from hpctwin.energy.power.control import PowerView
from hpctwin.engine.operations.warm_start import Running
from hpctwin.errors import ConfigError
from hpctwin.generate import generate
from hpctwin.model import Dependencies, DependencyKind
from hpctwin.simulation.running.incremental import begin_at

ONE = Cluster.model_validate({"nodes": [{"name": "n", "count": 1}], "cleanup": "30s"})


def spans(
    workload: Workload, cluster: Cluster = ONE, policy: str = "fcfs+easy"
) -> list[tuple[float, float]]:
    return simulate(workload, cluster, policy).jobs.select("start_s", "end_s").rows()


def jobs(count: int, **columns: object) -> Workload:
    return Workload.build(
        submit_s=np.zeros(count), runtime_s=np.full(count, 100.0), nodes=np.ones(count), **columns
    )


@pytest.mark.parametrize("policy", ["fcfs+none", "fcfs+easy", "fcfs+conservative", "fcfs+pack"])
def test_the_next_job_starts_when_the_nodes_are_clean_and_ends_are_those_of_jobs(
    policy: str,
) -> None:
    assert spans(jobs(3), policy=policy) == [(0, 100), (130, 230), (260, 360)]


def test_a_job_that_is_cut_at_its_walltime_leaves_its_nodes_to_be_cleaned_too() -> None:
    assert spans(jobs(2, walltime_s=[60.0, 100.0])) == [(0, 60), (90, 190)]


def test_a_backfilled_job_whose_nodes_would_be_clean_too_late_waits() -> None:
    cluster = Cluster.uniform(3, cleanup=30)
    workload = Workload.build(
        submit_s=[0, 1, 2, 3], runtime_s=[100, 100, 95, 90], nodes=[2, 3, 1, 1]
    )
    # The head's reservation is at 130. What ends at 97 is clean at 127, what would at 103 not in time.
    assert spans(workload, cluster)[1:3] == [(130, 230), (2, 97)]
    late = Workload.build(submit_s=[0, 1, 2], runtime_s=[100, 100, 101], nodes=[2, 3, 1])
    assert spans(late, cluster)[1:] == [(130, 230), (260, 361)]


def test_a_dependent_job_waits_until_the_nodes_of_the_other_are_clean() -> None:
    edges = Dependencies(
        job=np.array([1]), on=np.array([0]), kind=np.array([int(DependencyKind.AFTEROK)]),
        delay_ms=np.array([5_000]),
    )  # fmt: skip
    cluster = Cluster.uniform(2, cleanup=30)
    assert spans(jobs(2, dependencies=edges), cluster) == [(0, 100), (135, 235)]


def test_a_cancelled_job_ends_at_once_and_its_nodes_are_free_when_clean() -> None:
    assert spans(jobs(2, cancel_s=[40.0, -1.0])) == [(0, 40), (70, 170)]
    # It has ended already.
    assert spans(jobs(2, cancel_s=[110.0, -1.0])) == [(0, 100), (130, 230)]


def test_a_node_that_fails_during_its_cleanup_requeues_no_job() -> None:
    outages = [{"node": 0, "start": 110, "duration": 10}]
    cluster = Cluster.model_validate(
        {"nodes": [{"name": "n", "count": 1}], "cleanup": 30, "failures": {"outages": outages}}
    )
    assert spans(jobs(2), cluster) == [(0, 100), (120, 220)]


def test_saved_forked_and_in_steps_it_is_the_same(tmp_path: Path) -> None:
    workload = generate("poisson", jobs=300, nodes=16, load=0.9, seed=2)
    cluster = Cluster.uniform(16, cleanup=90)
    whole = simulate(workload, cluster, "sjf+easy").jobs
    assert not whole.equals(simulate(workload, Cluster.uniform(16), "sjf+easy").jobs)
    simulation = Simulation(workload, cluster, "sjf+easy")
    half_s = float(np.median(workload.submit_ms)) / 1000
    simulation.advance(half_s)
    simulation.save(tmp_path / "half")
    for other in (simulation.fork(), Simulation.load(tmp_path / "half"), simulation):
        other.advance()
        assert other.result().jobs.equals(whole)


def test_nodes_are_cleaned_up_in_an_imported_state_too() -> None:
    simulation = Simulation(jobs(2), ONE, "fcfs+easy")
    running = Running(np.array([0]), np.array([0]), np.array([100_000]), (np.array([0]),))
    nobody = np.zeros(0, np.int64)
    begin_at(simulation, 50_000, running, nobody, nobody)
    ahead = simulation.fork("fcfs+easy")
    ahead.advance()
    assert ahead.result().jobs["start_s"].to_list() == [0, 130]


@pytest.mark.parametrize("cleanup", ["-1s", "soon"])
def test_times_that_are_none_are_rejected_by_name(cleanup: str) -> None:
    with pytest.raises(ConfigError, match="cleanup"):
        Cluster.checked({**ONE.model_dump(exclude_unset=True), "cleanup": cleanup}, "c")


def test_nodes_that_are_cleaned_up_are_idle_and_not_switched_off_by_a_control_function() -> None:
    cluster = Cluster.uniform(
        1, active_w=200, idle_w=100, sleep_w=10, off_s=4, off_w=50, on_s=7, on_w=150, cleanup=30
    )
    seen = []

    def control(view: PowerView) -> Orders:
        seen.append((view.now_s, *view.states))
        return Orders(on=view.nodes("sleeping")) if view.waiting else Orders(off=view.nodes("idle"))

    workload = Workload.build(submit_s=[0, 60], runtime_s=[10, 10], nodes=[1, 1])
    simulation = Simulation(workload, cluster, "fcfs+easy", power=control, log=True)
    energy = simulation.run().energy
    assert (21, "held") in seen
    assert energy is not None
    # On at 11, idle from 21, clean at 51 and switched off then; on for the second job at 67.
    assert energy.jobs["start_s"].to_list() == [11, 67]
    spans = np.stack(energy.spans())[1:, :5].T.tolist()
    assert spans[2:] == [[1, 11000, 21000], [0, 21000, 51000], [2, 51000, 55000]]
