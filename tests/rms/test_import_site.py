"""A site's own files as a machine and a policy: real ones of Slurm 22.05 and OpenPBS 23.06, and made ones."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path

import pytest

from hpctwin import simulate
from hpctwin.errors import ConfigError
from hpctwin.formats.accounting.workload import workload_of
from hpctwin.model.text import parse_nodes
from hpctwin.policies import parse_policy
from hpctwin.rms.site import NOT_MODELED
from hpctwin.rms.site_folder import Imported, import_site, pseudonyms
from hpctwin.rms.slurm.listing.conf import read_conf
from hpctwin.rms.slurm.site.recognition import LIVE

RECORDED = Path(__file__).parent / "recorded"
SLURM = RECORDED / "slurm-site"
ACCOUNTING = RECORDED.parent.parent / "formats" / "recorded"


def site(tmp_path: Path, *files: Path, **texts: str) -> Path:
    """A folder with copies of files, and files of texts: a_conf becomes a.conf."""
    folder = tmp_path / "site"
    folder.mkdir()
    for file in files:
        shutil.copy(file, folder)
    for name, text in texts.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def slurm(tmp_path: Path, *lines: str) -> Imported:
    head = ("ClusterName=c", "NodeName=n[1-4] CPUs=8 RealMemory=16384", "PartitionName=p Nodes=ALL")
    return import_site("slurm", site(tmp_path, slurm_conf="\n".join([*head, *lines]) + "\n"))


def not_modelled(made: Imported) -> dict[str, str]:
    return {s.name: s.why for s in made.site.settings if s.became == NOT_MODELED}


def test_slurm_conf_and_what_scontrol_prints_describe_the_same_cluster(tmp_path):
    conf = [SLURM / f"{name}.conf" for name in ("slurm", "nodes", "gres")]
    by_conf = (
        import_site("slurm", site(tmp_path / "a", *conf))
        if (tmp_path / "a").mkdir() is None
        else None
    )
    printed = [SLURM / "nodes.txt", SLURM / "partitions.txt"]
    by_command = (
        import_site("slurm", site(tmp_path / "b", *printed))
        if (tmp_path / "b").mkdir() is None
        else None
    )
    assert by_conf is not None
    assert by_command is not None
    assert by_conf.site.cluster.nodes == by_command.site.cluster.nodes

    def limits(made: Imported) -> list[tuple]:
        return [
            (p.name, p.groups, p.max_walltime, p.max_nodes, p.default)
            for p in made.site.cluster.partitions
        ]

    assert limits(by_conf) == limits(by_command)


def test_a_real_slurm_s_files_give_its_cluster_and_its_policy():
    made = import_site("slurm", SLURM)
    cluster = made.site.cluster
    assert cluster.name == "demo"
    assert [(g.count, g.cores, g.gpus, g.memory_gb) for g in cluster.nodes] == [
        (2, 8, 0, 31.25), (4, 8, 0, 31.25), (1, 8, 4, 62.5), (1, 8, 4, 62.5),
    ]  # fmt: skip
    by_name = {p.name: p for p in cluster.partitions}
    assert by_name["batch"].default
    assert by_name["batch"].max_walltime == 2 * 86400
    assert by_name["debug"].max_nodes == 2
    assert cluster.qos == {"normal": 10, "high": 100}
    # Slurm's fair shares are a tree, since 19.05.
    assert cluster.fairshare.kind == "tree"
    assert cluster.fairshare.half_life == 14 * 86400
    accounts = {one.name: (one.parent, one.share, dict(one.users)) for one in cluster.accounts}
    assert accounts == {
        "root": ("root", 1, {"root": 1}),
        "chem": ("root", 10, {}),
        "organic": ("chem", 5, {"carol": 1, "dave": 1, "root": 1}),
        "phys": ("root", 30, {"alice": 1, "bob": 1}),
    }
    assert [limit.model_dump(exclude_unset=True) for limit in cluster.limits] == [
        {"qos": "high", "per": "user", "cores": 32, "jobs": 5}
    ]
    order, _, backfill = made.site.policy.rpartition("+")
    assert backfill.partition(":")[0] == "slurm"
    assert {"age=1000", "size=500", "fairshare=10000", "qos=3000", "max_age=864000"} <= set(
        order.partition(":")[2].split(",")
    )
    parse_policy(made.site.policy)


def test_a_job_of_a_higher_tier_goes_before_all_of_a_lower_one(tmp_path):
    made = import_site("slurm", SLURM)
    weights = dict(
        part.split("=") for part in made.site.policy.partition(":")[2].split("+")[0].split(",")
    )
    priority = {p.name: p.priority for p in made.site.cluster.partitions}
    # The weight is that of the largest priority, so a priority counts as it stands.
    assert float(weights["partition"]) == max(priority.values()) == priority["debug"]
    others = sum(float(weights[name]) for name in ("age", "size", "fairshare", "qos"))
    assert priority["debug"] - max(priority["batch"], priority["gpu"]) > others
    assert (priority["batch"], priority["gpu"]) == (
        1000,
        2000,
    )  # of 2000, by their factors 10 and 20


def test_settings_that_have_no_counterpart_are_named_with_the_reason(tmp_path):
    told = not_modelled(import_site("slurm", SLURM))
    assert "QOS high: MaxJobsPU" not in told
    assert "switches" in told["TopologyPlugin"]


def test_switches_of_topology_conf_are_the_clusters(tmp_path):
    cluster = import_site("slurm", SLURM).site.cluster
    named = {one.name: one.nodes or one.switches for one in cluster.switches}
    kinds = [group.name for group in cluster.nodes for _ in range(group.count)]
    of = {name: {kinds[n] for n in parse_nodes(named[name], len(kinds))} for name in ("s1", "s2")}
    assert all(one.startswith("cn") for one in of["s1"])
    assert all(one.startswith("gpu") for one in of["s2"])
    assert {n: len(parse_nodes(named[n], len(kinds))) for n in of} == {"s1": 6, "s2": 2}
    assert named["top"] == ("s1", "s2")


BLOCKS = "\n".join(f"BlockName=b{n} Nodes=n[{2 * n - 1}-{2 * n}]" for n in range(1, 6))


@pytest.mark.parametrize(
    ("topology", "switches", "why"),
    [
        (
            f"{BLOCKS}\nBlockSizes=2,4,8\n",
            {"b1": "0-1", "b5": "8-9", "b1..b2": ("b1", "b2"), "b5/4": ("b5",),
             "b1..b2..b3..b4": ("b1..b2", "b3..b4"), "b5/4/8": ("b5/4",)},
            "fewest-switches and whole-blocks; a job that fits in no block waits",
        ),
        (f"{BLOCKS}\n", {"b1": "0-1", "b5": "8-9"}, "whole-blocks"),
        (f"{BLOCKS}\nBlockSizes=2,6\n", {}, "not a tree of all nodes: BlockSizes=2,6: each size must be"),
        ("BlockName=b Nodes=n[1-3]\n", {}, "not a tree of all nodes: node n4 is at no switch"),
        ("SwitchName=s Nodes=n[1-20]\n", {"s": "0-9"}, "fewest-switches"),
        ("SwitchName=s Nodes=m[1-4]\n", {}, "not a tree of all nodes: s has no available node"),
        (
            "SwitchName=a Nodes=n[1-10]\nSwitchName=t Switches=a\nSwitchName=u Switches=a\n",
            {},
            "not a tree of all nodes: switch 'a' is below 't' and 'u'",
        ),
    ],
)  # fmt: skip
def test_blocks_are_switches_with_nodes_and_larger_ones_above_them(
    tmp_path, topology, switches, why
):
    conf = "ClusterName=c\nNodeName=n[1-10] CPUs=8\nPartitionName=p Nodes=ALL\n"
    made = import_site("slurm", site(tmp_path, slurm_conf=conf, topology_conf=topology))
    found = {one.name: one.nodes or one.switches for one in made.site.cluster.switches}
    assert {name: found[name] for name in switches} == switches
    assert bool(found) == bool(switches)
    told = [s.why for s in made.site.settings if s.name == "topology.conf"]
    assert len(told) == 1
    assert why in told[0]


@pytest.mark.parametrize(
    ("lines", "policy"),
    [
        (["SchedulerType=sched/builtin"], "fcfs+none"),
        (["SchedulerType=sched/backfill"], "fcfs+slurm"),
        (["SelectType=select/linear"], "fcfs+slurm@contiguous"),
        (["SelectType=select/linear", "SchedulerType=sched/builtin"], "fcfs+none"),
        (["SLURM_VERSION=22.05.8"], "fcfs+slurm:bf_round_up=no"),
        (["SLURM_VERSION=25.05.1", "PriorityType=priority/basic"], "fcfs+slurm"),
        (
            [
                "SchedulerParameters=bf_min_age_reserve=600,bf_window=2880,sched_min_interval=2000000"
            ],
            "fcfs+slurm:sched_min_interval=2s,bf_window=2d,bf_min_age_reserve=10m",
        ),
        (
            ["SchedulerParameters=defer,batch_sched_delay=10,bf_job_part_count_reserve=3"],
            "fcfs+slurm:sched_min_interval=10s,batch_sched_delay=10s,bf_job_part_count_reserve=3",
        ),
        (["SchedulerParameters=bf_interval=-1"], "fcfs+none"),
        (
            ["SchedulerParameters=sched_interval=-1,default_queue_depth=0,bf_max_job_user=0"],
            "fcfs+slurm:default_queue_depth=1",
        ),
        (["SchedulerParameters=bf_interval=0,bf_max_job_test=-5,bf_continue"], "fcfs+slurm"),
        (["SchedulerParameters=bf_licenses"], "fcfs+slurm:bf_licenses=yes"),
    ],
)
def test_backfilling_is_as_the_settings_say(tmp_path, lines, policy):
    assert parse_policy(slurm(tmp_path, *lines).site.policy).name == policy


def test_jobs_ask_for_the_licenses_that_they_held_and_others_are_counted(tmp_path):
    held = ("license/matlab=2,node=1", "license/fluent@flex=1,node=1", "license/old=3", "node=1")
    lines = [
        f"{job}|2026-10-01T10:00:00|2026-10-01T10:10:00|60|1|COMPLETED|cpu=8,{tres}"
        for job, tres in enumerate(held, 1)
    ]
    folder = site(
        tmp_path,
        slurm_conf="ClusterName=c\nLicenses=matlab:5,fluent@flex:3\nNodeName=n[1-4] CPUs=8\n"
        "PartitionName=p Nodes=ALL\n",
        sacct_txt="\n".join(["JobID|Submit|Start|ElapsedRaw|NNodes|State|AllocTRES", *lines])
        + "\n",
    )
    made = import_site("slurm", folder)
    assert made.site.cluster.resources == {"matlab": 5, "fluent": 3}
    assert made.jobs.sort("job_id").select("res_matlab", "res_fluent").rows() == [
        (2, 0), (0, 1), (0, 0), (0, 0),
    ]  # fmt: skip
    why = "job with license old, which the settings do not have: request ignored"
    assert made.tally.counts[why] == 1


@pytest.mark.parametrize(
    ("lines", "has", "left"),
    [
        (["PriorityWeightJobSize=10", "PriorityFlags=SMALL_RELATIVE_TO_TIME,CALCULATE_RUNNING"],
         ("size=10", "relative_to_time=True", "machine_cores=32"), {"PriorityFlags"}),
        (["PriorityWeightAge=10", "PriorityFlags=ACCRUE_ALWAYS"], ("accrue_always=True",), set()),
        (["PriorityWeightTRES=CPU=1000,Mem=640,GRES/fpga=5"], ("per_core=31.25", "per_gb=10"),
         {"PriorityWeightTRES: GRES/fpga"}),
    ],
)  # fmt: skip
def test_flags_and_weights_of_priority_are_imported_and_others_named(tmp_path, lines, has, left):
    made = slurm(tmp_path, "PriorityType=priority/multifactor", *lines)
    name = parse_policy(made.site.policy).name
    assert all(part in name.partition("+")[0] for part in has)
    told = {one for one in not_modelled(made) if one.startswith("Priority")}
    assert told == left


def test_unknown_settings_are_named_and_not_taken_as_irrelevant(tmp_path):
    conf = (
        "ClusterName=c\nSchedulerParameters=bf_interval=10,foo_bar=3,max_array_tasks=9\nSomething=new\n"
        "NodeName=n[1-4] CPUs=8\n"
        "PartitionName=p Nodes=ALL Shape=round TRESBillingWeights=CPU=2 DefaultTime=60\n"
    )
    made = import_site("slurm", site(tmp_path, slurm_conf=conf))
    named = not_modelled(made)
    assert named["SchedulerParameters: foo_bar"] == "unknown parameter"
    assert named["p: Shape"] == "unknown setting"
    assert "node-seconds" in named["p: TRESBillingWeights"]
    assert not {"SchedulerParameters: max_array_tasks", "p: DefaultTime"} & named.keys()
    assert [s.why for s in made.site.settings if s.name == "Something"] == [
        "not known to affect when or where jobs start"
    ]


def test_cores_and_memory_that_are_set_apart_of_a_node_are_not_jobs_to_have(tmp_path):
    conf = (
        "ClusterName=c\nNodeName=a CPUs=8 RealMemory=4096 CoreSpecCount=1 MemSpecLimit=1024\n"
        "NodeName=b Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 CoreSpecCount=2\nPartitionName=p Nodes=ALL\n"
    )
    groups = import_site("slurm", site(tmp_path, slurm_conf=conf)).site.cluster.nodes
    assert {(group.cores, group.memory_gb) for group in groups} == {(7.0, 3.0), (12.0, None)}


SPRIO = """\
          JOBID PARTITION   PRIORITY       SITE        AGE  FAIRSHARE    JOBSIZE  PARTITION        QOS                 TRES
        Weights                               1       1000        100    2000000        500        300        CPU=10,Mem=20
