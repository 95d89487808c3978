"""PBS's jobs that share vnodes, as recorded from a real one and by hand."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from hpctwin import parse_policy
from hpctwin.model import Cluster
from hpctwin.model.requests.pbs_requests import parse_select
from hpctwin.rms.node_capacity import parts_of
from hpctwin.rms.pbs.listing.jobs import Sharing, how_shared, parts_held, tasks_asked
from hpctwin.rms.pbs.listing.node_attributes import used_up_of
from hpctwin.rms.pbs.listing.parse import Found, cluster_snapshot
from hpctwin.rms.records.changes import Doubts
from hpctwin.rms.records.records import NodeRecord, Snapshot
from hpctwin.simulation.lowering.shared_nodes import taken_by
from hpctwin.twin.core.core import Core
from hpctwin.twin.settings.config import CoreSettings
from hpctwin.twin.what_if.present import present
from tests.rms.recorded import PBS

RECORDED = {
    name: (Path(__file__).parent / f"recorded/openpbs-23.06-shared-{name}.json").read_bytes()
    for name in ("qstat", "pbsnodes", "queues")
}
KINDS = {
    name: (Path(__file__).parent / f"recorded/openpbs-23.06-kinds-{name}.json").read_bytes()
    for name in ("qstat", "pbsnodes")
}
RESERVED_S = 1_795_442_671.0
ASKED = (
    "tasks", "nodes", "tasks_per_node", "cores_per_task", "memory_gb_per_task", "gpus_per_task", "exclusive",
)  # fmt: skip


def read(*, without: str = "", blind: tuple[str, ...] = (), marked: bool = True) -> Found:
    """The recorded vnodes and queue, in which all waiting jobs are the twin's."""
    content = json.loads(RECORDED["qstat"])
    content["Jobs"].pop(without, None)
    for row in content["Jobs"].values():
        row["Resource_List"] |= {"hpctwin": 0} if marked else {}
    qstat = json.dumps(content).encode()
    return cluster_snapshot(qstat, RECORDED["pbsnodes"], RECORDED["queues"], b"", 0.0, blind=blind)


def test_resources_held_by_running_jobs_add_up_to_those_of_pbs_for_each_vnode() -> None:
    found = read()
    held = {
        job.spec.id: [
            (name, part.cores, round(1024 * part.memory_gb))
            for name, part in zip(job.node_names, job.parts, strict=True)
        ]
        for job in found.snapshot.jobs
        if job.parts
    }
    assert held == {"0.vm": [("vm[0]", 3, 100), ("vm[1]", 3, 100)], "1.vm": [("vm[0]", 4, 200)]}
    assert found.unequal == {}
    alone = next(job for job in found.snapshot.jobs if job.spec.id == "2.vm")
    assert (alone.spec.exclusive, alone.node_names) == (True, ("vm[2]",))


def test_a_job_that_asks_for_what_is_not_modelled_is_left_to_pbs_and_named() -> None:
    found = read()
    assert set(found.marks) == {"3.vm", "6.vm", "7.vm"}
    assert any("job 4.vm: place=free on hosts of several vnodes" in note for note in found.notes)


def test_pbs_alone_starts_jobs_while_a_vnode_differs_from_its_jobs() -> None:
    gone = read(without="1.vm")
    assert gone.unequal == {"vm[0]": "jobs hold 3 ncpus, PBS reports 7"}
    assert gone.marks
    later = read(without="1.vm", blind=("vm[0]", "vm[3]"))
    assert not later.marks
    assert any("vm[0]: jobs hold 3 ncpus, PBS reports 7" in note for note in later.notes)


