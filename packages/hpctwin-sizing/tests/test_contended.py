"""Malleable jobs that share the network: amounts of all ranks go with the nodes."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_malleable import at_times, stretches

from hpctwin import Cluster, Simulation, Workload, simulate
from hpctwin.errors import ConfigError, PolicyError
from hpctwin.network.patterns import Pattern
from hpctwin.network.profiles import (
    Delay,
    HomogeneousTask,
    Profile,
    Sequence,
    SpreadTask,
    StorageTransfer,
)
from hpctwin_sizing import Sizes, SizeView, Sizing

NETWORK = {
    "topology": "fat-tree", "children": [4, 2], "parents": [1, 1], "bandwidth": "1 GB/s",
    "latency": "1 ms", "core_speed": "1 Gflop/s",
}  # fmt: skip
NODES = {"name": "node", "count": 8, "cores": 2}
POWER = {"modes": {"base": {"power_w": 100, "min_load_w": 60, "idle_w": 50}}}
STORAGE = [{"name": "pfs", "bandwidth": "2 GB/s"}]
TREE = Cluster(name="tree", nodes=[NODES], network=NETWORK, storage=STORAGE)
POWERED = Cluster(name="tree", nodes=[NODES | POWER], network=NETWORK, storage=STORAGE)
RING = SpreadTask(volume=4e9, pattern=Pattern.RING)


def computing(seconds: float) -> SpreadTask:
    """Computation that takes this time on one node."""
    return SpreadTask(flops=seconds * 1e9)


def jobs(*given: tuple[float, int, Profile | None], walltime_s: float = 1000, **malleable: Any):
    """Jobs by submission, nodes and profile, of 1 to 8 nodes."""
    submit, nodes, profiles = zip(*given, strict=True)
    columns = {"min_nodes": 1, "max_nodes": 8, "suspendable": 1} | malleable
    return Workload.build(
        submit_s=submit,
        nodes=nodes,
        runtime_s=[walltime_s] * len(given),
        walltime_s=[walltime_s] * len(given),
        profiles=profiles,
        malleable={name: [value] * len(given) for name, value in columns.items()},
    )


def run(workload: Workload, sizing: Sizing, **more: Any) -> Any:
    return simulate(workload, more.pop("cluster", TREE), sizing=sizing, sharing="fair", **more)


@pytest.mark.parametrize(
    "profile",
    [
        computing(80),
        Sequence((computing(50), computing(30))),
        Sequence((computing(8),), repeat=10),
        HomogeneousTask(80e9, 0, "ranks"),
        HomogeneousTask(80e9, 0, "pairs"),
        Sequence((Delay(20), computing(40))),  # a delay is for the nodes that the job asks for
    ],
)
def test_computation_that_is_left_is_spread_over_the_new_nodes(profile: Profile) -> None:
    result = run(jobs((0, 2, profile)), at_times(j1=[(0, 2), (10, 4), (15, 1)]))
    # Of 80 node-seconds, 20 are done on two nodes and 20 on four.
    assert stretches(result) == [(0, 10, 2), (10, 15, 4), (15, 55, 1)]
    assert result.jobs["state"].to_list() == ["completed"]


def test_a_suspended_job_continues_after_its_overhead() -> None:
    sizing = at_times(j1=[(0, 2), (10, 0), (20, 4), (22, 1)])
    result = run(jobs((0, 2, computing(80)), resize_s=3), sizing)
    assert stretches(result) == [(0, 10, 2), (20, 22, 4), (22, 85, 1)]


def test_a_message_that_is_left_is_spread_over_the_new_flows() -> None:
    # Two ranks send 2 GB each, from 0.002 s on.
    result = run(jobs((0, 2, RING)), at_times(j1=[(0, 2), (1.002, 4)]))
    assert stretches(result) == [(0, 1.002, 2), (1.002, 1.502, 4)]
    alone = run(jobs((0, 2, RING)), at_times(j1=[(0, 2), (1, 1)]))
    assert stretches(alone) == [(0, 1, 2), (1, 1, 1)]  # a single rank sends nothing


@pytest.mark.parametrize(("total", "two_s", "three_s"), [("ranks", 2, 8 / 3), ("pairs", 2, 4 / 3)])
def test_messages_of_all_pairs_are_spread_as_their_total_says(
    total: Any, two_s: float, three_s: float
) -> None:
    # A rank of two sends 2 GB. One of three sends 4/3 GB to each other one, or 2/3 GB.
    task = HomogeneousTask(0, 4e9, total)
    result = run(jobs((0, 2, task)), at_times(j1=[(0, 2), (1.002, 3)]))
    (first, second) = stretches(result)
    assert first == (0, 1.002, 2)
    assert second[1] - second[0] == pytest.approx((1 - 1 / two_s) * three_s, abs=0.002)


def test_reads_are_spread_over_the_new_nodes() -> None:
    read = StorageTransfer(read=8e9, write=0, storage="pfs", spread=True)
    result = run(jobs((0, 1, read)), at_times(j1=[(0, 1), (2.002, 4)]))
    last = stretches(result)[-1]
    assert last[0] == 2.002
    assert last[1] == pytest.approx(2.002 + 3, abs=0.01)  # 6 GB at 2 GB/s


def test_walltimes_count_the_time_on_the_nodes_that_a_job_asks_for() -> None:
    result = run(jobs((0, 2, computing(80)), walltime_s=20), at_times(j1=[(0, 2), (10, 4)]))
    assert stretches(result) == [(0, 10, 2), (10, 15, 4)]
    assert result.jobs["state"].to_list() == ["walltime"]


def test_jobs_with_amounts_of_each_rank_keep_their_size() -> None:
    fixed = HomogeneousTask(cpu=40e9, com=0)
    with pytest.raises(ConfigError, match="job 1: a sizing cannot change its nodes"):
        run(jobs((0, 2, fixed)), at_times(j1=[(0, 2)]))
    rigid = {"min_nodes": 2, "max_nodes": 2, "suspendable": 0}
    result = run(jobs((0, 2, fixed), **rigid), at_times(j1=[(0, 2)]))
    assert stretches(result) == [(0, 40, 2)]
    with pytest.raises(PolicyError, match="job 1: size is 4; it must be 2"):
        run(jobs((0, 2, fixed), **rigid), at_times(j1=[(0, 2), (5, 4)]))


def test_a_job_on_failed_nodes_continues_from_its_last_change_of_size() -> None:
    failing = TREE.model_dump() | {
        "failures": {"outages": [{"node": 0, "start": 12, "duration": 90}]}
    }
    sizing = at_times(j1=[(0, 2), (10, 4)])
    result = run(jobs((0, 2, computing(80))), sizing, cluster=Cluster.model_validate(failing))
    assert stretches(result) == [(0, 10, 2), (10, 12, 4), (12, 27, 4)]


def test_other_flows_notice_the_change_of_size() -> None:
    work = jobs((0, 2, computing(40)), (0, 2, RING))
    alone = run(work, at_times(j1=[(0, 2)], j2=[(0, 2)]))
    both = run(work, at_times(j1=[(0, 2), (1, 4)], j2=[(0, 2), (1, 4)]))
    assert stretches(alone, 2)[-1][1] > stretches(both, 2)[-1][1]


# --- random jobs -------------------------------------------------------------------------------

KINDS: list[Profile | None] = [
    HomogeneousTask(6e9, 2e9, "ranks"),
    HomogeneousTask(6e9, 2e9, "pairs"),
    computing(12),
    RING,
    StorageTransfer(read=1e9, write=5e8, storage="pfs", spread=True),
    Sequence((computing(4), SpreadTask(volume=2e9), Delay(0.5)), repeat=3),
    Sequence((Sequence((computing(1), RING), repeat=2), Delay(1)), repeat=2, resumes=True),
    None,
]
some_jobs = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.1, 1.3]), st.integers(1, 4), st.integers(0, len(KINDS) - 1)
    ), min_size=1, max_size=8,
)  # fmt: skip


def drawn(some: Any, **malleable: Any) -> Workload:
    pause, nodes, kinds = zip(*some, strict=True)
    rows = zip(np.cumsum(pause), nodes, (KINDS[kind] for kind in kinds), strict=True)
    return jobs(*rows, walltime_s=60, **malleable)


@Sizing
def first_come(view: SizeView) -> Sizes:
    """Start jobs in their order on the nodes that they ask for."""
    free, sizes = view.free_nodes, {}
    for job in view.jobs:
        if not job.size:
            if job.nodes > free:
                break
            sizes[job.job_id] = job.nodes
            free -= job.nodes
    return Sizes(sizes)


@Sizing
def share(view: SizeView) -> Sizes:
    """Give the jobs equal parts, the later ones more from time to time; call again often."""
    each = max(1, view.nodes // max(1, len(view.jobs)))
    free, sizes = view.nodes, {}
    for number, job in enumerate(view.jobs):
        more = int(view.now_s / 0.7 + number) % 3
        size = min(max(each + more - 1, 0), free)
        sizes[job.job_id] = size
        free -= size
    return Sizes(sizes, view.now_s + 0.7 if view.jobs else None)


def told(result: Any) -> Any:
    columns = ["job_id", "start_s", "end_s", "state"]
    energies = None if result.energy is None else result.energy.jobs.rows()
    return result.jobs.sort("job_id").select(columns).rows(), result.stretches.rows(), energies


@settings(max_examples=30, deadline=None)
@given(some_jobs, st.sampled_from(["simgrid", "fair"]))
def test_jobs_that_are_not_resized_end_as_without_a_sizing(some: Any, sharing: Any) -> None:
    workload = drawn(some)
    sized = simulate(workload, TREE, sizing=first_come, sharing=sharing).jobs
    plain = simulate(workload, TREE, "fcfs+none", sharing=sharing).jobs
    columns = ["job_id", "start_s", "end_s", "state", "contention_slowdown"]
    common = [name for name in columns if name in plain.columns]
    assert sized.sort("job_id").select(common).equals(plain.sort("job_id").select(common))


@settings(max_examples=30, deadline=None)
@given(
    st.floats(1, 200), st.integers(1, 8),
    st.lists(st.tuples(st.integers(1, 20000), st.integers(0, 8)), max_size=6), st.integers(1, 5),
)  # fmt: skip
def test_changes_of_size_keep_all_computation(
    seconds: float, nodes: int, changes: Any, parts: int
) -> None:
    profile = Sequence((computing(seconds / parts),), repeat=parts)
    plan, time_ms = [(0.0, nodes)], 0
    for pause_ms, size in [*changes, (1000, nodes)]:
        time_ms += pause_ms
        plan.append((time_ms / 1000, size))
    rows = stretches(run(jobs((0, nodes, profile)), at_times(j1=plan)))
    # Ends are rounded up to the millisecond.
    assert sum((end - start) * size for start, end, size in rows) == pytest.approx(
        seconds, abs=0.0011 * 8
    )


@settings(max_examples=25, deadline=None)
@given(
    some_jobs, st.sampled_from(["simgrid", "fair"]), st.sampled_from([0, 0.4]),
    st.lists(st.tuples(st.sampled_from(["advance", "save", "fork"]), st.floats(0.0, 3.0)), max_size=5),
)  # fmt: skip
def test_interrupted_saved_and_forked_runs_are_the_same(
    some: Any, sharing: Any, resize_s: float, steps: Any
) -> None:
    parts = {"sizing": share, "sharing": sharing}
    workload = drawn(some, resize_s=resize_s)
    whole = told(Simulation(workload, POWERED, **parts, log=True).run())
    one = Simulation(workload, POWERED, **parts, log=True)
    with tempfile.TemporaryDirectory() as folder:
        for step, pause in steps:
            one.advance(one.now_s + pause)
            if step == "save":
                one.save(f"{folder}/saved")
                one = Simulation.load(f"{folder}/saved", sizing=share)
            elif step == "fork":
                assert told(one.fork().run()) == whole
    assert told(one.run()) == whole


def test_power_follows_the_load_on_each_size() -> None:
    sizing = at_times(j1=[(0, 2), (10, 0), (20, 4)])
    work = jobs((0, 2, computing(80)), resize_s=5)
    result = run(work, sizing, cluster=POWERED, log=True)
    assert stretches(result) == [(0, 10, 2), (20, 40, 4)]
    # One of two cores: 60 W and half of the 40 W above; nothing for 5 s of overhead on 4 nodes.
    assert result.energy.jobs["energy_j"].to_list() == pytest.approx([80 * 80 + 20 * 50])


def test_files_of_resized_jobs_have_their_columns(tmp_path: Any) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "submit_s,runtime_s,walltime_s,nodes,flops,comm_bytes,min_nodes,max_nodes,suspendable\n"
        "0,100,1000,2,80e9,0,1,8,1\n"
    )
    result = run(path, at_times(j1=[(0, 2), (10, 4)]))
    assert stretches(result) == [(0, 10, 2), (10, 25, 4)]
    assert isinstance(result.jobs, pl.DataFrame)
