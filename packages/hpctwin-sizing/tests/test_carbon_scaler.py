"""CarbonScaler: plans against all there are, and what it saves on a real intensity."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.examples import examples

from hpctwin import Cluster, Workload, simulate
from hpctwin.energy import Series
from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin_sizing import parse_sizing
from hpctwin_sizing.carbon_scaler import slot_sizes

DAY = [500, 400, 300, 200, 100, 100, 200, 300, 400, 500, 600, 600]


def series_of(values=DAY) -> Series:
    return Series.hourly(values, "g")


def job(hours: float, nodes: int = 1, **malleable: float | str) -> Workload:
    given = {"min_nodes": 1, "max_nodes": 4, "suspendable": 1} | malleable
    return Workload.build(
        submit_s=[0],
        runtime_s=[3600 * hours],
        nodes=[nodes],
        malleable={name: [value] for name, value in given.items()},
    )


def hours(result) -> list[tuple[float, float, int]]:
    found = result.stretches.select(pl.col("start_s") / 3600, pl.col("end_s") / 3600, "nodes")
    return list(found.iter_rows())


def test_with_linear_speedup_all_work_is_in_the_cleanest_slots():
    sizing = parse_sizing("carbonscaler:11h", series_of(), "oracle")
    result = simulate(job(8), 4, sizing=sizing)
    assert hours(result) == [(4, 6, 4)]


def test_with_a_falling_gain_work_is_spread_over_slots_by_what_each_node_adds_for_its_carbon():
    # The second node adds 0.4: at 100 that is as much for its carbon as the first at 250.
    sizing = parse_sizing("carbonscaler:6h", series_of(), "oracle")
    result = simulate(job(4.8, max_nodes=2, speedup="1/1.4"), 4, sizing=sizing)
    assert hours(result) == [(3, 4, 1), (4, 6, 2), (6, 7, 1)]


def test_without_slack_a_job_runs_at_once_and_on_more_nodes_only_if_it_must_not_wait():
    sizing = parse_sizing("carbonscaler:0h", series_of([100] * 12), "oracle")
    assert hours(simulate(job(3, max_nodes=1), 4, sizing=sizing)) == [(0, 3, 1)]


def test_a_job_that_may_not_be_suspended_begins_at_once_and_grows_when_it_is_clean():
    sizing = parse_sizing("carbonscaler:4h", series_of(), "oracle")
    result = simulate(job(9, suspendable=0, max_nodes=2), 4, sizing=sizing)
    assert hours(result)[0][0] == 0
    sizes = {int(start): nodes for start, _, nodes in hours(result)}
    assert sizes[0] == 1
    assert result.jobs["end_s"][0] <= 3600 * 13


def test_jobs_share_the_machine_by_submit_time():
    work = Workload.build(
        submit_s=[0, 1], runtime_s=[14400, 14400], nodes=[1, 1],
        malleable={"max_nodes": [4, 4], "suspendable": [1, 1]},
    )  # fmt: skip
    result = simulate(work, 4, sizing=parse_sizing("carbonscaler:8h", series_of(), "oracle"))
    # Both want all nodes from 4 to 5.
    assert hours(result) == [(4, 5, 4), (5, 6, 4)]
    assert result.stretches["job_id"].to_list() == [1, 2]


@st.composite
def plans(draw: st.DrawFn) -> tuple[float, np.ndarray, int, np.ndarray, np.ndarray]:
    slots, most = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    least = draw(st.integers(1, most))
    gains = sorted(draw(st.lists(st.integers(1, 8), min_size=most, max_size=most)), reverse=True)
    gains[:least] = [gains[0]] * least
    speeds = np.concatenate([[0.0], np.cumsum(gains)]) / 8
    speeds[1:least] = 0
    price = np.array(draw(st.lists(st.integers(1, 9), min_size=slots, max_size=slots)), float)
    length = np.array(draw(st.lists(st.sampled_from((1, 2, 4)), min_size=slots, max_size=slots)))
    left = draw(st.integers(1, 20)) / 4
    return left, speeds, least, length.astype(float), price


@settings(max_examples=examples(300))
@given(plan=plans())
def test_no_plan_does_as_much_work_for_less_where_gains_fall(plan) -> None:
    left, speeds, least, length, price = plan
    sizes = slot_sizes(left, speeds, least, length, price)
    choices = [0, *range(least, len(speeds))]

    def of(sizes) -> tuple[float, float]:
        held = np.asarray(sizes)
        return float(length @ speeds[held]), float((length * price) @ held)

    done, cost = of(sizes)
    every = [of(one) for one in itertools.product(choices, repeat=len(price))]
    assert done >= min(left, max(work for work, _ in every)) - 1e-9
    assert cost <= min(other for work, other in every if work >= done - 1e-9) + 1e-9


def test_what_a_sizing_is_called_and_what_it_has_wrong():
    assert parse_sizing("carbonscaler", series_of()).name == "carbonscaler:1d"
    assert parse_sizing("carbonscaler:6h", series_of()).name == "carbonscaler:6h"
    with pytest.raises(UnknownNameError, match="Did you mean 'carbonscaler'"):
        parse_sizing("carbonscalar", series_of())
    with pytest.raises(UnknownNameError, match="slack"):
        parse_sizing("carbonscaler:slak=2h", series_of())
    with pytest.raises(ConfigError, match="forecast"):
        parse_sizing("carbonscaler:6h", series_of(), "tea leaves")


def test_emissions_are_of_the_nodes_in_each_slot():
    machine = Cluster.uniform(4, active_w=1000, idle_w=0)
    sizing = parse_sizing("carbonscaler:11h", series_of(), "oracle")
    energy = simulate(job(8), machine, sizing=sizing, log=True).energy
    assert energy is not None
    assert energy.cost(series_of()) == pytest.approx(8 * 100)
    assert energy.job_costs(series_of()).to_list() == [pytest.approx(800)]