@pytest.mark.parametrize(
    ("select", "place", "asks"),
    [
        ("4:ncpus=2:mem=1gb", "free", (4, 1, 0, 2, 1, 0, False)),
        ("4:ncpus=2:ngpus=1", "scatter", (4, 4, 1, 2, 0, 1, False)),
        ("4:ncpus=2", "vscatter:excl", (4, 4, 1, 2, 0, 0, True)),
        ("4:ncpus=2:mem=1gb", "pack", (1, 1, 0, 8, 4, 0, False)),
        ("2:ncpus=4+1:ncpus=1:ngpus=1", "pack:shared", (1, 1, 0, 9, 0, 1, False)),
    ],
)
def test_chunks_are_tasks_placed_as_place_says(select: str, place: str, asks: Any) -> None:
    notes: list[str] = []
    said = tasks_asked(parse_select(select), place, Sharing(), notes)
    assert tuple(said[name] for name in ASKED) == asks
    assert not notes


@pytest.mark.parametrize(
    ("select", "place", "asks"),
    [
        ("2:ncpus=8+1:ncpus=32:ngpus=4", "free", (2, 1, 0, 8, "1:cores=32.0:gpus=4.0")),
        ("2:ncpus=8+1:ncpus=2+3:ncpus=2", "scatter", (2, 1, 1, 8, "4:cores=2.0")),
        ("1:ncpus=4+2:ncpus=4", "scatter", (3, 3, 1, 4, "")),
        ("1:ncpus=4+1:ncpus=2+1:ncpus=4", "free", (1, 1, 0, 4, "1:cores=2.0+1:cores=4.0")),
    ],
)
def test_chunks_of_several_kinds_are_tasks_of_several_kinds(
    select: str, place: str, asks: Any
) -> None:
    notes: list[str] = []
    said = tasks_asked(parse_select(select), place, Sharing(), notes)
    assert (*(said[name] for name in ASKED[:4]), said["more_tasks"]) == asks
    assert not notes


def test_a_real_select_with_a_plus_sign_is_read() -> None:
    held = next(job.spec for job in read().snapshot.jobs if job.spec.id == "6.vm")
    assert (held.tasks, held.tasks_per_node, held.more_tasks) == (2, 1, "1:cores=2.0")


@pytest.mark.parametrize(
    ("select", "starts"), [("1:ncpus=8+2:ncpus=1", True), ("1:ncpus=8+2:ncpus=2", False)]
)
def test_the_twin_starts_a_job_with_chunks_of_several_kinds_when_it_fits(
    select: str, starts: bool
) -> None:
    """One vnode of four is empty, one has a core left, one five, and one is another's."""
    content = json.loads(RECORDED["qstat"])
    content["Jobs"]["3.vm"]["Resource_List"]["hpctwin"] = 0
    content["Jobs"]["3.vm"]["schedselect"] = select
    found = cluster_snapshot(
        json.dumps(content).encode(), RECORDED["pbsnodes"], RECORDED["queues"], b"", 0.0
    )
    assert "3.vm" in found.marks
    core = Core(CoreSettings())
    core.take_snapshot(found.snapshot)
    assert ("3.vm" in core.decide(found.snapshot.time_s).starts) == starts


def test_the_twin_continues_next_to_a_reservation_and_a_suspended_job() -> None:
    """PBS counts what a reservation has that has begun as taken of its vnodes; its jobs are in its queue."""
    outputs = [PBS[f"reservation-{name}.json"] for name in ("qstat", "pbsnodes", "queues")]
    found = cluster_snapshot(*outputs, PBS["reservation-rstat.txt"], RESERVED_S)
    jobs = {job.spec.id.partition(".")[0]: job for job in found.snapshot.jobs}
    assert found.unequal == {}
    # What a suspended job had is others' until it goes on.
    suspended = jobs["2003"]
    assert (suspended.start_s is not None, suspended.node_names) == (True, ())
    assert jobs["2004"].node_names == ("n04", "n02", "n03")
    # Chunks are what `default_chunk.mem` makes of them.
    assert suspended.spec.memory_gb_per_task == 1
    assert (jobs["2001"].spec.memory_gb_per_task, jobs["2001"].spec.more_tasks) == (
        1, "1:cores=4.0:memory_gb=2.0",
    )  # fmt: skip
    # The mark that only a job left to PBS has does not make it the twin's; nor does it keep it back.
    assert (set(found.marks), found.kept) == (set(), ())
    assert any("2005.head: place=free:group=host" in note for note in found.notes)
    assert jobs["2006"].spec.partition == "R2000"
    assert {one.name for one in found.snapshot.machine.partitions} == {"main", "quick", "R2000"}
    core = Core(CoreSettings())
    core.take_snapshot(found.snapshot)
    assert core.decide(found.snapshot.time_s) is not None
    # Without the reservation its vnodes are not as jobs say.
    without = cluster_snapshot(*outputs, b"", RESERVED_S)
    assert without.unequal == {
        "n01": "jobs hold 3 ncpus, PBS reports 8", "n02": "jobs hold 5 ncpus, PBS reports 7",
    }  # fmt: skip


