"""A cap on what all nodes draw together."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hpctwin import Workload, simulate
from hpctwin.errors import ConfigError
from hpctwin.model import CapWindow, Cluster, PowerCap
from hpctwin.policies import PowerPolicy
from tests.energy.powered import (
    NODES,
    energy_of,
    platforms,
    power_policies,
    powered_simulation,
    uniform,
)
from tests.energy.test_cases import jobs
from tests.strategies import simple_workloads

NONE = PowerPolicy()


@given(
    platform=platforms(),
    workload=simple_workloads(nodes=NODES, max_jobs=15),
    power=power_policies(),
    backfill=st.sampled_from(("none", "easy", "conservative")),
    watts=st.integers(500, 2000),
    more=st.integers(0, 600),
    hour=st.integers(0, 40),
)
def test_the_cap_holds_at_every_time_and_every_job_runs(
    platform: Cluster,
    workload: Workload,
    power: PowerPolicy,
    backfill: str,
    watts: int,
    more: int,
    hour: int,
) -> None:
    windows = ()
    if power.kind in ("none", "psas-ipm"):
        windows = (CapWindow(hour, hour + 20, watts + more),)
    cap = PowerCap(watts, windows)
    try:
        simulation = powered_simulation(
            workload, platform, "fcfs", backfill, power=power, cap=cap, log=True
        )
    except ConfigError as error:
        assume("cap" not in str(error))
        raise
    assert simulation.advance(instants=5000) == "done"
    energy = simulation.result().energy
    assert energy.jobs["state"].is_in(["completed", "walltime"]).all()
    times, drawn = energy.power_over_time()
    for time, power_w in zip(times.tolist(), drawn.tolist(), strict=True):
        assert power_w <= cap.at(time) + 1e-6


def test_jobs_wait_for_power_and_for_the_hour_in_which_there_is_more() -> None:
    # Four nodes draw 400 W idle, and 100 W more each while they compute.
    workload = jobs((0, 100, 2), (1, 100, 2), (2, 10, 1))
    tight = energy_of(workload, uniform(4), power=NONE, cap=PowerCap(600))
    assert tight.jobs.sort("job_id")["start_s"].to_list() == [0, 100, 200]
    later = PowerCap(600, (CapWindow(50, 500, 800),))
    wide = energy_of(workload, uniform(4), power=NONE, cap=later)
    assert wide.jobs.sort("job_id")["start_s"].to_list() == [0, 50, 100]


def test_a_job_does_not_start_if_the_cap_falls_before_it_would_end() -> None:
    cap = PowerCap(600, (CapWindow(0, 60, 800),))
    workload = jobs((0, 100, 2), (1, 80, 2), (2, 20, 2))
    energy = energy_of(workload, uniform(4), power=NONE, cap=cap)
    assert energy.jobs.sort("job_id")["start_s"].to_list() == [0, 100, 2]


@given(workload=simple_workloads(nodes=NODES, max_jobs=15))
def test_a_cap_above_what_all_can_draw_changes_nothing(workload: Workload) -> None:
    plain = simulate(workload, Cluster.uniform(NODES), "fcfs", "easy").jobs.sort("job_id")
    energy = energy_of(workload, uniform(), power=NONE, cap=PowerCap(1e6))
    assert energy.jobs.sort("job_id")["start_s"].to_list() == plain["start_s"].to_list()


def test_caps_are_read_from_text() -> None:
    cap = PowerCap.parse("20kW,22:00-06:00=30kW,12:00-13:30=900W")
    assert cap == PowerCap(
        20_000, (CapWindow(79_200, 21_600, 30_000), CapWindow(43_200, 48_600, 900))
    )
    assert [cap.at(3600 * hour) for hour in (5, 6, 12, 21, 22)] == [30e3, 20e3, 900, 20e3, 30e3]
    assert cap.lowest == 900
    # From 18:00, the first raise to 20 kW lasts until 22:00.
    assert cap.raised(18 * 3600, 7200)[0] == (0, 4 * 3600, 19_100)


@pytest.mark.parametrize(
    "text",
    ["20", "kW", "20kW,22-06=30kW", "20kW,22:00-06:00", "0W", "20kW,25:00-26:00=1kW", "1.1.1W"],
)
def test_invalid_caps_are_reported(text: str) -> None:
    with pytest.raises(ConfigError):
        PowerCap.parse(text)


def test_a_cap_that_cannot_be_kept_is_reported() -> None:
    with pytest.raises(ConfigError, match="400 W, the draw of the 4 nodes"):
        energy_of(jobs((0, 1, 1)), uniform(4), power=NONE, cap=PowerCap(300))
    with pytest.raises(ConfigError, match="job 2 on 3 nodes draws 300 W"):
        energy_of(jobs((0, 1, 1), (0, 1, 3)), uniform(4), power=NONE, cap=PowerCap(600))
    with pytest.raises(ConfigError, match="time of day"):
        energy_of(
            jobs((0, 1, 1)),
            uniform(4),
            power=PowerPolicy("psus", 5),
            cap=PowerCap(2000, (CapWindow(0, 5, 3000),)),
        )
