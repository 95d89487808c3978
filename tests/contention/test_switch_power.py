"""Energy of switches and links."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, read_cluster, simulate
from hpctwin.energy import Series
from hpctwin.energy.accounts.accounting import NetworkPower
from hpctwin.errors import ConfigError
from hpctwin.simulation import replay
from tests.contention.test_network import send

NODES = [{"name": "n", "count": 4, "modes": {"on": {"power_w": 200, "idle_w": 90}}}]
STAR = {
    "topology": "star",
    "bandwidth": "1 GB/s",
    "switch_power": {"idle_w": 100, "power_w": 300},
}


def star(**network: Any) -> Cluster:
    return Cluster(name="star", nodes=NODES, network=STAR | network)


def jobs(profile: Any = None) -> Workload:
    """One job on two nodes for 3 s."""
    given = {} if profile is None else {"profiles": [profile]}
    return Workload.build(
        submit_s=[5], nodes=[2], walltime_s=[60], runtime_s=[3], name="one", **given
    )


def test_a_switch_draws_by_the_load_of_its_links() -> None:
    """Two of its eight links are full for 3 s: 3 s * (100 W + 200 W * 2/8)."""
    result = Simulation(jobs(send(3e9)), star(), sharing="fair", log=True).run()
    summary = result.summary()
    assert summary["network_energy_j"] == pytest.approx(450.0)
    nodes_j = 3 * 4 * 90  # ranks that only send leave their nodes idle
    assert summary["total_energy_j"] == pytest.approx(nodes_j + 450.0)
    assert result.energy is not None
    times_s, watts = result.energy.power_over_time()
    assert (times_s[0], times_s[-1]) == (5.0, 8.0)
    assert watts[:-1] @ np.diff(times_s) == pytest.approx(summary["total_energy_j"])
    price = Series.hourly([0.25], "EUR")
    assert result.energy.cost(price) == pytest.approx(summary["total_energy_j"] * 0.25 / 3.6e6)


def test_loads_are_recorded_for_energy_without_a_log() -> None:
    result = Simulation(jobs(send(3e9)), star(), sharing="fair").run()
    assert result.summary()["network_energy_j"] == pytest.approx(450.0)


def test_without_loads_a_switch_is_idle() -> None:
    assert simulate(jobs(), star()).summary()["network_energy_j"] == pytest.approx(300.0)
    constant = star(switch_power={"idle_w": 100})
    found = Simulation(jobs(send(3e9)), constant, sharing="fair").run()
    assert found.summary()["network_energy_j"] == pytest.approx(300.0)


def test_replays_and_forks_count_switches_too() -> None:
    recorded = jobs().replace(recorded_start_ms=np.array([5000]))
    found = replay(recorded, star()).result.summary()
    assert found["network_energy_j"] == pytest.approx(300.0)
    half = Simulation(jobs(send(3e9)), star(), sharing="fair")
    half.advance(6.5)
    fork = half.fork()
    assert half.result().summary()["network_energy_j"] <= 225.0
    assert fork.run().summary()["network_energy_j"] == pytest.approx(450.0)
    assert half.run().summary()["network_energy_j"] == pytest.approx(450.0)


def test_nothing_is_assumed() -> None:
    plain = {name: value for name, value in STAR.items() if name != "switch_power"}
    cluster = Cluster(name="star", nodes=NODES, network=plain)
    summary = Simulation(jobs(send(3e9)), cluster, sharing="fair").run().summary()
    assert "network_energy_j" not in summary
    assert summary["total_energy_j"] == pytest.approx(3 * 4 * 90)


@given(
    st.lists(st.tuples(*[st.integers(1, 3)] * 3), min_size=1, max_size=3),
    st.tuples(*[st.integers(1, 3)] * 4),
)
def test_switches_are_counted_once(tree: list[tuple[int, int, int]], sizes: Any) -> None:
    children, parents, cables = zip(*tree, strict=True)
    power = {"switch_power": {"idle_w": 1}, "bandwidth": "1 GB/s"}
    levels = range(1, len(tree) + 1)
    switches = sum(math.prod(parents[:i]) * math.prod(children[i:]) for i in levels)
    network = {"topology": "fat-tree", "children": children, "parents": parents, "cables": cables}
    node = {"name": "n", "count": 1, "modes": {"on": {"power_w": 2, "idle_w": 1}}}
    fat = Cluster(nodes=[node], network={**network, **power}).platform
    assert fat is not None
    assert fat.link_idle_w.sum() == pytest.approx(switches)
    groups, chassis, blades, hosts = sizes
    sizes = (min(groups, blades), chassis, blades, hosts)
    network = {"topology": "dragonfly", "sizes": sizes}
    fly = Cluster(nodes=[node], network={**network, **power}).platform
    assert fly is not None
    assert fly.link_busy_w.sum() == pytest.approx(math.prod(sizes[:3]))


def test_parts_have_switches_of_their_own() -> None:
    network = {
        "parts": [
            {"name": "a", "groups": ["n"], "topology": "star", "bandwidth": "1 GB/s",
             "switch_power": {"idle_w": 10}},
            {"name": "b", "groups": ["m"], "topology": "star", "bandwidth": "1 GB/s"},
        ],
        "links": [{"between": ["a", "b"], "bandwidth": "1 GB/s"}],
    }  # fmt: skip
    cluster = Cluster(nodes=[*NODES, NODES[0] | {"name": "m"}], network=network)
    assert simulate(jobs(), cluster).summary()["network_energy_j"] == pytest.approx(30.0)


XML = """<?xml version='1.0'?>
<platform version="4.1">
 <zone id="W" routing="Full">
  <host id="a" speed="1Gf"><prop id="wattage_per_state" value="90:200"/></host>
  <host id="b" speed="1Gf"><prop id="wattage_per_state" value="90:200"/></host>
  <link id="l" bandwidth="1GBps" latency="0"><prop id="wattage_range" value="RANGE"/></link>
  <route src="a" dst="b"><link_ctn id="l"/></route>
 </zone>
