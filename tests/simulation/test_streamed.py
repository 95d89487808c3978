"""A stream of jobs: job by job as in memory, whatever comes in which batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from hpctwin import Simulation, Workload, generate
from hpctwin.energy.accounts.component_energy import ComponentEnergy
from hpctwin.errors import ConfigError, OutputError, WorkloadError
from hpctwin.metrics.summary import ERROR
from hpctwin.model import Account, CapWindow, Cluster, Limit, PowerCap
from hpctwin.model.workload.dependencies import Dependencies, DependencyKind
from hpctwin.policies import formula, make_policy
from hpctwin.simulation import Result, StreamedResult, simulate_stream
from tests.energy.powered import joined, platforms, power_policies, uniform
from tests.energy.test_against_reference import powers_of
from tests.engine.test_preemption import with_checkpoints, with_preemption
from tests.engine.test_suspension import busy_cases, cases, crowded_cases
from tests.examples import each, examples
from tests.limit_strategies import limited, limited_in_use, slowed, with_tree
from tests.strategies import (
    ORDERS,
    clusters,
    connected,
    crowded_workloads,
    racked,
    rules,
    shared_clusters,
    shared_workloads,
    stocked,
    workloads,
)

BATCHES = (1, 2, 7, 1000)
SHARED_PLACEMENTS = (
    "first-fit", "best-fit", "spread", "weight", "round-robin", "contiguous", "fewest-switches",
    "tightest-run", "random", "whole-blocks", "communication-aware",
)  # fmt: skip
QUANTILES = ("median_", "p95_", "p99_")


def whole(table: pl.DataFrame) -> pl.DataFrame:
    """A table in an order that does not depend on its parts."""
    return table.sort(pl.all())


def same(streamed: StreamedResult, result: Result) -> None:
    """Tables and figures to the last bit, but quantiles, and energies that are sums of windows."""
    jobs = result.jobs if result.energy is None else result.energy.jobs
    assert_frame_equal(
        whole(streamed.jobs.collect().drop("energy_j", strict=False)),
        whole(jobs.drop("energy_j", strict=False)),
        check_exact=True,
    )
    for name in ("lost", "node_map", "placements", "stretches"):
        table = getattr(result, name)
        if table is not None:
            parts = pl.read_parquet(streamed.folder / name / "*.parquet")
            assert_frame_equal(whole(parts), whole(table), check_exact=True)
    if result.energy is not None:
        found = streamed.jobs.select("job_id", "energy_j").collect().sort("job_id")
        expected_energy = jobs.select("job_id", "energy_j").sort("job_id")
        assert_frame_equal(found, expected_energy, check_exact=result.placements is None)
    figures, expected = streamed.summary(), result.summary()
    assert figures.keys() == expected.keys()
    energy = result.energy
    pieces = energy is not None and (
        result.placements is not None or isinstance(energy, ComponentEnergy)
    )
    for name, value in expected.items():
        if name == "rejection_reasons":
            assert sorted(figures[name].split("; ")) == sorted(value.split("; "))
        elif value is not None and name.startswith(QUANTILES):
            assert figures[name] == pytest.approx(value, rel=1.001 * ERROR, abs=1e-9), name
        elif pieces and name.endswith(("_energy_j", "_energy_sd_j")):
            assert figures[name] == pytest.approx(value, rel=1e-9, abs=1e-6), name
        elif name != "engine_s":
            assert figures[name] == value, name


def compared(workload: Workload, *parts: Any, batch: int, **options: Any) -> None:
    """A workload as a stream, and in memory."""
    expected = Simulation(workload, *parts, **options).run()
    with TemporaryDirectory() as folder:
        same(simulate_stream(workload, *parts, out=folder, batch=batch, **options), expected)


@settings(max_examples=examples(12))
@given(data=st.data())
def test_a_stream_is_job_by_job_as_in_memory(data: st.DataObject) -> None:
    """Partitions, resources, dependencies across batches, failures, maintenance, cancellations."""
    cluster = data.draw(clusters(cleanup=True))
    workload = data.draw(workloads(cluster))
    options = data.draw(rules(cluster))
    on_shared = ("weight", "round-robin", "tightest-run")
    options["placement"] = data.draw(st.sampled_from((options["placement"], *on_shared)))
    order: Any = data.draw(st.sampled_from([*ORDERS.values(), "multifactor", "-chain"]))
    policy = make_policy(
        None,
        options.pop("backfill"),
        order=order,
        reservations=options.pop("reservations") if options["reservations"] != 1 else None,
        placement=options.pop("placement").replace("_", "-"),
    )
    options.pop("reservations", None)
    options["track_nodes"] = data.draw(st.booleans())
    batch = data.draw(st.sampled_from(BATCHES))
    compared(workload, cluster, policy, batch=batch, **options)


@settings(max_examples=examples(12))
@given(data=st.data())
def test_a_stream_under_limits_is_job_by_job_as_in_memory(data: st.DataObject) -> None:
    """What users, accounts and QOS have is counted anew from batch to batch."""
    cluster = data.draw(limited(clusters(cleanup=True)))
    workload = data.draw(workloads(cluster))
    policy = data.draw(st.sampled_from(("fcfs+easy", "sjf+conservative", "wfp+none")))
    compared(workload, cluster, policy, batch=data.draw(st.sampled_from(BATCHES)))


@settings(max_examples=examples(25))
@given(data=st.data())
def test_use_counts_in_a_stream_as_in_memory(data: st.DataObject) -> None:
    """Also what jobs of earlier batches used of whom no job is there for a while."""
    cluster = data.draw(limited_in_use(clusters(cleanup=True)))
    workload = slowed(data.draw(workloads(cluster)), data.draw(st.sampled_from((3, 10, 40))))
    policy = data.draw(st.sampled_from(("fcfs+easy", "wfp+none", "fairshare+none")))
    compared(workload, cluster, policy, batch=data.draw(st.sampled_from(BATCHES)))


@settings(max_examples=examples(12))
@given(data=st.data())
def test_a_stream_on_nodes_with_power_states_is_job_by_job_as_in_memory(
    data: st.DataObject,
) -> None:
    """Power policies, sleep depths, cleanup, failures while nodes are switched on."""
    cluster = data.draw(platforms())
    cluster = cluster.model_copy(update={"cleanup": data.draw(st.sampled_from((0, 0, 7)))})
    workload = data.draw(workloads(cluster, resources=False, per_node=False))
    power = data.draw(power_policies())
    policy = make_policy(
        None, data.draw(st.sampled_from(("easy", "conservative", "none"))), power=power
    )
    batch = data.draw(st.sampled_from(BATCHES))
    compared(workload, cluster, policy, batch=batch)


@settings(max_examples=examples(25))
@given(data=st.data())
def test_a_stream_on_shared_nodes_is_job_by_job_and_node_by_node_as_in_memory(
    data: st.DataObject,
) -> None:
    """Tasks, exclusive and whole-node jobs, and all that other streams have; every placement but one."""
    cluster = data.draw(
        shared_clusters(cleanup=True).flatmap(connected).flatmap(racked).flatmap(stocked)
    )
    what = {name: data.draw(st.booleans()) for name in ("owners", "several", "grouped")}
    workload = data.draw(shared_workloads(cluster, max_jobs=25, **what))
    options = data.draw(rules(cluster))
    order: Any = data.draw(st.sampled_from([*ORDERS.values(), "multifactor", "-chain"]))
    placement = data.draw(st.sampled_from(SHARED_PLACEMENTS))
    policy = make_policy(
        None,
        options.pop("backfill"),
        order=order,
        reservations=options["reservations"] if options["reservations"] != 1 else None,
        placement=placement,
    )
    for name in ("reservations", "placement"):
        options.pop(name)
    compared(workload, cluster, policy, batch=data.draw(st.sampled_from(BATCHES)), **options)


@settings(max_examples=examples(12))
@given(data=st.data())
def test_a_stream_on_shared_nodes_under_limits_is_as_in_memory(data: st.DataObject) -> None:
    """What is in use under a limit names parts of nodes, too."""
    cluster = data.draw(limited(shared_clusters(cleanup=True)))
    several = data.draw(st.booleans())
    workload = data.draw(shared_workloads(cluster, max_jobs=25, several=several))
    policy = data.draw(st.sampled_from(("fcfs+easy", "sjf+conservative", "wfp+none")))
    compared(workload, cluster, policy, batch=data.draw(st.sampled_from(BATCHES)))


@settings(max_examples=examples(12))
@given(workload=crowded_workloads(60), batch=st.sampled_from(BATCHES))
@each("backfill", ("easy:2", "conservative", "first-fit"))
def test_a_stream_on_crowded_nodes_is_as_in_memory(
    backfill: str, workload: Workload, batch: int
) -> None:
    """Jobs run and wait across many batches, with promises on nodes."""
    machine = Cluster.model_validate(
        {"nodes": [{"name": "g", "count": 2, "cores": 8, "memory_gb": 16}]}
    )
    compared(workload, machine, "fcfs", backfill, batch=batch)


@settings(max_examples=examples(12))
@given(data=st.data())
def test_a_stream_on_shared_nodes_with_power_states_is_as_in_memory(data: st.DataObject) -> None:
    """What nodes draw is divided among jobs that are on them in several windows."""
    cluster = data.draw(
        shared_clusters(outages=data.draw(st.booleans())).flatmap(racked).flatmap(stocked)
    )
    machine = joined(data.draw(powers_of(cluster)), cluster)
    what = {name: data.draw(st.booleans()) for name in ("several", "grouped")}
    workload = data.draw(shared_workloads(cluster, max_jobs=20, **what))
    policy = make_policy(
        None,
        data.draw(st.sampled_from(("easy", "conservative", "none"))),
        placement=data.draw(st.sampled_from(("first-fit", "best-fit"))),
        power=data.draw(power_policies()),
    )
    compared(workload, machine, policy, batch=data.draw(st.sampled_from(BATCHES)))


SLURM = {
    "default_queue_depth": 3,
    "sched_interval": 8,
    "batch_sched_delay": 2,
    "bf_interval": 4,
    "bf_resolution": 3,
    "bf_window": 20,
    "bf_max_job_test": 5,
    "bf_max_job_user": 2,
}


PBS: dict[str, Any] = {"strict_ordering": True, "backfill_depth": 2, "scheduler_iteration": 5}


def drawn(data: st.DataObject, shared: bool) -> tuple[Workload, Cluster]:
    if shared:
        cluster = data.draw(shared_clusters(cleanup=True))
        return data.draw(shared_workloads(cluster, several=data.draw(st.booleans()))), cluster
    cluster = data.draw(clusters(cleanup=True))
    return data.draw(workloads(cluster)), cluster


@settings(max_examples=examples(12))
@given(data=st.data(), batch=st.sampled_from(BATCHES))
@each("shared", (False, True))
def test_a_stream_under_slurms_scheduler_is_job_by_job_as_in_memory(
    shared: bool, data: st.DataObject, batch: int
) -> None:
    """Which looks at jobs sooner if one was submitted since."""
    compared(*drawn(data, shared), "fcfs", "slurm", settings=SLURM, batch=batch)


@settings(max_examples=examples(12))
@given(data=st.data(), batch=st.sampled_from(BATCHES))
def test_a_stream_that_plans_particular_nodes_is_job_by_job_as_in_memory(
    data: st.DataObject, batch: int
) -> None:
    compared(
        *drawn(data, shared=False), "fcfs", "slurm", placement="contiguous", settings=SLURM, batch=batch
    )  # fmt: skip


@settings(max_examples=examples(12))
@given(data=st.data(), batch=st.sampled_from(BATCHES))
@each("shared", (False, True))
def test_a_stream_under_pbss_scheduler_is_job_by_job_as_in_memory(
    shared: bool, data: st.DataObject, batch: int
) -> None:
    """Which comes again after a while."""
    compared(*drawn(data, shared), "fcfs", "pbs", settings=PBS, batch=batch)


@settings(max_examples=examples(12))
@given(data=st.data(), batch=st.sampled_from(BATCHES))
@each("shared", (False, True))
def test_a_stream_under_pushdown_is_job_by_job_as_in_memory(
    shared: bool, data: st.DataObject, batch: int
) -> None:
    """Which keeps jobs in lists."""
    settings = {"parallel": data.draw(st.sampled_from((2, "any"))), "every": 2, "attempts": 1}
    compared(*drawn(data, shared), "pas", "pushdown", settings=settings, batch=batch)


@settings(max_examples=examples(12))
@given(data=st.data(), batch=st.sampled_from(BATCHES))
@each("backfill", ("easy", "conservative", "pbs", "slurm"))
@each("shared", (False, True))
def test_a_stream_with_preemption_is_job_by_job_as_in_memory(
    shared: bool, backfill: str, data: st.DataObject, batch: int
) -> None:
    """Jobs preempt those of earlier batches, and some go on from checkpoints."""
    if shared:
        cluster = data.draw(shared_clusters(cleanup=True))
        several = data.draw(st.booleans())
        jobs = shared_workloads(cluster, several=several, dependencies=False)
    else:
        cluster = data.draw(clusters(cleanup=True))
        jobs = workloads(cluster, dependencies=False)
    workload = data.draw(jobs)
    cluster = with_preemption(data.draw, cluster)
    workload = with_checkpoints(data.draw, workload)
    compared(workload, cluster, "fcfs", backfill, batch=batch, track_nodes=data.draw(st.booleans()))


@settings(max_examples=examples(25))
@given(data=st.data(), batch=st.sampled_from(BATCHES))
@each("backfill", ("easy", "conservative", "slurm"))
@each("shared", (False, True))
def test_a_stream_with_suspension_is_job_by_job_as_in_memory(
    shared: bool, backfill: str, data: st.DataObject, batch: int
) -> None:
    """Jobs are suspended for jobs of later batches, some several times, and some are cancelled."""
    case = data.draw(crowded_cases() if shared else st.one_of(busy_cases(), cases()))
    compared(case["workload"], case["cluster"], "fcfs", backfill, batch=batch)


@settings(max_examples=examples(12))
@given(data=st.data(), batch=st.sampled_from(BATCHES))
@each("shared", (False, True))
def test_a_stream_with_suspension_on_nodes_with_power_states_is_as_in_memory(
    shared: bool, data: st.DataObject, batch: int
) -> None:
    case = data.draw(crowded_cases() if shared else busy_cases())
    cluster = joined(data.draw(powers_of(case["cluster"])), case["cluster"])
    compared(case["workload"], cluster, "fcfs+easy", batch=batch, power=data.draw(power_policies()))


@pytest.mark.parametrize("tasks", [None, [8, 4, 4]])
def test_a_job_that_starts_when_a_batch_ends_counts_as_used_where_jobs_may_be_suspended(
    tasks: list[int] | None,
) -> None:
    """A thousand times 64.999 is less than 64999 in floating point."""
    tiers = {"partitions": {"low": {"tier": 1}, "high": {"tier": 2}}, "mode": "suspend"}
    cluster = Cluster.model_validate(
        {
            "nodes": [{"name": "g", "count": 2, "cores": 4}],
            "partitions": [{"name": "low"}, {"name": "high"}],
            "preemption": tiers,
        }
    )
    workload = Workload.build(
        submit_s=[64.999, 65, 70],
        runtime_s=[30, 10, 5],
        nodes=[2, 1, 1],
        partition=["low", "low", "high"],
        chunks=None if tasks is None else {"tasks": tasks},
    )
    assert Simulation(workload, cluster).run().summary()["utilization"] == pytest.approx(5 / 6)
    compared(workload, cluster, "fcfs+easy", batch=1)


@settings(max_examples=examples(25))
@given(data=st.data(), more=st.integers(0, 600), hour=st.integers(0, 40))
@each("backfill", ("none", "easy", "conservative"))
def test_a_stream_under_a_cap_by_time_of_day_is_job_by_job_as_in_memory(
    backfill: str, data: st.DataObject, more: int, hour: int
) -> None:
    """Six nodes draw up to 900 W without jobs, and 100 W more each while they compute."""
    cap = PowerCap(1100, (CapWindow(hour, hour + 20, 1100 + more),))
    cluster = uniform().model_copy(update={"cap": cap})
    workload = data.draw(workloads(cluster, resources=False, per_node=False, dependencies=False))
    narrow = workload.replace(nodes=np.minimum(workload.nodes, 2))
    power = data.draw(power_policies(("none", "psas-ipm")))
    policy = make_policy("fcfs", backfill, power=power)
    compared(narrow, cluster, policy, batch=data.draw(st.sampled_from(BATCHES)))


NODES = 8


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("thinks", [{0: 1}, {0: 2, 1: 2}, {0: 5}, {1: 0, 3: 1}])
def test_a_stream_begins_with_the_first_job_whose_user_does_not_think(
    batch: int, shared: bool, thinks: dict[int, int]
) -> None:
    edges = [(job, other, DependencyKind.THINK, 5000) for job, other in thinks.items()]
    workload = Workload.build(
        submit_s=[2, 10, 30, 31, 90, 91],
        runtime_s=[7, 40, 50, 1, 9, 3],
        nodes=[1, 3, 2, 4, 4, 1],
        chunks={"tasks": [1, 5, 3, 8, 4, 1]} if shared else None,
        dependencies=Dependencies.of(edges),
    )
    cluster = Cluster.model_validate({"nodes": [{"name": "n", "count": 4, "cores": 2}]})
    compared(workload, cluster, "fcfs+easy", batch=batch)


def test_failures_drawn_over_time_equal_those_of_a_run_in_memory() -> None:
    failures = {"mtbf": "2d", "mttr": "5h", "seed": 3, "on_failure": "requeue"}
    machine = Cluster.model_validate(
        {"nodes": [{"name": "g", "count": NODES}], "failures": failures}
    )
    workload = generate("poisson", jobs=150, nodes=NODES, load=0.7, seed=3)
    assert len(Simulation(workload, machine, "wfp+easy").run().lost) > 5
    compared(workload, machine, "wfp+easy", batch=40)


def jobs_of(first: int, count: int, **more: Any) -> pl.DataFrame:
    """A table of jobs that are submitted one a second."""
    rows = range(first, first + count)
    columns = {
        "job_id": list(rows),
        "submit_s": [float(row) for row in rows],
        "runtime_s": [float(3 + row % 7) for row in rows],
        "nodes": [1 + row % NODES for row in rows],
        **{name: [make(row) for row in rows] for name, make in more.items()},
    }
    return pl.DataFrame(columns)


def in_memory(*tables: pl.DataFrame) -> Result:
    return Simulation(Workload.from_frame(pl.concat(tables)), NODES, "fcfs+easy").run()


def note_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "stream.json").read_text())
    return found


class Arrow:
    """A table of which nothing is known but that it has Arrow's C interface."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_tables_of_any_size_may_come_and_wait_for_jobs_of_others(
    tmp_path: Path, batch: int
) -> None:
    def depends(row: int) -> str | None:
        # Backwards over many batches, to the batch before, and forwards.
        others = {9: "afterok:0", 14: "afterany:13+5;after:2", 15: "afterok:17", 20: "afterok:4"}
        return others.get(row)

    sizes = [1, 0, 7, 2, 0, 13, 1, 6]
    ends = [sum(sizes[:number]) for number in range(len(sizes))]
    tables = [
        jobs_of(first, size, depends=depends, fails=lambda row: int(row == 4))
        if size
        else jobs_of(0, 1, depends=depends, fails=lambda row: 0).clear()
        for first, size in zip(ends, sizes, strict=True)
    ]
    tables = [table.with_columns(pl.col("depends").cast(pl.String)) for table in tables]
    batches: Iterator[Any] = (Arrow(t) if n % 2 else t for n, t in enumerate(tables))
    found = simulate_stream(batches, NODES, "fcfs+easy", out=tmp_path, batch=batch)
    expected = in_memory(*tables)
    assert_frame_equal(whole(found.jobs.collect()), whole(expected.jobs))
    assert found.summary()["instants"] == expected.instants
    assert note_of(tmp_path)["stream"] == "complete"
    assert json.loads((tmp_path / "summary.json").read_text())["jobs"] == sum(sizes)


