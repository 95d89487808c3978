"""Any machine under any policy, interrupted in any way: as the reference has it, and as if it were not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hpctwin import Simulation, compare
from hpctwin.engine.passes import PASSES
from hpctwin.errors import ConfigError
from hpctwin.model import CapWindow, PowerCap
from hpctwin.policies import PLACEMENTS, find_placement, make_policy, ordering
from tests.energy.adapter import outcome, powered
from tests.energy.test_against_reference import BACKFILLS as KNOWN_TO_THE_REFERENCE
from tests.energy.test_against_reference import KINDS, cases, compared, run_through
from tests.examples import examples

Times = Sequence[int]


def in_parts(simulation: Simulation, times: Times) -> Simulation:
    """Stopped at some times, which need not be those of events."""
    for time in times:
        simulation.advance(time)
    return run_through(simulation)


def in_steps(simulation: Simulation, times: Times) -> Simulation:
    """Some instants at a time."""
    for time in times:
        simulation.advance(instants=time % 5)
    return run_through(simulation)


def forked(simulation: Simulation, times: Times) -> Simulation:
    """A fork of a fork, after the simulations that they are forks of have gone on to their ends."""
    for time in times[:2]:
        simulation.advance(time)
        twin = simulation.fork()
        simulation.advance()
        simulation = twin
    return run_through(simulation)


def saved(simulation: Simulation, times: Times) -> Simulation:
    """Written to a file and read again."""
    with TemporaryDirectory() as folder:
        for time in times[:2]:
            simulation.advance(time)
            simulation.save(Path(folder) / "simulation")
            # Functions of one's own are not in the file.
            simulation = Simulation.load(Path(folder) / "simulation", policy=simulation.policy)
    return run_through(simulation)


@ordering
def narrow_first(now: float, job: Any) -> float:
    """An ordering of one's own."""
    return float(job.nodes)


def highest_first(now: float, job: Any, node: Any) -> float:
    """A placement of one's own."""
    return -float(node.number)


HIGHEST_FIRST = find_placement(highest_first)  # compiled once for all examples

# Those that come with hpctwin, whatever other tests have registered.
OWN_BACKFILLS = sorted(PASSES.own())
INTERRUPTIONS: list[Callable[[Simulation, Times], Simulation]] = [in_parts, in_steps, forked, saved]


@st.composite
def caps(draw: st.DrawFn, kind: str) -> PowerCap | None:
    """None, or a cap; by the time of day where the plan knows when jobs begin."""
    if draw(st.booleans()):
        return None
    watts = draw(st.integers(500, 4000))
    start = draw(st.integers(0, 40))
    windows = (
        CapWindow(start, start + draw(st.integers(1, 60)), watts + draw(st.integers(1, 900))),
    )
    known = kind in ("none", "psas-ipm") and draw(st.booleans())
    return PowerCap(watts, windows if known else (), lower_modes=draw(st.booleans()))


def interruptions() -> st.SearchStrategy[tuple[Any, list[int]]]:
    """How, and when."""
    times = st.lists(st.integers(0, 120), min_size=1, max_size=4).map(sorted)
    return st.tuples(st.sampled_from(INTERRUPTIONS), times)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_interrupted_or_not_it_is_as_the_reference_has_it(kind: str, data: st.DataObject) -> None:
    """Power policy, backfill, cap, failures, maintenance, partitions, resources, dependencies."""
    case = data.draw(cases(kind))
    cap = data.draw(caps(kind))
    policy = data.draw(st.sampled_from(KNOWN_TO_THE_REFERENCE).map(dict), label="policy")
    how, times = data.draw(interruptions(), label="interruption")
    if cap is not None:
        possible(case, policy, cap)
    compared(policy=policy, cap=cap, run=lambda one: how(one, times), **case)


# Few draws fit; a list here stands in place of that of all tests, which leaves busy machines their time.
RARE = [HealthCheck.filter_too_much, HealthCheck.too_slow]


@pytest.mark.parametrize("backfill", OWN_BACKFILLS)
@settings(max_examples=examples(40), suppress_health_check=RARE)
@given(data=st.data())
def test_interrupted_it_is_as_without(backfill: str, data: st.DataObject) -> None:
    """Every backfill with every placement, also those that the reference does not know, and own functions."""
    kind = data.draw(st.sampled_from(KINDS))
    case = data.draw(cases(kind))
    cap = data.draw(caps(kind))
    case["placement"] = data.draw(st.sampled_from([*sorted(PLACEMENTS), HIGHEST_FIRST]))
    case["order"] = data.draw(st.sampled_from([case["order"], narrow_first]))
    how, times = data.draw(interruptions(), label="interruption")
    found = [possible(case, {"backfill": backfill}, cap) for _ in range(2)]
    assert outcome(run_through(found[0]).result().energy) == outcome(
        how(found[1], times).result().energy
    )


@pytest.mark.parametrize("kind", KINDS)
# Much has no meaning together, and is left out.
@settings(max_examples=examples(15), suppress_health_check=RARE)
@given(data=st.data())
def test_compared_at_once_policies_are_as_each_alone(kind: str, data: st.DataObject) -> None:
    """Orderings and placements of one's own among them, with power, failures, maintenance and partitions."""
    case = data.draw(cases(kind))
    alone: dict[str, Simulation] = {}
    for _ in range(data.draw(st.integers(2, 3))):
        case["placement"] = data.draw(st.sampled_from([*sorted(PLACEMENTS), HIGHEST_FIRST]))
        order = data.draw(st.sampled_from([case["order"], narrow_first]))
        backfill = data.draw(st.sampled_from(OWN_BACKFILLS))
        one = possible({**case, "order": order}, {"backfill": backfill}, None)
        alone[one.policy.name] = run_through(one)
    first = next(iter(alone.values()))
    together = compare(
        first.workload,
        first.cluster,
        [one.policy for one in alone.values()],
        overrun=case["overrun"],
        expected_s=None if case["expected_ms"] is None else [m / 1000 for m in case["expected_ms"]],
    )
    for name, one in alone.items():
        assert together[name].jobs.equals(one.result().jobs)


def possible(case: dict[str, Any], policy: dict[str, Any], cap: PowerCap | None) -> Simulation:
    """The simulation of a case, if its parts go together."""
    # Nodes are woken for those that wait, again and again for ten years: nobody starts them.
    left_alone = policy["backfill"] in ("outside", "selected")
    assume(not left_alone or case["power"].kind != "psas-ipm")
    given_parts = {
        key: case[key] for key in ("workload", "platform", "power", "cluster", "overrun")
    }
    expected = case["expected_ms"]
    try:
        chosen = make_policy(case["order"], **policy, placement=case["placement"])
        return powered(
            **given_parts,
            policy=chosen,
            cap=cap,
            expected_s=None if expected is None else [ms / 1000 for ms in expected],
        )
    except ConfigError:
        assume(False)
        raise
