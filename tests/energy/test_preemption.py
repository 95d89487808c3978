"""Preemption and checkpoints where nodes have power states: by hand, and against the plain reference."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, write_workload
from hpctwin.cli import main
from hpctwin.energy import Energy
from hpctwin.errors import ConfigError, SimulationError
from hpctwin.policies import PowerPolicy
from tests.by_hand import jobs, labels
from tests.energy import test_outside_against_reference as outside
from tests.energy.powered import NODES
from tests.energy.test_against_reference import KINDS, case_of, compared, powers_of
from tests.engine import test_preemption as preempting
from tests.engine import test_suspension as suspending
from tests.engine.examples import examples
from tests.engine.test_against_reference import name_of
from tests.strategies import simple_workloads

MINUTE = 60
TIERS = {"low": {"tier": 0}, "high": {"tier": 1}}
NODE = {
    "modes": {"base": {"power_w": 200, "idle_w": 100}, "slow": {"power_w": 120, "speed": 0.5}},
    "sleep": [
        {
            "name": "off",
            "power_w": 10,
            "switch_off": {"time": 5 * MINUTE, "power_w": 50},
            "switch_on": {"time": 10 * MINUTE, "power_w": 150},
        }
    ],
}


def cluster(nodes: int, *, group: dict[str, Any] | None = None, **preemption: Any) -> Cluster:
    """Nodes that sleep, and a partition whose jobs preempt those of the other."""
    return Cluster.model_validate(
        {
            "nodes": [{"name": "n", "count": nodes, **NODE, **(group or {})}],
            "partitions": [{"name": "low", "default": True}, {"name": "high"}],
            "preemption": {"partitions": TIERS, **preemption},
        }
    )


def minutes(*rows: tuple[float, float, int, str], **columns: Any) -> Workload:
    """Jobs (submit and runtime in minutes, nodes, partition); walltimes are the runtimes."""
    return jobs(
        *((60 * submit, 60 * runtime, 60 * runtime, nodes) for submit, runtime, nodes, _ in rows),
        partition=labels(*(name for *_, name in rows)),
        **columns,
    )


def energy_of(workload: Workload, machine: Cluster, policy: str) -> Energy:
    energy = Simulation(workload, machine, policy, log=True).run().energy
    assert energy is not None
    return energy


def watt_minutes(joules: Any) -> Any:
    return (np.array(joules) / MINUTE).tolist()


THREE = ((0, 50, 3, "low"), (20, 10, 3, "high"), (200, 10, 4, "low"))
"""The second preempts the first; the third wakes all nodes."""


@pytest.mark.parametrize(
    ("mode", "total", "of_jobs"),
    [
        # Nodes 0 to 2 compute until 80, node 3 sleeps from 25 on; all wake from 200 to 210.
        # 200 W * (3 * 80 + 4 * 10) + 100 W * (3 * 20 + 20) + 4 * (50 W * 5 + 150 W * 10)
        # + 10 W * (3 * 95 + 175)
        ("requeue", 75_600, [200 * 3 * 70, 6000, 8000]),
        # Nodes 0 to 2 compute until 60: 20 minutes of 3 nodes sleeping for 20 of computing.
        ("suspend", 75_600 - 3 * 20 * 190, [200 * 3 * 50, 6000, 8000]),
        # Nodes 0 to 2 compute until 30.
        ("cancel", 75_600 - 3 * 50 * 190, [200 * 3 * 20, 6000, 8000]),
    ],
)
def test_three_jobs_by_hand(mode: str, total: float, of_jobs: list[float]) -> None:
    energy = energy_of(minutes(*THREE), cluster(4, mode=mode), "fcfs+easy~psus:20m")
    assert watt_minutes(energy.total_j) == pytest.approx(total)
    assert watt_minutes(energy.jobs["energy_j"]) == pytest.approx(of_jobs)


def test_the_command_prints_the_energy_of_the_three_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = minutes(*THREE)
    numbers = {"low": "1", "high": "2"}
    write_workload(
        workload.replace(partition=labels(*(numbers[name] for *_, name in THREE))),
        tmp_path / "trace.swf",
    )
    (tmp_path / "c.yaml").write_text("""
