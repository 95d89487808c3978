"""Nodes that jobs share, with power states: the engine against the plain reference, to the joule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin.model import Cluster
from tests import strategies
from tests.energy.test_against_reference import KINDS, ORDERINGS, case_of, compared, powers_of
from tests.engine.examples import examples
from tests.engine.test_against_reference import name_of

BACKFILLS: list[dict[str, Any]] = [
    {"backfill": "none"},
    {"backfill": "first-fit"},
    {"backfill": "easy"},
    {"backfill": "easy", "reservations": 2, "candidates": "smallest"},
    {"backfill": "conservative"},
    {"backfill": "pack", "settings": {"depth": 3, "patience": 20}},
    {"backfill": "pbs", "settings": {"strict_ordering": True, "scheduler_iteration": 4}},
    {"backfill": "pushdown", "settings": {"parallel": "any", "adjacent": "any", "interval": 1}},
]
PAIRS = [
    pytest.param(kind, policy, id=f"{kind}-{name_of(policy)}")
    for kind in KINDS
    for policy in BACKFILLS
    if (kind, policy["backfill"]) != ("psas-ipm", "pushdown")
]


@st.composite
def machines(draw: st.DrawFn) -> tuple[Cluster, Cluster]:
    """Few nodes with cores, and what they draw."""
    cluster = draw(
        strategies.shared_clusters(
            outages=draw(st.booleans()), cleanup=draw(st.booleans())
        ).flatmap(strategies.racked)
    )
    return cluster, draw(powers_of(cluster))


@st.composite
def cases(draw: st.DrawFn, kind: str, orders: Sequence[str]) -> dict[str, Any]:
    machine = draw(machines())
    what = {name: draw(st.booleans()) for name in ("several", "grouped")}
    workload = draw(strategies.shared_workloads(machine[0], max_jobs=12, **what))
    return case_of(draw, kind, workload, machine, orders, ("first-fit", "best-fit", "spread"))


@pytest.mark.parametrize(("kind", "policy"), PAIRS)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_every_power_policy_switches_shared_nodes_and_divides_what_they_draw(
    kind: str, policy: dict[str, Any], data: st.DataObject
) -> None:
    # Who is pushed down has one priority for as long as it waits.
    kept = policy["backfill"] == "pushdown"
    orders = sorted(name for name, one in ORDERINGS.items() if not (kept and one.changes))
    compared(policy=policy, **data.draw(cases(kind, orders)))
