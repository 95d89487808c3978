"""What is assumed, ignored or not used: said on standard error, in JSON, and kept in the manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpctwin import simulate, simulate_stream
from hpctwin.formats import read_workload
from hpctwin.formats.clusters import read_cluster
from hpctwin.learn.prediction import load_predictor
from hpctwin.model import Cluster, ReadNotes, Workload
from hpctwin.model.demand import unused
from tests.cli.test_cli import run
from tests.energy.test_outputs import config as spars  # noqa: F401 - a fixture
from tests.energy.test_platform import BATSIM, spars_machine

PARTS = (
    "job_id,submit_s,runtime_s,walltime_s,nodes,partition,user\n"
    "1,0,100,100,4,gpu,ada\n2,0,100,100,4,cpu,ben\n"
)
NOTE = "2 jobs requested partitions (cpu, gpu), but cluster 'cluster' has none"


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    path = tmp_path / "parts.csv"
    path.write_text(PARTS)
    return path


def test_partitions_missing_in_the_cluster_are_reported_and_kept(
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
        (["--first", "0"], "selects none of the 2 jobs"),
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
            {"type": "parallel_homogeneous", "cpu": 1e10, "com": 0}, {"walltime": -1},
            "1 × job without walltime, given a walltime of 1e+09 s",
        ),
        ({"type": "delay", "delay": 9}, {"after": ["0"]}, "1 × field 'after' of a job, ignored"),
        ({"type": "delay", "delay": 9, "np": 4}, {}, "1 × field 'np' of a job's profile, ignored"),
        ({"type": "delay", "delay": 9}, {"walltime": -1}, "1 × job without walltime, given its run time"),
        ({"type": "delay", "delay": 9}, {}, "1 × field 'by' of the workload, ignored"),
    ],
)  # fmt: skip
def test_open_and_unread_fields_of_a_batsim_workload_are_counted(
    tmp_path: Path, profile: dict[str, Any], job: dict[str, Any], said: str
) -> None:
    assert said in read_workload(batsim(tmp_path / "w.json", profile, **job)).notes.sentences()


def test_a_batsim_job_that_returns_an_error_fails(tmp_path: Path) -> None:
    jobs = read_workload(batsim(tmp_path / "w.json", {"type": "delay", "delay": 9, "ret": 1}))
    assert jobs.fails is not None
    assert jobs.fails.tolist() == [True]


def test_unread_fields_of_spars_and_wfcommons_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    job = {"job_id": 1, "res": 1, "subtime": 0, "reqtime": 9, "runtime": 5, "deadline": 7}
    path.write_text(json.dumps({"nb_res": 4, "jobs": [job]}))
    assert "1 × field 'deadline' of a job, ignored" in read_workload(path).notes.sentences()
    task = {"name": "a", "runtime": 5, "parents": [], "avgCPU": 50}
    path.write_text(json.dumps({"workflow": {"tasks": [task]}}))
    told = read_workload(path).notes.sentences()
    assert "fields of tasks that are ignored: avgCPU (1)" in told


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        ("nodes: [{name: a, count: 4, modes: {base: {power_w: 100}}}]", "mode 'base' has no idle_w"),
        ("nodes: [{name: a, count: 4}]\nqos: {high: 1}", "with QOS that the cluster does not list (low)"),
        ("nodes: [{name: a, count: 4}]", "1 job requested cores per node, which node groups a do not define"),
        (
            "nodes: [{name: a, count: 4}]\nlimits: [{user: eve, jobs: 1}]",
            "a limit names user 'eve', but jobs have no user",
        ),
    ],
)  # fmt: skip
def test_differences_between_a_cluster_and_a_trace_are_reported(
    tmp_path: Path, cluster: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.yaml").write_text(cluster)
    row = "submit_s,runtime_s,walltime_s,nodes,qos,cores_per_node\n0,5,9,1,low,2\n"
    (tmp_path / "w.csv").write_text(row)
    assert run("simulate", tmp_path / "w.csv", "-M", tmp_path / "m.yaml") == 0
    assert told in capsys.readouterr().err


def test_columns_that_a_mapping_does_not_name_are_reported(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("when,run,color\n0,5,red\n")
    jobs = read_workload(tmp_path / "t.csv", columns={"submit": "when", "runtime": "run * 60"})
    assert "columns ignored: color" in jobs.notes.sentences()
    assert jobs.runtime_ms.tolist() == [300_000]


MIXED: dict[str, Any] = {
    "submit_s": [0, 1, 2, 3],
    "runtime_s": [5, 5, 5, 5],
    "nodes": [1, 1, 1, 1],
    "partition": ["gpu", "cpu", None, "gpu"],
    "qos": ["low", None, "high", "odd"],
    "account": ["a", "b", "c", None],
    "per_node": {"cores": [2, 0, 0, 4]},
    "notes": ReadNotes({"line repaired": 3}, ("line 7",), ("the log is cut short",)),
}
SMALL: dict[str, Any] = {
    "qos": {"high": 1},
    "fairshare": {"by": "account", "shares": {"a": 2}},
    "limits": [{"user": "eve", "jobs": 1}],
}


def test_a_stream_says_what_an_ordinary_run_says(tmp_path: Path) -> None:
    jobs, cluster = Workload.build(**MIXED), Cluster.uniform(4, **SMALL)
    expected = simulate(jobs, cluster, "fcfs+easy").notes
    assert expected == (
        "the log is cut short",
        "3 × line repaired",
        "skipped: line 7",
        "3 jobs requested partitions (cpu, gpu), but cluster 'cluster' has none: all nodes can be used",
        "2 jobs with QOS that the cluster does not list (low, odd): weight 0 is used",
        "2 jobs with accounts that the cluster does not list (b, c): each gets a fair share of 1",
        "2 jobs requested cores per node, which node groups node do not define: all of their "
        "nodes can be used",
        "a limit names user 'eve', but jobs have no user: the limit has no effect",
    )
    for batch in (1, 3, 100):
        out = tmp_path / str(batch)
        assert simulate_stream(jobs, cluster, "fcfs+easy", out=out, batch=batch).notes == expected
        assert json.loads((out / "stream.json").read_text())["assumptions"] == [*expected]
        assert json.loads((out / "summary.json").read_text())["notes"] == [*expected]
    parts = [jobs.take(np.arange(2)), jobs.take(np.arange(2, 4)).replace(notes=ReadNotes())]
    assert simulate_stream(parts, cluster, out=tmp_path / "parts", batch=9).notes == expected


def test_the_result_reports_jobs_on_whole_nodes(tmp_path: Path) -> None:
    jobs = Workload.build(submit_s=[0], runtime_s=[5], nodes=[1], chunks={"tasks": [1]})
    told = "has no 'cores' per node: each job gets whole nodes"
    result = simulate(jobs, 4)
    assert [told in note for note in result.notes] == [True]
    assert [told in note for note in simulate_stream(jobs, 4, out=tmp_path).notes] == [True]


@pytest.fixture
def facility(tmp_path: Path) -> Path:
    path = tmp_path / "f.yaml"
    path.write_text(
        "clusters:\n"
        "  - {name: cluster, nodes: 4}\n"
        "  - {name: b, machine: {nodes: [{name: n, count: 4}], partitions: [{name: gpu}, {name: cpu}]}}\n"
    )
    return path


def test_a_facility_says_it_of_each_cluster(
    parts: Path, facility: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("facility", "simulate", parts, facility, "-s", "least-loaded", "--json")
    assert run(*given, "--out", tmp_path / "run") == 0
    shown = capsys.readouterr()
    assert f"parts: at cluster: {NOTE}" in shown.err
    (told,) = json.loads(shown.out)["notes"]
    assert told.startswith(f"at cluster: {NOTE}")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["assumptions"] == [told]
    assert run("facility", "compare", parts, facility, "-s", "random", "--json") == 0
    shown = capsys.readouterr()
    assert NOTE in shown.err
    assert json.loads(shown.out)[0]["notes"] == [told]


def test_agents_say_it_and_keep_it_in_their_card(
    parts: Path, facility: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = tmp_path / "a.safetensors"
    some = ("--jobs", 1, "-n", 4)
    given = ("agent", "train", "JobSelection", parts, agent, "--steps", 2, "--learner", "evolution")
    assert run(*given, *some) == 0
    assert NOTE in capsys.readouterr().err
    assert run("agent", "list", tmp_path, "--json") == 0
    card = json.loads(capsys.readouterr().out)[str(agent)]
    assert NOTE in card["data"]["notes"][0]
    short = [word for one in ("tuned", "schedtwin", "oracle") for word in ("--without", one)]
    assert run("agent", "evaluate", agent, parts, *some, "--episodes", 1, *short, "--json") == 0
    shown = capsys.readouterr()
    assert NOTE in shown.err
    assert NOTE in json.loads(shown.out)["notes"][0]


def test_predictors_say_it_and_keep_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, predictor = tmp_path / "many.csv", tmp_path / "p.skops"
    rows = [f"{n},{n},10,100,1,{'gpu' if n % 2 else 'cpu'},ada" for n in range(100)]
    path.write_text("\n".join([PARTS.splitlines()[0], *rows]))
    note = NOTE.replace("2 jobs", "100 jobs")
    under = ("--under", "fcfs+easy", "-n", 4)
    for command, *more in (
        ("score", "-m", "recent"),
        ("intervals",),
        ("forecast", "--futures", 0),
    ):
        assert run("predictor", command, path, *under, *more, "--json") == 0
        shown = capsys.readouterr()
        assert note in shown.err
        assert note in json.loads(shown.out)["notes"][0]
    assert run("predictor", "train", path, predictor, *under) == 0
    assert note in capsys.readouterr().err
    assert note in load_predictor(predictor).notes[0]


def test_unread_fields_of_platforms_are_reported_once(
    parts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machines = [spars_machine(number) | {"memory": 64} for number in range(4)]
    for machine in machines:
        machine["states"]["active"]["power"] = 120
        machine["states"]["idle"] = {}
        machine["states"]["sleeping"] |= {"can_run_jobs": False, "temperature": 3}
        machine["dvfs_profiles"]["base"]["volts"] = 1
        machine["states"]["sleeping"]["transitions"][0]["energy"] = 9
    (tmp_path / "p.json").write_text(json.dumps({"machines": machines, "network": {}}))
    (tmp_path / "q.xml").write_text(
        BATSIM.replace('id="a0"', 'id="a0" state_file="s"')
        .replace('<prop id="sleep_pstates"', '<prop id="watt_off" value="9"/><prop id="sleep_pstates"')
        .replace("</zone>", '<storage id="c"/><link id="l" bandwidth="1"/></zone>')
    )  # fmt: skip
    (tmp_path / "r.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model,rack\nn,8000,1024,1,P100,r1\n"
    )
    for name, expected in (
        (
            "p.json",
            [
                "1 × field 'network' of the platform, ignored",
                "4 × field 'memory' of a machine, ignored",
                "4 × field 'volts' of a DVFS profile, ignored",
                "4 × field 'idle' of a machine's states, ignored",
                "4 × field 'temperature' of a state, ignored",
                "4 × field 'power' of an active state, other than from_dvfs, ignored",
                "4 × field 'energy' of a transition, ignored",
            ],
        ),
        (
            "q.xml",
            [
                "1 × field 'state_file' of a host, ignored",
                "2 × field 'watt_off' of a host's properties, ignored",
                "1 × field 'storage' of the platform, ignored",
            ],
        ),
        ("r.csv", ["1 × field 'rack' of a node, ignored"]),
    ):
        path = tmp_path / name
        assert read_cluster(path).notes.sentences() == expected
        assert run("simulate", parts, "-M", path, "--json", "--out", tmp_path / path.stem) == (
            1 if name == "r.csv" else 0
        )
        shown = capsys.readouterr()
        told = [f"cluster {path.stem!r}: {one}" for one in expected]
        assert json.loads(shown.out)["notes"][: len(told)] == told
        assert [shown.err.count(one) for one in expected] == [1] * len(expected)
        manifest = json.loads((tmp_path / path.stem / "manifest.json").read_text())
        assert manifest["assumptions"][: len(told)] == told
        assert run("cluster", "check", path) == 0
        assert expected[0] in capsys.readouterr().err
    assert "notes" not in Cluster.model_json_schema()["properties"]


JOB = "1 0 0 5 4 -1 -1 4 9 -1 1 1 1 -1 -1 -1 -1 -1\n"


@pytest.mark.parametrize(
    ("header", "options", "size"),
    [
        ("; MaxNodes: 240\n", [], "240, from the header's MaxNodes"),
        ("; MaxNodes: 9\n; MaxProcs: 64\n", [], "64, from the header's MaxProcs"),
        (
            "; MaxProcs: 64\n", ["--procs-per-node", "4"],
            "16, from the header's MaxProcs, with 4 processors per node",
        ),
        ("; MaxNodes: 2\n", [], "4, from the largest job"),
    ],
)  # fmt: skip
def test_a_size_taken_from_the_trace_is_reported_with_its_source(
    header: str, options: list[str], size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.swf"
    path.write_text(header + JOB)
    told = f"cluster 'cluster': nodes: {size}"
    assert run("simulate", path, *options, "--json", "--out", tmp_path / "run") == 0
    shown = capsys.readouterr()
    assert f"log: {told}\n" in shown.err
    assert told in json.loads(shown.out)["notes"]
    assert told in json.loads((tmp_path / "run" / "manifest.json").read_text())["assumptions"]
    assert run("simulate", path, *options, "-n", 16, "--json") == 0
    assert "nodes: " not in capsys.readouterr().err
    if not options:
        settings = tmp_path / "s.yaml"
        settings.write_text(
            "workloads: [log.swf]\nwindows: [{begin: 0, end: 9}]\npolicies: [sjf]\n"
        )
        assert run("sweep", settings, "--out", tmp_path / "out", "--json") == 0
        assert f"log: {told}" in json.loads(capsys.readouterr().out)["notes"]
        assert (
            f"log: {told}"
            in json.loads((tmp_path / "out" / "sweep.json").read_text())["assumptions"]
        )


def test_the_json_output_contains_the_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = batsim(tmp_path / "w.json", {"type": "delay", "delay": 9})
    assert run("compare", path, "-p", "fcfs+easy", "--json") == 0
    assert (
        "cluster 'cluster': nodes: 4, from nb_res"
        in json.loads(capsys.readouterr().out)[0]["notes"]
    )


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        ({}, ["2 jobs requested QOS (a, b), but cluster 'cluster' lists none: no weight or limit applies "
              "to them"]),
        ({"limits": [{"qos": "a", "jobs": 1}]}, []),
        (
            {"limits": [{"qos": "a", "jobs": 1}], "fairshare": {"shares": {"ada": 2}}},
            ["1 job with users that the cluster does not list (ben): each gets a fair share of 1"],
        ),
    ],
)  # fmt: skip
def test_unknown_qos_and_users_of_a_cluster_are_reported(
    cluster: dict[str, Any], told: list[str]
) -> None:
    jobs = Workload.build(
        submit_s=[0, 0], runtime_s=[5, 5], nodes=[1, 1], qos=["a", "b"], user=["ada", "ben"]
    )
    assert [*unused(jobs, Cluster.uniform(4, **cluster))] == told


def test_outages_and_what_a_spars_configuration_leaves_open_are_kept(
    parts: Path,
    tmp_path: Path,
    spars: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "away.csv").write_text("node,start,end,state\n1,0,9,down\n")
    given = ("-n", 4, "--outages", tmp_path / "away.csv", "--out", tmp_path / "run", "--json")
    assert run("simulate", parts, *given) == 0
    told = "cluster 'cluster': 1 × node outage"
    assert told in json.loads(capsys.readouterr().out)["notes"]
    assert told in json.loads((tmp_path / "run" / "manifest.json").read_text())["assumptions"]
    spars.write_text(spars.read_text().replace("timeout:", "retries: 3\n  timeout:"))
    assert run("simulate", spars, "--json") == 0
    shown = capsys.readouterr()
    said = "field 'retries' of run, ignored (simulator_config.yaml)"
    assert said in shown.err
    assert said in json.loads(shown.out)["notes"]


def test_jobs_that_never_start_are_reported_for_each_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, cluster = tmp_path / "j.csv", tmp_path / "c.yaml"
    trace.write_text(
        "submit_s,runtime_s,walltime_s,nodes,user\n0,600,600,2,ann\n60,600,600,3,ann\n90,600,600,1,ben\n"
    )
    cluster.write_text("nodes: [{name: n, count: 4}]\nlimits: [{user: ann, nodes: 2}]\n")
    told = "1 of 3 jobs never started: a limit, a dependency or the policy kept them pending"
    given = [trace, "-M", cluster]
    assert run("simulate", *given) == 0
    assert capsys.readouterr().err.count(f"j, fcfs+easy: {told}") == 1
    assert run("compare", *given, "-p", "fcfs+easy", "-p", "sjf+easy") == 0
    err = capsys.readouterr().err
    assert (err.count(f"j, fcfs+easy: {told}"), err.count(f"j, sjf+easy: {told}")) == (1, 1)
    assert run("workload", "convert", trace, tmp_path / "j.parquet") == 0
    stream = [tmp_path / "j.parquet", "--stream", "--out", tmp_path / "out"]
    assert run("simulate", *stream, "-M", cluster) == 0
    assert told in capsys.readouterr().err
    # A part of a trace ends before its last jobs.
    assert run("simulate", *given, "--from", "0s", "--until", "10s") == 0
    assert "never started" not in capsys.readouterr().err


def test_a_job_that_is_held_for_a_failed_one_is_reported_as_never_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "d.csv"
    trace.write_text(
        "job_id,submit_s,runtime_s,walltime_s,nodes,depends\n1,0,600,300,2,\n2,60,600,600,3,afterok:1\n"
    )
    assert run("simulate", trace, "-n", 4, "--on-dependency-failure", "hold") == 0
    assert "1 of 2 jobs never started" in capsys.readouterr().err
