"""Slurm's outputs, of several versions and broken: read as they are, never invented."""

from __future__ import annotations

import copy
import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.errors import FormatError
from hpctwin.rms.hostlist import expand
from hpctwin.rms.slurm.jobs import MARK, targets
from hpctwin.rms.slurm.parse import cluster_snapshot, start_times
from hpctwin.rms.slurm.sharing import Sharing, Sizes, tasks_asked
from hpctwin.rms.slurm.values import number, words

PARTITIONS = b"PartitionName=main Default=YES MaxNodes=UNLIMITED MaxTime=1-02:00:00 State=UP PriorityTier=3\n"
RECORDED = Path(__file__).parent / "recorded"
NONE = b"No reservations in the system\n"
NOW_S = 1_800_000_000.0


def job(**about: Any) -> dict[str, Any]:
    return {
        "job_id": 7, "job_state": "PENDING", "state_reason": "None", "priority": 10, "node_count": 2,
        "submit_time": 1_799_999_000, "start_time": 0, "time_limit": 30, "user_name": "ada",
        "partition": "main", "nodes": "", "dependency": "", "admin_comment": "", "restart_cnt": 0,
        "eligible_time": 0, "array_task_string": "", "het_job_id": 0, **about,
    }  # fmt: skip


NODE = {"name": "n1", "state": "idle", "state_flags": [], "partitions": ["main"], "cpus": 8,
        "real_memory": 2048, "gres": "gpu:a100:4(S:0-1)"}  # fmt: skip
NODES = [{**NODE, "name": f"n{i}"} for i in (1, 2, 3)]


def read(jobs: list[Any], nodes: list[Any] = NODES, reservations: bytes = NONE):
    return cluster_snapshot(
        json.dumps({"jobs": jobs}).encode(), json.dumps({"nodes": nodes}).encode(), reservations,
        PARTITIONS, NOW_S,
    )  # fmt: skip


def newer(value: float | None) -> dict[str, Any]:
    return {"set": value is not None, "infinite": False, "number": value or 0}


def test_nodes_partitions_and_what_they_have() -> None:
    machine = read([]).snapshot.machine
    assert [(g.count, g.cores, g.gpus, g.memory_gb) for g in machine.nodes] == [(3, 8, 4, 2)]
    (partition,) = machine.partitions
    assert (partition.name, partition.default, partition.max_walltime) == ("main", True, 93_600)


def test_old_and_new_versions_say_the_same() -> None:
    old = job(job_state="RUNNING", nodes="n[1-2]", start_time=1_799_999_500)
    new = job(
        job_state=["RUNNING"], nodes="n[1-2]", start_time=newer(1_799_999_500), time_limit=newer(30),
        priority=newer(10), submit_time=newer(1_799_999_000), node_count=newer(2),
        eligible_time=newer(0),
    )  # fmt: skip
    assert read([old]).snapshot.jobs == read([new]).snapshot.jobs
    (record,) = read([new]).snapshot.jobs
    assert (record.node_names, record.start_s) == (("n1", "n2"), 1_799_999_500)
    assert record.spec.walltime_s == 1800


@pytest.mark.parametrize(
    "state", ["COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", ["NODE_FAIL"], None]
)
def test_jobs_that_have_ended_are_not_there(state) -> None:
    assert read([job(job_state=state)]).snapshot.jobs == ()


@pytest.mark.parametrize("state", ["COMPLETING", ["COMPLETED", "COMPLETING"]])
def test_a_job_still_being_cleaned_up_holds_its_nodes(state) -> None:
    (record,) = read([job(job_state=state, nodes="n1", start_time=1_799_999_500)]).snapshot.jobs
    assert record.node_names == ("n1",)


@pytest.mark.parametrize(
    ("about", "mine", "held"),
    [
        ({"admin_comment": MARK}, True, False),
        ({"admin_comment": f"{MARK}:1800000500"}, True, False),
        ({"priority": 0, "state_reason": "JobHeldUser", "admin_comment": MARK}, True, True),
        ({"priority": 0, "state_reason": "JobHeldAdmin", "admin_comment": MARK}, True, True),
        ({"comment": MARK}, False, False),
        ({"admin_comment": MARK + "x"}, False, False),
        ({"admin_comment": MARK, "resv_name": "course"}, False, False),
        ({}, False, False),
    ],
)
def test_a_job_is_the_twins_by_its_admin_comment_and_held_is_held(about, mine, held) -> None:
    found = read([job(**about)])
    assert (set(found.mine) == {"7"}, found.snapshot.jobs[0].spec.held) == (mine, held)


