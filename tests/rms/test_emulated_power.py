"""An emulated cluster whose nodes sleep, and what a twin of it expects."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation
from hpctwin.errors import ConfigError
from hpctwin.policies import Policy, make_policy
from hpctwin.rms.emulated import EmulatedCluster
from hpctwin.rms.records import events as ev
from hpctwin.rms.records.records import JobSpec, NodePower
from hpctwin.twin.core.core import Core
from hpctwin.twin.core.mirror import Mirror
from hpctwin.twin.emulated import emulated_cluster
from hpctwin.twin.journal.restore import Standing
from hpctwin.twin.settings.config import CoreSettings, TwinConfig
from hpctwin.twin.start_times.estimate import answer, picture
from tests import strategies
from tests.energy.powered import NODES, platforms, power_policies, uniform
from tests.examples import examples

ON = {"idle", "computing"}


def run_out(cluster: EmulatedCluster) -> None:
    while (due_s := cluster.next_time()) is not None:
        cluster.advance(due_s)


def job(number: int, nodes: int = 1, walltime_s: float = 60, **about: Any) -> JobSpec:
    return JobSpec(id=str(number), submit_s=0, nodes=nodes, walltime_s=walltime_s, **about)


@st.composite
def machines(draw: st.DrawFn) -> Cluster:
    """Machines with sleep states, at one speed."""
    drawn = draw(platforms())
    groups = []
    for group in drawn.nodes:
        mode = group.initial.model_copy(update={"speed": 1.0})
        groups.append(group.model_copy(update={"modes": {"base": mode}}))
    return drawn.model_copy(update={"nodes": tuple(groups)})


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    backfill = draw(st.sampled_from(("easy", "none", "first-fit")))
    return make_policy("fcfs", backfill, power=draw(power_policies()))


@settings(max_examples=examples(30))
@given(st.data())
def test_alone_it_schedules_and_switches_nodes_exactly_as_the_simulation(
    data: st.DataObject,
) -> None:
    machine, policy = data.draw(machines()), data.draw(policies())
    workload = data.draw(strategies.simple_workloads(NODES, max_jobs=15))
    # Power states of a simulation begin at the first submission, those of the emulated cluster at zero.
    workload = workload.replace(
        runtime_ms=workload.runtime_ms + 1000, submit_ms=workload.submit_ms - workload.submit_ms[0]
    )
    simulation = Simulation(workload, machine, policy, log=True)
    simulation.run()
    switched: list[ev.Event] = []
    emulated = emulated_cluster(
        machine, workload, policy=policy, record=True, publish=switched.append
    )
    run_out(emulated)
    assert {int(i): t for t, i, what in emulated.history or () if what == "started"} == dict(
        simulation.result().jobs.select("job_id", "start_s").iter_rows()
    )
    assert told(switched, emulated.now_s) == simulated(simulation)


def told(events: list[ev.Event], end_s: float) -> list[tuple[Any, ...]]:
    """Node, state and time of all changes that events tell of, before the end."""
    found = {}
    for event in events:
        if isinstance(event, ev.NodePowered) and event.time_s < end_s:
            name = event.power.state + (
                f" {event.power.depth}" if event.power.state != "on" else ""
            )
            # States that last no time are not in a log.
            found[int(event.node_name[1:]) - 1, event.time_s] = name
    return only_changes([(node, name, time_s) for (node, time_s), name in found.items()])


def simulated(simulation: Simulation) -> list[tuple[Any, ...]]:
    """As `told`, of the log of a simulation."""
    log = simulation.result().energy.spans()  # type: ignore[union-attr]
    names = ("on", "on", "switching_off {}", "asleep {}", "switching_on {}")
    found = []
    for node, state, start_ms, _ in zip(*(column.tolist() for column in log), strict=True):
        depth, kind = divmod(state - 2, 3) if state > 1 else (0, state - 2)
        found.append((node, names[kind + 2].format(depth), start_ms / 1000))
    return only_changes(found)


def only_changes(states: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The first of several equal states in a row of a node; that all are on at first is left out."""
    found = []
    for _, row in groupby(sorted(states, key=lambda s: (s[0], s[2])), key=lambda s: s[0]):
        before = "on"
        for state in row:
            if state[1] != before:
                found.append(state)
            before = state[1]
    return found


