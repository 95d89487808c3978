"""CarbonFlex and its oracle: what is planned, what of it comes true, and who comes first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.examples import examples

from hpctwin import Workload, simulate
from hpctwin.energy import Series
from hpctwin.errors import ConfigError
from hpctwin_sizing import CarbonFlex, CarbonOracle, Sizing, Slots, learnt, oracle_plan
from hpctwin_sizing.carbon_scaler import slot_sizes

DAY = [500, 400, 300, 200, 100, 100, 200, 300, 400, 500, 600, 600]
HOUR = 3600.0


def slots_of(values=DAY) -> Slots:
    return Slots(Series.hourly(values, "g"))


def work(*rows: tuple[float, float, int, int], speedup: str = "linear") -> Workload:
    """Jobs (submit and runtime in hours, nodes, most nodes)."""
    submit, runtime, nodes, most = zip(*rows, strict=True)
    return Workload.build(
        submit_s=HOUR * np.array(submit),
        runtime_s=HOUR * np.array(runtime),
        nodes=nodes,
        malleable={
            "min_nodes": [1] * len(rows),
            "max_nodes": most,
            "speedup": [speedup] * len(rows),
            "suspendable": [1] * len(rows),
        },
    )


def test_jobs_share_the_cleanest_slots_as_far_as_there_are_nodes():
    jobs = work((0, 4, 1, 4), (0, 4, 1, 4))
    plan = oracle_plan(jobs, 4, slots_of(), 8 * HOUR)
    assert plan.sizes[1][1].tolist() == [0, 0, 0, 0, 4]
    assert plan.sizes[2][1].tolist() == [0, 0, 0, 0, 0, 4]
    assert plan.used.tolist() == [0, 0, 0, 0, 4, 4]


def test_the_job_that_gains_more_from_a_node_gets_it():
    fast = work((0, 4, 1, 2))
    slow = work((0, 4, 1, 2), speedup="1/1.1")
    both = Workload.from_frame(
        fast.to_frame().vstack(slow.to_frame().with_columns(job_id=fast.to_frame()["job_id"] + 1))
    )
    plan = oracle_plan(both, 3, slots_of([100, 100, 300, 300, 300, 300]), 2 * HOUR)
    assert plan.sizes[1][1].tolist() == [2, 2]
    assert plan.sizes[2][1].tolist()[:2] == [1, 1]


def test_a_job_that_does_not_fit_before_the_deadline_has_a_day_more():
    plan = oracle_plan(work((0, 2, 1, 1), (0, 2, 1, 1)), 1, slots_of([100] * 24), 0)
    assert plan.used.sum() == 4
    assert max(len(sizes) for _, sizes in plan.sizes.values()) == 4


@st.composite
def cases(draw: st.DrawFn) -> tuple[Workload, int, Slots, float]:
    nodes = draw(st.integers(2, 6))
    row = st.tuples(
        st.sampled_from((0, 0, 0.5, 1, 3)),
        st.sampled_from((0.25, 1, 1.5, 4)),
        st.integers(1, 2),
        st.integers(2, nodes),
    )
    rows = draw(st.lists(row, min_size=1, max_size=6))
    curve = draw(st.sampled_from(("linear", "amdahl:0.1", "amdahl:0.5")))
    values = draw(st.lists(st.integers(1, 9), min_size=8, max_size=24))
    return work(*rows, speedup=curve), nodes, slots_of(values), HOUR * draw(st.integers(0, 12))


@settings(max_examples=examples(150))
@given(case=cases())
def test_a_plan_does_all_work_within_the_machine_and_comes_true(case) -> None:
    jobs, nodes, slots, slack_s = case
    plan = oracle_plan(jobs, nodes, slots, slack_s)
    assert plan.used.max() <= nodes
    held = np.zeros(len(plan.used), np.int64)
    for row, job_id in enumerate(jobs.job_id.tolist()):
        first, sizes = plan.sizes[job_id]
        assert slots.begin_s(first) >= jobs.submit_ms[row] / 1000
        held[first : first + len(sizes)] += sizes
        curve = jobs.malleable.speedup_of(row)
        speed = [float(curve.at(n) / curve.at(int(jobs.nodes[row]))) if n else 0.0 for n in sizes]
        assert sum(speed) * HOUR >= jobs.runtime_ms[row] / 1000 - 1e-3
    assert (held == plan.used).all()
    result = simulate(jobs, nodes, sizing=Sizing(CarbonOracle(slots, plan)))
    assert (result.jobs["state"] == "completed").all()
    for job_id, end_s in result.jobs.select("job_id", "end_s").iter_rows():
        first, sizes = plan.sizes[job_id]
        assert end_s <= slots.begin_s(first + len(sizes)) + 0.002


@settings(max_examples=examples(100))
@given(
    hours=st.sampled_from((0.5, 1, 2, 5)),
    values=st.lists(st.integers(1, 9), min_size=8, max_size=24),
    curve=st.sampled_from(("linear", "amdahl:0.1", "amdahl:0.5")),
)
def test_a_job_alone_is_planned_as_carbonscaler_plans_it(hours, values, curve) -> None:
    jobs, slots = work((0, hours, 1, 4), speedup=curve), slots_of(values)
    plan = oracle_plan(jobs, 4, slots, 6 * HOUR)
    count = slots.at((hours + 6) * HOUR)
    speeds = np.array([0.0, *(float(jobs.malleable.speedup_of(0).at(n)) for n in range(1, 5))])
    alone = slot_sizes(hours * HOUR, speeds, 1, np.full(count, HOUR), slots.ahead(0, count))
    found = np.zeros(count, np.int64)
    first, sizes = plan.sizes[1]
    found[first : first + len(sizes)] = sizes
    assert found.tolist() == alone.tolist()


def test_where_it_stands_as_in_the_past_as_much_of_the_machine_is_used():
    days = slots_of(DAY * 20)
    jobs = work(*((12 * day, 4, 1, 4) for day in range(10)))
    past = learnt(jobs, 4, days, 8 * HOUR)
    result = simulate(jobs, 4, sizing=Sizing(CarbonFlex(days, past, 8 * HOUR, nearest=1)))
    ideal = simulate(
        jobs, 4, sizing=Sizing(CarbonOracle(days, oracle_plan(jobs, 4, days, 8 * HOUR)))
    )
    assert result.stretches.equals(ideal.stretches)


def test_a_job_that_would_be_late_runs_whatever_was_learned():
    clean = slots_of([100, *[900] * 40, 100])
    past = learnt(work((0, 1, 1, 4)), 4, clean, 0)
    jobs = work((2, 3, 2, 4), (5.5, 4, 1, 1))
    result = simulate(jobs, 4, sizing=Sizing(CarbonFlex(clean, past, 6 * HOUR)))
    assert (result.jobs["turnaround_s"] <= result.jobs["walltime_s"] + 6 * HOUR).all()


def test_unsupported_learning_and_planning_is_reported():
    with pytest.raises(ConfigError, match="the workload has none"):
        learnt(work((0, 1, 1, 1))[:0], 4, slots_of(), 0)
    rigid = Workload.build(submit_s=[0], runtime_s=[60], nodes=[8])
    with pytest.raises(ConfigError, match="job 1 needs 8 nodes or more, but the cluster has 4"):
        oracle_plan(rigid, 4, slots_of(), 0)