def test_waiting_tasks_of_an_array_are_jobs_of_their_own_and_are_changed_together() -> None:
    array = {"array_job_id": 7, "admin_comment": MARK}
    found = read(
        [
            job(**array, array_task_string="2-4,8%2"),
            job(**array, job_id=9, array_task_id=1, job_state="RUNNING", nodes="n1", start_time=5),
            job(job_id=20, dependency="afterok:7_*(unfulfilled)"),
            job(job_id=21, dependency="afterany:7_3(unfulfilled)"),
        ]
    )
    specs = {j.spec.id: j.spec for j in found.snapshot.jobs}
    assert set(specs) == {"7_1", "7_2", "7_3", "7_4", "7_8", "20", "21"}
    assert found.names == {"9": "7_1"}
    assert targets(found.mine, found.mine, rest=True) == ["7_[2-4,8]"]
    assert {e.on for e in specs["20"].dependencies} == {"7_1", "7_2", "7_3", "7_4", "7_8"}
    assert [e.on for e in specs["21"].dependencies] == ["7_3"]


def test_tasks_beyond_the_picture_are_leased_with_the_last_in_it() -> None:
    found = read([job(array_job_id=7, array_task_string="1-5000", admin_comment=MARK)])
    assert len(found.snapshot.jobs) == 1000
    assert targets(found.mine, found.mine, rest=True) == ["7_[1-5000]"]
    assert targets(["7_1000"], found.mine, rest=False) == ["7_[1000]"]
    assert any("4000 of its waiting tasks" in note for note in found.notes)


def test_a_heterogeneous_job_is_one_job_of_all_its_parts() -> None:
    found = read(
        [
            job(job_id=8, het_job_id=7, node_count=1, time_limit=60, admin_comment=MARK),
            job(job_id=7, het_job_id=7, node_count=2, admin_comment=MARK),
        ]
    )
    (record,) = found.snapshot.jobs
    assert (record.spec.id, record.spec.nodes, record.spec.walltime_s) == ("7", 3, 3600)
    assert targets(["7"], found.mine, rest=True) == ["7", "8"]


@pytest.mark.parametrize(
    ("about", "begins"),
    [
        ({"state_reason": "Priority"}, ""),
        ({"state_reason": "Resources"}, ""),
        ({"state_reason": "BeginTime"}, ""),
        ({"state_reason": "Licenses"}, "licence: Licenses"),
        ({"state_reason": "QOSMaxJobsPerUserLimit"}, "limit"),
        ({"state_reason": "AssocGrpNodeLimit"}, "limit"),
        ({"state_reason": "JobArrayTaskLimit"}, "limit"),
        ({"state_reason": "PartitionNodeLimit"}, "limit"),
        ({"state_reason": "PartitionDown"}, "partition"),
        ({"state_reason": "ReqNodeNotAvail"}, "nodes"),
        ({"state_reason": "BadConstraints"}, "nodes"),
        ({"state_reason": "InvalidQOS"}, "account"),
        ({"state_reason": "DependencyNeverSatisfied"}, "dependency"),
        ({"state_reason": "JobHeldAdmin"}, "hold"),
        ({"resv_name": "course", "state_reason": "Priority"}, "reservation: course"),
        ({"state_reason": "SomethingNew"}, "policy: SomethingNew"),
    ],
)
def test_reasons_for_waiting_in_one_vocabulary(about, begins) -> None:
    reason = read([job(**about)]).snapshot.jobs[0].spec.reason
    assert reason.startswith(begins)
    assert bool(reason) == bool(begins)


def test_jobs_of_a_partition_that_starts_none_are_blocked_before_slurm_says_so() -> None:
    partitions = PARTITIONS.replace(b"State=UP", b"State=DOWN")
    found = cluster_snapshot(
        json.dumps({"jobs": [job()]}).encode(), json.dumps({"nodes": NODES}).encode(), NONE,
        partitions, NOW_S,
    )  # fmt: skip
    assert found.snapshot.jobs[0].spec.reason == "partition: DOWN"


@pytest.mark.parametrize(
    ("select", "over", "acts"),
    [
        ("select/linear", "NO", True),
        ("select/linear", "FORCE:4", False),
        ("select/cons_tres", "NO", True),
        ("select/cons_tres", "FORCE:1", True),
        ("select/cons_tres", "YES:2", False),
        ("select/cons_tres", "EXCLUSIVE", True),
    ],
)
def test_where_jobs_may_have_the_same_cores_the_twin_does_not_act_and_says_so(
    select, over, acts
) -> None:
    partitions = PARTITIONS.replace(b"State=UP", b"State=UP OverSubscribe=" + over.encode())
    found = cluster_snapshot(
        json.dumps({"jobs": [job(admin_comment=MARK)]}).encode(),
        json.dumps({"nodes": NODES}).encode(), NONE, partitions, NOW_S, select,
        parameters="CR_CORE",
    )  # fmt: skip
    assert bool(found.mine) == acts
    assert any("several jobs at once" in note for note in found.notes) != acts