def test_a_job_may_wait_for_the_start_of_one_whose_nodes_are_being_switched_on(
    tmp_path: Path,
) -> None:
    """That one had been given its nodes before anybody was known to wait for it."""
    table = pl.DataFrame(
        {
            "job_id": [0, 1, 2, 3, 4],
            "submit_s": [0.0, 1000, 1010, 1020, 2000],
            "runtime_s": [1.0, 100, 10, 10, 10],
            "nodes": [1, 2, 1, 1, 1],
            "depends": [None, None, "after:1", "afterany:1+20", "after:1"],
        }
    )
    machine = Cluster.uniform(
        4, active_w=200, idle_w=100, sleep_w=9, off_s=5, off_w=50, on_s=60, on_w=90
    )
    expected = Simulation(Workload.from_frame(table), machine, "fcfs+easy~psus:10s").run()
    assert expected.jobs["start_s"][1] == 1060
    found = simulate_stream(
        table.iter_slices(1), machine, "fcfs+easy~psus:10s", out=tmp_path, batch=1
    )
    columns = ["job_id", "eligible_s", "start_s", "end_s"]
    assert_frame_equal(
        found.jobs.select(columns).collect().sort("job_id"), expected.jobs.select(columns)
    )


def test_a_parquet_file_is_read_piece_by_piece(tmp_path: Path) -> None:
    """Fair share too, as it says beforehand which users there are; and one user comes late."""
    workload = generate("poisson", jobs=300, nodes=NODES, load=1.1, users=5, seed=1)
    frame = workload.to_frame().with_columns(
        user=pl.when(pl.col("job_id") > 250).then(pl.lit("0late")).otherwise(pl.col("user"))
    )
    frame.write_parquet(tmp_path / "jobs.parquet", row_group_size=50)
    expected = Simulation(Workload.from_frame(frame), NODES, "multifactor+easy").run()
    found = simulate_stream(
        tmp_path / "jobs.parquet", NODES, "multifactor+easy", out=tmp_path / "out", batch=64
    )
    assert_frame_equal(whole(found.jobs.collect()), whole(expected.jobs))


