"""Cooling: heat is conserved, and what is known of real machines comes out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin import Cluster, read_cluster
from hpctwin.cli import main
from hpctwin.energy.cooling.model import (
    C_WATER,
    _psychrolib,
    _saturated,
    cool,
    cooling_figures,
    wet_bulb_c,
    wet_bulb_means,
)
from hpctwin.errors import ConfigError
from hpctwin.model.cluster.power import Cooling

PLANT = Cooling(
    liquid_share=0.9,
    supply_c=30,
    range_k=8,
    flow_kg_s=100,
    pump_w=2e5,
    fan_w=1e5,
    design_heat_w=5e6,
    design_wet_bulb_c=24,
    water_kg=20_000,
)


@given(
    st.lists(
        st.tuples(st.floats(1e4, 8e6), st.floats(-10, 35), st.floats(1, 4000)),
        min_size=1,
        max_size=30,
    )
)
def test_all_heat_is_rejected_or_stored_in_the_water(
    steps: list[tuple[float, float, float]],
) -> None:
    machine, wet, length = np.array(steps).T
    found = cool(PLANT, length, machine, 0.97 * machine, wet)
    heat, air, pump, rejected, stored, flow, supply, back, speed, water = (
        found[name].to_numpy()
        for name in ("heat_w", "air_heat_w", "pump_w", "rejected_w", "stored_w", "flow_kg_s", "supply_c",
                     "return_c", "fan_speed", "water_kg_s")
    )  # fmt: skip
    assert heat + air == pytest.approx(machine, rel=1e-12)
    assert rejected + stored == pytest.approx(heat + pump, rel=1e-9)
    assert rejected == pytest.approx(C_WATER * flow * (back - supply), rel=1e-12)
    assert (supply >= np.maximum(30, wet) - 1e-9).all()
    assert ((speed >= 0) & (speed <= 1)).all()
    assert (water >= 0).all()
    # The water ends as warm as what it has stored makes it; it begins in a steady state.
    begin = supply[0] + (heat + pump)[0] / (C_WATER * flow[0])
    end = begin + stored @ length / (C_WATER * PLANT.water_kg)
    within = np.concatenate([[begin], supply + (heat + pump) / (C_WATER * flow)])
    assert within.min() - 1e-6 <= end <= within.max() + 1e-6


def test_at_the_design_point_fans_run_at_full_speed_and_beyond_it_the_water_gets_warmer() -> None:
    for into, wet, speed, supply in (
        (5e6, 24.0, 1.0, 30.0),
        (6e6, 24.0, 1.0, None),
        (5e6, 27.0, 1.0, None),
    ):
        machine = np.array([(into - PLANT.pump_w) / PLANT.liquid_share])
        found = cool(PLANT, np.array([60.0]), machine, machine, np.array([wet])).row(0, named=True)
        assert found["flow_kg_s"] == 100
        assert found["fan_speed"] == pytest.approx(speed, abs=2e-3)
        if supply is None:
            assert found["supply_c"] > 30.5
        else:
            assert found["supply_c"] == pytest.approx(supply, abs=1e-3)


def test_evaporation_takes_most_of_the_heat_on_a_warm_day() -> None:
    machine = np.array([4e6])
    found = cool(PLANT, np.array([60.0]), machine, machine, np.array([22.0])).row(0, named=True)
    evaporated = found["water_kg_s"] * 3 / 4  # a quarter is drained, at four cycles
    assert 0.75 < evaporated * 2.45e6 / found["rejected_w"] < 1.0


@pytest.mark.traces
def test_frontier_has_a_pue_of_1_06_and_its_water_comes_back_at_34_to_38_degrees(
    traces: Path,
) -> None:
    plant = read_cluster("frontier").cooling
    assert plant is not None
    day = pl.read_csv(traces / "telemetry" / "sustain_lc_frontier_cdu_power_2024-04-07.csv.gz")
    power = day.select(pl.sum_horizontal(pl.col("^power.*$"))).to_series().to_numpy()
    step = np.full(len(power), 15.0)
    found = cool(plant, step, power, power - 25 * 8473.47, day["OA Wetbulb Temp"].to_numpy())
    figures = cooling_figures(found, step)
    assert figures["pue"] == pytest.approx(1.06, abs=0.003)
    assert 30 < float(found["return_c"].min()) < figures["return_mean_c"] < 38
    assert figures["return_max_c"] < 38.5


def test_wet_bulb_temperatures_equal_psychrolib_and_are_joined_by_date(tmp_path: Path) -> None:
    path = tmp_path / "weather.csv"
    path.write_text(
        "time,temperature_2m,relative_humidity_2m\n"
        "2024-01-01T00:00,20,50\n2024-01-01T01:00,30,50\n2024-01-01T02:00,10,90\n"
    )
    psychrolib = _psychrolib()
    first = [
        psychrolib.GetTWetBulbFromRelHum(t, h, 101325) for t, h in ((20, 0.5), (30, 0.5), (10, 0.9))
    ]
    edges = np.array([-10.0, 10.0, 3590.0, 3610.0])
    epoch = 1704067200.0  # 2024-01-01
    found = wet_bulb_means(path, edges, epoch)
    assert found == pytest.approx([first[0], (first[0] + first[1]) / 2, first[1]], abs=1e-9)
    assert wet_bulb_means(path, edges, epoch + 3600)[0] == pytest.approx(first[1])
    assert wet_bulb_c(np.array([20.0]), np.array([50.0]))[0] == first[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "time,temperature_c\n0,1\n60,2\n",
            "give two rows or more, with times in the first column, and wet_bulb_c",
        ),
        ("time,wet_bulb_c\n0,1\n", "found 1 row of"),
        ("time,wet_bulb_c\n0,1\n60,cold\n", "row 3, 'wet_bulb_c': 'cold' is not a finite number"),
        ("time,wet_bulb_c\n0,1\n0,2\n", "row 3: 0 is not after 0; sort the rows by time"),
        (
            "time,wet_bulb_c\n0,50\n60,68\n",
            "row 3, 'wet_bulb_c': 68 is invalid; it must be -60 to 50",
        ),
        (
            "time,temperature_c,humidity_pct\n0,290,50\n60,290,50\n",
            "row 2, 'temperature_c': 290 is invalid; it must be -90 to 60; check the unit",
        ),
        ("time,temperature_c,humidity_pct\n0,9,50\n60,9,101\n", "'humidity_pct': 101 is invalid"),
        ("time,temperature_c,humidity_pct\n0,9,0.5\n60,9,0.6\n", "give percent, not fractions"),
    ],
)
def test_unusable_weather_is_reported(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "weather.csv"
    path.write_text(text)
    with pytest.raises(ConfigError) as told:
        wet_bulb_means(path, np.array([0.0, 60.0]), None)
    assert said in str(told.value)


@pytest.mark.parametrize("wet_bulb", [200.0, -300.0, float("nan")])
def test_a_temperature_that_cannot_be_of_weather_is_rejected(wet_bulb: float) -> None:
    with pytest.raises(ConfigError, match="it must be -60 to 50 °C"):
        wet_bulb_means(wet_bulb, np.array([0.0, 60.0]), None)


def test_invalid_towers_are_rejected() -> None:
    fields = {**PLANT.model_dump(), "design_wet_bulb_c": 31}
    with pytest.raises(ConfigError, match="towers cannot cool water below the wet bulb"):
        Cooling.checked(fields, "plant")
    with pytest.raises(ConfigError, match="cooling needs 'components'"):
        Cluster.checked({"nodes": [{"name": "n", "count": 1}], "cooling": PLANT.model_dump()}, "m")


def test_simulate_reports_what_cooling_took(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text("submit_s,runtime_s,nodes\n0,7200,9472\n")
    run = ["simulate", str(tmp_path / "t.csv"), "--json"]
    for weather in ("15", str(tmp_path / "w.csv")):
        (tmp_path / "w.csv").write_text("time,wet_bulb_c\n0,15\n3600,15\n")
        with pytest.raises(SystemExit) as ended:
            main(
                [*run, "-M", "frontier", "--weather", weather, "--out", str(tmp_path / "out"),
                 "--plot", str(tmp_path / "cooling.png")]
            )  # fmt: skip
        assert ended.value.code == 0
        summary = json.loads(capsys.readouterr().out)
        table = pl.read_parquet(tmp_path / "out" / "cooling.parquet")
        assert len(table) == 120
        assert (tmp_path / "cooling.png").stat().st_size > 10_000
        plant_j = (table["pump_w"] + table["fan_w"] + table["air_w"]).sum() * 60
        assert summary["cooling_energy_j"] == pytest.approx(plant_j)
        it_j = summary["total_energy_j"] - summary["machine_pumps_energy_j"]
        assert summary["pue"] == pytest.approx((summary["total_energy_j"] + plant_j) / it_j)
    with pytest.raises(SystemExit) as ended:
        main([*run, "-M", "lassen", "--weather", "15"])
    assert ended.value.code == 2
    assert "cluster 'lassen' has no cooling model" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main([*run, "-M", "frontier", "--weather", "warm"])
    assert ended.value.code == 2
    assert "warm: cannot be read as CSV" in capsys.readouterr().err


def test_a_replay_reports_the_cooling_and_costs_of_the_same_simulation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("submit_s,recorded_start_s,runtime_s,nodes\n0,0,7200,9472\n")
    options = ["-M", "frontier", "--weather", "15", "--price", "0.2", "--carbon", "300", "--json"]
    told = {}
    for command in ("simulate", "replay"):
        out = tmp_path / command
        with pytest.raises(SystemExit) as ended:
            main([command, str(trace), *options, "--out", str(out)])
        assert ended.value.code == 0
        summary = json.loads(capsys.readouterr().out)
        told[command] = summary["cooling_energy_j"], summary["pue"], summary["emissions_kg"]
        assert len(pl.read_parquet(out / "cooling.parquet")) == 120
        stored = json.loads((out / "summary.json").read_text())
        assert stored["pue"] == summary["pue"]
    assert told["replay"] == pytest.approx(told["simulate"])
    for more, message in (
        (["-M", "lassen", "--weather", "15"], "cluster 'lassen' has no cooling model"),
        (["-M", "frontier", "--cooling-fmu", "x.yaml"], "the weather is missing; add --weather"),
        (["-n", "9472", "--weather", "15"], "--weather: the cluster has no power model"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["replay", str(trace), *more])
        assert ended.value.code == 2
        assert message in capsys.readouterr().err


def test_saturated_air_is_psychrolib_s() -> None:
    psychrolib = _psychrolib()
    at, enthalpy, water = _saturated()
    for t, h, w in zip(at[::20].tolist(), enthalpy[::20], water[::20], strict=True):
        assert h == pytest.approx(psychrolib.GetSatAirEnthalpy(t, 101_325), rel=1e-9, abs=1e-6)
        assert w == pytest.approx(psychrolib.GetSatHumRatio(t, 101_325), rel=1e-9)
