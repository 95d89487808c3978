"""From a site's files to a simulation, as a user types it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hpctwin import Cluster, read_workload
from hpctwin.cli import main

RECORDED = Path(__file__).parent.parent
SLURM, PBS = (RECORDED / "rms" / "recorded" / f"{name}-site" for name in ("slurm", "pbs"))
ACCOUNTING = RECORDED / "formats" / "recorded"


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(one) for one in arguments])
    return int(ended.value.code or 0)


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(SLURM, tmp_path / "site")
    shutil.copy(ACCOUNTING / "sacct-22.05-all.txt.gz", tmp_path / "site")
    (tmp_path / "site" / "README").write_text("ours\n")
    return tmp_path / "site"


def test_from_a_slurm_s_files_to_what_if_in_two_commands(folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert run("import", "slurm", "--from", folder, "--out", out, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["nodes"], told["partitions"], told["jobs"]) == (8, 3, 31)
    assert told["omitted"]["files"] == ["README"]
    assert told["omitted"]["record skipped: the job was cancelled before it started"] == 1
    assert told["read"]["files"]["slurm.conf"] == "slurm.conf"
    assert all(one["why"] for one in told["settings"]["not_modeled"])
    assert {path.name for path in out.iterdir()} == {
        "cluster.yaml", "policy.yaml", "report.html", "workload.parquet",
    }  # fmt: skip
    assert Cluster.from_yaml(out / "cluster.yaml").node_count == 8
    assert len(read_workload(out / "workload.parquet")) == 31
    report = (out / "report.html").read_text()
    assert "preemption: mode requeue" in report
    assert "placement ignores switches" in report
    assert run("simulate", out, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["jobs"] == 31
    assert summary["policy"] == told["policy"]
    assert run("simulate", out, "--backfill", "easy", "--json") == 0
    assert json.loads(capsys.readouterr().out)["policy"].endswith("+easy")
    assert run("compare", out, "--policy", "fcfs+easy", "--json") == 0
    policies = [one["policy"] for one in json.loads(capsys.readouterr().out)]
    assert policies == [told["policy"], "fcfs+easy"]


def test_it_says_how_far_it_is_from_the_site_s_own_past(folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert run("import", "slurm", "--from", folder, "--out", out, "--check", "--json") == 0
    told = json.loads(capsys.readouterr().out)["fidelity"]
    assert told["jobs"] + told["not_compared"] == 31
    assert told["median_error_s"] >= 0
    assert sum(one["jobs"] for one in told["by_partition"]) == told["jobs"]
    assert {one["assumption"] for one in told["assumptions"]} >= {"backfill", "ordering"}
    assert json.loads((out / "fidelity.json").read_text()) == told
    assert "Simulated and recorded starts" in (out / "report.html").read_text()
    assert run("import", "slurm", "--from", folder, "--out", tmp_path / "again", "--check") == 0
    said = capsys.readouterr().out
    assert "Other assumptions, largest improvement first" in said
    assert "…" not in said


def test_a_past_of_which_nothing_is_recorded_cannot_be_checked(tmp_path, capsys):
    shutil.copytree(SLURM, tmp_path / "site")
    out = tmp_path / "out"
    assert run("import", "slurm", "--from", tmp_path / "site", "--out", out, "--check") == 2
    assert "the files contain no accounting" in capsys.readouterr().err
    assert not out.exists()


def test_from_a_pbs_s_files_to_a_simulation(tmp_path, capsys):
    shutil.copytree(PBS, tmp_path / "site")
    shutil.copy(ACCOUNTING / "openpbs-23.06-20261122", tmp_path / "site")
    out = tmp_path / "out"
    assert run("import", "pbs", "--from", tmp_path / "site", "--out", out) == 0
    said = capsys.readouterr().out
    assert "policy: fcfs+pbs" in said
    assert "preemptive_sched" in said
    assert run("simulate", out, "--json") == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == 9


def test_a_salt_keeps_pseudonyms_the_same_and_its_file_private(folder, tmp_path):
    salt = tmp_path / "salt"
    for name in ("a", "b"):
        assert (
            run(
                "import",
                "slurm",
                "--from",
                folder,
                "--out",
                tmp_path / name,
                "--anonymize",
                "--salt",
                salt,
            )
            == 0
        )
    assert salt.stat().st_mode & 0o077 == 0
    one, other = (
        read_workload(tmp_path / name / "workload.parquet").to_frame() for name in ("a", "b")
    )
    assert one.equals(other)
    for file in (tmp_path / "a").glob("*.yaml"):
        assert "phys" not in file.read_text()
    assert "alice" not in (tmp_path / "a" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["slurm", "--out", "OUT"], 2, "or `live` to query the running slurm"),
        (["slurm", "--from", "GONE", "--out", "OUT"], 2, "expected a folder with the site's files"),
        (["slurm", "--from", "EMPTY", "--out", "OUT"], 2, "none of its 0 files is recognized"),
        (["slurm", "--from", "SITE", "--out", "OUT", "--salt", "x"], 2, "no effect without --anonymize"),
        (["slurm", "--from", "SITE", "--out", "OUT", "--timezone", "Moon"], 2, "unknown time zone 'Moon'"),
        (["torque", "--from", "SITE", "--out", "OUT"], 2, "torque"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_imported_are_rejected_in_words(
    folder, tmp_path, capsys, arguments, code, said
):
    (tmp_path / "empty").mkdir()
    places = {"OUT": "out", "GONE": "gone", "EMPTY": "empty", "SITE": "site"}
    given = [str(tmp_path / places[one]) if one in places else one for one in arguments]
    assert run("import", *given) == code
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_no_import_is_rejected_by_name(tmp_path, capsys):
    assert run("simulate", tmp_path) == 2
    told = capsys.readouterr().err
    assert "contains no policy.yaml; give a trace, a folder made by hpctwin import" in told


def test_sacct_without_a_header_is_named_and_read_with_its_format(tmp_path, capsys):
    site, out = tmp_path / "site", tmp_path / "out"
    site.mkdir()
    (site / "slurm.conf").write_text(
        "ClusterName=c\nNodeName=n[1-4] CPUs=8\nPartitionName=p Nodes=ALL\n"
    )
    (site / "sacct.txt").write_text(
        "7|ada|2026-01-01T00:00:00|2026-01-01T00:00:00|Unknown|10:00|04:00:00|1|4|n1|RUNNING\n"
    )
    columns = "jobid%20,USER,submit,start,end,elapsed,timel,nnodes,alloccpus,NodeList%-30,state"
    assert run("import", "slurm", "--from", site, "--out", out) == 2
    assert "sacct.txt, line 1: found '7|ada" in capsys.readouterr().err
    assert not out.exists()
    for option in ("--columns", "--format"):
        assert run("import", "slurm", "--from", site, "--out", out, "--json", option, columns) == 0
        assert json.loads(capsys.readouterr().out)["jobs"] == 1
        assert run("simulate", site / "sacct.txt", "--json", option, columns) == 0
        assert json.loads(capsys.readouterr().out)["makespan_s"] == 600
    hours = ("--still-running", "limit")
    assert run("import", "slurm", "--from", site, "--out", out, "--columns", columns, *hours) == 0
    assert read_workload(out / "workload.parquet").runtime_ms.tolist() == [4 * 3_600_000]


def test_a_check_says_what_of_the_past_the_cluster_does_not_know(tmp_path, capsys):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sacct.txt").write_text(
        "JobID|Submit|Start|End|TimelimitRaw|NNodes|AllocCPUS|Partition|State|NodeList\n"
        "1|2026-01-01T01:00:00|2026-01-01T01:00:00|2026-01-01T01:30:00|60|1|4|p|COMPLETED|n1\n"
    )
    given = ("import", "slurm", "--from", tmp_path / "site", "--out", tmp_path / "out")
    assert run(*given, "--check", "--json") == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert notes[-1].startswith("1 job requested partitions (p), but cluster 'slurm' has none")
