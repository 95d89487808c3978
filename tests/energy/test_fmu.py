"""Cooling by an FMU: a plant written here, built by pythonfmu and run by FMPy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hpctwin import Cluster, Workload, simulate
from hpctwin.energy.accounts.component_energy import ComponentEnergy
from hpctwin.energy.cooling.fmu import Fmu
from hpctwin.errors import ConfigError

PLANT = '''
from pythonfmu import Fmi2Causality, Fmi2Slave, Real


class Plant(Fmi2Slave):
    """Pumps take a hundredth of the heat, fans a fiftieth; the water goes half the way."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.heat_1 = self.heat_2 = self.wet_bulb = 0.0
        self.pump_kw = self.fan_kw = self.back_c = 0.0
        for name in ("heat_1", "heat_2", "wet_bulb"):
            self.register_variable(Real(name, causality=Fmi2Causality.input))
        for name in ("pump_kw", "fan_kw", "back_c"):
            self.register_variable(Real(name, causality=Fmi2Causality.output))

    def do_step(self, current_time, step_size):
        heat = self.heat_1 + self.heat_2
        self.pump_kw, self.fan_kw = heat / 1e5, heat / 5e4
        self.back_c = (self.back_c + self.wet_bulb - 273.15 + heat / 1e3) / 2
        return True
'''
MAPPING = """
file: Plant.fmu
step: 60s
inputs:
  heat_{cdu}: {of: cdu_w}
  wet_bulb: {of: wet_bulb_k}
outputs:
  pump_w: {of: [pump_kw], factor: 1000}
  fan_w: {of: [fan_kw], factor: 1000}
  return_c: {of: [back_c]}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fmu")
    (folder / "plant.py").write_text(PLANT)
    (folder / "mapping.yaml").write_text(MAPPING)
    command = [sys.executable, "-m", "pythonfmu", "build", "-f", "plant.py"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def energy() -> ComponentEnergy:
    racks = {"cdus": 2, "nodes_per_chassis": 2, "cdu_w": 50}
    node = {
        "name": "n",
        "count": 4,
        "components": {"cpu": {"idle_w": 100, "max_w": 300}},
        "racks": racks,
    }
    jobs = Workload.build(submit_s=[0, 300], runtime_s=[600, 600], nodes=[2, 3])
    found = simulate(jobs, Cluster.checked({"name": "m", "nodes": [node]}, "here"), "fcfs").energy
    assert isinstance(found, ComponentEnergy)
    return found


def test_the_plant_gets_the_power_of_each_unit_and_its_outputs_are_reported(
    folder: Path, energy: ComponentEnergy
) -> None:
    found = energy.cooled_by(Fmu.from_yaml(folder / "mapping.yaml"), 12.0)
    power = energy.over_time(60)
    heat = (power["total_w"] - power["pumps_w"]).to_numpy()
    np.testing.assert_allclose(found["pump_w"], heat / 100, rtol=1e-9)
    np.testing.assert_allclose(found["fan_w"], heat / 50, rtol=1e-9)
    back, expected = 0.0, []
    for one in heat:
        back = (back + 12 + one / 1e3) / 2
        expected.append(back)
    np.testing.assert_allclose(found["return_c"], expected, rtol=1e-9)
    total = power["total_w"].to_numpy()
    np.testing.assert_allclose(found["pue"], (total + heat * 0.03) / heat, rtol=1e-9)


def test_pumps_that_the_plant_counts_are_not_counted_twice(
    folder: Path, energy: ComponentEnergy
) -> None:
    plant = Fmu.from_yaml(folder / "mapping.yaml").model_copy(update={"cdu_pumps": True})
    np.testing.assert_allclose(energy.cooled_by(plant, 12.0)["pue"], 1.03, rtol=1e-9)


def test_exadigit_s_variables_are_a_preset() -> None:
    plant = Fmu.checked({"file": "frontier.fmu", "preset": "exadigit", "heat_share": 0.315}, "here")
    assert plant.cdu_pumps
    assert any("Q_flow_total" in name for name in plant.inputs)
    assert len(plant.outputs["pump_w"].of) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("heat_{cdu}", "heet_{cdu}"), "variable 'heet_1' does not exist.*Did you mean 'heat_"),
        (("[back_c]", "[bach_c]"), "variable 'bach_c' does not exist.*Did you mean 'back_c'"),
        (("Plant.fmu", "mapping.yaml"), "cannot be read as an FMU"),
        (("return_c:", "supply_c:"), "outputs with return_c"),
        (("of: cdu_w", "of: cdu_kw"), "cdu_kw|Input should be"),
    ],
)
def test_errors_of_a_mapping_are_named(
    folder: Path, energy: ComponentEnergy, change: tuple[str, str], message: str
) -> None:
    path = folder / "wrong.yaml"
    path.write_text(MAPPING.replace(*change))
    with pytest.raises(ConfigError, match=message):
        energy.cooled_by(Fmu.from_yaml(path), 12.0)
