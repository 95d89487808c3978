"""Whatever a site's Slurm is and whatever form its files have, the same cluster is imported the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hpctwin.rms.site import IMPORTED, NOT_MODELED
from hpctwin.rms.site_folder import Imported, import_site, pseudonyms
from hpctwin.rms.slurm.listing.parse import settings
from hpctwin.rms.slurm.site.recognition import LIVE
from tests.rms.record_slurm import TREE
from tests.rms.recorded import slurm
from tests.rms.slurm_roots import VERSIONS

NEW = [version for version in VERSIONS if version != "22.05"]
"""Those whose scontrol prints JSON."""
ASSOCIATIONS = " ".join(LIVE["associations.txt"])
TEXT = {
    "config.txt": "scontrol show config", "nodes.txt": "scontrol show node",
    "partitions.txt": "scontrol show partition", "topology.txt": "scontrol show topology",
    "reservations.txt": "scontrol show reservation", "associations.txt": ASSOCIATIONS,
    "qos.txt": "sacctmgr -P show qos",
}  # fmt: skip
ONE_LINE = TEXT | {
    "nodes.txt": "scontrol show node -o", "partitions.txt": "scontrol show partition -o",
    "reservations.txt": "scontrol show reservation -o",
}  # fmt: skip
JSON = {
    "config.txt": "scontrol show config", "topology.txt": "scontrol show topology",
    "nodes.json": "scontrol show nodes --json", "partitions.json": "scontrol show partition --json",
    "reservations.json": "scontrol show reservation --json",
    "associations.json": "sacctmgr --json show associations", "qos.json": "sacctmgr --json show qos",
}  # fmt: skip
SINFO = {name: JSON[name] for name in ("config.txt", "topology.txt")} | {
    "sinfo.json": "sinfo --json"
}
JOBS = {
    "squeue.json": "squeue --json",
    "jobs.json": "scontrol show job --json",
    "sinfo.json": "sinfo --json",
}

HEAD = """
ClusterName=emul
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=10000,sched_interval=1,bf_interval=1
"""
SHARING = "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\n"
NODE = "CPUs=8 RealMemory=8000 Sockets=2 CoresPerSocket=4 ThreadsPerCore=1"
CONF = {
    "tiers": f"""{HEAD}{SHARING}
TopologyPlugin=topology/tree
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightJobSize=100
PartitionName=debug Nodes=n[1-8] PriorityTier=9 OverSubscribe=EXCLUSIVE MaxTime=30 State=UP
PartitionName=twice Nodes=n[7-8] OverSubscribe=FORCE:2 MaxTime=2-0 State=UP
PartitionName=maybe Nodes=n[7-8] OverSubscribe=YES:3 MaxTime=UNLIMITED State=UP
NodeName=n[1-8] {NODE}
PartitionName=main Nodes=n[1-8] Default=YES MaxTime=INFINITE State=UP OverSubscribe=EXCLUSIVE
""",
    "shared": f"""{HEAD}{SHARING}
