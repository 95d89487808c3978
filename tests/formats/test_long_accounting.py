"""Accounting of more jobs than are looked at together gives what it gives where all are."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from hpctwin import read_workload
from hpctwin.errors import OutputError
from hpctwin.formats.accounting.workload import job_table, workload_of, workloads_of
from hpctwin.formats.job_table import JobTable
from hpctwin.formats.own_columns import write_parquet_parts
from hpctwin.formats.record import LABELS, Machine, Tally

STATES = ("completed", "failed", "requeued", "cancelled", "running", "waiting")


def records(seed: int, size: int = 300) -> pl.DataFrame:
    """Records with ids that come again, dumps that overlap, parts of heterogeneous jobs, and gaps."""
    draw = np.random.default_rng(seed)

    def known(values: np.ndarray, share: float) -> list[object]:
        return [None if draw.random() > share else value for value in values.tolist()]

    submit = np.sort(draw.integers(0, 40, size)) * 1700.0
    number = draw.integers(1, size, size)
    ids = [
        str(one) + ("" if kind else f"+{one % 3}")
        for one, kind in zip(number, draw.random(size) < 0.9, strict=True)
    ]
    start = submit + draw.integers(-1, 50, size)
    return pl.DataFrame(
        {
            "job_id": known(np.array(ids), 0.97),
            "submit": known(submit, 0.98),
            "start": known(start, 0.9),
            "runtime": known(draw.integers(0, 500, size).astype(float), 0.95),
            "walltime": known(draw.integers(1, 900, size).astype(float), 0.7),
            "nodes": known(draw.integers(1, 9, size).astype(float), 0.9),
            # Of the first half of the time, nothing is known of these.
            "cores": [
                c if at > 30_000 else None for c, at in zip(number % 7 + 1.0, submit, strict=True)
            ],
            "memory_gb": known(draw.integers(1, 64, size).astype(float), 0.5),
            "state": known(draw.choice(STATES, size), 1.0),
            "user": known(draw.choice(("ann", "ben"), size), 0.8),
            "partition": known(draw.choice(("long", "short"), size), 0.8),
            "qos": ["late" if at > 50_000 else None for at in submit],
        }
    )


def made(frame: pl.DataFrame, at_once: int, machine: Machine) -> tuple[JobTable, Tally]:
    """The jobs, and what was counted; records come in pieces of 17."""
    tally = Tally()
    pieces = (frame.slice(at, 17) for at in range(0, len(frame), 17))
    return job_table(pieces, tally, machine, at_once=at_once), tally


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shared", [False, True])
def test_jobs_are_the_same_however_many_are_looked_at_together(seed: int, shared: bool) -> None:
    machine = Machine({"long": 700.0} if seed % 2 else {}, shared)
    # As they come, and in no order of time.
    frame = records(seed) if seed % 3 else records(seed).sample(fraction=1.0, shuffle=True, seed=1)
    whole, counted = made(frame, 10_000, machine)
    assert whole.folder is None
    assert counted.counts["record skipped: another record of the same submission has more data"]
    assert counted.counts["further run under the same job id, renamed as in 12r2"]
    labels = [pl.col(name).cast(pl.String) for name in LABELS if name in whole.columns]
    for at_once in (40, 100):
        parts, told = made(frame, at_once, machine)
        assert len(parts.frames) > 2
        assert told == counted
        assert len(parts) == len(whole)
        found = parts.frame().select(sorted(parts.columns)).with_columns(labels)
        assert found.equals(whole.frame().select(sorted(whole.columns)).with_columns(labels))
        assert parts.last(60).equals(parts.frame().tail(60))


def test_numeric_ids_stay_numbers_and_a_missing_walltime_is_reported_once() -> None:
    frame = records(1).select("submit", "nodes", runtime=pl.lit(60.0), state=pl.lit("completed"))
    frame = frame.with_row_index("job_id").with_columns(pl.col("job_id").cast(pl.String))
    table, tally = made(frame.drop_nulls("submit"), 50, Machine())
    assert table.frame()["job_id"].dtype == pl.Int64
    assert len(tally.remarks) == 1
    assert "no walltimes found" in tally.remarks[0]


def test_a_workload_of_parts_is_written_as_that_of_all(tmp_path: Path) -> None:
    frame = records(2)
    table, tally = made(frame, 60, Machine())
    write_parquet_parts(workloads_of(table, "past", tally), tmp_path / "w.parquet")
    found = read_workload(tmp_path / "w.parquet").to_frame()
    expected = workload_of(table.frame(), "past", tally).to_frame()
    assert found.select(sorted(found.columns)).equals(expected.select(sorted(expected.columns)))


def test_a_workload_of_parts_that_cannot_be_written_is_an_error_that_leaves_nothing(
    tmp_path: Path,
) -> None:
    table, tally = made(records(2), 60, Machine())
    with pytest.raises(OutputError, match=r"gone/w\.parquet: cannot be written"):
        write_parquet_parts(workloads_of(table, "past", tally), tmp_path / "gone" / "w.parquet")
    (tmp_path / "w.parquet").mkdir()
    with pytest.raises(OutputError):
        write_parquet_parts(workloads_of(table, "past", tally), tmp_path / "w.parquet")
    assert [one.name for one in tmp_path.iterdir()] == ["w.parquet"]


def test_files_are_gone_with_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    table, _ = made(records(3), 50, Machine())
    assert len(list(tmp_path.iterdir())) == 1
    del table
    assert not list(tmp_path.iterdir())


def test_no_jobs_are_a_table_without_rows() -> None:
    table, _ = made(records(1).clear(), 50, Machine())
    assert (len(table), len(table.frame())) == (0, 0)
