"""A Slurm that switches nodes off and on, as one really said it (22.05.8, eight nodes)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpctwin.errors import ConfigError
from hpctwin.rms.records.changes import Changes
from hpctwin.rms.records.records import NodePower, Snapshot
from hpctwin.rms.site import Sleeping
from hpctwin.rms.slurm.listing.parse import cluster_snapshot
from hpctwin.rms.slurm.settings import SlurmSettings

RECORDED = Path(__file__).parent / "recorded"
PARTITIONS = b"PartitionName=main Default=YES MaxNodes=UNLIMITED MaxTime=1-02:00:00 State=UP PriorityTier=3\n"
NONE = b"No reservations in the system\n"
NOW_S = 1_800_000_000.0
SLEEP = {
    "power_w": 9,
    "switch_off": {"time": 5, "power_w": 60},
    "switch_on": {"time": 10, "power_w": 150},
}
SLEEPING = SlurmSettings(
    kind="slurm", power=[{"power_w": 300, "idle_w": 120, "sleep": SLEEP}]
).power[0]


def look(name: str, now_s: float) -> Snapshot:
    """What a real Slurm said that switches nodes off (`SuspendTime=6`)."""
    said = json.loads((RECORDED / "slurm-22.05-power-saving.json").read_text())[name]
    jobs, nodes = (json.dumps({kind: said[kind]}).encode() for kind in ("jobs", "nodes"))
    how = Sleeping(SLEEPING.power_w, SLEEPING.idle_w, SLEEPING.sleep)
    return cluster_snapshot(jobs, nodes, NONE, PARTITIONS, now_s, sleeping=lambda _: how).snapshot


def test_a_slurm_that_switches_nodes_reports_their_power_states() -> None:
    asleep = look("asleep", NOW_S)
    assert {(n.state, n.power) for n in asleep.nodes} == {
        ("up", NodePower(state="asleep", since_s=NOW_S))
    }
    (group,) = asleep.machine.nodes
    assert (group.initial.power_w, group.initial.idle, group.sleep[0].power_w) == (300, 120, 9)
    on, off = (look("powering-up", NOW_S).nodes[i].power for i in (0, 4))
    assert (on.state, on.until_s, off.state) == ("switching_on", NOW_S + 10, "asleep")
    down = look("powering-down", NOW_S).nodes[0]
    assert (down.state, down.power.state, down.power.until_s) == ("up", "switching_off", NOW_S + 5)


def test_a_job_whose_nodes_slurm_wakes_starts_when_they_are_on_and_is_informed_once() -> None:
    given_s = 1_795_331_649.0
    changes = Changes(look("asleep", given_s - 1), run="a")
    events = changes.to(look("powering-up", given_s + 2))
    (start,) = [e for e in events if e.kind == "job_started"]
    assert (start.job_id, start.time_s, start.begins_s) == ("1", given_s + 2, given_s + 10)
    assert sum(e.kind == "node_powered" for e in events) == 4
    assert changes.to(look("powering-up", given_s + 4)) == []
    # It was expected to be there by then; its nodes are on, and the job began, 21 s after it got them.
    awake = look("powering-up", given_s + 30)
    nodes = tuple(
        n.model_copy(update={"power": NodePower(since_s=given_s + 20)}) for n in awake.nodes
    )
    job = awake.jobs[0].model_copy(update={"start_s": given_s + 21})
    events = changes.to(awake.model_copy(update={"nodes": nodes, "jobs": (job,)}))
    (again,) = [e for e in events if e.kind.startswith("job")]
    assert (again.kind, again.begins_s) == ("job_started", given_s + 21)


def test_nodes_that_sleep_are_named_as_slurm_names_nodes() -> None:
    with pytest.raises(ConfigError, match=r"manager, power.0.nodes: .*n\[1-"):
        SlurmSettings.checked(
            {
                "kind": "slurm",
                "power": [{"nodes": "n[1-", "power_w": 1, "idle_w": 1, "sleep": SLEEP}],
            },
            "manager",
        )