def shared(*, blind: tuple[str, ...] = (), parameters: str = "CR_CORE_MEMORY", **changed: Any):
    """A Slurm whose jobs share nodes, as recorded; all waiting jobs are the twin's."""
    read = {name: (RECORDED / f"slurm-22.05-shared-{name}").read_bytes() for name in SHARED}
    rows = json.loads(read["squeue.json"])
    for row in rows["jobs"]:
        row |= {"admin_comment": MARK, **changed.get(f"job{row['job_id']}", {})}
    return cluster_snapshot(
        json.dumps(rows).encode(), read["sinfo.json"], NONE, read["partitions.txt"], NOW_S,
        "select/cons_tres", parameters=parameters, blind=blind,
    )  # fmt: skip


RECORDED = Path(__file__).parent / "recorded"
SHARED = ("squeue.json", "sinfo.json", "partitions.txt")


def test_what_jobs_ask_of_shared_nodes_is_read_from_what_they_were_submitted_with() -> None:
    jobs = {job.spec.id: job for job in shared().snapshot.jobs}
    asked = {
        i: (s.nodes, s.tasks, s.cores_per_task, round(s.memory_gb_per_task * 1024), s.gpus_per_task,
            s.tasks_per_node, s.exclusive)
        for i, s in ((i, job.spec) for i, job in jobs.items())
    }  # fmt: skip
    assert asked == {
        "1": (1, 3, 2, 200, 0, 0, False),
        "2": (2, 2, 2, 500, 0, 1, False),
        "3": (1, 1, 1, 100, 1, 0, False),
        "4": (1, 1, 2, 100, 2, 0, False),
        "5": (1, 1, 1, 100, 0, 0, True),
        "6": (1, 30, 1, 10, 0, 0, False),
        "7": (2, 2, 1, 100, 1, 1, False),
        "8": (1, 1, 4, 8000, 0, 0, False),
        "9": (1, 3, 1, 50, 0, 2, False),
        "10": (1, 1, 1, 200, 1, 0, False),
        "11": (1, 1, 1, 10, 0, 0, True),
        "12": (1, 1, 2, 10, 0, 0, False),
    }


def test_what_running_jobs_hold_of_each_node_adds_up_to_what_slurm_says_of_it() -> None:
    found = shared()
    held = {
        job.spec.id: [
            (name, part.cores, round(1024 * part.memory_gb), part.gpus)
            for name, part in zip(job.node_names, job.parts, strict=True)
        ]
        for job in found.snapshot.jobs
        if job.parts
    }
    assert held == {
        "1": [("n1", 6, 600, 0)],
        "2": [("n1", 2, 500, 0), ("n2", 2, 500, 0)],
        "3": [("n2", 1, 100, 1)],
        "4": [("n3", 2, 100, 2)],
    }
    assert found.unequal == {}
    assert not found.snapshot.shared


def test_a_job_that_asks_for_what_is_not_modelled_is_left_to_slurm_and_named() -> None:
    found = shared()
    assert set(found.mine) == {"6", "7", "8", "9", "10"}
    assert any("job 11: alone but for its user" in note for note in found.notes)


def test_where_a_node_is_not_as_its_jobs_say_for_some_time_slurm_alone_starts_jobs() -> None:
    gone = {"job1": {"job_state": "COMPLETED"}}
    found = shared(**gone)
    assert found.unequal == {"n1": "jobs hold 2 CPUs, Slurm says 8"}
    assert found.mine  # it may only be that jobs and nodes were asked for one after the other
    later = shared(blind=("n1", "n2"), **gone)
    assert not later.mine
    assert any("n1: jobs hold 2 CPUs, Slurm says 8" in note for note in later.notes)


def test_memory_that_slurm_does_not_count_is_not_counted() -> None:
    found = shared(parameters="CR_CORE")
    assert {job.spec.memory_gb_per_task for job in found.snapshot.jobs} == {0.0}
    assert found.unequal == {}


