"""Jobs whose sizes are decided while they run: by hand, and the engine against the plain reference."""

from __future__ import annotations

import random
from contextlib import suppress
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from malleable_reference import FaultError, SizedSimulation, simulate_sized
from tests import strategies
from tests.by_hand import AFTER, cluster_of, edges
from tests.engine.examples import examples

from hpctwin import Cluster, Simulation, Workload, simulate
from hpctwin.errors import ConfigError, PolicyError, SimulationError
from hpctwin.model import State
from hpctwin_sizing import SizedJob, Sizes, SizeView, Sizing

Rows = list[tuple[float, float, int]]


def at_times(**plan: list[tuple[float, int]]) -> Sizing:
    """Job ``j1`` and so on: from which time on it is to have how many nodes."""
    wanted = {int(name[1:]): steps for name, steps in plan.items()}
    times = sorted({time for steps in wanted.values() for time, _ in steps})

    @Sizing
    def sizing(view: SizeView) -> Sizes:
        sizes = {}
        for job in view.jobs:
            due = [size for time, size in wanted[job.job_id] if time <= view.now_s]
            if due:
                sizes[job.job_id] = due[-1]
        later = [time for time in times if time > view.now_s]
        return Sizes(sizes, later[0] if later else None)

    return sizing


def stretches(result: Any, job: int = 1) -> Rows:
    """Start, end, nodes of a job."""
    found = result.stretches.filter(pl.col("job_id") == job)
    return list(found.select("start_s", "end_s", "nodes").iter_rows())


def one_job(runtime: float = 40, nodes: int = 2, **malleable: Any) -> Workload:
    given = {"min_nodes": 1, "max_nodes": 4, "suspendable": 1} | malleable
    return Workload.build(
        submit_s=[0],
        runtime_s=[runtime],
        nodes=[nodes],
        malleable={name: [value] for name, value in given.items()},
    )


# --- by hand -----------------------------------------------------------------------------------


def test_a_job_on_twice_its_nodes_takes_half_the_time_of_what_is_left():
    result = simulate(one_job(), 4, sizing=at_times(j1=[(0, 2), (10, 4)]))
    assert stretches(result) == [(0, 10, 2), (10, 25, 4)]
    assert result.jobs["end_s"].to_list() == [25]


def test_a_suspended_job_continues_with_its_remaining_work_after_its_overhead():
    sizing = at_times(j1=[(0, 2), (10, 0), (20, 1)])
    result = simulate(one_job(resize_s=3), 4, sizing=sizing)
    assert stretches(result) == [(0, 10, 2), (20, 83, 1)]
    job = result.jobs.row(0, named=True)
    assert (job["start_s"], job["wait_s"], job["turnaround_s"], job["nodes"]) == (0, 0, 83, 2)
    figures = result.summary()
    assert figures["suspensions"] == 1
    assert figures["suspended_s"] == 10
    assert figures["held_node_s"] == 20 + 63
    assert figures["wasted_node_s"] == 0


def test_interrupted_overhead_starts_again():
    sizing = at_times(j1=[(0, 2), (10, 4), (12, 2)])
    result = simulate(one_job(resize_s=5), 4, sizing=sizing)
    # Nothing is done from 10 to 12, nor up to 17.
    assert stretches(result) == [(0, 10, 2), (10, 12, 4), (12, 47, 2)]


def test_serial_work_does_not_get_shorter():
    work = one_job(runtime=100, nodes=1, speedup="amdahl:0.5")
    result = simulate(work, 4, sizing=at_times(j1=[(0, 4)]))
    # S(4) = 4 / (1 + 0.5 * 3) = 1.6
    assert stretches(result) == [(0, 62.5, 4)]


def test_a_table_says_the_speed_on_each_number_of_nodes_relative_to_its_own():
    result = simulate(one_job(speedup="1/1.6/2/2"), 4, sizing=at_times(j1=[(0, 1), (10, 3)]))
    # 10 s at 1 / 1.6 of its speed, then 33.75 s of work at 2 / 1.6.
    assert stretches(result) == [(0, 10, 1), (10, 37, 3)]


