"""Cooling by a custom plant: an FMU for co-simulation run by FMPy, mapped in YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import polars as pl
from pydantic import Field, model_validator

from hpctwin.errors import ConfigError, near, need
from hpctwin.model.settings import Duration, Settings, read_yaml

__all__ = ["Fmu", "Input", "Output", "run_fmu"]

FloatArray = npt.NDArray[np.float64]

Source = Literal["cdu_w", "machine_w", "wet_bulb_c", "wet_bulb_k"]
Column = Literal["pump_w", "fan_w", "air_w", "return_c", "supply_c", "flow_kg_s", "water_kg_s"]
_KELVIN = 273.15
_POWERS = ("pump_w", "fan_w", "air_w")
_CDU = "{cdu}"


class Input(Settings):
    """Input of a variable of the plant.

    Args:
        of: ``cdu_w`` (what a coolant distribution unit cools, without its pumps), ``machine_w``
            (all, without such pumps), ``wet_bulb_c`` or ``wet_bulb_k``.
        factor: Factor that the value is multiplied by.
    """

    of: Source
    factor: float = 1.0


class Output(Settings):
    """Source of a column.

    Args:
        of: Variables that are added up; with ``{cdu}`` in the name, those of all units.
        factor: Factor that the sum is multiplied by.
    """

    of: tuple[str, ...] = Field(min_length=1)
    factor: float = 1.0


_LOOPS = "simulator[1].centralEnergyPlant[1]"
_EXADIGIT: dict[str, Any] = {
    "inputs": {
        "simulator_1_datacenter_1_computeBlock_{cdu}_cabinet_1_sources_Q_flow_total": {
            "of": "cdu_w"
        },
        "simulator_1_centralEnergyPlant_1_coolingTowerLoop_1_sources_Towb": {"of": "wet_bulb_k"},
    },
    "outputs": {
        "pump_w": {
            "of": [
                "simulator[1].datacenter[1].computeBlock[{cdu}].cdu[1].summary.W_flow_CDUP_kW",
                f"{_LOOPS}.hotWaterLoop[1].summary.W_flow_HTWP_kW",
                f"{_LOOPS}.coolingTowerLoop[1].summary.W_flow_CTWP_kW",
            ],
            "factor": 1000,
        },
        "fan_w": {"of": [f"{_LOOPS}.coolingTowerLoop[1].summary.W_flow_CT_kW"], "factor": 1000},
        "return_c": {"of": [f"{_LOOPS}.coolingTowerLoop[1].summary.T_fac_ctw_r_C"]},
        "supply_c": {"of": [f"{_LOOPS}.coolingTowerLoop[1].summary.T_fac_ctw_s_C"]},
    },
}
"""Variables of ExaDigiT's plants (RAPS 6c142bf), as in Frontier's plant."""


class Fmu(Settings):
    """A plant, and the mapping of its variables.

    Args:
        file: Path of the FMU; in YAML relative to the YAML file.
        preset: ``exadigit`` for the variables of ExaDigiT's plants; other settings override it.
        step: Step of the co-simulation.
        inputs: Input of each variable, by name; ``{cdu}`` stands for each unit from 1.
        outputs: Source of each column; ``return_c`` is required, omitted powers are 0.
        heat_share: Fraction of a unit's power that goes to the plant, divided by the number of
            racks that one cabinet of the plant represents. ExaDigiT uses 0.945 and the racks of a
            unit.
        cdu_pumps: Whether the plant's powers include the pumps of the coolant distribution units.
    """

    file: Path
    preset: Literal["exadigit"] | None = None
    step: Duration = 15.0
    inputs: dict[str, Input] = Field(default_factory=dict)
    outputs: dict[Column, Output] = Field(default_factory=dict)
    heat_share: float = Field(default=1.0, gt=0)
    cdu_pumps: bool = False

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, given: Any) -> Any:
        if not isinstance(given, dict) or given.get("preset") != "exadigit":
            return given
        own = {key: {**_EXADIGIT[key], **(given.get(key) or {})} for key in ("inputs", "outputs")}
        return {"cdu_pumps": True, **given, **own}

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.inputs or "return_c" not in self.outputs:
            raise ValueError("give inputs and outputs with return_c, or preset: exadigit")
        return self

    @classmethod
    def from_yaml(cls, path: str | Path) -> Fmu:
        """Read the mapping from a file.

        Raises:
            ConfigError: The file cannot be read or is not valid; the message names the field.
        """
        path = Path(path)
        found = cls.checked(read_yaml(path, "file"), str(path))
        return found.model_copy(update={"file": path.parent / found.file})


def run_fmu(
    plant: Fmu,
    cdus_w: FloatArray,
    machine_w: FloatArray,
    cdu_pumps_w: FloatArray,
    wet_bulb: FloatArray,
) -> pl.DataFrame:
    """Return state and power of the plant at the end of each step, from its time 0.

    Args:
        plant: The plant.
        cdus_w: Power of what each coolant distribution unit cools, without its pumps [units,
            steps].
        machine_w: Power of the whole cluster [steps].
        cdu_pumps_w: Part of it that the pumps of coolant distribution units draw [steps].
        wet_bulb: Wet-bulb temperature, in °C [steps].

    Returns:
        The columns of `cooling.cool` that the plant provides.

    Raises:
        ConfigError: FMPy is not installed, the FMU cannot be run, or has no such variable.
    """
    need("fmpy", "cooling", "an FMU")
    import fmpy

    it_w = machine_w - cdu_pumps_w
    sources = {"machine_w": it_w, "wet_bulb_c": wet_bulb, "wet_bulb_k": wet_bulb + _KELVIN}
    units = len(cdus_w)
    feeds: dict[str, FloatArray] = {}
    for name, given in plant.inputs.items():
        for unit in range(units) if _CDU in name else [0]:
            value = cdus_w[unit] * plant.heat_share if given.of == "cdu_w" else sources[given.of]
            feeds[name.replace(_CDU, str(unit + 1))] = value * given.factor
    wanted = {
        column: [
            name.replace(_CDU, str(unit + 1))
            for name in output.of
            for unit in (range(units) if _CDU in name else [0])
        ]
        for column, output in plant.outputs.items()
    }
    try:
        about = fmpy.read_model_description(str(plant.file))
    except Exception as error:  # FMPy raises whatever unpacking and parsing do
        raise ConfigError(f"{plant.file}: cannot be read as an FMU: {error}") from error
    known = [variable.name for variable in about.modelVariables]
    for name in [*feeds, *(one for names in wanted.values() for one in names)]:
        if name not in known:
            raise ConfigError(f"{plant.file}: variable {name!r} does not exist.{near(name, known)}")
    size = len(machine_w)
    times = plant.step * np.arange(size + 1)
    table = np.zeros(size, [("time", np.float64), *((name, np.float64) for name in feeds)])
    table["time"] = times[:-1]
    for name, value in feeds.items():
        table[name] = value
    try:
        told = fmpy.simulate_fmu(
            str(plant.file),
            fmi_type="CoSimulation",
            model_description=about,
            stop_time=float(times[-1]),
            step_size=plant.step,
            output_interval=plant.step,
            input=table,
            output=sorted({name for names in wanted.values() for name in names}),
        )
    except Exception as error:  # a foreign plant may raise anything
        raise ConfigError(f"{plant.file}: the FMU failed: {error}") from error
    at = np.clip(np.searchsorted(told["time"], times[1:] - 1e-6), 0, len(told) - 1)
    columns: dict[str, FloatArray] = {
        column: plant.outputs[column].factor * sum(told[name][at] for name in names)
        for column, names in wanted.items()
    }
    drawn = {name: columns.pop(name, np.zeros(size)) for name in _POWERS}
    heat = it_w if plant.cdu_pumps else machine_w
    pue = (heat + sum(drawn.values())) / it_w
    return pl.DataFrame(
        {
            "wet_bulb_c": wet_bulb,
            "heat_w": heat,
            "air_heat_w": np.zeros(size),
            "supply_c": columns.pop("supply_c", np.full(size, np.nan)),
            **columns,
            **drawn,
            "pue": pue,
        }
    )
