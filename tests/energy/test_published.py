"""SPARS's three FCFS forms by their published rule against its published results."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import polars as pl
import pytest

from hpctwin.experiments.spars.published import TIMEOUTS_S, published
from hpctwin.experiments.spars.schedulers import (
    BEST,
    FAULTS,
    SCHEDULERS,
    overestimated,
    simulate_cell,
    workload,
)
from hpctwin.model import Workload

NAMES = {"fcfs-psus": "fcfs_psus", "fcfs-auto": "fcfs", "fcfs-ipm": "fcfs_psas"}
WITHIN = 0.001

pytestmark = pytest.mark.traces


@pytest.fixture(scope="module")
def nasa(traces: Path) -> Workload:
    return workload()


@pytest.fixture(scope="module")
def cells(golden: Path) -> pl.DataFrame:
    return pl.read_csv(golden / "spars_published_metrics.csv")


def test_the_workload_is_the_last_fifth_of_the_log(nasa: Workload, golden: Path) -> None:
    theirs = pl.read_csv(golden / "spars_nasa20_t1200_fcfs.csv").sort("submit", "job_id")
    ours = nasa.to_frame().sort("submit_s", "job_id")
    assert ours["job_id"].to_list() == theirs["job_id"].to_list()
    assert ours["submit_s"].to_list() == theirs["submit"].to_list()
    assert ours["runtime_s"].to_list() == theirs["runtime"].to_list()
    assert ours["nodes"].to_list() == theirs["n_nodes"].to_list()


@pytest.mark.parametrize("scheduler", NAMES)
@pytest.mark.parametrize("timeout_s", TIMEOUTS_S)
def test_every_published_cell_within_a_thousandth(
    scheduler: str, timeout_s: int, nasa: Workload, cells: pl.DataFrame
) -> None:
    energy = simulate_cell(nasa, scheduler, timeout_s, "as-published")
    (theirs,) = cells.filter(
        (pl.col("scheduler") == NAMES[scheduler])
        & (pl.col("timeout_s") == timeout_s)
        & (pl.col("source") == "spars")
    ).to_dicts()
    state_s = energy.state_s()
    ours = {
        "total_energy_consumption": energy.total_j,
        "total_energy_waste": energy.wasted_j,
        "mean_waiting_time": energy.jobs["wait_s"].mean(),
        "total_active_idle": state_s["idle"],
        "total_active_compute": state_s["computing"],
        "total_switching_off": state_s["switching_off:off"],
        "total_switching_on": state_s["switching_on:off"],
        "total_sleeping": state_s["sleeping:off"],
    }
    assert ours == pytest.approx({name: theirs[name] for name in ours}, rel=WITHIN)


@pytest.mark.parametrize("scheduler", NAMES)
def test_every_job_starts_and_ends_when_it_did_there(
    scheduler: str, nasa: Workload, golden: Path
) -> None:
    theirs = pl.read_csv(golden / f"spars_nasa20_t1200_{NAMES[scheduler]}.csv").sort("job_id")
    ours = simulate_cell(nasa, scheduler, 1200, "as-published").jobs.sort("job_id")
    assert ours["job_id"].to_list() == theirs["job_id"].to_list()
    assert ours["start_s"].to_list() == theirs["start"].to_list()
    assert ours["end_s"].to_list() == theirs["finish"].to_list()


def test_the_published_table_is_that_of_the_result_files(cells: pl.DataFrame) -> None:
    names = {**NAMES, "easy-psus": "easy_psus", "easy-auto": "easy", "easy-ipm": "easy_psas"}
    assert set(names) == set(SCHEDULERS)
    for scheduler, theirs in names.items():
        for timeout_s in TIMEOUTS_S:
            (row,) = cells.filter(
                (pl.col("scheduler") == theirs)
                & (pl.col("timeout_s") == timeout_s)
                & (pl.col("source") == "spars")
            ).to_dicts()
            cell = published(scheduler, timeout_s)
            assert cell is not None
            assert cell.total_j == pytest.approx(row["total_energy_consumption"], abs=1e6)
            assert cell.wasted_j == pytest.approx(row["total_energy_waste"], abs=1e6)
            assert cell.mean_wait_s == pytest.approx(row["mean_waiting_time"], abs=0.1)


@pytest.mark.parametrize(("scheduler", "timeouts"), [("easy-ipm", 6), (BEST, 12)])
def test_ours_uses_less_energy_and_waits_less_than_the_best_published(
    scheduler: str, timeouts: int, nasa: Workload
) -> None:
    ahead = 0
    for timeout_s in TIMEOUTS_S:
        energy = simulate_cell(nasa, scheduler, timeout_s)
        theirs = published("easy-ipm", timeout_s)
        assert theirs is not None
        wait_s = float(energy.jobs["wait_s"].to_numpy().mean())
        assert energy.total_j < theirs.total_j
        ahead += wait_s < theirs.mean_wait_s
    assert ahead >= timeouts


def test_each_fault_moves_something_where_it_is_shown(nasa: Workload) -> None:
    @cache
    def without(scheduler: str, timeout_s: int) -> float:
        return simulate_cell(nasa, scheduler, timeout_s).total_j

    for scheduler, fault in FAULTS:
        assert any(
            simulate_cell(nasa, scheduler, timeout_s, fault=fault).total_j
            != without(scheduler, timeout_s)
            for timeout_s in (300, 600, 2700)
        ), (scheduler, fault)


def test_overestimated_walltimes_are_never_below_the_runtimes(nasa: Workload) -> None:
    asked = overestimated(nasa)
    assert (asked.walltime_ms >= asked.runtime_ms).all()
    assert len(set(asked.walltime_ms.tolist())) <= 21
    assert (asked.walltime_ms == overestimated(nasa).walltime_ms).all()
