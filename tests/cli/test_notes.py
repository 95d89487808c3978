"""What is assumed, not read or not used: said on standard error, in JSON, and kept in the manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpctwin.formats import read_workload
from tests.cli.test_cli import run

PARTS = (
    "job_id,submit_s,runtime_s,walltime_s,nodes,partition,user\n"
    "1,0,100,100,4,gpu,ada\n2,0,100,100,4,cpu,ben\n"
)
NOTE = "2 jobs name partitions (cpu, gpu), and cluster 'cluster' has none"


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    path = tmp_path / "parts.csv"
    path.write_text(PARTS)
    return path


def test_partitions_that_the_cluster_does_not_have_are_said_and_kept(
    parts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("simulate", parts, "-n", 4, "--json", "--out", tmp_path / "run") == 0
    shown = capsys.readouterr()
    assert NOTE in shown.err
    assert NOTE in json.loads(shown.out)["notes"][0]
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert NOTE in manifest["assumptions"][0]
    assert manifest["empty_columns"]["jobs"] == ["account"]
    assert run("compare", parts, "-n", 4, "-p", "fcfs+easy", "--json") == 0
    assert NOTE in json.loads(capsys.readouterr().out)[0]["notes"][0]


def test_a_sweep_and_a_replay_say_what_is_assumed(
    parts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "s.yaml"
    settings.write_text("workloads: [parts.csv]\nclusters: [4]\npolicies: [fcfs+easy]\n")
    assert run("sweep", settings, "--out", tmp_path / "out", "--json") == 0
    shown = capsys.readouterr()
    assert NOTE in shown.err
    assert NOTE in json.loads(shown.out)["notes"][0]
    parts.write_text(
        PARTS.replace("user\n", "user,recorded_start_s\n")
        .replace("ada", "ada,0")
        .replace("ben", "ben,100")
    )
    assert run("replay", parts, "-n", 4, "--json") == 0
    shown = capsys.readouterr()
    assert NOTE in shown.err
    assert NOTE in json.loads(shown.out)["notes"][0]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--first", "0"], "none of its 2 jobs is selected"),
        (["--user", "eve"], "users: ada, ben"),
        (["--partition", "gpus"], "partitions: cpu, gpu"),
        (["--min-nodes", "5"], "4 to 4 nodes"),
        (["--after", "30d"], "submitted in 0 s"),
    ],
)
def test_a_filter_that_selects_nothing_writes_nothing(
    parts: Path, tmp_path: Path, given: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("workload", "filter", parts, tmp_path / "o.csv", *given) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "o.csv").exists()


def batsim(path: Path, profile: dict[str, Any], **job: Any) -> Path:
    jobs = [{"id": 1, "subtime": 0, "res": 2, "walltime": 100, "profile": "p", **job}]
    path.write_text(json.dumps({"nb_res": 4, "jobs": jobs, "profiles": {"p": profile}, "by": "me"}))
    return path


@pytest.mark.parametrize(
    ("profile", "job", "said"),
    [
        (
            {"type": "parallel_homogeneous", "cpu": 1e10, "com": 0}, {},
            "1 × job that computes, on nodes assumed to do 1 Gflop/s",
        ),
        ({"type": "delay", "delay": 9}, {"after": ["0"]}, "1 × field 'after' of a job, not read"),
        ({"type": "delay", "delay": 9, "np": 4}, {}, "1 × field 'np' of a job's profile, not read"),
        ({"type": "delay", "delay": 9}, {"walltime": -1}, "1 × job without walltime, given its run time"),
        ({"type": "delay", "delay": 9}, {}, "1 × field 'by' of the workload, not read"),
    ],
)  # fmt: skip
def test_what_a_batsim_workload_leaves_open_or_is_not_read_is_counted(
    tmp_path: Path, profile: dict[str, Any], job: dict[str, Any], said: str
) -> None:
    assert said in read_workload(batsim(tmp_path / "w.json", profile, **job)).notes.sentences()


def test_a_batsim_job_that_returns_an_error_fails(tmp_path: Path) -> None:
    jobs = read_workload(batsim(tmp_path / "w.json", {"type": "delay", "delay": 9, "ret": 1}))
    assert jobs.fails is not None
    assert jobs.fails.tolist() == [True]


def test_fields_of_spars_and_wfcommons_that_are_not_read_are_said(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    job = {"job_id": 1, "res": 1, "subtime": 0, "reqtime": 9, "runtime": 5, "deadline": 7}
    path.write_text(json.dumps({"nb_res": 4, "jobs": [job]}))
    assert "1 × field 'deadline' of a job, not read" in read_workload(path).notes.sentences()
    task = {"name": "a", "runtime": 5, "parents": [], "avgCPU": 50}
    path.write_text(json.dumps({"workflow": {"tasks": [task]}}))
    told = read_workload(path).notes.sentences()
    assert "fields of tasks that are not read: avgCPU (1)" in told


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        ("nodes: [{name: a, count: 4, modes: {base: {power_w: 100}}}]", "mode 'base' has no idle_w"),
        ("nodes: [{name: a, count: 4}]\nqos: {high: 1}", "have QOS that the cluster does not list (low)"),
        ("nodes: [{name: a, count: 4}]", "1 jobs ask for cores of each node, which node groups a do not say"),
        (
            "nodes: [{name: a, count: 4}]\nlimits: [{user: eve, jobs: 1}]",
            "a limit is of user 'eve', and no job says its user",
        ),
    ],
)  # fmt: skip
def test_what_a_cluster_and_a_trace_do_not_share_is_said(
    tmp_path: Path, cluster: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.yaml").write_text(cluster)
    row = "submit_s,runtime_s,walltime_s,nodes,qos,cores_per_node\n0,5,9,1,low,2\n"
    (tmp_path / "w.csv").write_text(row)
    assert run("simulate", tmp_path / "w.csv", "-M", tmp_path / "m.yaml") == 0
    assert told in capsys.readouterr().err


def test_columns_that_a_mapping_does_not_name_are_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("when,run,color\n0,5,red\n")
    jobs = read_workload(tmp_path / "t.csv", columns={"submit": "when", "runtime": "run * 60"})
    assert "columns not read: color" in jobs.notes.sentences()
    assert jobs.runtime_ms.tolist() == [300_000]
