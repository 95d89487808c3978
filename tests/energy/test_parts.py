"""What does not go with node power states is refused by name, whichever way it comes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpctwin import Policy, Simulation, make_policy, parse_policy
from hpctwin.cli import main
from hpctwin.energy import PoweredSimulation, PowerPolicy, simulate_powered
from hpctwin.errors import ConfigError, SimulationError
from hpctwin.model import Cluster
from tests.energy.powered import uniform
from tests.energy.test_cases import jobs

WORKLOAD = jobs((0, 200, 2), (50, 10, 4), (60, 20, 1))
PSUS = PowerPolicy("psus", 10)


def powered(**options: Any) -> PoweredSimulation:
    return PoweredSimulation(WORKLOAD, uniform(4), **options)


@pytest.mark.parametrize("backfill", ["pack", "pushdown"])
@pytest.mark.parametrize(
    "way",
    [
        lambda policy: powered(policy=policy),
        lambda policy: powered(order=policy.order, backfill=policy.backfill),
        lambda policy: simulate_powered(WORKLOAD, uniform(4), policy=policy),
        lambda policy: powered().fork(policy),
        lambda policy: powered(power=PSUS).fork(policy, arrivals=False),
        lambda policy: powered().fork(policy, power=PSUS),
        lambda policy: powered().fork().fork(policy),
    ],
)
def test_pack_and_pushdown_are_refused_with_power_states_by_name(
    backfill: str, way: Callable[[Policy], object]
) -> None:
    with pytest.raises(ConfigError, match=f"backfill '{backfill}' does not go with power states"):
        way(make_policy("sjf", backfill))


def test_a_fork_that_was_refused_leaves_the_simulation_as_it_was() -> None:
    simulation = powered(power=PSUS)
    simulation.advance(60)
    with pytest.raises(ConfigError, match="'pack'"):
        simulation.fork(make_policy("sjf", "pack"))
    assert simulation.policy.name == "fcfs+easy"
    fresh = powered(power=PSUS)
    assert simulation.run().jobs.equals(fresh.run().jobs)


def test_policy_and_power_policy_of_a_fork_are_judged_together() -> None:
    published = PowerPolicy("psas-ipm", 10, rule="as-published")
    in_order = powered(backfill="none", power=published)
    with pytest.raises(ConfigError, match="without backfilling only"):
        in_order.fork(parse_policy("fcfs+easy"))
    # Each alone would be refused; both at once go together.
    assert in_order.fork(parse_policy("fcfs+easy"), power=PSUS).policy.backfill == "easy"
    easy = powered(power=PSUS)
    with pytest.raises(ConfigError, match="without backfilling only"):
        easy.fork(power=published)
    assert easy.fork(parse_policy("fcfs+none"), power=published).power == published


def test_a_saved_simulation_is_not_loaded_onto_a_machine_with_power_states(tmp_path: Path) -> None:
    path = tmp_path / "saved.npz"
    Simulation(WORKLOAD, Cluster.uniform(4), "sjf", "pack").save(path)
    with pytest.raises(SimulationError, match="no power states"):
        PoweredSimulation.load(path)
    with pytest.raises(SimulationError, match="cannot be saved"):
        powered().save(path)
    assert Simulation.load(path).policy.name == "sjf+pack"


def test_the_command_refuses_pack_on_a_platform(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("submit_s,runtime_s,walltime_s,nodes\n0,10,10,1\n")
    platform = tmp_path / "platform.yaml"
    platform.write_text("nodes: [{name: n, count: 4, modes: {base: {power_w: 100}}}]\n")
    line = ["simulate", str(trace), "--platform", str(platform), "-b", "pack"]
    with pytest.raises(SystemExit) as ended:
        main(line)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "backfill 'pack' does not go with power states" in told
    assert "Traceback" not in told


def x() -> None:
    with pytest.raises(ConfigError, match="platform is Cluster, it must be a Cluster"):
        PoweredSimulation(WORKLOAD, Cluster.uniform(4))  # type: ignore[arg-type]
