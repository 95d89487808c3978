"""A cluster of a facility is followed as a twin follows its own: with a journal, and compared."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hpctwin.errors import JournalError
from hpctwin.rms.records.records import JobSpec
from tests.twin.facility.local import Hall


def job(job_id: str) -> JobSpec:
    return JobSpec(id=job_id, submit_s=0.0, nodes=1, walltime_s=600, user="ann")


def test_learned_runtimes_of_a_site_outlive_the_placer(tmp_path: Path) -> None:
    hall = Hall(tmp_path, predictor="recent")
    site = hall.sites[0]
    hall.turn()
    assert hall.clusters["a"].submit(job("1"), 10.0).result == "done"
    hall.clusters["a"].schedule()
    hall.run_on(20)
    hall.turn()
    assert site.runtime_s(job("2")) == 10.0
    site.follower.journal.close()
    again = hall.site("a", tmp_path, site.follower.bus, "recent")  # type: ignore[arg-type]
    assert again.runtime_s(job("2")) == 10.0
    # What it knew of the cluster is not trusted until the cluster has answered.
    assert again.fault is not None
    assert again.mirror.needs_snapshot is not None


def test_a_site_that_has_missed_the_last_event_is_set_right_by_the_comparison(
    tmp_path: Path,
) -> None:
    hall = Hall(tmp_path)
    site = hall.sites[0]
    hall.turn()
    assert hall.clusters["a"].submit(job("1"), 10.0).result == "done"
    assert site.follower.bus.receive(0.0)  # lost on its way
    until = time.monotonic() + 180
    while not site.mirror.jobs:
        assert time.monotonic() < until
        site.follower.due["resync"] = 0.0
        site.sync(0.01)
    assert site.follower.counts["drifts"] == 1


def test_a_site_with_an_unwritable_journal_gets_no_jobs_until_it_is_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hall = Hall(tmp_path)
    hall.turn()
    journal = hall.sites[0].follower.journal

    def full(*arguments: object) -> int:
        raise JournalError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(journal, "input", full)
        hall.clusters["a"].submit(job("1"), 1000.0)
        hall.turn()
        assert hall.sites[0].fault == "journal: the disk is full"
        hall.add("x")
        hall.add("y")
        hall.turn()
        assert {name for name, _ in hall.events("submitted")} == {"b"}
    hall.turn(2)
    assert hall.sites[0].fault is None
    assert set(hall.sites[0].mirror.jobs) == {"1"}