def test_work_left_is_rounded_up_to_the_millisecond_once_and_not_at_each_change():
    sizing = at_times(j1=[(0, 3), (1, 1), (2, 3), (3, 1), (4, 3)])
    result = simulate(one_job(runtime=10, nodes=1, speedup="1/1/1.7/2"), 4, sizing=sizing)
    # 2 * 1.7 + 2 s are done at 4 s; 4.6 / 1.7 = 2.70588...
    assert stretches(result)[-1] == (4, 6.706, 3)


def test_suspended_time_does_not_count_for_the_walltime_but_work_does():
    work = Workload.build(
        submit_s=[0], runtime_s=[30], walltime_s=[20], nodes=[1],
        malleable={"max_nodes": [2], "suspendable": [1]},
    )  # fmt: skip
    result = simulate(work, 2, sizing=at_times(j1=[(0, 1), (10, 0), (100, 2)]))
    assert stretches(result) == [(0, 10, 1), (100, 105, 2)]
    assert result.jobs["state"].to_list() == ["walltime"]
    endless = simulate(work, 2, sizing=at_times(j1=[(0, 1), (10, 0), (100, 2)]), overrun="continue")
    assert stretches(endless)[-1] == (100, 110, 2)


def test_a_job_that_waits_for_a_start_knows_of_the_first():
    work = Workload.build(
        submit_s=[0, 0], runtime_s=[40, 5], nodes=[2, 2],
        malleable={"min_nodes": [1, 2], "max_nodes": [4, 2], "suspendable": [1, 0]},
        dependencies=edges((1, 0, AFTER, 5)),
    )  # fmt: skip
    result = simulate(work, 4, sizing=at_times(j1=[(0, 2), (3, 0), (20, 2)], j2=[(0, 2)]))
    assert stretches(result, 2) == [(5, 10, 2)]


def test_a_job_that_is_cancelled_while_suspended_keeps_what_it_held():
    work = Workload.build(
        submit_s=[0], runtime_s=[40], nodes=[2], cancel_s=[15], malleable={"suspendable": [1]}
    )
    result = simulate(work, 4, sizing=at_times(j1=[(0, 2), (10, 0), (20, 2)]))
    assert stretches(result) == [(0, 10, 2)]
    assert result.jobs["state"].to_list() == ["cancelled"]
    assert result.summary()["held_node_s"] == 20
    assert result.series["used_nodes"].max() == 2


def test_energy_is_that_of_the_nodes_a_job_had():
    machine = Cluster.uniform(4, active_w=200, idle_w=100)
    sizing = at_times(j1=[(0, 2), (10, 0), (20, 4)])
    energy = simulate(one_job(), machine, sizing=sizing, log=True).energy
    assert energy is not None
    # 10 s on 2 nodes, 15 on 4; idle are 2 nodes for 10 s and 4 for 10.
    assert energy.jobs["energy_j"].to_list() == [200 * (20 + 60)]
    assert energy.total_j == pytest.approx(200 * 80 + 100 * 60)


def test_figures_over_time_are_of_the_nodes_that_were_held():
    result = simulate(one_job(), 4, sizing=at_times(j1=[(0, 2), (10, 0), (20, 4)]))
    rows = result.series.select("time_s", "queue_length", "queued_nodes", "used_nodes").rows()
    assert rows == [(0, 0, 0, 2), (10, 1, 2, 0), (20, 0, 0, 4), (35, 0, 0, 0)]
    assert result.summary()["utilization"] == pytest.approx(80 / 140)


def test_a_job_of_another_size_waits_until_its_nodes_are_clean():
    machine = cluster_of(nodes=[{"name": "n", "count": 4}], cleanup=5)
    sizing = at_times(j1=[(0, 2), (10, 4)])
    simulation = Simulation(one_job(resize_s=3), machine, sizing=sizing)
    simulation.advance(12)
    assert simulation.result().jobs["state"].to_list() == ["pending"]
    assert stretches(simulation.result()) == [(0, 10, 2)]
    result = simulation.run()
    assert stretches(result) == [(0, 10, 2), (15, 33, 4)]
    assert result.summary()["suspended_s"] == 5
    assert result.jobs["requeues"].to_list() == [0]