@pytest.mark.parametrize("parameters", ["NONE", "CR_SOCKET_MEMORY"])
def test_where_whole_sockets_are_given_or_it_is_not_said_what_slurm_alone_starts_jobs(
    parameters,
) -> None:
    found = shared(parameters=parameters)
    assert not found.mine
    assert any(f"SelectTypeParameters={parameters}" in note for note in found.notes)
    assert {"n1", "n4"} <= set(found.snapshot.shared)


@pytest.mark.parametrize(
    "setting", ["ExclusiveUser=YES", "MaxCPUsPerNode=4", "SelectTypeParameters=CR_SOCKET"]
)
def test_a_partition_that_gives_parts_of_nodes_in_its_own_way_is_left_to_slurm(setting) -> None:
    nodes = [{**node, "threads": 1} for node in NODES]
    found = cluster_snapshot(
        json.dumps({"jobs": [job(admin_comment=MARK)]}).encode(),
        json.dumps({"nodes": nodes}).encode(), NONE,
        PARTITIONS.replace(b"State=UP", f"State=UP {setting}".encode()), NOW_S, "select/cons_tres",
        parameters="CR_CORE",
    )  # fmt: skip
    assert not found.mine
    assert any(setting in note for note in found.notes)


@pytest.mark.parametrize(
    ("about", "asks"),
    [
        ({"cpus": 3, "tasks": 3}, (2, 1, 0)),  # two tasks of one CPU on a core
        ({"cpus": 6, "tasks": 2}, (2, 2, 0)),
        ({"cpus": 5, "tasks": 5, "tasks_per_node": 2}, (3, 1, 1)),
        ({"cpus": 3, "tasks": 3, "threads_per_core": 1}, (3, 1, 0)),
    ],
)
def test_where_whole_cores_of_two_cpus_are_given_cpus_are_rounded_up_to_them(about, asks) -> None:
    row = job(node_count=1, tres_req_str=f"cpu={about['cpus']},node=1", **about)
    sizes = Sizes(cores=4, gpus=0, threads=2)
    sharing = Sharing(False, False, {"main": sizes}, frozenset({"n1"}))
    said = tasks_asked([row], sharing, sizes, [])
    assert (said["tasks"], said["cores_per_task"], said["tasks_per_node"]) == asks


TIERS = (
    b"PartitionName=low PriorityTier=1 State=UP\nPartitionName=main PriorityTier=3 State=UP\n"
    b"PartitionName=apart PriorityTier=2 State=UP\n"
)


@pytest.mark.parametrize(
    ("preempt", "qos", "left"),
    [
        ("preempt/none", b"", set()),
        ("preempt/partition_prio", b"", {"main", "low,main"}),
        ("preempt/qos", b"normal|\nurgent|normal,low\nlow|\n", {"urgent"}),
        ("preempt/qos", None, {"low", "main", "low,main", "apart", "urgent"}),
    ],
)
def test_jobs_for_which_slurm_preempts_are_left_to_it(preempt, qos, left) -> None:
    names = ["low", "main", "low,main", "apart"]
    jobs = [
        job(job_id=i, admin_comment=MARK, partition=name, qos="normal")
        for i, name in enumerate(names, 1)
    ]
    jobs.append(job(job_id=5, admin_comment=MARK, partition="low", qos="urgent"))
    nodes = [
        {**NODE, "partitions": ["low", "main"]},
        {**NODE, "name": "n2", "partitions": ["apart"]},
    ]
    found = cluster_snapshot(
        json.dumps({"jobs": jobs}).encode(), json.dumps({"nodes": nodes}).encode(), NONE, TIERS,
        NOW_S, preempt=preempt, qos=qos,
    )  # fmt: skip
    ours = {name for i, name in enumerate([*names, "urgent"], 1) if str(i) not in found.mine}
    assert ours == left
    assert any("sacctmgr" in note for note in found.notes) == (qos is None)


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({"array_job_id": 7, "array_task_string": "1-"}, "array 7 is left alone"),
        ({"node_count": None}, "number of nodes"),
        ({"job_id": "x"}, "without a number"),
        ({"job_state": "RUNNING", "start_time": 0}, "no start time"),
        ({"dependency": "singleton"}, "not modelled"),
    ],
)
def test_what_is_left_out_is_said(about, says) -> None:
    assert any(says in note for note in read([job(**about)]).notes)


def test_dependencies_begin_times_and_unlimited_walltimes() -> None:
    text = "afterok:12(unfulfilled),after:13+5(unfulfilled)"
    one = job(
        dependency=text, state_reason="BeginTime", eligible_time=1_800_000_500, time_limit=None
    )
    (record,) = read([one]).snapshot.jobs
    edges = [(e.on, e.kind, e.delay_s) for e in record.spec.dependencies]
    assert edges == [("12", "afterok", 0), ("13", "after", 300)]
    assert record.spec.not_before_s == 1_800_000_500
    assert record.spec.walltime_s == 365 * 86_400


