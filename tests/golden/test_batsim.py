"""Batsim's EASY on the example published with Evalys: 801 jobs on 32 nodes."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from hpctwin import Simulation, simulate
from hpctwin.simulation.schedulers import drive
from tests.reference.particular_nodes import by_particular_nodes

pytestmark = pytest.mark.traces

NODES = 32
HALF_MS = 0.5001e-3
"""hpctwin counts whole milliseconds, and Batsim's table has microseconds."""


@pytest.fixture(scope="module")
def example(golden: Path) -> Path:
    folder = golden / "evalys" / "medium_late"
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing: copy it from github.com/oar-team/evalys")
    return folder


def differing(example: Path, jobs: pl.DataFrame) -> pl.DataFrame:
    """Jobs that do not start when they do in Batsim."""
    theirs = pl.read_csv(example / "easy" / "out_jobs.csv").select("job_id", "starting_time")
    both = jobs.join(theirs, on="job_id", validate="1:1")
    assert len(both) == len(theirs) == 801
    return both.filter((pl.col("start_s") - pl.col("starting_time")).abs() > HALF_MS)


def test_batsims_easy_reserves_particular_nodes(example: Path) -> None:
    jobs = Simulation(example / "medium_late.json", NODES, "fcfs", "outside")
    assert differing(example, drive(jobs, by_particular_nodes(NODES, 1)).jobs).is_empty()


def test_easy_differs_by_that_alone(example: Path) -> None:
    """The first job that differs fits next to a reservation of four nodes, but not on its nodes."""
    jobs = simulate(example / "medium_late.json", NODES, "fcfs", "easy").jobs
    found = differing(example, jobs).sort("start_s")
    assert len(found) == 76
    assert found.row(0, named=True)["job_id"] == 41
    assert found["start_s"][0] == found["submit_s"][0] < found["starting_time"][0]
