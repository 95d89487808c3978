"""Commands that do not simulate the network say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpctwin.cli.app import main

CLUSTER = """name: small
nodes: [{name: node, count: 4}]
network: {topology: star, bandwidth: 1 GB/s, core_speed: 1 Gflop/s}
"""
COLUMNS = "job_id,submit_s,runtime_s,walltime_s,nodes,comm_bytes\n" + "".join(
    f"{i},{60 * i},600,3600,{1 + i % 4},4e11\n" for i in range(40)
)
PROFILE = {"type": "parallel_homogeneous", "cpu": 1e9, "com": 1e9}
JOBS = [{"id": i, "subtime": i, "res": 2, "walltime": 90, "profile": "p"} for i in range(20)]
COMMANDS = [
    ["facility", "simulate", "TRACE", "facility.yaml"],
    ["predictor", "forecast", "TRACE", "--cluster", "small.yaml", "--under", "fcfs+easy"],
    ["agent", "train", "JobSelection", "TRACE", "a.safetensors", "--cluster", "small.yaml",
     "--steps", "20", "--jobs", "10", "--learner", "evolution", "--overwrite"],
]  # fmt: skip


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(CLUSTER)
    Path("facility.yaml").write_text("clusters: [{name: a, machine: small.yaml}]\n")
    Path("columns.csv").write_text(COLUMNS)
    Path("profiles.json").write_text(
        json.dumps({"nb_res": 4, "profiles": {"p": PROFILE}, "jobs": JOBS})
    )


def run(command: list[str], trace: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main([trace if word == "TRACE" else word for word in command])
    return int(caught.value.code or 0)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_columns_are_ignored_with_a_note_and_profiles_are_rejected(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, "columns.csv") == 0
    assert "this command does not simulate the network" in capsys.readouterr().err
    assert run(command, "profiles.json") == 2
    assert "job 0 uses the network" in capsys.readouterr().err


def test_an_emulated_cluster_takes_no_jobs_whose_length_depends_on_the_network(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["rms", "emulate", "e.sock", "--cluster", "small.yaml", "--trace", "TRACE"]
    assert run(command, "profiles.json") == 2
    assert "depends on the network" in capsys.readouterr().err


def test_a_search_of_policies_lets_jobs_share_the_network(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["policy", "search", "TRACE", "--cluster", "small.yaml", "--trials", "2", "--json"]
    means = {}
    for sharing in ((), ("--sharing", "fair")):
        assert run([*command, "--out", f"out{len(sharing)}", *sharing], "columns.csv") == 0
        said = capsys.readouterr()
        assert ("are ignored" in said.err) == (not sharing)
        (row,) = (one for one in json.loads(said.out)["held_out"] if one["policy"] == "fcfs+easy")
        means[sharing] = row["mean"]
    assert means["--sharing", "fair"] > means[()]
