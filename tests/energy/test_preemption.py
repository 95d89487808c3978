"""Preemption and checkpoints where nodes have power states: by hand, and against the plain reference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.energy.test_against_reference import KINDS, case_of, compared, powers_of
from tests.engine import test_preemption as preempting
from tests.engine import test_suspension as suspending
from tests.engine.examples import examples
from tests.engine.test_against_reference import name_of

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
]


def powered_case(draw: st.DrawFn, kind: str, case: dict[str, Any]) -> dict[str, Any]:
    """The jobs and the cluster of a case without power states, and what the nodes draw."""
    cluster = case["cluster"]
    machine = cluster, draw(powers_of(cluster))
    found = case_of(draw, kind, case["workload"], machine, preempting.ORDERS)
    return {**found, "overrun": case["overrun"]}


@st.composite
def whole_cases(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    return powered_case(draw, kind, draw(WHOLE))


@st.composite
def shared_cases(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    return powered_case(draw, kind, draw(SHARED))


@pytest.mark.parametrize(("kind", "policy"), PAIRS)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_nodes_follow_preempted_and_suspended_jobs(
    kind: str, policy: dict[str, Any], data: st.DataObject
) -> None:
    compared(policy=policy, **data.draw(whole_cases(kind)))


@pytest.mark.parametrize(("kind", "policy"), PAIRS)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_shared_nodes_follow_preempted_and_suspended_jobs(
    kind: str, policy: dict[str, Any], data: st.DataObject
) -> None:
    compared(policy=policy, **data.draw(shared_cases(kind)))
