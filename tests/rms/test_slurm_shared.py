"""A real Slurm whose jobs share nodes: our picture of it is whole, and none fits it that Slurm lets wait."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from hpctwin import parse_policy
from hpctwin.rms.node_capacity import Room
from hpctwin.rms.slurm.manager import SlurmManager
from hpctwin.twin.core.core import Core
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.settings.config import CoreSettings
from tests.rms.beside_slurm import Beside, readable_folder, running, states
from tests.rms.slurm_cluster import SlurmCluster
from tests.rms.slurm_roots import NEWEST

SITES: dict[str, dict[str, Any]] = {
    "cores, memory and GPUs": {
        "select": "CR_Core_Memory", "gpus": 2, "node": "Sockets=2 CoresPerSocket=4 ThreadsPerCore=1",
    },
    "consumables": {
        "select": "CR_Core_Memory", "gpus": 2, "gres": ("fpga:x:2", "tmp:800G", "nic:3"),
        "node": "Sockets=2 CoresPerSocket=4 ThreadsPerCore=1",
    },
    "GPUs of two types": {
        "select": "CR_Core_Memory", "gpus": {"a": 2, "b": 2},
        "node": "Sockets=2 CoresPerSocket=4 ThreadsPerCore=1",
    },
    "cores of two threads": {
        "select": "CR_Core_Memory", "gpus": 2, "node": "Sockets=2 CoresPerSocket=2 ThreadsPerCore=2",
    },
    "cores set apart for the system": {
        "node": "Sockets=2 CoresPerSocket=4 ThreadsPerCore=1 CoreSpecCount=2",
    },
    "memory by CPU where none is asked for": {
        "select": "CR_Core_Memory", "more": ("DefMemPerCPU=900", "MaxMemPerCPU=1000"),
    },
    "users apart": {
        "select": "CR_Core_Memory", "node": "Sockets=2 CoresPerSocket=4 ThreadsPerCore=1",
        "more": ("PartitionName=mine Nodes=n[1-3] ExclusiveUser=YES MaxTime=INFINITE State=UP",),
    },
}  # fmt: skip
ASKED = (
    ("-n3", "-c2", "--mem-per-cpu=100"), ("-N2", "-n4", "--mem=500"), ("-n1", "--gres=gpu:1", "--mem=100"),
    ("-n5", "--mem=100"), ("-n2", "--gpus=2", "--mem=100"), ("-N1", "--exclusive", "--mem=100"),
    ("-n3", "-c1", "--ntasks-per-node=2", "--mem-per-cpu=50"), ("-n2", "-c3", "--mem=10"), ("-n1", "--mem=0"),
    ("-n4", "-N4", "--mem=50"), ("-n1",), ("-n9", "--mem-per-cpu=10"), ("-N1-2", "-n4", "--mem=10"), ("-n2",),
)  # fmt: skip


OF_CONSUMABLES = (
    ("-N1", "--gres=fpga:1", "--mem=100"), ("-N2", "-n4", "--gres=fpga:x:2,tmp:100G", "--mem=100"),
    ("-n2", "--gres=nic:2,gpu:1", "--mem=100"), ("-n4", "--gres=tmp:700G", "--mem-per-cpu=10"),
    ("-n2", "--gres=fpga", "--mem=10"), ("-N2", "--gres=nic,tmp:500G", "--mem=10"),
)  # fmt: skip


# There are three nodes; and of --ntasks-per-node=2 Slurm wants room for two on each, also for three in all.
WITH_ROOM = tuple(way for way in ASKED if "-N4" not in way and "-n3" not in way)
OF_TYPES = (
    ("-n1", "--gres=gpu:a:1", "--mem=100"), ("-n1", "--gpus=b:2", "--mem=100"),
    ("-n2", "--gpus=2", "--mem=100"), ("-N1", "-n1", "--gres=gpu:a:1,gpu:b:1", "--mem=100"),
    ("-n2", "--gpus-per-task=b:1", "--mem-per-cpu=100"), ("-N2", "-n2", "--gpus=a:2", "--mem=100"),
    ("-N1", "-n1", "--gpus-per-node=2", "--mem=100"), ("-n1", "--gres=gpu:3", "--mem=100"),
    ("-n1", "--gpus=a:2", "--mem=100"), ("-n4", "--mem-per-cpu=10"),
)  # fmt: skip


ONE, OTHER = "--uid=daemon", "--uid=games"
OF_USERS = (
    (ONE, "-n2", "--exclusive=user", "--mem=100"), (OTHER, "-n1", "--mem=100"),
    (ONE, "-n7", "--mem-per-cpu=10"), (OTHER, "-n4", "-pmine", "--mem=100"), (ONE, "-n2", "--mem=100"),
    (OTHER, "-n3", "--mem=100"), (OTHER, "-n2", "--exclusive=user", "--mem=100"), (ONE, "-n2", "--mem=100"),
    (ONE, "-n2", "-pmine", "--mem=100"), (OTHER, "-n2", "--mem=100"),
    (ONE, "-N2", "-n2", "--exclusive=user", "--mem=100"), (OTHER, "-n1", "--mem=10"),
)  # fmt: skip


pytestmark = [pytest.mark.slurm, pytest.mark.slow]

FEATURES = {"n1": "a,ib", "n2": "b,ib", "n3": "a"}


@pytest.mark.parametrize("select", ["linear", "CR_Core_Memory"])
def test_a_job_waits_for_nodes_with_its_features_as_it_does_in_slurm(
    select: str, slurm_version: str
) -> None:
    node = "Sockets=2 CoresPerSocket=4 ThreadsPerCore=1"
    options = {"nodes": 3, "cpus": 8, "memory": 8000, "scheduler": "builtin", "node": node}
    if select != "linear":
        options["select"] = select
    with (
        readable_folder() as folder,
        running(folder, version=slurm_version, **options) as slurm,
    ):
        for name, of in FEATURES.items():
            about = f"NodeName={name}", f"AvailableFeatures={of}", f"ActiveFeatures={of}"
            slurm.say("scontrol", "update", *about)
        asked = [("-Cb|a", "-n8"), ("-C(b|a)&ib", "-n8"), ("-Cib", "-n8")]
        ids = [slurm.submit_tasks(5, 300, "--mem=10", *way) for way in asked[:2]]
        slurm.wait(lambda: list(states(slurm).values()).count("RUNNING None") == 2, 30)
        ids += [slurm.submit_tasks(5, 300, "--mem=10", *way) for way in asked[2:]]
        slurm.wait(lambda: "PENDING Resources" in states(slurm).values(), 30)
        manager = SlurmManager("emul", conf=slurm.conf)
        snapshot = manager.snapshot()
        specs = {job.spec.id: job.spec for job in snapshot.jobs}
        assert [specs[i].features for i in ids] == ["a|b", "(a|b)&ib", "ib"]
        assert not any(spec.constraints for spec in specs.values())
        core = Core(CoreSettings(pool=("fcfs+none",)))
        core.take_snapshot(snapshot)
        now = core.present(snapshot.time_s, parse_policy("fcfs+none"))
        assert core.free_nodes() == 1
        assert now.starts() == []
        where = {job.spec.id: job.node_names for job in snapshot.jobs}
        assert [where[i] for i in ids] == [("n1",), ("n2",), ()]


@pytest.mark.parametrize("site", SITES)
def test_no_job_that_slurm_leaves_waiting_fits_the_twins_model(
    site: str, slurm_version: str
) -> None:
    options = {"nodes": 3, "cpus": 8, "memory": 8000, "scheduler": "builtin", **SITES[site]}
    with readable_folder() as folder, running(folder, version=slurm_version, **options) as slurm:
        asked = [way for way in ASKED if options.get("gpus") or not any("g" in w for w in way[1:2])]
        if "gres" in options:
            asked = [*OF_CONSUMABLES, *asked]
        if site == "users apart":
            asked = [*OF_USERS]
        if site == "GPUs of two types":
            asked = [*OF_TYPES, *ASKED]
        for way in asked:
            # Slurm 24.11 refuses what there are not enough nodes for; others keep it pending.
            if slurm_version != "24.11" or "-N4" not in way:
                slurm.submit_tasks(5, 300, *way)
        # In order of submission: it has looked at all before the first for which there is no room.
        slurm.wait(
            lambda: any(said.startswith("PENDING Resources") for said in states(slurm).values()), 30
        )
        manager = SlurmManager("emul", conf=slurm.conf)
        snapshot = manager.snapshot()
        assert manager.found is not None
        assert manager.found.unequal == {}
        assert not snapshot.shared
        for job in snapshot.jobs:
            if job.parts:
                spec = job.spec
                for name in ("cores", "gpus"):
                    held = sum(getattr(part, name) for part in job.parts)
                    assert held == spec.tasks * getattr(spec, f"{name}_per_task"), spec
                types = [a for p in job.parts for n, a in p.consumables.items() if "gpu/" in n]
                assert not types or sum(types) == sum(part.gpus for part in job.parts), spec
                for name, amount in spec.consumables.items():
                    held = sum(part.consumables[name] for part in job.parts)
                    assert held == spec.tasks * amount, spec
        core = Core(CoreSettings(pool=("fcfs+none",)))
        core.take_snapshot(snapshot)
        present = core.present(snapshot.time_s, parse_policy("fcfs+none"))
        assert present.starts() == []
        assert {job.spec.id for job in snapshot.jobs if job.start_s is not None}


# Slurm 26.05 leaves a job of one node with --gpus=2 pending if the first node with one has no second.
FOUND = tuple(way for way in OF_TYPES if way[:1] != ("-n1",) or not way[1].startswith("--gpus="))


@pytest.mark.parametrize(
    ("site", "asked"),
    [("GPUs of two types", FOUND * 2), ("consumables", (*OF_CONSUMABLES, *WITH_ROOM))],
)
@pytest.mark.slurm(NEWEST)
def test_every_job_that_the_twin_starts_fits_wherever_slurm_places_the_others(
    site: str, asked: tuple[tuple[str, ...], ...], slurm_version: str
) -> None:
    """None of them ends: who has no room at once has none at all."""
    options = {"version": slurm_version, "nodes": 3, "cpus": 8, "memory": 8000, **SITES[site]}
    # However busy the machine is, no lease runs out, and no start is given up.
    rule = {"lease": "1000s"}
    act = {"lease": 1000, "max_lease": 1000, "idle_starts": False}
    with readable_folder() as folder, running(folder, rule=rule, **options) as slurm:
        twin = Beside(
            slurm,
            manager={"poll_interval": 1, "first_lease": 1000},
            act=act,
            core={"start_timeout": 1000},
        )
        twin.begin()
        try:
            for seed in range(4):
                ways = np.random.default_rng(seed).permutation(np.array(asked, object))
                all_nodes = slurm.submit_tasks(60, 3000, "-N3", "--exclusive")
                slurm.wait(lambda i=all_nodes: states(slurm)[i].startswith("RUNNING"), 60)
                ids = {slurm.submit_tasks(60, 3000, *way) for way in ways}
                slurm.say("scancel", all_nodes)
                slurm.wait(lambda of=ids: _all_run(slurm, of), 60)
                slurm.say("scancel", *ids)
                slurm.wait(lambda: not states(slurm), 60)
        finally:
            twin.end()


def _told(slurm: SlurmCluster) -> list[tuple[str, str]]:
    """The jobs that were told to start, and what became of it."""
    with closing(sqlite3.connect(slurm.folder / "journal.sqlite")) as journal:
        return journal.execute(
            "SELECT job, result FROM actions WHERE reason IS NULL OR reason NOT LIKE 'withheld%'"
        ).fetchall()


def _all_run(slurm: SlurmCluster, ids: set[str]) -> bool:
    """Whether the last decision knew all of some jobs, and just those run that were told to start."""
    with closing(Journal(slurm.folder / "journal.sqlite", read_only=True)) as journal:
        decision = journal.read_decision()
    told = sorted(action for action in _told(slurm) if action[0] in ids)
    runs = sorted(i for i, said in states(slurm).items() if said.startswith("RUNNING"))
    if decision is None or not runs or told != [(i, "done") for i in runs]:
        return False
    started = set(decision["starts"])
    return started <= set(runs) and decision["waiting"] == len(ids) - len(runs) + len(started)


SPREAD = (
    ("-n4",), ("-n5", "--ntasks-per-node=1", "--mem=10"), ("-n8",), ("-n4", "-c2"), ("-n7",),
    ("-n3",), ("-n1",), ("-n2",),
)  # fmt: skip


def test_jobs_to_be_spread_get_the_nodes_of_the_twins_model(slurm_version: str) -> None:
    options = {
        "version": slurm_version,
        "nodes": 6,
        "cpus": 8,
        "memory": 8000,
        "select": "CR_CPU_Memory",
    }
    with readable_folder() as folder, running(folder, **options) as slurm:
        slurm.submit_tasks(5, 300, "-wn2", "-n8", "--mem-per-cpu=10")
        slurm.wait(lambda: next(iter(states(slurm).values())).startswith("RUNNING"), 30)
        manager = SlurmManager("emul", conf=slurm.conf)
        for asked in SPREAD:
            memory = () if asked[-1].startswith("--mem") else ("--mem-per-cpu=10",)
            number = slurm.submit_tasks(5, 300, "--hold", "--spread-job", *asked, *memory)
            snapshot = manager.snapshot()
            spec = {job.spec.id: job.spec for job in snapshot.jobs}[number]
            names = {node.name: i for i, node in enumerate(snapshot.nodes)}
            up = [node.state for node in snapshot.nodes]
            taken = Room.of(snapshot.machine, up, snapshot.jobs, names).place(spec)
            assert taken is not None
            slurm.say("scontrol", "release", number)
            slurm.wait(lambda n=number: slurm.job(n)["JobState"] == "RUNNING", 30)
            job = {job.spec.id: job for job in manager.snapshot().jobs}[number]
            found = {name: part.cores for name, part in zip(job.node_names, job.parts, strict=True)}
            ours = {f"n{n + 1}": k * spec.cores_per_task for n, (k,) in taken}
            # Slurm 26.05 takes the same nodes, and may lay the tasks on them more evenly.
            assert found.keys() == ours.keys(), asked
            assert sum(found.values()) == sum(ours.values()), asked
            assert found == ours or slurm_version == "26.05", asked
