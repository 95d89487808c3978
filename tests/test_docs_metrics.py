"""Every figure that a run prints is defined on the page of metrics."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from hpctwin import Workload, generate, simulate, write_workload
from hpctwin.cli import main
from hpctwin.metrics import METRICS

DOCS = Path(__file__).parent.parent / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

import metric_tables  # noqa: E402

PAGE = metric_tables.filled((DOCS / "reference/metrics.md").read_text())
NAMED = set(re.findall(r"`([^`\s]+)`", PAGE))
STATISTICS = ("mean_", "median_", "p95_", "p99_", "max_")
POWER = (
    "nodes: [{name: n, count: 32, modes: {base: {power_w: 200, idle_w: 90}}, sleep: [{name: off, "
    "power_w: 9, switch_off: {time: 60, power_w: 90}, switch_on: {time: 300, power_w: 150}}]}]"
)
SHARED = "nodes: [{name: n, count: 2, cores: 8, memory_gb: 64, gpus: 2}]"
STAR = (
    POWER
    + """
network: {topology: star, bandwidth: 1 GB/s, switch_power: {idle_w: 90}}"""
)
EXCHANGE = json.dumps(
    {
        "nb_res": 32,
        "profiles": {"p": {"type": "parallel_homogeneous", "cpu": 0, "com": 1e9}},
        "jobs": [{"id": 1, "profile": "p", "res": 4, "subtime": 0, "walltime": 60}],
    }
)
ENERGY = ["-M", "power.yaml", "--price", "0.25", "--carbon", "300"]
WINDOW = ["--from", "10h", "--until", "20h"]
CASES = {
    "whole nodes": ["simulate", "jobs.parquet", "-n", "32", "--fairness"],
    "power": ["simulate", "jobs.parquet", "-p", "fcfs+easy~psus:5m", "--max-delay", "2h", *ENERGY],
    "cooling": ["simulate", "jobs.parquet", "-M", "frontier", "--weather", "12"],
    "a window": ["simulate", "jobs.parquet", *ENERGY, *WINDOW],
    "shared nodes": ["simulate", "shared.parquet", "-M", "shared.yaml"],
    "a network": ["simulate", "exchange.json", "-M", "star.yaml", "--sharing", "fair"],
    "rejected jobs": ["simulate", "jobs.parquet", "-n", "20"],
    "a replay": ["replay", "jobs.parquet", "-n", "32"],
}


def is_defined(key: str) -> bool:
    """Whether the page names a figure: itself, by its statistic, or by the family it is of."""
    statistic = next((one for one in STATISTICS if key.startswith(one)), None)
    if key in NAMED or (statistic in NAMED and key.removeprefix(statistic or "") in NAMED):
        return True
    families = (re.sub(r"<\w+>", r"\\w+", one) for one in NAMED if re.search(r"<\w+>", one))
    return any(re.fullmatch(family, key) for family in families)


@pytest.mark.parametrize("case", CASES)
def test_every_figure_that_is_printed_is_defined(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    jobs = generate("poisson", jobs=120, nodes=32, seed=1)
    starts = simulate(jobs, 32, "fcfs+easy").jobs["start_s"].to_numpy() * 1000
    write_workload(jobs.replace(recorded_start_ms=np.rint(starts).astype(np.int64)), "jobs.parquet")
    asked = {"tasks": [1, 2], "cores_per_task": [2, 2], "gpus_per_task": [1, 0]}
    two = Workload.build(submit_s=[0, 1], runtime_s=[9, 9], nodes=[1, 1], chunks=asked)
    write_workload(two, "shared.parquet")
    Path("power.yaml").write_text(POWER)
    Path("star.yaml").write_text(STAR)
    Path("exchange.json").write_text(EXCHANGE)
    Path("shared.yaml").write_text(SHARED)
    with pytest.raises(SystemExit):
        main([*CASES[case], "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert len(printed) > 20
    assert [key for key in printed.keys() - {"notes"} if not is_defined(key)] == []


def test_only_declared_metrics_are_defined() -> None:
    assert not is_defined("mean_happiness")
    assert not is_defined("window_luck")
    assert is_defined("p95_wait_s")
    assert is_defined("machine_pumps_energy_j")


def test_the_page_has_a_row_for_each_metric() -> None:
    assert not any(mark in PAGE for mark in metric_tables.TABLES)
    assert {one for one in METRICS if f"`{one}`" not in PAGE} == set()
