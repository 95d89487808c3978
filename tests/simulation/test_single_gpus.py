"""GPUs that are counted one by one, where jobs ask for parts of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Result, Simulation, Workload, simulate, simulate_stream
from hpctwin.errors import WorkloadError
from hpctwin.model import Category
from hpctwin.simulation import explain
from hpctwin.simulation.lowering.gpus import lay, room_on
from tests import strategies
from tests.examples import each, examples

BACKFILLS = (
    "none",
    "first-fit",
    "easy",
    "conservative",
    "pack:patience=20s",
    "slurm:bf_interval=2s",
)


def machine(nodes: int = 1, gpus: float = 2) -> Cluster:
    return Cluster.model_validate(
        {"nodes": [{"name": "a", "count": nodes, "cores": 64, "gpus": gpus}]}
    )


def asking(gpus: list[float], tasks: list[int] | None = None, **more: Any) -> Workload:
    """Jobs that are submitted one a second, and run for 100 s."""
    size = len(gpus)
    chunks = {"tasks": tasks or [1] * size, "gpus_per_task": gpus}
    submit = np.arange(size)
    return Workload.build(
        submit_s=submit, runtime_s=[100] * size, nodes=[1] * size, chunks=chunks, **more
    )


def where(result: Result) -> list[tuple[Any, ...]]:
    assert result.gpu_shares is not None
    return result.gpu_shares.select("job_id", "node", "gpu", "share").rows()


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_two_quarters_of_different_gpus_are_no_half(backfill: str) -> None:
    workload = asking([0.75, 0.75, 0.5, 0.25])
    result = simulate(workload, machine(), "fcfs", backfill)
    assert result.jobs["start_s"].to_list()[2] >= 100.0
    assert (1, 0, 0, 0.75) in where(result)
    assert (2, 0, 1, 0.75) in where(result)


def test_it_is_reported_that_no_gpu_has_as_much_left() -> None:
    simulation = Simulation(asking([0.75, 0.75, 0.5]), machine(), "fcfs", "easy")
    waited = next(m for m in explain(simulation, 3) if m.what == "waited")
    assert waited.detail["short_s"] == {"gpus": 98.0}


def test_a_fraction_of_a_gpu_is_placed_on_the_tightest_gpu_and_whole_ones_on_free_ones() -> None:
    result = simulate(asking([0.75, 0.5, 0.25, 2, 1.5]), machine(gpus=5), "fcfs", "first-fit")
    assert where(result) == [
        (1, 0, 0, 0.75), (2, 0, 1, 0.5), (3, 0, 0, 0.25), (4, 0, 2, 1.0), (4, 0, 3, 1.0),
        (5, 0, 1, 0.5), (5, 0, 4, 1.0),
    ]  # fmt: skip
    assert result.jobs["start_s"].to_list() == [0, 1, 2, 3, 4]


def test_a_reservation_is_of_particular_gpus() -> None:
    """Job 3 is promised GPU 0 at 100; job 4 would have as much in all meanwhile, but not on one GPU then."""
    workload = asking([0.75, 1, 1, 0.25])
    shorter = workload.replace(
        runtime_ms=np.array([100, 300, 100, 150]) * 1000,
        walltime_ms=np.array([100, 300, 100, 150]) * 1000,
    )
    result = simulate(shorter, machine(), "fcfs", "easy")
    assert result.jobs["start_s"].to_list() == [0, 1, 100, 200]


def test_requests_that_no_gpu_holds_are_rejected() -> None:
    """In all there would be room for three tasks of 0.6 on two GPUs."""
    found = simulate(asking([0.6, 0.6], [3, 2]), machine(), "fcfs", "easy")
    assert found.jobs["state"].to_list() == ["rejected", "completed"]
    more = asking([0.6, 0.6], [1, 1], more_tasks=Category.of(["2:gpus=0.6", "1:gpus=0.6"]))
    found = simulate(more, machine(), "fcfs", "easy")
    assert found.jobs["state"].to_list() == ["rejected", "completed"]


def test_jobs_that_all_ask_for_whole_gpus_are_counted_together() -> None:
    assert simulate(asking([1, 2]), machine(), "fcfs", "easy").gpu_shares is None
    nobody_has = Cluster.model_validate({"nodes": [{"name": "a", "count": 1, "cores": 64}]})
    assert simulate(asking([0.5, 2]), nobody_has, "fcfs", "easy").gpu_shares is None


def test_an_exclusive_job_has_all_gpus() -> None:
    workload = asking([0.5, 0.5])
    workload = workload.replace(chunks={**workload.chunks, "exclusive": np.array([1.0, 0.0])})
    result = simulate(workload, machine(), "fcfs", "easy")
    assert result.jobs["start_s"].to_list() == [0, 100]
    assert where(result) == [(2, 0, 0, 0.5)]
    assert result.fragmentation(2)["free_gpus"].to_list() == [0.0, 1.5]


def test_fragmentation_is_counted_for_each_gpu() -> None:
    """0.25 and 0.5 are left of the two GPUs."""
    found = simulate(asking([0.75, 0.5]), machine(), "fcfs", "easy").fragmentation(101)
    then = found.filter((pl.col("time_s") > 1) & (pl.col("time_s") < 100))
    # A job of 0.75 can use none of it, one of 0.5 the larger part.
    assert then["fragmented_gpus"].to_list() == pytest.approx([(0.75 + 0.25) / 2] * len(then))
    assert then["free_gpus"].to_list() == pytest.approx([0.75] * len(then))


def test_the_placement_goes_to_the_gpu_on_which_it_strands_least() -> None:
    """0.75 is left of one GPU, 0.5 of the other: on the first, a job of 0.25 leaves two halves."""
    gpus = [0.25, 0.5, 0.25, 0.5, 0.5]
    by_tightest = simulate(asking(gpus), machine(), "fcfs", "none", placement="first-fit")
    assert [row[2] for row in where(by_tightest)][:3] == [0, 0, 0]
    mostly_halves = asking([0.25, 0.5, 0.25, *[0.5] * 20])
    found = simulate(mostly_halves, machine(4), "fcfs", "none", placement="fragmentation")
    shares = found.gpu_shares
    assert shares is not None
    now = shares.filter(pl.col("start_s") < 60).group_by("node", "gpu").agg(pl.col("share").sum())
    # Whatever is left of a GPU is of use to a half, as long as there is room.
    assert set(now["share"].to_list()) <= {0.5, 1.0}


@settings(max_examples=examples(25))
@given(data=st.data())
@each("backfill", BACKFILLS)
def test_no_gpu_ever_gives_more_than_it_has(backfill: str, data: st.DataObject) -> None:
    cluster = data.draw(strategies.shared_clusters().flatmap(strategies.with_gpus))
    several = data.draw(st.booleans())
    jobs = strategies.shared_workloads(
        cluster, max_jobs=15, several=several, gpus=strategies.PARTS_OF_GPUS
    )
    result = Simulation(data.draw(jobs), cluster, "fcfs", backfill).run()
    shares, placed = result.gpu_shares, result.placements
    if shares is None or placed is None:
        return
    for time in shares["start_s"].unique():
        now = (pl.col("start_s") <= time) & (pl.col("end_s") > time)
        held = shares.filter(now).group_by("node", "gpu").agg(pl.col("share").sum())
        assert (held["share"] <= 1 + 1e-9).all()
    keys = ["job_id", "node", "start_s"]
    of_gpus = shares.group_by(keys).agg(pl.col("share").sum())
    both = of_gpus.join(placed, on=keys, how="left")
    assert both["gpus"].to_list() == pytest.approx(both["share"].to_list())


def test_a_stream_knows_beforehand_whether_gpus_are_counted_one_by_one(tmp_path: Path) -> None:
    workload = asking([1, 1, 1, 0.75, 0.75, 0.5])
    expected = Simulation(workload, machine()).run()
    workload.to_frame().write_parquet(tmp_path / "jobs.parquet")
    for number, source in enumerate((workload, tmp_path / "jobs.parquet")):
        found = simulate_stream(source, machine(), out=tmp_path / f"{number}", batch=2)
        assert (
            found.jobs.collect().sort("job_id")["start_s"].to_list()
            == expected.jobs["start_s"].to_list()
        )
    table = workload.to_frame()
    with pytest.raises(WorkloadError, match="request parts of GPUs, but the first rows do not"):
        simulate_stream(iter([table[:3], table[3:]]), machine(), out=tmp_path / "a", batch=2)


def test_the_gpus_of_running_jobs_are_found_in_their_order() -> None:
    left = np.array([1000, 1000, 500])
    assert lay(600, 1, left).tolist() == [600, 0, 0]
    assert lay(250, 3, left).tolist() == [250, 0, 500]
    assert lay(1500, 1, left).tolist() == [1000, 0, 500]
    # More than there is of any: of those that have most.
    assert lay(1000, 3, left).sum() == 3000
    assert room_on(1500, left[None]).tolist() == [1]
    assert room_on(300, left[None]).tolist() == [3 + 3 + 1]
    assert room_on(1250, np.array([[1000, 1000, 1000, 0]])).tolist() == [2]