</platform>
"""


def test_wattages_of_links_are_read(tmp_path: Path) -> None:
    path = tmp_path / "two.xml"
    path.write_text(XML.replace("RANGE", "10:12"))
    result = Simulation(jobs(send(3e9)), read_cluster(path), sharing="simgrid").run()
    assert result.summary()["network_energy_j"] == pytest.approx(3 * 12.0)
    for wrong in ("10", "10:11:12", "a:b", "-1:2"):
        path.write_text(XML.replace("RANGE", wrong))
        with pytest.raises(ConfigError, match=r"two.xml, line \d+, link .l.: watt"):
            read_cluster(path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"network": STAR | {"switch_power": {"idle_w": 9, "power_w": 3}}}, "below idle_w"),
        ({"network": STAR | {"switch_power": {"power_w": 3}}}, "idle_w"),
        (
            {"network": STAR | {"topology": "torus", "sizes": [2, 2]}},
            "a torus has no switches; remove 'switch_power'",
        ),
        ({"nodes": [{"name": "n", "count": 4}]}, "switch_power needs a power model"),
    ],
)
def test_what_does_not_fit_is_refused(change: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Cluster(**{"name": "star", "nodes": NODES, "network": STAR} | change)


def test_power_is_added_to_that_of_nodes() -> None:
    network = NetworkPower(10.0, np.array([2.0, 3.0, 5.0]), np.array([1.0, 2.0]))
    times_s, watts = network.add_to(np.array([1.0, 4.0, 6.0]), np.array([100.0, 200.0, 200.0]))
    assert times_s.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert watts.tolist() == [110.0, 111.0, 112.0, 212.0, 210.0, 210.0]
    assert network.energy_j(1.0, 6.0) == 50.0 + 1.0 + 4.0
    assert network.energy_j(2.5, 3.5) == 10.0 + 0.5 + 1.0
