"""Intervals in which runtimes will lie: without look-ahead, and as often as they promise."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hpctwin import errors
from hpctwin.cli import main
from hpctwin.formats import write_workload
from hpctwin.learn.prediction import WAYS, Known, Training, interval_scores, intervals
from hpctwin.model import Category, Workload

OFTEN = Training(every=150, first=60)


def jobs(count: int = 700, seed: int = 0) -> Workload:
    """Users whose jobs run around lengths of their own, wider spread for those of many nodes."""
    rng = np.random.default_rng(seed)
    user, nodes = rng.integers(0, 5, count), 2 ** rng.integers(0, 3, count)
    runtime = 200.0 * 2.0 ** (user + rng.normal(0.0, 0.2 * nodes))
    submit = np.cumsum(rng.exponential(300.0, count))
    return Workload.build(
        submit_s=submit,
        runtime_s=np.minimum(runtime, 80_000.0),
        walltime_s=np.full(count, 86_400.0),
        nodes=nodes,
        user=Category.of(user),
        recorded_start_s=submit,
    )


@pytest.fixture(scope="module")
def known() -> Known:
    return Known.of(jobs())


def test_jobs_that_end_later_leave_intervals_unchanged(known: Known) -> None:
    now = 400
    before = intervals(known, training=OFTEN)
    later = known.end_ms > known.workload.submit_ms[now]
    changed = known.workload.runtime_ms.copy()
    changed[later] = np.random.default_rng(1).permutation(changed[later])
    after = intervals(
        Known(known.workload.replace(runtime_ms=changed), known.end_ms), training=OFTEN
    )
    for way in WAYS:
        for one, other in zip(before[way], after[way], strict=True):
            assert np.array_equal(one[: now + 1], other[: now + 1], equal_nan=True)
    assert not np.array_equal(before["conformal"][0], after["conformal"][0], equal_nan=True)


@pytest.mark.parametrize("coverage", [0.5, 0.8])
def test_conformal_intervals_hold_about_as_often_as_they_promise(
    known: Known, coverage: float
) -> None:
    found = intervals(known, coverage=coverage, training=OFTEN)
    rows = {row["way"]: row for row in interval_scores(known, "runtime_s", found).to_dicts()}
    assert list(rows) == list(WAYS)
    for row in rows.values():
        assert row["held"] + row["below"] + row["above"] == pytest.approx(1.0)
        assert row["median_factor"] >= 1.0
    assert rows["conformal"]["held"] == pytest.approx(coverage, abs=0.05)
    low, high = found["conformal"]
    there = ~np.isnan(low)
    assert (low[there] >= 1.0).all()
    assert (low[there] <= high[there]).all()
    assert (high[there] <= known.walltime_s[there]).all()


def test_many_jobs_that_miss_at_once_do_not_make_later_intervals_endless() -> None:
    before, burst, after = jobs(300, 1), jobs(600, 2), jobs(300, 3)
    parts = [before.submit_ms, np.full(600, before.submit_ms[-1] + 1)]
    parts.append(parts[1][0] + 86_400_000 + after.submit_ms)
    # All of them were foretold before the first ended, and ran far longer.
    runtime = [before.runtime_ms, 20 * burst.runtime_ms, after.runtime_ms]
    submit = np.concatenate(parts) / 1000
    made = Workload.build(
        submit_s=submit,
        runtime_s=np.minimum(np.concatenate(runtime) / 1000, 80_000.0),
        walltime_s=np.full(1200, 10.0 * 86_400),
        nodes=np.ones(1200),
        user=Category.of(np.concatenate([part.user.codes for part in (before, burst, after)])),
        recorded_start_s=submit,
    )
    low, high = intervals(Known.of(made), training=OFTEN)["conformal"]
    assert np.median(high[-200:] / low[-200:]) < 300.0


def test_wide_classes_get_wide_intervals(known: Known) -> None:
    table = interval_scores(known, "runtime_s", intervals(known, training=OFTEN), "size")
    ours = table.filter(table["way"] == "conformal")
    assert ours["bin"].to_list() == ["1", "2", "3–4"]
    widths = ours["mean_log2_width"].to_list()
    assert widths == sorted(widths)
    assert widths[-1] > 1.5 * widths[0]
    weeks = interval_scores(known, "runtime_s", intervals(known, training=OFTEN), "week")
    assert weeks["jobs"].sum() == table["jobs"].sum()


def test_the_command_shows_each_way_and_class_and_rejects_what_cannot_be(
    tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_workload(jobs(300), tmp_path / "trace.parquet")
    asked = ["predictor", "intervals", str(tmp_path / "trace.parquet"), "--every", "100"]
    with pytest.raises(SystemExit) as stop:
        main([*asked, "--by", "size", "--json"])
    assert stop.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert told["coverage"] == 0.8
    assert [row["way"] for row in told["ways"]] == list(WAYS)
    assert {row["bin"] for row in told["by"]} == {"1", "2", "3–4"}
    with pytest.raises(SystemExit):
        main([*asked, "--coverage", "1.5"])
    assert "coverage is 1.5; it must be above 0 and below 1" in capsys.readouterr().err
    with pytest.raises(errors.UnknownNameError, match="node_w"):
        intervals(Known.of(jobs(100)), "node_w")