PriorityType=priority/basic
Licenses=matlab:2
GresTypes=gpu,fpga,tmp
PartitionName=mine Nodes=n[1-4] ExclusiveUser=YES State=UP
PartitionName=whole Nodes=n[3-4] OverSubscribe=EXCLUSIVE State=UP
NodeName=n[1-4] {NODE} Gres=gpu:a:2,gpu:b:2,fpga:x:2,tmp:800G
PartitionName=main Nodes=n[1-4] Default=YES MaxTime=INFINITE State=UP
""",
}  # fmt: skip
"""The sites `tiers` and `shared` of record_slurm.py, in the words of Slurm before 26.05."""
NEW_WORDS = {
    "OverSubscribe=EXCLUSIVE": "Exclusive=NODE",
    "ExclusiveUser=YES": "Exclusive=user",
}


def imported(folder: Path, files: dict[str, bytes]) -> Imported:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return import_site("slurm", folder)


def of(folder: Path, version: str, site: str, form: dict[str, str], **more: str) -> Imported:
    """Import a recorded site in a form; commands that a version lacks are left out."""
    said = slurm(version, site)
    files = {name: said[command] for name, command in form.items() if command in said}
    return imported(folder, files | {name: text.encode() for name, text in more.items()})


def outcome(made: Imported, *, but: tuple[str, ...] = ()) -> tuple[dict[str, Any], str]:
    """The cluster and the policy; without fields that a form cannot say."""
    plain = made.site.cluster.model_dump(exclude_defaults=True)
    if "default" in but:
        for one in plain["partitions"]:
            one.pop("default", None)
    return plain, made.site.policy


def becomes(made: Imported, name: str) -> dict[str, tuple[str, str, str]]:
    return {s.name: (s.value, s.became, s.why) for s in made.site.settings if name in s.name}


@pytest.mark.parametrize("site", ["tiers", "shared", "whole", "preempting", "power", "accounts"])
@pytest.mark.parametrize("version", NEW)
def test_text_json_and_all_outputs_give_the_same_cluster_and_policy(
    tmp_path: Path, version: str, site: str
) -> None:
    text = of(tmp_path / "text", version, site, TEXT)
    assert outcome(of(tmp_path / "line", version, site, ONE_LINE)) == outcome(text)
    assert outcome(of(tmp_path / "all", version, site, TEXT | JSON | JOBS)) == outcome(text)
    as_json = of(tmp_path / "json", version, site, JSON)
    lacks = [
        note
        for note in as_json.site.notes
        if "JSON of this Slurm lacks the default partition" in note
    ]
    # Slurm 24.11 shows no flags of partitions, nor how their jobs are preempted.
    assert len(lacks) == (version == "24.11")
    if version == "24.11" and site == "preempting":
        return
    but = ("default",) if lacks else ()
    assert outcome(as_json, but=but) == outcome(text, but=but)


@pytest.mark.parametrize("site", ["tiers", "shared", "preempting", "accounts"])
def test_each_version_gives_the_same_cluster(tmp_path: Path, site: str) -> None:
    made = [outcome(of(tmp_path / version, version, site, TEXT)) for version in VERSIONS]
    assert made[0][0]["partitions"]
    # Slurm 25.05 began to round reservations up.
    assert [policy.replace(",bf_round_up=no", "") for _, policy in made] == [made[2][1]] * 3
    assert [cluster for cluster, _ in made] == [made[0][0]] * 3


@pytest.mark.parametrize("words", ["old", "new"])
@pytest.mark.parametrize("site", ["tiers", "shared"])
@pytest.mark.parametrize("version", VERSIONS)
def test_slurm_conf_gives_the_cluster_that_scontrol_prints(
    tmp_path: Path, version: str, site: str, words: str
) -> None:
    conf = CONF[site]
    for old, new in NEW_WORDS.items() if words == "new" else ():
        conf = conf.replace(old, new)
    files = {"slurm.conf": conf.encode()}
    if site == "tiers":
        files["topology.conf"] = TREE.encode()
    by_conf = imported(tmp_path / "conf", files)
    printed = of(tmp_path / "text", version, site, TEXT)
    cluster, policy = outcome(printed)
    assert outcome(by_conf) == (cluster, policy.replace(",bf_round_up=no", ""))
    assert becomes(by_conf, "SLURM_VERSION")["SLURM_VERSION"][0] == "missing"
    assert becomes(printed, "SLURM_VERSION")["SLURM_VERSION"][0].startswith(version)
    # A file that says the version, and nothing else that slurm.conf does not.
    config = slurm(version, site)["scontrol show config"]
    with_config = imported(tmp_path / "both", files | {"config.txt": config})
    assert outcome(with_config) == (cluster, policy)


@pytest.mark.parametrize("version", NEW)
@pytest.mark.parametrize("site", ["tiers", "shared"])
def test_sinfo_gives_the_cluster_that_scontrol_prints(
    tmp_path: Path, version: str, site: str
) -> None:
    made = of(tmp_path / "sinfo", version, site, SINFO)
    but = ("default",) if version == "24.11" else ()
    assert outcome(made, but=but) == outcome(of(tmp_path / "text", version, site, TEXT), but=but)
    assert [note for note in made.site.notes if note.startswith("only sinfo describes nodes")]


@pytest.mark.parametrize("site", ["tiers", "shared"])
@pytest.mark.parametrize("version", VERSIONS)
def test_values_missing_in_json_are_taken_from_slurm_conf(
    tmp_path: Path, version: str, site: str
) -> None:
    form = JSON if version != "22.05" else JSON | {"nodes.json": "sinfo --json"}
    text = of(tmp_path / "text", version, site, TEXT)
    made = of(tmp_path / "json", version, site, form, **{"slurm.conf": CONF[site]})
    assert outcome(made) == outcome(text)
    assert not [note for note in made.site.notes if "does not say" in note]


def test_json_of_22_05_names_what_it_lacks(tmp_path: Path) -> None:
    made = of(tmp_path / "json", "22.05", "shared", {"nodes.json": "sinfo --json"})
    text = of(tmp_path / "text", "22.05", "shared", TEXT)
    assert made.site.cluster.nodes == text.site.cluster.nodes
    notes = "\n".join(made.site.notes)
    assert (
        "partitions main, mine, whole: limits, priorities and the default partition are unknown"
        in notes
    )
    assert "lacks the cores and memory reserved for the system" in notes


@pytest.mark.parametrize("version", NEW)
def test_reservations_have_readable_times_and_the_same_end_in_each_form(
    tmp_path: Path, version: str
) -> None:
    forms = {name: of(tmp_path / name, version, "whole", form) for name, form in
             (("text", TEXT), ("json", JSON), ("all", TEXT | JSON))}  # fmt: skip
    told = {name: {key: one[:2] for key, one in becomes(made, "reservation").items()}
            for name, made in forms.items()}  # fmt: skip
    assert told["text"]["reservation maint"][0].startswith("2027-01-16T07:59:4")
    assert told["json"] == told["all"] == told["text"]


def partition(**about: Any) -> bytes:
    """What scontrol prints of a partition with ``--json``, and of a node that is in it."""
    node = {"name": "n1", "cpus": 8, "real_memory": 8000, "state": ["IDLE"], "partitions": ["p"]}
    one = {"name": "p", "nodes": {"configured": "n1"}, **about}
    return json.dumps({"nodes": [node], "partitions": [one]}).encode()


@pytest.mark.parametrize(
    ("about", "whole"),
    [
        ({"partition": {"exclusive": "NODE", "oversubscribe": "NO"}}, True),
        ({"partition": {"exclusive": "NO", "oversubscribe": "NO"}, "maximums": {"shares": 0}}, False),
        ({"partition": {"exclusive": "USER", "oversubscribe": "NO"}}, False),
        ({"maximums": {"oversubscribe": {"jobs": 0, "flags": []}}}, True),
        ({"maximums": {"oversubscribe": {"jobs": 1, "flags": []}}}, False),
        ({"maximums": {"oversubscribe": {"jobs": 4, "flags": ["force"]}}}, False),
        ({"maximums": {"shares": 0}}, True),
        ({"maximums": {"shares": 0x8000 | 2}}, False),
        ({}, False),
    ],
)  # fmt: skip
def test_a_partition_gives_whole_nodes_if_its_json_says_so(
    tmp_path: Path, about: dict[str, Any], whole: bool
) -> None:
    made = imported(tmp_path / "site", {"all.json": partition(**about)})
    assert made.site.policy.endswith("@contiguous") == whole


def test_partitions_have_whole_nodes_by_their_defaults_line(tmp_path: Path) -> None:
    partitions = "PartitionName=DEFAULT Exclusive=NODE\nPartitionName=p Nodes=ALL\n"
    lines = f"{HEAD}{SHARING}NodeName=n[1-4] {NODE}\n{partitions}"
    made = imported(tmp_path / "site", {"slurm.conf": lines.encode()})
    assert made.site.policy.endswith("@contiguous")
    assert becomes(made, "Exclusive") == {
        "p: Exclusive": ("NODE", IMPORTED, "jobs have exclusive nodes")
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_values_that_ask_for_nothing_are_not_reported(tmp_path: Path, version: str) -> None:
    made = of(tmp_path / "text", version, "power", TEXT)
    named = [s.name for s in made.site.settings if s.became == NOT_MODELED]
    assert not [name for name in named if name.startswith("main: ")]
    assert "PreemptType" not in named


def test_numbered_keys_of_the_configuration_are_one(tmp_path: Path) -> None:
    config = slurm("26.05", "tiers")["scontrol show config"]
    config += b"Prolog[0]  = /a/prolog\nProlog[1]  = /b/prolog\nEpilogSlurmctld[0] = /a/epilog\n"
    assert settings(config)["Prolog"] == "/a/prolog,/b/prolog"
    files = {name: slurm("26.05", "tiers")[TEXT[name]] for name in ("nodes.txt", "partitions.txt")}
    made = imported(tmp_path / "site", files | {"config.txt": config})
    assert becomes(made, "Prolog")["Prolog"][:2] == ("/a/prolog,/b/prolog", NOT_MODELED)
    assert becomes(made, "EpilogSlurmctld")["EpilogSlurmctld"][:2] == ("/a/epilog", NOT_MODELED)


BLOCKS = "BlockName=b1 Nodes=n[1-4]\nBlockName=b2 Nodes=n[5-8]\nBlockSizes=4,8\n"
BLOCKS_SHOWN = """\
BlockName=b1 BlockIndex=0 Nodes=n[1-4] BlockSize=4
BlockName=b2 BlockIndex=1 Nodes=n[5-8] BlockSize=4
AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[1-8] BlockSize=8
"""
TREE_YAML = """
- topology: fabric
  cluster_default: true
  tree:
    switches:
      - {switch: root, children: 's[1-2]'}
      - {switch: s1, nodes: 'n[1-4]'}
      - {switch: s2, nodes: 'n[5-8]'}