def test_nodes_that_a_job_gives_back_are_cleaned_before_another_job_has_them():
    machine = cluster_of(nodes=[{"name": "n", "count": 4}], cleanup=5)
    work = Workload.build(
        submit_s=[0, 10], runtime_s=[40, 20], nodes=[4, 2],
        malleable={"min_nodes": [2, 1], "max_nodes": [4, 4], "suspendable": [1, 0]},
    )  # fmt: skip
    seen = []

    @Sizing
    def share(view: SizeView) -> Sizes:
        seen.append((view.now_s, view.nodes, view.free_nodes, [job.job_id for job in view.jobs]))
        return Sizes({job.job_id: 4 // len(view.jobs) for job in view.jobs})

    result = simulate(work, machine, sizing=share)
    # Job 1 waits twice for its own nodes, and from 35 to 40 for those of job 2.
    assert stretches(result, 1) == [(0, 10, 4), (15, 40, 2), (45, 62.5, 4)]
    assert stretches(result, 2) == [(15, 35, 2)]
    assert seen[:3] == [(0, 4, 4, [1]), (10, 4, 0, [1, 2]), (15, 4, 4, [1, 2])]


def test_a_job_that_is_cancelled_while_its_nodes_are_cleaned_ends_when_they_are_clean():
    machine = cluster_of(nodes=[{"name": "n", "count": 4}], cleanup=5)
    work = Workload.build(
        submit_s=[0], runtime_s=[40], nodes=[2], cancel_s=[12], malleable={"suspendable": [1]}
    )
    result = simulate(work, machine, sizing=at_times(j1=[(0, 2), (10, 0), (20, 2)]))
    assert stretches(result) == [(0, 10, 2)]
    assert result.jobs.select("state", "end_s").rows() == [("cancelled", 15)]


# --- what cannot be ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ({1: 5}, "size is 5; it must be 1 to 4"),
        ({1: 2.5}, "must be a whole number"),
        ({7: 1}, "job 7 does not exist"),
        ({2: 0}, "may not be suspended"),
        ({2: 1}, "size is 1; it must be 2"),
        ([1], "failed|returned"),
    ],
)
def test_invalid_sizes_are_reported_with_job_and_time(sizes, why):
    work = Workload.build(
        submit_s=[0, 0], runtime_s=[40, 40], nodes=[2, 2],
        malleable={"min_nodes": [1, 2], "max_nodes": [4, 2], "suspendable": [1, 0]},
    )  # fmt: skip

    @Sizing
    def sizing(view: SizeView) -> Any:
        if view.now_s == 0:
            return Sizes({2: 2}, next_call_s=10)
        return Sizes(sizes) if isinstance(sizes, dict) else sizes

    with pytest.raises(PolicyError, match=f"'sizing' at 10 s.*({why})"):
        simulate(work, 4, sizing=sizing)


def test_a_sizing_that_leaves_jobs_waiting_forever_is_reported():
    with pytest.raises(SimulationError, match="1 pending job at 0 s"):
        simulate(one_job(), 4, sizing=Sizing(lambda view: None))


def test_a_job_that_may_not_stop_and_does_not_fit_is_an_error_of_the_sizing():
    work = Workload.build(
        submit_s=[0, 0], runtime_s=[40, 40], nodes=[2, 2],
        malleable={"min_nodes": [2, 1], "max_nodes": [4, 4]},
    )  # fmt: skip
    sizing = at_times(j1=[(0, 2), (5, 4)], j2=[(0, 2), (5, 1)])
    with pytest.raises(
        PolicyError, match="job 2 may not be suspended, but does not fit: it needs 1 more free node"
    ):
        simulate(work, 4, sizing=sizing)


@pytest.mark.parametrize(
    ("machine", "options", "why"),
    [
        ({}, {"policy": "fcfs+easy"}, "take backfill 'outside'"),
        ({"nodes": [{"name": "n", "count": 4, "speed": 2}]}, {}, "nodes of speed 1"),
    ],
)
def test_options_incompatible_with_a_sizing_are_rejected_by_name(machine, options, why):
    cluster = cluster_of(**{"nodes": [{"name": "n", "count": 4}], **machine})
    with pytest.raises(ConfigError, match=why):
        Simulation(one_job(), cluster, sizing=at_times(j1=[(0, 1)]), **options)


