"""What a real OpenPBS recorded of 200 jobs, submitted twice, beside a simulation of what is imported."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from hpctwin.cli.app import app

RECORDED = Path(__file__).parents[1] / "rms" / "recorded"
SITE, AGAIN = RECORDED / "pbs-beside", RECORDED / "pbs-beside-again.gz"
JOBS = 200


def started(log: Path) -> dict[str, tuple[str, float]]:
    """Id and seconds from submission to start, by the job's name."""
    found = {}
    with gzip.open(log, "rt") as lines:
        for line in lines:
            _, kind, job, told = line.split(";", 3)
            if kind == "S":
                values = dict(word.split("=", 1) for word in told.split() if "=" in word)
                wait = float(values["start"]) - float(values["qtime"])
                found[values["jobname"]] = job.partition(".")[0], wait
    return found


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """By how much waits differ from those of the first run: of the second, and ours, seconds [jobs]."""
    folder = tmp_path_factory.mktemp("beside")
    site, out = str(folder / "site"), str(folder / "out")
    for command in (
        ["import", "pbs", "--from", str(SITE), "--out", site],
        ["simulate", site, "--out", out],
    ):
        with pytest.raises(SystemExit) as ended:
            app(command)
        assert not ended.value.code
    (log,) = (SITE / "accounting").iterdir()
    once, again = started(log), started(AGAIN)
    jobs = pl.read_parquet(folder / "out" / "jobs.parquet")
    ids = [str(one).partition(".")[0] for one in jobs["job_id"]]
    ours = dict(zip(ids, jobs["wait_s"], strict=True))
    assert len(once) == len(again) == len(ours) == JOBS
    return {
        "PBS": np.array([abs(again[name][1] - wait) for name, (_, wait) in once.items()]),
        "ours": np.array([abs(ours[job] - wait) for job, wait in once.values()]),
    }


def test_the_median_start_is_as_near_to_pbs_as_pbs_is_to_itself(
    errors: dict[str, np.ndarray],
) -> None:
    assert np.median(errors["PBS"]) == 3
    assert np.median(errors["ours"]) <= 3


def test_nine_starts_of_ten_are_within_what_pbs_differs_from_itself(
    errors: dict[str, np.ndarray],
) -> None:
    spread = np.quantile(errors["PBS"], 0.95)
    assert spread < 30
    assert np.mean(errors["ours"] <= spread) >= 0.9
