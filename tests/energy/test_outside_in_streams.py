"""A stream under caps that lower modes and under control functions: job by job as in memory."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, simulate_stream
from hpctwin.energy import Orders
from hpctwin.energy.power.states import (
    ModeChange,
    folded,
    mode_rows,
    node_watts,
    slowest,
    time_by_mode,
)
from hpctwin.engine.state.layout import COMPUTING, IDLE
from hpctwin.errors import ConfigError
from hpctwin.model import CapWindow, PowerCap
from hpctwin.policies import PowerPolicy, make_policy
from tests.energy.powered import NODES, joined
from tests.energy.test_against_reference import powers_of
from tests.energy.test_outside_against_reference import (
    BACKFILLS,
    after_ten_seconds,
    every_seven_seconds,
    platforms,
)
from tests.energy.test_preemption import urgent_cases
from tests.energy.test_shared_outside_against_reference import MACHINE, off_at_once
from tests.engine.test_preemption import with_checkpoints
from tests.engine.test_suspension import crowded_cases
from tests.examples import each, examples
from tests.simulation.test_streamed import BATCHES, compared, same
from tests.strategies import shared_workloads, workloads


@st.composite
def caps(draw: st.DrawFn, *, hourly: bool) -> PowerCap:
    """Caps that lower modes, by the time of day where the plan knows when jobs begin."""
    watts, start = draw(st.integers(600, 1500)), draw(st.integers(0, 40))
    window = CapWindow(start, start + draw(st.integers(1, 60)), watts + draw(st.integers(1, 400)))
    return PowerCap(watts, (window,) if hourly else (), lower_modes=True)


@st.composite
def machines(draw: st.DrawFn, *, shared: bool) -> Cluster:
    """Nodes of three modes, some with maintenance, failures or cleanup."""
    content = joined(draw(platforms()), MACHINE if shared else None).model_dump()
    times = st.tuples(st.integers(0, 60), st.integers(1, 30))
    if draw(st.booleans()):
        start, length = draw(times)
        content["reservations"] = [{"start": start, "end": start + length, "nodes": "0-1"}]
    if draw(st.booleans()):
        start, length = draw(times)
        outage = {"node": draw(st.integers(0, NODES - 1)), "start": start, "duration": length}
        content["failures"] = {"outages": [outage], "on_failure": "requeue"}
    content["cleanup"] = draw(st.sampled_from((0, 0, 7)))
    return Cluster.model_validate(content)


def drawn_jobs(draw: st.DrawFn, machine: Cluster, *, shared: bool) -> Workload:
    if shared:
        return draw(shared_workloads(machine, max_jobs=15, several=draw(st.booleans())))
    return draw(workloads(machine, resources=False, per_node=False))


@settings(max_examples=examples(60))
@given(data=st.data(), batch=st.sampled_from(BATCHES))
@each("shared", (False, True))
def test_a_stream_under_a_cap_that_lowers_modes(
    shared: bool, data: st.DataObject, batch: int
) -> None:
    """Jobs of several batches are slowed down together, and sped up again."""
    kind = data.draw(st.sampled_from(("none", "psus", "psas-auto", "psas-ipm")))
    machine = data.draw(machines(shared=shared))
    cap = data.draw(caps(hourly=kind in ("none", "psas-ipm") and data.draw(st.booleans())))
    machine = machine.model_copy(update={"cap": cap})
    workload = drawn_jobs(data.draw, machine, shared=shared)
    policy = make_policy("fcfs", data.draw(st.sampled_from(BACKFILLS)), power=PowerPolicy(kind, 5))
    overrun = data.draw(st.sampled_from(("terminate", "continue")))
    try:
        Simulation(workload, machine, policy)
    except ConfigError as error:
        assume("power cap" not in str(error))
        raise
    compared(workload, machine, policy, batch=batch, overrun=overrun)


def capped(draw: st.DrawFn, machine: Cluster) -> Cluster:
    """The cluster under a cap that every job fits under with the lowest modes."""
    drawn = node_watts(slowest(machine))
    above = max(0.0, float((drawn[COMPUTING] - drawn[IDLE]).max()))
    least = float(drawn[IDLE].sum()) + machine.node_count * (above + 1)
    cap = PowerCap(least + draw(st.integers(0, 100 * machine.node_count)), lower_modes=True)
    return machine.model_copy(update={"cap": cap})


@settings(max_examples=examples(30))
@given(data=st.data(), batch=st.sampled_from(BATCHES))
@pytest.mark.parametrize("cases", [urgent_cases(), crowded_cases()], ids=("whole", "shared"))
def test_a_stream_with_preemption_under_a_cap_that_lowers_modes(
    cases: Any, data: st.DataObject, batch: int
) -> None:
    """Some jobs are requeued or suspended while modes change."""
    case = data.draw(cases)
    machine = joined(data.draw(powers_of(case["cluster"])), case["cluster"])
    backfill = data.draw(st.sampled_from(("easy", "conservative")))
    workload = case["workload"].replace(checkpoint_ms=np.zeros(len(case["workload"]), np.int64))
    compared(workload, capped(data.draw, machine), "fcfs", backfill, batch=batch)


class Noted:
    """A control function that keeps all that it has seen, and leaves the orders to another."""

    def __init__(self, control: Any) -> None:
        self.control, self.seen = control, []

    def __call__(self, view: Any) -> Orders:
        self.seen.append((view.now_s, view.due, view.states.tolist(), view.waiting))
        return self.control(view)


CONTROLS = (off_at_once, after_ten_seconds, every_seven_seconds)


def under_control(workload: Workload, machine: Cluster, control: Any, batch: int) -> None:
    """Both call the function at the same times, and show it the same."""
    noted = Noted(control)
    policy = make_policy("fcfs+easy", power=PowerPolicy("orders", control=noted))
    expected = Simulation(workload, machine, policy).run()
    seen, noted.seen = noted.seen, []
    with TemporaryDirectory() as folder:
        same(simulate_stream(workload, machine, policy, out=folder, batch=batch), expected)
    assert noted.seen == seen


@settings(max_examples=examples(40))
@given(data=st.data(), batch=st.sampled_from(BATCHES))
@each("shared", (False, True))
def test_a_stream_under_a_control_function(shared: bool, data: st.DataObject, batch: int) -> None:
    """It may keep state of its own: it is called as often as in memory, in the same order."""
    machine = data.draw(machines(shared=shared))
    workload = drawn_jobs(data.draw, machine, shared=shared)
    under_control(workload, machine, data.draw(st.sampled_from(CONTROLS)), batch)


@settings(max_examples=examples(60))
@given(data=st.data(), platform=platforms(), batch=st.sampled_from(BATCHES))
def test_a_stream_with_preemption_under_a_control_function(
    data: st.DataObject, platform: Cluster, batch: int
) -> None:
    """Some jobs continue from checkpoints."""
    case = data.draw(urgent_cases())
    workload = with_checkpoints(data.draw, case["workload"])
    control = data.draw(st.sampled_from(CONTROLS))
    under_control(workload, joined(platform, case["cluster"]), control, batch)


CHANGES = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(("base", "slow", "fast")), st.integers(0, 9)),
    max_size=30,
)


@given(platform=platforms(), changes=CHANGES, until_ms=st.integers(-1, 200))
def test_folded_changes_have_the_same_times_in_modes(
    platform: Cluster, changes: list[tuple[int, str, int]], until_ms: int
) -> None:
    """And are few, of which those after the time are the same."""
    time, made = 0, []
    for group, mode, later in changes:
        time += later
        spent = np.arange(NODES) % 3 * time // 2
        made.append(ModeChange(time, group, mode, np.stack([time - spent, spent])))
    spent_ms = np.stack([np.full(NODES, 90), np.full(NODES, time), *np.zeros((3, NODES), int)])
    few = folded(platform, made, until_ms)
    assert list(mode_rows(platform, few)) == list(mode_rows(platform, made))
    expected = time_by_mode(platform, made, spent_ms)
    assert (time_by_mode(platform, few, spent_ms) == expected).all()
    later = [change for change in made if change.time_ms > until_ms]
    assert list(few[len(few) - len(later) :]) == later
    assert len(few) - len(later) <= 2 * 4


def test_a_long_stream_keeps_few_mode_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 300
    workload = Workload.build(
        submit_s=np.arange(count) * 100, runtime_s=np.full(count, 20), nodes=np.full(count, 4)
    )
    modes = {"base": {"power_w": 200, "idle_w": 50}, "slow": {"power_w": 100, "speed": 0.5}}
    machine = Cluster.model_validate(
        {
            "nodes": [{"name": "n", "count": 4, "modes": modes}],
            "cap": PowerCap(500, lower_modes=True),
        }
    )
    kept, replace = [], Simulation.replace_ended_jobs

    def noted(self: Simulation, *args: Any, **options: Any) -> None:
        replace(self, *args, **options)
        kept.append(len(self.outside.changes))

    monkeypatch.setattr(Simulation, "replace_ended_jobs", noted)
    whole = Simulation(workload, machine, overrun="continue")
    expected = whole.run()
    assert len(whole.outside.changes) >= 2 * count - 1
    found = simulate_stream(workload, machine, out=tmp_path, batch=10, overrun="continue")
    same(found, expected)
    assert max(kept) <= 2 + 2 * 10
