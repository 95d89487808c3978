"""All times that SimGrid 3.32 gives for cases of parallel tasks on ten platforms."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.traces
RUNNER = Path(__file__).parents[2] / "benchmarks" / "simgrid.py"


def test_all_ends_are_those_of_simgrid(golden: Path) -> None:
    folder = golden / "simgrid"
    command = [sys.executable, RUNNER, folder / "cases.json", "--platforms", folder / "platforms"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {(row["case"], row["job"]): row for row in csv.DictReader(shown.splitlines())}
    with (folder / "golden_simgrid-3.32.csv").open() as file:
        expected = list(csv.DictReader(file))
    assert len(expected) > 1400
    for row in expected:
        finish = float(found[row["case"], row["job"]]["finish"])
        assert finish == pytest.approx(float(row["finish"]), rel=1e-9), row
