"""Long queues use a tournament, shorter ones with an order that changes with time a list of score lines.

Both give what going through all jobs gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload
from hpctwin.engine.state import layout
from hpctwin.model import Category
from hpctwin.policies import BUILT_IN, formula, make_policy, multifactor
from tests import strategies
from tests.engine.examples import examples
from tests.engine.test_against_reference import ORDERINGS, compared
from tests.engine.test_shared_against_reference import compared_on_nodes
from tests.limit_strategies import limited

BACKFILLS = ("none", "first-fit", "easy")
# Lines, bent lines, roots, fair share with and without what else tells jobs apart.
CHANGING = {
    "wfp": BUILT_IN["wfp"],
    "expansion": BUILT_IN["expansion"],
    "unicef": BUILT_IN["unicef"],
    "fairshare": BUILT_IN["fairshare"],
    "multifactor": multifactor(max_age="20m"),
    "multifactor with all": multifactor(max_age="2h", size=700, partition=300, qos=200, trace=0.1),
    "ageing": formula("nodes*3 - wait/60"),
    "small steps": formula("nodes*1e9 - max(wait - 600, 0)*1e-6"),
    "square": formula("pbs:eligible_time**2 / walltime"),
}
STEADY = {
    name: BUILT_IN[name] for name in ("fcfs", "lcfs", "sjf", "smallest", "largest", "priority")
}
POLICIES = (
    "wfp+easy", "sjf+easy", "fcfs+first-fit", "fairshare+none", "wfp+easy/sjf", "fcfs+easy/wfp",
)  # fmt: skip


NOT: int = 10**6
WAYS = {"tournament": (20, NOT), "lines": (NOT, 4), "lines, then a tournament": (40, 4)}
"""With how many waiting there is a tournament, and with how many a list of lines."""


@contextmanager
def racing(tournament: int, lines: int = NOT) -> Iterator[None]:
    """Where so many jobs wait, there is a tournament, or a list of lines."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RACE_SORTED", "RACE_CHANGING", "RACE_SHARED", "RACE_LIMITED"):
            patch.setattr(layout, name, tournament)
        patch.setattr(layout, "LINES_FROM", lines)
        yield


def crowded(seed: int, jobs: int = 600) -> Workload:
    """Many more jobs than fit, many of them alike, some cancelled while they wait."""
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.integers(0, 3000, jobs))
    runtime = rng.integers(0, 40, jobs) * 20
    walltime = np.maximum(runtime, 1) * rng.choice([1, 2, 5], jobs)
    cancel = np.where(rng.random(jobs) < 0.05, submit + rng.integers(0, 20_000, jobs), -1)
    nodes, users = rng.choice([1, 2, 3, 4, 8, 16, 30], jobs), rng.integers(0, 7, jobs) ** 2 // 8
    return Workload.build(
        submit_s=submit,
        runtime_s=runtime,
        walltime_s=walltime,
        nodes=nodes,
        cancel_s=cancel,
        user=Category.of([f"u{i}" for i in users]),
        account=Category.of([f"a{i % 3}" for i in users]),
        partition=Category.of(["all"] * jobs),
        qos=Category.of([f"q{i}" for i in rng.integers(0, 3, jobs)]),
        priority=rng.integers(0, 4, jobs),
    )


