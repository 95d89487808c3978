"""What does not go together with node power states is refused by name, whichever way it comes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpctwin import Policy, Simulation, make_policy, parse_policy, simulate
from hpctwin.cli import main
from hpctwin.errors import ConfigError
from hpctwin.model import Cluster
from hpctwin.policies import PowerPolicy
from tests.energy.powered import powered_simulation, uniform
from tests.energy.test_cases import jobs

WORKLOAD = jobs((0, 200, 2), (50, 10, 4), (60, 20, 1))
PSUS = PowerPolicy("psus", 10)


def powered(**options: Any) -> Simulation:
    return powered_simulation(WORKLOAD, uniform(4), **options)


@pytest.mark.parametrize(
    "way",
    [
        lambda policy: powered(policy=policy),
        lambda policy: simulate(WORKLOAD, uniform(4), policy),
        lambda policy: powered().fork(policy),
        lambda policy: powered(power=PSUS).fork(policy, arrivals=False),
        lambda policy: powered().fork().fork(policy.name),
    ],
)
def test_pushdown_is_rejected_with_a_manager_by_name(way: Callable[[Policy], object]) -> None:
    with pytest.raises(ConfigError, match="backfill 'pushdown', which has several"):
        way(make_policy("sjf", "pushdown", power="psas-ipm:10s"))


def test_a_fork_that_was_rejected_leaves_the_simulation_as_it_was() -> None:
    simulation = powered(power=PSUS)
    simulation.advance(60)
    with pytest.raises(ConfigError, match="'pushdown'"):
        simulation.fork(make_policy("sjf", "pushdown", power="psas-ipm:10s"))
    assert simulation.policy.name == "fcfs+easy~psus:10s"
    fresh = powered(power=PSUS)
    assert simulation.run().jobs.equals(fresh.run().jobs)


def test_policy_and_power_policy_of_a_fork_are_judged_together() -> None:
    published = PowerPolicy("spars-ipm", 10)
    in_order = powered(backfill="none", power=published)
    with pytest.raises(ConfigError, match="without backfilling only"):
        in_order.fork(make_policy(in_order.policy, "easy"))
    # Each alone would be refused; both at once go together.
    assert in_order.fork(make_policy("fcfs+easy", power=PSUS)).policy.backfill == "easy"
    easy = powered(power=PSUS)
    with pytest.raises(ConfigError, match="without backfilling only"):
        easy.fork(make_policy(easy.policy, power=published))
    assert easy.fork(make_policy("fcfs+none", power=published)).policy.power == published


def test_a_saved_simulation_continues_only_with_options_that_its_cluster_supports(
    tmp_path: Path,
) -> None:
    path = tmp_path / "saved.npz"
    Simulation(WORKLOAD, Cluster.uniform(4), "sjf", "pack").save(path)
    with pytest.raises(ConfigError, match="has no power model"):
        Simulation.load(path, policy=parse_policy("sjf+pack~psus:10s"))
    assert Simulation.load(path).policy.name == "sjf+pack"


def test_the_command_rejects_what_does_not_go_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("submit_s,runtime_s,walltime_s,nodes\n0,10,10,1\n")
    machine = tmp_path / "machine.yaml"
    machine.write_text("nodes: [{name: n, count: 4, modes: {base: {power_w: 100}}}]\n")
    line = ["simulate", str(trace), "--cluster", str(machine), "--power", "psus:10s"]
    with pytest.raises(SystemExit) as ended:
        main(line)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "no node group has a sleep state" in told
    assert "Traceback" not in told


def test_a_cluster_with_unknown_power_draw_is_reported() -> None:
    with pytest.raises(ConfigError, match="has no power model"):
        Simulation(WORKLOAD, Cluster.uniform(4), "easy~psus:20m")
