"""A week of a part of SURF's Lisa with measured power, forecast an hour ahead.

OpenDT ships the data. Published mean absolute percentage errors of power on this week: OpenDT 4.39
% (5.13 % without self-calibration), FootPrinter 7.86 %.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.energy.power import calibration as fitting
from hpctwin.errors import TraceError
from hpctwin.report.columns import Table
from hpctwin_papers.experiment import Experiment, Progress
from hpctwin_papers.results import Results

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

STEP_S = 30
AHEAD, DAY = 3600 // STEP_S, 86400 // STEP_S
WINDOW, EVERY, RESIDUAL = 2 * DAY, 600 // STEP_S, 600 // STEP_S
FIRST = 2 * AHEAD
"""First sample whose forecast counts: an hour of measurements, then an hour ahead."""
WITHIN = range(10, AHEAD + 1, 10)
LEVELS = (0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.97)
"""Bounds of the use of a node's cores; nodes are counted by the level between them."""
PUBLISHED = {"OpenDT, self-calibrating": 4.39, "OpenDT": 5.13, "FootPrinter": 7.86}


@dataclass(frozen=True, eq=False)
class Week:
    """Tasks in each sample of 30 s, and the measured power.

    Args:
        power_w: Measured power, in W [samples].
        task: Task of each pair of a task and a sample in which it ran [n].
        sample: Sample of each pair [n].
        used: Used share of the task's cores in each pair, 0 to 1 [n].
        start: Sample in which each task began [tasks].
    """

    power_w: FloatArray
    task: IntArray
    sample: IntArray
    used: FloatArray
    start: IntArray

    @property
    def level(self) -> IntArray:
        """Level of use of each task in each sample, from 0 [n]."""
        return np.searchsorted(LEVELS, self.used, side="right")

    @cached_property
    def levels(self) -> FloatArray:
        """Number of nodes used at each level [samples, levels]."""
        shape = (len(self.power_w), len(LEVELS) + 1)
        place = self.sample * shape[1] + self.level
        return np.bincount(place, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)

    @cached_property
    def total(self) -> FloatArray:
        """Utilization in nodes, and number of busy nodes [samples, 2]."""
        size = len(self.power_w)
        busy = np.bincount(self.sample, minlength=size)
        return np.column_stack([np.bincount(self.sample, self.used, size), busy])


