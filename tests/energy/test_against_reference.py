"""The engine against the plain reference where nodes have power states, job by job and node by node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Simulation, Workload
from hpctwin.model import Cluster
from hpctwin.policies import BUILT_IN, Ordering, PowerPolicy, formula, make_policy
from tests import strategies
from tests.energy.adapter import outcome, powered, reference_outcome
from tests.engine.examples import examples
from tests.engine.test_against_reference import as_reference, name_of
from tests.reference.powered import simulate_powered_reference

ORDERINGS = {
    **{name: BUILT_IN[name] for name in ("fcfs", "sjf", "wfp", "largest")},
    "fairshare": formula("floor(0.5 - fairshare * 1000000)"),
    "formula": formula("nodes - wait/walltime"),
}
BACKFILLS: list[dict[str, Any]] = [
    {"backfill": "none"},
    {"backfill": "first-fit"},
    {"backfill": "easy"},
    {"backfill": "easy", "reservations": 2, "candidates": "smallest"},
    {"backfill": "conservative"},
    {"backfill": "pack", "settings": {"depth": 3, "patience": 20}},
    {"backfill": "slurm", "settings": {"bf_interval": 3, "bf_resolution": 2}},
    {"backfill": "pbs", "settings": {"strict_ordering": True, "scheduler_iteration": 4}},
]
KINDS = ("none", "psus", "psas-auto", "psas-ipm")


PAIRS = [
    pytest.param(kind, policy, id=f"{kind}-{name_of(policy)}")
    for kind in KINDS
    for policy in BACKFILLS
]


def run_through(simulation: Simulation) -> Simulation:
    """In one go."""
    simulation.advance()
    return simulation


def compared(
    workload: Workload,
    platform: Cluster,
    power: PowerPolicy,
    order: Ordering,
    policy: dict[str, Any],
    cluster: Cluster | None = None,
    run: Callable[[Simulation], Simulation] = run_through,
    **options: Any,
) -> None:
    """Whether the engine gives what the reference does.

    Args:
        workload, platform, power, order, policy, cluster: what is simulated.
        run: runs the engine's simulation to its end, in whatever way.
        options: of both.
    """
    placement = options.pop("placement", "first-fit")
    expected = options.pop("expected_ms", None)
    chosen = make_policy(order, **policy, placement=placement)
    simulation = powered(
        workload,
        platform,
        power,
        policy=chosen,
        cluster=cluster,
        expected_s=None if expected is None else [ms / 1000 for ms in expected],
        **options,
    )
    mine = outcome(run(simulation).result().energy)
    reference = simulate_powered_reference(
        workload,
        platform,
        power,
        cluster=cluster,
        order=as_reference(chosen.order),
        backfill=chosen.backfill,
        reservations=chosen.setting("reservations") or 1,
        candidate_order=as_reference(chosen.candidates),
        depth=chosen.setting("depth") or 0,
        patience_ms=round((chosen.setting("patience") or 0) * 1000),
        settings=chosen.numbers(),
        placement=placement.replace("-", "_"),
        expected_ms=expected,
        **options,
    )
    theirs = reference_outcome(workload, reference)
    same(mine, theirs)


def same(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Times and nodes to the millisecond, energies to the joule and better."""
    jobs = {
        job: {"engine": mine["jobs"][job], "reference": row}
        for job, row in theirs["jobs"].items()
        if mine["jobs"][job] != row
    }
    nodes = {
        number: {"engine": mine["nodes"][number], "reference": spans}
        for number, spans in enumerate(theirs["nodes"])
        if mine["nodes"][number] != spans
    }
    assert not jobs, f"jobs differ: {jobs}\nnodes: {nodes}"
    assert not nodes, f"nodes differ: {nodes}"
    assert mine["node_j"] == pytest.approx(theirs["node_j"], abs=1e-6)
    assert mine["job_j"] == pytest.approx(theirs["job_j"], abs=1e-6)


@st.composite
def machines(draw: st.DrawFn) -> tuple[Cluster, Cluster]:
    """A cluster with partitions, resources, maintenance, failures, and 0 to 3 sleep states, modes."""
    # What has several pools or a resource never comes to where counting decides.
    several = draw(st.integers(0, 3)) > 0
    what = dict.fromkeys(("groups", "partitions", "resources", "maintenance"), several)
    what["cleanup"] = draw(st.booleans())
    cluster = draw(strategies.clusters(max_nodes=10, outages=draw(st.booleans()), **what))
    return cluster, draw(powers_of(cluster))


@st.composite
def powers_of(draw: st.DrawFn, cluster: Cluster) -> Cluster:
    """What the nodes of a cluster draw in 0 to 3 sleep states and in modes."""
    watts = st.integers(0, 300)
    times = st.one_of(st.just(0), st.integers(0, 20), st.just(60))
    groups = []
    for group in cluster.nodes:
        wakes = sorted(draw(st.lists(times, max_size=3)))
        offs = [draw(times) for _ in wakes]
        groups.append(
            {
                "name": group.name,
                "count": group.count,
                "modes": {
                    name: {"power_w": draw(watts), "idle_w": draw(watts), "speed": speed}
                    for name, speed in (
                        ("base", draw(st.sampled_from((1.0, 2.0, 0.7)))),
                        ("slow", 0.3),
                    )
                },
                "mode": draw(st.sampled_from(("base", "slow"))),
                "sleep": [
                    {
                        "name": f"s{depth}",
                        "power_w": draw(watts),
                        "switch_off": {"time": offs[depth], "power_w": draw(watts)},
                        "switch_on": {"time": wake, "power_w": draw(watts)},
                    }
                    for depth, wake in enumerate(wakes)
                ],
            }
        )
    if not any(group["sleep"] for group in groups):
        off = {"time": 3, "power_w": 40}
        groups[0]["sleep"] = [{"power_w": 5, "switch_off": off, "switch_on": off}]
    return Cluster.model_validate({"nodes": groups})


def case_of(
    draw: st.DrawFn,
    kind: str,
    workload: Workload,
    machine: tuple[Cluster, Cluster],
    orders: Sequence[str] = sorted(ORDERINGS),
    placements: Sequence[str] = ("first-fit", "best-fit"),
) -> dict[str, Any]:
    """Jobs on a machine, with all else that goes with a power policy and a backfill."""
    cluster, platform = machine
    return {
        "workload": workload,
        "platform": platform,
        "power": PowerPolicy(
            kind,
            draw(st.sampled_from((0, 1, 5, 12, None))),
            deeper_s=draw(st.sampled_from(((), (0,), (6,), (0, 0), (3, 4), (5, 0)))),
            keep=draw(st.sampled_from((0, 0, 1, 2))),
        ),
        "order": ORDERINGS[draw(st.sampled_from(orders))],
        "cluster": cluster,
        "overrun": draw(st.sampled_from(("terminate", "continue"))),
        "placement": draw(st.sampled_from(placements)),
        "expected_ms": draw(strategies.expectations(workload)),
    }


@st.composite
def cases(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    machine = draw(machines())
    return case_of(draw, kind, draw(strategies.workloads(machine[0], max_jobs=12)), machine)


@pytest.mark.parametrize(("kind", "policy"), PAIRS)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_every_power_policy_with_every_backfill(
    kind: str, policy: dict[str, Any], data: st.DataObject
) -> None:
    """Groups, partitions, resources, dependencies, cancellations, predictions, sleep depths."""
    compared(policy=policy, **data.draw(cases(kind)))
