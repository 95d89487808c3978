"""The commands that this package adds: what is wrong is told in one line, before the work."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.test_cli import run
from tests.cli.test_notes import JOB

from hpctwin import Workload, write_workload
from hpctwin.cli.app import app
from hpctwin.cli.manual import command_helps
from hpctwin_papers.rlscheduler import table


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands run: a trace, and none of the real traces but a file with the name of SPARS's."""
    monkeypatch.setenv("HPCTWIN_TRACES", str(tmp_path))
    (tmp_path / "NASA-iPSC-1993-3.1-cln.swf").touch()
    table.case.cache_clear()
    jobs = Workload.build(submit_s=[0, 1], runtime_s=[5, 5], walltime_s=[9, 9], nodes=[1, 2])
    write_workload(jobs, tmp_path / "t.swf")
    (tmp_path / "file").write_text("text")
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents/lublin-1-9-0.safetensors").write_text("nothing")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("experiment rlscheduler Lublin1", 2, "trace 'Lublin1'. Did you mean 'Lublin-1'?"),
        ("experiment rlscheduler Lublin-1", 2, "lublin_256.swf: not found in the folder of HPC"),
        ("experiment rlscheduler --seeds -1", 2, "--seeds is '-1'; it must be a whole number"),
        ("experiment rlscheduler --steps 0", 2, "--steps is '0'; it must be 1 or more"),
        ("experiment rlscheduler --steps many", 2, "--steps is 'many'; it must be a whole number"),
        ("experiment rlscheduler --seeds 1 --out file", 2, "it is a file, but a folder is needed"),
        (
            "experiment rlscheduler --seeds 1 --steps 9 --out agents",
            2,
            "lublin-1-9-0.safetensors is not an agent file",
        ),
        ("experiment pas --method x", 2, "unknown method 'x'. Known: adaptive, easy, fcfs"),
        ("experiment schedtwin --normalize x", 2, "unknown normalization 'x'. Known: best, mean"),
        ("experiment spars -m x", 2, "unknown scheduler 'x'. Known: easy-auto"),
        ("incentives t.swf -i x -n 8", 2, "the accounts of its jobs are unknown"),
        ("experiment list --jsn", 2, "Did you mean --json?"),
        ("experiment run spars-figure-44", 2, "'spars-figure-44'. Did you mean 'spars-figure-4'?"),
        ("experiment run spars-figure-4 --out t.swf", 2, "it is a file, but a folder is needed"),
        ("experiment run", 2, "NAME is missing; see hpctwin experiment run --help"),
        ("experiment all --out t.swf", 2, "it is a file, but a folder is needed"),
        ("experiment pas --failures nan", 2, "--failures is 'nan'"),
        ("experiment schedtwin --seeds 0", 2, "it must be 1 or more"),
    ],
)
def test_a_wrong_line_is_reported_in_one_line_before_the_work(
    folder: Path, line: str, code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.rglob("*"))
    assert run(*line.split()) == code
    shown = capsys.readouterr()
    assert told in shown.err
    assert len(shown.err.splitlines()) == 1
    assert shown.out == ""
    assert not any(word in shown.err for word in ("Traceback", "pydantic", "Error("))
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("kind", ["missing", "a-folder", "nothing", "bytes", "words"])
def test_a_file_that_cannot_be_used_exits_2_and_is_reported_by_name(
    folder: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a-folder.swf").mkdir()
    (folder / "nothing.swf").write_bytes(b"")
    (folder / "bytes.swf").write_bytes(bytes(range(256)))
    (folder / "words.swf").write_text("hello there\nworld: [\n")
    assert run("incentives", f"{kind}.swf", "-n", "8") == 2
    shown = capsys.readouterr()
    said = [one for one in shown.err.splitlines() if "compiling the engine" not in one]
    assert any(kind in one for one in said or shown.out.splitlines())
    assert len(said) <= 1
    assert "Traceback" not in shown.err + shown.out


def test_the_size_of_the_largest_job_is_reported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "log.swf").write_text(JOB)
    assert run("experiment", "schedtwin", "--trace", folder / "log.swf", "--json") == 0
    assert "nodes: 4, from the largest job" in capsys.readouterr().err


def test_a_command_with_two_names_is_documented_once() -> None:
    first = [command.words[0] for command in command_helps(app) if len(command.words) == 1]
    assert "experiment" in first
    assert "experiments" not in first