"""  # noqa: E501
"""Of `sprio -w` of a Slurm 22.05.8."""


def test_weights_of_sprio_count_where_no_setting_says_them(tmp_path):
    conf = "ClusterName=c\nNodeName=n[1-4] CPUs=5 RealMemory=10240\nPartitionName=p Nodes=ALL\n"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    told = site(tmp_path / "a", slurm_conf=conf, sprio_txt=SPRIO)
    made = import_site("slurm", told)
    assert made.files["sprio.txt"] == "sprio -w"
    assert made.site.policy.partition("+")[0] == (
        "multifactor:age=1000,size=2000000,fairshare=100,partition=500,qos=300,per_core=0.5,per_gb=0.5,"
        "machine_cores=20"
    )
    other = conf + "PriorityType=priority/multifactor\nPriorityWeightAge=7\n"
    made = import_site("slurm", site(tmp_path / "b", slurm_conf=other, sprio_txt=SPRIO))
    assert "age=7," in made.site.policy


QOS_TABLE = (
    "Name|Priority|Flags|GrpTRES|GrpTRESMins|GrpTRESRunMins|GrpJobs|GrpSubmit|GrpWall|MaxTRES|MaxTRESPerNode|"
    "MaxTRESMins|MaxWall|MaxTRESPU|MaxJobsPU|MaxSubmitPU|MaxTRESPA|MaxJobsPA|MaxSubmitPA|MinTRES|UsageFactor\n"
)


def test_limits_of_sacctmgr_become_limits(tmp_path):
    folder = site(
        tmp_path,
        slurm_conf="ClusterName=c\nAccountingStorageEnforce=associations,limits,qos\n"
        "NodeName=n[1-4] CPUs=8 RealMemory=16384\nPartitionName=p Nodes=ALL QOS=part\n",
        qos_txt=QOS_TABLE
        + "part|0|DenyOnLimit|node=3|||||||||2-00:00:00|||||||||1.000000\n"
        + "normal|0|NoReserve|cpu=64,gres/gpu=4,license/x=1|cpu=9|cpu=600|10|20||node=2|cpu=4|cpu=480|"
        "1-00:00:00|mem=100G|3|7|cpu=16|4|9|cpu=2|2.0\n",
        assoc_txt="Cluster|Account|User|Partition|Share|GrpTRES|MaxJobs|MaxWall|GrpSubmit|Par Name\n"
        "c|root|||||1|||\n"
        "c|physics|||3|cpu=24|4|12:00:00||root\n"
        "c|lattice|||parent||||50|physics\n"
        "c|lattice|ann||7|node=1|2|||\n"
        "c|lattice|ann|p|7|node=1||||\n",
    )
    made = import_site("slurm", folder)
    cluster = made.site.cluster
    said = [limit.model_dump(exclude_unset=True) for limit in cluster.limits]
    of_qos = {"qos": "normal"}
    assert said == [
        {"qos": "part", "nodes": 3, "deny": True},
        {"qos": "part", "per": "job", "walltime": 172800, "deny": True},
        {**of_qos, "cores": 64, "gpus": 4, "minutes": {"cores": 600}, "jobs": 10, "submitted": 20},
        {**of_qos, "used_minutes": {"cores": 9}},
        {**of_qos, "per": "job", "nodes": 2, "per_node": {"cores": 4}, "minutes": {"cores": 480},
         "walltime": 86400, "min_request": {"cores": 2}},
        {**of_qos, "per": "user", "memory_gb": 100, "jobs": 3, "submitted": 7},
        {**of_qos, "per": "account", "cores": 16, "jobs": 4, "submitted": 9},
        {"account": "root", "per": "user", "jobs": 1},
        {"account": "physics", "cores": 24},
        {"account": "physics", "per": "user", "jobs": 4},
        {"account": "physics", "per": "job", "walltime": 43200},
        {"account": "lattice", "submitted": 50},
        {"account": "lattice", "user": "ann", "nodes": 1, "jobs": 2},
    ]  # fmt: skip
    assert cluster.partitions[0].qos == "part"
    assert [(a.name, a.parent, a.share, a.users) for a in cluster.accounts] == [
        ("physics", "root", 3, {}),
        ("lattice", "physics", "parent", {"ann": 7}),
    ]
    told = not_modelled(made)
    assert "only cpu" in told["QOS normal: GrpTRES"]
    assert "no counterpart" in told["QOS normal: Flags"]
    assert cluster.fairshare.factors == {"normal": 2}
    assert "partition" in told["Association user ann of account lattice"]
    hidden = pseudonyms(made, b"s" * 16)
    assert not {"physics", "lattice", "ann", "part", "normal"} & set(
        re.findall(r"[a-z]+", str(hidden.site.cluster.model_dump(exclude_defaults=True)["limits"]))
    )


def test_usage_factors_of_qos_become_factors_of_use(tmp_path):
    conf = "ClusterName=c\nAccountingStorageEnforce=safe\nNodeName=n[1-4] CPUs=8\n"
    qos = (
        "Name|Flags|UsageFactor|UsageThres\nplain||1.000000|\nhalf||0.500000|\nfree|NoDecay|0.000000|\n"
        "dear|UsageFactorSafe,NoReserve|2.500000|\nonce|UsageFactorSafe|1.000000|\nodd||2x|\n"
    )
    for name in "ab":
        (tmp_path / name).mkdir()
    made = import_site("slurm", site(tmp_path / "a", slurm_conf=conf, qos_txt=qos))
    share = made.site.cluster.fairshare
    assert share.factors == {"half": 0.5, "free": 0, "dear": 2.5}
    assert share.safe_factors == ("dear",)
    told = {(one.name, one.value): (one.became, one.why) for one in made.site.settings}
    assert told["QOS half: UsageFactor", "0.500000"] == ("imported", "fairshare.factors")
    assert told["QOS dear: Flags", "UsageFactorSafe"] == ("imported", "fairshare.safe_factors")
    assert told["QOS once: Flags", "UsageFactorSafe"] == ("no effect", "usage counts once")
    assert told["QOS odd: UsageFactor", "2x"][0] == "not modeled"
    hidden = pseudonyms(made, b"s" * 16).site.cluster.fairshare
    assert sorted(hidden.factors.values()) == [0, 0.5, 2.5]
    assert not {"half", "free", "dear"} & {*hidden.factors, *hidden.safe_factors}
    basic = conf + "PriorityType=priority/basic\n"
    made = import_site("slurm", site(tmp_path / "b", slurm_conf=basic, qos_txt=qos))
    assert made.site.cluster.fairshare.factors == {}
    became = {one.name: one.became for one in made.site.settings}
    assert became["QOS half: UsageFactor"] == "no effect"


def test_totals_that_may_be_used_become_limits_as_slurm_counts_them(tmp_path):
    conf = (
        "ClusterName=c\nPriorityType=priority/multifactor\nPriorityDecayHalfLife={half}\n"
        "AccountingStorageEnforce={words}\nNodeName=n[1-4] CPUs=8\nPartitionName=p Nodes=ALL\n"
    )
    qos = (
        "Name|Flags|GrpTRESMins|GrpWall|GrpJobs\nbank|NoDecay|cpu=6000,gres/gpu=60|1-00:00:00|3\n"
        "free||node=10|0|\n"
    )
    assoc = "Cluster|Account|User|GrpTRESMins|Par Name\nc|root||cpu=900000|\nc|root|ann|cpu=5,license/x=1|\n"

    def read(name, half="7-0", words="limits,qos", conf=conf):
        (tmp_path / name).mkdir()
        text = conf.format(half=half, words=words)
        made = import_site(
            "slurm", site(tmp_path / name, slurm_conf=text, qos_txt=qos, assoc_txt=assoc)
        )
        return made, [limit.model_dump(exclude_unset=True) for limit in made.site.cluster.limits]

    made, said = read("limits")
    assert said == [
        {"qos": "bank", "used_minutes": {"cores": 6000, "gpus": 60, "wall": 1440}, "decays": False},
        {"qos": "bank", "jobs": 3},
        {"qos": "free", "used_minutes": {"nodes": 10, "wall": 0}},
        {"account": "root", "used_minutes": {"cores": 900000}},
        {"account": "root", "user": "ann", "used_minutes": {"cores": 5}},
    ]
    told = {one.name: one for one in made.site.settings}
    assert told["QOS bank: Flags"].became == "imported"
    assert "when it is reached, but Slurm ends them" in told["QOS bank: GrpTRESMins"].why
    assert "before the first job" in told["QOS bank: GrpWall"].why
    assert "license/x=1" in {one.value for one in made.site.settings if one.became == "not modeled"}
    made, said = read("safe", words="safe")
    assert all(limit.get("safe", "jobs" in limit) for limit in said)
    assert not any("running jobs continue" in one.why for one in made.site.settings)
    _, said = read("never", half="0")
    assert [limit.get("decays") for limit in said if "used_minutes" in limit] == [False] * 4
    made, said = read("basic", conf=conf.replace("multifactor", "basic"))
    assert said == [{"qos": "bank", "jobs": 3}]
    assert (
        "counts no usage" in {one.name: one for one in made.site.settings}["QOS free: GrpWall"].why
    )


def test_a_dump_agrees_and_limits_in_both_sources_count_once(tmp_path):
    dump = (
        "Cluster - 'c':Fairshare=1:QOS='normal':MaxJobs=9\nParent - 'root'\n"
        "Account - 'physics':Description='p':Fairshare=3:GrpTRES=cpu=24:MaxWallDurationPerJob=720\n"
        "Parent - 'physics'\nUser - 'ann':Fairshare=parent:MaxSubmitJobs=5\n"
    )
    table = "Account|User|Share|GrpTRES|MaxWall\nphysics||3|cpu=24|12:00:00\n"
    folder = site(
        tmp_path,
        slurm_conf="ClusterName=c\nAccountingStorageEnforce=safe\nNodeName=n[1-4] CPUs=8\n"
        "PartitionName=p Nodes=ALL\n",
        dump_txt=dump,
        assoc_txt=table,
    )
    cluster = import_site("slurm", folder).site.cluster
    assert [limit.model_dump(exclude_unset=True) for limit in cluster.limits] == [
        {"account": "physics", "cores": 24},
        {"account": "physics", "per": "job", "walltime": 43200},
        {"account": "root", "per": "user", "jobs": 9},
        {"account": "physics", "user": "ann", "submitted": 5},
    ]
    assert cluster.accounts[0].users == {"ann": "parent"}


def test_limits_that_slurm_does_not_hold_are_not_taken(tmp_path):
    folder = site(
        tmp_path,
        slurm_conf="ClusterName=c\nAccountingStorageEnforce=associations\nNodeName=n[1-4] CPUs=8\n"
        "PartitionName=p Nodes=ALL QOS=high\n",
        qos_txt="Name|Priority|MaxJobsPU|Flags\nhigh|1|5|DenyOnLimit\n",
    )
    made = import_site("slurm", folder)
    assert made.site.cluster.limits == ()
    assert made.site.cluster.partitions[0].qos is None
    why = {s.name: s.why for s in made.site.settings}
    assert "does not contain limits" in why["QOS high: MaxJobsPU"]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("", "tree"),
        ("PriorityFlags=NO_FAIR_TREE", "classic"),
        ("PriorityFlags=MAX_TRES,FAIR_TREE", "tree"),
        ("SLURM_VERSION=18.08.9", "classic"),
    ],
)
def test_fair_shares_are_a_tree_unless_the_site_says_otherwise(tmp_path, line, kind):
    folder = site(
        tmp_path,
        slurm_conf="ClusterName=c\nPriorityType=priority/multifactor\nPriorityCalcPeriod=2\n"
        f"NodeName=n[1-4] CPUs=8\nPartitionName=p Nodes=ALL\n{line}\n",
        assoc_txt="Account|User|Share|Par Name\nchem||1|root\nphys||3|root\norganic||5|chem\n",
    )
    made = import_site("slurm", folder)
    share = made.site.cluster.fairshare
    assert share.kind == kind
    if kind == "tree":
        assert share.every == 120
    else:
        # chem has a quarter of the machine, and organic all of what chem has.
        assert share.shares == {"chem": 0.25, "organic": 0.25, "phys": 0.75}
    assert ("PriorityFlags" in not_modelled(made)) == ("MAX_TRES" in line)


@pytest.mark.parametrize(
    ("told", "days"), [("7-0", 7), ("14-00:00:00", 14), ("0", 36500), ("00:00:00", 36500)]
)
def test_use_halves_as_the_site_says_or_never(tmp_path, told, days):
    made = slurm(tmp_path, "PriorityType=priority/multifactor", f"PriorityDecayHalfLife={told}")
    assert made.site.cluster.fairshare.half_life == days * 86400


@pytest.mark.parametrize(
    "text",
    [
        "Name|Priority|MaxJobsPU\nhigh|1|many\n",
        "Name|Priority|GrpTRES\nhigh|1|cpu=,=3,cpu\n",
        "Name|Priority|MaxWall\nhigh|1|soon\n",
        "Name|Priority|MaxTRESPU\nhigh|1|cpu=10K\n",
    ],
)
def test_a_limit_that_is_no_number_is_reported_by_name(tmp_path, text):
    folder = site(tmp_path, slurm_conf="ClusterName=c\nNodeName=n[1-4] CPUs=8\nPartitionName=p Nodes=ALL\n"
                  "AccountingStorageEnforce=limits\n", qos_txt=text)  # fmt: skip
    made = import_site("slurm", folder)
    assert made.site.cluster.limits == ()
    assert any(name.startswith("QOS high: ") for name in not_modelled(made))


def test_what_the_slurm_backfill_does_not_have_is_reported_by_name(tmp_path):
    line = "SchedulerParameters=bf_max_job_assoc=5,bf_interval=often,sched_interval=-1,bf_continue"
    told = not_modelled(slurm(tmp_path, f"{line},bf_window=60"))
    assert (
        told["SchedulerParameters: bf_max_job_assoc"]
        == "backfill slurm does not support this parameter"
    )
    assert "switched off in Slurm" in told["SchedulerParameters: sched_interval"]
    assert "Slurm's default is used" in told["SchedulerParameters: bf_interval"]
    assert not {"SchedulerParameters: bf_continue", "SchedulerParameters: bf_window"} & set(told)


def test_lines_continue_comments_end_and_files_are_included(tmp_path):
    folder = site(
        tmp_path,
        slurm_conf="ClusterName=c # ours\nInclude /etc/slurm/more_%c.conf\ninclude gone.conf\n"
        "SchedulerParameters=a=1,\\\nb=2\n?\n",
        more_c_conf="",
    )
    (folder / "more_c.conf").write_text(
        "NodeName=DEFAULT CPUs=4\nNodeName=x[1-2,09-10]\nPartitionName=p Nodes=ALL\n"
    )
    conf = read_conf(folder / "slurm.conf")
    assert conf.rows[-1].get("schedulerparameters") == "a=1,b=2"
    assert conf.rows[-1].where == "slurm.conf:4"
    assert any("gone.conf" in note for note in conf.notes)
    assert any("slurm.conf:6" in note for note in conf.notes)
    cluster = import_site("slurm", folder).site.cluster
    assert [(g.name, g.count, g.cores) for g in cluster.nodes] == [("x", 4, 4)]


def test_accounting_alone_gives_a_cluster_as_large_as_what_ran_at_once(tmp_path):
    made = import_site("slurm", site(tmp_path, ACCOUNTING / "sacct-22.05-selection.txt"))
    assert made.site.cluster.node_count == 8
    assert "no settings found" in made.site.notes[0]
    assert len(made.jobs) == 31


def test_settings_that_are_of_no_use_without_nodes_are_reported_by_name(tmp_path):
    folder = site(tmp_path, ACCOUNTING / "sacct-22.05-selection.txt")
    (folder / "qos.txt").write_text("Name|Priority|MaxJobsPU\nnormal|0|4\n")
    (folder / "gres.conf").write_text("Name=gpu File=/dev/nvidia0\n")
    notes = " ".join(import_site("slurm", folder).site.notes)
    assert "ignored, as no file describes the nodes: gres.conf (gres.conf)" in notes


def test_a_job_without_a_limit_has_its_partition_s(tmp_path):
    folder = site(
        tmp_path,
        slurm_conf="ClusterName=c\nNodeName=n[1-4] CPUs=8\nPartitionName=p Nodes=ALL MaxTime=2:00:00\n",
        sacct_txt="JobID|Submit|Start|ElapsedRaw|Timelimit|NNodes|Partition|State\n"
        "1|2026-01-01T10:00:00|2026-01-01T10:00:00|60|Partition_Limit|1|p|COMPLETED\n"
        "2|2026-01-01T10:00:00|2026-01-01T10:00:00|60|UNLIMITED|1|q|COMPLETED\n",
    )
    made = import_site("slurm", folder)
    assert made.jobs["walltime_s"].to_list() == [7200, 365 * 86400]
    assert any("missing from the settings" in n and "q (1)" in n for n in made.site.notes)


@pytest.mark.parametrize(
    ("select", "asks"), [("linear", "cores_per_node"), ("cons_tres", "cores_per_task")]
)
def test_jobs_share_nodes_where_the_site_s_do(tmp_path, select, asks):
    folder = site(
        tmp_path,
        ACCOUNTING / "sacct-22.05-selection.txt",
        slurm_conf="ClusterName=c\nNodeName=n[1-8] CPUs=8\nPartitionName=batch Nodes=ALL\n"
        f"SelectType=select/{select}\n",
    )
    made = import_site("slurm", folder)
    assert asks in made.jobs.columns
    assert ("tasks" in made.jobs.columns) == (select == "cons_tres")


NODES = "NodeName=n[1-8] CPUs=8"
PARTITION = "PartitionName=batch Nodes=ALL"


@pytest.mark.parametrize(
    ("lines", "placement"),
    [
        ((NODES, PARTITION), "tightest-run"),
        ((NODES, PARTITION, "SchedulerType=sched/builtin"), "tightest-run"),
        ((NODES, PARTITION, "SelectTypeParameters=CR_Core_Memory,CR_LLN"), "spread"),
        ((NODES, f"{PARTITION} LLN=YES"), "spread"),
        ((NODES, f"{PARTITION} LLN=YES", "PartitionName=other Nodes=n1"), "tightest-run"),
        ((f"{NODES} Weight=7", PARTITION), "tightest-run"),
        (("NodeName=n[1-4] CPUs=8 Weight=7", "NodeName=n[5-8] CPUs=8", PARTITION), "weight"),
        ((NODES, PARTITION, "TopologyPlugin=topology/tree"), "first-fit"),
        ((NODES, PARTITION, "TopologyPlugin=topology/none"), "tightest-run"),
        ((NODES, f"{PARTITION} OverSubscribe=EXCLUSIVE"), "contiguous"),
    ],
)
def test_jobs_that_share_nodes_go_where_slurm_puts_them(tmp_path, lines, placement):
    head = "ClusterName=c\nSelectType=select/cons_tres\n"
    accounting = ACCOUNTING / "sacct-22.05-selection.txt"
    made = import_site("slurm", site(tmp_path, accounting, slurm_conf=head + "\n".join(lines)))
    policy = parse_policy(made.site.policy)
    assert policy.placement.name == placement
    workload = workload_of(made.jobs, "c", made.tally)
    jobs = simulate(workload, made.site.cluster, policy).jobs
    assert jobs["start_s"].null_count() < len(jobs)
    assert {group.weight for group in made.site.cluster.nodes} == (
        {7.0, 1.0} if placement == "weight" else {0.0}
    )


def test_partitions_scheduled_by_load_are_named(tmp_path):
    made = slurm(tmp_path, "PartitionName=q Nodes=n1 LLN=YES")
    assert "least loaded nodes are chosen only if all partitions" in not_modelled(made)["q: LLN"]
    assert parse_policy(made.site.policy).placement.name == "first-fit"  # no job shares nodes


def test_pseudonyms_are_stable_by_their_salt_and_no_name_is_left(tmp_path):
    folder = site(tmp_path, *SLURM.iterdir(), ACCOUNTING / "sacct-22.05-all.txt.gz")
    made = import_site("slurm", folder)
    one, again, other = (pseudonyms(made, salt) for salt in (b"a" * 16, b"a" * 16, b"b" * 16))
    assert one.jobs.equals(again.jobs)
    assert not one.jobs["user"].equals(other.jobs["user"])
    assert one.jobs["user"].n_unique() == made.jobs["user"].n_unique()
    said = str((one.jobs.rows(), one.site, one.tally, one.files))
    for name in ("alice", "carol", "phys", "organic", "demo", "batch", "debug", "cn01", "normal"):
        assert re.search(rf"\b{name}\b", said) is None, name


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({}, "none of its 0 files is recognized; expected slurm.conf"),
        ({"readme_txt": "hello\n"}, "none of its 1 files is recognized"),
        ({"gres_conf": "Name=gpu File=/dev/nvidia0\n"}, "neither settings nor jobs with a start"),
        (
            {"slurm_conf": "ClusterName=c\nNodeName=n[1-\n"},
            r"no available node is described.*slurm.conf:2: .*not closed",
        ),
        (
            {"sacct_txt": "JobID|Submit|Elapsed\n1|2026-10"},
            r"nor jobs with a start.*1 × line skipped",
        ),
    ],
)
def test_a_folder_without_what_is_needed_is_rejected_in_words(tmp_path, texts, said):
    with pytest.raises(ConfigError, match=said):
        import_site("slurm", site(tmp_path, **texts))


def test_a_running_slurm_is_asked_for_no_column_that_it_rejects():
    asked = LIVE["sacct.txt"][-1].split(",")
    recorded = gzip.decompress((ACCOUNTING / "sacct-22.05-all.txt.gz").read_bytes())
    assert set(asked) <= set(recorded.decode().partition("\n")[0].split("|"))
