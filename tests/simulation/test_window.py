"""Replay with the nodes and the energy that were recorded, and parts of traces begun in the middle."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, generate, read_cluster, simulate
from hpctwin.cli import main
from hpctwin.errors import ConfigError, WorkloadError
from hpctwin.formats.datasets import DATASETS, write_sample
from hpctwin.formats.datasets.making import made_jobs, node_of
from hpctwin.model.cluster.node_group import numbers_of
from hpctwin.model.workload.jobs import Usage
from hpctwin.simulation import Result, replay, window
from tests.examples import examples

NODES = 16


def jobs(seed: int, *, exact: bool = False) -> Workload:
    made = generate("poisson", jobs=60, nodes=NODES, load=1.1, seed=seed)
    return made.replace(walltime_ms=made.runtime_ms) if exact else made


def recorded(result: Result, *, nodes: bool = True) -> Workload:
    """The jobs with the starts, and the nodes, that a simulation gave them."""
    start = (result.jobs["start_s"] * 1000).round().to_numpy().astype(np.int64)
    where: dict[object, list[str]] = {}
    if nodes and result.node_map is not None:
        for row in result.node_map.iter_rows(named=True):
            own = range(row["first_node"], row["first_node"] + row["count"])
            where.setdefault(row["job_id"], []).extend(map(str, own))
    texts = tuple(",".join(where.get(one, [])) or None for one in result.workload.job_id.tolist())
    return result.workload.replace(recorded_start_ms=start, recorded_nodes=texts if nodes else None)


def with_use(workload: Workload, seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    samples = [rng.random(rng.integers(1, 40)) for _ in range(len(workload))]
    return workload.replace(
        usage={"cpu": Usage.traces(samples, 300), "gpu": Usage.traces(samples[::-1], 450)}
    )


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.sampled_from(["fcfs+easy", "sjf", "wfp+easy"]))
def test_a_replay_has_the_starts_ends_and_energy_of_the_run_that_was_recorded(
    seed: int, policy: str
) -> None:
    summit = read_cluster("summit")
    (group,) = summit.nodes
    racks = (
        group.racks.model_copy(update={"cdus": 2, "nodes_per_chassis": 8}) if group.racks else None
    )
    cluster = summit.model_copy(
        update={"nodes": (group.model_copy(update={"count": NODES, "racks": racks}),)}
    )
    run = simulate(with_use(jobs(seed), seed), cluster, policy)
    again = replay(recorded(run), cluster)
    assert not len(again.conflicts)
    for column in ("start_s", "end_s", "nodes"):
        assert again.result.jobs[column].to_list() == run.jobs[column].to_list()
    assert run.energy is not None
    assert again.result.energy is not None
    assert again.result.energy.total_j == pytest.approx(run.energy.total_j, rel=1e-12)
    np.testing.assert_allclose(
        again.result.energy.jobs["energy_j"], run.energy.jobs["energy_j"], rtol=1e-12
    )
    one, other = again.result.energy.over_time(600), run.energy.over_time(600)  # type: ignore[attr-defined]
    for name in one.columns:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-9, atol=1e-6)


@settings(max_examples=examples(30))
@given(
    st.integers(0, 10_000),
    st.sampled_from(["fcfs", "fcfs+easy", "sjf+easy", "wfp+easy"]),
    st.integers(5, 55),
)
def test_a_window_begins_in_the_state_of_the_longer_run_and_continues_like_it(
    seed: int, policy: str, end: int
) -> None:
    workload = jobs(seed)
    whole = simulate(workload, NODES, policy)
    log = recorded(whole, nodes=False)
    last = float(whole.jobs["end_s"].max() or 0)  # type: ignore[arg-type]
    begin = float(whole.jobs["end_s"].sort()[end])
    part = window(log, begin, last + 1)
    longer = Simulation(workload, NODES, policy)
    longer.advance(begin)
    short = Simulation(part.workload, NODES, policy, begin_s=part.not_before_s)
    short.advance(begin)
    one, other = longer.snapshot(), short.snapshot()
    assert other["free_nodes"] == one["free_nodes"]
    assert sorted(other["running"]) == sorted(one["running"])
    assert sorted(other["waiting"]) == sorted(one["waiting"])
    result = short.run()
    starts = dict(whole.jobs.select("job_id", "start_s").iter_rows())
    for job, start in result.jobs.select("job_id", "start_s").iter_rows():
        assert start == starts[job]


def test_statistics_of_a_window_cover_only_that_window() -> None:
    cluster = Cluster.uniform(4, active_w=100, idle_w=10)
    log = Workload.build(
        submit_s=[0, 10, 50, 400],
        runtime_s=[100, 60, 100, 10],
        nodes=[2, 2, 4, 1],
        recorded_start_s=[0, 10, 100, 400],
    )
    part = window(log, 40, 200)
    assert part.workload.job_id.tolist() == [1, 2, 3]
    simulation = Simulation(part.workload, cluster, "fcfs", begin_s=part.not_before_s, log=True)
    found = part.summary(part.run(simulation))
    assert found["window_prepopulated"] == 2
    assert found["window_prepopulated_late"] == 0
    assert (found["window_waiting"], found["window_submitted"], found["window_started"]) == (
        0,
        1,
        1,
    )
    assert found["jobs"] == 1
    assert found["mean_wait_s"] is None or found["mean_wait_s"] == 50
    # Of 160 s: job 1 has two nodes for 60, job 2 two for 30, job 3 all four for the last 100.
    node_s = 2 * 60 + 2 * 30 + 4 * 100
    assert found["window_utilization"] == pytest.approx(node_s / (4 * 160))
    assert found["window_energy_j"] == pytest.approx(100 * node_s + 10 * (4 * 160 - node_s))
    cut = replay(log, cluster, until_s=200)
    assert cut.result.jobs["state"].to_list() == ["completed", "completed", "completed", "pending"]


def test_a_cluster_without_jobs_is_idle_until_the_window_ends() -> None:
    cluster = Cluster.uniform(2, active_w=100, idle_w=10)
    log = Workload.build(submit_s=[0], runtime_s=[100], nodes=[1], recorded_start_s=[0])
    part = window(log, 50, 300)
    run = Simulation(part.workload, cluster, "fcfs", begin_s=part.not_before_s, log=True)
    assert part.summary(part.run(run))["window_energy_j"] == 100 * 50 + 10 * (50 + 2 * 200)


def test_a_replay_that_is_truncated_leaves_what_runs_then_running_and_counts_its_energy_until_then() -> (
    None
):
    cluster = Cluster.uniform(2, active_w=100, idle_w=10)
    log = Workload.build(
        submit_s=[0, 0], runtime_s=[100, 500], nodes=[1, 1], recorded_start_s=[0, 50]
    )
    found = replay(log, cluster, until_s=200).result
    assert found.jobs["state"].to_list() == ["completed", "running"]
    assert found.jobs["end_s"].to_list() == [100, None]
    assert found.energy is not None
    assert found.energy.total_j == 100 * (100 + 150) + 10 * (100 + 50)


def test_a_node_of_another_job_is_not_taken_again_and_is_reported() -> None:
    cluster = Cluster.uniform(3, active_w=100, idle_w=10)
    log = Workload.build(
        submit_s=[0, 0],
        runtime_s=[100, 100],
        nodes=[2, 2],
        recorded_start_s=[0, 50],
        recorded_nodes=["0,1", "1,2"],
    )
    found = replay(log, cluster)
    assert found.conflicts.filter(found.conflicts["what"] == "recorded nodes").rows() == [
        (50.0, 2, "recorded nodes", 2.0, 1.0)
    ]
    assert found.result.energy is not None
    assert found.result.energy.total_j == 100 * 300 + 10 * (3 * 150 - 300)


def test_names_of_nodes_become_numbers() -> None:
    def numbers(*texts: str | None, count: int = 10) -> list[list[int] | None]:
        return [None if one is None else one.tolist() for one in numbers_of(texts, count)]

    assert numbers("3,4", "[0, 9]", None) == [[3, 4], [0, 9], None]
    assert numbers("1,10", "2") == [[0, 9], [1]]
    assert numbers("n10+n9", "n1") == [[1, 2], [0]]
    assert numbers("n[1-3,7]", "n5", "m[01-02],n1") == [[2, 3, 4, 6], [5], [0, 1, 2]]
    assert numbers("2-4,7", "0", "") == [[2, 3, 4, 7], [0], None]
    assert numbers("['n1', 'n2']", "(n3)", "n[1-", "n1:4+n2") == [[0, 2], [3], None, [1, 2]]
    assert numbers("a,b", "c", count=2) == [None, None]
    assert numbers("3,12", "0") == [None, None]


@pytest.mark.parametrize(("begin", "end"), [(10, 10), (20, 5), (-1, 5)])
def test_a_window_that_does_not_end_after_it_begins_is_rejected(begin: float, end: float) -> None:
    with pytest.raises(ConfigError, match=rf"window from {begin} to {end} s is invalid"):
        window(jobs(1), begin, end)


def test_a_window_without_jobs_is_rejected_and_the_span_reported() -> None:
    with pytest.raises(WorkloadError, match=r"no job of poisson ran.*within 0 to"):
        window(jobs(1), 1e9, 2e9)


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def test_commands_replay_and_simulate_a_day_of_a_data_set(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write_sample(DATASETS["marconi100"], tmp_path, jobs=60)[0]
    made = made_jobs(node_of(DATASETS["marconi100"]), 60, 0)
    options = ("--from", "2023-09-01T06:00", "--until", "2023-09-01T12:00", "--json")
    code, out, _ = ran(capsys, "replay", str(path), *options)
    assert code == 0
    past = json.loads(out)
    begin = 1_693_526_400 + 6 * 3600
    ran_then = ((made["start"] < begin) & (made["end"] > begin)).sum()
    assert past["window_prepopulated"] == ran_then
    assert past["window_mean_power_w"] > 500_000
    code, out, _ = ran(capsys, "simulate", str(path), "-o", "sjf", *options)
    assert code == 0
    # The machine has room for all: what was recorded to wait starts at once.
    assert json.loads(out)["window_prepopulated"] == ran_then
    code, _, err = ran(capsys, "simulate", str(path), "--from", "6h")
    assert code == 2
    assert "both" in err
