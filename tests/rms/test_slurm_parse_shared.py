"""Slurm's outputs where jobs share nodes: what they ask and hold, as it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpctwin.rms.node_capacity import Room, amounts_held
from hpctwin.rms.slurm.listing.allocations import held_in_parts
from hpctwin.rms.slurm.listing.jobs import MARK
from hpctwin.rms.slurm.listing.parse import cluster_snapshot
from hpctwin.rms.slurm.listing.resources import gpus_in_parts, gpus_of
from hpctwin.rms.slurm.listing.sharing import Sharing, Sizes, tasks_asked
from tests.rms.slurm_said import NODES, NONE, NOW_S, PARTITIONS, job

RECORDED = Path(__file__).parent / "recorded"
SHARED = ("squeue.json", "sinfo.json", "partitions.txt")


def shared(
    *,
    blind: tuple[str, ...] = (),
    parameters: str = "CR_CORE_MEMORY",
    recorded: str = "shared",
    **changed: Any,
):
    """A Slurm whose jobs share nodes, as recorded; all waiting jobs are the twin's."""
    read = {name: (RECORDED / f"slurm-22.05-{recorded}-{name}").read_bytes() for name in SHARED}
    rows = json.loads(read["squeue.json"])
    for row in rows["jobs"]:
        row |= {"admin_comment": MARK, **changed.get(f"job{row['job_id']}", {})}
    return cluster_snapshot(
        json.dumps(rows).encode(), read["sinfo.json"], NONE, read["partitions.txt"], NOW_S,
        "select/cons_tres", parameters=parameters, blind=blind,
    )  # fmt: skip


def test_requests_on_shared_nodes_are_read_from_the_submission() -> None:
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
        "11": (1, 1, 1, 10, 0, 0, False),
        "12": (1, 1, 2, 10, 0, 0, False),
    }


def test_resources_held_by_running_jobs_add_up_to_slurms_for_each_node() -> None:
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
    assert set(found.mine) == {"6", "7", "8", "10", "11"}
    # Three tasks, two on each node: Slurm wants room for two on each; the other is contiguous.
    left = "2 jobs with requests that are not modeled on shared nodes (job 9: a number of tasks"
    assert any(note.startswith(left) for note in found.notes)


def test_jobs_that_share_nodes_only_within_their_user_are_read_with_the_user() -> None:
    found = shared()
    with_user = {job.spec.id: job.spec.user for job in found.snapshot.jobs if job.spec.shared_with}
    assert with_user == {"11": "ada"}
    found = shared(recorded="owned")
    asked = {
        job.spec.id: (job.spec.user, job.spec.shared_with, job.spec.exclusive, job.node_names)
        for job in found.snapshot.jobs
    }
    assert asked == {
        "1": ("ada", 1, False, ("n1",)),
        "2": ("ben", 0, False, ("n2",)),
        "3": ("ben", 1, False, ("n2",)),
        "4": ("cy", 1, False, ("n3",)),  # of a partition with ExclusiveUser
        "5": ("cy", 0, True, ("n3",)),
        "6": ("ada", 0, False, ("n1",)),
        "9_1": ("ben", 1, False, ("n2",)),
        "9_2": ("ben", 1, False, ("n2",)),
        "9_3": ("ben", 1, False, ()),
        "10": ("cy", 1, False, ()),
        "11": ("ben", 1, False, ()),
    }
    assert found.unequal == {}
    assert set(found.mine) == {"9_3", "10", "11"}


def test_users_without_a_name_in_slurm_are_distinguished_by_their_numbers() -> None:
    nameless = {
        f"job{i}": {"user_name": None, "user_id": 1000 + i, "shared": "user"} for i in (6, 7)
    }
    users = {job.spec.id: job.spec.user for job in shared(**nameless).snapshot.jobs}
    assert (users["6"], users["7"]) == ("1006", "1007")


def test_a_node_that_slurm_reserves_for_a_user_without_a_job_is_named() -> None:
    found = shared(recorded="owned", job1={"shared": None})
    assert found.unequal == {
        "n1": "Slurm reserves the node for jobs of ada, but no running job explains it"
    }
    found = shared(recorded="owned", job1={"shared": None}, blind=("n1",))
    assert not found.mine


