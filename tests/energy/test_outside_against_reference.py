"""The engine against the plain reference under caps, control functions and modes set from outside."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hpctwin import Workload
from hpctwin.energy import Orders
from hpctwin.errors import ConfigError
from hpctwin.model import CapWindow, Cluster, PowerCap
from hpctwin.policies import PowerPolicy
from tests.energy.adapter import outcome, powered, reference_outcome
from tests.energy.powered import NODES
from tests.energy.test_against_reference import same
from tests.engine.examples import examples
from tests.reference import fcfs
from tests.reference.powered import simulate_powered_reference
from tests.strategies import simple_workloads

BACKFILLS = ("none", "first-fit", "easy", "conservative")


@st.composite
def platforms(draw: st.DrawFn) -> Cluster:
    """Two groups of three modes, with one sleep state."""
    times = st.one_of(st.just(0), st.integers(1, 20))
    watts = st.integers(0, 100)
    groups = []
    for name, count in (("a", NODES - 2), ("b", 2)):
        speeds = {"base": 1.0, "slow": 0.7, "fast": draw(st.sampled_from((1.3, 2.0)))}
        groups.append(
            {
                "name": name,
                "count": count,
                "modes": {
                    mode: {
                        "power_w": 100 + round(100 * speed) + draw(st.integers(0, 20)),
                        "idle_w": 50 + draw(st.integers(0, 60)),
                        "speed": speed,
                    }
                    for mode, speed in speeds.items()
                },
                "mode": draw(st.sampled_from(("base", "slow", "fast"))),
                "sleep": [
                    {
                        "power_w": draw(watts),
                        "switch_off": {"time": draw(times), "power_w": draw(watts)},
                        "switch_on": {"time": draw(times), "power_w": draw(watts)},
                    }
                ],
            }
        )
    return Cluster.model_validate({"nodes": groups})


def compared(
    workload: Workload,
    platform: Cluster,
    power: PowerPolicy,
    backfill: str,
    changes: list[tuple[int, int, str]] = (),  # type: ignore[assignment]
    **options: Any,
) -> None:
    simulation = powered(workload, platform, power, backfill=backfill, **options)
    for at_s, group, mode in changes:
        simulation.advance(at_s)
        simulation.set_mode(platform.nodes[group].name, mode)
    simulation.run()

    def changing(group: int, mode: str) -> Any:
        return lambda reference: reference.set_mode(group, mode)

    reference = simulate_powered_reference(
        workload,
        platform,
        power,
        order=fcfs,
        backfill=backfill,
        commands=[(1000 * at_s, changing(group, mode)) for at_s, group, mode in changes],
        **options,
    )
    same(outcome(simulation.result().energy), reference_outcome(workload, reference))


MODES = {
    "platform": platforms(),
    "kind": st.sampled_from(("none", "psus", "psas-auto", "psas-ipm")),
    "timeout": st.sampled_from((0, 5)),
    "overrun": st.sampled_from(("terminate", "continue")),
    "changes": st.lists(
        st.tuples(
            st.integers(0, 150), st.sampled_from((0, 1)), st.sampled_from(("base", "slow", "fast"))
        ),
        max_size=5,
    ),
}
"""What is drawn of modes set from outside, beside the jobs."""

CAPS = {
    "platform": platforms(),
    "kind": st.sampled_from(("none", "psus", "psas-auto", "psas-ipm")),
    "backfill": st.sampled_from(BACKFILLS),
    "watts": st.integers(500, 1500),
    "more": st.integers(0, 400),
    "window": st.tuples(st.integers(0, 40), st.integers(1, 60)),
    "lower": st.booleans(),
}
"""What is drawn of caps, beside the jobs."""


def compared_by_modes(
    workload: Workload,
    platform: Cluster,
    kind: str,
    timeout: int,
    overrun: str,
    changes: list[tuple[int, int, str]],
    **options: Any,
) -> None:
    power = PowerPolicy(kind, timeout)
    changes = sorted(changes, key=lambda change: change[0])
    compared(workload, platform, power, "first-fit", changes, overrun=overrun, **options)


def compared_under_caps(
    workload: Workload,
    platform: Cluster,
    kind: str,
    backfill: str,
    watts: int,
    more: int,
    window: tuple[int, int],
    lower: bool,
    **options: Any,
) -> None:
    # By the hour it does not go with those whose jobs may begin later than planned.
    hourly = more and kind in ("none", "psas-ipm")
    windows = (CapWindow(window[0], sum(window), watts + more),) if hourly else ()
    cap = PowerCap(watts, windows, lower_modes=lower)
    power = PowerPolicy(kind, 5)
    try:
        powered(workload, platform, power, cap=cap, **options)
    except ConfigError as error:
        assume("cap" not in str(error))
        raise
    compared(workload, platform, power, backfill, cap=cap, **options)


WORKLOADS = simple_workloads(nodes=NODES, max_jobs=12)


@settings(max_examples=examples(60))
@given(case=st.fixed_dictionaries({"workload": WORKLOADS, **MODES}))
def test_modes_set_from_outside(case: dict[str, Any]) -> None:
    compared_by_modes(**case)


@settings(max_examples=examples(60))
@given(case=st.fixed_dictionaries({"workload": WORKLOADS, **CAPS}))
def test_caps_by_the_time_of_day_and_with_lower_modes(case: dict[str, Any]) -> None:
    compared_under_caps(**case)


def greedy(view: Any) -> Orders:
    """Off at once when nobody waits; on as many as wait for nodes."""
    wanted = sum(nodes for nodes, _, _ in view.waiting)
    if not wanted:
        return Orders(off=view.nodes("idle"))
    wanted -= len(view.nodes("idle")) + len(view.nodes("switching_on"))
    return Orders(on=view.nodes("sleeping")[: max(0, wanted)])


def after_ten_seconds(view: Any) -> Orders:
    """Off what has been idle for ten seconds; on everything for who waits."""
    idle = view.nodes("idle")
    over = [node for node in idle if view.since_s[node] > 9.9995]
    left = [view.now_s + 10 - view.since_s[node] for node in idle if view.since_s[node] <= 9.9995]
    return Orders(
        off=[] if view.waiting else over,
        on=view.nodes("sleeping") if view.waiting else [],
        next_call_s=min(left) if left else None,
    )


def every_seven_seconds(view: Any) -> Orders:
    """Off one node after the other while nobody waits; on all for who waits."""
    if view.waiting:
        return Orders(on=view.nodes("sleeping"), next_call_s=view.now_s + 7.0003)
    return Orders(off=view.nodes("idle")[-1:], next_call_s=view.now_s + 7.0003)


@pytest.mark.parametrize("control", [greedy, after_ten_seconds, every_seven_seconds])
@settings(max_examples=examples(30))
@given(workload=WORKLOADS, platform=platforms(), backfill=st.sampled_from(BACKFILLS))
def test_control_functions(
    control: Any, workload: Workload, platform: Cluster, backfill: str
) -> None:
    compared(workload, platform, PowerPolicy("orders"), backfill, control=control)