def simulated(
    workload: Workload,
    policy: Any,
    way: tuple[int, int],
    until: list[float | None],
    **options: Any,
) -> tuple[list[Any], Simulation]:
    """Start and end of all jobs, and who waits at each stop."""
    with racing(*way):
        simulation = Simulation(workload, Cluster.uniform(nodes=32), policy=policy, **options)
        stops: list[Any] = []
        for stop in until:
            simulation.advance(stop)
            queue = simulation.state["queue"][: simulation.state.clock.queued]
            kept = queue if not policy.order.changes else np.sort(queue)
            stops.append(kept.tolist())
    state = simulation.state["state"]
    return [*stops, state["start"].tolist(), state["end"].tolist()], simulation


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize("order", sorted({**CHANGING, **STEADY}))
def test_a_tournament_gives_what_going_through_all_gives(order: str, backfill: str) -> None:
    policy = make_policy({**CHANGING, **STEADY}[order], backfill)
    workload = crowded(len(order))
    stops = [700.0, 1500.0, 1501.0, 4000.0, None]
    plain, walked = simulated(workload, policy, (NOT, NOT), [None])
    hooks = walked.compiled_policy()["hooks"]
    assert hooks["run_race"][0] == hooks["run_lined"][0] == 0
    by_stops = simulated(workload, policy, (NOT, NOT), stops)[0]
    lined = policy.order.changes and not policy.order.fairshare
    for tournament, lines in WAYS.values() if lined else [WAYS["tournament"]]:
        found, raced = simulated(workload, policy, (tournament, lines), stops)
        hooks = raced.compiled_policy()["hooks"]
        assert (hooks["run_race"][0] != 0) == (tournament < NOT)
        assert (hooks["run_lined"][0] != 0) == (lines < NOT)
        assert found[-2:] == plain[-2:]
        assert by_stops == found


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize("order", ["fcfs", "wfp", "fairshare"])
def test_a_job_for_more_nodes_than_are_up_is_skipped(order: str, backfill: str) -> None:
    # Jobs of 30 nodes cannot start while 3 of 32 are down: they must not become the head either.
    workload = crowded(5)
    cluster = Cluster.model_validate(
        {
            "nodes": [{"name": "all", "count": 32}],
            "failures": {
                "outages": [{"node": n, "start": 300, "duration": 9000} for n in (1, 2, 7)]
            },
        }
    )
    found = []
    for way in (*WAYS.values(), (NOT, NOT)):
        with racing(*way):
            simulation = Simulation(workload, cluster, make_policy(order, backfill))
            simulation.advance()
        found.append(simulation.state["state"]["start"].tolist())
    assert found[:-1] == found[-1:] * len(WAYS)


@pytest.mark.parametrize("seed", range(3))
def test_overdue_jobs_and_maintenance_are_gone_through_in_between(seed: int) -> None:
    workload = crowded(seed)
    rng = np.random.default_rng(seed)
    expected = workload.walltime_ms / 1000 * rng.choice([0.2, 1.0], len(workload))
    cluster = {
        "nodes": [{"name": "all", "count": 32}],
        "reservations": [{"start": 2000, "end": 2900, "groups": ["all"]}],
    }
    for order in ("wfp", "fairshare", "sjf"):
        ends = []
        for way in (*WAYS.values(), (NOT, NOT)):
            with racing(*way):
                simulation = Simulation(
                    workload, Cluster.model_validate(cluster), policy=f"{order}+easy",
                    expected_s=expected, overrun="continue",
                )  # fmt: skip
                simulation.advance()
            ends.append(simulation.state["state"]["start"].tolist())
        assert ends[:-1] == ends[-1:] * len(WAYS)


def test_a_fork_under_another_policy_has_a_tournament_of_its_own() -> None:
    workload = crowded(5)
    starts: dict[tuple[int, int], list[Any]] = {way: [] for way in (*WAYS.values(), (NOT, NOT))}
    for way, found in starts.items():
        with racing(*way):
            simulation = Simulation(workload, Cluster.uniform(nodes=32), policy="fcfs+easy")
            for stop, policy in ((800.0, "wfp+easy"), (3000.0, "sjf+easy"), (9000.0, "fairshare")):
                simulation.advance(stop)
                for fork in (simulation.fork(policy=policy), simulation.fork()):
                    fork.advance()
                    found.append(fork.state["state"]["start"].tolist())
            simulation.advance()
            found.append(simulation.state["state"]["start"].tolist())
    assert all(found == starts[NOT, NOT] for found in starts.values())


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize("order", sorted({*BUILT_IN, "multifactor", "formula"}))
@settings(max_examples=examples(10))
@given(workload=strategies.simple_workloads(), way=st.sampled_from([(1, NOT), (NOT, 1), (4, 1)]))
def test_a_tournament_of_few_is_what_the_reference_does(
    order: str, backfill: str, workload: Workload, way: tuple[int, int]
) -> None:
    with racing(*way):
        compared(workload, Cluster.uniform(nodes=8), ORDERINGS[order], {"backfill": backfill})


