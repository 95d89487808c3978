"""Power of cooling a cluster: a reduced model of water loop, pumps and towers.

The towers follow Merkel's equation (1925) with the water's mean temperature as the driving one.
They reject ``K · s^0.6 · (h_sat(mean water) - h_sat(wet bulb))``, where ``s`` is the speed of the
fans. The exponent is that of Braun, Klein and Mitchell (ASHRAE Transactions 95(2), 1989). ``K``
follows from the design point. Pumps and fans draw by the cube of their speed (affinity laws). Moist
air is that of the ASHRAE Handbook Fundamentals, 2017; wet bulbs of air are psychrolib's.

Wet-bulb temperatures over time, from weather files.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.energy.prices.series import csv_of, numbers_of, times_of
from hpctwin.errors import ConfigError, need
from hpctwin.model.cluster.power import Cooling
from hpctwin.model.text import count_text

__all__ = ["cool", "cooling_figures", "wet_bulb_c", "wet_bulb_means"]

FloatArray = npt.NDArray[np.float64]


C_WATER = 4186.0
"""Heat capacity of water, in J/(kg K)."""
_PRESSURE = 101_325.0
_TRIPLE_C = 0.01
_OVER_ICE = (
    -5.6745359e3, 6.3925247, -9.677843e-3, 6.2215701e-7, 2.0747825e-9, -9.484024e-13, 4.1635019,
)  # fmt: skip
_OVER_WATER = (-5.8002206e3, 1.3914993, -4.8640239e-2, 4.1764768e-5, -1.4452093e-8, 6.5459673)
"""Coefficients of the logarithm of saturation pressure (Pa).

They belong to powers of the temperature (K) from -1 on; the last one belongs to its logarithm.
"""
_SPEED = 0.6


@lru_cache(maxsize=1)
def _saturated() -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return temperatures (°C), enthalpy (J/kg) and water (kg/kg) of saturated air.

    Source: ASHRAE Handbook Fundamentals, 2017, chapter 1, equations 5, 6, 22 and 30.
    """
    at = np.arange(-30.0, 90.0, 0.25)
    kelvin = at + 273.15
    over_ice, over_water = (
        np.exp(sum(c * kelvin**power for power, c in enumerate(terms, -1)) + last * np.log(kelvin))
        for *terms, last in (_OVER_ICE, _OVER_WATER)
    )
    pressure = np.where(at <= _TRIPLE_C, over_ice, over_water)
    water = 0.621945 * pressure / (_PRESSURE - pressure)
    return at, 1e3 * (1.006 * at + water * (2501 + 1.86 * at)), water


def _psychrolib() -> ModuleType:
    """Return psychrolib as plain Python.

    If it finds Numba, it compiles itself in each process, which takes 11 s. Plain Python takes 40
    us per value, a third of a second for the hours of a year.
    """
    numba = sys.modules.pop("numba", None)
    sys.modules["numba"] = None  # type: ignore[assignment]
    try:
        need("psychrolib", "energy", "weather with humidity but without wet_bulb_c")
    finally:
        del sys.modules["numba"]
        if numba is not None:
            sys.modules["numba"] = numba
    import psychrolib

    psychrolib.SetUnitSystem(psychrolib.SI)
    module: ModuleType = psychrolib
    return module


def wet_bulb_c(temperature_c: FloatArray, humidity_pct: FloatArray) -> FloatArray:
    """Return wet-bulb temperatures at sea level, in °C.

    Args:
        temperature_c: Air temperature, in °C [n].
        humidity_pct: Relative humidity, 0 to 100 [n].
    """
    psychro = _psychrolib()
    pairs = zip(temperature_c.tolist(), humidity_pct.tolist(), strict=True)
    found = [psychro.GetTWetBulbFromRelHum(t, max(rh, 0.1) / 100, _PRESSURE) for t, rh in pairs]
    return np.array(found, np.float64)


