"""Small cases followed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hpctwin import Workload, make_policy
from hpctwin.model import Cluster
from hpctwin.policies import PowerPolicy
from tests.energy.powered import energy_of, powered_simulation, uniform


def jobs(*rows: tuple[float, float, int]) -> Workload:
    """Of submit and runtime in seconds, and nodes; walltimes are the runtimes."""
    submit, runtime, nodes = zip(*rows, strict=True)
    return Workload.build(
        submit_s=submit, runtime_s=runtime, walltime_s=[max(r, 0.001) for r in runtime], nodes=nodes
    )


def sleep(name: str, off_s: float, on_s: float) -> dict[str, object]:
    """A sleep state that draws nothing."""
    return {
        "name": name,
        "power_w": 0,
        "switch_off": {"time": off_s, "power_w": 0},
        "switch_on": {"time": on_s, "power_w": 0},
    }


def starts(workload: Workload, platform: Cluster, backfill: str, power: PowerPolicy) -> list[float]:
    energy = energy_of(workload, platform, "fcfs", backfill, power=power)
    return energy.jobs.sort("job_id")["start_s"].to_list()


@pytest.mark.parametrize("kind", ["psus", "psas-auto", "psas-ipm"])
def test_an_end_an_arrival_and_a_timeout_at_one_time_are_seen_together(kind: str) -> None:
    # SPARS, figure 1. At 100 job 1 ends, jobs 2 and 3 arrive, and nodes 2 and 3, idle since 0, have their
    # timeout: the wide job 2 starts on all four, which none of the events alone would let it.
    workload = jobs((0, 100, 2), (100, 50, 4), (100, 10, 1))
    assert starts(workload, uniform(4), "easy", PowerPolicy(kind, 100)) == [0, 100, 150]


@pytest.mark.parametrize(
    ("kind", "start"),
    [
        ("psus", 207),  # noticed when they are free, and only then woken
        ("psas-auto", 207),
        ("psas-ipm", 200),  # woken at 193, so that they are there when job 1 ends
    ],
)
def test_only_the_manager_wakes_nodes_in_time(kind: str, start: float) -> None:
    workload = jobs((0, 200, 2), (50, 10, 4))
    assert starts(workload, uniform(4), "none", PowerPolicy(kind, 10)) == [0, start]


def test_the_manager_does_not_wake_before_it_must() -> None:
    workload = jobs((0, 200, 2), (50, 10, 4))
    power = PowerPolicy("psas-ipm", 10)
    energy = energy_of(workload, uniform(4), "fcfs", "none", power=power, log=True)
    assert energy.log is not None
    row = energy.states.index("switching_on:off")
    woken = [(start, end) for _, state, start, end in energy.log.T.tolist() if state == row]
    assert woken == [(193_000, 200_000)] * 2


def test_a_node_asleep_that_may_go_deeper_is_not_put_to_sleep_again_while_jobs_wait() -> None:
    # Node 3 goes to sleep at 10, as the only one that can be spared, and node 2 at 30; they would go deeper
    # at once, if job 3 did not wait.
    modes = {"base": {"power_w": 200, "idle_w": 100}}
    group = {"name": "g", "count": 3, "modes": modes, "mode": "base"}
    machine = Cluster.model_validate(
        {"nodes": [{**group, "sleep": [sleep("a", 0, 0), sleep("b", 0, 0)]}]}
    )
    workload = jobs((0, 100, 1), (0, 20, 1), (1, 10, 3))
    simulation = powered_simulation(
        workload, machine, "fcfs", "none", power=PowerPolicy("psas-ipm", 10, deeper_s=(0,))
    )
    assert simulation.advance(instants=1000) == "done"
    energy = simulation.result().energy
    assert energy is not None
    assert energy.jobs.sort("job_id")["start_s"].to_list() == [0, 0, 100]
    assert energy.state_s()["sleeping:a"] == 90 + 70


def test_the_manager_leaves_on_what_could_not_be_back_in_time() -> None:
    # Off and on take 11 s; job 2 needs all nodes at 20, so those idle since 0 stay on at 10.
    workload = jobs((0, 20, 2), (5, 10, 4))
    power = PowerPolicy("psas-ipm", 10)
    energy = energy_of(workload, uniform(4), "fcfs", "none", power=power)
    assert energy.jobs.sort("job_id")["start_s"].to_list() == [0, 20]
    assert energy.state_s()["switching_off:off"] == 0


def test_the_unaware_rule_takes_sleeping_nodes_while_others_are_idle() -> None:
    # Nodes 0 and 1 sleep when job 2 comes, nodes 2 and 3 are idle: it waits for its nodes to boot.
    workload = jobs((0, 100, 2), (0, 200, 2), (120, 10, 1), (201, 10, 2))
    assert starts(workload, uniform(4), "none", PowerPolicy("psus", 10)) == [0, 0, 127, 208]
    assert starts(workload, uniform(4), "none", PowerPolicy("psas-auto", 10)) == [0, 0, 127, 201]


def test_energy_of_a_case_counted_by_hand() -> None:
    # Two nodes; one computes for 10 s, the other is idle for 5 s, switches off in 4 s, sleeps 1 s.
    energy = energy_of(jobs((0, 10, 1)), uniform(2), power=PowerPolicy("psus", 5))
    assert energy.total_j == 10 * 200 + 5 * 100 + 4 * 50 + 1 * 10
    assert energy.wasted_j == 5 * 100 + 4 * 50
    assert energy.jobs["energy_j"].to_list() == [2000]


def test_a_node_continues_to_a_deeper_sleep_and_wakes_from_there() -> None:
    platform = Cluster.model_validate(
        {
            "nodes": [
                {
                    "name": "n",
                    "count": 1,
                    "modes": {"base": {"power_w": 200}},
                    "sleep": [
                        sleep("suspend", 1, 2),
                        sleep("off", 5, 30),
                    ],
                }
            ]
        }
    )
    power = PowerPolicy("psus", 10, deeper_s=(20,))
    workload = jobs((0, 10, 1), (25, 10, 1), (100, 10, 1))
    energy = energy_of(workload, platform, power=power)
    # Idle at 10, suspended from 21, woken at 25; idle at 37, suspended from 48, off from 73.
    assert energy.jobs.sort("job_id")["start_s"].to_list() == [0, 27, 130]
    assert energy.state_s()["sleeping:off"] == 100 - 73


def test_nodes_are_kept_on() -> None:
    energy = energy_of(
        jobs((0, 1, 1), (100, 1, 3)), uniform(4), power=PowerPolicy("psus", 5, keep=3)
    )
    assert energy.jobs.sort("job_id")["start_s"].to_list() == [0, 100]
    assert energy.state_s()["sleeping:off"] > 0


def test_a_job_cancelled_while_its_nodes_are_switched_on_was_never_started() -> None:
    workload = jobs((0, 1, 1), (50, 10, 4)).replace(cancel_ms=np.array([-1, 52_000]))
    energy = energy_of(workload, uniform(4), power=PowerPolicy("psus", 5), log=True)
    last = energy.jobs.sort("job_id").row(1, named=True)
    assert (last["state"], last["start_s"], last["energy_j"]) == ("cancelled", None, 0)
    assert set(energy.node_map["job_id"]) == {1}


def test_a_simulation_continues_under_another_power_policy() -> None:
    simulation = powered_simulation(
        jobs((0, 200, 2), (150, 10, 4)), uniform(4), "fcfs", "none", power=PowerPolicy("psus", 10)
    )
    simulation.advance(160)
    twin = simulation.fork(make_policy(simulation.policy, power=PowerPolicy("psas-ipm", 10)))
    assert twin.run().jobs.sort("job_id")["start_s"].to_list() == [0, 200]
    assert simulation.run().jobs.sort("job_id")["start_s"].to_list() == [0, 207]


def test_nodes_do_not_fall_into_a_deeper_sleep_while_a_job_waits_for_them() -> None:
    # Else they would never all be on at once: asleep by the time the last one is there.
    platform = Cluster.model_validate(
        {
            "nodes": [
                {
                    "name": "n",
                    "count": 3,
                    "modes": {"base": {"power_w": 200}},
                    "sleep": [sleep("suspend", 0, 0), sleep("off", 0, 1)],
                }
            ]
        }
    )
    power = PowerPolicy("psas-ipm", 0, deeper_s=(0,))
    energy = energy_of(jobs((0, 10, 1), (0, 5, 3)), platform, power=power)
    assert energy.jobs.sort("job_id")["start_s"].to_list() == [0, 10]
