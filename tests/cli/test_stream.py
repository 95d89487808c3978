"""``hpctwin simulate --stream``."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from hpctwin import generate, simulate
from tests.cli.test_cli import run

NODES = 32


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.parquet"
    generate("poisson", jobs=200, nodes=NODES, seed=1).to_frame().write_parquet(path)
    return path


def test_parts_and_figures_are_those_of_the_whole_trace(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run("simulate", trace, "--stream", "-n", NODES, "-o", "wfp", "--out", out, "--json") == 0
    expected = simulate(trace, NODES, "wfp+easy")
    figures = json.loads(capsys.readouterr().out)
    assert figures == json.loads((out / "summary.json").read_text())
    for name in ("jobs", "instants", "makespan_s", "max_wait_s", "max_queue_length"):
        assert figures[name] == expected.summary()[name]
    ends = pl.read_parquet(out / "jobs" / "*.parquet").sort("job_id")["end_ms"]
    assert ends.to_list() == (expected.jobs.sort("job_id")["end_s"] * 1000).to_list()


def test_jobs_of_a_stream_share_the_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, cluster, out = (tmp_path / name for name in ("comm.parquet", "star.yaml", "run"))
    jobs = generate("poisson", jobs=40, nodes=NODES, seed=1, communicating=1.0)
    jobs.to_frame().write_parquet(path)
    cluster.write_text(
        f"name: star\nnodes: [{{name: cpu, count: {NODES}}}]\n"
        "network: {topology: star, bandwidth: 100 MB/s, core_speed: 20 Gflop/s}\n"
    )
    options = ["--cluster", cluster, "--sharing", "fair", "--out", out]
    assert run("simulate", path, "--stream", *options) == 0
    expected = simulate(jobs, cluster, sharing="fair").jobs.sort("job_id")["end_s"]
    ends = pl.read_parquet(out / "jobs" / "*.parquet").sort("job_id")["end_ms"]
    assert (ends / 1000).to_list() == expected.to_list()
    assert expected.to_list() != simulate(jobs, cluster).jobs.sort("job_id")["end_s"].to_list()


@pytest.mark.parametrize(
    "energy",
    [["--power-cap", "5kW", "--lower-modes"], ["--power-cap", "6400W"], ["--power", "my.py:f"]],
    ids=("lower-modes", "cap", "control"),
)
def test_a_stream_is_capped_and_controlled_as_a_run_in_memory(
    energy: list[str],
    trace: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.py").write_text(
        "def f(view):\n"
        "    on = view.nodes('sleeping') if view.waiting else ()\n"
        "    return view.orders(on=on, off=() if view.waiting else view.nodes('idle'))\n"
    )
    Path("c.yaml").write_text(
        f"nodes:\n  - name: n\n    count: {NODES}\n"
        "    modes: {base: {power_w: 200, idle_w: 100}, slow: {power_w: 140, idle_w: 90, speed: 0.7}}\n"
        "    sleep: [{power_w: 9, switch_off: {time: 4, power_w: 50},"
        " switch_on: {time: 60, power_w: 150}}]\n"
    )
    command = ["simulate", trace, "--cluster", "c.yaml", *energy, "--json"]
    assert run(*command) == 0
    expected = json.loads(capsys.readouterr().out)
    assert run(*command, "--stream", "--out", "run") == 0
    figures = json.loads(capsys.readouterr().out)
    for name in ("mean_wait_s", "makespan_s", "total_energy_j", "compute_energy_j"):
        assert figures[name] == expected[name]
    lowers = "--lower-modes" in energy
    assert ("computing_slow_node_s" in figures) == lowers


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-n", "32"], "--stream: the output folder is missing; add --out FOLDER"),
        (["--out", "run"], "give --nodes N"),
        (
            ["-n", "32", "--out", "run", "--by", "user", "--fairness"],
            "not work with --by, --fairness",
        ),
        (["-n", "32", "--out", "run", "-b", "selected"], "backfill 'selected' keeps data per job"),
    ],
)
def test_unsupported_options_of_a_stream_are_reported_and_leave_no_folder(
    trace: Path,
    arguments: list[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(trace.parent)
    assert run("simulate", trace, "--stream", *arguments) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert not Path("run").exists()


def test_a_log_of_another_format_is_named_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.swf"
    log.write_text("1 0 -1 5 1 -1 -1 1 5 -1 1 -1 -1 -1 -1 -1 -1 -1\n")
    assert run("simulate", log, "--stream", "-n", 4, "--out", tmp_path / "run") == 2
    assert "only Parquet can be read piecewise" in " ".join(capsys.readouterr().err.split())