@settings(max_examples=examples(60))
@given(data=st.data())
def test_a_tournament_amid_all_that_happens_is_what_the_reference_does(data: st.DataObject) -> None:
    clusters = strategies.clusters(cleanup=True)
    cluster = data.draw(clusters if data.draw(st.booleans()) else limited(clusters))
    workload = data.draw(strategies.workloads(cluster))
    rules = data.draw(strategies.rules(cluster))
    options = {name: rules[name] for name in ("overrun", "on_dependency_failure")}
    if any(limit.is_timed for limit in cluster.limits):
        options["overrun"] = "terminate"
    options["placement"] = rules["placement"].replace("_", "-")
    options["expected_ms"] = data.draw(strategies.expectations(workload))
    order = data.draw(st.sampled_from(["fcfs", "sjf", "wfp", "largest", "multifactor"]))
    candidates = data.draw(st.sampled_from([None, "smallest", "wfp"]))
    backfill = {"backfill": "easy", "candidates": candidates}
    with racing(*data.draw(st.sampled_from([(1, NOT), (NOT, 1), (4, 1)]))):
        compared(workload, cluster, ORDERINGS[order], backfill, **options)


@pytest.mark.parametrize(
    ("text", "power"),
    [
        ("-(wait/walltime)**3*nodes", 3),
        ("nodes - wait/walltime", 1),
        ("pbs:eligible_time*2 + job_priority*1000 + fairshare_factor*30", 1),
        ("-min(wait/3600, 1.0)*1000 - fairshare*1000", 1),
        ("now - submit", 1),
        ("floor(0.5 - fairshare * 1000000)", 0),  # steps
        ("wait if nodes > 3 else 0", 0),
        ("max(wait/100, 3) + min(wait, 2)", 0),  # bent both ways
        ("expected*load / max(fairshare, 1e-9)", 0),  # the factor moves each job by another amount
        ("fairshare*nodes", 0),
        ("wait*wait", 0),
        ("wait**2 + nodes", 0),
        ("(wait/100)**(nodes/10)", 0),
        ("fairshare + wait**2", 0),
    ],
)
def test_how_scores_change_is_read_off_a_formula(text: str, power: float) -> None:
    assert formula(text).power == power


@pytest.mark.parametrize("licences", [10_000, 40, 12])
@pytest.mark.parametrize("policy", POLICIES)
def test_shared_resources_are_respected_whether_scarce_or_not(policy: str, licences: int) -> None:
    workload = crowded(licences)
    asked = np.random.default_rng(licences).integers(0, 4, len(workload))
    cluster = Cluster.uniform(nodes=32).model_copy(update={"resources": {"licences": licences}})
    ends = []
    for way in (*WAYS.values(), (NOT, NOT)):
        with racing(*way):
            simulation = Simulation(
                workload.replace(resources={"licences": asked}), cluster, policy=policy
            )
            simulation.advance()
        ends.append(simulation.state["state"][["start", "end"]].tolist())
    assert ends[:-1] == ends[-1:] * len(WAYS)


def as_gone_through(workload: Workload, cluster: dict[str, Any], policy: str) -> list[Any]:
    """Starts and ends of all jobs, the same by a tournament, by lines and without."""
    ends = []
    for way in (*WAYS.values(), (NOT, NOT)):
        with racing(*way):
            simulation = Simulation(workload, Cluster.model_validate(cluster), policy=policy)
            simulation.advance()
        assert (simulation.compiled_policy()["hooks"]["run_race"][0] != 0) == (way[0] < NOT)
        ends.append(simulation.state["state"][["start", "end"]].tolist())
    assert ends[:-1] == ends[-1:] * len(WAYS)
    return list(ends[0])


@pytest.mark.parametrize("policy", ["fairshare+none", "multifactor:fairshare=500+easy"])
def test_ranks_in_a_fair_share_tree_are_respected(policy: str) -> None:
    workload = crowded(4)
    tree = {"kind": "tree", "half_life": "1h", "every": 60}
    cluster = Cluster.uniform(nodes=32).model_dump(exclude_unset=True) | {"fairshare": tree}
    as_gone_through(workload, cluster, policy)


@pytest.mark.parametrize("limit", [1, 3, 20])
@pytest.mark.parametrize("policy", POLICIES)
def test_users_at_their_limit_take_no_part(policy: str, limit: int) -> None:
    workload = crowded(limit)
    cluster = {
        "nodes": [{"name": "all", "count": 32}],
        "partitions": [{"name": "all", "max_jobs_per_user": limit}],
    }
    as_gone_through(workload, cluster, policy)