name: small
nodes:
  - name: n
    count: 4
    modes: {base: {power_w: 200, idle_w: 100}}
    sleep:
      - {power_w: 10, switch_off: {time: 5m, power_w: 50}, switch_on: {time: 10m, power_w: 150}}
partitions: [{name: "1", default: true}, {name: "2"}]
preemption: {partitions: {"1": {tier: 0}, "2": {tier: 1}}}
""")
    command = ["simulate", str(tmp_path / "trace.swf"), "--cluster", str(tmp_path / "c.yaml")]
    command += ["--partition-field", "queue", "--power", "psus:20m"]
    with pytest.raises(SystemExit) as stop:
        main(command)
    assert not stop.value.code
    told = capsys.readouterr().out
    # 75,600 W min, of which 8,000 idle, 1,000 while switching off and 6,000 on.
    assert "total energy 1.3 kWh" in " ".join(told.split())
    assert "wasted energy 0.2 kWh" in " ".join(told.split())
    with pytest.raises(SystemExit):
        main([*command, "--json"])
    summary = json.loads(capsys.readouterr().out)
    assert summary["preemptions"] == 1
    assert watt_minutes(summary["total_energy_j"]) == pytest.approx(75_600)
    assert watt_minutes(summary["wasted_energy_j"]) == pytest.approx(15_000)


def test_nodes_of_a_suspended_job_are_idle_and_never_switched_off() -> None:
    # Node 0 of the first job is taken from 10 to 40; node 1 has its memory, and is idle.
    workload = minutes((0, 20, 2, "low"), (10, 30, 1, "high"))
    energy = energy_of(workload, cluster(2, mode="suspend"), "fcfs+easy~psus:1m")
    spans = energy.spans()
    of_node = {0: [(1, 0, 50)], 1: [(1, 0, 10), (0, 10, 40), (1, 40, 50)]}
    for node, told in of_node.items():
        mine = spans[1:, spans[0] == node].T / [1, 60_000, 60_000]
        assert sorted(map(tuple, mine.tolist()), key=lambda span: span[1])[: len(told)] == told
    assert watt_minutes(energy.jobs["energy_j"]) == pytest.approx([200 * 2 * 20, 200 * 30])


def test_a_job_whose_nodes_are_still_switched_on_is_preempted_when_it_begins() -> None:
    # All nodes sleep from 6 on; the first job was given them at 20 and begins at 30.
    workload = minutes((0, 1, 1, "high"), (20, 20, 2, "low"), (25, 5, 2, "high"))
    result = Simulation(workload, cluster(2), "fcfs+easy~psus:0").run()
    assert result.jobs["start_s"].to_list() == [0, 35 * 60, 30 * 60]
    assert result.jobs["preempted_s"].to_list() == [0, 0, 0]


def test_a_checkpoint_saves_the_energy_of_the_work_it_keeps() -> None:
    workload = minutes((0, 50, 2, "low"), (25, 5, 2, "high"))
    for checkpoint, ran in ((None, 75), ("10m", 55)):
        machine = cluster(2, checkpoint=checkpoint)
        energy = energy_of(workload, machine, "fcfs+easy")
        assert watt_minutes(energy.jobs["energy_j"]) == pytest.approx([400 * ran, 400 * 5])


def test_a_suspended_job_on_a_shared_node_uses_and_holds_nothing() -> None:
    workload = minutes(
        (0, 20, 1, "low"),
        (10, 30, 1, "high"),
        chunks={"tasks": [1, 1], "cores_per_task": [8, 4], "memory_gb_per_task": [4.0, 4.0]},
    )
    machine = cluster(1, mode="suspend", group={"cores": 8, "memory_gb": 16})
    energy = energy_of(workload, machine, "fcfs+easy")
    # The second uses half of the node: 150 W.
    assert watt_minutes(energy.jobs["energy_j"]) == pytest.approx([200 * 20, 150 * 30])
    assert watt_minutes(energy.total_j) == pytest.approx(200 * 20 + 150 * 30)


def test_a_slower_mode_reaches_suspended_jobs_and_those_in_their_grace() -> None:
    workload = minutes((0, 20, 1, "low"), (10, 10, 1, "high"))
    workload = workload.replace(walltime_ms=np.full(2, 3_600_000))
    simulation = Simulation(workload, cluster(1, mode="suspend"), "fcfs+easy")
    simulation.advance(15 * MINUTE)
    simulation.set_mode("n", "slow")
    # Half of the second job is left, then half of the first.
    ends = simulation.run().jobs["end_s"].to_list()
    assert ends == [(10 + 5 + 10 + 20) * MINUTE, 25 * MINUTE]
    simulation = Simulation(workload, cluster(1, grace="5m"), "fcfs+easy")
    simulation.advance(12 * MINUTE)
    simulation.set_mode("n", "slow")
    assert simulation.run().jobs["start_s"].to_list() == [35 * MINUTE, 15 * MINUTE]


def test_modes_and_policies_that_do_not_go_with_it_are_rejected() -> None:
    workload = minutes(*THREE)
    with pytest.raises(ConfigError, match="'spars-ipm': it starts jobs itself"):
        Simulation(workload, cluster(4), "fcfs+none~spars-ipm:20m")
    machine = cluster(4, checkpoint="10m")
    with pytest.raises(SimulationError, match="modes cannot be set if jobs write checkpoints"):
        Simulation(workload, machine, "fcfs+easy").set_mode("n", "slow")
    cap = {"watts": 700, "lower_modes": True}
    with pytest.raises(ConfigError, match="remove 'lower_modes', or checkpoints"):
        Simulation(workload, Cluster.model_validate({**machine.model_dump(), "cap": cap}))


WHOLE = st.one_of(
    preempting.cases(),
    preempting.busy_cases(),
    preempting.impatient_cases(),
    suspending.cases(),
    suspending.busy_cases(),
)
SHARED = st.one_of(
    preempting.shared_cases(),
    preempting.crowded_cases(),
    suspending.shared_cases(),
    suspending.crowded_cases(),
)
PAIRS = [
    pytest.param(kind, policy, id=f"{kind}-{name_of(policy)}")
    for kind in KINDS
    for policy in preempting.POLICIES
    if (kind, policy["backfill"]) != ("psas-ipm", "pushdown")
]


def powered_case(draw: st.DrawFn, kind: str, case: dict[str, Any]) -> dict[str, Any]:
    """The jobs and the cluster of a case without power states, and what the nodes draw."""
    cluster = case["cluster"]
    machine = cluster, draw(powers_of(cluster))
    found = case_of(draw, kind, case["workload"], machine, preempting.ORDERS)
    return {**found, "overrun": case["overrun"]}


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
@pytest.mark.parametrize("cores", [{}, {"cores": 1}], ids=["whole", "shared"])
def test_psas_ipm_wakes_sleeping_nodes_for_a_job_that_may_preempt(
    backfill: str, cores: dict[str, int]
) -> None:
    """The nodes take 10 minutes to wake, and the plan wakes them once the job has arrived."""
    workload = minutes((0, 10, 2, "low"), (100, 10, 3, "high"), (300, 10, 1, "low"))
    policy = f"fcfs+{backfill}~psas-ipm:5m"
    result = Simulation(workload, cluster(4, group=cores), policy).run()
    assert watt_minutes(result.jobs["start_s"]) == [0, 110, 310]


@st.composite
def whole_cases(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    return powered_case(draw, kind, draw(WHOLE))


@st.composite
def shared_cases(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    return powered_case(draw, kind, draw(SHARED))


def lasting(policy: dict[str, Any], case: dict[str, Any]) -> dict[str, Any]:
    """The case; with an ordering that does not change while jobs wait if the backfill needs one."""
    changes = policy["backfill"] == "pushdown" and case["order"].changes
    return {**case, "order": preempting.ORDERINGS["sjf"]} if changes else case


@pytest.mark.parametrize(("kind", "policy"), PAIRS)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_nodes_follow_preempted_and_suspended_jobs(
    kind: str, policy: dict[str, Any], data: st.DataObject
) -> None:
    compared(policy=policy, **lasting(policy, data.draw(whole_cases(kind))))


@pytest.mark.parametrize(("kind", "policy"), PAIRS)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_shared_nodes_follow_preempted_and_suspended_jobs(
    kind: str, policy: dict[str, Any], data: st.DataObject
) -> None:
    compared(policy=policy, **lasting(policy, data.draw(shared_cases(kind))))


@st.composite
def urgent_cases(draw: st.DrawFn) -> dict[str, Any]:
    """Jobs of two partitions, and a cluster where those of one preempt those of the other."""
    workload = draw(simple_workloads(nodes=NODES, max_jobs=12))
    names = st.lists(st.sampled_from(("low", "low", "high")), min_size=12, max_size=12)
    content = {
        "nodes": [{"name": "a", "count": NODES - 2}, {"name": "b", "count": 2}],
        "partitions": [{"name": "low", "default": True}, {"name": "high"}],
        "preemption": {
            "partitions": TIERS,
            "mode": draw(st.sampled_from(("requeue", "cancel", "suspend"))),
            "grace": draw(st.sampled_from((0, 0, 5))),
            "exempt": draw(st.sampled_from((0, 0, 3))),
            "requeue_after": draw(st.sampled_from((0, 0, 4))),
        },
    }
    partition = labels(*draw(names)[: len(workload)])
    return {
        "workload": workload.replace(partition=partition),
        "cluster": Cluster.model_validate(content),
    }


@settings(max_examples=examples(90))
@given(case=urgent_cases(), how=st.fixed_dictionaries(outside.MODES))
def test_modes_set_from_outside(case: dict[str, Any], how: dict[str, Any]) -> None:
    outside.compared_by_modes(**case, **how)


@settings(max_examples=examples(90))
@given(
    case=urgent_cases(),
    how=st.fixed_dictionaries({**outside.CAPS, "backfill": st.sampled_from(preempting.BACKFILLS)}),
)
def test_caps(case: dict[str, Any], how: dict[str, Any]) -> None:
    outside.compared_under_caps(**case, **how)


@pytest.mark.parametrize("control", [outside.greedy, outside.after_ten_seconds])
@settings(max_examples=examples(60))
@given(
    case=urgent_cases(),
    platform=outside.platforms(),
    backfill=st.sampled_from(preempting.BACKFILLS),
)
def test_control_functions(
    control: Any, case: dict[str, Any], platform: Cluster, backfill: str
) -> None:
    power = PowerPolicy("orders")
    outside.compared(power=power, backfill=backfill, platform=platform, control=control, **case)


@settings(max_examples=examples(60))
@given(data=st.data(), times=st.lists(st.integers(0, 60), min_size=1, max_size=2))
def test_saved_and_forked_in_the_middle_it_continues_identically(
    data: st.DataObject, times: list[int]
) -> None:
    def in_parts(simulation: Simulation) -> Simulation:
        with TemporaryDirectory() as folder:
            for time in sorted(times):
                simulation.advance(time)
                twin = simulation.fork()
                simulation.advance()
                twin.save(Path(folder) / "simulation")
                simulation = Simulation.load(Path(folder) / "simulation", policy=simulation.policy)
        simulation.advance()
        return simulation

    shares = data.draw(st.booleans())
    kind, policy = data.draw(st.sampled_from([pair.values for pair in PAIRS]))
    case = data.draw(shared_cases(kind) if shares else whole_cases(kind))
    compared(policy=policy, run=in_parts, **lasting(policy, case))
