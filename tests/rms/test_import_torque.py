"""A Torque site's own files, and nodes of Torque and PBS in each state, as a cluster and a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpctwin.errors import ConfigError
from hpctwin.policies import parse_policy
from hpctwin.rms.pbs.site.recognition import pbsnodes_text
from hpctwin.rms.site import IMPORTED, NO_EFFECT, NOT_MODELED
from hpctwin.rms.site_folder import Imported, import_site, pseudonyms

STATUS = (
    "rectime=1401735789,macaddr=00:11:22:33:44:55,varattr=,jobs=123.head,state=free,loadave=16.00,ncpus=32,"
    "physmem=67108864kb,availmem=1kb,totmem=70000000kb,uname=Linux n1 3.10.0 #1 SMP x86_64,opsys=linux"
)
NODES: dict[str, dict[str, str]] = {
    "n1": {
        "state": "job-exclusive", "power_state": "Running", "np": "16", "properties": "bigmem,ib",
        "ntype": "cluster", "jobs": "0-15/123.head", "status": STATUS, "gpus": "2",
        "gpu_status": "gpu[0]=gpu_id=0000:02:00.0;gpu_mode=Default",
        "mom_service_port": "15002",
    },
    "n2": {"state": "free", "np": "16", "properties": "ib", "ntype": "cluster", "status": STATUS,
           "gpus": "0"},
    "n3": {"state": "down,offline", "np": "16", "ntype": "cluster", "note": "fan & disk broken"},
}  # fmt: skip
QUEUES = """
create queue route
set queue route queue_type = Route
set queue route route_destinations = batch
set queue route route_destinations += big
set queue route max_user_queuable = 500
create queue batch
set queue batch queue_type = Execution
set queue batch max_running = 4
set queue batch max_user_queuable = 100
set queue batch max_queuable = 1000
set queue batch resources_max.walltime = 24:00:00
set queue batch acl_user_enable = False
create queue big
set queue big queue_type = Execution
set queue big resources_default.neednodes = bigmem
set server default_queue = route
set server keep_completed = 300
set server node_pack = True
"""


def text_of(nodes: dict[str, dict[str, str]]) -> str:
    return "".join(
        f"{name}\n" + "".join(f"     {key} = {value}\n" for key, value in row.items()) + "\n"
        for name, row in nodes.items()
    )


def xml_of(nodes: dict[str, dict[str, str]]) -> str:
    def one(key: str, value: str) -> str:
        return f"<{key}>{value.replace('&', '&amp;')}</{key}>"

    rows = ("".join(one(*pair) for pair in {"name": n, **row}.items()) for n, row in nodes.items())
    return "<Data>" + "".join(f"<Node>{row}</Node>" for row in rows) + "</Data>\n"


def site(tmp_path: Path, **files: str) -> Imported:
    folder = tmp_path / "site"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return import_site("pbs", folder)


def sizes(made: Imported) -> list[tuple[Any, ...]]:
    return [(g.count, g.cores, g.gpus, g.memory_gb, g.features) for g in made.site.cluster.nodes]


def queues(made: Imported) -> dict[str, int]:
    count = {group.name: group.count for group in made.site.cluster.nodes}
    return {p.name: sum(count[g] for g in p.groups) for p in made.site.cluster.partitions}


def became(made: Imported, name: str) -> tuple[str, str]:
    (one,) = [s for s in made.site.settings if s.name == name]
    return one.became, one.why


def said(made: Imported, *words: str) -> bool:
    return any(all(word in note for word in words) for note in made.site.notes)


def test_torque_s_files_give_its_cluster_its_queues_and_its_limits(tmp_path):
    made = site(tmp_path, a=text_of(NODES), b=QUEUES)
    assert sizes(made) == [(1, 16, 2, 64, ("bigmem", "ib")), (1, 16, 0, 64, ("ib",))]
    assert queues(made) == {"batch": 2, "big": 1}
    assert [p.name for p in made.site.cluster.partitions if p.default] == ["batch"]
    limits = [limit.model_dump(exclude_defaults=True) for limit in made.site.cluster.limits]
    assert limits == [
        {"partitions": ("batch",), "jobs": 4},
        {"partitions": ("batch",), "per": "user", "submitted": 100},
        {"partitions": ("batch",), "submitted": 1000},
    ]
    assert said(made, "1 of 3 nodes unavailable and omitted", "n3 (down,offline)")
    assert became(made, "node n3: state")[1] == "not in cluster.yaml"
    assert became(made, "queue big: resources_default.neednodes")[0] == IMPORTED
    assert became(made, "queue route: max_user_queuable")[0] == NOT_MODELED
    assert became(made, "node_pack")[0] == NOT_MODELED
    assert became(made, "keep_completed")[0] == NO_EFFECT
    assert any("maui.cfg" in what for what in made.missing)


@pytest.mark.parametrize(
    "change",
    [xml_of, lambda nodes: text_of(nodes).replace("\n", "\r\n"), lambda nodes: "\n\n" + text_of(nodes)],
)  # fmt: skip
def test_each_way_of_printing_nodes_gives_the_same_cluster(tmp_path, change):
    (tmp_path / "text").mkdir()
    expected = site(tmp_path / "text", a=text_of(NODES), b=QUEUES)
    made = site(tmp_path, a=change(NODES), b=QUEUES)
    assert made.site.cluster == expected.site.cluster


def test_a_node_of_which_the_end_is_missing_does_not_end_the_import(tmp_path):
    made = site(tmp_path, a=xml_of(NODES).partition("</np>")[0] + xml_of({"n2": NODES["n2"]}))
    assert [g.count for g in made.site.cluster.nodes] == [1]
    assert said(made, "node 'n1' is omitted: its description is truncated")


def test_nodes_come_from_server_priv_nodes_if_pbsnodes_lists_none(tmp_path):
    text = "# ours\nn[01-03] np=8 gpus=2 ib\nold np=4\nlogin:ts np=2\nplain\nn4[ np=2\n"
    made = site(tmp_path, nodes=text.replace("n4[ np=2\n", ""), b=QUEUES)
    assert sizes(made) == [(3, 8, 2, None, ("ib",)), (1, 4, 0, None, ()), (1, 1, 0, None, ())]
    assert said(made, "nodes:4", "login:ts is omitted: a time-shared host")
    (tmp_path / "beside").mkdir()
    made = site(tmp_path / "beside", nodes=text.replace("n4[", "x["), a=text_of(NODES))
    assert sum(group.count for group in made.site.cluster.nodes) == 2
    assert said(made, "as pbsnodes does not list them", "n01", "old")
    assert said(made, "nodes:6", "'x['")


STATES = [
    ("free", True), ("job-exclusive", True), ("job-sharing", True), ("busy", True), ("job-busy", True),
    ("resv-exclusive", True), ("reserve", True), ("sleep", True), ("provisioning", True),
    ("offline", False), ("down", False), ("free,offline", False), ("offline,job-exclusive", False),
    ("down,offline,busy", False), ("state-unknown", False), ("state-unknown,down", False),
    ("stale", False), ("Down", False), ("maintenance", False), ("sleep,offline", False), ("deleted", False),
]  # fmt: skip


@pytest.mark.parametrize(("state", "there"), STATES)
@pytest.mark.parametrize("cores", ["np", "resources_available.ncpus"])
def test_a_node_counts_in_the_states_in_which_it_can_run_jobs(tmp_path, cores, state, there):
    made = site(
        tmp_path,
        a=text_of({"n1": {"state": state, cores: "4"}, "n2": {"state": "free", cores: "4"}}),
    )
    assert sum(group.count for group in made.site.cluster.nodes) == 1 + there
    assert said(made, f"n1 ({state})") != there


def test_an_import_without_a_node_that_can_run_jobs_is_rejected_with_their_names(tmp_path):
    with pytest.raises(
        ConfigError, match=r"none of 2 nodes can run jobs: .*n1 \(down\), n2 \(offline\)"
    ):
        site(
            tmp_path,
            a=text_of({"n1": {"state": "down", "np": "4"}, "n2": {"state": "offline", "np": "4"}}),
        )


def test_a_node_without_ncpus_has_its_pcpus_or_is_reported_by_name(tmp_path):
    nodes = {
        "n1": {"Mom": "n1", "state": "free", "pcpus": "8", "resources_available.mem": "1gb"},
        "n2": {"Mom": "n2", "state": "free", "resources_available.host": "n2"},
        "n3": {"Mom": "n3", "state": "state-unknown,down"},
        "n4": {"Mom": "n4", "state": "free", "resources_available.ncpus": "0"},
        "host": {"state": "free", "resources_available.ncpus": "0", "in_multivnode_host": "1"},
        "host[0]": {"state": "free", "resources_available.ncpus": "8", "in_multivnode_host": "1"},
        "n5": {"state": "free", "np": "0", "status": "rectime=1,ncpus=12"},
    }
    made = site(tmp_path, a=text_of(nodes))
    assert [(g.count, g.cores) for g in made.site.cluster.nodes] == [(1, 8), (1, 8), (1, 12)]
    assert said(made, "node n2 (free) has neither ncpus, np nor pcpus: omitted")
    assert said(made, "node n3 (state-unknown,down)")
    assert said(made, "node n4 (free) has no cores")
    assert not said(made, "node host ")


@pytest.mark.parametrize(
    ("server", "rows", "expected"),
    [
        ("", [{"queue": "gpu"}, {}], {"gpu": 1, "workq": 1}),
        ("set queue gpu default_chunk.Qlist = gpu\n",
         [{"resources_available.Qlist": "gpu,cpu"}, {"resources_available.Qlist": "cpu"}],
         {"gpu": 1, "workq": 2}),
        ("set queue gpu default_chunk.big = True\n",
         [{"resources_available.big": "true"}, {}], {"gpu": 1, "workq": 2}),
        ("set queue gpu default_chunk.ncpus = 2\nset queue gpu default_chunk.mem = 1gb\n", [{}, {}],
         {"gpu": 2, "workq": 2}),
        ("set queue gpu resources_default.neednodes = 1:ppn=2:k80\n",
         [{"np": "4", "properties": "k80"}, {"np": "4"}], {"gpu": 1, "workq": 2}),
        ("set queue gpu features_required = k80,ib\n",
         [{"np": "4", "properties": "ib,k80"}, {"np": "4", "properties": "ib"}], {"gpu": 1, "workq": 2}),
        ("set queue gpu resources_default.neednodes = gone\n", [{}, {}], {"workq": 2}),
    ],
)  # fmt: skip
def test_a_queue_has_the_nodes_that_are_bound_to_it(tmp_path, server, rows, expected):
    nodes = {
        f"n{i}": {"state": "free", "resources_available.ncpus": "4", **row}
        for i, row in enumerate(rows)
    }
    both = "create queue gpu\ncreate queue workq\n"
    made = site(tmp_path, a=text_of(nodes), b=both + server)
    assert queues(made) == expected
    assert said(made, "queue gpu has no nodes") == ("gpu" not in expected)


def test_nodes_name_their_queues_if_nothing_else_does(tmp_path):
    nodes = {"n1": {"state": "free", "np": "4", "queue": "gpu"}, "n2": {"state": "free", "np": "4"}}
    made = site(tmp_path, a=text_of(nodes))
    assert queues(made) == {"gpu": 1}


TORQUE_ATTRIBUTES = (
    "state power_state np properties ntype jobs status note mom_service_port mom_manager_port "
    "num_node_boards numa_board_str gpus numa_gpu_node_str gpu_status mics mic_status TTL acl requestid "
    "total_sockets total_numa_nodes total_cores total_threads dedicated_sockets dedicated_numa_nodes "
    "dedicated_cores dedicated_threads"
)
PBS_ATTRIBUTES = (
    "Mom Port Host ntype pbs_version state pcpus Priority queue jobs reservations comment no_multinode_jobs "
    "max_running max_user_run max_group_run resv_enable sharing in_multivnode_host license license_info "
    "lictype provision_enable current_aoe current_eoe power_provisioning poweroff_eligible partition pnames "
    "topology_info maintenance_jobs last_state_change_time last_used_time server_instance_id "
    "hpcbp_enable hpcbp_user_name hpcbp_webservice_address hpcbp_stage_protocol"
)
MODELED = {
    "state", "np", "properties", "status", "gpus", "queue", "sharing", "Priority", "pcpus",
}  # fmt: skip
KEYS_NOT_MODELED = {
    "power_state", "num_node_boards", "numa_board_str", "numa_gpu_node_str", "mics", "TTL", "acl",
    "no_multinode_jobs", "max_running", "max_user_run", "max_group_run", "provision_enable", "current_aoe",
    "power_provisioning", "poweroff_eligible", "partition", "maintenance_jobs",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "base"),
    [(name, {"np": "4"}) for name in TORQUE_ATTRIBUTES.split()]
    + [(name, {"resources_available.ncpus": "4"}) for name in PBS_ATTRIBUTES.split()],
)
def test_each_attribute_of_a_node_is_read_and_has_one_place_in_the_report(tmp_path, name, base):
    values = {
        "state": "free",
        "np": "4",
        "in_multivnode_host": "0",
        "ntype": "cluster",
        "queue": "q",
    }
    row = {"state": "free", **base, name: values.get(name, "2")}
    made = site(tmp_path, a=text_of({"n1": row}))
    assert list(made.files.values()) == ["pbsnodes"]
    assert sum(group.count for group in made.site.cluster.nodes) == 1
    expected = (
        NOT_MODELED if name in KEYS_NOT_MODELED else IMPORTED if name in MODELED else NO_EFFECT
    )
    assert became(made, f"node n1: {name}")[0] == expected


def test_an_attribute_that_is_not_known_is_named_and_so_is_an_unused_resource(tmp_path):
    row = {
        "state": "free", "resources_available.ncpus": "4", "resources_available.fpga_kind": "x", "shiny": "1",
    }  # fmt: skip
    made = site(tmp_path, a=text_of({"n1": row}))
    assert became(made, "node n1: shiny") == (
        NOT_MODELED,
        "unknown node attribute",
    )
    assert became(made, "node n1: resources_available.fpga_kind")[0] == NOT_MODELED


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("BACKFILLPOLICY FIRSTFIT", "fcfs+easy"),
        ("BACKFILLPOLICY FIRSTFIT\nRESERVATIONDEPTH[DEFAULT] 4", "fcfs+easy:4"),
        ("backfillpolicy none\nRESERVATIONPOLICY CURRENTHIGHEST", "fcfs+none"),
        ("BACKFILLPOLICY FIRSTFIT\nRESERVATIONPOLICY NEVER", "fcfs+first-fit"),
        ("QUEUETIMEWEIGHT 0\nXFACTORWEIGHT 100", "expansion+easy"),
        ("XFACTORWEIGHT 10", "-(1*wait/60 + 10*(wait + walltime)/walltime)+easy"),
        ("RMCFG[base] TYPE=PBS\nQUEUETIMEWEIGHT 5", "fcfs+easy"),
        ("QUEUETIMEWEIGHT many", "fcfs+easy"),
    ],
)
def test_maui_s_backfill_and_weights_are_the_policy(tmp_path, lines, expected):
    made = site(tmp_path, a=text_of(NODES), b=QUEUES, c=f"# maui.cfg\n{lines}\n")
    assert made.files["c"] == "configuration of Maui or Moab"
    assert parse_policy(made.site.policy).name == parse_policy(expected).name


def test_maui_settings_without_a_counterpart_are_named_with_their_line(tmp_path):
    lines = (
        "SERVERHOST head\nADMIN1 root\nBACKFILLPOLICY BESTFIT\nFSPOLICY PSDEDICATED\nFSWEIGHT 0\n"
        "RESWEIGHT 5\nNODEALLOCATIONPOLICY MINRESOURCE\nUSERCFG[alice] MAXJOB=3 \\\n  MAXPROC=64\n"
        "SRCFG[night] STARTTIME=1\n"
    )
    made = site(tmp_path, a=text_of(NODES), c=lines)
    named = {s.name: s.where for s in made.site.settings if s.became == NOT_MODELED}
    assert named == {
        "BACKFILLPOLICY": "c:3", "FSPOLICY": "c:4", "RESWEIGHT": "c:6", "NODEALLOCATIONPOLICY": "c:7",
        "USERCFG[alice]": "c:8", "SRCFG[night]": "c:10",
    }  # fmt: skip
    assert became(made, "FSWEIGHT")[0] == became(made, "SERVERHOST")[0] == NO_EFFECT
    hidden = pseudonyms(made, b"0123456789abcdef")
    told = " ".join([*(f"{s.name} {s.value}" for s in hidden.site.settings), *hidden.site.notes])
    assert "alice" not in told
    assert "n3" not in told
    assert "00:11:22" not in told


def test_nodes_that_one_job_has_alone_are_whole(tmp_path):
    log = (
        "06/06/2026 14:30:10;E;1.head;user=u1 queue=batch qtime=1000000000 start=1000000010 exec_host=n1/0-3 "
        "Resource_List.nodes=1:ppn=4 Resource_List.walltime=01:00:00 end=1000000040 Exit_status=0\n"
    )
    for number, more in enumerate(
        ({"c": "NODEACCESSPOLICY SINGLEJOB\n"}, {"d": "set server job_exclusive_on_use = True\n"})
    ):
        (tmp_path / str(number)).mkdir()
        made = site(tmp_path / str(number), a=text_of(NODES), b=QUEUES, log=log, **more)
        assert not {"tasks", "request"} & set(made.jobs.columns)
    (tmp_path / "shared").mkdir()
    jobs = site(tmp_path / "shared", a=text_of(NODES), log=log).jobs
    assert jobs["request"].to_list() == ["select=1:ncpus=4 place=scatter"]


def test_jobs_that_ran_on_nodes_which_are_away_now_are_counted(tmp_path):
    line = (
        "06/06/2026 14:30:10;E;{0}.head;user=u1 queue=batch qtime=1000000000 start=1000000010 exec_host={1} "
        "Resource_List.walltime=01:00:00 end=1000000040 Exit_status=0\n"
    )
    log = line.format(1, "n1/0-3+n3/0") + line.format(2, "n3/0") + line.format(3, "n1/0")
    made = site(tmp_path, a=text_of(NODES), log=log)
    assert [
        note
        for note in made.tally.remarks
        if note.startswith("2 jobs ran on nodes that are unavailable")
    ]


def test_the_sorting_of_pbs_sched_is_named(tmp_path):
    lines = "round_robin: False\tall\nstrict_fifo: false\tALL\nsort_by: shortest_job_first\tALL\n"
    made = site(tmp_path, a=text_of(NODES), sched_config=lines)
    assert became(made, "sort_by")[0] == NOT_MODELED


def test_lists_of_jobs_and_queues_of_now_are_named_and_not_used(tmp_path):
    made = site(
        tmp_path,
        a=text_of(NODES),
        jobs="Job Id: 1.head\n    Job_Name = a\n    job_state = R\n    exec_host = n1/0\n",
        queues="Queue: batch\n    queue_type = Execution\n",
        json='{"timestamp": 1, "Jobs": {"1.head": {"job_state": "R"}}}',
        broken='{"nodes": {"n1": ',
    )
    assert made.files["jobs"] == made.files["json"] == "qstat -f, ignored"
    assert made.files["queues"] == "qstat -Qf, ignored"
    assert said(
        made, "jobs is ignored: import does not use the output of qstat -f", "accounting logs"
    )
    assert made.files["broken"] == ""
    assert said(made, "broken: expected JSON", "the file is ignored")


def test_nodes_of_qmgr_are_read_where_pbsnodes_is_missing(tmp_path):
    lines = (
        "create node n1\nset node n1 state = free\nset node n1 np = 8\nset node n1 properties = ib\n"
        "set node n1 properties += fast\ncreate node n2 Mom=n2\nset node n2 resources_available.ncpus = 4\n"
    )
    made = site(tmp_path, b=QUEUES + lines)
    assert sizes(made) == [(1, 8, 0, None, ("ib", "fast")), (1, 4, 0, None, ())]


def test_text_that_lists_no_nodes_is_not_taken_for_pbsnodes():
    for text in (
        "",
        "ours\n",
        "Job Id: 1\n    job_state = R\n",
        "title\n    a = b\n",
        "\x0b\n = \n",
    ):
        assert pbsnodes_text(text) == {}
