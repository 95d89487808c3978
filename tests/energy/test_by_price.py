"""Switching nodes off sooner while energy is dear."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Workload, generate
from hpctwin.energy import Series, price_control
from hpctwin.energy.power.control import _exceeded_for
from hpctwin.energy.power.states import state_names
from hpctwin.errors import ConfigError
from hpctwin.model import Cluster
from hpctwin.policies import PowerPolicy
from tests.energy.powered import NODES, energy_of, uniform
from tests.strategies import simple_workloads

ORDERS = PowerPolicy("orders")


def controlled(workload: Workload, platform: Cluster, series: Series, **options: float):
    control = price_control(series, **options)
    return energy_of(workload, platform, power=ORDERS, control=control, log=True)


@given(
    workload=simple_workloads(nodes=NODES, max_jobs=12),
    values=st.lists(st.integers(0, 5), min_size=1, max_size=6),
)
def test_every_job_is_done_whatever_the_prices(workload: Workload, values: list[int]) -> None:
    series = Series.hourly(values, "EUR", step_s=7.0)
    energy = controlled(workload, uniform(), series, timeout_s=20.0, dear_timeout_s=0.0)
    assert set(energy.jobs["state"]) <= {"completed", "walltime"}


@given(workload=simple_workloads(nodes=NODES, max_jobs=12))
def test_a_price_that_never_changes_is_a_timeout(workload: Workload) -> None:
    dear = controlled(workload, uniform(), Series.hourly([3.0], "EUR"), timeout_s=10.0, dear=1.0)
    at_once = controlled(workload, uniform(), Series.hourly([9.0], "EUR"), timeout_s=0.0)
    assert dear.total_j == at_once.total_j


def test_idle_nodes_switch_off_at_once_in_expensive_hours_and_stay_on_in_cheap_ones() -> None:
    platform = Cluster.uniform(
        4, active_w=100, idle_w=50, sleep_w=1, off_s=1, off_w=50, on_s=1, on_w=50
    )
    # Jobs end in the first hour (cheap) and in the third (dear), a second late since nodes slept.
    workload = Workload.build(
        submit_s=[0, 7200, 9000], runtime_s=[600] * 3, walltime_s=[600] * 3, nodes=[4] * 3
    )
    series = Series.hourly([1.0, 1.0, 9.0, 9.0], "EUR")
    energy = controlled(workload, platform, series, timeout_s=1800.0)
    assert energy.log is not None
    names = state_names(platform)
    began = {
        int(start) / 1000
        for _, row, start, _ in energy.log.T
        if names[row].startswith("switching_off")
    }
    assert began == {600 + 1800, 7801}


def test_on_a_week_with_two_prices_it_costs_less_than_either_timeout() -> None:
    platform = Cluster.uniform(
        32, active_w=200, idle_w=150, sleep_w=5, off_s=60, off_w=150, on_s=300, on_w=200
    )
    workload = generate("poisson", jobs=300, nodes=32, seed=2)
    series = Series.hourly([1.0] * 12 + [20.0] * 12, "EUR")
    mixed = controlled(workload, platform, series, timeout_s=3600.0, dear_timeout_s=0.0)
    long = controlled(workload, platform, series, timeout_s=3600.0, dear_timeout_s=3600.0)
    assert mixed.cost(series) < long.cost(series)


@given(values=st.lists(st.integers(0, 9), min_size=1, max_size=12), share=st.floats(0, 1))
def test_energy_is_expensive_for_at_most_that_share(values: list[int], share: float) -> None:
    series = Series.hourly(values, "EUR")
    limit = _exceeded_for(series, share)
    assert np.mean(series.values > limit) <= share + 1e-9


@pytest.mark.parametrize("options", [{"timeout_s": -1.0}, {"timeout_s": 1.0, "dear": 2.0}])
def test_a_number_out_of_range_is_reported_by_name(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="price_control"):
        price_control(Series.hourly([1.0], "EUR"), **options)