LIMITS: dict[str, list[dict[str, Any]]] = {
    "jobs of each user of an account": [{"account": "a0", "per": "user", "jobs": 2}],
    "nodes of accounts": [{"account": "a1", "nodes": 9}, {"account": "a2", "nodes": 1}],
    "cores of all": [{"account": "root", "cores": 90}, {"user": "u0", "jobs": 5}],
    "jobs and nodes of a QOS": [
        {"qos": "q1", "per": "user", "jobs": 3, "nodes": 12}, {"qos": "q2", "jobs": 0},
    ],
    "minutes": [{"account": "a0", "minutes": {"nodes": 900}}, {"qos": "q0", "nodes": 16}],
    "what a job may have": [{"account": "a0", "per": "job", "nodes": 4}, {"account": "root", "jobs": 7}],
}  # fmt: skip


@pytest.mark.parametrize("limits", sorted(LIMITS))
@pytest.mark.parametrize("policy", POLICIES)
def test_jobs_held_back_by_limits_take_no_part(policy: str, limits: str) -> None:
    workload = crowded(len(limits))
    cluster = {
        "nodes": [{"name": "all", "count": 32, "cores": 4}],
        "accounts": [{"name": "a0"}, {"name": "a1", "parent": "a0"}, {"name": "a2"}],
        "limits": LIMITS[limits],
    }
    free = {name: about for name, about in cluster.items() if name != "limits"}
    kept_back = as_gone_through(workload, cluster, policy)
    assert kept_back != as_gone_through(workload, free, policy)


SHARED_POLICIES = (
    "fcfs+easy", "sjf+easy", "wfp+easy:3@best-fit", "fairshare+easy@spread", "multifactor+easy:2",
    "smallest+easy", "largest+easy@round-robin", "fcfs+easy:8", "wfp+easy:40", "fcfs+easy/sjf",
)  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("policy", SHARED_POLICIES)
def test_a_tournament_on_shared_nodes_starts_the_same_jobs_on_the_same_nodes(
    policy: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    jobs = crowded(seed)
    tasks = jobs.nodes
    workload = Workload.build(
        submit_s=jobs.submit_ms / 1e3,
        runtime_s=jobs.runtime_ms / 1e3,
        walltime_s=jobs.walltime_ms / 1e3,
        cancel_s=np.where(jobs.cancel_ms < 0, -1, jobs.cancel_ms / 1e3),
        nodes=np.ones_like(tasks),
        user=jobs.user,
        account=jobs.account,
        chunks={
            "tasks": tasks,
            "cores_per_task": rng.choice([1, 1, 2], len(tasks)),
            "gpus_per_task": rng.choice([0, 0, 0, 1], len(tasks)) * (tasks < 5),
        },
    )
    cluster = {
        "nodes": [{"name": "a", "count": 4, "cores": 16, "gpus": 2}, {"name": "b", "count": 2, "cores": 8}],
        "reservations": [{"start": 2000, "end": 2900, "groups": ["b"]}],
        "failures": {"outages": [{"node": 1, "start": 900, "duration": 5000}]},
    }  # fmt: skip
    found = []
    for stops in ([None], [500.0, 501.0, 4000.0, None]):
        for tournament in (NOT, 20):
            with racing(tournament):
                simulation = Simulation(workload, Cluster.model_validate(cluster), policy=policy)
                for stop in stops:
                    simulation.advance(stop)
            hooks = simulation.compiled_policy()["hooks"]
            assert (hooks["run_race"][0] != 0) == (tournament < NOT and "/" not in policy)
            found.append(simulation.result().placements.sort("job_id", "node", "start_s"))
    assert all(one.equals(found[0]) for one in found)


@pytest.mark.parametrize("order", ["fcfs", "wfp", "fairshare", "multifactor"])
@settings(max_examples=examples(60))
@given(data=st.data(), reservations=st.integers(1, 3))
def test_a_tournament_of_few_on_shared_nodes_is_what_the_reference_does(
    order: str, data: st.DataObject, reservations: int
) -> None:
    cluster = data.draw(strategies.shared_clusters(cleanup=True))
    workload = data.draw(strategies.shared_workloads(cluster, max_jobs=20))
    backfill = {"backfill": "easy", "reservations": reservations}
    with racing(1):
        compared_on_nodes(workload, cluster, ORDERINGS[order], backfill)
