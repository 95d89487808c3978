"""Platforms in files: ours, SPARS's and Batsim's; what is wrong with a file is said in full."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpctwin.energy.power.states import node_watts
from hpctwin.errors import ConfigError
from hpctwin.formats.clusters import read_cluster
from hpctwin.model import Cluster

OURS = """
name: mixed
nodes:
  - {name: thin, count: 4, modes: {base: {power_w: 200, idle_w: 90}, slow: {power_w: 120, speed: 0.7}},
     sleep: [{name: suspend, power_w: 15, switch_off: {time: 5, power_w: 90},
              switch_on: {time: 20s, power_w: 110}},
             {name: off, power_w: 5, switch_off: {time: 1m, power_w: 90},
              switch_on: {time: 5m, power_w: 180}}]}
  - {name: fat, count: 2, modes: {base: {power_w: 900}}}
"""


def spars_machine(number: int = 0) -> dict[str, Any]:
    """As in SPARS's platform-nasa-128."""

    def state(power: object, target: str, seconds: float) -> dict[str, Any]:
        return {"power": power, "transitions": [{"state": target, "transition_time": seconds}]}

    return {
        "id": number,
        "dvfs_profiles": {"base": {"power": 190, "compute_speed": 1}},
        "dvfs_mode": "base",
        "states": {
            "active": state("from_dvfs", "switching_off", 0),
            "switching_off": state(9, "sleeping", 1800),
            "sleeping": state(9, "switching_on", 0),
            "switching_on": state(190, "active", 2700),
        },
    }


BATSIM = """<?xml version='1.0'?>
<platform version="4"><zone id="AS0" routing="Vivaldi">
  <host id="master_host" speed="100Mf"><prop id="watt_per_state" value="100:200"/></host>
  <host id="a0" speed="100Mf,50Mf,1f,0.5f,0.25f" pstate="0">
    <prop id="watt_per_state" value="95:190,80:120,9:9,100:100,125:125"/>
    <prop id="sleep_pstates" value="2:3:4"/>
  </host>
  <host id="a1" speed="100Mf,50Mf,1f,0.5f,0.25f" pstate="0">
    <prop id="watt_per_state" value="95:190,80:120,9:9,100:100,125:125"/>
    <prop id="sleep_pstates" value="2:3:4"/>
  </host>
  <cluster id="b" prefix="b" suffix="" radical="0-7" speed="200Mf" pstate="0"
   bw="125MBps" lat="50us">
    <prop id="wattage_per_state" value="150:180:300"/>
  </cluster>
</zone></platform>
"""


def read(folder: Path, name: str, text: str) -> Cluster:
    (folder / name).write_text(text)
    return read_cluster(folder / name)


def test_ours_has_a_line_for_each_node_group_and_a_name_that_yaml_takes_for_a_truth_value(
    tmp_path: Path,
) -> None:
    platform = read(tmp_path, "p.yaml", OURS)
    assert (platform.node_count, platform.depths) == (6, 2)
    assert [s.name for s in platform.nodes[0].sleep] == ["suspend", "off"]
    assert platform.nodes[0].sleep[1].switch_on.time == 300
    assert node_watts(platform)[:2].T.tolist() == [[90, 200]] * 4 + [[900, 900]] * 2


def test_batsims_platform_is_read_as_it_is(tmp_path: Path) -> None:
    platform = read(tmp_path, "p.xml", BATSIM)
    assert [(group.name, group.count) for group in platform.nodes] == [("a0", 2), ("b", 8)]
    thin, fat = platform.nodes
    assert {name: (m.idle, m.power_w, m.speed) for name, m in thin.modes.items()} == {
        "pstate-0": (95, 190, 1),
        "pstate-1": (80, 120, 0.5),
    }
    (sleep,) = thin.sleep
    assert (sleep.power_w, sleep.switch_off.time, sleep.switch_on.time) == (9, 2, 4)
    assert (sleep.switch_off.power_w, sleep.switch_on.power_w) == (100, 125)
    assert (fat.initial.idle, fat.initial.power_w, fat.initial.speed) == (150, 300, 2)


