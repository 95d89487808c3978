"""From SWF to SWF: what a reader understands comes back, and what it does not stays as it was."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from hpctwin import read_workload, write_workload
from hpctwin.formats import SwfRules

KEEP = SwfRules(rebase=False, cancelled="keep", no_runtime="zero", partition_field="none")

LOG = """\
; Version: 2.2
; MaxJobs: 7
; MaxProcs: 128
; UnixStartTime: 1000000
; Note: kept as it is
1 500 10 60 8 55.25 1024 8 120 2048 1 3 4 5 1 2 -1 -1
2 510 -1 -1 -1 -1 -1 16 600 -1 0 3 4 -1 1 2 -1 -1
3 520 0 30 4 -1 -1 -1 -1 -1 0 7 -1 9 0 0 1 60
4 530 5 0 4 -1 -1 4 100 -1 5 7 -1 9 2 1 -1 -1
5 540 15 -1 -1 -1 -1 4 -1 -1 5 8 4 2 2 1 -1 -1
6 550.5 2.25 12.5 2 1.125 -1 0 20 -1 1 8 4 2 2 1 99 -1
7 560 2 0 2 -1 -1 2 0 -1 1 8 4 2 2 1 1 -1
"""


def rows(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if not line.startswith(";")]


def test_every_field_of_a_log_comes_back(tmp_path: Path) -> None:
    (tmp_path / "a.swf").write_text(LOG)
    assert write_workload(read_workload(tmp_path / "a.swf", rules=KEEP), tmp_path / "b.swf") == ()
    assert rows(tmp_path / "b.swf") == rows(tmp_path / "a.swf")
    assert (tmp_path / "b.swf").read_text() == LOG


@pytest.mark.traces
@pytest.mark.parametrize(
    "name", ["NASA-iPSC-1993-3.1-cln", "theta_2022", "polaris_theta_23", "wagap-2013", "theta_2023"]
)
def test_every_field_of_real_logs_comes_back(traces: Path, tmp_path: Path, name: str) -> None:
    path = traces / "swf" / f"{name}.swf.gz"
    once, again = tmp_path / "once.swf", tmp_path / "again.swf"
    was = read_workload(path, rules=KEEP)
    write_workload(was, once)
    original = np.loadtxt(path, comments=";", usecols=range(18))
    written = np.loadtxt(once, comments=";")
    written = written[np.argsort(written[:, 0])]
    original = original[np.isin(original[:, 0], written[:, 0])]
    np.testing.assert_allclose(written, original[np.argsort(original[:, 0])], atol=0.0005)
    write_workload(read_workload(once, rules=KEEP), again)
    assert again.read_text() == once.read_text()


def test_completed_values_are_written_after_a_change(tmp_path: Path) -> None:
    (tmp_path / "a.swf").write_text(LOG)
    workload = read_workload(tmp_path / "a.swf", rules=KEEP)
    wider = dataclasses.replace(
        workload, nodes=workload.nodes * 2, walltime_ms=workload.walltime_ms + 1000
    )
    write_workload(wider, tmp_path / "b.swf")
    third = rows(tmp_path / "b.swf")[2].split()
    assert (third[7], third[8]) == ("8", "31")


def test_times_stay_where_a_log_has_unix_times(tmp_path: Path) -> None:
    lines = []
    for line in LOG.splitlines():
        job, submit, *rest = line.split(" ")
        lines.append(line if line.startswith(";") else " ".join([job, f"1600000{submit}", *rest]))
    (tmp_path / "a.swf").write_text("\n".join(lines) + "\n")
    write_workload(read_workload(tmp_path / "a.swf", rules=KEEP), tmp_path / "b.swf")
    assert (tmp_path / "b.swf").read_text() == (tmp_path / "a.swf").read_text()


def test_a_log_with_fewer_jobs_than_its_header_says_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.swf").write_text(LOG.replace("MaxJobs: 7", "MaxJobs: 17"))
    (told,) = read_workload(tmp_path / "a.swf", rules=KEEP).notes.remarks
    assert "MaxJobs: 17, which is 10 more than the log has" in told
    (tmp_path / "a.swf").write_text(LOG)
    assert read_workload(tmp_path / "a.swf").notes.remarks == ()


def test_a_log_with_only_comments_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.swf").write_text("; MaxJobs: 7\n; MaxProcs: 128\n")
    assert read_workload(tmp_path / "a.swf").notes.remarks == (
        "the log has no jobs, only comments",
    )


def test_some_of_the_jobs_are_written_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "a.swf").write_text(LOG)
    workload = read_workload(tmp_path / "a.swf", rules=KEEP)
    write_workload(workload.take(np.arange(3)), tmp_path / "b.swf")
    assert rows(tmp_path / "b.swf") == rows(tmp_path / "a.swf")[:3]


def test_formats_without_a_place_for_fields_of_swf_say_which(tmp_path: Path) -> None:
    (tmp_path / "a.swf").write_text(LOG)
    workload = read_workload(tmp_path / "a.swf", rules=KEEP)
    for name in ("b.csv", "b.parquet", "b.json"):
        lost = " ".join(write_workload(workload, tmp_path / name))
        assert "SWF's allocated processors, average CPU time, used memory" in lost
        assert "status, executable, queue, partition" in lost
