"""``hpctwin simulate --sizing``: malleable jobs from a file, and what is wrong with what is asked."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from hpctwin.cli import main

JOBS = """submit_s,runtime_s,nodes,min_nodes,max_nodes,speedup,suspendable,resize_s
0,14400,2,1,4,linear,true,0
3600,3600,4,,,,,
"""
MACHINE = "name: m\nnodes: [{name: a, count: 8, modes: {base: {power_w: 1000, idle_w: 0}}}]\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "m.yaml").write_text(MACHINE)
    hours = "".join(f"{3600 * hour},{100 if hour == 5 else 400}\n" for hour in range(24))
    (tmp_path / "carbon.csv").write_text("time,carbon intensity gCO2/kWh\n" + hours)
    return tmp_path


def run(files: Path, *more: object, jobs: str = "jobs.csv") -> int:
    with pytest.raises(SystemExit) as left:
        main(
            ["simulate", str(files / jobs), "--cluster", str(files / "m.yaml"), "--carbon",
             str(files / "carbon.csv"), *map(str, more)]
        )  # fmt: skip
    assert isinstance(left.value.code, int)
    return left.value.code


def test_a_malleable_job_waits_for_the_clean_hour_and_grows(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizing = ("--sizing", "carbonscaler:12h", "--forecast", "oracle")
    assert run(files, *sizing, "--json", "--out", files / "out") == 0
    summary = json.loads(capsys.readouterr().out)
    # 4 kWh of the first job's 8 in the clean hour; the second's 4 kWh at once.
    assert summary["emissions_kg"] == pytest.approx(4 * 0.1 + 4 * 0.4 + 4 * 0.4)
    stretches = pl.read_parquet(files / "out" / "stretches.parquet").rows()
    assert (2, 3600.0, 7200.0, 4) in stretches
    assert (1, 18000.0, 21600.0, 4) in stretches


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--sizing", "carbonscalar"), "Did you mean 'carbonscaler'?"),
        (("--sizing", "carbonscaler:12h", "-p", "wfp+easy"), "remove --policy"),
        (("--sizing", "carbonscaler:12h", "--by", "size"), "does not work with --by"),
        (("--sizing", "carbonscaler:slak=1h"), "slack"),
        (("--backfill", "outside"), "or --sizing"),
    ],
)
def test_incompatible_options_are_reported(
    files: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], why: str
) -> None:
    assert run(files, *more) == 2
    assert why in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ("2,1,4,amdahl:5,true,0", "serial share must be from 0 to 1"),
        ("2,3,4,linear,true,0", "must be between its min_nodes, 3, and its max_nodes, 4"),
        ("2,1,4,1/1.9,true,0", "its speedup '1/1.9' is defined for at most 2 nodes"),
        ("2,1,4,fast,true,0", "speedup 'fast' must be linear"),
        ("2,1,4,linear,maybe,0", "suspendable"),
        ("2,0,4,linear,true,0", "min_nodes"),
    ],
)
def test_invalid_malleable_columns_are_reported(
    files: Path, capsys: pytest.CaptureFixture[str], cells: str, why: str
) -> None:
    (files / "bad.csv").write_text(JOBS.replace("2,1,4,linear,true,0", cells))
    assert run(files, "--sizing", "carbonscaler:12h", jobs="bad.csv") == 2
    assert why in " ".join(capsys.readouterr().err.split())


def test_a_sizing_needs_malleable_jobs(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "rigid.csv").write_text("submit_s,runtime_s,nodes\n0,10,1\n")
    assert run(files, "--sizing", "carbonscaler:12h", jobs="rigid.csv") == 2
    assert "no job of rigid is malleable" in " ".join(capsys.readouterr().err.split())
