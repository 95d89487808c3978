"""Prices and carbon intensities over time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Workload
from hpctwin.energy import Series, cheapest_start_times
from hpctwin.energy.power.states import node_watts
from hpctwin.errors import ConfigError
from hpctwin.policies import PowerPolicy
from tests.energy.powered import NODES, energy_of, platforms, power_policies, uniform
from tests.energy.test_cases import jobs
from tests.strategies import simple_workloads

PRICES = st.lists(st.integers(-20, 100), min_size=2, max_size=6)


def of(values: list[int], step_s: float = 10) -> Series:
    return Series.hourly(np.array(values) * 3.6e6, "EUR", step_s=step_s)


def write(folder: Path, text: str) -> Path:
    path = folder / "series.csv"
    path.write_text(text)
    return path


def test_units_are_read_off_the_column_and_dates_aligned(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "Datetime (UTC),Zone,Price (EUR/MWh)\n2024-01-01 00:00:00+00:00,DE,100\n"
        "2024-01-01 01:00:00+00:00,DE,200\n2024-01-01 02:00:00+00:00,DE,300\n",
    )
    series = Series.read(path)
    assert (series.unit, series.period_s, series.start_epoch_s) == ("EUR", 10_800, 1_704_067_200)
    assert series.per_kwh.tolist() == pytest.approx([0.1, 0.2, 0.3])
    moved, how = series.aligned(1_704_067_200 + 5400)
    assert how == "date"
    assert moved.at([0, 1799, 1800, 5400, 9000]) * 3.6e9 == pytest.approx([200, 200, 300, 100, 200])
    assert series.aligned(0.0)[1] == "start"
    assert series.aligned(None)[1] == "start"


def test_a_time_zone_is_respected(tmp_path: Path) -> None:
    path = write(
        tmp_path, "t,price (EUR/kWh)\n2024-01-01T01:00+01:00,1\n2024-01-01T02:00+01:00,2\n"
    )
    assert Series.read(path).start_epoch_s == 1_704_067_200


@pytest.mark.parametrize(
    ("head", "unit", "per_kwh"),
    [
        ("Day-ahead Price [EUR/MWh]", "EUR", 0.001),
        ("EUR / MWh", "EUR", 0.001),
        ("date/time EUR/MWh", "EUR", 0.001),
        ("price (COP/Wh)", "COP", 1000),
        ("GBP/GWh", "GBP", 1e-6),
        ("carbon (kg CO2/kWh)", "g", 1000),
        ("Carbon intensity tCO2eq/MWh", "g", 1000),
        ("intensity [lbs CO2 / MWh]", "g", 0.45359237),
        ("Carbon Intensity gCO₂eq/kWh (direct)", "g", 1),
        ("avg_CI", "g", 1),
    ],
)
def test_a_head_states_the_unit_in_any_common_notation(
    head: str, unit: str, per_kwh: float, tmp_path: Path
) -> None:
    series = Series.read(write(tmp_path, f"time,{head}\n0,1\n1,1\n"))
    assert series.unit == unit
    assert series.per_kwh.tolist() == pytest.approx([per_kwh] * 2)


@pytest.mark.parametrize("head", ["price", "value", "EUR/MWhe", "price per MWh", "CO2/kWh"])
def test_a_head_without_a_known_unit_is_an_error(head: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"'{head}': the unit of the values is unknown; state"):
        Series.read(write(tmp_path, f"time,{head}\n0,1\n1,2\n"))


def test_price_and_carbon_of_one_file_are_not_confused(tmp_path: Path) -> None:
    both = write(tmp_path, "time,Price (EUR/kWh),Carbon intensity (g/kWh)\n0,1,400\n1,2,500\n")
    assert Series.read(both, what="carbon").per_kwh.tolist() == pytest.approx([400, 500])
    assert Series.read(both, what="price").per_kwh.tolist() == pytest.approx([1, 2])
    price = write(tmp_path, "time,Price (EUR/kWh)\n0,1\n1,2\n")
    with pytest.raises(ConfigError, match="values are in 'EUR'; give a file with a carbon"):
        Series.read(price, what="carbon")
    carbon = write(tmp_path, "time,gCO2/kWh\n0,1\n1,2\n")
    with pytest.raises(ConfigError, match="values are in 'g'; give a file with a price"):
        Series.read(carbon, what="price")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("time,price\n0,1\n", "two rows"),
        ("time,price\n0,1\n0,2\n", "row 3: 0 is not after 0"),
        ("time,price\n0,1\n10,dear\n", "row 3, 'price': 'dear'"),
        ("time,price\nnoon,1\nnight,2\n", "row 2, 'time': 'noon'"),
        ("time,a,b\n0,1,2\n1,1,2\n", "which column"),
        ("", "CSV"),
    ],
)
def test_a_bad_series_is_named_by_row_and_column(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        Series.read(write(tmp_path, text))


def test_a_missing_column_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'dear'.*'price'"):
        Series.read(write(tmp_path, "time,price\n0,1\n1,2\n"), "dear")


@given(
    platform=platforms(),
    workload=simple_workloads(nodes=NODES, max_jobs=10),
    power=power_policies(),
    prices=PRICES,
)
def test_cost_is_the_energy_of_each_second_at_its_price(
    platform: object, workload: Workload, power: PowerPolicy, prices: list[int]
) -> None:
    energy = energy_of(workload, platform, power=power, log=True)  # type: ignore[arg-type]
    series = of(prices)
    cost = 0.0
    watts = node_watts(energy.cluster)
    for node, state, start, end in energy.spans().T.tolist():
        # A job may end within a second, on nodes of another speed.
        for second in range(start // 1000, -(-end // 1000)):
            ms = min(end, 1000 * second + 1000) - max(start, 1000 * second)
            cost += watts[state, node] * prices[second // 10 % len(prices)] * ms / 1000
    assert energy.cost(series) == pytest.approx(cost, abs=1e-6)
    states = energy.state_costs(series)
    assert energy.job_costs(series).sum() == pytest.approx(states[1], abs=1e-6)


@given(
    prices=PRICES,
    submit=st.integers(0, 100),
    length=st.integers(1, 70),
    max_delay=st.integers(0, 80),
)
def test_no_second_within_the_wait_is_cheaper_than_the_chosen_beginning(
    prices: list[int], submit: int, length: int, max_delay: int
) -> None:
    series = of(prices)
    (begin,) = cheapest_start_times(
        np.array([float(submit)]), np.array([float(length)]), np.array([float(max_delay)]), series
    )
    assert submit <= begin <= submit + max_delay
    every = np.arange(submit, submit + max_delay + 1.0)
    costs = series.integral(every + length) - series.integral(every)
    mine = series.integral(begin + length) - series.integral(begin)
    assert mine <= costs.min() + 1e-6
    assert not (costs[every < begin - 1e-9] < mine - 1e-6).any()


def test_jobs_that_may_wait_run_where_energy_is_cheap() -> None:
    workload = jobs((0, 10, 1), (5, 10, 4))
    series = of([9, 9, 1, 1, 9, 9])
    begins = cheapest_start_times(np.array([0.0, 5]), np.full(2, 10.0), np.full(2, 30.0), series)
    energy = energy_of(workload, uniform(4), begin_s=begins, log=True)
    assert energy.jobs.sort("job_id")["start_s"].to_list() == [20, 30]
    assert energy.job_costs(series).to_list() == [2000, 8000]


def test_begins_must_be_one_for_each_job() -> None:
    with pytest.raises(ConfigError, match="one value per job"):
        energy_of(jobs((0, 10, 1)), uniform(4), begin_s=np.zeros(3))
