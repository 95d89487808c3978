"""Jobs that share nodes and the network: each task is a rank on its node."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, Simulation, Workload, read_cluster, simulate_stream
from hpctwin.cli.app import main
from hpctwin.contention.ranks import Held, ranks_of_job
from hpctwin.errors import ConfigError
from hpctwin.formats import write_workload
from hpctwin.model import Category, Failures, Outage
from hpctwin.network.patterns import Pattern
from hpctwin.network.profiles import (
    Delay,
    HomogeneousTask,
    ParallelTask,
    Profile,
    Sequence,
    SpreadTask,
    Usage,
    UsageTrace,
)
from hpctwin.network.rank_tasks import Gpu, RankTasks
from tests.contention.test_energy import POWERED
from tests.contention.test_network import SHARINGS
from tests.contention.test_saved import TREE, some_jobs, times, told
from tests.contention.test_saved import jobs as whole_nodes
from tests.contention.test_simulation import PLATFORM, send

POLICIES = ("fcfs+easy", "sjf+conservative", "fcfs+first-fit@best-fit")
SECOND = HomogeneousTask(cpu=1e9, com=0.0)
HALF = Usage(usage=np.array([0.5, 1.0]), flops=np.array([1e9, 5e8]))
COMPUTING: list[Profile | None] = [
    SECOND,
    HomogeneousTask(cpu=3e9, com=0.0),
    Sequence((SECOND, Delay(0.5), SECOND)),
    UsageTrace(ranks=(HALF,)),
    None,
]
"""What a job of one rank does without a network; it needs no more than one core."""


def jobs(*given: tuple[float, int, float, Profile | None], **chunks: Any) -> Workload:
    """Jobs by submission, tasks, cores of each task, and profile; they may take a minute."""
    submit, tasks, cores, profiles = zip(*given, strict=True)
    every = {"tasks": tasks, "cores_per_task": cores, **chunks}
    columns = {name: every.pop(name) for name in ("more_tasks", "partition") if name in every}
    count = len(given)
    return Workload.build(
        submit_s=submit, nodes=[1] * count, walltime_s=[60] * count, runtime_s=[3] * count,
        profiles=profiles, chunks=every, **columns,
    )  # fmt: skip


def ends(workload: Workload, cluster: Cluster = TREE, sharing: Any = "fair") -> list[float]:
    found = Simulation(workload, cluster, sharing=sharing).run().jobs
    return found.sort("job_id")["end_s"].to_list()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(COMPUTING), min_size=2, max_size=8), st.sampled_from(SHARINGS))
def test_two_jobs_on_half_a_node_each_end_as_on_two_nodes(does: Any, sharing: Any) -> None:
    halves = jobs(*[(0.0, 1, 1.0, one) for one in does])
    apart = jobs(*[(0.0, 1, 2.0, one) for one in does])
    both = [Simulation(one, TREE, sharing=sharing).run() for one in (halves, apart)]
    assert times(both[0].jobs) == times(both[1].jobs)
    used = [len(set(one.placements["node"])) for one in both if one.placements is not None]
    assert used == [(len(does) + 1) // 2, len(does)]


@settings(max_examples=25, deadline=None)
@given(some_jobs, st.sampled_from(["fcfs+none", "sjf+first-fit"]), st.sampled_from(SHARINGS))
def test_a_task_with_all_cores_is_a_whole_node(given: Any, policy: str, sharing: Any) -> None:
    whole = whole_nodes(*given)
    count = len(whole)
    for chunks in (
        {"tasks": whole.nodes, "cores_per_task": [2] * count},
        {"tasks": whole.nodes, "tasks_per_node": [1] * count, "exclusive": [1] * count},
        {"tasks": [0] * count},
    ):
        tasks = Workload.build(
            submit_s=whole.submit_ms / 1000, nodes=whole.nodes, walltime_s=whole.walltime_ms / 1000,
            runtime_s=whole.runtime_ms / 1000, profiles=whole.profiles, chunks=chunks,
        )  # fmt: skip
        both = [Simulation(one, TREE, policy, sharing=sharing).run() for one in (whole, tasks)]
        assert told(both[0].jobs) == told(both[1].jobs)


ANY: list[tuple[int, float, Profile | None]] = [
    (1, 1.0, SECOND),
    (2, 1.0, send(1e9)),
    (3, 2.0, HomogeneousTask(cpu=1e9, com=2e8)),
    (5, 1.0, SpreadTask(flops=4e9, volume=2e9, pattern=Pattern.ALL_TO_ALL)),
    (2, 0.5, UsageTrace(ranks=(HALF, HALF))),
    (0, 1.0, HomogeneousTask(cpu=5e8, com=0.0)),
    (3, 1.0, None),
]


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from(ANY)), min_size=1, max_size=12),
    st.sampled_from(POLICIES), st.sampled_from(SHARINGS), st.booleans(),
    st.lists(st.tuples(st.sampled_from(["advance", "save", "fork"]), st.floats(0.0, 3.0)), max_size=5),
)  # fmt: skip
def test_interrupted_saved_forked_and_streamed_runs_are_the_same(
    given: Any, policy: str, sharing: Any, fails: bool, steps: Any
) -> None:
    submit_s = np.cumsum([pause for pause, _ in given])
    workload = jobs(*[(at, *one) for at, (_, one) in zip(submit_s, given, strict=True)])
    outages = (Outage(node=0, start=1.5, duration=1.0),) if fails else ()
    small = {"nodes": [{"name": "node", "count": 4, "cores": 2}]}
    tree = {**TREE.model_dump()["network"], "children": [2, 2]}
    cluster = Cluster.model_validate(
        {**TREE.model_dump(), **small, "network": tree, "failures": Failures(outages=outages)}
    )
    run = Simulation(workload, cluster, policy, sharing=sharing).run()
    whole, placed = told(run.jobs), run.placements
    one = Simulation(workload, cluster, policy, sharing=sharing)
    with tempfile.TemporaryDirectory() as folder:
        for step, pause in steps:
            one.advance(one.now_s + pause)
            if step == "save":
                one.save(f"{folder}/saved")
                one = Simulation.load(f"{folder}/saved")
            elif step == "fork":
                assert told(one.fork().run().jobs) == whole
        again = one.run()
        assert told(again.jobs) == whole
        if placed is not None and again.placements is not None:
            assert again.placements.equals(placed)
        if policy == POLICIES[0] and not fails:
            streamed = simulate_stream(
                workload, cluster, policy, sharing=sharing, out=f"{folder}/out", batch=3
            )
            assert told(streamed.jobs.collect()) == whole


def test_jobs_on_one_node_share_its_link() -> None:
    workload = jobs(*[(0.0, 2, 1.0, send(1e9))] * 2, tasks_per_node=[1, 1])
    assert ends(workload) == [2.001, 2.001]
    assert ends(jobs((0.0, 2, 2.0, send(1e9)), (0.0, 2, 2.0, send(1e9)))) == [1.001, 1.001]


def test_ranks_are_in_the_order_of_the_request_and_then_of_nodes() -> None:
    # Rank 0 has node 0. Ranks 1 and 2 share node 1, and its link to node 0.
    for source, first, last in ((0, 1, 2), (1, 0, 2)):
        com = np.zeros((3, 3))
        com[first, source] = com[last, source] = 1e9
        workload = jobs((0.0, 1, 2.0, ParallelTask(cpu=None, com=com)), more_tasks=["2:cores=1"])
        simulation = Simulation(workload, TREE, sharing="fair")
        simulation.advance(0.5)
        assert simulation.network is not None
        uses = simulation.network._network.running_uses()
        into = {uses.names[r] for r in uses.resource if uses.names[r].endswith("DOWN")}
        assert len(into) == 1
        assert ends(workload) == [2.001]
    nodes, held = ranks_of_job(simulation.state, 0, Held(np.full(8, 2.0), np.zeros(8)))
    assert nodes.tolist() == [0, 1, 1]
    assert held is not None
    assert held.cores.tolist() == [2.0, 1.0, 1.0]


def test_an_exclusive_job_divides_its_nodes() -> None:
    workload = jobs((0.0, 3, 0.5, SECOND), exclusive=[1], tasks_per_node=[2])
    simulation = Simulation(workload, TREE, sharing="fair")
    simulation.advance(0.5)
    nodes, held = ranks_of_job(simulation.state, 0, Held(np.full(8, 2.0), np.full(8, 4.0)))
    assert nodes.tolist() == [0, 0, 1]
    assert held is not None
    assert [one.tolist() for one in held] == [[1.0, 1.0, 2.0], [2.0, 2.0, 4.0]]


def test_tasks_on_one_node_send_over_its_link_or_its_loopback(tmp_path: Path) -> None:
    assert ends(jobs((0.0, 2, 1.0, send(1e9)))) == [1.001]
    path = tmp_path / "loop.xml"
    path.write_text(
        PLATFORM.replace(
            'radical="0-7"', 'radical="0-7" core="2" loopback_bw="4GBps" loopback_lat="0"'
        )
    )
    assert ends(jobs((0.0, 2, 1.0, send(1e9))), read_cluster(path)) == [0.25]


def test_each_rank_computes_on_one_core_and_uses_the_cores_it_holds() -> None:
    assert ends(jobs((0.0, 1, 2.0, SECOND))) == [1.0]
    # Two ranks with one core for both take twice as long, if no core is free.
    assert ends(jobs((0.0, 2, 0.5, SECOND))) == [1.0]
    assert ends(jobs(*[(0.0, 2, 0.5, SECOND)] * 2)) == [2.0, 2.0]
    # All cores of a usage trace are those that the task holds.
    full = UsageTrace(ranks=(Usage(usage=np.array([1.0]), flops=np.array([1e9])),))
    assert ends(jobs((0.0, 1, 1.0, full), (0.0, 1, 1.0, SECOND))) == [1.0, 1.0]
    node = Simulation(jobs((0.0, 1, 1.0, full)), TREE, sharing="fair")
    node.advance(0.5)
    assert node.network is not None
    assert node.network._network.used()[:8].max() == 1e9


GPUS = Cluster.model_validate(
    {
        **TREE.model_dump(),
        "nodes": [{"name": "node", "count": 8, "cores": 4, "gpus": 2}],
        "network": {**TREE.model_dump()["network"], "gpu_speed": "1 Gflop/s"},
    }
)


def on_gpus(count: int, ranks: int) -> RankTasks:
    return RankTasks(
        tasks=(Gpu(gpus=count, flops=np.full(ranks, 2e9), inside=0.0, com=None),), ranks=ranks
    )


def test_tasks_use_the_gpus_they_hold() -> None:
    assert ends(jobs((0.0, 2, 1.0, on_gpus(1, 2)), gpus_per_task=[1]), GPUS) == [2.0]
    # Amounts of single GPUs are no ranks.
    parts = jobs((0.0, 2, 1.0, on_gpus(1, 2)), (0.0, 1, 1.0, None), gpus_per_task=[1, 0.5])
    assert ends(parts, GPUS) == [2.0, 3.0]
    with pytest.raises(ConfigError, match="job 1: a task needs 2 GPUs, and rank 0 holds 1 on"):
        ends(jobs((0.0, 2, 1.0, on_gpus(2, 2)), gpus_per_task=[1]), GPUS)
    exclusive = jobs((0.0, 1, 1.0, on_gpus(2, 1)), exclusive=[1])
    assert ends(exclusive, GPUS) == [2.0]


def test_a_job_with_other_numbers_of_ranks_and_tasks_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"job 1: .* 2 ranks cannot run on 3 tasks; ask for as many tasks as ranks",
    ):
        ends(jobs((0.0, 3, 1.0, send(1e9))))


def test_a_suspended_job_continues_on_its_cores() -> None:
    tiers = {
        "partitions": [{"name": "low", "default": True}, {"name": "high"}],
        "preemption": {"mode": "suspend", "partitions": {"high": {"tier": 2}}},
    }
    cluster = Cluster.model_validate({**TREE.model_dump(), **tiers})
    long = HomogeneousTask(cpu=4e9, com=0.0)
    workload = jobs(
        (0.0, 16, 1.0, long), (1.5, 16, 1.0, SECOND), partition=Category.of(["low", "high"])
    )
    assert ends(workload, cluster) == [5.0, 2.5]


def test_power_follows_the_cores_that_jobs_hold() -> None:
    # One of two cores: 80 W, and half of the way to 200 W, also while the job waits
    waiting = Sequence((Delay(0.5), HomogeneousTask(5e8, 0.0)))
    for profile in (SECOND, waiting):
        energy = Simulation(jobs((0.0, 1, 1.0, profile)), POWERED, sharing="fair").run().energy
        assert energy is not None
        assert energy.jobs["energy_j"].to_list() == [140.0]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = Workload.build(
        submit_s=[0, 0], nodes=[1, 1], walltime_s=[60, 60], runtime_s=[9, 9],
        chunks={"tasks": [4, 4], "cores_per_task": [1, 1]}, demands={"flops": [8e9, 4e9]},
    )  # fmt: skip
    write_workload(workload, tmp_path / "jobs.csv")
    (tmp_path / "tree.yaml").write_text(
        "nodes: [{name: node, count: 4, cores: 2}]\n"
        "network: {topology: star, bandwidth: 1 GB/s, core_speed: 1 Gflop/s}\n"
    )
    given = [str(tmp_path / "jobs.csv"), "--cluster", str(tmp_path / "tree.yaml")]
    with pytest.raises(SystemExit, match="0"):
        main(["simulate", *given, "--sharing", "fair", "--json"])
    assert '"makespan_s": 2.0' in capsys.readouterr().out
