"""``hpctwin workload``: nothing is lost, shifted or written over unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_cli import run
from tests.formats.test_swf_round_trip import LOG


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.swf"
    path.write_text(LOG)
    return path


def test_convert_keeps_every_field_and_time_of_a_log(log: Path, tmp_path: Path) -> None:
    assert run("workload", "convert", log, tmp_path / "same.swf") == 0
    assert (tmp_path / "same.swf").read_text() == LOG


def test_convert_reports_what_the_other_format_cannot_hold(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("workload", "convert", log, tmp_path / "jobs.csv") == 0
    told = capsys.readouterr().err
    assert "CSV cannot store the header" in told
    assert "SWF's allocated processors" in told
    assert "500.0" in (tmp_path / "jobs.csv").read_text()


def test_a_file_that_is_there_is_written_over_only_when_asked(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "there.swf"
    for command in (
        ["convert", log, log],
        ["convert", log, there],
        ["filter", log, there, "--first", 2],
        ["generate", "poisson", there, "jobs=5"],
    ):
        there.write_text("mine")
        assert run("workload", *command) == 2
        assert "--overwrite" in capsys.readouterr().err
        assert (there.read_text(), log.read_text()) == ("mine", LOG)
        assert run("workload", *command, "--overwrite") == 0
    assert "mine" not in there.read_text()


def test_filter_writes_a_header_that_promises_the_jobs_there_are(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = tmp_path / "few.swf"
    assert run("workload", "filter", log, few, "--first", 3) == 0
    assert "; MaxJobs: 3\n" in few.read_text()
    capsys.readouterr()
    assert run("workload", "describe", few) == 0
    assert "MaxJobs" not in capsys.readouterr().err


def test_a_truncated_or_empty_log_is_reported(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text(LOG.replace("MaxJobs: 7", "MaxJobs: 1000"))
    assert run("simulate", log) == 0
    assert "MaxJobs: 1000, which is 993 more than the log has" in capsys.readouterr().err
    log.write_text("; MaxJobs: 0\n; MaxProcs: 4\n")
    for command in (["simulate"], ["compare"], ["replay"]):
        assert run(*command, log) == 2
        assert "has no jobs" in capsys.readouterr().err