def test_slurm_alone_starts_jobs_while_a_node_differs_from_its_jobs() -> None:
    gone = {"job1": {"job_state": "COMPLETED"}}
    found = shared(**gone)
    assert found.unequal == {"n1": "jobs hold 2 CPUs, Slurm reports 8"}
    assert found.mine  # it may only be that jobs and nodes were asked for one after the other
    later = shared(blind=("n1", "n2"), **gone)
    assert not later.mine
    assert any("n1: jobs hold 2 CPUs, Slurm reports 8" in note for note in later.notes)


def test_kinds_of_consumables_with_and_without_devices_add_up_to_what_slurm_says() -> None:
    found = shared(recorded="gres-types")
    # Of n1 it says board:(null):0(IDX:N/A).
    assert found.unequal == {}
    has = {group.name: group.consumables for group in found.snapshot.machine.nodes}
    assert list(has.values()) == [
        {"board": 1, "fpga": 3, "nic": 3, "tmp": 800 * 1024**3},
        {"fpga": 3, "gpu/a": 2, "nic": 3, "tmp": 800 * 1024**3},
        {"gpu/a": 2, "gpu/b": 1, "nic": 3, "tmp": 800 * 1024**3},
        {"nic": 3, "tmp": 800 * 1024**3},
        {},
    ]
    held = {job.spec.id: job.parts[0].consumables for job in found.snapshot.jobs if job.parts}
    assert [held[i] for i in "1236"] == [
        {"fpga": 1},
        {"fpga": 1},
        {"fpga": 2},
        {"tmp": 500 * 1024**2},
    ]


def test_requested_resources_that_are_not_used_up_are_no_consumable() -> None:
    found = shared(recorded="gres-types")
    asked = {job.spec.id: job.spec.consumables for job in found.snapshot.jobs}
    assert asked["4"] == asked["5"] == {}
    # Nothing tells before one has run; and n5 has none of it, so that a job cannot go just anywhere.
    row = {"tres_per_node": "gres:bw:3G", "gres_detail": []}
    assert "bw" in shared(recorded="gres-types", job4=row, job5=row).snapshot.machine.consumables
    found = shared(recorded="gres-types", job10={"tres_per_node": "gres:bw:3G"})
    assert any("job 10: gres:bw:3G" in note for note in found.notes)
    assert "10" not in found.mine


@pytest.mark.parametrize(
    ("recorded", "job_id", "node", "waits", "room"),
    [("gres-gpus", "15", "n3", ("23", "24"), 1), ("gres-mps", "8", "n1", ("16",), 0)],
)
def test_a_gpu_of_which_jobs_use_parts_is_nobodys_whole(
    recorded, job_id, node, waits, room
) -> None:
    found = shared(recorded=recorded)
    assert found.unequal == {}
    snapshot = found.snapshot
    jobs = {job.spec.id: job for job in snapshot.jobs}
    assert (jobs[job_id].node_names, jobs[job_id].parts[0].gpus) == ((node,), 1)
    names = {node.name: i for i, node in enumerate(snapshot.nodes)}
    states = [node.state for node in snapshot.nodes]
    free = Room.of(snapshot.machine, states, snapshot.jobs, names)
    started = 0
    for waiting in waits:
        spec = jobs[waiting].spec
        if taken := free.place(spec):
            started += 1
            free.hold([taken[0][0]], amounts_held(spec, taken, free.names), of=spec)
    assert started == room


def test_a_gpu_of_which_several_jobs_use_parts_is_held_by_the_one_that_may_run_longest() -> None:
    rows = json.loads((RECORDED / "slurm-22.05-gres-mps-squeue.json").read_text())["jobs"]
    first = next(row for row in rows if row["job_id"] == 8)
    longer = {**first, "job_id": 99, "end_time": first["end_time"] + 60}
    assert held_in_parts([longer, first]) == {99: {"n1": [0]}}
    assert held_in_parts([first, {**longer, "gres_detail": ["mps:20(IDX:1)"]}]) == {
        8: {"n1": [0]}, 99: {"n1": [1]},
    }  # fmt: skip


