"""Shared nodes against the plain reference under caps, control functions and modes set from outside."""

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
from tests.energy.adapter import powered
from tests.energy.powered import NODES
from tests.energy.test_outside_against_reference import (
    BACKFILLS,
    after_ten_seconds,
    compared,
    every_seven_seconds,
    platforms,
)
from tests.examples import examples
from tests.strategies import shared_workloads

MACHINE = Cluster.model_validate(
    {
        "nodes": [
            {"name": "a", "count": NODES - 2, "cores": 8, "memory_gb": 32},
            {"name": "b", "count": 2, "cores": 4, "memory_gb": 64, "gpus": 2},
        ]
    }
)
WORKLOADS = st.booleans().flatmap(
    lambda several: shared_workloads(MACHINE, max_jobs=12, per_node=False, several=several)
)


@settings(max_examples=examples(60))
@given(
    workload=WORKLOADS,
    platform=platforms(),
    kind=st.sampled_from(("none", "psus", "psas-auto", "psas-ipm")),
    timeout=st.sampled_from((0, 5)),
    overrun=st.sampled_from(("terminate", "continue")),
    changes=st.lists(
        st.tuples(
            st.integers(0, 150), st.sampled_from((0, 1)), st.sampled_from(("base", "slow", "fast"))
        ),
        max_size=5,
    ),
)
def test_modes_set_from_outside(
    workload: Workload,
    platform: Cluster,
    kind: str,
    timeout: int,
    overrun: str,
    changes: list[tuple[int, int, str]],
) -> None:
    power = PowerPolicy(kind, timeout)
    changes = sorted(changes, key=lambda change: change[0])
    compared(workload, platform, power, "first-fit", changes, overrun=overrun, cluster=MACHINE)


@settings(max_examples=examples(60))
@given(
    workload=WORKLOADS,
    platform=platforms(),
    kind=st.sampled_from(("none", "psus", "psas-auto", "psas-ipm")),
    backfill=st.sampled_from(BACKFILLS),
    watts=st.integers(500, 1500),
    more=st.integers(0, 400),
    window=st.tuples(st.integers(0, 40), st.integers(1, 60)),
    lower=st.booleans(),
)
def test_caps_by_the_time_of_day_and_with_lower_modes(
    workload: Workload,
    platform: Cluster,
    kind: str,
    backfill: str,
    watts: int,
    more: int,
    window: tuple[int, int],
    lower: bool,
) -> None:
    hourly = more and kind in ("none", "psas-ipm")
    windows = (CapWindow(window[0], sum(window), watts + more),) if hourly else ()
    cap = PowerCap(watts, windows, lower_modes=lower)
    power = PowerPolicy(kind, 5)
    try:
        powered(workload, platform, power, cap=cap, cluster=MACHINE)
    except ConfigError as error:
        assume("cap" not in str(error))
        raise
    compared(workload, platform, power, backfill, cap=cap, cluster=MACHINE)


def off_at_once(view: Any) -> Orders:
    """Off when nobody waits; on everything for who waits, as not every node is for everybody."""
    return Orders(on=view.nodes("sleeping")) if view.waiting else Orders(off=view.nodes("idle"))


@pytest.mark.parametrize("control", [off_at_once, after_ten_seconds, every_seven_seconds])
@settings(max_examples=examples(20))
@given(workload=WORKLOADS, platform=platforms(), backfill=st.sampled_from(BACKFILLS))
def test_control_functions(
    control: Any, workload: Workload, platform: Cluster, backfill: str
) -> None:
    compared(workload, platform, PowerPolicy("orders"), backfill, control=control, cluster=MACHINE)
