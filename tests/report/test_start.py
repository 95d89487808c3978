"""The chart of when a job will start."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.dates import num2date

from hpctwin.cli.live.when import _draw
from hpctwin.errors import HpctwinError
from hpctwin.report import plot_start
from hpctwin.twin.forecast.forecaster import LEVELS
from hpctwin.twin.start_times.estimate import When

NOW_S = 1.79e9
QUANTILES_S = tuple((NOW_S + 600.0 * np.exp(np.linspace(0, 3, len(LEVELS)))).tolist())
WAITS = When(
    "waiting", ("It waits.",), NOW_S + 3000, NOW_S + 900, NOW_S + 9000, True, "p", QUANTILES_S
)


def test_it_shows_probability_rising_from_now_on_and_the_interval() -> None:
    figure = plot_start(
        QUANTILES_S, LEVELS, now_s=NOW_S, start_s=NOW_S + 3000, span_s=(NOW_S + 900, NOW_S + 9000)
    )
    (ax,) = figure.axes
    times, share = ax.lines[0].get_data()
    assert num2date(times[0]).timestamp() == pytest.approx(NOW_S)
    assert share.tolist() == [0.0, *LEVELS]
    assert (np.diff(times) > 0).all()
    assert ax.get_xlim()[0] == pytest.approx(times[0])
    assert ax.get_xlim()[1] > times[-1]


def test_the_command_writes_it_to_a_file(tmp_path: Path) -> None:
    _draw(WAITS, NOW_S, "Job 7", tmp_path / "start.png")
    assert (tmp_path / "start.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (
            When("waiting", (), NOW_S + 9, NOW_S, NOW_S + 99),
            "too few starts were observed for an estimate",
        ),
        (When("gone", ()), "the job is not in the queue"),
        (When("running", (), NOW_S, NOW_S, NOW_S, True), "the job is already running"),
        (When("stuck", ()), "no estimate of the job's start"),
    ],
)
def test_a_chart_without_data_says_why(found: When, why: str, tmp_path: Path) -> None:
    with pytest.raises(HpctwinError, match=why):
        _draw(found, NOW_S, "Job 7", tmp_path / "start.png")
    assert not list(tmp_path.iterdir())