def read_week(folder: str | Path | None = None) -> Week:
    """Read the week.

    Args:
        folder: Folder with surf_tasks.parquet, surf_fragments.parquet and surf_consumption.parquet;
            default that of HPCTWIN_TRACES. If it contains a folder telemetry, that one is used.

    Raises:
        TraceError: A file is missing, cannot be read, or lacks a column.
    """
    place = Path(folder or os.environ.get("HPCTWIN_TRACES") or ".")
    place = place / "telemetry" if (place / "telemetry").is_dir() else place
    power = _read(place / "surf_consumption.parquet", ["timestamp", "power_draw"])
    uneven = (power["timestamp"].diff() != 1000 * STEP_S).fill_null(False)
    if uneven.any():
        at = power["timestamp"][int(uneven.arg_max() or 0)]
        raise TraceError(
            place / "surf_consumption.parquet",
            f"the sample at {at} ms is not {STEP_S} s after the previous one",
            field="timestamp",
        )
    tasks = _read(place / "surf_tasks.parquet", ["id", "submission_time", "cpu_capacity"])
    parts = _read(place / "surf_fragments.parquet", ["id", "cpu_usage"])
    began = (pl.col("submission_time") - pl.col("submission_time").min()).dt.total_milliseconds()
    tasks = tasks.with_columns(start=began // (1000 * STEP_S), task=pl.int_range(pl.len()))
    # The fragments of a task are consecutive in the file, each of one step.
    ran = parts.with_columns(number=pl.int_range(pl.len()).over("id")).join(
        tasks, on="id", how="inner", maintain_order="left"
    )
    ran = ran.select(
        "task",
        sample=pl.col("start") + pl.col("number"),
        used=(pl.col("cpu_usage") / pl.col("cpu_capacity")).clip(0, 1),
    ).filter(pl.col("sample") < len(power))
    return Week(
        power["power_draw"].to_numpy(),
        ran["task"].to_numpy(),
        ran["sample"].to_numpy(),
        ran["used"].to_numpy(),
        tasks["start"].to_numpy(),
    )


def _read(path: Path, columns: list[str]) -> pl.DataFrame:
    try:
        frame = pl.read_parquet(path, glob=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise TraceError(path, f"cannot be read as Parquet: {error}") from error
    for name in columns:
        if name not in frame.columns:
            raise TraceError(
                path, f"the column is missing; found {', '.join(frame.columns)}", field=name
            )
    return frame.select(columns)


@dataclass(frozen=True)
class Row:
    """Accuracy of a method's forecasts.

    Args:
        method: Name of the method.
        knowledge: ``utilisation`` (at the forecast time) or ``submissions`` (submissions and use up
            to the time of the forecast, but not future runtimes).
        mape_pct: Mean absolute percentage error of forecasts made exactly ``ahead_s`` before.
        ahead_s: Forecast horizon, in seconds: an hour.
        within_hour_pct: Error over the next hour: mean over forecasts made 5, 10, … 60 min before.
        by_ahead_pct: Error of each of these forecasts, by horizon in seconds.
        seconds: CPU time for the whole week, calibration and forecasts, without reading the files.
        by_day_pct: ``mape_pct`` of each day.
    """

    method: str
    knowledge: str
    mape_pct: float
    ahead_s: int
    within_hour_pct: float
    by_ahead_pct: dict[int, float]
    seconds: float
    by_day_pct: list[float | None] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return dict(vars(self))


def _fit(week: Week, use: FloatArray) -> fitting.Fit:
    return fitting.fit_line(use, week.power_w, window=WINDOW, every=EVERY)


def _line(week: Week, ahead: int) -> FloatArray:
    return _fit(week, week.total).forecast(ahead)


def _line_residual(week: Week, ahead: int) -> FloatArray:
    fit = _fit(week, week.total)
    return fit.forecast(ahead) + fit.residual(ahead, RESIDUAL)


def _levels(week: Week, ahead: int) -> FloatArray:
    return _fit(week, week.levels).forecast(ahead)


def _levels_residual(week: Week, ahead: int) -> FloatArray:
    fit = _fit(week, week.levels)
    return fit.forecast(ahead) + fit.residual(ahead, RESIDUAL)


def _known(week: Week, ahead: int) -> FloatArray:
    fit = _fit(week, week.levels)
    line = fit.forecast(ahead)
    both = [line, line + fit.residual(ahead, RESIDUAL), _line_residual(week, ahead)]
    return fitting.ensemble(both, week.power_w, ahead=ahead, window=6 * AHEAD)


def _last(week: Week, ahead: int) -> FloatArray:
    return fitting.last_measured(week.power_w, ahead)


def _as_now(week: Week, ahead: int) -> FloatArray:
    fit = _fit(week, week.levels)
    use = np.zeros_like(week.levels)
    use[ahead:] = week.levels[: len(use) - ahead]
    return fit.forecast(ahead, use) + fit.residual(ahead, RESIDUAL)


def _unknown(week: Week, ahead: int) -> FloatArray:
    both = [_last(week, ahead), _as_now(week, ahead)]
    return fitting.ensemble(both, week.power_w, ahead=ahead, window=6 * AHEAD)


METHODS: dict[str, tuple[str, Callable[[Week, int], FloatArray]]] = {
    "line": ("utilisation", _line),
    "line, residual": ("utilisation", _line_residual),
    "levels": ("utilisation", _levels),
    "levels, residual": ("utilisation", _levels_residual),
    "ensemble": ("utilisation", _known),
    "as it was": ("submissions", _last),
    "levels, use as it was": ("submissions", _as_now),
    "ensemble, use as it was": ("submissions", _unknown),
}
"""Knowledge and forecast (by samples ahead) of each method."""


@dataclass(frozen=True)
class Surf(Experiment[tuple[Week, str], Row]):
    """The power of each sample forecast by each method; see `Row`.

    Args:
        data_folder: Folder of the week's files; see `read_week`.
    """

    data_folder: Path | None = None
    title = "power an hour ahead"
    serial = True

    def points(self) -> Sequence[tuple[Week, str]]:
        """See `Experiment`; methods."""
        week = read_week(self.data_folder)
        return [(week, method) for method in METHODS]

    def run(self, point: tuple[Week, str], progress: Progress) -> Row:
        """See `Experiment`."""
        week, method = point
        knowledge, forecast = METHODS[method]
        began = time.process_time()
        found = forecast(week, AHEAD)
        seconds = time.process_time() - began
        within = {
            STEP_S * ahead: fitting.mape_pct(forecast(week, ahead), week.power_w, FIRST)
            for ahead in WITHIN
        }
        return Row(
            method,
            knowledge,
            fitting.mape_pct(found, week.power_w, FIRST),
            STEP_S * AHEAD,
            float(np.mean(list(within.values()))),
            within,
            seconds,
            fitting.rolling_mape_pct({"": found}, week.power_w, FIRST, DAY)[""],
        )

    def results(self, found: Sequence[Row]) -> Results:
        """See `Experiment`."""
        heads = ["method", "knows", "1 h ahead %", "within 1 h %", "CPU s", "1 h ahead by day %"]
        rows = [
            [
                row.method,
                row.knowledge,
                f"{row.mape_pct:.2f}",
                f"{row.within_hour_pct:.2f}",
                f"{row.seconds:.2f}",
                " ".join(f"{error:.1f}" for error in row.by_day_pct),
            ]
            for row in found
        ]
        published = ", ".join(f"{name} {error:g}" for name, error in PUBLISHED.items())
        return Results(
            tables=[Table(heads, rows, words=2)],
            notes=[f"published errors of power on this week: {published}"],
            rows=[row.plain() for row in found],
        )
