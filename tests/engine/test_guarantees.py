"""What the engine promises, on random workloads."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, parse_policy, simulate
from hpctwin.engine.passes import kept_of
from hpctwin.engine.state import layout
from tests.strategies import numbers

NODES = 8
POLICIES = [
    "fcfs+none", "fcfs+first-fit", "fcfs+easy", "fcfs+easy:3", "fcfs+easy/sjf", "fcfs+conservative",
    "wfp+none", "wfp+first-fit", "wfp+easy", "wfp+easy:2/sjf", "wfp+conservative", "sjf+easy",
    "expansion+easy", "fairshare+easy", "multifactor:size=500+conservative", "adaptive+pack",
    "wfp+pack:patience=9s", "pas+pushdown:interval=1s,promotion=1s",
    "pas+pushdown:interval=3s,promotion=2s,parallel=any,adjacent=any",
]  # fmt: skip


@st.composite
def workloads(draw: st.DrawFn, size: int = 25) -> Workload:
    """Jobs with many ties, zero-length and full-machine jobs, and runs past the walltime."""
    jobs = draw(st.integers(1, size))

    def column(least: int, most: int) -> np.ndarray:
        return numbers(draw, jobs, least, most)

    return Workload.build(
        submit_s=column(0, 12),
        runtime_s=column(0, 12),
        walltime_s=column(1, 12),
        nodes=column(1, NODES),
    )


def same(one: Simulation, other: Simulation) -> bool:
    """Whether two simulations are in the same state, bit for bit (``now`` apart)."""
    for name in layout.STATE:
        a, b = one.state[name].copy(), other.state[name].copy()
        if name == "clock":
            a["now"] = b["now"] = 0
        if a.tobytes() != b.tobytes():
            return False
    return True


def most_used(jobs: pl.DataFrame) -> int:
    """The most nodes in use at any time."""
    run = jobs.filter((pl.col("start_s").is_not_null()) & (pl.col("end_s") > pl.col("start_s")))
    changes = sorted(
        [(end, -nodes) for end, nodes in run.select("end_s", "nodes").iter_rows()]
        + [(start, nodes) for start, nodes in run.select("start_s", "nodes").iter_rows()]
    )
    used = most = 0
    for _, change in changes:
        used += change
        most = max(most, used)
    return most


@pytest.mark.parametrize("policy", POLICIES)
@given(workload=workloads())
def test_capacity_is_never_exceeded_and_no_job_starts_before_submission(
    policy: str, workload: Workload
) -> None:
    jobs = simulate(workload, Cluster.uniform(nodes=NODES), policy=parse_policy(policy)).jobs
    assert most_used(jobs) <= NODES
    assert (jobs["start_s"] >= jobs["submit_s"]).all()
    assert jobs["state"].is_in(["completed", "walltime"]).all()


@pytest.mark.parametrize("policy", POLICIES)
@given(workload=workloads(), stops=st.lists(st.integers(0, 150), max_size=6))
def test_advancing_in_pieces_gives_the_same_state_as_one_run(
    policy: str, workload: Workload, stops: list[int]
) -> None:
    cluster = Cluster.uniform(nodes=NODES)
    whole = Simulation(workload, cluster, policy=parse_policy(policy))
    whole.advance()
    pieces = Simulation(workload, cluster, policy=parse_policy(policy))
    for stop in sorted(stops):
        pieces.advance(stop)
    while pieces.advance(instants=1) != "done":
        pass
    assert same(whole, pieces)


@pytest.mark.parametrize("policy", ["fcfs+easy", "wfp+conservative", *POLICIES[-4:-1]])
@given(workload=workloads(), at=st.integers(0, 60), other=st.sampled_from(POLICIES))
def test_a_fork_changes_nothing_in_its_parent(
    policy: str, workload: Workload, at: int, other: str
) -> None:
    cluster = Cluster.uniform(nodes=NODES)
    parent = Simulation(workload, cluster, policy=parse_policy(policy))
    parent.advance(at)
    before = parent.fork()
    parent.fork(parse_policy(other)).advance()
    parent.fork(arrivals=False).advance()
    assert same(parent, before)
    parent.advance()
    before.advance()
    assert same(parent, before)


@pytest.mark.parametrize(
    "policy", ["fcfs+easy", "wfp+easy:2/sjf", "wfp+conservative", *POLICIES[-4:]]
)
@given(workload=workloads(), at=st.integers(0, 60))
def test_a_fork_under_another_policy_starts_from_the_same_cluster(
    policy: str, workload: Workload, at: int
) -> None:
    """A fork under a policy, taken before anything happened, is a simulation under that policy."""
    cluster = Cluster.uniform(nodes=NODES)
    forked = Simulation(workload, cluster, "sjf", "none").fork(parse_policy(policy))
    forked.advance(at)
    direct = Simulation(workload, cluster, policy=parse_policy(policy))
    direct.advance(at)
    assert forked.result().jobs.equals(direct.result().jobs)


@pytest.mark.parametrize("policy", POLICIES)
@given(workload=workloads(), seed=st.integers(0, 2**32 - 1))
def test_shuffling_records_changes_nothing(policy: str, workload: Workload, seed: int) -> None:
    frame = workload.to_frame()
    shuffled = Workload.from_frame(frame.sample(fraction=1, shuffle=True, seed=seed))
    cluster = Cluster.uniform(nodes=NODES)
    one = simulate(workload, cluster, policy=parse_policy(policy)).jobs
    other = simulate(shuffled, cluster, policy=parse_policy(policy)).jobs
    assert one.equals(other)


@given(workload=workloads(size=40))
def test_easy_never_delays_the_head_jobs_reservation(workload: Workload) -> None:
    """Under FCFS the head stays head: it starts no later than the reservation it had first."""
    simulation = Simulation(workload, Cluster.uniform(nodes=NODES), "fcfs", "easy")
    promised: dict[int, int] = {}
    while simulation.advance(instants=1) != "done":
        state = simulation.state
        waiting = state["queue"][: state.clock.queued]
        if len(waiting):
            head = int(waiting[0])
            promised.setdefault(head, reservation(simulation, head))
    start = simulation.column("start")
    for job, time in promised.items():
        assert start[job] <= time


def reservation(simulation: Simulation, job: int) -> int:
    """When enough nodes are free for a job by planned ends, ms; reckoned here, not by the engine."""
    state, workload = simulation.state, simulation.workload
    running = np.flatnonzero(state["state"]["phase"] == layout.RUNNING)
    free = NODES - int(workload.nodes[running].sum())
    time = int(state.clock.now)
    ends = sorted(
        (int(state["state"]["start"][j] + workload.walltime_ms[j]), int(workload.nodes[j]))
        for j in running
    )
    for end, nodes in ends:
        if free >= workload.nodes[job]:
            break
        free += nodes
        time = end
    return time


@pytest.mark.parametrize("order", ["fcfs", "wfp", "sjf"])
@given(workload=workloads(size=40))
def test_conservative_never_delays_anyones_reservation(order: str, workload: Workload) -> None:
    simulation = Simulation(workload, Cluster.uniform(nodes=NODES), order, "conservative")
    promised: dict[int, int] = {}
    while simulation.advance(instants=1) != "done":
        held = kept_of(simulation.state, "conservative")["start"]
        for job in np.flatnonzero(held >= 0):
            assert held[job] <= promised.get(int(job), held[job])
            promised[int(job)] = int(held[job])
    start = simulation.column("start")
    for job, time in promised.items():
        assert start[job] <= time


@pytest.mark.parametrize("policy", POLICIES)
@given(workload=workloads())
def test_the_same_seed_gives_the_same_bytes_however_many_threads(
    policy: str, workload: Workload
) -> None:
    from hpctwin import compare

    cluster = Cluster.uniform(nodes=NODES)
    chosen = parse_policy(f"{policy}@random")
    one = Simulation(workload, cluster, policy=chosen, seed=7)
    other = Simulation(workload, cluster, policy=chosen, seed=7)
    one.advance()
    other.advance()
    assert same(one, other)
    several = compare(workload, cluster, [chosen, "lcfs+easy"], threads=2, seed=7)
    assert several[chosen.name].jobs.equals(one.result().jobs)


def test_an_index_out_of_bounds_is_caught_where_bounds_are_checked() -> None:
    """Else the run of these tests with bounds checking would prove nothing."""
    import os
    import subprocess
    import sys

    code = (
        "import numpy as np\n"
        "from hpctwin.engine.compile import compiler, intrinsics as rows, jit\n"
        "from hpctwin.engine.state.layout import LAYOUT\n"
        "compiler.CACHE_DIR = None\n"
        "read = jit.Kernel(lambda at, i: rows.sim_at(at).queue[i], 'int64(int64, int64)')\n"
        "table = np.zeros((len(LAYOUT), 3), np.int64)\n"
        "values = np.zeros(3, np.int64)\n"
        "table[list(LAYOUT).index('queue')] = values.ctypes.data, 3, 1\n"
        "read(table.ctypes.data, 2)\n"
        "try:\n    read(table.ctypes.data, 7)\nexcept IndexError:\n    print('caught')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "caught\n", done.stderr