@pytest.mark.parametrize(
    ("state", "flags", "is_"),
    [
        ("idle", [], "up"), ("allocated", [], "up"), ("mixed", [], "up"), ("down", [], "down"),
        ("idle", ["DRAIN"], "drained"), ("DOWN*", [], "down"), (["IDLE", "DRAIN"], None, "drained"),
        ("idle", ["NOT_RESPONDING"], "down"), ("mixed+drain", [], "drained"),
        ("idle", ["POWERED_DOWN"], "up"), ("idle", ["POWERING_UP", "NOT_RESPONDING"], "up"),
        ("idle", ["POWERING_DOWN"], "down"), ("down", ["POWERED_DOWN"], "down"),
    ],
)  # fmt: skip
def test_states_of_nodes(state, flags, is_) -> None:
    node = {**NODE, "state": state, "state_flags": flags}
    assert read([], [node]).snapshot.nodes[0].state == is_


def test_reservations_are_read_and_bad_ones_named_whatever_zone_we_are_in(monkeypatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    text = (
        b"ReservationName=maint StartTime=2099-01-01T00:00:00 EndTime=2099-01-02T00:00:00 Nodes=n[1-2]\n"
        b"ReservationName=bad StartTime=soon EndTime=later Nodes=n1\n"
    )
    found = read([], reservations=text)
    monkeypatch.undo()
    time.tzset()
    assert [(r.name, r.start_s, r.node_names) for r in found.snapshot.reservations] == [
        ("maint", 4_070_908_800, ("n1", "n2"))
    ]
    assert any("bad" in note for note in found.notes)


@pytest.mark.parametrize("text", [b"", b"slurm_load_jobs error", b"[]", b'{"jobs": 7}', b"\xff"])
def test_output_that_is_no_such_output_is_named(text) -> None:
    with pytest.raises(FormatError):
        cluster_snapshot(text, json.dumps({"nodes": NODES}).encode(), NONE, PARTITIONS, NOW_S)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 2**70) | st.floats() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.data())
def test_whatever_stands_in_a_field_there_is_no_crash_and_no_invented_job(
    data: st.DataObject,
) -> None:
    one, node = copy.deepcopy(job(job_state="RUNNING", nodes="n1", start_time=5)), dict(NODE)
    for target in (one, node):
        for field in data.draw(st.lists(st.sampled_from(sorted(target)), max_size=4)):
            target[field] = data.draw(ANYTHING)
    try:
        found = read([one], [node, {**NODE, "name": "n9"}])
    except FormatError:
        return
    assert len(found.snapshot.jobs) <= 1
    for record in found.snapshot.jobs:
        numbers = {number(one["job_id"]), number(one["het_job_id"])} - {None, math.inf}
        assert record.spec.id in {str(int(n)) for n in numbers}
        assert set(record.node_names) <= {n.name for n in found.snapshot.nodes}


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_named(data: bytes) -> None:
    good = json.dumps({"nodes": NODES}).encode()
    for jobs, nodes in ((data, good), (b'{"jobs": []}', data)):
        try:
            cluster_snapshot(jobs, nodes, data, data, NOW_S)
        except FormatError:
            continue


def test_words_of_any_version() -> None:
    assert words("IDLE+DRAIN*") == {"IDLE", "DRAIN"}
    assert words(["RUNNING"]) == {"RUNNING"}
    assert words(7) == set()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,3],login", ["n08", "n09", "n10", "n3", "login"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("", []),
    ],
)
def test_hostlists(text, names) -> None:
    assert expand(text) == names


@given(st.text(alphabet="n[]-,0123456789ab. ", max_size=30))
def test_any_hostlist_is_read_or_named(text: str) -> None:
    try:
        names = expand(text)
    except FormatError:
        return
    assert all(name and "[" not in name for name in names)


def test_a_huge_hostlist_is_refused() -> None:
    for text in ("n[1-99999999]", "a[1-9999]b[1-9999]"):
        with pytest.raises(FormatError, match=r"too long|more than"):
            expand(text)


@given(
    st.binary(max_size=200) | st.text(alphabet="0123456789 -:TNA/\n", max_size=200).map(str.encode)
)
def test_estimates_are_numbers_for_jobs_that_were_named_or_nothing(data: bytes) -> None:
    text = data.decode(errors="replace")
    for job_id, start_s in start_times(data).items():
        assert job_id in text
        assert math.isfinite(start_s)
