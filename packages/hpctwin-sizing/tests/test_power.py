"""Jobs whose sizes are decided while they run, on nodes that are switched off and on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from malleable_reference import SizedPoweredSimulation
from test_malleable import (
    at_times,
    both,
    cases,
    check_it_goes_on_the_same_when_forked_and_saved,
    one_job,
    places,
    stretches,
)
from tests.energy.powered import joined, power_policies
from tests.energy.test_against_reference import powers_of
from tests.engine.examples import examples
from tests.reference.powered import energies

from hpctwin import Cluster, Simulation, simulate
from hpctwin.errors import ConfigError
from hpctwin_sizing import Sizes, SizeView, Sizing


def sleeping(nodes: int = 4) -> Cluster:
    """Nodes that take 10 s to be off and 20 s to be on."""
    return Cluster.uniform(
        nodes, active_w=300, idle_w=100, sleep_w=5, off_s=10, off_w=50, on_s=20, on_w=150
    )


def test_a_stretch_on_nodes_that_sleep_begins_when_they_are_on():
    sizing = at_times(j1=[(0, 2), (100, 4), (200, 0), (400, 1)])
    work = one_job(runtime=400, resize_s=1)
    result = simulate(work, sleeping(), "fcfs+outside~psus:60s", sizing=sizing)
    # From 100 to 120 the job has four nodes, two of which are switched on; all sleep at 400.
    assert stretches(result) == [(0, 100, 2), (120, 200, 4), (420, 705, 1)]
    assert result.energy is not None
    idle, asleep, off, on = 100, 5, 50, 150
    spent = 300 * (200 + 320 + 285)
    spent += 2 * (60 * idle + 10 * off + 30 * asleep + 20 * on)  # nodes 2 and 3 up to 120
    spent += 2 * 20 * idle  # nodes 0 and 1 meanwhile
    spent += 4 * (60 * idle + 10 * off) + asleep * (130 + 3 * 435) + 20 * on
    assert result.energy.total_j == pytest.approx(spent)


def test_nodes_that_are_being_switched_on_may_be_given_back():
    sizing = at_times(j1=[(0, 0), (100, 2), (110, 0), (200, 1)])
    work = one_job(resize_s=5)
    result = simulate(work, sleeping(), "fcfs+outside~psus:60s", sizing=sizing)
    # It had not begun, so nothing is lost and there is no overhead; node 0 was on at 120 and sleeps from 190.
    assert stretches(result) == [(220, 300, 1)]
    assert result.summary()["suspensions"] == 0


def test_a_job_waiting_for_running_nodes_counts_as_running():
    seen = []

    @Sizing
    def sizing(view: SizeView) -> Sizes:
        seen.append((view.now_s, view.free_nodes, [(job.size, job.left_s) for job in view.jobs]))
        return Sizes({1: 2} if view.now_s >= 100 else {}, 100 if view.now_s < 100 else None)

    simulation = Simulation(one_job(), sleeping(), "fcfs+outside~psus:60s", sizing=sizing)
    simulation.advance(115)
    assert seen[-1] == (100, 4, [(0, 40)])
    assert simulation.result().stretches.is_empty()
    simulation.advance()
    assert seen[-1] == (120, 2, [(2, 40)])
    assert stretches(simulation.result()) == [(120, 160, 2)]


@pytest.mark.parametrize("power", ["psas-ipm:60s", "orders"])
def test_node_switching_by_a_custom_plan_is_rejected(power: str) -> None:
    with pytest.raises(ConfigError, match="take none, psus or psas-auto"):
        Simulation(one_job(), sleeping(), power=power, sizing=at_times(j1=[(0, 2)]))


@st.composite
def powered_cases(draw: st.DrawFn) -> dict[str, Any]:
    """The same, on nodes that are switched off and on."""
    case = draw(cases(outages=draw(st.booleans())))
    drawing = joined(draw(powers_of(case["cluster"])), case["cluster"])
    nodes = []
    for group in drawing.nodes:
        modes = {name: mode.model_copy(update={"speed": 1.0}) for name, mode in group.modes.items()}
        nodes.append(group.model_copy(update={"modes": modes}))
    if not any(group.sleep for group in nodes):
        asleep = sleeping().nodes[0].sleep
        nodes[0] = nodes[0].model_copy(update={"sleep": asleep})
    case["cluster"] = drawing.model_copy(update={"nodes": tuple(nodes)})
    if case["placement"] == "spread":
        case["placement"] = "first_fit"
    power = draw(power_policies(("psus", "psas-auto")))
    return case | {"power": power, "on_dependency_failure": "cancel"}


@settings(max_examples=examples(200))
@given(case=powered_cases())
def test_with_sleeping_nodes_the_engine_equals_the_reference(case: dict[str, Any]) -> None:
    ran = both(case, log=True)
    if ran is None:
        return
    simulation, reference = ran
    assert isinstance(reference, SizedPoweredSimulation)
    at = places(simulation)
    for row, past in reference.past.items():
        for one in past:
            assert one.start == one.end or at[row, one.start] == set(one.nodes)
    energy = simulation.result().energy
    assert energy is not None
    of_nodes = [sum(energies(node).values()) for node in reference.nodes]
    assert energy.node_j.sum(axis=0).tolist() == pytest.approx(of_nodes, abs=1e-6)
    of_jobs = [reference.spent(row) for row in range(len(simulation.workload))]
    assert energy.jobs["energy_j"].to_list() == pytest.approx(of_jobs, abs=1e-6)


@settings(max_examples=examples(60))
@given(case=powered_cases(), times=st.lists(st.integers(0, 120), min_size=1, max_size=2))
def test_with_sleeping_nodes_it_continues_identically_when_forked_or_saved(
    case: dict[str, Any], times: list[int]
) -> None:
    check_it_goes_on_the_same_when_forked_and_saved(case, times)