def test_what_is_not_done_with_a_sizing_is_reported(tmp_path):
    sizing = at_times(j1=[(0, 2)])
    simulation = Simulation(one_job(), 4, sizing=sizing)
    simulation.save(tmp_path / "it")
    with pytest.raises(SimulationError, match="give sizing="):
        Simulation.load(tmp_path / "it")
    Simulation(one_job(), 4).save(tmp_path / "plain")
    with pytest.raises(SimulationError, match="remove sizing="):
        Simulation.load(tmp_path / "plain", sizing=sizing)
    result = simulation.run()
    with pytest.raises(ConfigError, match="stretches"):
        result.accounts()


def test_a_suspended_job_in_a_file_continues_with_its_remaining_work(tmp_path):
    sizing = at_times(j1=[(0, 2), (10, 0), (20, 1)])
    simulation = Simulation(one_job(resize_s=3), 4, sizing=sizing)
    simulation.advance(12)
    simulation.save(tmp_path / "it")
    again = Simulation.load(tmp_path / "it", sizing=sizing)
    assert stretches(again.run()) == [(0, 10, 2), (20, 83, 1)]
    other = Simulation.load(tmp_path / "it", sizing=at_times(j1=[(0, 4)]))
    assert stretches(other.run()) == [(0, 10, 2), (20, 38, 4)]


def failing(*outages: tuple[int, float, float], nodes: int = 4, then: str = "requeue") -> Cluster:
    """Node, from when and for how long it is away."""
    told = [{"node": node, "start": start, "duration": length} for node, start, length in outages]
    return Cluster.uniform(nodes, failures={"outages": told, "on_failure": then})


def test_a_job_whose_node_fails_keeps_the_work_before_its_last_stretch():
    sizing = at_times(j1=[(0, 2), (10, 4), (15, 2)])
    result = simulate(one_job(resize_s=1), failing((0, 15, 100)), sizing=sizing)
    # 10 s are kept; what it did on four nodes from 11 to 15 is not; 30 s are left, behind 1 s of overhead.
    assert stretches(result) == [(0, 10, 2), (10, 15, 4), (15, 46, 2)]
    assert result.lost.rows() == [(1, 10, 15, 4)]
    figures = result.summary()
    assert figures["wasted_node_s"] == 20
    assert (figures["resizes"], figures["suspensions"]) == (1, 0)
    assert result.jobs["requeues"].to_list() == [1]


def test_a_job_that_was_never_stopped_starts_again_after_a_failure():
    sizing = at_times(j1=[(0, 4), (10, 3)])
    result = simulate(one_job(resize_s=1), failing((3, 10, 5)), sizing=sizing)
    assert stretches(result) == [(0, 10, 4), (10, 36.667, 3)]


def test_a_sizing_sees_the_nodes_that_are_up():
    seen = []

    @Sizing
    def sizing(view: SizeView) -> Sizes:
        seen.append((view.now_s, view.nodes, view.free_nodes, [job.size for job in view.jobs]))
        return Sizes({job.job_id: min(job.max_nodes, view.nodes) for job in view.jobs})

    result = simulate(one_job(), failing((0, 5, 5)), sizing=sizing)
    assert seen[:3] == [(0, 4, 4, [0]), (5, 3, 3, [0]), (10, 4, 1, [3])]
    assert stretches(result)[:3] == [(0, 5, 4), (5, 10, 3), (10, 26.25, 4)]


def test_a_job_that_fails_with_its_node_is_over_where_they_are_not_requeued():
    machine = failing((1, 10, 5), then="fail")
    result = simulate(one_job(), machine, sizing=at_times(j1=[(0, 2)]))
    assert stretches(result) == [(0, 10, 2)]
    assert result.jobs["state"].to_list() == ["node_failure"]


