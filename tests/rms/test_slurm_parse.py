"""Slurm's outputs, of several versions and broken: read as they are, never invented."""

from __future__ import annotations

import copy
import json
import math
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.errors import FormatError
from hpctwin.formats.accounting.slurm_values import number, said
from hpctwin.model.text import compact, expand
from hpctwin.rms.slurm.listing.jobs import MARK, targets
from hpctwin.rms.slurm.listing.parse import cluster_snapshot, settings, start_times
from hpctwin.rms.slurm.listing.values import words
from tests.rms.slurm_said import NODE, NODES, NONE, NOW_S, PARTITIONS, job


def read(jobs: list[Any], nodes: list[Any] = NODES, reservations: bytes = NONE):
    return cluster_snapshot(
        json.dumps({"jobs": jobs}).encode(), json.dumps({"nodes": nodes}).encode(), reservations,
        PARTITIONS, NOW_S,
    )  # fmt: skip


def test_nodes_partitions_and_what_they_have() -> None:
    machine = read([]).snapshot.machine
    assert [(g.count, g.cores, g.gpus, g.memory_gb) for g in machine.nodes] == [(3, 8, 4, 2)]
    (partition,) = machine.partitions
    assert (partition.name, partition.default, partition.max_walltime) == ("main", True, 93_600)


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


def test_tasks_beyond_the_model_are_leased_with_the_last_one_in_it() -> None:
    found = read([job(array_job_id=7, array_task_string="1-5000", admin_comment=MARK)])
    assert len(found.snapshot.jobs) == 1000
    assert targets(found.mine, found.mine, rest=True) == ["7_[1-5000]"]
    assert targets(["7_1000"], found.mine, rest=False) == ["7_[1000]"]
    assert any("4000 of its pending tasks" in note for note in found.notes)


@pytest.mark.parametrize(
    ("about", "nodes"),
    [
        ({"admin_comment": MARK}, 0),
        ({"admin_comment": f"{MARK}:{NOW_S - 60:.0f}"}, 0),
        ({"admin_comment": f"{MARK}:{NOW_S + 3600:.0f}"}, 3),
        ({}, 3),
    ],
)
def test_a_partition_is_not_idle_while_a_leased_job_is_pending_there(about, nodes) -> None:
    """A job that its user wants to begin later is not pending yet."""
    waits = job(state_reason="BeginTime", eligible_time=NOW_S + 15, **about)
    assert read([waits]).idle["main"].nodes == nodes


@pytest.mark.parametrize(
    "state", [["IDLE", "CLOUD"], ["MIXED"], ["IDLE", "PLANNED"], ["IDLE", "DRAIN"]]
)
def test_a_node_is_idle_by_words_of_its_state_and_by_the_jobs_on_it(state) -> None:
    nodes = [{**one, "state": state} for one in NODES]
    runs = job(job_state="RUNNING", nodes="n1", start_time=NOW_S, node_count=1)
    free = not {"PLANNED", "DRAIN"} & set(state)
    assert read([], nodes).idle["main"].nodes == 3 * free
    # Slurm was asked for nodes before the job started.
    assert read([runs], nodes).idle["main"].nodes == 2 * free


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
        ({"state_reason": "JobArrayTaskLimit"}, "policy: JobArrayTaskLimit"),
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
def test_if_jobs_may_have_the_same_cores_the_twin_does_not_act_and_says_so(
    select, over, acts
) -> None:
    partitions = PARTITIONS.replace(b"State=UP", b"State=UP OverSubscribe=" + over.encode())
    found = cluster_snapshot(
        json.dumps({"jobs": [job(admin_comment=MARK)]}).encode(),
        json.dumps({"nodes": NODES}).encode(), NONE, partitions, NOW_S, select,
        parameters="CR_CORE",
    )  # fmt: skip
    assert bool(found.mine) == acts
    assert any("shared between jobs" in note for note in found.notes) != acts


TIERS = (
    b"PartitionName=low PriorityTier=1 State=UP\nPartitionName=main PriorityTier=3 State=UP\n"
    b"PartitionName=apart PriorityTier=2 State=UP\n"
)


