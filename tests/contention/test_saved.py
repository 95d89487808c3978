"""Simulations on a network that are saved, continued, forked or read in batches."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, read_cluster, simulate_stream
from hpctwin.errors import SimulationError, WorkloadError
from hpctwin.network.archive import pack, unpack
from hpctwin.network.patterns import Pattern
from hpctwin.network.profiles import (
    Delay,
    HomogeneousTask,
    ParallelTask,
    Profile,
    Sequence,
    SmpiTrace,
    SpreadTask,
    StorageTransfer,
    Usage,
    UsageTrace,
)
from hpctwin.network.rank_tasks import Exchange, Idle, RankTasks, Repeated

TREE = Cluster(
    name="tree",
    nodes=[{"name": "node", "count": 8, "cores": 2}],
    network={
        "topology": "fat-tree", "children": [4, 2], "parents": [1, 1],
        "bandwidth": "1 GB/s", "latency": "1 us", "core_speed": "1 Gflop/s",
    },
    storage=[{"name": "pfs", "bandwidth": "2 GB/s"}],
)  # fmt: skip
RING = np.roll(np.diag([3e8, 2e8]), 1, axis=1)
CALLS = (("compute", (4e8,)), ("bcast", (1e7, 0, 2)), ("alltoall", (1e6, 1e6, 2)))
KINDS: list[tuple[int, Profile | None]] = [
    (2, ParallelTask(cpu=np.array([1e9, 2e9]), com=RING)),
    (3, HomogeneousTask(cpu=1e9, com=2e8)),
    (1, StorageTransfer(read=1e9, write=5e8, storage="pfs")),
    (2, SmpiTrace(ranks=(CALLS,) * 4)),
    (1, UsageTrace(ranks=(Usage(usage=np.array([0.5, 1.0]), flops=np.array([1e9, 5e8])),))),
    (2, None),
    (1, Delay(duration_s=1.5)),
]
TASKS = (
    Exchange(flops=np.array([1e9, 5e8]), com=("ring", 2e8), repeat=2),
    Repeated(tasks=(Idle(np.array([0.5, 0.25])),), repeat=3),
)
KINDS += [(3, SpreadTask(3e9, 2e9, Pattern.GATHER)), (2, RankTasks(tasks=TASKS, ranks=2))]
KINDS += [(4, Sequence(parts=(KINDS[1][1], Delay(0.25), KINDS[1][1]), repeat=2))]  # type: ignore[list-item,arg-type]
POLICIES = ("fcfs+easy", "sjf+conservative", "fcfs+first-fit@random")


def jobs(*given: tuple[float, int, float]) -> Workload:
    """Jobs by the time since the last submission, kind, and walltime."""
    pause, kinds, walltime = zip(*given, strict=True)
    nodes, profiles = zip(*(KINDS[kind] for kind in kinds), strict=True)
    return Workload.build(
        submit_s=np.cumsum(pause), nodes=nodes, walltime_s=walltime, runtime_s=walltime,
        profiles=profiles,
    )  # fmt: skip


def times(table: pl.DataFrame) -> list[Any]:
    return table.sort("job_id").select("job_id", "start_s", "end_s", "state").rows()


def told(table: pl.DataFrame) -> list[Any]:
    """Times and slowdowns."""
    return (
        table.sort("job_id").select("^.*_s$", "contention_slowdown").rows()
        if ("contention_slowdown" in table.columns)
        else times(table)
    )


some_jobs = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.1, 1.3]),
        st.integers(0, len(KINDS) - 1),
        st.sampled_from([0.7, 4.0, 60.0]),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=25, deadline=None)
@given(
    some_jobs, st.sampled_from(POLICIES), st.sampled_from(["simgrid", "fair"]),
    st.lists(st.tuples(st.sampled_from(["advance", "save", "fork"]), st.floats(0.0, 3.0)), max_size=5),
)  # fmt: skip
def test_interrupted_saved_and_forked_runs_are_the_same(
    given: Any, policy: str, sharing: Any, steps: Any
) -> None:
    workload = jobs(*given)
    whole = told(Simulation(workload, TREE, policy, sharing=sharing).run().jobs)
    one = Simulation(workload, TREE, policy, sharing=sharing)
    with tempfile.TemporaryDirectory() as folder:
        for step, pause in steps:
            one.advance(one.now_s + pause)
            if step == "save":
                one.save(f"{folder}/saved")
                assert told(one.run().jobs) == whole
                one = Simulation.load(f"{folder}/saved")
            elif step == "fork":
                assert told(one.fork().run().jobs) == whole
    assert told(one.run().jobs) == whole


@settings(max_examples=15, deadline=None)
@given(some_jobs, st.sampled_from(POLICIES[:2]), st.integers(1, 5))
def test_streams_are_the_same(given: Any, policy: str, batch: int) -> None:
    workload = jobs(*given)
    whole = told(Simulation(workload, TREE, policy, sharing="fair").run().jobs)
    with tempfile.TemporaryDirectory() as folder:
        streamed = simulate_stream(
            workload, TREE, policy, sharing="fair", out=f"{folder}/out", batch=batch
        )
        assert told(streamed.jobs.collect()) == whole


def test_a_stream_of_jobs_that_compute_needs_no_network(tmp_path: Path) -> None:
    cluster = TREE
    computing = HomogeneousTask(cpu=3e9, com=0.0)
    workload = Workload.build(
        submit_s=range(9), nodes=[2] * 9, walltime_s=[60] * 9, runtime_s=[1] * 9,
        profiles=[computing] * 9,
    )  # fmt: skip
    streamed = simulate_stream(workload, cluster, out=tmp_path / "out", batch=2).jobs.collect()
    assert times(streamed) == times(Simulation(workload, cluster).run().jobs)
    assert (streamed["end_s"] - streamed["start_s"] == 3.0).all()


def test_the_first_jobs_of_a_stream_of_batches_use_the_network(tmp_path: Path) -> None:
    batches = [jobs((0.0, 5, 4.0)), jobs((3.0, 1, 4.0)).replace(job_id=np.array([2]))]
    with pytest.raises(WorkloadError, match="use the network, but the first rows do not"):
        simulate_stream(iter(batches), TREE, sharing="fair", out=tmp_path / "out", batch=1)
    simulate_stream(iter(batches[1:]), TREE, sharing="fair", out=tmp_path / "other", batch=1)


def test_a_file_of_another_version_is_an_error(tmp_path: Path) -> None:
    simulation = Simulation(jobs((0.0, 0, 9.0)), TREE, sharing="fair")
    simulation.advance(1.0)
    simulation.save(tmp_path / "saved")
    with np.load(tmp_path / "saved") as file:
        arrays = dict(file)
    text = arrays["given_text"].tobytes().replace(b"HomogeneousTask", b"Other")
    text = text.replace(b"ParallelTask", b"Other")
    arrays["given_text"] = np.frombuffer(text, np.uint8)
    with (tmp_path / "changed").open("wb") as out:
        np.savez(out, **arrays)
    with pytest.raises(SimulationError, match="whose format differs"):
        Simulation.load(tmp_path / "changed")


@pytest.mark.traces
def test_platforms_of_files_have_the_same_routes(golden: Path) -> None:
    paths = sorted((golden / "simgrid" / "platforms").glob("*.xml"))
    assert len(paths) == 11
    for path in paths:
        platform = read_cluster(path).platform
        assert platform is not None
        stored = unpack(pack(platform))
        hosts = np.random.default_rng(0).integers(0, len(platform.host_names), (2, 500))
        for name in ("offsets", "links", "latency_s"):
            routes = platform.routes(*hosts), stored.routes(*hosts)
            np.testing.assert_array_equal(*(getattr(one, name) for one in routes))
        for name in ("host_names", "host_power", "host_properties", "gamma"):
            assert getattr(stored, name) == getattr(platform, name)