def change(keys: str, value: Any) -> Callable[[Any], None]:
    """Set what a path such as ``nodes.0.count`` leads to, or take it out if the value is None."""

    def apply(content: Any) -> None:
        *path, last = [int(key) if key.isdigit() else key for key in keys.split(".")]
        for key in path:
            content = content[key]
        if value is None:
            del content[last]
        else:
            content[last] = value

    return apply


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (change("nodes.0.modes.base.power_w", -3), ["thin", "modes.base.power_w", "-3"]),
        (
            change("nodes.0.sleep.0.switch_on", None),
            ["thin", "sleep.0.switch_on", "a transition out"],
        ),
        (change("nodes.0.sleep.0.switch_on.time", float("inf")), ["sleep.0.switch_on.time", "inf"]),
        (change("nodes.0.sleep.1.switch_on.time", "soon"), ["sleep.1.switch_on.time", "'soon'"]),
        (change("nodes.0.sleep.1.switch_on.time", 1), ["thin", "sorted by wake-up time"]),
        (change("nodes.0.sleep.1.name", "suspend"), ["thin", "two sleep states"]),
        (change("nodes.0.slep", []), ["thin", "slep"]),
        (change("nodes.1.mode", "turbo"), ["fat", "'turbo'", "base"]),
        (change("nodes.1.name", "thin"), ["thin", "twice"]),
        (change("nodes.1.count", 0), ["fat", "count", "not 0"]),
        (change("nodes.1.modes.base.speed", 0), ["fat", "modes.base.speed"]),
        (change("nodes", []), ["nodes"]),
    ],
)
def test_a_bad_platform_is_named_by_file_group_and_field(
    fault: Callable[[Any], None], says: list[str], tmp_path: Path
) -> None:
    content = yaml.safe_load(OURS)
    fault(content)
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "mine.yaml", yaml.safe_dump(content))
    assert len(str(caught.value).splitlines()) == 1
    for word in ["mine.yaml", *says]:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (
            change("states.sleeping.transitions", []),
            ["states.sleeping", "'transitions' is missing or empty"],
        ),
        (change("states.switching_on.transitions.0.state", "on"), ["states.switching_on", "'on'"]),
        (
            change("states.switching_on.transitions.0.state", "sleeping"),
            ["no transition to 'active'"],
        ),
        (change("states.sleeping.power", -1), ["states.sleeping", "power", "-1"]),
        (change("states.switching_on", None), ["'switching_on' is missing"]),
        (change("dvfs_mode", "eco"), ["dvfs_mode", "'eco'"]),
        (change("dvfs_profiles", {}), ["dvfs_profiles"]),
        (change("id", 7), ["id", "7"]),
    ],
)
def test_a_bad_spars_platform_is_named_by_file_cluster_and_field(
    fault: Callable[[Any], None], says: list[str], tmp_path: Path
) -> None:
    machines = [spars_machine(0), copy.deepcopy(spars_machine(1))]
    fault(machines[1])
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "platform.json", json.dumps({"machines": machines}))
    for word in ["platform.json", "machine 1", *says]:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('value="2:3:4"', 'value="2:3"', ["line 8", "'2:3'"]),
        ('value="2:3:4"', 'value="2:3:9"', ["power state 9"]),
        ('pstate="0"', 'pstate="2"', ["pstate is 2"]),
        ("9:9", "-9:9", ["negative"]),
        ("100Mf,", "fast,", ["'fast'"]),
        ("0.25f", "0f", ["never ends"]),
    ],
)
def test_a_bad_batsim_platform_is_named_by_file_host_and_field(
    old: str, new: str, says: list[str], tmp_path: Path
) -> None:
    before, host, after = BATSIM.partition('<host id="a1"')
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "p.xml", before + host + after.replace(old, new, 1))
    for word in ["p.xml", "host 'a1'", *says]:
        assert word in str(caught.value)


def test_a_power_state_without_a_wattage_is_noted_as_are_sleep_states_that_need_it(
    tmp_path: Path,
) -> None:
    platform = read(tmp_path, "p.xml", BATSIM.replace("95:190,", ""))
    assert platform.nodes[0].sleep == ()
    assert platform.notes.counts == {"sleep state without a wattage or a speed, ignored": 1}


@pytest.mark.parametrize(
    ("name", "text"),
    [("p.yaml", "a: ["), ("p.yaml", "[1]"), ("p.json", "{"), ("p.json", "[]"), ("p.xml", "<a>"),
     ("p.xml", "<a/>")],
)  # fmt: skip
def test_a_file_that_is_no_platform_is_reported(name: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=name):
        read(tmp_path, name, text)


def test_a_missing_file_is_reported_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        read_cluster(tmp_path / "none.yaml")


def test_the_energy_page_shows_a_valid_platform(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs/how-to/power-price-and-carbon.md"
    (text,) = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    assert read(tmp_path, "page.yaml", text).node_count == 100
