"""Power policies written in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Workload, simulate
from hpctwin.energy import Orders, PowerView
from hpctwin.errors import ConfigError, PolicyError, SimulationError
from hpctwin.model import Cluster
from hpctwin.policies import PowerPolicy, find_power
from tests.energy.powered import NODES, energy_of, powered_simulation, uniform
from tests.energy.test_cases import jobs
from tests.strategies import simple_workloads

ORDERS = PowerPolicy("orders")


def greedy(view: PowerView) -> Orders:
    """Off at once when nobody waits; on as many as wait for nodes."""
    wanted = sum(nodes for nodes, _, _ in view.waiting)
    if not wanted:
        return Orders(off=view.nodes("idle"))
    wanted -= len(view.nodes("idle")) + len(view.nodes("switching_on"))
    return Orders(on=view.nodes("sleeping")[: max(0, wanted)])


def after_ten_seconds(view: PowerView) -> Orders:
    """Off what has been idle for ten seconds."""
    idle = view.nodes("idle")
    over = [node for node in idle if view.since_s[node] >= 10]
    left = [view.now_s + 10 - view.since_s[node] for node in idle if view.since_s[node] < 10]
    return Orders(
        off=[] if view.waiting else over,
        on=view.nodes("sleeping") if view.waiting else [],
        next_call_s=min(left, default=None),
    )


def never(view: PowerView) -> Orders:
    """All nodes are off, and stay off."""
    return Orders(off=view.nodes("idle"))


def never_and_asked_each_minute(view: PowerView) -> Orders:
    return Orders(off=view.nodes("idle"), next_call_s=view.now_s + 60)


@pytest.mark.parametrize("control", [never, never_and_asked_each_minute])
@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
def test_a_job_waiting_for_nodes_that_no_function_wakes_is_reported_and_the_run_ends(
    backfill: str, control: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpctwin.simulation.running.control.QUIET_S", 3600.0)
    # Conservative promises nodes that could be on by then, again and again.
    workload = Workload.build(submit_s=[0, 60], runtime_s=[5, 5], nodes=[1, 2])
    with pytest.raises(SimulationError, match=r"2 pending jobs at .* switches no node on"):
        energy_of(workload, uniform(), "fcfs", backfill, power=ORDERS, control=control)


@pytest.mark.parametrize("backfill", ["none", "easy"])
@given(workload=simple_workloads(nodes=NODES, max_jobs=12))
def test_a_function_that_wakes_nodes_for_pending_jobs_gets_every_job_done(
    backfill: str, workload: Workload
) -> None:
    energy = energy_of(
        workload, uniform(), "fcfs", backfill, power=ORDERS, control=greedy, log=True
    )
    assert energy.jobs["state"].is_in(["completed", "walltime"]).all()
    assert (energy.spent_ms.sum(axis=0) == energy.spent_ms[:, 0].sum()).all()


@given(workload=simple_workloads(nodes=NODES, max_jobs=12))
def test_a_function_that_does_nothing_gives_the_plain_schedule(workload: Workload) -> None:
    plain = simulate(workload, Cluster.uniform(NODES), "fcfs", "easy").jobs.sort("job_id")
    energy = energy_of(workload, uniform(), power=ORDERS, control=lambda view: None)
    assert energy.jobs.sort("job_id")["start_s"].to_list() == plain["start_s"].to_list()


@given(
    workload=simple_workloads(nodes=NODES, max_jobs=12),
    stops=st.lists(st.integers(0, 100), max_size=4),
)
def test_stopping_in_between_changes_no_start(workload: Workload, stops: list[int]) -> None:
    whole = energy_of(workload, uniform(), power=ORDERS, control=greedy)
    pieces = powered_simulation(workload, uniform(), power=ORDERS, control=greedy)
    for stop in sorted(stops):
        pieces.advance(stop)
    pieces.run()
    assert pieces.result().energy.jobs["start_s"].to_list() == whole.jobs["start_s"].to_list()


def test_it_is_asked_again_when_it_says() -> None:
    workload = jobs((0, 5, 1), (100, 5, 4))
    energy = energy_of(workload, uniform(4), power=ORDERS, control=after_ten_seconds, log=True)
    assert energy.jobs.sort("job_id")["start_s"].to_list() == [0, 107]
    row = energy.states.index("switching_off:off")
    off = sorted(
        (start, node) for node, state, start, _ in energy.spans().T.tolist() if state == row
    )
    assert off == [(10_000, 1), (10_000, 2), (10_000, 3), (15_000, 0)]


def test_jobs_that_wait_forever_are_reported() -> None:
    def off(view: PowerView) -> Orders:
        return Orders(off=view.nodes("idle"))

    with pytest.raises(SimulationError, match="2 pending jobs at 100 s"):
        energy_of(jobs((0, 5, 1), (100, 5, 4)), uniform(4), power=ORDERS, control=off)


def test_endless_queries_while_jobs_wait_are_reported() -> None:
    def off(view: PowerView) -> Orders:
        return Orders(off=view.nodes("idle"), next_call_s=view.now_s + 1e7)

    with pytest.raises(SimulationError, match="1 pending job at"):
        energy_of(jobs((0, 5, 1)), uniform(4), power=ORDERS, control=off)


async def later(view: PowerView) -> Orders:
    return Orders()


@pytest.mark.parametrize(
    ("orders", "says"),
    [
        (lambda view: Orders(on=[0]), "node 0 is idle; it must be sleeping"),
        (lambda view: Orders(off=[9]), "node 9 does not exist"),
        (lambda view: Orders(next_call_s=0), "later than the present, 0 s"),
        (lambda view: [1, 2], "must return Orders"),
        (lambda view: 1 / 0, "ZeroDivisionError"),
        (lambda: None, "TypeError"),
        (lambda view: Orders(on=5), "on is 5; it must be a list of node numbers"),
        (lambda view: Orders(off=[0.5]), "off is \\[0.5\\]; it must be a list of node numbers"),
        (lambda view: Orders(off="01"), "off is '01'; it must be"),
        (lambda view: Orders(next_call_s="soon"), "next_call_s is 'soon'; it must be seconds"),
        (lambda view: Orders(next_call_s=float("nan")), "later than the present, 0 s"),
        (lambda view: Orders(next_call_s=float("inf")), "later than the present, 0 s"),
        (lambda view: (_ for _ in ()), "must return Orders"),
        (later, "must return Orders"),
        ("not a function", "TypeError"),
    ],
)
def test_invalid_orders_are_reported(orders: object, says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        energy_of(jobs((0, 5, 1)), uniform(4), power=ORDERS, control=orders)  # type: ignore[arg-type]


def test_two_parties_that_switch_nodes_are_one_too_many() -> None:
    with pytest.raises(ConfigError, match="orders"):
        powered_simulation(
            jobs((0, 5, 1)), uniform(4), power=PowerPolicy("psus", 5), control=greedy
        )


def test_a_function_in_a_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def control(view):\n    return None\n\nx = 3\n")
    assert find_power(str(path)).control(None) is None  # type: ignore[misc]
    with pytest.raises(PolicyError, match="not a function"):
        find_power(f"{path}:x")
    with pytest.raises(PolicyError, match=r"none\.py"):
        find_power(str(tmp_path / "none.py"))


def test_repeated_switching_fits_in_the_record_of_states() -> None:
    """Orders come between the instants at which the engine itself looks for room."""
    simulation = powered_simulation(
        jobs((0, 1, 1), (1000, 10, 1)), uniform(), power=ORDERS, log=True
    )
    times = 0
    while simulation.now_s < 900:
        nodes = PowerView(simulation)
        simulation.switch(on=nodes.nodes("sleeping"), off=nodes.nodes("idle"))
        times += 1
        simulation.advance(simulation.now_s + 1)
    assert times > 500
    state_s = simulation.result().energy.state_s()
    assert sum(state_s.values()) == pytest.approx(NODES * simulation.now_s)
