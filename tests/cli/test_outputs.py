"""Where results go: what cannot be written is told in one line, and nothing is left of it."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from hpctwin import generate, write_workload
from hpctwin.cli.output import print_lines, screen
from hpctwin.policies.agents import Network
from hpctwin.simulation.streaming.stream import StreamedResult
from tests.cli.test_cli import run


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "small.swf"
    write_workload(generate("poisson", jobs=200, nodes=32, seed=1), path)
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ["--out", "{file}"],
        ["--out", "{file}/run"],
        ["--out", "/proc/run"],
        ["--out", "/dev/full/run"],
        ["--plot", "{folder}/none/plot.png"],
        ["--plot", "{folder}.png"],
        ["--plot", "/proc/plot.png"],
    ],
)
def test_unwritable_output_is_reported_and_leaves_no_file(
    trace: Path, tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder.png").mkdir()
    before = sorted(tmp_path.rglob("*"))
    given = [a.format(file=tmp_path / "file", folder=tmp_path / "folder") for a in arguments]
    assert run("simulate", trace, "-n", 32, *given) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert told[-1].startswith(f"hpctwin: {given[1]}: cannot be written: ")
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_is_simulated_for_a_result_that_cannot_be_written(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpctwin.simulation.Simulation.run", None)
    (tmp_path / "file").touch()
    assert run("simulate", trace, "-n", 32, "--out", tmp_path / "file") == 2
    assert run("compare", trace, "-n", 32, "--html", tmp_path) == 2


def limited(*arguments: object, most_bytes: int) -> subprocess.CompletedProcess[str]:
    """The command where no file can grow longer, as on a disk that is full.

    Python would write bytecode of a module that it loads for the first time only in part, and keep it.
    """
    return subprocess.run(
        [sys.executable, "-B", "-m", "hpctwin", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes)),
    )


@pytest.mark.parametrize("target", [["--out", "run"], ["--plot", "p.png"], ["--plot", "p.pdf"]])
def test_a_full_disk_is_reported_in_one_line_and_leaves_no_file(
    trace: Path, tmp_path: Path, target: list[str]
) -> None:
    option, name = target
    done = limited("simulate", trace, "-n", 32, option, tmp_path / "deep" / name
                   if option == "--out" else tmp_path / name, most_bytes=1000)  # fmt: skip
    assert done.returncode == 1
    assert "cannot be written: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == [trace]


def test_an_output_stream_that_is_full_or_closed_is_reported_in_one_line(trace: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hpctwin", "policy", "list"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "hpctwin: standard output: No space left on device\n"


def test_a_disconnected_reader_gets_no_more_messages(trace: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        done = subprocess.run(
            [sys.executable, "-m", "hpctwin", "policy", "list", "--json"],
            stdout=gone, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == ""


def test_figures_reports_and_folders_have_the_mode_of_the_umask(
    trace: Path, tmp_path: Path
) -> None:
    before = os.umask(0o022)
    try:
        options = ["--out", tmp_path / "run", "--plot", tmp_path / "plot.png"]
        assert run("simulate", trace, "-n", 32, *options) == 0
        assert run("compare", trace, "-n", 32, "--html", tmp_path / "report.html") == 0
    finally:
        os.umask(before)
    written = [p for p in tmp_path.rglob("*") if p != trace]
    assert len(written) == 7
    for path in written:
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644), path


def test_an_input_file_is_not_overwritten(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = trace.read_bytes()
    assert run("compare", trace, "-n", 32, "--html", trace) == 2
    assert run("replay", trace, "-n", 32, "--conflicts", trace) == 2
    assert "is the input file" in capsys.readouterr().err
    assert trace.read_bytes() == before


def test_a_list_loses_no_word_on_a_narrow_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = (np.zeros((1, 8), np.float32), np.zeros(1, np.float32))
    name = "an-agent-with-a-long-name-that-no-line-has-room-for"
    Network((weights,), True, {"environment": "JobSelection"}).save(
        tmp_path / f"{name}.safetensors"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hpctwin.cli.output.screen", lambda: Console(width=50))
    assert run("agent", "list") == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 50
    assert "…" not in shown
    begins = "".join(line.partition(" ")[0] for line in shown.splitlines()[1:])
    assert f"{name}.safetensors" in begins


def test_sentences_are_wrapped_between_words_in_a_terminal_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["short", "  a sentence of some words /a/path/that/is/long-and-whole", ""]
    print_lines(lines)
    assert capsys.readouterr().out.splitlines() == lines
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_lines(lines)
    assert capsys.readouterr().out.splitlines() == [
        "short", "  a sentence of some", "  words", "  /a/path/that/is/long-and-whole", "",
    ]  # fmt: skip


@pytest.mark.parametrize("color", ["", "1"])
def test_tables_are_not_folded_in_a_pipe_even_if_colors_are_forced(
    color: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", color)  # Jupyter sets it for the commands of a cell
    monkeypatch.setenv("COLUMNS", "20")
    assert screen().width == 100_000
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert screen().width == 20


def test_names_of_files_are_no_patterns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a [1] 10** {b}?%d"
    folder.mkdir()
    monkeypatch.chdir(folder)
    write_workload(generate("poisson", jobs=50, nodes=8, seed=1), Path("w*.csv"))
    Path("sweep[1].yaml").write_text(
        "workloads: ['w*.csv']\nclusters: [8]\npolicies: [fcfs+easy]\n"
    )
    assert run("workload", "convert", "w*.csv", "w[1]*.parquet") == 0
    assert run("simulate", "w[1]*.parquet", "-n", 8, "--stream", "--out", "stream*") == 0
    assert run("simulate", "w*.csv", "-n", 8, "--out", "run[2]", "--accounts", "a[3].parquet") == 0
    assert run("accounts", "a[3].parquet") == 0
    assert run("report", "run[2]", "--html", "r[4].html") == 0
    for _ in range(2):  # the second reads what the first wrote
        assert run("sweep", "sweep[1].yaml", "--out", "10**30") == 0
    streamed = StreamedResult(Path("stream*"), {}).jobs.collect()
    whole = pl.read_parquet(folder / "run[2]" / "jobs.parquet", glob=False)
    assert streamed.sort("job_id")["start_s"].equals(whole.sort("job_id")["start_s"])
