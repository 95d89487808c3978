"""Jobs that users submit when others have ended: SWF's fields 17 and 18."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from hpctwin import simulate
from hpctwin.formats import read_workload
from hpctwin.metrics.comparison import fidelity
from hpctwin.model import Category, Cluster, Dependencies, DependencyKind, State, Workload
from hpctwin.simulation import Simulation, explain, replay, simulate_stream

THINK, AFTERANY = DependencyKind.THINK, DependencyKind.AFTERANY


def sessions(seed: int, size: int = 120, *, shared: bool = False) -> Workload:
    """Jobs of users who submit the next one some time after one of theirs has ended."""
    rng = np.random.default_rng(seed)
    run = rng.integers(1, 60, size)
    chunks = {"tasks": rng.integers(1, 9, size), "cores_per_task": np.ones(size)}
    edges = [
        (row, int(rng.integers(max(0, row - 9), row)), THINK, int(rng.integers(0, 40)) * 1000)
        for row in range(1, size)
        if rng.random() < 0.6
    ]
    return Workload.build(
        submit_s=np.sort(rng.integers(0, 400, size)),
        runtime_s=run,
        walltime_s=run + rng.integers(0, 30, size),
        nodes=np.ones(size) if shared else rng.integers(1, 6, size),
        chunks=chunks if shared else None,
        user=Category.of([f"u{row}" for row in rng.integers(0, 5, size)]),
        dependencies=Dependencies.of(edges),
    )


def submitted_then(workload: Workload, jobs: pl.DataFrame) -> Workload:
    """The same jobs without think times, submitted when a simulation found that they were."""
    frame = workload.to_frame().drop("depends").with_columns(submit_s=jobs["submit_s"])
    return Workload.from_frame(frame.sort("submit_s", "job_id"))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("policy", "shared"),
    [("fcfs+easy", False), ("sjf+easy", False), ("wfp+conservative", False),
     ("fcfs+none", False), ("fcfs+easy", True)],
)  # fmt: skip
def test_a_think_time_is_a_later_submission_and_nothing_else(
    seed: int, policy: str, shared: bool
) -> None:
    workload = sessions(seed, shared=shared)
    cluster: Cluster | int = 8
    if shared:
        cluster = Cluster.checked(
            {"name": "c", "nodes": [{"name": "n", "count": 2, "cores": 8}]}, "c"
        )
    order, backfill = policy.split("+")
    thought = simulate(workload, cluster, order, backfill)
    assert thought.summary()["jobs_completed"] == len(workload)
    later = thought.jobs["submit_s"].to_numpy() > workload.submit_ms / 1000
    assert later.sum() > 20
    then = simulate(submitted_then(workload, thought.jobs), cluster, order, backfill)
    columns = ["job_id", "submit_s", "eligible_s", "start_s", "end_s", "wait_s", "turnaround_s"]
    assert (
        thought.jobs.select(columns).sort("job_id").equals(then.jobs.select(columns).sort("job_id"))
    )
    for name, value in thought.summary().items():
        if name not in ("engine_s", "instants"):
            assert then.summary()[name] == pytest.approx(value), name


def test_streams_find_the_same_submissions(tmp_path: Path) -> None:
    workload = sessions(3)
    whole = simulate(workload, 8)
    for batch in (1, 7):
        stream = simulate_stream(workload, 8, out=tmp_path / str(batch), batch=batch)
        jobs = stream.jobs.collect().sort("job_id")
        for name in ("submit_s", "eligible_s", "start_s", "wait_s", "turnaround_s"):
            assert jobs[name].equals(whole.jobs.sort("job_id")[name]), name
        for name in ("mean_wait_s", "mean_bounded_slowdown", "mean_queue_length"):
            assert stream.summary()[name] == pytest.approx(whole.summary()[name])


def log(tmp_path: Path, *lines: str) -> Workload:
    rows = []
    for line in lines:
        job, submit, run, procs, on, think = line.split()
        rows.append(f"{job} {submit} 0 {run} {procs} -1 -1 {procs} 120 -1 1 1 1 1 1 1 {on} {think}")
    (tmp_path / "w.swf").write_text("\n".join(["; MaxProcs: 8", *rows, ""]))
    return read_workload(tmp_path / "w.swf")


def test_the_wait_begins_when_the_think_time_is_over(tmp_path: Path) -> None:
    workload = log(
        tmp_path,
        "1 0 100 2 -1 -1",
        "2 5 10 2 1 50",  # thinks until 150
        "3 6 10 64 -1 -1",  # too large: it has ended at 6
        "4 7 10 2 3 50",
        "5 8 10 2 1 -1",  # waits in the queue
        "6 200 10 2 1 50",  # submitted later than the think time ends
        "7 201 100 8 1 0",
        "8 220 10 8 7 0",
    )
    result = simulate(workload, 8)
    jobs = result.jobs
    assert jobs["state"][2] == State.REJECTED.label
    assert jobs["submit_s"].to_list() == [0, 150, 6, 56, 8, 200, 201, 310]
    assert jobs["start_s"].to_list() == [0, 150, None, 56, 100, 200, 210, 310]
    assert jobs["wait_s"].to_list() == [0, 0, None, 0, 92, 0, 9, 0]
    assert jobs["turnaround_s"].to_list() == [100, 10, None, 10, 102, 10, 109, 10]
    summary = result.summary()
    assert summary["mean_wait_s"] == pytest.approx(101 / 7)
    assert summary["mean_queue_length"] == pytest.approx((9 + 0) / 320)


def test_a_thinking_user_does_not_overtake_pending_jobs(tmp_path: Path) -> None:
    workload = log(tmp_path, "1 0 20 1 -1 -1", "2 0 60 8 -1 -1", "3 1 10 8 1 10", "4 25 10 8 -1 -1")
    # Job 3 is submitted at 30, after job 4.
    assert simulate(workload, 8, "fcfs", "none").jobs["start_s"].to_list() == [0, 20, 90, 80]


def test_explain_reports_the_thinking_and_no_waiting(tmp_path: Path) -> None:
    workload = log(tmp_path, "1 0 100 8 -1 -1", "2 5 10 8 1 50", "3 140 20 8 -1 -1")
    moments = explain(Simulation(workload, 8), 2)
    told = [(one.what, one.time_s) for one in moments if one.what != "waited"]
    assert told == [
        ("pending", 5), ("submitted", 150), ("eligible", 150), ("started", 160), ("ended", 170)
    ]  # fmt: skip
    assert "a wait of 10 s" in moments[-2].text


def test_a_replay_counts_from_the_end_of_the_think_time() -> None:
    workload = Workload.build(
        submit_s=[0, 5, 6],
        runtime_s=[100, 10, 10],
        nodes=[1, 1, 1],
        recorded_start_s=[0, 170, 120],
        dependencies=Dependencies.of([(1, 0, THINK, 50_000), (2, 0, THINK, 50_000)]),
    )
    jobs = replay(workload, 8).result.jobs
    assert jobs["submit_s"].to_list() == [0, 150, 120]
    assert jobs["wait_s"].to_list() == [0, 20, 0]
    # What was recorded counts from the recorded submission.
    laid = fidelity(workload, simulate(workload, 8).jobs).jobs
    assert laid["recorded_wait_s"].to_list() == [0, 165, 114]
    assert laid["simulated_wait_s"].to_list() == [0, 0, 0]


def test_custom_schedulers_see_a_job_when_it_is_submitted() -> None:
    from hpctwin.simulation.schedulers import Orders, drive

    workload = Workload.build(
        submit_s=[0, 1],
        runtime_s=[10, 10],
        nodes=[1, 1],
        dependencies=Dependencies.of([(1, 0, THINK, 7_000)]),
    )
    heard: dict[Any, tuple[float, float]] = {}

    def scheduler(happened: Any) -> Any:
        for job in happened.submitted:
            heard[job["job_id"]] = (happened.now_s, job["submit_s"])
        return Orders([job["job_id"] for job in happened.submitted])

    drive(Simulation(workload, 8, backfill="outside"), scheduler)
    assert heard == {1: (0, 0), 2: (17, 17)}
