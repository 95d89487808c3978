"""The table of a sweep, on terminals of several widths."""

from __future__ import annotations

import io
import re

import polars as pl
import pytest
from rich.console import Console

import hpctwin
from hpctwin.report.figures.sweep import sweep_table

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
