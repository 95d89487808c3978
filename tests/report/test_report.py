"""``hpctwin report``: finished runs beside each other."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from hpctwin import Cluster, generate, simulate
from hpctwin.cli.app import main
from hpctwin.metrics import binned
from hpctwin.report.energy import plot_pareto, plot_power
from hpctwin.report.figures.timeline import plot_utilization
from hpctwin.report.figures.workload import _short, plot_wait_heat
from hpctwin.report.pages.run import write_run
from tests.report.report_runs import jobs

MACHINE = Cluster.model_validate(
    {
        "name": "m",
        "nodes": [
            {
                "name": "n",
                "count": 8,
                "modes": {"base": {"power_w": 200, "idle_w": 100}},
                "sleep": [
                    {
                        "name": "off",
                        "power_w": 5,
                        "switch_off": {"time": 10, "power_w": 5},
                        "switch_on": {"time": 20, "power_w": 200},
                    }
                ],
            }
        ],
    }
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two runs with power states."""
    folder = tmp_path_factory.mktemp("runs")
    workload = generate("poisson", jobs=25, nodes=8, seed=2)
    trace = folder / "trace.swf"
    trace.write_text("; not read")
    for name, policy in (("five", "fcfs+easy~psus:5m"), ("hour", "sjf+easy~psus:1h")):
        result = simulate(workload, MACHINE, policy, log=True)
        write_run(result, folder / name, {}, inputs=[trace])
    return folder


def report(*arguments: Any) -> int:
    with pytest.raises(SystemExit) as end:
        main(["report", *map(str, arguments)])
    return int(end.value.code)


def test_the_page_has_figures_definitions_and_how_each_run_was_made(
    runs: Path, tmp_path: Path
) -> None:
    page, figures = tmp_path / "report.html", tmp_path / "figures"
    assert report(runs, "--html", page, "--figures", figures, "--figure-format", "svg") == 0
    names = {path.stem for path in figures.iterdir()}
    assert names == {
        "bars", "kiviat", "wait-cdf", "wait-by-size", "wait-heat", "utilization", "queue",
        "energy-against-wait", "power", "gantt-1", "gantt-2", "states-1", "states-2",
    }  # fmt: skip
    text = page.read_text()
    assert text.count("<img") == len(names)
    rest = re.sub(r'src="data:[^"]*"', "", text)
    assert not re.search(r"https?://|@import|<link|<script|url\(", rest)
    for name in ("five", "hour"):
        manifest = json.loads((runs / name / "manifest.json").read_text())
        (hash_,) = manifest["inputs"].values()
        assert hash_ in text
        assert manifest["policy"] in text
    assert "Feitelson et al. 1997" in text
    assert "@media print" in text


def test_runs_under_one_policy_are_distinguished_by_their_folders(
    runs: Path, tmp_path: Path
) -> None:
    twice = tmp_path / "again"
    twice.symlink_to(runs / "five")
    other = tmp_path / "other"
    other.symlink_to(runs / "five")
    page = tmp_path / "report.html"
    assert report(twice, other, "--html", page) == 0
    text = page.read_text()
    assert "(again)" in text
    assert "(other)" in text


def test_wrong_usage_is_reported_without_a_traceback(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, says in (
        ((), "no runs given; give folders written by"),
        ((runs,), "--html FILE or --figures FOLDER"),
        ((tmp_path / "no", "--html", tmp_path / "x.html"), "the folder does not exist"),
        ((runs, "--figures", tmp_path / "f", "--figure-format", "gif"), "gif"),
    ):
        assert report(*arguments) == 2, arguments
        assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_another_version_is_rejected_by_its_format(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "run"
    shutil.copytree(runs / "five", other)
    manifest = json.loads((other / "manifest.json").read_text())
    (other / "manifest.json").write_text(json.dumps(manifest | {"format": 99, "hpctwin": "9.9"}))
    assert report(other, "--html", tmp_path / "r.html") == 2
    said = capsys.readouterr().err
    assert "run: format 99, written by hpctwin 9.9; this is hpctwin" in said
    assert not (tmp_path / "r.html").exists()


def test_the_heat_map_holds_every_job_that_ran_in_one_class() -> None:
    frame = jobs()
    figure = plot_wait_heat({"a": frame, "b": frame})
    for ax in figure.axes[:2]:
        numbers = [re.search(r"\((\d+)\)", text.get_text())[1] for text in ax.texts]
        assert sum(map(int, numbers)) == 39  # one of 40 still runs


def test_the_heat_map_has_no_classes_outside_its_jobs_and_shows_the_wait_in_numbers() -> None:
    frame = pl.DataFrame({
        "job_id": [1, 2, 3], "submit_s": [0.0, 0.0, 0.0], "start_s": [0.0, 7200.0, 7200.0],
        "end_s": [10.0, 8000.0, 8000.0], "nodes": [4, 32, 32], "walltime_s": [3000.0] * 3,
        "state": ["completed"] * 3,
    })  # fmt: skip
    ax = plot_wait_heat({"a": frame}).axes[0]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["≤ 1 h"]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["≤ 4", "≤ 8", "≤ 16", "≤ 32"]
    assert [text.get_text() for text in ax.texts] == ["<1 min\n(1)", "2.0 h\n(2)"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "<1 min"), (90, "2 min"), (5990, "100 min"), (6000, "1.7 h"), (36_000, "10 h"),
     (400_000, "4.6 d"), (1e8, "1157 d")],
)  # fmt: skip
def test_a_wait_in_a_class_is_short(seconds: float, text: str) -> None:
    assert _short(seconds) == text


def test_the_line_of_energy_against_waiting_joins_those_that_none_is_better_than() -> None:
    points = {"a": (10.0, 600.0), "b": (20.0, 300.0), "c": (20.0, 900.0), "d": (30.0, 300.0)}
    (line,) = [one for one in plot_pareto(points).axes[0].lines if len(one.get_xdata()) > 1]
    assert np.asarray(line.get_xdata()).tolist() == [5.0, 10.0]


def test_two_runs_that_draw_the_same_power_are_both_seen() -> None:
    drawn = pl.DataFrame({"time_s": [0.0, 50.0, 90.0], "total_w": [100.0, 300.0, 0.0]})
    first, second = plot_power({"a": drawn, "b": drawn}).axes[0].lines
    assert first.get_linewidth() == second.get_linewidth()
    assert first.get_linestyle() != second.get_linestyle()


def test_peaks_of_a_long_run_are_drawn_above_its_means() -> None:
    import polars as pl

    time = np.arange(0.0, 92 * 86400.0, 3600.0)
    used = np.random.default_rng(1).integers(0, 9, len(time))
    steps = pl.DataFrame(
        {"time_s": time, "queue_length": 0, "queued_nodes": 0, "running_jobs": 1, "used_nodes": used,
         "free_nodes": 8 - used, "up_nodes": 8, "utilization": used / 8}
    )  # fmt: skip
    figure = plot_utilization({"a": steps})
    mean, peak, _ = (patch.get_data() for patch in figure.axes[0].patches)  # type: ignore[attr-defined]
    assert len(mean.values) <= 140
    assert (peak.values >= mean.values - 1e-9).all()
    edges = np.append(np.arange(0, time[-1], 86400.0), time[-1])
    assert peak.values.tolist() == binned(time, used.astype(float), edges)[1].tolist()
    assert "means over 1 d" in figure.axes[-1].get_xlabel()