def test_gpus_of_several_types_on_one_node_are_reported_by_type() -> None:
    found = shared(
        recorded="gres-gpus",
        job23={"tres_per_node": "gres:gpu:b:1"},
        job24={"tres_per_node": "", "tres_per_job": "gres:gpu:a:1,gres:gpu:b:1"},
    )
    assert found.unequal == {}
    jobs = {job.spec.id: job for job in found.snapshot.jobs}
    held = {i: (jobs[i].parts[0].gpus, jobs[i].parts[0].consumables) for i in ("15", "16", "17")}
    # 15 has a part of GPU 0, which nobody else is given meanwhile.
    assert held == {"15": (1, {"gpu/a": 1}), "16": (1, {"gpu/b": 1}), "17": (2, {"gpu/a": 2})}
    asked = {i: (jobs[i].spec.gpus_per_task, jobs[i].spec.consumables) for i in ("23", "24")}
    assert asked == {"23": (1, {"gpu/b": 1}), "24": (2, {"gpu/a": 1, "gpu/b": 1})}
    assert {"23", "24"} <= set(found.mine)
    assert {name for group in found.snapshot.machine.nodes for name in group.consumables} >= {
        "gpu/a", "gpu/b",
    }  # fmt: skip


@pytest.mark.parametrize("asked", ["gres:gpu:c:1", "gres:gpu:a:1,gres:gpu:1"])
def test_gpus_of_unknown_types_are_left_to_slurm(asked: str) -> None:
    found = shared(recorded="gres-gpus", job23={"tres_per_node": asked})
    assert "23" not in found.mine
    assert any("not modeled on shared nodes" in note for note in found.notes)


def test_memory_that_slurm_does_not_count_is_not_counted() -> None:
    found = shared(parameters="CR_CORE")
    assert {job.spec.memory_gb_per_task for job in found.snapshot.jobs} == {0.0}
    assert found.unequal == {}


@pytest.mark.parametrize("parameters", ["NONE", "CR_SOCKET_MEMORY"])
def test_with_whole_or_unknown_sockets_slurm_alone_starts_jobs(
    parameters,
) -> None:
    found = shared(parameters=parameters)
    assert not found.mine
    assert any(f"SelectTypeParameters={parameters}" in note for note in found.notes)
    assert {"n1", "n4"} <= set(found.snapshot.shared)


@pytest.mark.parametrize(
    ("setting", "select", "shares", "acts"),
    [
        ("Exclusive=NODE OverSubscribe=NO", "select/cons_tres", False, True),
        ("OverSubscribe=EXCLUSIVE", "select/cons_tres", False, True),
        ("Exclusive=NO OverSubscribe=NO", "select/cons_tres", True, True),
        ("Exclusive=USER OverSubscribe=NO", "select/cons_tres", True, True),
        ("Exclusive=NO OverSubscribe=FORCE:2", "select/cons_tres", False, False),
        ("Exclusive=TOPO OverSubscribe=NO", "select/cons_tres", False, False),
        ("ExclusiveTopo=YES", "select/linear", False, False),
        ("MaxCPUsPerSocket=(null) MaxCPUsPerNode=N/A", "select/cons_tres", True, True),
    ],
)
def test_exclusive_partitions_are_read_in_the_words_of_each_version(
    setting: str, select: str, shares: bool, acts: bool
) -> None:
    nodes = [{**node, "threads": 1} for node in NODES]
    found = cluster_snapshot(
        json.dumps({"jobs": [job(admin_comment=MARK, tasks=2)]}).encode(),
        json.dumps({"nodes": nodes}).encode(), NONE,
        PARTITIONS.replace(b"State=UP", f"State=UP {setting}".encode()), NOW_S, select,
        parameters="CR_CORE",
    )  # fmt: skip
    assert bool(found.mine) == acts
    assert found.snapshot.jobs[0].spec.shares == shares


