"""Shared nodes against the plain reference under caps, control functions and modes set from outside."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Workload
from hpctwin.energy import Orders
from hpctwin.model import Cluster
from hpctwin.policies import PowerPolicy
from tests.energy.powered import NODES
from tests.energy.test_outside_against_reference import (
    BACKFILLS,
    CAPS,
    MODES,
    after_ten_seconds,
    compared,
    compared_by_modes,
    compared_under_caps,
    every_seven_seconds,
    platforms,
)
from tests.engine.examples import examples
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
@given(case=st.fixed_dictionaries({"workload": WORKLOADS, **MODES}))
def test_modes_set_from_outside(case: dict[str, Any]) -> None:
    compared_by_modes(**case, cluster=MACHINE)


@settings(max_examples=examples(60))
@given(case=st.fixed_dictionaries({"workload": WORKLOADS, **CAPS}))
def test_caps_by_the_time_of_day_and_with_lower_modes(case: dict[str, Any]) -> None:
    compared_under_caps(**case, cluster=MACHINE)


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