@pytest.mark.parametrize(
    ("preempt", "qos", "left", "active"),
    [
        ("preempt/none", b"", set(), {"low", "main", "apart"}),
        ("preempt/partition_prio", b"", {"main", "low,main"}, {"low", "apart"}),
        (
            "preempt/qos",
            b"normal|\nurgent|normal,low\nlow|\n",
            {"urgent"},
            {"low", "main", "apart"},
        ),
        ("preempt/qos", None, {"low", "main", "low,main", "apart", "urgent"}, set()),
    ],
)
def test_jobs_for_which_slurm_preempts_are_left_to_it(preempt, qos, left, active) -> None:
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
    assert set(found.idle) == active
    assert any("sacctmgr" in note for note in found.notes) == (qos is None)


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({"array_job_id": 7, "array_task_string": "1-"}, "array 7 is not controlled"),
        ({"node_count": None}, "number of nodes"),
        ({"job_id": "x"}, "without a job number"),
        ({"job_state": "RUNNING", "start_time": 0}, "start time is missing"),
        ({"dependency": "singleton"}, "not modeled"),
    ],
)
def test_what_is_omitted_is_reported(about, says) -> None:
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
        (["IDLE", "INVALID_REG"], None, "drained"), (["IDLE", "BLOCKED"], None, "drained"),
        (["MIXED", "POWER_DRAIN"], None, "drained"), (["UNKNOWN", "EXTERNAL"], None, "down"),
        (["ALLOCATED", "COMPLETING"], None, "up"), (["IDLE", "CLOUD", "POWERED_DOWN"], None, "up"),
        (["IDLE", "DYNAMIC_NORM"], None, "up"), (["MIXED", "PLANNED", "RESERVED"], None, "up"),
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
def test_output_that_is_no_such_output_is_reported_by_name(text) -> None:
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
def test_any_text_in_a_field_causes_no_crash_and_no_invented_job(
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


@pytest.mark.parametrize("value", [1.5, True, {"a": 1}, 7, [None, 3], "²"])
@pytest.mark.parametrize("field", ["features", "active_features"])
def test_features_of_another_type_are_no_features(field: str, value: object) -> None:
    found = read([job(features="ib")], [{**NODE, field: value}])
    assert len(found.snapshot.jobs) == 1


@pytest.mark.parametrize("field", ["MaxNodes", "PriorityTier", "MaxTime"])
@pytest.mark.parametrize(
    "value", ["²", "-1", "x", "1e9", "(null)", "nan", "9" * 30, "9" * 5000, ""]
)
def test_a_number_of_a_partition_that_is_none_is_omitted(field: str, value: str) -> None:
    text = re.sub(rf"{field}=\S+", f"{field}={value}", PARTITIONS.decode())
    assert f"{field}={value}" in text
    nodes = json.dumps({"nodes": NODES}).encode()
    jobs = json.dumps({"jobs": [job()]}).encode()
    found = cluster_snapshot(
        jobs, nodes, NONE, text.encode(), NOW_S, preempt="preempt/partition_prio"
    )
    assert [one.spec.id for one in found.snapshot.jobs] == ["7"]
    assert found.snapshot.machine.partitions[0].name == "main"


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_named(data: bytes) -> None:
    good = json.dumps({"nodes": NODES}).encode()
    for jobs, nodes in ((data, good), (b'{"jobs": []}', data)):
        try:
            cluster_snapshot(jobs, nodes, data, data, NOW_S)
        except FormatError:
            continue


@pytest.mark.parametrize(
    ("value", "bits", "is_"),
    [
        ({"set": False, "infinite": True, "number": 0}, 32, None),
        ({"set": False, "infinite": False, "number": 0}, 32, None),
        ({"set": True, "infinite": True, "number": 0}, 32, math.inf),
        ({"set": True, "infinite": False, "number": 0}, 32, 0.0),
        ({"set": True, "infinite": False, "number": 65534}, 16, None),
        ({"set": True, "infinite": False, "number": 65534}, 32, 65534.0),
        *((2**bits - last, bits, None) for bits in (16, 31, 32) for last in (1, 2)),
        *((2**bits - last, 32, None) for bits in (63, 64) for last in (1, 2)),
        (32766, 16, None),
        (32766, 32, 32766.0),
        (32765, 16, 32765.0),
        ("18446744073709551614", 32, None),
        ("4294967294", 32, None),
        ("12", 16, 12.0),
        (["12"], 32, None),
        (True, 32, None),
        ("*", 32, None),
    ],
)
def test_a_number_that_slurm_has_not_set_is_none_in_every_width(value, bits, is_) -> None:
    assert number(value, bits) == is_


@pytest.mark.parametrize(
    "value", ["(null)", "N/A", "", "*", None, [], 7, {"set": False, "string": "x"}]
)
def test_a_text_that_slurm_has_not_set_is_empty(value) -> None:
    assert said(value) == ""


def test_settings_have_numbered_keys_as_one_and_no_text_for_what_is_not_set() -> None:
    shown = (
        b"Configuration data as of 2027-01-15T08:00:00\nPreemptType             = (null)\n"
        b"PrologSlurmctld[0]      = /etc/slurm/hpctwin-events.sh\nPrologSlurmctld[1]      = /opt/b=c\n"
        b"EpilogSlurmctld         = \nMCSPlugin               = N/A\nSlurmctldHost[0]        = host\n"
    )
    assert settings(shown) == {
        "as_of": "2027-01-15T08:00:00", "PreemptType": "", "EpilogSlurmctld": "", "MCSPlugin": "",
        "PrologSlurmctld": "/etc/slurm/hpctwin-events.sh,/opt/b=c", "SlurmctldHost": "host",
    }  # fmt: skip


@pytest.mark.parametrize("preempt", ["preempt/none", "(null)", "", "none", "N/A"])
def test_nothing_preempts_in_the_words_of_any_version(preempt: str) -> None:
    text = PARTITIONS + PARTITIONS.replace(b"main Default=YES", b"high").replace(
        b"Tier=3", b"Tier=9"
    )
    nodes = [{**node, "partitions": ["main", "high"]} for node in NODES]
    found = cluster_snapshot(
        json.dumps({"jobs": [job(admin_comment=MARK, partition="high")]}).encode(),
        json.dumps({"nodes": nodes}).encode(), NONE, text, NOW_S, preempt=preempt,
    )  # fmt: skip
    assert set(found.mine) == {"7"}


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


def test_a_huge_hostlist_is_rejected() -> None:
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


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["n1", "n2", "n3", "n4", "n7"], "n[1-4,7]"),
        (["n7"], "n7"),
        (["n10", "n9", "n08", "n8"], "n[08,8-10]"),
        (["n099", "n100", "login"], "n[099-100],login"),
        (["r1n1", "r1n2", "r2n1-ib", "r2n2-ib"], "r1n[1-2],r2n[1-2]-ib"),
        ([], ""),
    ],
)
def test_names_are_written_as_a_hostlist(names: list[str], text: str) -> None:
    assert compact(names) == text


@given(st.sets(st.from_regex(r"[a-z.\-]{0,3}[0-9]{0,4}[a-z]{1,2}[0-9]{0,4}(-ib)?", fullmatch=True)))
def test_a_hostlist_names_what_it_was_made_of(names: set[str]) -> None:
    assert set(expand(compact(names))) == names