def test_a_vnode_that_differs_at_each_query_is_only_busy() -> None:
    doubts = Doubts()
    for now_s, held in ((0.0, 6), (10.0, 8), (20.0, 8), (30.0, 8)):
        doubts.seen({"vm[0]": f"jobs hold {held} ncpus, PBS reports 4"}, now_s)
        assert doubts.lasting() == ({"vm[0]"} if now_s >= 20.0 else set())
    doubts.seen({}, 40.0)
    assert not doubts.lasting()


@pytest.mark.parametrize(
    ("select", "place", "why"),
    [
        ("2:ncpus=4+1:ncpus=0", "free", "chunks without a request"),
        ("2:ncpus=4", "exclhost", "place=exclhost"),
        ("2:ncpus=4", "free:group=rack", "place=free:group=rack"),
        ("2:ncpus=0", "free", "chunks without a request"),
    ],
)
def test_nearly_modeled_settings_are_named(select: str, place: str, why: str) -> None:
    notes: list[str] = []
    tasks_asked(parse_select(select), place, Sharing(), notes)
    assert notes == [why]


def test_parts_of_one_vnode_are_added_up() -> None:
    held = parts_held("(a:ncpus=1:mem=1048576kb+b[1]:ncpus=2)+(a:ncpus=1:ngpus=2)")
    assert {n: (p.cores, p.memory_gb, p.gpus) for n, p in held.items()} == {
        "a": (2, 1, 2),
        "b[1]": (2, 0, 0),
    }


def vnode(cores: int, sharing: str) -> dict[str, Any]:
    return {"resources_available": {"ncpus": cores}, "sharing": sharing}


@pytest.mark.parametrize(
    ("rows", "shares", "why"),
    [
        ([(8, "default_shared")], True, ""),
        ([(1, "default_shared")], False, ""),
        ([(8, "force_excl"), (1, "default_shared")], False, ""),
        ([(8, "default_excl")], False, ""),
        (
            [(8, "default_excl"), (8, "default_shared")],
            True,
            "sharing=default_excl, default_shared",
        ),
        ([(8, "ignore_excl")], True, "sharing=ignore_excl"),
    ],
)
def test_vnodes_are_shared_where_pbs_shares_them(rows: Any, shares: bool, why: str) -> None:
    found, said = how_shared({str(i): vnode(*row) for i, row in enumerate(rows)})
    assert (found is not None) == shares
    assert why in said
    assert bool(said) == bool(why)


def as_listed(snapshot: Snapshot) -> tuple[Cluster, list[NodeRecord]]:
    """The machine with its vnodes in PBS's order, by which PBS goes through them."""
    groups = [group for group in snapshot.machine.nodes for _ in range(group.count)]
    listed = sorted(zip(snapshot.nodes, groups, strict=True), key=lambda one: one[0].name)
    nodes = [node for node, _ in listed]
    each = [group.model_copy(update={"name": node.name, "count": 1}) for node, group in listed]
    queues = [one.model_copy(update={"groups": None}) for one in snapshot.machine.partitions]
    about = {"nodes": tuple(each), "partitions": tuple(queues)}
    return snapshot.machine.model_copy(update=about), nodes