def cool(
    plant: Cooling,
    step_s: FloatArray,
    machine_w: FloatArray,
    it_w: FloatArray,
    wet_bulb: FloatArray,
) -> pl.DataFrame:
    """Return state and power of the plant in each step, beginning in a steady state.

    Args:
        plant: The plant.
        step_s: Length of each step, in s [steps].
        machine_w: Mean power of the whole cluster, which becomes heat, in W [steps].
        it_w: The same without pumps of coolant distribution units, for the PUE, in W [steps].
        wet_bulb: Wet-bulb temperature, in °C [steps].

    Returns:
        Means over each step: ``wet_bulb_c``; ``heat_w`` to the water and ``air_heat_w`` to the
            room; ``flow_kg_s``, ``supply_c``, ``return_c`` (water to the towers); ``rejected_w`` by
            the towers and ``stored_w`` in the water, which together equal heat and pump power;
            ``pump_w``, ``fan_w``, ``air_w`` (cooling the room); ``fan_speed`` 0 to 1;
            ``water_kg_s`` evaporated and drained; ``pue``.
    """
    heat = plant.liquid_share * machine_w
    flow = plant.flow_kg_s * np.clip(
        heat / (C_WATER * plant.range_k * plant.flow_kg_s), plant.least_flow, 1.0
    )
    pump = plant.pump_w * (flow / plant.flow_kg_s) ** 3
    into = heat + pump
    at, enthalpy, humidity = _saturated()
    outside = np.interp(wet_bulb, at, enthalpy)
    design_c = plant.supply_c + plant.design_heat_w / (2 * C_WATER * plant.flow_kg_s)
    design = np.interp([design_c, plant.design_wet_bulb_c], at, enthalpy)
    capacity = plant.design_heat_w / (design[0] - design[1])
    # At full fan speed the water is as cold as possible. With spare capacity it is kept at the set
    # point.
    rise = into / (C_WATER * flow)
    coldest = np.interp(outside + into / capacity, enthalpy, at) - rise / 2
    supply = np.maximum(plant.supply_c, np.maximum(coldest, wet_bulb))
    mean, stored = _return(plant, step_s, flow, supply + rise, float((supply + rise)[0]))
    rejected = C_WATER * flow * (mean - supply)
    drive = np.interp((mean + supply) / 2, at, enthalpy) - outside
    speed = np.clip(np.maximum(rejected, 0) / (capacity * drive), 0, 1) ** (1 / _SPEED)
    fan = plant.fan_w * speed**3
    # Air leaves saturated, and no warmer than the incoming water.
    hottest = np.interp(mean, at, enthalpy) - outside
    air = np.maximum(speed * (plant.air_kg_s or plant.flow_kg_s), np.maximum(rejected, 0) / hottest)
    leaves = np.interp(outside + rejected / np.maximum(air, 1e-9), enthalpy, at)
    evaporated = air * (np.interp(leaves, at, humidity) - np.interp(wet_bulb, at, humidity))
    air_w = (machine_w - heat) / (plant.air_cop or np.inf)
    return pl.DataFrame(
        {
            "wet_bulb_c": wet_bulb,
            "heat_w": heat,
            "air_heat_w": machine_w - heat,
            "flow_kg_s": flow,
            "supply_c": supply,
            "return_c": mean,
            "rejected_w": rejected,
            "stored_w": stored,
            "pump_w": pump,
            "fan_w": fan,
            "air_w": air_w,
            "fan_speed": speed,
            "water_kg_s": evaporated * plant.cycles / (plant.cycles - 1),
            "pue": (machine_w + pump + fan + air_w) / it_w,
        }
    )


def cooling_figures(cooled: pl.DataFrame, step_s: FloatArray) -> dict[str, float]:
    """Return the plant's energy, PUE, temperatures and water from a table of `cool`."""
    plant = (cooled["pump_w"] + cooled["fan_w"] + cooled["air_w"]).to_numpy()
    facility = (cooled["heat_w"] + cooled["air_heat_w"]).to_numpy() + plant
    water = {}
    if "water_kg_s" in cooled.columns:
        water["cooling_water_kg"] = float(cooled["water_kg_s"].to_numpy() @ step_s)
    return {
        "cooling_energy_j": float(plant @ step_s),
        "pue": float(facility @ step_s) / float((facility / cooled["pue"].to_numpy()) @ step_s),
        "return_mean_c": float(cooled["return_c"].to_numpy() @ step_s / step_s.sum()),
        "return_max_c": float(cooled["return_c"].to_numpy().max()),
        **water,
    }


