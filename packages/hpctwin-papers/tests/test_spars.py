"""SPARS's three FCFS forms by their published rule against its published results."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.energy.powered import energy_of
from tests.energy.test_clock import SWITCHING
from tests.energy.test_platform import read, spars_machine

from hpctwin.energy.accounts.outputs import write_spars_results
from hpctwin.energy.power.states import node_watts
from hpctwin.formats import read_workload
from hpctwin.model import Workload
from hpctwin.policies import PowerPolicy
from hpctwin_papers.spars.published import TIMEOUTS_S, published
from hpctwin_papers.spars.schedulers import (
    BEST,
    FAULTS,
    MACHINE,
    SCHEDULERS,
    overestimated,
    simulate_cell,
    workload,
)
from hpctwin_papers.traces import find_trace

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


def test_each_published_error_changes_something_where_it_is_shown(nasa: Workload) -> None:
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


def test_nasas_last_fifth_at_its_own_times_costs_the_same(traces: object) -> None:
    moved = workload()
    path = find_trace("NASA-iPSC-1993-3.1-cln.swf")
    assert path is not None
    log = read_workload(path)
    own = log.take(np.flatnonzero(np.isin(log.job_id, moved.job_id)))
    assert float(own.submit_ms[0]) > 6e9
    for kind in SWITCHING:
        power = PowerPolicy(kind, 1200)
        at_zero, energy = (energy_of(one, MACHINE, power=power) for one in (moved, own))
        assert energy.total_j == at_zero.total_j
        assert (energy.spent_ms == at_zero.spent_ms).all()


def test_sparss_files_say_what_sparss_own_say(golden: Path, traces: Path, tmp_path: Path) -> None:
    energy = simulate_cell(workload(), "fcfs-ipm", 1200, "as-published", log=True)
    write_spars_results(energy, tmp_path)
    ours = pl.read_csv(tmp_path / "raw_job_log.csv").sort("job_id")
    theirs = pl.read_csv(golden / "spars_nasa20_t1200_fcfs_psas.csv").sort("job_id")
    for name, other in (
        ("job_id", "job_id"), ("subtime", "submit"), ("start_time", "start"),
        ("finish_time", "finish"), ("res", "n_nodes"), ("reqtime", "reqtime"),
        ("runtime", "runtime"), ("nodes", "nodes"),
    ):  # fmt: skip
        same = ours[name].cast(pl.String) == theirs[other].cast(ours[name].dtype).cast(pl.String)
        assert same.all(), name
    (metrics,) = pl.read_csv(tmp_path / "metrics.csv").to_dicts()
    (published,) = (
        pl.read_csv(golden / "spars_published_metrics.csv")
        .filter(
            (pl.col("scheduler") == "fcfs_psas")
            & (pl.col("timeout_s") == 1200)
            & (pl.col("source") == "spars")
        )
        .to_dicts()
    )
    for name, value in metrics.items():
        assert value == pytest.approx(published[name], rel=1e-9), name
    energies = pl.read_csv(tmp_path / "energy_log.csv")
    assert energies["energy_consumption"].sum() == pytest.approx(energy.total_j)
    log = pl.read_csv(tmp_path / "node_log.csv")
    spent = (log["finish_time"] - log["start_time"]) * log["nodes"].str.split(" ").list.len()
    assert spent.sum() == metrics["total_time_all_states"]
    counts = pl.read_csv(tmp_path / "state_switch.csv").drop("time")
    assert (counts.sum_horizontal() == 128).all()


def test_sparss_platform_is_read_as_it_is(tmp_path: Path) -> None:
    machines = [spars_machine(number) for number in range(128)]
    platform = read(tmp_path, "p.json", json.dumps({"machines": machines}))
    assert [group.count for group in platform.nodes] == [128]
    assert (node_watts(platform) == node_watts(MACHINE)).all()
    theirs, ours = platform.nodes[0].sleep[0], MACHINE.nodes[0].sleep[0]
    assert (theirs.switch_off, theirs.switch_on) == (ours.switch_off, ours.switch_on)