def test_chunks_of_several_kinds_are_placed_like_in_a_real_pbs() -> None:
    """18 jobs that came at once on twelve vnodes, of which one cycle started 16; later ones may pass."""
    found = cluster_snapshot(KINDS["qstat"], KINDS["pbsnodes"], RECORDED["queues"], b"", 0.0)
    snapshot = found.snapshot
    assert found.unequal == {}
    assert sum(bool(job.spec.more_tasks) for job in snapshot.jobs) == 6
    theirs = {
        job.spec.id: dict(
            zip(job.node_names, job.parts or [None] * len(job.node_names), strict=True)
        )
        for job in snapshot.jobs
        if job.start_s is not None
    }
    waiting = [
        job.model_copy(update={"start_s": None, "node_names": (), "parts": ()})
        for job in snapshot.jobs
    ]
    machine, nodes = as_listed(snapshot)
    policy = parse_policy("fcfs+first-fit@first-fit")
    now = present(machine, waiting, nodes, (), snapshot.time_s, policy)
    run = now.fork()
    ours = {}
    specs = {job.spec.id: job.spec for job in waiting}
    for row in now.given_nodes(run).tolist():
        taken = taken_by(run.state, row)
        names = [nodes[node].name for node, _ in taken]
        parts = parts_of(specs[now.ids[row]], taken) or [None] * len(names)
        ours[now.ids[row]] = dict(zip(names, parts, strict=True))
    assert len(ours) == 16
    assert ours == theirs


CONSUMABLES = {
    name: (Path(__file__).parent / f"recorded/openpbs-23.06-consumables-{name}").read_bytes()
    for name in ("qstat.json", "pbsnodes.json", "queues.json", "resources.txt")
}


def with_consumables(used_up: Collection[str]) -> Found:
    names = ("qstat.json", "pbsnodes.json", "queues.json")
    return cluster_snapshot(*(CONSUMABLES[n] for n in names), b"", 0.0, used_up=used_up)


def test_site_resources_used_by_jobs_add_up_to_the_totals_of_pbs() -> None:
    used_up = used_up_of(CONSUMABLES["resources.txt"])
    assert used_up == {"scratch": True, "fpga": True, "rank": False}
    found = with_consumables([name for name, is_so in used_up.items() if is_so])
    assert found.asked == {"scratch", "fpga", "rank"}
    assert found.unequal == {}
    snapshot = found.snapshot
    assert [(g.count, g.consumables) for g in snapshot.machine.nodes] == [
        (3, {"fpga": 2, "scratch": 800}),
        (3, {"scratch": 800}),
    ]
    jobs = {job.spec.id: job for job in snapshot.jobs}
    assert jobs["1.head"].spec.consumables == {"fpga": 1, "scratch": 100}
    assert jobs["2.head"].spec.more_tasks == "1:cores=4.0:scratch=600.0"
    assert jobs["2.head"].parts[0].consumables == {"fpga": 2, "scratch": 600}
    assert jobs["3.head"].spec.constraints == "rank=3"
    core = Core(CoreSettings(pool=("fcfs+first-fit@first-fit",)))
    core.take_snapshot(snapshot)
    present = core.present(snapshot.time_s, parse_policy("fcfs+first-fit@first-fit"))
    assert present.starts() == []  # four FPGAs are taken


def test_a_resource_that_pbs_counts_otherwise_puts_its_vnodes_in_doubt() -> None:
    found = with_consumables(("scratch", "fpga", "rank"))
    assert found.unequal == {"n03": "jobs hold 3 rank, PBS reports 0"}


def test_requests_of_chunks_are_reported_if_no_resource_is_used_up() -> None:
    found = with_consumables(())
    assert all(not group.consumables for group in found.snapshot.machine.nodes)
    told = {job.spec.id: job.spec.constraints for job in found.snapshot.jobs}
    assert told["0.head"] == "scratch=500gb"
