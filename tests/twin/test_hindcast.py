"""A twin led through a past that is known, and how its forecasts came true."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from hpctwin import generate
from hpctwin.cli import main
from hpctwin.errors import WorkloadError
from hpctwin.formats import write_workload
from hpctwin.model import Category, Cluster, Workload
from hpctwin.policies import parse_policy
from hpctwin.twin.core.core import Core
from hpctwin.twin.settings.config import CoreSettings
from hpctwin.twin.start_times.hindcast import (
    Lived,
    at_once,
    hindcast,
    hindcast_scores,
    lived,
    lived_under,
    recorded,
    right_of_all,
    steadiness,
)

NODES = 16
MACHINE = Cluster.uniform(nodes=NODES)
POLICY = parse_policy("fcfs+easy")
SETTINGS = CoreSettings(pool=("fcfs+easy",), futures=4)


@pytest.fixture(scope="module")
def jobs() -> Workload:
    made = generate("poisson", jobs=200, nodes=NODES, seed=3, load=1.2)
    return made.replace(user=Category.of(np.arange(200) % 5))


@pytest.fixture(scope="module")
def past(jobs: Workload) -> Lived:
    return lived_under(jobs, MACHINE, POLICY)


@pytest.fixture(scope="module")
def said(past: Lived) -> pl.DataFrame:
    return hindcast(past, MACHINE, SETTINGS)


def test_the_core_sees_pending_and_running_jobs_at_each_event_time(past: Lived) -> None:
    core = Core(SETTINGS)
    submit = past.workload.submit_ms
    for now_s, new in lived(core, past, MACHINE):
        now = round(1000 * now_s)
        there = (submit <= now) & (past.end_ms > now)
        waits = there & (past.start_ms > now)
        seen = core.mirror.jobs
        assert set(seen) == {str(row + 1) for row in np.flatnonzero(there)}
        assert {i for i, job in seen.items() if job.start_s is None} == {
            str(row + 1) for row in np.flatnonzero(waits)
        }
        assert core.free_nodes() == NODES - past.workload.nodes[there & ~waits].sum()
        assert list(new) == np.flatnonzero(waits & (submit == now)).tolist()


def test_each_job_that_waits_is_forecast_at_submission_and_when_its_wait_has_halved(
    past: Lived, said: pl.DataFrame
) -> None:
    waited = past.workload.job_id[past.start_ms > past.workload.submit_ms]
    assert said.filter("at_submission")["job"].to_list() == sorted(waited.tolist())
    assert (said["wait_s"] > 0).all()
    rows = np.searchsorted(past.workload.job_id, said["job"].to_numpy())
    true_s = past.start_ms[rows] / 1000 - said["made_s"].to_numpy()
    np.testing.assert_allclose(said["wait_s"].to_numpy(), true_s, atol=2e-3)


def test_later_jobs_change_no_forecast(past: Lived, said: pl.DataFrame) -> None:
    """Labels shuffled among the jobs that start later: their starts and ends, and how long they run."""
    middle_ms = int(np.median(past.start_ms))
    later = np.flatnonzero(past.start_ms > middle_ms)
    other = np.random.default_rng(1).permutation(later)
    start_ms, end_ms = past.start_ms.copy(), past.end_ms.copy()
    shift = past.start_ms[other] - past.workload.submit_ms[later]
    start_ms[later] = np.maximum(
        past.start_ms[other], past.workload.submit_ms[later] + np.abs(shift)
    )
    end_ms[later] = start_ms[later] + (past.end_ms - past.start_ms)[other]
    still_runs = np.flatnonzero((past.start_ms <= middle_ms) & (end_ms > middle_ms))
    end_ms[still_runs] += 7_000_000
    assert len(still_runs)
    again = hindcast(replace(past, start_ms=start_ms, end_ms=end_ms), MACHINE, SETTINGS)
    before = (pl.col("made_s") < middle_ms / 1000).and_(pl.col("made_s") > 0)
    columns = [name for name in said.columns if name != "wait_s"]
    assert said.filter(before).height > 20
    assert said.filter(before).select(columns).equals(again.filter(before).select(columns))


def test_scores_count_what_was_covered_and_are_compared_with_both_rivals() -> None:
    row = {
        "job": 1, "nodes": 4, "made_s": 0.0, "at_submission": True, "wait_s": 100.0, "forecast_s": 90.0,
        "low_s": 80.0, "high_s": 120.0, "walltime_s": 200.0, "queue_low_s": 0.0, "queue_s": 50.0,
        "queue_high_s": 400.0,
    }  # fmt: skip
    missed = {**row, "made_s": 10.0, "nodes": 1, "wait_s": 300.0, "at_submission": False}
    # The first fifth is not counted.
    (one,) = hindcast_scores(
        pl.DataFrame([{**row, "made_s": -1.0}, row, row, missed, missed])
    ).to_dicts()
    assert (one["forecasts"], one["covered"], one["queue_covered"]) == (4, 0.5, 1.0)
    assert (one["width_s"], one["width_ratio"]) == (40.0, 0.1)
    assert one["median_error_s"] == (10.0 + 210.0) / 2
    assert one["error_ratio"] == 1.1
    assert one["within_1min"] == 0.5
    sizes = hindcast_scores(pl.DataFrame([row] * 5 + [missed] * 5), "size")
    assert sizes["bin"].to_list() == ["1", "3–4"]
    asked = hindcast_scores(pl.DataFrame([row] * 5 + [missed] * 5), "asked")
    assert asked["bin"].to_list() == ["at submission", "later"]


def forecasts(hours: int, each: int, held: np.ndarray) -> pl.DataFrame:
    """So many in each of some hours, and which held [hours · each]; a fifth comes before, and is left out."""
    made_s = np.repeat(3600.0 * np.arange(hours), each)
    before = -np.ones(len(made_s) // 4)
    rows = len(made_s) + len(before)
    return pl.DataFrame(
        {
            "job": np.arange(rows),
            "nodes": np.ones(rows, np.int64),
            "made_s": np.concatenate([before, made_s]),
            "wait_s": np.concatenate([before, np.where(held, 50.0, 150.0)]),
            "low_s": np.zeros(rows),
            "high_s": np.full(rows, 100.0),
        }
    )


def test_chance_is_binomial_for_separate_forecasts_and_less_for_others() -> None:
    rng = np.random.default_rng(1)
    alone = steadiness(forecasts(400, 4, rng.random(1600) < 0.8), "week")
    assert alone.classes == 3
    assert alone.alike == pytest.approx(0.0, abs=0.05)
    assert alone.together == pytest.approx(alone.independent, rel=0.15)
    # 672 forecasts to a week, two of them, and 256: sums of the binomial between 78 and 82 %.
    assert alone.independent == pytest.approx(2 * 0.805 + 0.576, abs=0.02)
    together = steadiness(forecasts(400, 4, np.repeat(rng.random(400) < 0.8, 4)), "week")
    assert together.alike == pytest.approx(1.0)
    assert together.independent == pytest.approx(alone.independent)
    assert together.together == pytest.approx(2 * 0.482 + 0.31, abs=0.03)


def test_classes_are_counted_in_which_what_was_promised_held() -> None:
    found = steadiness(forecasts(300, 4, np.arange(1200) % 5 < 4), "size")
    assert (found.classes, found.within) == (1, 1)
    assert found.off == pytest.approx(0.0)
    missed = steadiness(forecasts(300, 4, np.arange(1200) % 5 < 3), "size")
    assert (missed.classes, missed.within) == (1, 0)
    assert missed.off == pytest.approx(0.2)
    few = steadiness(forecasts(10, 4, np.ones(40, bool)), "week")
    assert (few.classes, few.off, few.independent, few.together) == (0, None, 0.0, 0.0)


def test_forecasts_are_right_if_jobs_start_at_once_or_near_enough(
    past: Lived,
) -> None:
    waits = [0.0, 100.0, 1000.0, 5000.0, 59.0]
    said = pl.DataFrame(
        {
            "made_s": [float(number) for number in range(5)],
            "at_submission": [True, True, True, True, True],
            "wait_s": waits,
            "forecast_s": [0.0, 130.0, 1500.0, 5000.0, 0.0],
        }
    )
    # The first fifth is left out; of the others all but the third are right to a minute.
    share = at_once(past)
    assert 0.0 < share < 1.0
    assert right_of_all(past, said, 60.0) == pytest.approx(share + (1 - share) * 3 / 4)
    assert right_of_all(past, said, 10.0) == pytest.approx(share + (1 - share) * 1 / 4)
    assert right_of_all(past, said.clear(), 60.0) == share


def test_on_a_crowded_cluster_futures_are_nearer_than_walltimes(said: pl.DataFrame) -> None:
    (score,) = hindcast_scores(said).to_dicts()
    assert score["error_ratio"] < 1.0
    assert 0.6 < score["covered"] < 0.95


def test_a_trace_without_starts_needs_a_policy(jobs: Workload) -> None:
    with pytest.raises(WorkloadError, match="has no start times of jobs; give the policy"):
        recorded(jobs)


def test_the_command_shows_each_class(
    jobs: Workload, tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"{tmp_path}/jobs.parquet"
    write_workload(jobs, path)
    asked = ["predictor", "forecast", path, "-n", str(NODES), "--every", "3", "--futures", "4"]
    with pytest.raises(SystemExit) as stop:
        main([*asked, "--under", "fcfs+easy", "--json"])
    assert not stop.value.code
    told = json.loads(capsys.readouterr().out)
    assert told["at_once"] <= told["right_of_all_1min"] < 1.0
    assert list(told) == ["at_once", "right_of_all_1min", "all", "asked", "size", "week", "steady"]
    assert told["steady"]["size"]["classes"] <= len(told["size"])
    assert 0.0 < told["at_once"] < 1.0
    assert told["all"][0]["forecasts"] == sum(row["forecasts"] for row in told["size"])
    with pytest.raises(SystemExit) as stop:
        main(asked)
    assert stop.value.code
    assert "has no start times of jobs" in capsys.readouterr().err
