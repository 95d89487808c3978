"""What simulations with power states promise, on random platforms and workloads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hpctwin import Workload, make_policy, simulate
from hpctwin.energy import Energy
from hpctwin.energy.power.states import group_of_node, node_watts
from hpctwin.model import Cluster
from hpctwin.policies import PowerPolicy
from tests.energy.powered import (
    NODES,
    energy_of,
    platforms,
    power_policies,
    powered_simulation,
    uniform,
)
from tests.strategies import simple_workloads

BACKFILLS = ("none", "first-fit", "easy", "conservative")
PLAIN = {"uniform": Cluster.uniform(NODES)}


def spans(energy: Energy) -> dict[int, list[tuple[int, int, str]]]:
    """Start, end (ms) and state of each node's past, in order of time."""
    assert energy.log is not None
    found = defaultdict(list)
    for node, state, start, end in energy.log.T.tolist():
        found[node].append((start, end, energy.states[state]))
    return {node: sorted(rows) for node, rows in found.items()}


def starts(energy: Energy) -> list[float | None]:
    return energy.jobs.sort("job_id")["start_s"].to_list()


@given(
    platform=platforms(),
    workload=simple_workloads(nodes=NODES, max_jobs=20),
    power=power_policies(),
    backfill=st.sampled_from(BACKFILLS),
)
def test_every_simulation_comes_to_its_end(
    platform: Cluster, workload: Workload, power: PowerPolicy, backfill: str
) -> None:
    simulation = powered_simulation(workload, platform, "fcfs", backfill, power=power)
    assert simulation.advance(instants=5000) == "done"
    assert simulation.done


@given(
    platform=platforms(),
    workload=simple_workloads(nodes=NODES, max_jobs=20),
    power=power_policies(),
    backfill=st.sampled_from(BACKFILLS),
)
def test_times_of_a_node_sum_to_the_span_and_energies_to_the_total_to_the_joule(
    platform: Cluster, workload: Workload, power: PowerPolicy, backfill: str
) -> None:
    simulation = powered_simulation(workload, platform, "fcfs", backfill, power=power, log=True)
    simulation.run()
    energy = simulation.result().energy
    begin_ms, end_ms = (round(1000 * time) for time in (energy.begin_s, energy.now_s))
    assert begin_ms == workload.submit_ms.min(initial=0 if not len(workload) else 1 << 60)
    ends = simulation.result().jobs.filter(pl.col("start_s").is_not_null())["end_s"]
    assert end_ms == round(1000 * (ends.max() or simulation.now_s))
    assert (energy.spent_ms.sum(axis=0) == end_ms - begin_ms).all()
    # The log tells the same story span by span.
    watts = node_watts(platform)
    total = 0.0
    for node, rows in spans(energy).items():
        assert rows[0][0] == begin_ms
        assert rows[-1][1] == end_ms
        assert all(one[1] == other[0] for one, other in pairwise(rows))
        for start, end, state in rows:
            total += (end - start) / 1000 * watts[energy.states.index(state), node]
    assert energy.total_j == pytest.approx(total, abs=1e-6)
    assert energy.jobs["energy_j"].sum() == pytest.approx(energy.node_j[1].sum(), abs=1e-6)


@given(
    platform=platforms(),
    workload=simple_workloads(nodes=NODES, max_jobs=20),
    power=power_policies(),
    backfill=st.sampled_from(BACKFILLS),
)
def test_a_node_computes_exactly_while_a_job_is_on_it_and_no_two_jobs_share_one(
    platform: Cluster, workload: Workload, power: PowerPolicy, backfill: str
) -> None:
    energy = energy_of(workload, platform, "fcfs", backfill, power=power, log=True)
    assert energy.jobs["state"].is_in(["completed", "walltime"]).all()
    held = defaultdict(list)
    for row in energy.node_map.iter_rows(named=True):
        if row["end_s"] > row["start_s"]:
            for node in range(row["first_node"], row["first_node"] + row["count"]):
                held[node].append((round(1000 * row["start_s"]), round(1000 * row["end_s"])))
    for node, rows in spans(energy).items():
        jobs = merged(held[node])
        assert jobs == merged([(s, e) for s, e, state in rows if state == "computing"])
    for rows in held.values():
        rows.sort()
        assert all(one[1] <= other[0] for one, other in pairwise(rows))


