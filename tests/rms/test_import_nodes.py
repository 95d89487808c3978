"""Nodes of a Slurm site: their GPUs, states, partitions, and the files that describe them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpctwin.cli import main
from hpctwin.errors import ConfigError
from hpctwin.rms.site import IMPORTED, NOT_MODELED
from hpctwin.rms.site_folder import Imported, import_site
from hpctwin.rms.slurm.listing.values import node_flags

HEAD = "ClusterName=c\nSelectType=select/cons_tres\n"
SACCT = (
    "JobID|Submit|Start|End|NNodes|AllocCPUS|AllocTRES|AllocGRES|Partition|State|NodeList\n"
    "1|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T01:00:00|1|4|{tres}|{gres}|p|COMPLETED|n1\n"
)


def written(folder: Path, **texts: str) -> Path:
    """Write files; a_conf is a.conf, and x__a_conf is x/a.conf."""
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def imported(folder: Path, **texts: str) -> Imported:
    return import_site("slurm", written(folder, **texts))


def node(name: str, state: str = "IDLE", partitions: str = "p", gres: str = "(null)") -> str:
    """A node as ``scontrol show node`` prints it."""
    of = f"   Partitions={partitions} \n" if partitions else ""
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=16 \n   CPUAlloc=0 CPUEfctv=32 CPUTot=32 CPULoad=0.10\n"
        f"   AvailableFeatures=(null)\n   Gres={gres}\n   OS=Linux 6.1 #1 SMP Gres=gpu:99 \n"
        f"   RealMemory=64000 AllocMem=0 FreeMem=640 Sockets=2 Boards=1\n"
        f"   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A\n{of}"
        f"   Reason=State=IDLE and Gres=gpu:1 are wrong [root@2026-01-01T00:00:00]\n\n"
    )


def sizes(made: Imported) -> list[tuple[int, float | None, dict[str, float]]]:
    return [(g.count, g.gpus, dict(g.consumables)) for g in made.site.nodes]


def counts(made: Imported) -> int:
    return sum(group.count for group in made.site.nodes)


def told(made: Imported) -> str:
    return "\n".join(made.site.notes)


@pytest.mark.parametrize(
    ("gres", "gres_conf", "gpus", "types"),
    [
        ("gpu:2080ti:8", "", 8, {}),
        ("gpu:1g.10gb:21(S:1)", "", 21, {}),
        ("gpu:1080ti:2,gpu:titanx:2", "", 4, {"gpu/1080ti": 2, "gpu/titanx": 2}),
        ("gpu:1g.5gb:4,gpu:3g.20gb:1", "", 5, {"gpu/1g.5gb": 4, "gpu/3g.20gb": 1}),
        ("gpu:4090", "", 4090, {}),  # digits alone are a count
        ("gpu:3090ti", "", 1, {}),
        ("gpu:8", "NodeName=n[1-4] Name=gpu Type=2080ti File=/dev/nvidia[0-7]\n", 8, {}),
        (
            "gpu:4",
            "Name=gpu Type=2080ti File=/dev/nvidia[0-1]\nName=gpu Type=3090 File=/dev/nvidia2,/dev/nvidia3\n",
            4,
            {"gpu/2080ti": 2, "gpu/3090": 2},
        ),
    ],
)
def test_slurm_conf_and_scontrol_count_the_same_gpus(
    tmp_path: Path, gres: str, gres_conf: str, gpus: float, types: dict[str, float]
) -> None:
    conf = (
        f"{HEAD}NodeName=n[1-4] CPUs=32 RealMemory=64000 Gres={gres}\nPartitionName=p Nodes=ALL\n"
    )
    more = {"gres_conf": gres_conf} if gres_conf else {}
    by_conf = imported(tmp_path / "a", slurm_conf=conf, **more)
    text = "".join(node(f"n{i}", gres=gres) for i in range(1, 5))
    by_text = imported(tmp_path / "b", nodes_txt=text, **more)
    rows = [
        {
            "name": f"n{i}", "cpus": 32, "real_memory": 64000, "gres": gres, "state": "idle",
            "partitions": ["p"],
        }
        for i in range(1, 5)
    ]  # fmt: skip
    by_json = imported(tmp_path / "c", nodes_json=json.dumps({"nodes": rows}), **more)
    assert sizes(by_conf) == sizes(by_text) == sizes(by_json) == [(4, gpus, types)]


@pytest.mark.parametrize(
    ("tres", "gres", "gpus"),
    [
        ("cpu=4,gres/gpu:2080ti=2,gres/gpu=2,mem=4G", "", 2),
        ("cpu=4,gres/gpu:1g.10gb=3,mem=4G", "", 3),
        ("cpu=4,gres/gpu=0,mem=4G", "gpu:4090ti:1", 0),
        ("", "gpu:2080ti:2", 2),
        ("", "gpu:3090ti", 1),
    ],
)
def test_accounting_counts_gpus_of_types_that_begin_with_a_digit(
    tmp_path: Path, tres: str, gres: str, gpus: float
) -> None:
    conf = f"{HEAD}NodeName=n[1-4] CPUs=32 Gres=gpu:2080ti:8\nPartitionName=p Nodes=ALL\n"
    made = imported(tmp_path, slurm_conf=conf, sacct_txt=SACCT.format(tres=tres, gres=gres))
    asked = made.jobs["gpus_per_task"].to_list() if "gpus_per_task" in made.jobs.columns else [0]
    assert asked == [gpus]


def test_gres_that_a_node_cannot_have_is_named_with_its_line(
    tmp_path: Path,
) -> None:
    conf = (
        f"{HEAD}NodeName=n[1-4] CPUs=4 Gres=tmp:2P,gpu:a+b:1,gpu:c:1\nPartitionName=p Nodes=ALL\n"
    )
    made = imported(tmp_path, slurm_conf=conf)
    assert sizes(made) == [(4, 2, {"gpu/c": 1})]
    assert told(made).count("slurm.conf:3: n[1-4]: Gres ") == 2


# --- states ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "there", "said"),
    [
        ("IDLE", True, ""),
        ("MIXED", True, ""),
        ("ALLOCATED+COMPLETING", True, ""),
        ("DOWN*", False, "DOWN*: excluded"),
        ("IDLE+DRAIN", False, "IDLE+DRAIN: excluded"),
        ("MIXED+DRAIN+NOT_RESPONDING", False, "excluded"),
        ("DRAINED", False, "DRAINED: excluded"),
        ("FAIL", False, "FAIL: excluded"),
        ("FAILING", False, "excluded"),
        ("FUTURE", False, "excluded"),
        ("IDLE*", False, "excluded"),
        ("INVAL", False, "excluded"),
        ("IDLE+PLANNED", True, "IDLE+PLANNED: counted as available"),
        ("MIXED-", True, "counted as available"),
        ("IDLE+CLOUD+POWERED_DOWN", True, "counted as available"),
        ("IDLE+CLOUD+NOT_RESPONDING+POWERING_UP", True, "counted as available"),
        ("DOWN+CLOUD+POWERED_DOWN", False, "excluded"),
        ("IDLE+MAINTENANCE_SOON", True, "counted as available"),
    ],
)
def test_a_node_is_available_by_the_words_of_its_state(
    tmp_path: Path, state: str, there: bool, said: str
) -> None:
    made = imported(tmp_path, nodes_txt=node("n1", state) + node("n2"))
    assert counts(made) == 1 + there
    assert ("1 node (n1) in state" in told(made)) == bool(said)
    assert said in told(made)


def test_signs_after_a_state_are_words_of_their_own() -> None:
    assert node_flags("mix$+drain*") == {"MIXED", "MAINT", "DRAIN", "NOT_RESPONDING"}
    assert node_flags("idle~") == {"IDLE", "POWERED_DOWN"}
    assert node_flags("") == set()


def test_states_of_slurm_conf_count_with_its_down_nodes(tmp_path: Path) -> None:
    conf = (
        f"{HEAD}NodeName=DEFAULT CPUs=8 State=UNKNOWN\nNodeName=n[1-9]\nNodeName=f[1-2] State=FUTURE\n"
        "NodeName=c[1-3] State=CLOUD\nnodename=x\nDownNodes=n[8-9] State=DRAIN\ndownnodes=n7 Reason=disk\n"
        "PartitionName=p Nodes=n[1-9],f[1-2],c[1-3]\n"
    )
    made = imported(tmp_path, slurm_conf=conf)
    assert counts(made) == 6 + 3
    for note in (
        "1 node (n7) in state DOWN: excluded", "2 nodes (n8, n9) in state DRAIN: excluded",
        "2 nodes (f1, f2) in state FUTURE: excluded", "3 nodes (c1, c2, c3) in state CLOUD: counted",
        "1 node (x) in no partition: excluded",
    ):  # fmt: skip
        assert note in told(made)


def test_a_site_whose_nodes_are_all_down_is_rejected_with_their_names(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"2 nodes \(n1, n2\) in state DOWN: excluded"):
        imported(tmp_path, nodes_txt=node("n1", "DOWN") + node("n2", "DOWN"))


def test_many_nodes_in_one_state_are_counted_and_the_first_are_reported_by_name(
    tmp_path: Path,
) -> None:
    made = imported(
        tmp_path, nodes_txt="".join(node(f"n{i}", "DOWN" if i else "IDLE") for i in range(31))
    )
    assert "30 nodes (n1, n2, n3, n4, n5, n6, n7, n8, n9, n10 and 20 more) in state DOWN" in told(
        made
    )


def test_partitions_that_only_nodes_name_are_the_clusters(tmp_path: Path) -> None:
    made = imported(tmp_path, nodes_txt=node("n1", partitions="p,q") + node("n2", partitions="q"))
    of = {
        p.name: sum(g.count for g in made.site.nodes if g.name in p.groups)
        for p in made.site.cluster.partitions
    }
    assert of == {"p": 1, "q": 2}
    assert "partitions p, q: limits, priorities and the default partition are unknown" in told(made)


def test_nodes_in_no_partition_are_excluded_if_any_partition_is_known(tmp_path: Path) -> None:
    text = node("n1") + node("n2", partitions="") + node("n3")
    made = imported(tmp_path / "a", nodes_txt=text)
    assert (counts(made), "1 node (n2) in no partition" in told(made)) == (2, True)
    bare = imported(tmp_path / "b", nodes_txt=node("n1", partitions="") + node("n2", partitions=""))
    assert counts(bare) == 2


def test_cores_of_the_system_are_those_of_the_listed_cpus(tmp_path: Path) -> None:
    conf = (
        f"{HEAD}NodeName=n1 CPUs=16 ThreadsPerCore=2 CpuSpecList=0-2\nPartitionName=p Nodes=ALL\n"
    )
    assert imported(tmp_path, slurm_conf=conf).site.nodes[0].cores == 12


# --- includes --------------------------------------------------------------------------------------

NODES, PARTITION = "NodeName=n[1-10] CPUs=16\n", "PartitionName=p Nodes=ALL\n"


@pytest.mark.parametrize(
    ("lines", "files"),
    [
        ("Include /etc/slurm/nodes.d/rack1.conf\n", {"nodes.d/rack1.conf": NODES}),
        ("include /opt/site/conf.d/x.conf\n", {"x.conf": NODES}),
        ("Include /opt/site/conf.d/x.conf\n", {"../../opt/site/conf.d/x.conf": NODES, "gone/x.conf": "?"}),
        ("INCLUDE /etc/slurm/nodes.d/*.conf\n", {"nodes.d/a.conf": NODES, "nodes.d/b.conf": "NodeName=m1\n"}),
        ("Include nodes_*.conf\n", {"nodes_a.conf": NODES, "gres.conf": "Name=gpu\n"}),
        ('Include "/etc/%c/nodes.conf"\n', {"c/nodes.conf": NODES, "d/nodes.conf": "NodeName=x CPUs=1\n"}),
        ("Include ../common/nodes.conf\n", {"../common/nodes.conf": NODES}),
        ("Include common.conf\n", {"common.conf": "Include more.conf\n", "more.conf": NODES}),
    ],
)  # fmt: skip
def test_included_files_are_found_in_a_copied_tree(
    tmp_path: Path, lines: str, files: dict[str, str]
) -> None:
    here = tmp_path / "etc" / "slurm"
    for name, text in files.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text)
    (here / "slurm.conf").write_text(HEAD + lines + PARTITION)
    made = import_site("slurm", tmp_path)
    assert counts(made) == 10 + sum("m1" in text for text in files.values())
    assert not any("is missing" in note for note in made.site.notes)


def test_a_gres_conf_that_another_includes_counts_once(tmp_path: Path) -> None:
    made = imported(
        tmp_path,
        slurm_conf=f"{HEAD}NodeName=n[1-2] CPUs=4 Gres=gpu:2\n{PARTITION}",
        gres_conf="AutoDetect=off\ninclude gres.d/x.conf\n",
        **{
            "gres.d__x_conf": "NodeName=n1 Name=gpu Type=2080ti File=/dev/nvidia[0-1]\n"
            "NodeName=n2 Name=gpu Type=3090 File=/dev/nvidia[0-1]\n"
        },
    )
    assert sizes(made) == [(1, 2, {"gpu/2080ti": 2}), (1, 2, {"gpu/3090": 2})]


def test_an_included_file_outside_the_folder_is_not_read(tmp_path: Path) -> None:
    outside = written(tmp_path / "else", nodes_conf=NODES) / "nodes.conf"
    conf = f"{HEAD}Include {outside}\nNodeName=m1\n{PARTITION}"
    made = imported(tmp_path / "site", slurm_conf=conf)
    assert counts(made) == 1
    assert f"slurm.conf:3: the included file {outside} is missing; copy it into site/" in told(made)


def test_a_file_that_stands_for_an_included_one_of_another_folder_is_reported_by_name(
    tmp_path: Path,
) -> None:
    conf = f"{HEAD}Include /etc/site-b/nodes.conf\n{PARTITION}"
    made = imported(tmp_path, slurm_conf=conf, **{"site-a__nodes_conf": NODES})
    assert "site-a/nodes.conf is used as the included file /etc/site-b/nodes.conf" in told(made)


def test_a_file_that_includes_itself_is_read_once(tmp_path: Path) -> None:
    made = imported(tmp_path, slurm_conf=f"{HEAD}Include slurm.conf\n{NODES}{PARTITION}")
    assert counts(made) == 10
    assert "slurm.conf:3: the included file slurm.conf is missing" in told(made)


def test_one_of_several_slurm_conf_is_read_and_the_others_are_reported_by_name(
    tmp_path: Path,
) -> None:
    other = "ClusterName=other\nNodeName=z[1-99]\n" + PARTITION
    made = imported(tmp_path, slurm_conf=HEAD + NODES + PARTITION, **{"old__slurm_conf": other})
    assert counts(made) == 10
    assert (
        "old/slurm.conf is ignored: another slurm.conf (ClusterName other); slurm.conf is used"
        in told(made)
    )


def test_an_import_without_nodes_is_written_and_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "site", slurm_conf=f"{HEAD}Include /etc/slurm/gone.conf\n{PARTITION}")
    with pytest.raises(SystemExit) as ended:
        main(["import", "slurm", "--from", str(tmp_path / "site"), "--out", str(tmp_path / "out")])
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert "slurm.conf:3: the included file /etc/slurm/gone.conf is missing" in said.out
    assert "no file describes the nodes" in said.err


# --- messages --------------------------------------------------------------------------------------


def test_messages_on_switches_name_nodes(tmp_path: Path) -> None:
    conf = f"{HEAD}NodeName=cn[01-04] CPUs=4\n{PARTITION}"
    made = imported(tmp_path, slurm_conf=conf, topology_conf="SwitchName=s1 Nodes=cn[01-03]\n")
    (why,) = [s.why for s in made.site.settings if s.name == "topology.conf"]
    assert (
        why == "not a tree of all nodes: node cn04 is at no switch; assign each node to one switch"
    )


def test_switches_of_nodes_that_are_down_do_not_end_the_tree(tmp_path: Path) -> None:
    conf = f"{HEAD}NodeName=n[1-4] CPUs=4\nNodeName=d[1-2] State=DOWN\n{PARTITION}"
    lines = "SwitchName=a Nodes=n[1-4]\nSwitchName=b Nodes=d[1-2]\nSwitchName=top Switches=a,b\n"
    made = imported(tmp_path, slurm_conf=conf, topology_conf=lines)
    assert [s.name for s in made.site.cluster.switches] == ["a", "top"]


def test_partitions_with_whole_nodes_are_imported_if_all_are_so(tmp_path: Path) -> None:
    conf = f"{HEAD}{NODES}PartitionName=p Nodes=ALL OverSubscribe=EXCLUSIVE\n"
    made = imported(tmp_path / "a", slurm_conf=conf)
    assert {s.name: s.became for s in made.site.settings}["p: OverSubscribe"] == IMPORTED
    made = imported(tmp_path / "b", slurm_conf=conf + "PartitionName=q Nodes=n1\n")
    assert {s.name: s.became for s in made.site.settings}["p: OverSubscribe"] == NOT_MODELED


def test_the_last_of_two_default_partitions_counts_and_both_are_named(tmp_path: Path) -> None:
    conf = f"{HEAD}{NODES}PartitionName=p Nodes=ALL Default=YES\nPartitionName=q Nodes=n1 Default=YES\n"
    made = imported(tmp_path, slurm_conf=conf)
    assert [p.name for p in made.site.cluster.partitions if p.default] == ["q"]
    assert "partitions p and q are both the default; the latter is used" in told(made)


def test_a_dump_without_a_needed_column_does_not_end_the_import_of_others(tmp_path: Path) -> None:
    made = imported(
        tmp_path,
        slurm_conf=HEAD + NODES + PARTITION,
        a_txt="JobID|State\n1|COMPLETED\n",
        b_txt=SACCT.format(tres="cpu=4", gres=""),
        c_txt="JobID|Submit|State\n1|2026-01-01T00:00:00|COMPLETED\n",
    )
    assert (len(made.jobs), made.files["a.txt"], made.files["b.txt"]) == (1, "", "sacct")
    assert "a.txt is ignored: Submit: the column is missing" in told(made)
    assert "c.txt is ignored: no column has the run time" in told(made)


def test_a_note_is_printed_once(tmp_path: Path) -> None:
    conf = f"{HEAD}{NODES}PartitionName=p Nodes=n[1-x]\nPartitionName=q Nodes=ALL\n"
    notes = imported(tmp_path, slurm_conf=conf).site.notes
    assert len(notes) == len(set(notes))