def test_with_endless_node_failures_a_sizing_that_starts_no_job_is_reported():
    machine = Cluster.uniform(4, failures={"mtbf": "30d", "mttr": "1h"})
    with pytest.raises(SimulationError, match="the sizing function starts none"):
        simulate(one_job(), machine, sizing=Sizing(lambda view: None))


# --- against the reference ---------------------------------------------------------------------


def drawn(seed: int) -> Sizing:
    """Sizes at random, the same for the same view; those that may not stop come first."""

    @Sizing
    def sizing(view: SizeView) -> Sizes | None:
        dice = random.Random(f"{seed} {view}")
        if not any(job.size for job in view.jobs) or dice.random() < 0.8:
            free = view.free_nodes + sum(job.size for job in view.jobs)
            sizes = {}
            must = [job for job in view.jobs if job.must_run]
            others = [job for job in view.jobs if not job.must_run]
            left = sum(job.size for job in must)
            dice.shuffle(others)
            for job in [*must, *others]:
                left -= job.size if job.must_run else 0
                size = _some(job, dice)
                if job.must_run and size + left > free:
                    size = job.size
                if dice.random() < 0.2:
                    size = job.size
                if size + left <= free or not job.must_run:
                    sizes[job.job_id] = size
                    free -= size
            return Sizes(sizes, view.now_s + dice.choice((0.5, 3, 7)))
        return Sizes(next_call_s=view.now_s + 4)

    return sizing


def _some(job: SizedJob, dice: random.Random) -> int:
    may_stop = job.size == 0 or job.suspendable
    sizes = list(range(job.min_nodes, job.max_nodes + 1))
    return dice.choice([0, *sizes] if may_stop and dice.random() < 0.4 else sizes)


@st.composite
def cases(draw: st.DrawFn, *, outages: bool = False, ruled: bool = False) -> dict[str, Any]:
    """Simulations with a sizing; ``ruled``: with limits, maintenance and resources."""
    cluster = draw(
        strategies.clusters(max_nodes=9, resources=ruled, maintenance=ruled, outages=outages)
    )
    nodes = [group.model_copy(update={"speed": 1.0}) for group in cluster.nodes]
    cleanup = draw(st.sampled_from((0, 0, 0.5, 4)))
    cluster = cluster.model_copy(update={"nodes": tuple(nodes), "cleanup": cleanup})
    if not ruled:
        free = [one.model_copy(update={"max_jobs_per_user": None}) for one in cluster.partitions]
        cluster = cluster.model_copy(update={"partitions": tuple(free)})
    workload = draw(strategies.workloads(cluster, max_jobs=10, resources=ruled))
    size = len(workload)
    width = workload.nodes
    malleable = {
        "min_nodes": np.maximum(1, width - strategies.numbers(draw, size, 0, 3)),
        "max_nodes": width + strategies.numbers(draw, size, 0, 4),
        "suspendable": strategies.numbers(draw, size, 0, 1),
        "resize_s": strategies.numbers(draw, size, 0, 2),
        "speedup": [
            ("linear", "amdahl:0.1", "amdahl:0.35", None)[i]
            for i in strategies.numbers(draw, size, 0, 3)
        ],
    }
    frame = workload.to_frame().with_columns(
        **{name: pl.Series(values) for name, values in malleable.items()}
    )
    return {
        "workload": Workload.from_frame(frame),
        "cluster": cluster,
        # Which nodes of a pool "spread" takes is not said, and so not who fails with one.
        "placement": draw(st.sampled_from(("first_fit", "best_fit", "spread")[: 3 - outages])),
        "overrun": draw(st.sampled_from(("terminate", "continue"))),
        "on_dependency_failure": draw(st.sampled_from(("cancel", "hold"))),
        "sizing": drawn(draw(st.integers(0, 99))),
    }


def engine_of(case: dict[str, Any], **more: Any) -> Simulation:
    options = dict(case)
    placement = options.pop("placement").replace("_", "-")
    return Simulation(policy=f"fcfs+outside@{placement}", **options, **more)


Outcome = dict[int, tuple[Any, ...]]