"""
BLOCKS_YAML = """
- topology: pods
  block:
    block_sizes: [4, 8]
    blocks:
      - block: b1
        nodes: n[1-4]
      - block: b2
        nodes: n[5-8]
"""
SHOWN_CONF = """%YAML 1.1
---
- topology: pods
  cluster_default: true
  block:
    block_sizes:
    - 4
    - 8
    blocks:
    - block: b1
      nodes: n[1-4]
    - block: b2
      nodes: n[5-8]
  flat: {}
  ring: {}
  torus3d: {}
  tree: {}
...
"""


@pytest.mark.parametrize(
    ("conf", "others"),
    [
        (TREE, [("topology.yaml", TREE_YAML)]),
        (BLOCKS, [("topology.txt", BLOCKS_SHOWN), ("topology.yaml", BLOCKS_YAML),
                  ("topoconf.txt", SHOWN_CONF)]),
    ],
)  # fmt: skip
def test_switches_and_blocks_are_the_same_from_each_form(
    tmp_path: Path, conf: str, others: list[tuple[str, str]]
) -> None:
    site = CONF["tiers"].replace("topology/tree", f"topology/{'tree' if conf == TREE else 'block'}")
    files = {"slurm.conf": site.encode()}
    by_conf = imported(tmp_path / "conf", files | {"topology.conf": conf.encode()})
    assert len(by_conf.site.cluster.switches) == 3
    # A topology.yaml is in effect whatever slurm.conf says.
    files = {"slurm.conf": site.replace("TopologyPlugin", "#").encode()}
    for name, text in others:
        made = imported(tmp_path / name, files | {name: text.encode()})
        assert outcome(made) == outcome(by_conf), name
    files["again.txt"] = dict(others).get("topology.txt", "").encode()
    both = imported(
        tmp_path / "both",
        files | {n: t.encode() for n, t in others} | {"topology.conf": b"SwitchName=x Nodes=n1\n"},
    )
    assert outcome(both) == outcome(by_conf)
    assert "topology.conf" in becomes(both, "topology")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("topology.conf", "RingName=r Nodes=n[1-8]\n", "ring"),
        ("topology.txt", "RingName=r Nodes=n[1-8] RingSize=8\n", "ring"),
        ("topology.yaml", "- topology: a\n  ring: {rings: [{ring: r, nodes: 'n[1-8]'}]}\n", "ring"),
        ("topology.yaml", "- topology: a\n  torus3d: {toruses: [{name: t, nodes: 'n[1-8]'}]}\n", "tori"),
        ("topology.yaml", "- topology: a\n  dragonfly: {groups: 8}\n", "not known"),
        ("topology.yaml", "- topology: a\n  tree: {switches: none}\n", "not known"),
    ],
)  # fmt: skip
def test_topologies_that_the_model_lacks_are_reported_by_name(
    tmp_path: Path, name: str, text: str, why: str
) -> None:
    site = CONF["tiers"].replace("TopologyPlugin", "#")
    made = imported(tmp_path / "site", {"slurm.conf": site.encode(), name: text.encode()})
    assert made.site.cluster.switches == ()
    (found,) = [one for one in becomes(made, "opology").values() if why in one[2]]
    assert found[1] == NOT_MODELED


def test_switches_without_settings_do_not_end_that_limits_are_held(tmp_path: Path) -> None:
    form = {name: command for name, command in TEXT.items() if name != "config.txt"}
    without = of(tmp_path / "without", "24.11", "accounts", form)
    tree = "SwitchName=s Level=0 LinkSpeed=1 Nodes=n[1-4]\n"
    made = of(tmp_path / "with", "24.11", "accounts", form, **{"switches.txt": tree})
    assert made.site.cluster.limits == without.site.cluster.limits != ()
    assert made.site.policy == without.site.policy
    assert len(made.site.cluster.switches) == 1


def test_a_partition_with_a_topology_of_its_own_is_reported_by_name(tmp_path: Path) -> None:
    site = CONF["tiers"].replace("PartitionName=debug", "PartitionName=debug Topology=pods")
    site = site.replace("PartitionName=twice", "PartitionName=twice Topology=fabric")
    files = {"slurm.conf": site.encode(), "topology.yaml": (TREE_YAML + BLOCKS_YAML).encode()}
    made = imported(tmp_path / "site", files)
    assert [one for one in becomes(made, "Topology") if ":" in one] == ["debug: Topology"]
    assert becomes(made, "topology pods")["topology pods"][:2] == (
        "block",
        NOT_MODELED,
    )
    assert len(made.site.cluster.switches) == 3
    public = pseudonyms(made, b"0123456789abcdef")
    told = " ".join(f"{s.name} {s.value} {s.why}" for s in public.site.settings)
    assert not re.search(r"\b(?:pods|fabric|debug|twice)\b", told)


@pytest.mark.parametrize(
    "text",
    ["- topology: a\n  tree: [\n", "- topology: a\n  topology: b\n", "%YAML 1.1\n---\n- 1\n"],
)
def test_a_topology_that_cannot_be_read_does_not_end_an_import(tmp_path: Path, text: str) -> None:
    files = {"slurm.conf": CONF["shared"].encode(), "topology.yaml": text.encode()}
    made = imported(tmp_path / "site", files)
    assert made.files["topology.yaml"] == ""
    assert made.site.cluster.node_count == 4


ODD: dict[str, Any] = {
    "nodes": None, "cpus": "many", "partitions": 3, "features": {"a": 1}, "state": 5, "gres": ["gpu:2"],
    "maximums": [1], "partition": "UP", "flags": {"DEFAULT": True}, "priority": None, "preempt": 1,
    "limits": 4, "max": "no", "shares_raw": {"set": False}, "name": "odd", "account": "odd",
}  # fmt: skip


@pytest.mark.parametrize(
    "key", ["nodes", "partitions", "reservations", "sinfo", "associations", "qos"]
)
def test_json_of_other_shapes_does_not_end_an_import(tmp_path: Path, key: str) -> None:
    sound = {"name": "p", "nodes": {"configured": "n[1-4]"}} if key == "partitions" else {}
    group = {"nodes": {"nodes": ["n[1-4]"]}, "partition": {"name": "p"}, "cpus": {"total": 1e300}}
    broken = {"nodes": {"nodes": ["n[1-", 3]}, "partition": {"name": 4}}
    listed = [ODD, {}, 7, None, broken, group if key == "sinfo" else sound]
    files = {"slurm.conf": CONF["shared"].encode(), "odd.json": json.dumps({key: listed}).encode()}
    made = imported(tmp_path / "site", files)
    assert made.files["odd.json"]
    assert [note for note in made.site.notes if note.startswith("odd.json: ")]


def test_yaml_of_scontrol_is_read_as_its_json(tmp_path: Path) -> None:
    fields = "name: n1", "cpus: 8", "real_memory: 1024", "state:\n  - IDLE", "partitions:\n  - p"
    yaml = "%YAML 1.1\n---\nnodes:\n- " + "\n  ".join(fields) + "\n...\n"
    made = imported(tmp_path / "site", {"nodes.yaml": yaml.encode()})
    assert made.files == {"nodes.yaml": "nodes as YAML"}
    assert [(one.count, one.cores, one.memory_gb) for one in made.site.cluster.nodes] == [(1, 8, 1)]


@pytest.mark.parametrize("version", ["22.05.8", "23.11.1", "26.05.5"])
def test_settings_without_a_prioritytype_are_read_as_their_version_has_it(
    tmp_path: Path, version: str
) -> None:
    conf = CONF["tiers"].replace("PriorityType=", "#")
    nodes = f"NodeName=n[1-8] CPUTot=8 CPUAlloc=0 State=IDLE Version={version} Partitions=main\n"
    made = imported(tmp_path / "site", {"slurm.conf": conf.encode(), "nodes.txt": nodes.encode()})
    assert made.site.policy.startswith("multifactor:age=1000") == (version > "23")