@settings(max_examples=examples(25))
@given(data=st.data(), batch=st.sampled_from(BATCHES), in_file=st.booleans())
def test_a_tree_of_users_ranks_those_of_a_stream_as_in_memory(
    data: st.DataObject, batch: int, in_file: bool
) -> None:
    """Accounts and users that the cluster does not list are known before their first jobs."""
    cluster = data.draw(with_tree(clusters(maintenance=False)))
    workload = data.draw(workloads(cluster, dependencies=False))
    policy = make_policy(formula("0 - fairshare"), "easy")
    compared(workload, cluster, policy, batch=batch)
    if in_file and len(workload):
        with TemporaryDirectory() as folder:
            path = Path(folder) / "jobs.parquet"
            workload.to_frame().write_parquet(path)
            streamed = simulate_stream(path, cluster, policy, out=Path(folder) / "out", batch=batch)
            expected = Simulation(Workload.from_frame(pl.read_parquet(path)), cluster, policy).run()
            assert_frame_equal(whole(streamed.jobs.collect()), whole(expected.jobs))


def test_a_source_that_fails_leaves_whole_parts_and_says_how_far_it_came(tmp_path: Path) -> None:
    def batches() -> Iterator[pl.DataFrame]:
        yield jobs_of(0, 200)
        yield jobs_of(200, 200)
        yield jobs_of(400, 200)
        raise OSError("the disk that the jobs are on is gone")

    with pytest.raises(OSError, match="is gone"):
        simulate_stream(batches(), NODES, out=tmp_path, batch=200)
    note = note_of(tmp_path)
    assert (note["stream"], note["because"]) == ("cut off", "the disk that the jobs are on is gone")
    parts = pl.read_parquet(tmp_path / "jobs" / "*.parquet")
    assert 0 < len(parts) == note["jobs_in_parts"] < 600
    expected = in_memory(jobs_of(0, 200), jobs_of(200, 200), jobs_of(400, 200)).jobs
    ends = dict(expected.select("job_id", (pl.col("end_s") * 1000).cast(pl.Int64)).rows())
    assert all(ends[job] == end for job, end in parts.select("job_id", "end_ms").rows())


