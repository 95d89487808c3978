"""A twin in charge that has nothing to act on says so, with counts of jobs by reason."""

from __future__ import annotations

import logging

import pytest

from hpctwin.rms.manager import Report
from hpctwin.twin.service.status_writer import Inactivity

PATIENCE_S = 600.0


def report(partitions: tuple[str, ...] | None, left: dict[str, str] | None = None) -> Report:
    return Report(partitions=partitions, left=left or {})


def test_a_twin_that_acts_in_no_partition_names_the_reasons_most_frequent_first() -> None:
    left = {"1": "core specialization", "2": "core specialization", "3": "in a reservation"}
    said = Inactivity(PATIENCE_S).turn(0.0, report((), left), set(), 0)
    assert said == (
        "the twin is active in no partition: 2 jobs (core specialization), 1 job (in a reservation)"
    )


def test_without_jobs_the_notes_of_the_snapshot_are_the_reason() -> None:
    said = Inactivity(PATIENCE_S).turn(
        0.0, Report(notes=("node n1 differs",), partitions=()), [], 0
    )
    assert said == "the twin is active in no partition: node n1 differs"


@pytest.mark.parametrize("partitions", [None, ("main",)])
def test_a_manager_without_partitions_and_one_acted_on_are_no_reason_to_warn(
    partitions: tuple[str, ...] | None,
) -> None:
    assert Inactivity(PATIENCE_S).turn(0.0, report(partitions, {"1": "preempts"}), set(), 0) == ""


def test_a_twin_that_is_not_in_charge_says_nothing() -> None:
    assert Inactivity(PATIENCE_S).turn(0.0, report(()), set(), None) == ""


def test_no_start_while_jobs_left_to_the_manager_start_is_reported_after_the_patience(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    watch = Inactivity(PATIENCE_S)
    left = {"7": "tasks per core", "8": "tasks per core"}
    assert watch.turn(0.0, report(("main",), left), set(), 5) == ""
    assert watch.turn(300.0, report(("main",), {}), {"7", "8"}, 5) == ""
    said = watch.turn(600.0, report(("main",), {}), {"7", "8"}, 5)
    assert said == (
        "the twin has started no job for 10 min, while 2 jobs that it leaves to the "
        "resource manager started: 2 jobs (tasks per core)"
    )
    # A start of the twin ends it; the same jobs are not counted again.
    assert watch.turn(601.0, report(("main",), {}), {"7", "8"}, 6) == ""
    assert watch.turn(2000.0, report(("main",), {}), {"7", "8"}, 6) == ""
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_quiet_cluster_where_no_job_started_is_no_reason_to_warn() -> None:
    watch = Inactivity(PATIENCE_S)
    watch.turn(0.0, report(("main",), {"7": "preempts"}), set(), 0)
    assert watch.turn(5000.0, report(("main",), {"7": "preempts"}), set(), 0) == ""
