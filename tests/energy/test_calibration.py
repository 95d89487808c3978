"""Calibration on measured power: it sees the past only, and is as good as it says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from hpctwin.cli import main
from hpctwin.energy.power import calibration


def test_the_line_is_that_of_least_squares_through_its_window() -> None:
    rng = np.random.default_rng(3)
    use = rng.uniform(0, 200, (400, 3))
    measured = 4000 + use @ [3.0, 5.0, -2.0] + rng.normal(0, 30, 400)
    fit = calibration.fit_line(use, measured, window=100, every=10)
    for sample in (250, 255, 399):
        end = sample // 10 * 10
        columns = np.column_stack([np.ones(100), use[end - 100 : end]])
        expected = np.linalg.lstsq(columns, measured[end - 100 : end], rcond=None)[0]
        assert fit.weights[sample] == pytest.approx(expected, rel=1e-3)
    made = fit.forecast(25)[300]
    assert made == pytest.approx(fit.weights[275] @ [1, *use[300]])
    late = measured[271:276] - np.column_stack([np.ones(5), use[271:276]]) @ fit.weights[275]
    assert fit.residual(25, 5)[300] == pytest.approx(late.mean())


def test_an_ensemble_follows_the_model_that_was_right_so_far() -> None:
    measured = np.full(400, 1000.0)
    one = np.where(np.arange(400) < 200, 1001.0, 1100.0)
    other = np.where(np.arange(400) < 200, 1100.0, 1001.0)
    found = calibration.ensemble([one, other], measured, ahead=10, window=50)
    assert found[5] == pytest.approx(1050.5)  # nothing is known of either
    assert found[150] == pytest.approx(1001.0, abs=0.1)
    assert found[205] == pytest.approx(1100.0, abs=0.1)  # it has not been seen yet
    assert found[300] == pytest.approx(1001.0, abs=0.1)


def _table(path: Path) -> pl.DataFrame:
    rng = np.random.default_rng(1)
    busy = np.repeat(rng.integers(0, 100, 60), 20).astype(float)
    table = pl.DataFrame(
        {
            "time_s": np.arange(1200) * 30.0,
            "power_w": 3000 + 200 * busy + rng.normal(0, 20, 1200),
            "busy": busy,
        }
    )
    table.write_csv(path)
    return table


def test_calibrate_reports_errors_and_writes_forecasts(tmp_path: Path, capsys) -> None:
    table = _table(tmp_path / "m.csv")
    with pytest.raises(SystemExit) as ended:
        main(
            ["calibrate", str(tmp_path / "m.csv"), "--horizon", "30m", "--rolling", "3h", "--json",
             "--out", str(tmp_path / "f.parquet"), "--plot", str(tmp_path / "f.png")]
        )  # fmt: skip
    assert ended.value.code == 0
    rows = {row["model"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["line"]["mape_pct"] < 1 < rows["as it was"]["mape_pct"]
    assert rows["ensemble"]["mape_pct"] < rows["as it was"]["mape_pct"] / 10
    assert len(rows["line"]["rolling_pct"]) == 3
    written = pl.read_parquet(tmp_path / "f.parquet")
    assert written.columns == ["time_s", "power_w", *rows]
    assert written["as it was"][60] == pytest.approx(table["power_w"][0])
    assert (tmp_path / "f.png").exists()


def test_nothing_is_fitted_to_what_was_not_measured(tmp_path: Path, capsys) -> None:
    path = tmp_path / "m.parquet"
    gap = pl.when(pl.int_range(pl.len()).is_between(300, 799)).then(None).otherwise("power_w")
    _table(tmp_path / "m.csv").with_columns(power_w=gap).write_parquet(path)
    with pytest.raises(SystemExit) as ended:
        main(["calibrate", str(path), "--horizon", "30m", "--rolling", "2h", "--json",
              "--plot", str(tmp_path / "f.png")])  # fmt: skip
    assert ended.value.code == 0
    rows = {row["model"]: row for row in json.loads(capsys.readouterr().out)}
    # Two hours are 240 samples, from the 121st on: the second lies in the gap.
    told = [one is not None for one in rows["line"]["rolling_pct"]]
    assert told == [True, False, True, True, True]
    assert rows["line"]["mape_pct"] < 1 < rows["as it was"]["mape_pct"]


@pytest.mark.parametrize(
    ("change", "options", "code", "said"),
    [
        (lambda t: t.rename({"power_w": "power"}), [], 2, "Did you mean 'power'?"),
        (lambda t: t.drop("busy"), [], 2, "no column of use next to time_s and power_w"),
        (lambda t: t.with_columns(power_w=0), [], 2, "row 1: found 0, expected a number above 0"),
        (lambda t: t.with_columns(busy=pl.lit("many")), [], 2, "found 'many', expected a number"),
        (
            lambda t: t.filter(pl.col("time_s") != 300),
            [],
            2,
            "row 11: times must increase by equal steps",
        ),
        (lambda t: t.head(100), [], 2, "covers 3000 s; a forecast 1h ahead needs more than 7200 s"),
        (
            lambda t: t,
            ["--refit-every", "10s"],
            2,
            "--refit-every is 10s; it must be at least the 30 s between samples",
        ),
        (lambda t: t, ["--window", "long"], 2, "'long' is not a duration"),
    ],
)
def test_unusable_calibration_data_is_reported(
    change, options, code, said, tmp_path, capsys
) -> None:
    path = tmp_path / "m.csv"
    change(_table(path)).write_csv(path)
    with pytest.raises(SystemExit) as ended:
        main(["calibrate", str(path), *options])
    assert ended.value.code == code
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""
