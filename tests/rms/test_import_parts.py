"""Folders with a part of what a site has: what is there is taken over, and what is missing is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from hpctwin.cli import main
from hpctwin.policies import parse_policy
from hpctwin.rms.site_folder import Imported, import_site

HERE = Path(__file__).parent
PBS, SLURM = HERE / "recorded" / "pbs-site", HERE / "recorded" / "slurm-site"
ACCOUNTING = HERE.parent / "formats" / "recorded"
LOG, SACCT = ACCOUNTING / "openpbs-23.06-20261122", ACCOUNTING / "sacct-22.05-selection.txt"
SCHED = "strict_ordering: true ALL\nby_queue: false ALL\n"
SERVER = (
    "create queue workq\nset queue workq resources_max.walltime = 08:00:00\n"
    "set queue workq max_run = [u:PBS_GENERIC=3]\nset server scheduling = True\n"
)
CONF = (
    "ClusterName=c\nSelectType=select/linear\nPriorityType=priority/multifactor\nPriorityWeightAge=5\n"
    "AccountingStorageEnforce=limits\nPartitionName=batch Nodes=n[1-8] MaxTime=1-0 Default=YES\n"
    "PartitionName=gpu Nodes=g[1-2]\nPartitionName=debug Nodes=n1\n"
)
ASSOC = "Cluster|Account|ParentName|User|Share\nc|root|||1\nc|phys|root||3\nc|phys||ann|1\n"
QOS = "Name|Priority|MaxJobsPU\nnormal|5|4\n"


def folder(tmp_path: Path, *files: Path, **texts: str) -> Path:
    made = tmp_path / "site"
    made.mkdir()
    for file in files:
        shutil.copy(file, made)
    for name, text in texts.items():
        (made / name.replace("_conf", ".conf")).write_text(text)
    return made


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(one) for one in arguments])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def policy(made: Imported) -> str:
    return parse_policy(made.site.policy).name


def missing(made: Imported) -> set[str]:
    return {what.partition(":")[0] for what in made.missing}


def test_sched_config_alone_gives_the_policy_and_says_what_is_missing(tmp_path, capsys):
    out = tmp_path / "out"
    site = folder(tmp_path, sched_config=SCHED)
    code, said, _ = run(capsys, "import", "pbs", "--from", site, "--out", out, "--json")
    told = json.loads(said)
    assert (code, told["nodes"], told["jobs"]) == (2, 0, 0)
    assert told["policy"] == "fcfs+pbs:strict_ordering=yes,by_queue=no"
    assert [what.partition(":")[0] for what in told["missing"]] == [
        "nodes", "queues and limits", "jobs",
    ]  # fmt: skip
    assert "pbsnodes -av" in told["missing"][0]
    assert {path.name for path in out.iterdir()} == {"cluster.yaml", "policy.yaml", "report.html"}
    report = (out / "report.html").read_text()
    assert "nodes not known" in report
    assert "Missing: nodes: output of pbsnodes -av" in report
    # The machine is not made up: who runs it is told what it lacks.
    assert "nodes" not in yaml.safe_load((out / "cluster.yaml").read_text())
    trace = tmp_path / "t.swf"
    trace.write_text("1 0 -1 10 1 -1 -1 1 20 -1 1 1 1 -1 1 -1 -1 -1\n")
    code, _, fault = run(capsys, "simulate", trace, "--cluster", out / "cluster.yaml")
    assert code == 2
    assert "nodes" in fault
    code, _, fault = run(capsys, "simulate", out)
    assert code == 2
    assert "contains no jobs, because hpctwin import found no accounting" in fault
    # With nodes written into it, it is the site's machine under the site's policy.
    text = (out / "cluster.yaml").read_text()
    (out / "cluster.yaml").write_text(text + "nodes: [{name: n, count: 4}]\n")
    code, said, _ = run(capsys, "simulate", trace, "--cluster", out / "cluster.yaml", "--json")
    assert (code, json.loads(said)["jobs"]) == (0, 1)


def test_settings_without_nodes_hold_on_a_cluster_as_large_as_what_ran_at_once(tmp_path, capsys):
    site = folder(tmp_path, LOG, sched_config=SCHED, server=SERVER)
    made = import_site("pbs", site)
    cluster = made.site.cluster
    assert missing(made) == {"nodes"}
    assert policy(made) == "fcfs+pbs:strict_ordering=yes,by_queue=no"
    assert [(p.name, p.max_walltime) for p in cluster.partitions] == [("workq", 8 * 3600)]
    assert [(limit.partitions, limit.jobs) for limit in cluster.limits] == [(("workq",), 3)]
    assert any(f"{cluster.node_count} nodes vm[N] with 1 cores" in n for n in made.site.notes)
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(LOG, alone)
    assert import_site("pbs", alone).site.cluster.node_count == cluster.node_count
    out = tmp_path / "out"
    assert run(capsys, "import", "pbs", "--from", site, "--out", out)[0] == 0
    code, said, _ = run(capsys, "simulate", out, "--json")
    assert (code, json.loads(said)["jobs"]) == (0, 9)


def test_nodes_without_queues_are_one_partition_for_jobs_of_all_queues(tmp_path):
    made = import_site("pbs", folder(tmp_path, PBS / "pbsnodes.txt", LOG))
    assert missing(made) == {"queues and limits", "scheduling"}
    assert (made.site.cluster.node_count, made.site.cluster.partitions) == (4, ())
    assert policy(made) == "fcfs+pbs"


def test_slurm_conf_without_its_nodes_gives_policy_partitions_and_limits(tmp_path):
    made = import_site("slurm", folder(tmp_path, slurm_conf=CONF, qos=QOS, assoc=ASSOC))
    assert missing(made) == {"nodes and partitions", "jobs"}
    assert not made.site.sized
    assert made.site.policy.startswith("multifactor:age=5")
    assert [p.name for p in made.site.cluster.partitions] == ["batch", "gpu", "debug"]
    assert [limit.qos for limit in made.site.cluster.limits] == ["normal"]


def test_sacctmgr_alone_gives_accounts_and_qos(tmp_path, capsys):
    made = import_site("slurm", folder(tmp_path, qos=QOS, assoc=ASSOC))
    assert [a.name for a in made.site.cluster.accounts] == ["phys"]
    assert made.site.cluster.qos == {"normal": 5}
    assert missing(made) == {
        "nodes and partitions", "scheduling, and whether limits are enforced", "jobs",
    }  # fmt: skip
    out = tmp_path / "out"
    code, said, fault = run(capsys, "import", "slurm", "--from", tmp_path / "site", "--out", out)
    assert (code, "no file describes the nodes" in fault) == (2, True)
    assert "missing: jobs: output of sacct -a -D -P" in said
    assert "write the nodes into" in said
    assert yaml.safe_load((out / "cluster.yaml").read_text())["accounts"] == [
        {"name": "phys", "share": 3.0, "users": {"ann": 1.0}}
    ]


def test_sacct_with_settings_that_lack_nodes_is_simulated_under_these(tmp_path, capsys):
    site = folder(tmp_path, SACCT, slurm_conf=CONF)
    made = import_site("slurm", site)
    assert missing(made) == {"nodes and partitions", "accounts with shares and limits",
                             "QOS with priorities and limits"}  # fmt: skip
    assert made.site.cluster.node_count == 8
    out = tmp_path / "out"
    assert run(capsys, "import", "slurm", "--from", site, "--out", out)[0] == 0
    code, said, _ = run(capsys, "simulate", out, "--json")
    summary = json.loads(said)
    assert (code, summary["jobs"], summary["policy"]) == (0, 31, policy(made))


def test_nothing_is_missing_where_all_is_there(tmp_path):
    files = [
        SLURM / name for name in ("slurm.conf", "nodes.conf", "gres.conf", "qos.txt", "assoc.txt")
    ]
    assert import_site("slurm", folder(tmp_path, *files, SACCT)).missing == []