def said(simulation: SizedSimulation) -> Outcome:
    """State, eligible, and stretches of each row: start, end, nodes."""
    found = {}
    for job in simulation.jobs:
        past = [(one.start, one.end, len(one.nodes)) for one in simulation.past[job.row]]
        if job.state == State.RUNNING:
            past.append((job.start, None, len(job.nodes)))
        found[job.row] = (job.state.label, -1 if job.eligible is None else job.eligible, past)
    return found


def outcome(simulation: Simulation) -> Outcome:
    result = simulation.result()
    assert result.stretches is not None
    rows = {job_id: row for row, job_id in enumerate(simulation.workload.job_id.tolist())}
    past: dict[int, list[Any]] = {row: [] for row in rows.values()}
    for job_id, start, end, nodes in result.stretches.iter_rows():
        over = None if end is None else round(1000 * end)
        past[rows[job_id]].append((round(1000 * start), over, nodes))
    eligible = simulation.column("eligible").tolist()
    states = result.jobs["state"].to_list()
    return {row: (states[row], eligible[row], past[row]) for row in past}


def places(simulation: Simulation) -> dict[tuple[int, int], set[int]]:
    """The nodes of each stretch, by row and start."""
    result = simulation.result()
    assert result.node_map is not None
    rows = {job_id: row for row, job_id in enumerate(simulation.workload.job_id.tolist())}
    found: dict[tuple[int, int], set[int]] = {}
    for job_id, start, _, first, count in result.node_map.iter_rows():
        found.setdefault((rows[job_id], round(1000 * start)), set()).update(
            range(first, first + count)
        )
    return found


def both(case: dict[str, Any], **options: Any) -> tuple[Simulation, SizedSimulation] | None:
    """The engine's and the reference's, ended the same; None where both find a fault of the sizing."""
    try:
        reference = simulate_sized(**case)
    except FaultError:
        with pytest.raises(PolicyError, match="may not be suspended"):
            engine_of(case).advance()
        return None
    simulation = engine_of(case, **options)
    simulation.advance()
    assert outcome(simulation) == said(reference)
    return simulation, reference


def check_it_goes_on_the_same_when_forked_and_saved(case: dict[str, Any], times: list[int]) -> None:
    """At each of some times, s."""
    whole, parts = engine_of(case), engine_of(case)
    try:
        whole.advance()
    except PolicyError:
        return
    with TemporaryDirectory() as folder:
        for time in sorted(times):
            parts.advance(time)
            left = parts.fork()
            left.save(Path(folder) / "it")
            parts.advance(time + 20)
            parts = Simulation.load(Path(folder) / "it", sizing=case["sizing"])
    parts.advance()
    assert outcome(parts) == outcome(whole)
    assert places(parts) == places(whole)


@settings(max_examples=examples(200))
@given(case=cases())
def test_the_engine_does_what_the_reference_does(case: dict[str, Any]) -> None:
    ran = both(case)
    if ran is None:
        return
    simulation, reference = ran
    if case["placement"] != "spread":
        at = places(simulation)
        for row, past in reference.past.items():
            for one in past:
                assert at[row, one.start] == set(one.nodes) or one.start == one.end


@settings(max_examples=examples(200))
@given(case=cases(outages=True))
def test_with_node_failures_the_engine_equals_the_reference(case: dict[str, Any]) -> None:
    ran = both(case)
    if ran is None:
        return
    simulation, reference = ran
    at, vain = places(simulation), set()
    for row, past in reference.past.items():
        for number, one in enumerate(past):
            assert at[row, one.start] == set(one.nodes) or one.start == one.end
            # A job that ended with its node does not wait again.
            if (
                number in reference.in_vain[row]
                and reference.machine.cluster.failures.on_failure == "requeue"
            ):
                vain.add((simulation.workload.job_id[row], one.start / 1000, one.end / 1000))
    lost = simulation.result().lost
    assert {row[:3] for row in lost.rows()} == vain


@settings(max_examples=examples(60))
@given(case=cases(outages=True), times=st.lists(st.integers(0, 120), min_size=1, max_size=2))
def test_with_node_failures_it_continues_identically_when_forked_or_saved(
    case: dict[str, Any], times: list[int]
) -> None:
    check_it_goes_on_the_same_when_forked_and_saved(case, times)


