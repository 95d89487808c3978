"""What a careless user types: one line that says what would be right, never a traceback, never silence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hpctwin import generate, write_workload
from tests.cli.test_cli import run

PLATFORM = """
nodes:
  - name: a
    count: 32
    modes: {normal: {power_w: 200, idle_w: 100}}
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "small.swf"
    write_workload(generate("poisson", jobs=60, nodes=32, seed=1), path)
    return path


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-n", "99999999999"], "must be 10,000,000 or less"),
        (["-n", "99999999999999999999"], "below 1,000,000,000,000,000,000"),
        (["-n", "4.5"], "-n is '4.5'; it must be a whole number"),
        (["-n", "4.0"], "-n is '4.0'; it must be a whole number"),
        (["-n", "-4"], "-n is '-4'; it must be a whole number, 0 or more"),
        (["-n", "nan"], "it must be a whole number"),
        (["-n", "32", "--seed", "-1"], "--seed is '-1'"),
        (["-n", "32", "--reservations", "2.5"], "--reservations is '2.5'"),
        (["-n", "32", "--procs-per-node", "0"], "it must be 1 or more"),
        (["-n", "32", "-o", "1/0"], "'1 / 0' divides by 0"),
        (["-n", "32", "-o", "wait/(2-2)"], "divides by 0"),
        (["-n", "32", "-o", "log(-1)*wait"], "cannot be computed: math domain error"),
        (["-n", "32", "-o", "9**9**9+wait"], "cannot be computed"),
        (["-n", "32", "--power", "psus:20m,keep=3"], "has no power model"),
        (["-n", "32", "--power", "psis:20m"], "unknown power policy 'psis'. Did you mean 'psus'?"),
        (["-n", "32", "--lower-modes"], "--lower-modes: the cluster has no power model"),
        (["-M", "{platform}", "--power", "psus"], "needs a timeout to switch nodes off"),
        (["-M", "{platform}", "--power", "psas-ipm"], "needs a timeout to switch nodes off"),
        (["-M", "{platform}", "--power", "psus:timeuot=20m"], "Did you mean 'timeout'?"),
        (["-M", "{platform}", "--power", "orders:keep=3"], "keep and deeper need a timeout"),
        (["-M", "{platform}", "--power-cap", "20"], "power '20' must be such as"),
    ],
)
def test_wrong_options_of_simulate_are_reported(
    trace: Path,
    tmp_path: Path,
    arguments: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    platform = tmp_path / "platform.yaml"
    platform.write_text(PLATFORM)
    assert run("simulate", trace, *(a.format(platform=platform) for a in arguments)) == 2
    shown = capsys.readouterr()
    assert told in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["workload", "filter", "{trace}", "{new}", "--every", "0"], "it must be 1 or more"),
        (["workload", "filter", "{trace}", "{new}", "--first", "-5"], "0 or more"),
        (["workload", "filter", "{trace}", "{new}", "--after", "later"], "not a duration"),
        (["workload", "filter", "{trace}", "{new}", "--after", "nan"], "not a duration"),
        (["workload", "describe", "{trace}", "-n", "0"], "it must be 1 or more"),
        (["compare", "{trace}", "-n", "32", "--threads", "0"], "it must be 1 or more"),
        (["simulate", "--jso", "{trace}"], "option --jso does not exist"),
    ],
)
def test_wrong_options_of_others_are_reported(
    trace: Path,
    tmp_path: Path,
    arguments: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    new = tmp_path / "new.swf"
    assert run(*(a.format(trace=trace, new=new) for a in arguments)) == 2
    assert told in capsys.readouterr().err
    assert not new.exists()


def piped(content: bytes, *arguments: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "hpctwin", *map(str, arguments)]
    return subprocess.run(command, input=content, capture_output=True, check=False)


@pytest.mark.parametrize("suffix", ["swf", "csv", "parquet", "json", "swf.gz"])
def test_a_trace_is_read_from_the_standard_input_whatever_its_format(
    trace: Path, tmp_path: Path, suffix: str
) -> None:
    same = tmp_path / f"same.{suffix}"
    assert run("workload", "convert", trace, same) == 0
    done = piped(same.read_bytes(), "workload", "describe", "-", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["jobs"] == 60


def test_an_empty_standard_input_is_reported() -> None:
    done = piped(b"", "simulate", "-", "-n", 4)
    assert (done.returncode, done.stderr) == (2, b"hpctwin: -: the file is empty\n")


def test_a_date_before_the_trace_is_reported_with_the_first_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "dated.swf"
    jobs = generate("poisson", jobs=60, nodes=32, seed=1).replace(start_epoch_s=1_600_000_000.0)
    write_workload(jobs, path)
    assert run("simulate", path, "-n", 32, "--from", "2020-01-01", "--until", "2020-09-14") == 2
    told = capsys.readouterr().err
    assert "2020-01-01 is before the start of dated at 2020-09-13T12:26:40 UTC" in told


@pytest.mark.parametrize(
    ("group_by", "told"),
    [
        ("rakc", "2 jobs requested nodes of one rakc (group_by), but no node group has a feature such as "
                 "rakc=1: all nodes can be used. Did you mean 'rack'?"),
        ("rack", ""),
    ],
)  # fmt: skip
def test_groups_that_do_not_exist_are_reported(
    tmp_path: Path, group_by: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, machine = tmp_path / "jobs.csv", tmp_path / "m.yaml"
    trace.write_text("submit_s,runtime_s,walltime_s,tasks,group_by\n" + 2 * f"0,5,9,1,{group_by}\n")
    machine.write_text("nodes: [{name: a, count: 4, cores: 2, features: [rack=r1, ib]}]\n")
    for command in (["simulate"], ["compare", "-p", "fcfs+easy"]):
        assert run(*command, trace, "-M", machine, "--json") == 0
        assert capsys.readouterr().err == (f"jobs: {told}\n" if told else "")


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("{qos: nromal, jobs: 1}", ["a limit names QOS 'nromal', which no job has and the cluster "
                                    "does not list. Did you mean 'normal'?"]),
        ("{user: nobody, jobs: 1}", ["a limit names user 'nobody', but jobs have no user"]),
        ("{account: physics, jobs: 1}", ["a limit names account 'physics', but jobs have no acc"]),
        ("{qos: normal, jobs: 1}", []),
        ("{qos: debug, jobs: 1}", []),
        ("{account: root, jobs: 1}", []),
    ],
)  # fmt: skip
def test_limits_without_effect_are_reported(
    tmp_path: Path, limit: str, told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    trace, machine = tmp_path / "jobs.csv", tmp_path / "m.yaml"
    trace.write_text("submit_s,runtime_s,walltime_s,nodes\n0,5,9,1\n")
    machine.write_text(
        "nodes: [{name: a, count: 4}]\nqos: {normal: 0}\nlimits: [" + limit + "]\n"
        "partitions: [{name: p, groups: [a], qos: debug, default: true}]\n"
    )
    for command in (["simulate"], ["compare", "-p", "fcfs+easy"]):
        assert run(*command, trace, "-M", machine, "--json") == 0
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == len(told)
        assert all(says in line for line, says in zip(lines, told, strict=True))