@pytest.mark.parametrize(
    ("batches", "told"),
    [
        (lambda: [jobs_of(5, 5), jobs_of(0, 5)], "job 0, one of rows 6 to 10, is submitted at 0 s"),
        (lambda: [jobs_of(0, 5), jobs_of(4, 5)], "job id 4 is used more than once"),
        (lambda: [jobs_of(0, 5), jobs_of(5, 5).drop("nodes")], "batch 2, after 5 rows: column nodes"),
        (lambda: [jobs_of(0, 5), 7], "batch 2, after 5 rows: a int is not a batch of jobs"),
        (
            lambda: [jobs_of(0, 2, depends=lambda row: "afterok:9")],
            "depends on job 9, which the stream does not contain",
        ),
        (lambda: [jobs_of(0, 2, depends=lambda row: "afterok:x")], "ids are whole numbers"),
        (lambda: [jobs_of(0, 5), jobs_of(5, 5, depends=lambda row: "afterok:1")], "column depends"),
        (lambda: [jobs_of(0, 1).clear()], "stream has no jobs"),
        (lambda: jobs_of(0, 5), "a DataFrame is not a stream of jobs"),
        (lambda: 7, "a int is not a stream of jobs"),
    ],
)  # fmt: skip
def test_invalid_batches_are_reported_with_where_they_are(
    tmp_path: Path, batches: Callable[[], Any], told: str
) -> None:
    with pytest.raises(WorkloadError, match=told):
        simulate_stream(batches(), NODES, out=tmp_path / "out", batch=2)


