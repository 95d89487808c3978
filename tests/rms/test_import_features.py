"""Sites whose nodes have features, and jobs of which some asked for these."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpctwin import simulate
from hpctwin.formats import read_workload
from hpctwin.rms.site_folder import import_site, pseudonyms

CONF = """ClusterName=made
SelectType=select/linear
NodeName=a1 CPUs=8 Features=a100,ib Sockets=2 CoresPerSocket=4 ThreadsPerCore=1
NodeName=a2 CPUs=8 Features=v100,ib Sockets=1 CoresPerSocket=8 ThreadsPerCore=1
NodeName=b1 CPUs=8
PartitionName=all Nodes=ALL Default=YES MaxTime=1-0
"""
SACCT = """JobID|Submit|Start|ElapsedRaw|Timelimit|NNodes|AllocCPUS|User|Partition|State|Constraints|NodeList
1|2026-01-01T00:00:00|2026-01-01T00:00:00|600|01:00:00|1|8|ann|all|COMPLETED|v100&ib|a2
2|2026-01-01T00:00:01|2026-01-01T00:00:01|540|01:00:00|1|8|ben|all|COMPLETED|[a100|v100]|a1
3|2026-01-01T00:00:02|2026-01-01T00:00:02|480|01:00:00|1|8|ben|all|COMPLETED||b1
4|2026-01-01T00:00:03|2026-01-01T00:10:00|480|01:00:00|1|8|ben|all|COMPLETED|gone|b1
5|2026-01-01T00:00:04|2026-01-01T00:10:00|480|01:00:00|2|16|ben|all|COMPLETED|a100*1&v100*1|a[1-2]
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "slurm.conf").write_text(CONF)
    (tmp_path / "sacct.txt").write_text(SACCT)
    return tmp_path


def test_jobs_of_the_past_start_on_nodes_that_have_what_they_asked_for(site: Path) -> None:
    made = import_site("slurm", site)
    groups = {group.features: group for group in made.site.cluster.nodes}
    assert groups.keys() == {("a100", "ib"), ("ib", "v100"), ()}
    assert groups[("a100", "ib")].all_features == (
        "a100", "ib", "sockets=2", "cores_per_socket=4", "threads_per_core=1",
    )  # fmt: skip
    asked = made.jobs["features"].cast(str).to_list()
    assert asked == ["v100&ib", "a100|v100", None, None, None]
    assert made.tally.counts["job with features that no node has: ignored (job 4: gone)"] == 1
    counted = "constraint on some of the nodes (a*2), ignored (job 5: a100*1&v100*1)"
    assert made.tally.counts[counted] == 1
    made.jobs.write_parquet(site / "jobs.parquet")
    found = simulate(read_workload(site / "jobs.parquet"), made.site.cluster, "fcfs+easy")
    assert (found.jobs["wait_s"] == 0)[:3].all()


def test_pseudonyms_hide_the_names_of_features(site: Path) -> None:
    made = pseudonyms(import_site("slurm", site), b"0123456789abcdef")
    names = {name for group in made.site.cluster.nodes for name in group.features}
    assert len(names) == 3
    assert all(re.fullmatch(r"feature-[0-9a-f]{10}", name) for name in names)
    asked = made.jobs["features"].cast(str).to_list()
    assert all(name in names for name in re.split(r"[&|]", asked[0] + "&" + asked[1]))


def test_features_of_too_many_groups_are_skipped(tmp_path: Path) -> None:
    nodes = "".join(f"NodeName=n{n} CPUs=8 Features=host{n}\n" for n in range(200))
    (tmp_path / "slurm.conf").write_text(
        f"ClusterName=made\nSelectType=select/linear\n{nodes}PartitionName=all Nodes=ALL Default=YES\n"
    )
    made = import_site("slurm", tmp_path)
    assert [group.count for group in made.site.cluster.nodes] == [200]
    assert any("more than 128 node groups" in note for note in made.site.notes)


def test_without_a_site_s_nodes_features_are_left_open(site: Path) -> None:
    found = read_workload(site / "sacct.txt")
    assert not found.features.labels
    unknown = "job with features that no node has: ignored (job 1: v100&ib)"
    assert found.notes.counts[unknown] == 3


CONSTRAINTS = [
    "a100*2", "[rack1*2&rack2*4]", "[rack1|rack2]", "[a100*2|v100*3]", "!ib", "~ib", "^(a100|v100)",
    "a100,ib", "gpu_cc:8.0", "ib+opa", "core@2", "a100&v100|ib", "((a100|v100)&ib)|x", '"a100 & ib"',
    "'a100'", "a100&&ib", "[(a100&ib)*1&v100*1]", "a100 ib", "(a100", "a100&", "*2", "[[a100]]",
    "a100*two", "(" * 2000, "&".join(f"f{n}" for n in range(200)), "%$#", "\u00fcn\u00ef",
]  # fmt: skip


@pytest.mark.parametrize("described", [True, False], ids=["with settings", "accounting only"])
def test_no_constraint_of_a_job_ends_an_import(tmp_path: Path, described: bool) -> None:
    head, *_ = SACCT.splitlines()
    rows = [
        f"{n}|2026-01-01T00:00:00|2026-01-01T00:00:00|600|01:00:00|2|16|ann|all|COMPLETED|{said}|a[1-2]"
        for n, said in enumerate((said for said in CONSTRAINTS if "|" not in said), 1)
    ]
    (tmp_path / "sacct.txt").write_text("\n".join([head, *rows]) + "\n")
    if described:
        (tmp_path / "slurm.conf").write_text(CONF)
    made = import_site("slurm", tmp_path)
    made.jobs.write_parquet(tmp_path / "jobs.parquet")
    jobs = read_workload(tmp_path / "jobs.parquet")
    assert len(jobs) == len(rows)
    if not described:  # nothing tells which nodes have a feature
        assert not jobs.features.labels
        states = simulate(jobs, made.site.cluster, "fcfs+easy").jobs["state"].to_list()
        assert states == ["completed"] * len(rows)
        return
    assert set(jobs.features.labels) == {"a100", "a100&ib", "!ib", "(a100|v100)&(ib|v100)"}
    unread = [what for what in made.tally.counts if what.startswith("constraint that cannot be")]
    assert len(unread) == 1
    assert "(job " in unread[0]


def test_a_node_s_features_have_the_characters_that_slurm_allows(tmp_path: Path) -> None:
    names = ("gpu_cc:8.0", "ib+opa", "intel-xeon.6130:v2", "nvidia/pcie", "core@2", "a%5")
    nodes = "".join(f"NodeName=n{n} CPUs=8 Feature={one}\n" for n, one in enumerate(names))
    (tmp_path / "slurm.conf").write_text(
        f"ClusterName=made\nSelectType=select/linear\n{nodes}PartitionName=all Nodes=ALL Default=YES\n"
    )
    head, row, *_ = SACCT.splitlines()
    rows = [row.replace("v100&ib", one).replace("1|", f"{n}|", 1) for n, one in enumerate(names, 1)]
    (tmp_path / "sacct.txt").write_text("\n".join([head, *rows]) + "\n")
    made = import_site("slurm", tmp_path)
    assert made.jobs["features"].cast(str).to_list() == list(names)