@pytest.mark.parametrize(
    ("about", "alone", "of_user", "left"),
    [
        ({"shared": ["none"]}, True, 0, ""),
        ({"shared": "none"}, True, 0, ""),
        ({"shared": ["user"]}, False, 1, ""),
        ({"shared": ["oversubscribe"]}, False, 0, ""),
        ({"shared": []}, False, 0, ""),
        ({"shared": None}, False, 0, ""),
        ({"shared": ["topo"]}, True, 0, "exclusive nodes per topo"),
        ({"shared": ["mcs"]}, True, 0, "exclusive nodes per mcs"),
        ({"shared": [], "exclusive": "NODE"}, True, 0, ""),
        ({"shared": [], "exclusive": "USER"}, False, 1, ""),
        ({"shared": "none", "exclusive": "NO"}, False, 0, ""),
        ({"thread_spec": 32766, "core_spec": 65534}, False, 0, ""),
        ({"thread_spec": 2}, False, 0, "specialized threads"),
        ({"tasks_per_core": {"set": False, "infinite": True, "number": 0}}, False, 0, ""),
        ({"tasks_per_core": 65535, "tasks_per_socket": 65534, "sockets_per_node": 65534}, False, 0, ""),
        ({"tasks_per_socket": {"set": True, "infinite": False, "number": 1}}, False, 0, "tasks per socket"),
        ({"tres_per_socket": "(null)"}, False, 0, ""),
        ({"tres_per_socket": "gres/gpu:1"}, False, 0, "resources per socket"),
        ({"tres_per_task": "cpu=2"}, False, 0, ""),
        ({"tres_per_task": "cpu:2"}, False, 0, ""),
        ({"tres_per_task": "cpu=2,gres/nic=1"}, False, 0, "gres/nic=1"),
        ({"contiguous": True}, False, 0, "contiguous nodes"),
    ],
)  # fmt: skip
def test_a_request_is_read_as_each_version_writes_it(about, alone, of_user, left) -> None:
    found = shared(job11={"shared": None, **about})
    spec = {job.spec.id: job.spec for job in found.snapshot.jobs}["11"]
    assert (spec.exclusive, spec.shared_with) == (alone, of_user)
    assert {**found.mine, **found.left}["11"].left == left


@pytest.mark.parametrize(
    "setting", ["MaxCPUsPerNode=4", "MaxCPUsPerSocket=2", "SelectTypeParameters=CR_SOCKET"]
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


@pytest.mark.parametrize(
    ("said", "gpus", "in_parts"),
    [
        ("gpu:a100:4(S:0-1),shard:8", 4, set()),
        ("gpu:(null):2(IDX:0-1),vgpu:3", 2, set()),
        ("gpu:a:1(IDX:1),mps:(null):1(IDX:0,2-3)", 1, {0, 2, 3}),
        ("gpu:0,shard:(null):3(3/4,0/4,1/4)", 0, {0, 2}),
        ("shard:0(IDX:N/A)", None, set()),
    ],
)
def test_gpus_are_counted_of_what_slurm_writes(said, gpus, in_parts) -> None:
    assert (gpus_of(said), gpus_in_parts(said)) == (gpus, in_parts)


@pytest.mark.parametrize(
    ("about", "asked", "note"),
    [
        ({"max_nodes": 3, "tasks": 8}, (8, 1, True), ""),
        ({"max_nodes": 3, "tasks": 3}, (3, 1, True), ""),
        ({"max_nodes": 3, "tasks": 3, "tasks_per_node": 1}, (3, 3, False), ""),
        ({"max_nodes": 2, "tasks": 8}, (8, 1, True), "a maximum number of nodes"),
        (
            {"max_nodes": 3, "tasks": 7, "tasks_per_node": 2},
            (7, 1, True),
            "--spread-job with tasks per node",
        ),
        (
            {"max_nodes": 3, "tasks": 8, "memory_per_node": 500},
            (8, 1, True),
            "--spread-job with requests per",
        ),
        ({"max_nodes": 2, "tasks": 8, "tres_req_str": "cpu=8,node=2"}, (2, 2, False), ""),
    ],
)
def test_jobs_that_are_to_be_spread_are_read_where_slurm_alone_limits_their_nodes(
    about: dict[str, Any], asked: tuple[int, int, bool], note: str
) -> None:
    sharing = Sharing(True, True, {}, frozenset(), count=3)
    row = {"flags": ["SPREAD_JOB"], "tres_req_str": "cpu=8,node=1", "memory_per_cpu": 10, **about}
    if "memory_per_node" in about:
        del row["memory_per_cpu"]
    notes: list[str] = []
    found = tasks_asked([row], sharing, Sizes(8, 0, 1), notes)
    assert (found["tasks"], found["nodes"], found["spread_job"]) == asked
    assert any(one.startswith(note) for one in notes) if note else not notes