@pytest.mark.parametrize(
    ("policy", "options", "told"),
    [
        ("fcfs+outside", {}, "keeps data per job"),
        ("multifactor+easy", {}, "reads fairshare"),
        (None, {"order": lambda now, job: job.user}, "reads user, but the future users"),
        ("fcfs+easy", {"begin_s": [1.0] * 6}, "begin_s has 6 values, but 5 jobs of stream came"),
        ("fcfs+easy", {"expected_s": [1.0]}, "expected_s has 1 values, but 5 jobs of stream came"),
    ],
)
def test_options_that_cannot_be_streamed_are_rejected_by_name(
    tmp_path: Path, policy: str | None, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        simulate_stream(iter([jobs_of(0, 5)]), NODES, policy, out=tmp_path, **options)


@settings(max_examples=examples(25))
@given(data=st.data(), batch=st.sampled_from(BATCHES))
@each("backfill", ("easy", "conservative"))
def test_numbers_of_jobs_are_those_of_the_same_jobs_in_a_stream(
    backfill: str, data: st.DataObject, batch: int
) -> None:
    """Expected runtimes, risks and earliest starts, of jobs that stay from batch to batch too."""
    cluster = data.draw(clusters())
    workload = data.draw(workloads(cluster, dependencies=False))
    size = len(workload)
    numbers = {
        "expected_s": [data.draw(st.integers(1, 40)) for _ in range(size)],
        "risk": [data.draw(st.sampled_from((0.0, 0.25, 1.0))) for _ in range(size)],
        "begin_s": [data.draw(st.integers(0, 60)) for _ in range(size)],
    }
    policy = make_policy(formula("risk * 10 + expected"), backfill)
    compared(workload, cluster, policy, batch=batch, **numbers)


def test_a_tree_of_users_that_no_ordering_reads_does_not_end_a_stream(tmp_path: Path) -> None:
    tree = Cluster.model_validate(
        {"nodes": [{"name": "c", "count": NODES}], "fairshare": {"kind": "tree"}}
    )
    batches = [
        jobs_of(0, 5, user=lambda row: f"u{row}"),
        jobs_of(5, 5, user=lambda row: f"u{row}"),
    ]
    done = simulate_stream(iter(batches), tree, "fcfs+easy", out=tmp_path / "tree", batch=5)
    plain = simulate_stream(iter(batches), NODES, "fcfs+easy", out=tmp_path / "plain", batch=5)
    columns = "job_id", "start_s", "end_s"
    assert done.jobs.select(columns).collect().equals(plain.jobs.select(columns).collect())


SHARED = Cluster.model_validate(
    {"nodes": [{"name": "g", "count": NODES, "cores": 8, "memory_gb": 32}]}
)


def test_what_a_job_of_the_first_instant_takes_is_no_longer_queued() -> None:
    """Batches that all begin at time 0: such jobs are known before anything has happened."""
    asks = {"tasks": 1, "cores_per_task": 1.0, "exclusive": 1, "nodes": 1}
    table = jobs_of(0, 12, **{name: lambda row, value=value: value for name, value in asks.items()})
    workload = Workload.from_frame(table.with_columns(submit_s=pl.lit(0.0)), name="stream")
    compared(workload, SHARED, batch=2)


@pytest.mark.parametrize("machine", [SHARED, Cluster.uniform(NODES)], ids=("shared", "whole"))
def test_a_stream_says_which_limit_kept_jobs_out_when_they_came(
    machine: Cluster, tmp_path: Path
) -> None:
    table = jobs_of(0, 30, nodes=lambda row: 1, account=lambda row: "chem")
    if machine is SHARED:
        table = table.with_columns(tasks=1, cores_per_task=1.0)
    workload = Workload.from_frame(table, name="stream")
    few = Limit(account="chem", submitted=2)
    cluster = machine.model_copy(update={"limits": (few,), "accounts": (Account(name="chem"),)})
    compared(workload, cluster, "fcfs+easy", batch=3)
    streamed = simulate_stream(workload, cluster, "fcfs+easy", out=tmp_path, batch=3)
    assert (
        "were submitted when the limit of pending and running jobs was reached"
        in streamed.summary()["rejection_reasons"]
    )


def test_batches_of_tables_may_ask_for_tasks_if_the_first_says_whether(tmp_path: Path) -> None:
    """Whole nodes first, which share the rules of the others."""
    whole = jobs_of(0, 5, tasks=lambda row: 0, cores_per_task=lambda row: 1.0)
    tasks = jobs_of(5, 40, tasks=lambda row: NODES, cores_per_task=lambda row: 1.5 + row % 3)
    late = jobs_of(45, 5)
    result = simulate_stream([whole, tasks, late], SHARED, out=tmp_path, batch=7)
    expected = Simulation(
        Workload.from_frame(pl.concat([whole, tasks, late], how="diagonal"), name="stream"), SHARED
    ).run()
    same(result, expected)
    assert result.placements is not None
    assert expected.placements is not None
    assert len(expected.placements) > 50


def test_a_parquet_file_says_beforehand_that_jobs_share_nodes(tmp_path: Path) -> None:
    """Its first piece alone does not: nobody asks for tasks there."""
    table = jobs_of(0, 60, tasks=lambda row: row // 30 * NODES)
    table.write_parquet(tmp_path / "jobs.parquet")
    result = simulate_stream(tmp_path / "jobs.parquet", SHARED, out=tmp_path / "out", batch=10)
    same(result, Simulation(Workload.from_frame(table, name="jobs"), SHARED).run())


def test_tasks_that_come_after_jobs_of_whole_nodes_are_rejected(tmp_path: Path) -> None:
    shared = jobs_of(5, 5, tasks=lambda row: NODES)
    with pytest.raises(
        WorkloadError, match="have no column tasks; add it to all rows, with 0 for exclusive nodes"
    ):
        simulate_stream(iter([jobs_of(0, 5), shared]), SHARED, out=tmp_path, batch=5)


def test_options_that_cannot_be_streamed_on_shared_nodes_are_rejected_by_name(
    tmp_path: Path,
) -> None:
    for what in ({}, {"tasks": lambda row: NODES}):
        with pytest.raises(ConfigError, match="needs the kinds of all jobs in advance"):
            simulate_stream([jobs_of(0, 5, **what)], SHARED, "@fragmentation", out=tmp_path)


def test_parts_of_another_run_are_not_written_over(tmp_path: Path) -> None:
    simulate_stream(iter([jobs_of(0, 5)]), NODES, out=tmp_path)
    with pytest.raises(OutputError, match="it belongs to another run"):
        simulate_stream(iter([jobs_of(0, 5)]), NODES, out=tmp_path)


def test_two_streams_never_write_to_one_folder_at_the_same_time(tmp_path: Path) -> None:
    def batches() -> Iterator[pl.DataFrame]:
        yield jobs_of(0, 5)
        with pytest.raises(OutputError, match="another run writes to it: process"):
            simulate_stream(iter([jobs_of(0, 3)]), NODES, out=tmp_path)
        yield jobs_of(5, 10)

    result = simulate_stream(batches(), NODES, out=tmp_path, batch=5)
    assert len(result.jobs.collect()) == 15
    assert not (tmp_path / ".lock").exists()
