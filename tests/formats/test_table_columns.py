"""Columns that are missing or misspelt are told, with what was probably meant."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from hpctwin.errors import TraceError
from hpctwin.formats import read_workload

JOBS = pl.DataFrame({"submit_s": [0, 1], "runtime_s": [5, 6], "nodes": [1, 2]})


def written(folder: Path, suffix: str, **columns: list[object]) -> Path:
    path = folder / f"jobs.{suffix}"
    table = JOBS.with_columns(**{name: pl.Series(values) for name, values in columns.items()})
    table.write_csv(path) if suffix == "csv" else table.write_parquet(path)
    return path


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_scheduler_that_knows_runtimes_because_walltimes_are_missing_is_reported(
    tmp_path: Path, suffix: str
) -> None:
    (told,) = read_workload(written(tmp_path, suffix)).notes.remarks
    assert "there is no column walltime_s" in told
    assert "the scheduler knows exact run times" in told
    assert "did you mean" not in told
    assert read_workload(written(tmp_path, suffix, walltime_s=[9, 9])).notes.remarks == ()


@pytest.mark.parametrize(
    "name",
    ["walltime", "Walltime_s", "wall_time_s", "walltime_sec", "waltime_s", "WALLTIME_SECONDS"],
)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_misspelled_walltime_is_reported_with_a_suggestion(
    tmp_path: Path, suffix: str, name: str
) -> None:
    (told,) = read_workload(written(tmp_path, suffix, **{name: [9, 9]})).notes.remarks
    assert f"did you mean walltime_s by {name!r}?" in told


@pytest.mark.parametrize(
    ("name", "meant"),
    [("users", "user"), ("jobid", "job_id"), ("dependes", "depends"), ("cancel", "cancel_s"),
     ("gpu_per_node", "gpus_per_node")],
)  # fmt: skip
def test_other_misspelled_columns_are_reported_too(tmp_path: Path, name: str, meant: str) -> None:
    path = written(tmp_path, "csv", walltime_s=[9, 9], **{name: [1, 2]})
    (told,) = read_workload(path).notes.remarks
    assert f"did you mean {meant} by {name!r}?" in told


def test_columns_of_others_are_not_taken_for_ours(tmp_path: Path) -> None:
    path = written(tmp_path, "csv", walltime_s=[9, 9], comment=["a", "b"], energy_j=[1, 2])
    assert read_workload(path).notes.remarks == ()


def test_a_required_column_that_is_misspelled_is_asked_for(tmp_path: Path) -> None:
    JOBS.rename({"submit_s": "submit_time"}).rename({"runtime_s": "run_time_s"}).write_csv(
        tmp_path / "a.csv"
    )
    with pytest.raises(TraceError, match="submit_s: the column is missing"):
        read_workload(tmp_path / "a.csv")
    JOBS.rename({"runtime_s": "run_time"}).write_csv(tmp_path / "a.csv")
    with pytest.raises(TraceError, match=r"did you mean runtime_s by .run_time"):
        read_workload(tmp_path / "a.csv")
