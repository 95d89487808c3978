"""The story of a job: nothing left out that happened to it, nothing told that did not."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, parse_policy, simulate, write_workload
from hpctwin.cli import main
from hpctwin.engine.passes import kept_of
from hpctwin.errors import ConfigError
from hpctwin.model import Dependencies, DependencyKind
from hpctwin.policies import make_policy
from hpctwin.simulation import Moment, explain
from tests import strategies
from tests.engine.test_adaptive_guarantees import CLUSTER, workloads
from tests.engine.test_preemption import busy_cases, crowded_cases
from tests.engine.test_suspension import busy_cases as busy_suspensions
from tests.engine.test_suspension import crowded_cases as crowded_suspensions
from tests.examples import examples

OK = DependencyKind.AFTEROK


def story(workload: Workload, policy: str, job: int, cluster: Cluster = CLUSTER) -> list[Moment]:
    return explain(Simulation(workload, cluster, policy=parse_policy(policy)), job)


def blocked() -> Workload:
    """Job 1 takes nearly all of the CPU for 100 ms; jobs 2 to 7 need more than is left; 8 waits for 7."""
    return Workload.build(
        submit_s=[0] * 8,
        runtime_s=[0.1] + [0.001] * 7,
        nodes=[1] * 8,
        priority=[100, 6, 5, 4, 3, 2, 1, 9],
        resources={"cpu": [9] + [2] * 7},
        dependencies=Dependencies.of([(7, 6, OK, 0)]),
    )


def test_pushdowns_and_missing_resources_are_reported_one_by_one() -> None:
    moments = story(blocked(), "pas+pushdown", 2, Cluster.uniform(nodes=9, resources={"cpu": 10}))
    assert [(m.what, m.time_s) for m in moments] == [
        ("submitted", 0), ("eligible", 0), ("pushed", 0), ("waited", 0), ("pushed", 0.001),
        ("waited", 0.001), ("pushed", 0.002), ("waited", 0.002), ("pushed", 0.003), ("aside", 0.003),
        ("waited", 0.003), ("started", 0.1), ("ended", 0.101),
    ]  # fmt: skip
    assert all(m.detail["resource"] == "cpu" for m in moments if m.what == "pushed")
    waited = next(m for m in moments if (m.what, m.time_s) == ("waited", 0.003))
    assert waited.until_s == 0.1
    assert waited.detail == {"short_s": {"cpu": 0.097}, "kept_s": {}}


def test_promotions_name_who_they_are_for() -> None:
    cluster = Cluster.uniform(nodes=9, resources={"cpu": 10})
    told = [m for m in story(blocked(), "pas+pushdown", 7, cluster) if m.what == "promoted"]
    assert [m.text for m in told] == ["promoted 1 places for job 8"]
    chain = [m for m in story(blocked(), "adaptive+pack", 7, cluster) if m.what == "promoted"]
    assert [m.detail["chain_s"] for m in chain] == [0.001]


def test_a_job_that_is_held_back_although_it_fits_has_a_reported_reason() -> None:
    workload = Workload.build(submit_s=[0, 0, 0], runtime_s=[5, 5, 5], nodes=[4, 4, 2])
    waited = story(workload, "fcfs+none", 3)[2]
    assert waited.detail["kept_s"] == {"a job before it does not fit, and nobody passes": 5}
    assert "position 2 of 2" in waited.text


def test_a_job_held_forever_has_a_story_without_end() -> None:
    workload = Workload.build(
        submit_s=[0, 0], runtime_s=[5, 5], nodes=[1, 1], fails=[True, False],
        dependencies=Dependencies.of([(1, 0, OK, 0)]),
    )  # fmt: skip
    simulation = Simulation(workload, CLUSTER, on_dependency_failure="hold")
    assert [m.what for m in explain(simulation, 2)] == ["submitted", "pending"]


@pytest.mark.parametrize(
    "policy", ["adaptive+pack", "pas+pushdown:interval=1s,promotion=1s", "fcfs+easy", "wfp+none"]
)
@settings(max_examples=examples(40))
@given(workload=workloads(), pick=st.integers(0, 19))
def test_every_story_adds_up_to_what_happened(policy: str, workload: Workload, pick: int) -> None:
    row = pick % len(workload)
    job = workload.job_id[row]
    moments = story(workload, policy, job)
    result = simulate(workload, CLUSTER, policy=parse_policy(policy)).jobs.row(row, named=True)
    times = {
        m.what: m.time_s for m in moments if m.what in ("submitted", "eligible", "started", "ended")
    }
    thinks = workload.dependencies.thinks(len(workload))[row]
    if thinks and result["eligible_s"] is None and result["end_s"] != result["submit_s"]:
        assert "submitted" not in times  # it ended while its user thought
    else:
        assert times.get("submitted") == result["submit_s"]
    assert times.get("eligible") == result["eligible_s"]
    assert times.get("started") == result["start_s"]
    assert times.get("ended") == result["end_s"]
    # Stretches of waiting fill the time from eligible to the start (or the end of what never started).
    waits = [m for m in moments if m.what == "waited"]
    if result["eligible_s"] is not None:
        until = result["start_s"] if result["start_s"] is not None else result["end_s"]
        length = sum(m.until_s - m.time_s for m in waits)
        assert length == pytest.approx(until - result["eligible_s"])
    for m in waits:
        whole = m.until_s - m.time_s
        assert all(0 < short <= whole + 1e-9 for short in m.detail["short_s"].values())
        # A resource that was short all the time, or something else that kept it, or both in turn.
        assert sum(m.detail["kept_s"].values()) + sum(m.detail["short_s"].values()) >= whole - 1e-9
    run = Simulation(workload, CLUSTER, policy=parse_policy(policy))
    run.advance()
    if run.policy.backfill == "pushdown":
        push = kept_of(run.state, "pushdown")[row]
        pushed = sum(m.what == "pushed" for m in moments)
        risen = sum(m.detail.get("places", 0) for m in moments)
        assert pushed == push["pushed"]
        assert risen == push["risen"]


@settings(max_examples=examples(60))
@given(
    case=st.one_of(busy_cases(), crowded_cases(), busy_suspensions(), crowded_suspensions()),
    backfill=st.sampled_from(["none", "first-fit", "easy", "slurm"]),
    pick=st.integers(0, 19),
)
def test_stories_of_preempted_jobs_say_what_happened(
    case: dict[str, Any], backfill: str, pick: int
) -> None:
    workload, cluster = case["workload"], case["cluster"]
    row = pick % len(workload)
    policy = make_policy("fcfs", backfill)
    moments = explain(Simulation(workload, cluster, policy), workload.job_id[row])
    run = Simulation(workload, cluster, policy)
    run.advance()
    count = Counter(moment.what for moment in moments)
    last = {moment.what: moment.time_s for moment in moments}
    requeues, cut = int(run.column("requeues")[row]), run.state["cut"][row]
    assert (count["requeued"] > 0) == (requeues > 0)
    assert count["requeued"] <= requeues
    assert count["started"] in (count["requeued"], count["requeued"] + 1)
    ended_suspended = count["suspended"] - count["resumed"] - int(cut["suspended"])
    assert 0 <= ended_suspended <= count["requeued"]
    assert count["suspended"] <= int(cut["times"])
    assert last.get("ended") == run.result().jobs["end_s"][row]
    waits = [moment for moment in moments if moment.what == "waited"]
    assert all(moment.until_s > moment.time_s for moment in waits)


def test_the_command_reports_it_and_names_an_unknown_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "w.csv"
    write_workload(Workload.build(submit_s=[0, 0], runtime_s=[5, 5], nodes=[4, 4]), path)
    with pytest.raises(SystemExit) as stop:
        main(["simulate", str(path), "--nodes", "6", "--explain", "2", "--json"])
    assert not stop.value.code
    told = json.loads(capsys.readouterr().out)["2"]
    assert [one["what"] for one in told] == ["submitted", "eligible", "waited", "started", "ended"]
    with pytest.raises(SystemExit) as stop:
        main(["simulate", str(path), "--nodes", "6", "--explain", "7"])
    assert stop.value.code == 2
    assert "no job '7'; it has 2 jobs, such as 1, 2" in capsys.readouterr().err
    with pytest.raises(ConfigError):
        story(Workload.build(submit_s=[0], runtime_s=[5], nodes=[4]), "fcfs+easy", 9)


def sharing(**chunks: list[float]) -> Workload:
    return Workload.build(
        submit_s=[0] * 3, runtime_s=[5, 10, 5], nodes=[1] * 3, chunks={"tasks": [1] * 3, **chunks}
    )


NODES = Cluster.checked({"nodes": [{"name": "n", "count": 2, "cores": 4, "memory_gb": 8}]}, "c")


@pytest.mark.parametrize(
    ("chunks", "short"),
    [
        ({"cores_per_task": [3, 3, 2]}, {"cores": 5}),
        ({"cores_per_task": [1, 1, 1], "memory_gb_per_task": [8, 5, 4]}, {"memory_gb": 5}),
        (
            {"cores_per_task": [3, 1, 2], "memory_gb_per_task": [1, 6, 4]},
            {"fragmentation": 5},
        ),
        ({"cores_per_task": [1, 1, 1], "exclusive": [1, 0, 1]}, {"nodes": 5}),
    ],
)
def test_scarce_resources_on_shared_nodes_are_reported(
    chunks: dict[str, list[float]], short: dict[str, float]
) -> None:
    moments = story(sharing(**chunks), "fcfs+first-fit@spread", 3, NODES)
    assert [m.detail["short_s"] for m in moments if m.what == "waited"] == [short]


@pytest.mark.parametrize("policy", ["fcfs+first-fit", "sjf+easy", "pas+pushdown:interval=1s"])
@settings(max_examples=examples(60))
@given(data=st.data())
def test_on_shared_nodes_stories_add_up_and_a_fitting_job_does_not_wait_under_first_fit(
    policy: str, data: st.DataObject
) -> None:
    cluster = data.draw(
        strategies.shared_clusters(partitions=False, maintenance=False, outages=False)
    )
    what = {name: data.draw(st.booleans()) for name in ("owners", "several")}
    workload = data.draw(strategies.shared_workloads(cluster, max_jobs=12, **what))
    row = data.draw(st.integers(0, len(workload) - 1))
    moments = story(workload, policy, workload.job_id[row], cluster)
    result = simulate(workload, cluster, policy).jobs.row(row, named=True)
    told = {m.what: m.time_s for m in moments}
    for what_happened, column in (("submitted", "submit_s"), ("started", "start_s")):
        assert told.get(what_happened) == result[column]
    waits = [m for m in moments if m.what == "waited"]
    for m in waits:
        whole = m.until_s - m.time_s
        assert sum(m.detail["kept_s"].values()) + sum(m.detail["short_s"].values()) >= whole - 1e-9
        if policy == "fcfs+first-fit" and not what["several"]:
            assert not m.detail["kept_s"]