@settings(max_examples=examples(20))
@given(st.data())
def test_forecasts_for_a_cluster_with_sleeping_nodes_come_true(
    data: st.DataObject,
) -> None:
    machine, policy = data.draw(machines()), data.draw(policies())
    workload = data.draw(strategies.simple_workloads(NODES, max_jobs=12))
    # Nothing is known of a job's length but its walltime: so it is as long.
    workload = workload.replace(
        walltime_ms=workload.runtime_ms + 1000, runtime_ms=workload.runtime_ms + 1000
    )
    emulated = emulated_cluster(machine, workload, policy=policy, record=True)
    emulated.advance(float(workload.submit_ms.max()) / 1000 + data.draw(st.integers(0, 60)))
    core = Core(CoreSettings(pool=("fcfs+easy",)))
    core.take_snapshot(emulated.snapshot())
    present = core.present(emulated.now_s, policy)
    ahead = present.fork()
    ahead.advance()
    rows = [*present.waiting.tolist(), *present.running.tolist()]
    expected = {present.ids[row]: int(ahead.column("start")[row]) / 1000 for row in rows}
    run_out(emulated)
    began = {i: t for t, i, what in emulated.history or () if what == "started"}
    assert {i: began[i] for i in expected} == expected


@settings(max_examples=examples(20))
@given(st.data())
def test_a_mirror_fed_by_events_equals_a_snapshot_of_the_cluster(
    data: st.DataObject,
) -> None:
    machine, policy = data.draw(machines()), data.draw(policies())
    workload = data.draw(strategies.workloads(machine, max_jobs=12, resources=False))
    events: list[ev.Event] = []
    emulated = emulated_cluster(machine, workload, policy=policy, publish=events.append)
    mirror = Mirror(emulated.snapshot())
    while (due_s := emulated.next_time()) is not None:
        emulated.advance(due_s)
        while events:
            assert mirror.take(events.pop(0))[0] == "applied"
        now = emulated.snapshot()
        assert mirror.difference(now) == []
        assert [node.power for node in mirror.nodes.values()] == [n.power for n in now.nodes]


def asleep(nodes: int = 4) -> EmulatedCluster:
    """A cluster of nodes that have gone to sleep: they take 4 s to do so and 7 s to wake."""
    cluster = emulated_cluster(uniform(nodes), policy="fcfs+easy~psus:10", record=True)
    cluster.advance(20)
    return cluster


def test_a_job_on_sleeping_nodes_starts_when_they_are_on_and_says_so_at_once() -> None:
    cluster = asleep()
    assert {node.power for node in cluster.nodes.records} == {NodePower(state="asleep", since_s=14)}
    cluster.submit(job(1, 2), 50)
    cluster.schedule()
    record = cluster.snapshot().jobs[0]
    assert (record.start_s, record.node_names) == (27, ("n0001", "n0002"))
    assert [node.power.state for node in cluster.nodes.records if node.power] == [
        "switching_on", "switching_on", "asleep", "asleep",
    ]  # fmt: skip
    run_out(cluster)
    assert [entry for entry in cluster.history or () if entry[1] == "1"] == [
        (20, "1", "submitted"), (27, "1", "started"), (77, "1", "exit"),
    ]  # fmt: skip


def test_waiting_for_a_start_lasts_until_the_nodes_are_on() -> None:
    cluster = asleep()
    cluster.submit(job(1), 50)
    cluster.submit(job(2, dependencies=({"on": "1", "kind": "after"},)), 10)
    cluster.schedule()
    run_out(cluster)
    assert (34, "2", "started") in (cluster.history or ())


def test_a_job_cancelled_before_its_nodes_are_on_never_started_and_they_still_switch_on() -> None:
    cluster = asleep()
    cluster.submit(job(1), 50)
    cluster.schedule()
    cluster.advance(22)
    cluster.cancel("1")
    cluster.submit(job(2, 4), 10)
    cluster.schedule()
    run_out(cluster)
    happened = [what for _, i, what in cluster.history or () if i == "1"]
    assert happened == ["submitted", "cancelled"]
    # One is on at 27 already, the others are woken at 22.
    assert (29, "2", "started") in (cluster.history or ())