def merged(rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans that touch made one."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(rows):
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


@given(
    platform=platforms(),
    workload=simple_workloads(nodes=NODES, max_jobs=20),
    power=power_policies(("psus", "psas-auto", "psas-ipm")),
)
def test_transitions_last_as_long_as_the_platform_says_and_follow_the_graph(
    platform: Cluster, workload: Workload, power: PowerPolicy
) -> None:
    energy = energy_of(workload, platform, "fcfs", "easy", power=power, log=True)
    end_ms = int(energy.spent_ms[:, 0].sum())
    for node, rows in spans(energy).items():
        group = list(group_of_node(platform))[node]
        for start, end, state in rows:
            kind, _, name = state.partition(":")
            if not name or end == end_ms:
                continue
            # Rows of the log are named as those of the first group with such a depth.
            depth = (energy.states.index(state) - 2) // 3
            sleep = group.sleep[depth]
            if kind == "switching_off":
                assert end - start == 1000 * sleep.switch_off.time
            elif kind == "switching_on":
                assert end - start == 1000 * sleep.switch_on.time


@pytest.mark.parametrize("backfill", BACKFILLS)
@given(workload=simple_workloads(nodes=NODES, max_jobs=20), power=power_policies())
def test_without_transition_times_all_power_policies_give_the_plain_schedule(
    backfill: str, workload: Workload, power: PowerPolicy
) -> None:
    plain = simulate(workload, PLAIN["uniform"], "fcfs", backfill).jobs.sort("job_id")
    energy = energy_of(workload, uniform(off_s=0, on_s=0), "fcfs", backfill, power=power)
    assert starts(energy) == plain["start_s"].to_list()


@pytest.mark.parametrize("backfill", BACKFILLS)
@given(
    workload=simple_workloads(nodes=NODES, max_jobs=20),
    kind=st.sampled_from(("none", "psus", "psas-auto", "psas-ipm")),
)
def test_with_an_endless_timeout_all_power_policies_give_the_plain_schedule(
    backfill: str, workload: Workload, kind: str
) -> None:
    plain = simulate(workload, PLAIN["uniform"], "fcfs", backfill).jobs.sort("job_id")
    energy = energy_of(workload, uniform(), "fcfs", backfill, power=PowerPolicy(kind))
    assert starts(energy) == plain["start_s"].to_list()


@given(
    workload=simple_workloads(nodes=NODES, max_jobs=15),
    timeout=st.sampled_from((0, 3, 10)),
    at=st.integers(0, 80),
    kind=st.sampled_from(("psas-auto", "psas-ipm")),
)
def test_psas_never_starts_the_head_later_than_psus_on_the_same_state(
    workload: Workload, timeout: int, at: int, kind: str
) -> None:
    simulation = powered_simulation(
        workload, uniform(), "fcfs", "none", power=PowerPolicy("psus", timeout)
    )
    simulation.advance(at)
    waiting = simulation.snapshot()["waiting"]
    assume(waiting)
    head = int(np.flatnonzero(workload.job_id == min(waiting, key=order_of(workload)))[0])
    unaware = simulation.fork(arrivals=False).run_until_started(head)
    aware = simulation.fork(
        make_policy(simulation.policy, power=PowerPolicy(kind, timeout)), arrivals=False
    )
    start = aware.run_until_started(head)
    assert start is not None
    assert unaware is not None
    assert start <= unaware


def order_of(workload: Workload) -> Callable[[int], tuple[int, int]]:
    submit = dict(zip(workload.job_id.tolist(), workload.submit_ms.tolist(), strict=True))
    return lambda job: (submit[job], job)


@given(
    workload=simple_workloads(nodes=NODES, max_jobs=20),
    power=power_policies(),
    backfill=st.sampled_from(BACKFILLS),
    random=st.randoms(use_true_random=False),
)
def test_the_order_of_a_workloads_rows_does_not_matter(
    workload: Workload, power: PowerPolicy, backfill: str, random: object
) -> None:
    rows = list(range(len(workload)))
    random.shuffle(rows)  # type: ignore[attr-defined]
    one = energy_of(workload, uniform(), "fcfs", backfill, power=power)
    other = energy_of(workload.take(np.array(rows)), uniform(), "fcfs", backfill, power=power)
    assert starts(one) == starts(other)
    assert one.total_j == other.total_j


@given(
    platform=platforms(),
    workload=simple_workloads(nodes=NODES, max_jobs=15),
    power=power_policies(),
    stops=st.lists(st.integers(0, 120), max_size=5),
)
def test_advancing_in_pieces_and_forking_give_the_same_energy_as_one_run(
    platform: Cluster, workload: Workload, power: PowerPolicy, stops: list[int]
) -> None:
    whole = energy_of(workload, platform, power=power)
    pieces = powered_simulation(workload, platform, power=power)
    for stop in sorted(stops):
        pieces.advance(stop)
        pieces = pieces.fork()
    pieces.run()
    assert starts(pieces.result().energy) == starts(whole)
    last = max(stops, default=0)
    if whole.jobs["end_s"].max() >= last:  # else the clock went on without jobs
        assert (pieces.result().energy.spent_ms == whole.spent_ms).all()


@given(
    platform=platforms(groups=1),
    workload=simple_workloads(nodes=NODES, max_jobs=15),
    timeout=st.sampled_from((0, 3, 10)),
    at=st.integers(0, 80),
)
def test_backfilling_never_delays_the_head_when_transitions_are_planned_with(
    platform: Cluster, workload: Workload, timeout: int, at: int
) -> None:
    honest = workload.replace(
        runtime_ms=np.maximum(workload.runtime_ms, 1),
        walltime_ms=np.maximum(workload.runtime_ms, 1),
    )
    simulation = powered_simulation(honest, platform, power=PowerPolicy("psas-ipm", timeout))
    simulation.advance(at)
    waiting = simulation.snapshot()["waiting"]
    assume(waiting)
    head = int(np.flatnonzero(honest.job_id == min(waiting, key=order_of(honest)))[0])
    alone = simulation.fork(
        make_policy(simulation.policy, "none"), arrivals=False
    ).run_until_started(head)
    backfilled = simulation.fork(arrivals=False).run_until_started(head)
    assert alone is not None
    assert backfilled is not None
    assert backfilled <= alone
