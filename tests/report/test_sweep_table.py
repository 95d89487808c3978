"""The table of a sweep, on terminals of several widths."""

from __future__ import annotations

import io
import re

import polars as pl
import pytest
from rich.console import Console

import hpctwin
from hpctwin.metrics import paired_change
from hpctwin.report.columns import format_paired
from hpctwin.report.figures.sweep import plot_sweep, sweep_table

METRICS = ["mean_wait_s", "p95_wait_s", "mean_bounded_slowdown", "utilization"]


@pytest.fixture(scope="module")
def compared() -> pl.DataFrame:
    jobs = {"generate": "poisson", "options": {"jobs": 60, "nodes": 32}}
    found = hpctwin.sweep(
        workloads=[jobs], clusters=[32], policies=["fcfs+easy", "sjf+easy"], loads=[0.7, 1.0],
        seeds=6, workers=1,
    )  # fmt: skip
    return found.compare(METRICS)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_interval_is_broken_and_no_figure_is_lost_whatever_the_width(
    compared: pl.DataFrame, width: int
) -> None:
    page = io.StringIO()
    Console(file=page, width=width).print(sweep_table(compared, width=width))
    lines = page.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    intervals = re.findall(r"\[[^\[\]\n]+, [^\[\]\n]+\]", page.getvalue())
    assert len(intervals) == compared["low"].count() + compared["difference_low"].count()
    tables = sum("policy" in line for line in lines)
    assert tables == {60: 4, 80: 2}.get(width, 1)


def shown(metric: str, before: list[float], after: list[float]) -> str:
    change = paired_change(before, after)
    row = {
        **dict(zip(("difference", "difference_low", "difference_high"), change.difference, strict=True)),
        **dict(zip(("ratio", "ratio_low", "ratio_high"), change.ratio, strict=True)),
    }  # fmt: skip
    return format_paired(metric, row)[0]


def test_changes_are_in_percent_in_points_or_in_the_metrics_unit() -> None:
    tenth = shown("mean_bounded_slowdown", [100, 90, 80, 70, 60, 50, 40], [1, 9, 8, 30, 6, 5, 4])
    value, low, high = (float(one.replace("−", "-")) for one in re.findall(r"−[\d.]+", tenth))
    assert tenth.startswith(f"−{-value:.1f} %* [")
    assert -100 < low < value < high < 0
    assert shown("utilization", [0.8] * 7, [0.75] * 6 + [0.74]).startswith("−5.1 pts* [−5.6, −5.0")
    assert shown("mean_wait_s", [0, 60, 60, 60, 60, 60], [0, 120, 120, 120, 120, 120]).startswith(
        "+50 s* ["
    )
    assert shown("mean_wait_s", [60, 60], [120, 120]) == "+100.0 %"
    assert shown("jobs_rejected", [0, 0], [0, 0]) == "0"


def test_runs_that_are_all_alike_have_no_interval_and_prove_nothing() -> None:
    assert shown("mean_wait_s", [10.0] * 7, [5.0] * 7) == "−50.0 %"
    assert shown("mean_wait_s", [10.0] * 7, [5.0] * 6 + [5.1]).startswith("−49.9 %* [")


def test_the_caption_explains_percent_and_points(compared: pl.DataFrame) -> None:
    page = io.StringIO()
    Console(file=page, width=200).print(sweep_table(compared, width=200))
    text = " ".join(page.getvalue().split())
    assert "in percent: geometric mean of the ratios; pts: percentage points" in text
    assert " pts" in text


def test_shifts_have_their_unit_and_parameters_keep_their_name() -> None:
    jobs = {"generate": "poisson", "options": {"jobs": "{n_s}", "nodes": 8}}
    found = hpctwin.sweep(
        workloads=[jobs], policies=["fcfs+easy"], shifts=[0, 600], parameters={"n_s": [20, 30]}
    )
    page = io.StringIO()
    Console(file=page, width=200).print(sweep_table(found.compare(METRICS), width=200))
    assert "shift " in page.getvalue()
    assert "10 min" in page.getvalue()
    assert "n_s" in page.getvalue()
    figure = plot_sweep(found.compare(METRICS))
    assert {ax.get_xlabel() for ax in figure.axes} == {"shift (s)"}