def test_a_twin_that_starts_jobs_itself_wakes_the_nodes_that_the_cluster_gives() -> None:
    cluster = asleep()
    assert cluster.take_scheduling().result == "done"
    cluster.submit(job(1, 3), 50)
    core = Core(CoreSettings(pool=("fcfs+easy~psus:10", "sjf+easy~psus:10")))
    core.take_snapshot(cluster.snapshot())
    decision = core.decide(cluster.now_s)
    assert decision is not None
    assert decision.starts == ("1",)
    assert [f.start_s for f in decision.forecasts] == [27]
    assert cluster.start("1").result == "done"
    run_out(cluster)
    assert (27, "1", "started") in (cluster.history or ())


def test_a_cluster_that_wakes_nodes_for_its_own_plan_does_not_hand_over_scheduling() -> None:
    cluster = emulated_cluster(uniform(4), policy="fcfs+easy~psas-ipm:10")
    outcome = cluster.take_scheduling()
    assert outcome.result == "refused"
    assert "own scheduling decides which nodes" in outcome.reason


def test_what_ifs_count_energy_and_the_objective_may_ask_for_it() -> None:
    cluster = emulated_cluster(uniform(4), policy="fcfs+easy~psus:10")
    cluster.submit(job(1, 4, 100), 100)
    cluster.submit(job(2, 1, 1000), 1000)
    pool = ("fcfs+easy", "fcfs+easy~psus:10")
    core = Core(CoreSettings(pool=pool, objective={"weights": {"total_energy_j": 1}}))
    core.take_snapshot(cluster.snapshot())
    decision = core.decide(cluster.now_s)
    assert decision is not None
    assert decision.policy == "fcfs+easy~psus:10s"
    # 4 nodes compute 100 s; then one computes 1000 s, and three are idle, or for 10 s, off in 4, asleep.
    always_on = 4 * 100 * 200 + 1000 * (200 + 3 * 100)
    slept = 4 * 100 * 200 + 1000 * 200 + 3 * (10 * 100 + 4 * 50 + 986 * 10)
    assert [c.metrics["total_energy_j"] for c in decision.candidates] == [always_on, slept]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"pool": ["fcfs+easy~psus:10"]}, "policy fcfs+easy~psus:10s switches nodes"),
        (
            {"objective": {"weights": {"total_energy_j": 1}}},
            "the objective uses total_energy_j",
        ),
    ],
)
def test_a_cluster_that_reports_no_power_is_not_asked_for_it(
    settings: dict[str, Any], says: str
) -> None:
    cluster = emulated_cluster(Cluster.uniform(4))
    cluster.submit(job(1), 50)
    core = Core(CoreSettings.model_validate(settings))
    core.take_snapshot(cluster.snapshot())
    with pytest.raises(
        ConfigError, match=re.escape(f"{says}, but cluster 'cluster' does not report")
    ):
        core.decide(0)


@pytest.mark.parametrize(
    ("pool", "says"),
    [
        (["fcfs+easy", "fcfs+easy~psus:20m"], "have different power policies"),
        (["fcfs+easy~psas-ipm:20m"], "'psas-ipm' wakes nodes for pending jobs"),
        (["fcfs+easy~orders"], "the twin switches no nodes"),
    ],
)
def test_a_twin_that_acts_rejects_by_name_what_only_the_cluster_can_do(
    pool: list[str], says: str
) -> None:
    content = {"manager": {"kind": "emulated", "address": "a"}, "core": {"pool": pool}}
    with pytest.raises(ConfigError, match=says):
        TwinConfig.of({**content, "act": {"mode": "act"}})
    if "orders" not in pool[0]:
        assert TwinConfig.of(content).core.pool == tuple(pool)


def test_when_reports_that_nodes_must_be_switched_on_first() -> None:
    cluster = asleep()
    cluster.take_scheduling()
    cluster.submit(job(1, 3), 50)
    core = Core(CoreSettings(pool=("fcfs+easy~psus:10",)))
    core.take_snapshot(cluster.snapshot())
    stands = Standing(core, cluster.now_s, core.policy, False, {"not_read": []})
    when = answer(picture(stands, "a test"), "1").when
    assert (when.state, when.start_s) == ("waiting", 27)
    assert "4 nodes are free, none of them switched on: it starts when enough are on." in when.why