def _return(
    plant: Cooling, step_s: FloatArray, flow: FloatArray, towards: FloatArray, begin_c: float
) -> tuple[FloatArray, FloatArray]:
    """Return mean temperature of the returning water, and stored heat in W [steps].

    The water is one well-mixed mass whose temperature approaches its steady state exponentially.
    """
    decay = np.exp(-flow * step_s / plant.water_kg)
    means, stored = np.empty(len(flow)), np.empty(len(flow))
    now = begin_c
    per_step = (step_s, flow, towards, decay)
    for i, (length, own, goal, left) in enumerate(
        zip(*(column.tolist() for column in per_step), strict=True)
    ):
        then = goal + (now - goal) * left
        means[i] = goal + (now - then) * plant.water_kg / (own * length)
        stored[i] = C_WATER * plant.water_kg * (then - now) / length
        now = then
    return means, stored


_COLUMNS = {
    "wet_bulb_c": ("wet_bulb_c", "oa wetbulb temp"),
    "temperature_c": ("temperature_c", "temperature_2m", "temperature_2m (°c)"),
    "humidity_pct": ("humidity_pct", "relative_humidity_2m", "relative_humidity_2m (%)"),
}


_POSSIBLE = {
    "wet_bulb_c": (-60.0, 50.0),
    "temperature_c": (-90.0, 60.0),
    "humidity_pct": (0.0, 100.0),
}
"""Range measured on Earth with a margin; Fahrenheit and kelvins are outside."""


def wet_bulb_means(
    given: float | str | Path, edges_s: FloatArray, epoch_s: float | None
) -> FloatArray:
    """Return the wet-bulb temperature of each step, in °C [steps].

    It is one value for all steps, or a file that is interpolated linearly and repeats. The file is
    CSV (``.gz`` too). It has times first (ISO dates or seconds), then ``wet_bulb_c``, or
    ``temperature_c`` and ``humidity_pct``, or Open-Meteo's names of them. It is aligned with the
    simulation by date if both have one; otherwise both begin together.

    Args:
        given: Temperature in °C, or the file.
        edges_s: Edges of the steps from the simulation's time zero, in s; each step's middle counts
            [steps + 1].
        epoch_s: Unix time of time zero; None if unknown.

    Raises:
        ConfigError: The file cannot be read or has no such columns, or a temperature or humidity is
            impossible; the message names row and column.
    """
    if isinstance(given, int | float):
        least, most = _POSSIBLE["wet_bulb_c"]
        if not least <= given <= most:
            raise ConfigError(
                f"wet-bulb temperature {given:g} °C is invalid; it must be {least:g} to {most:g} °C"
            )
        return np.full(len(edges_s) - 1, float(given))
    path = Path(given)
    frame = csv_of(path)
    heads = {name.lower(): name for name in frame.columns}
    found = {
        kind: next((heads[name] for name in names if name in heads), None)
        for kind, names in _COLUMNS.items()
    }
    if len(frame) < 2 or (
        found["wet_bulb_c"] is None and None in (found["temperature_c"], found["humidity_pct"])
    ):
        raise ConfigError(
            f"{path}: found {count_text(len(frame), 'row')} of {', '.join(map(repr, frame.columns))}; "
            "give two rows or more, with times in the first column, and wet_bulb_c, or "
            "temperature_c and humidity_pct"
        )
    times, epoch = times_of(frame[frame.columns[0]], path)
    values = {
        kind: numbers_of(frame, name, path) for kind, name in found.items() if name is not None
    }
    for kind, numbers in values.items():
        _check(path, found[kind] or kind, kind, numbers)
    wet = values.get("wet_bulb_c")
    if wet is None:
        wet = wet_bulb_c(values["temperature_c"], values["humidity_pct"])
    at = (edges_s[:-1] + edges_s[1:]) / 2
    if epoch is not None and epoch_s is not None:
        at = at + (epoch_s - epoch)
    period = float(times[-1] + np.median(np.diff(times)))
    means: FloatArray = np.interp(at, times, wet, period=period)
    return means


def _check(path: Path, name: str, kind: str, numbers: FloatArray) -> None:
    """Check that numbers are possible for weather.

    Raises:
        ConfigError: A number is not.
    """
    least, most = _POSSIBLE[kind]
    wrong = (numbers < least) | (numbers > most)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ConfigError(
            f"{path}, row {row + 2}, {name!r}: {numbers[row]:g} is invalid; it must be "
            f"{least:g} to {most:g}; check the unit"
        )
    if kind == "humidity_pct" and numbers.max() <= 1:
        raise ConfigError(f"{path}, {name!r}: no value is above 1; give percent, not fractions")