@settings(max_examples=examples(150))
@given(case=cases())
def test_work_is_conserved_and_sizes_are_within_bounds(case: dict[str, Any]) -> None:
    simulation = engine_of(case)
    # What was done up to a fault of the sizing is as good.
    with suppress(PolicyError):
        simulation.advance()
    workload = simulation.workload
    malleable = workload.malleable
    used: dict[int, list[tuple[int, int]]] = {}
    now = int(simulation.state.clock.now)
    ran = {
        row: (state, [(start, now if end is None else end, held) for start, end, held in past])
        for row, (state, _, past) in outcome(simulation).items()
    }
    for row, (state, past) in ran.items():
        nodes = int(workload.nodes[row])
        least, most, idle, curve = nodes, nodes, 0, None
        if malleable is not None:
            least, most = int(malleable.min_nodes[row]), int(malleable.max_nodes[row])
            idle, curve = int(malleable.resize_ms[row]), malleable.speedup_of(row)
        done, rate = Fraction(0), Fraction(1)
        for number, (start, end, held) in enumerate(past):
            assert least <= held <= most
            rate = Fraction(1) if curve is None else curve.at(held) / curve.at(nodes)
            done += max(0, end - start - (idle if number else 0)) * rate
        if state in ("completed", "failed", "walltime"):
            whole = int(workload.runtime_ms[row])
            if case["overrun"] == "terminate":
                whole = min(whole, int(workload.walltime_ms[row]))
            assert whole <= done < whole + max(rate, 1)
    for (row, start), held in places(simulation).items():
        (end,) = [e for s, e, _ in ran[row][1] if s == start]
        for node in held:
            used.setdefault(node, []).append((start, end))
    for spans in used.values():
        spans.sort()
        for (_, end), (start, _) in pairwise(spans):
            assert end <= start


@settings(max_examples=examples(100))
@given(case=cases(), times=st.lists(st.integers(0, 120), min_size=1, max_size=3))
def test_stopped_and_forked_at_any_time_it_continues_identically(
    case: dict[str, Any], times: list[int]
) -> None:
    whole, parts = engine_of(case), engine_of(case)
    try:
        whole.advance()
    except PolicyError:
        return
    for time in sorted(times):
        parts.advance(time)
        parts, left = parts.fork(), parts
        left.advance(time + 20)
    parts.advance()
    assert outcome(parts) == outcome(whole)


@settings(max_examples=examples(60))
@given(case=cases(), times=st.lists(st.integers(0, 120), min_size=1, max_size=2))
def test_saved_at_any_time_it_continues_identically(case: dict[str, Any], times: list[int]) -> None:
    whole, parts = engine_of(case), engine_of(case)
    try:
        whole.advance()
    except PolicyError:
        return
    with TemporaryDirectory() as folder:
        for time in sorted(times):
            parts.advance(time)
            parts.save(Path(folder) / "it")
            parts = Simulation.load(Path(folder) / "it", sizing=case["sizing"])
    parts.advance()
    assert outcome(parts) == outcome(whole)
    assert places(parts) == places(whole)


def as_first_fit(view: SizeView) -> Sizes:
    """Each job in order on the nodes it asks for, if so many are free."""
    free, sizes = view.free_nodes, {}
    for job in view.jobs:
        if not job.size and job.nodes <= free:
            sizes[job.job_id] = job.nodes
            free -= job.nodes
    return Sizes(sizes)


@settings(max_examples=examples(100))
@given(work=strategies.simple_workloads(8, 30))
def test_rigid_jobs_run_as_without_a_sizing(work: Workload) -> None:
    sized = simulate(work, 8, sizing=Sizing(as_first_fit))
    plain = simulate(work, 8, "fcfs+first-fit", track_nodes=True)
    assert sized.jobs.equals(plain.jobs)
    assert sized.node_map is not None
    assert plain.node_map is not None
    assert sized.node_map.equals(plain.node_map)
    same = {name: value for name, value in plain.summary().items() if name != "engine_s"}
    figures = sized.summary()
    left = {name: figures[name] for name in same if name not in ("policy", "instants")}
    assert left == {name: value for name, value in same.items() if name in left}
