"""Jobs that a cluster can never run are told, with how many and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpctwin import Cluster, Workload, simulate, write_workload
from tests.cli.test_cli import run

JOBS = Workload.build(
    submit_s=range(8),
    runtime_s=[10] * 8,
    walltime_s=[100, 100, 100, 100, 100, 9000, 100, 100],
    nodes=[1, 2, 40, 50, 9, 1, 1, 1],
    resources={"licence": [0, 0, 0, 0, 0, 0, 7, 0]},
    per_node={"gpus": [0, 0, 0, 0, 0, 0, 0, 9]},
)
CLUSTER = """
nodes: [{name: a, count: 8, gpus: 4}, {name: b, count: 8, gpus: 4}]
partitions:
  - {name: p, default: true, max_nodes: 8, max_walltime: 1h}
resources: {licence: 3}
"""


def test_each_rejected_job_is_counted_for_its_reason(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CLUSTER)
    result = simulate(JOBS, Cluster.from_yaml(tmp_path / "c.yaml"))
    assert result.rejection_reasons == {
        "need more nodes than the cluster has (16)": 2,
        "need more nodes than partition p allows (max_nodes 8)": 1,
        "have a longer walltime than partition p allows (max_walltime 1 h)": 1,
        "need more licence than the cluster has (3)": 1,
        "need more gpus per node than any node has (4)": 1,
    }
    assert sum(result.rejection_reasons.values()) == result.summary()["jobs_rejected"]


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_rejected_jobs_are_reported_and_rejecting_all_is_a_failure(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "jobs.csv"
    write_workload(JOBS.replace(resources={}, per_node={}), trace)
    assert run(command, trace, "-n", 16, "--json") == 0
    shown = capsys.readouterr()
    assert (
        "jobs: 2 of 8 jobs (25%) were rejected, because they can never run on cluster 'cluster': "
        "2 need more nodes than the cluster has (16)"
    ) in shown.err
    found = json.loads(shown.out)
    summary = found if command == "simulate" else found[0]
    assert summary["rejection_reasons"] == "2 need more nodes than the cluster has (16)"
    wide = tmp_path / "wide.csv"
    write_workload(JOBS.replace(nodes=JOBS.nodes + 100, resources={}, per_node={}), wide)
    assert run(command, wide, "-n", 16) == 1
    assert "8 of 8 jobs (100%) were rejected" in capsys.readouterr().err
    assert run(command, trace, "-n", 64) == 0
    assert "rejected" not in capsys.readouterr().err


def test_a_sweep_reports_rejected_jobs_once_for_each_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_workload(JOBS.replace(resources={}, per_node={}), "jobs.csv")
    options = ("-n", 16, "-p", "fcfs", "-p", "sjf+easy")
    told = (
        "jobs.csv: 2 of 8 jobs (25%) were rejected, because they can never run on cluster "
        "'16 nodes': 2 need more nodes than the cluster has (16)"
    )
    # The second time, all points are there already.
    for _ in range(2):
        assert run("sweep", "jobs.csv", *options, "--json") == 0
        shown = capsys.readouterr()
        assert json.loads(shown.out)["notes"] == [told]
        assert shown.err.count("rejected") == 1
    assert run("sweep", "jobs.csv", *options, "--load", 0.5, "--json") == 0
    assert json.loads(capsys.readouterr().out)["notes"] == [told + "; the load counts them too"]
    assert run("sweep", "jobs.csv", *options, "--resample", "2s", "--seeds", 6, "--json") == 0
    (told,) = json.loads(capsys.readouterr().out)["notes"]
    assert told.startswith("jobs.csv: up to ")
