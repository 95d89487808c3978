"""All that computes metrics computes those of the registry, and finds the same values."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given

from hpctwin.metrics import served as served_jobs
from hpctwin.metrics import summarize, with_job_metrics
from hpctwin.metrics.jobs import expression
from hpctwin.metrics.registry import METRICS, TAU_S, computed_from, main_statistics
from hpctwin.metrics.sources import JobTable
from hpctwin.twin.what_if.objective import METRICS as OBJECTIVES
from tests.metrics.metric_frames import NO_LOST, capacity, frame, results

STATISTICS = main_statistics(*METRICS)


@given(results())
def test_summaries_tables_and_arrays_have_the_same_statistics(
    result: tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame],
) -> None:
    summary = summarize(*result, 100)
    table = with_job_metrics(served_jobs(result[0]))
    _, arrays = JobTable(result[0]).served(TAU_S)
    for name, statistic in STATISTICS.items():
        found = table.select(expression(statistic)).item()
        assert found == (None if summary[name] is None else pytest.approx(summary[name]))
        assert statistic.of(arrays) == pytest.approx(summary[name] or 0.0)


def test_summaries_and_objectives_of_the_twin_have_all_statistics_of_jobs() -> None:
    summary = summarize(frame(), NO_LOST, capacity((0, 4)), 4)
    assert STATISTICS.keys() <= summary.keys()
    assert STATISTICS.keys() <= OBJECTIVES.keys()


def test_a_metric_is_skipped_if_a_required_total_is_unknown() -> None:
    assert computed_from(()).keys() == STATISTICS.keys()
    assert computed_from({"used"}).keys() == STATISTICS.keys()
    assert computed_from({"used", "present"}).keys() == {*STATISTICS, "utilization"}
