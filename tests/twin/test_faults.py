"""Whatever is raised in the loop, the twin goes on: out of charge, with the reason, until it is over."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from hpctwin.rms.manager import Outcome, Report, Way
from hpctwin.rms.records.records import JobSpec
from hpctwin.twin.start_times.estimate import answer, picture
from tests.twin.test_runner import Manager, Setting


class Leasing(Manager):
    """The cluster as a manager with leases, which its own scheduler keeps; jobs start when admitted."""

    clock_speed = 1.0

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.until_s: dict[str, float] = {}
        self.calls: list[Mapping[str, float]] = []
        self.refuses: Outcome | None = None
        self.look_age_s = 0.0

    def ways(self) -> frozenset[Way]:
        return frozenset({"lease"})

    def report(self) -> Report:
        return Report(
            look_age_s=self.look_age_s, fault="squeue took longer" * (self.look_age_s > 0)
        )

    def leases(self) -> dict[str, float]:
        waits = [job.spec.id for job in self.inner.snapshot().jobs if job.start_s is None]
        return {job_id: self.until_s.get(job_id, 0.0) for job_id in waits}

    def lease(self, until_s: Mapping[str, float]) -> dict[str, Outcome]:
        self.calls.append(until_s)
        if self.refuses is not None:
            return dict.fromkeys(until_s, self.refuses)
        self.until_s.update(until_s)
        return dict.fromkeys(until_s, Outcome("done"))

    def admit(self, job_ids: Sequence[str]) -> dict[str, Outcome]:
        self.until_s.update(dict.fromkeys(job_ids, 0.0))
        return {job_id: self.start(job_id) for job_id in job_ids}

    def heartbeat(self, seq: int, *, starts_at_once: bool = False) -> None:
        pass


@pytest.fixture
def setting(tmp_path, monkeypatch) -> Any:
    monkeypatch.setattr("tests.twin.test_runner.Manager", Leasing)
    made = Setting(tmp_path, act={"by": "lease", "max_staleness": 5})
    # Without the twin's word its scheduler starts nothing: that is the leases' doing here.
    made.cluster.take_scheduling()
    yield made
    made.twin.end()
    made.journal.close()


def until(setting: Setting, reached: Any, seconds: float = 180.0) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, setting.twin.faults
        setting.turn(1)


def test_jobs_that_wait_are_leased_and_those_chosen_are_admitted(setting: Any) -> None:
    setting.turn()
    setting.submit(1)
    setting.submit(2)
    until(setting, lambda: setting.running() == {"1"})
    until(setting, lambda: set(setting.manager.until_s) == {"1", "2"})
    assert setting.manager.until_s["1"] == 0.0
    assert setting.manager.until_s["2"] > setting.cluster.now_s
    setting.twin.end()  # nothing is left behind
    assert setting.manager.leases() == {"2": 0.0}


def test_a_job_that_requests_what_the_cluster_does_not_report_is_left_to_it_and_named_once(
    setting: Any, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(type(setting.cluster), "_never", lambda self, spec: "")
    setting.turn()
    spec = JobSpec(id="9", submit_s=0, nodes=8, walltime_s=60, resources={"other": 1})
    assert setting.cluster.submit(spec, 30).result == "done"
    setting.submit(1)
    setting.submit(2)
    until(setting, lambda: setting.running() == {"1"})
    until(setting, lambda: "2" in setting.manager.until_s)
    assert "9" not in setting.manager.until_s
    assert setting.twin.is_active
    assert setting.twin.fault is None
    note = (
        "job 9 is left to the resource manager: it requests resource 'other', but the cluster "
        "reports none"
    )
    assert setting.twin.status()["not_read"] == setting.twin.status()["not_read"] == [note]
    assert [one.getMessage() for one in caplog.records].count(note) == 1
    said = answer(picture(setting.twin.status_writer.standing(), ""), "9")
    assert said.when.state == "stuck"
    assert "requests resource 'other'" in said.when.why[-1]


@pytest.mark.parametrize(
    "raised", [ValueError("x"), RecursionError(), MemoryError(), SystemExit(3), GeneratorExit()]
)
@pytest.mark.parametrize("where", ["decide", "take_event", "actions"])
def test_no_exception_of_any_class_ends_the_loop(
    setting: Any, monkeypatch, where: str, raised: BaseException
) -> None:
    core = setting.twin.core
    setting.turn()

    def fail(*arguments: Any, **more: Any) -> None:
        raise raised

    with monkeypatch.context() as patched:
        patched.setattr(core, where, fail)
        setting.submit(1)
        setting.submit(2)
        until(setting, lambda: type(raised).__name__ in (setting.twin.fault or ""))
        assert not setting.twin.is_active
    until(setting, lambda: setting.running() == {"1"})
    until(setting, lambda: setting.twin.is_active and setting.twin.fault is None)


def test_a_twin_that_has_not_looked_for_too_long_is_out_of_charge_and_renews_nothing(
    setting: Any,
) -> None:
    setting.submit(1)
    setting.submit(2)
    until(setting, lambda: setting.manager.calls)
    setting.manager.look_age_s = 31.0
    setting.turn(2)
    assert not setting.twin.is_active
    assert setting.twin.fault == "blind: no contact with the cluster for 31 s: squeue took longer"
    calls, started = len(setting.manager.calls), len(setting.manager.started)
    setting.manager.until_s.clear()
    setting.submit(3)
    setting.turn(10)
    assert (len(setting.manager.calls), len(setting.manager.started)) == (calls, started)
    setting.manager.look_age_s = 0.0
    until(setting, lambda: setting.twin.is_active)


def test_a_rejected_job_that_started_unseen_leaves_the_twin_in_charge(
    setting: Any,
) -> None:
    setting.submit(1)
    setting.submit(2)
    until(setting, lambda: setting.manager.until_s.get("2", 0.0) > 0)
    # Job 2 has begun, which the next look will tell: until then its lease is refused, again and again.
    setting.manager.look_age_s = 4.0
    setting.manager.refuses = Outcome("refused", "job 2: Job is no longer pending execution")
    setting.manager.until_s.clear()
    executor, calls = setting.twin.control.executor, len(setting.manager.calls)
    for _ in range(5):
        executor._renewal_due = 0.0
        executor.act(None)
    assert len(setting.manager.calls) == calls + 5
    assert executor.fault == ""
    # A look since then still shows it waiting: now the twin cannot act.
    setting.manager.look_age_s = 0.0
    for _ in range(2):
        executor._renewal_due = 0.0
        executor.act(None)
    assert "no longer pending" in executor.fault
    setting.manager.refuses = None


def test_a_twin_with_rejected_leases_cannot_act_until_they_are_accepted(
    setting: Any,
) -> None:
    setting.manager.refuses = Outcome("refused", "Access/permission denied")
    setting.submit(1)
    setting.submit(2)
    until(setting, lambda: setting.twin.fault and "permission denied" in setting.twin.fault)
    setting.turn(2)
    assert not setting.twin.is_active
    setting.manager.refuses = None
    until(setting, lambda: setting.twin.is_active)


def test_the_journal_has_the_last_leases_in_one_row_and_decisions_are_made_again_from_it(
    setting: Any,
) -> None:
    from hpctwin.twin.journal.restore import decide_again

    setting.turn()
    for number in range(1, 6):
        setting.submit(number)
    until(setting, lambda: len(setting.manager.until_s) == 5)
    found = setting.journal.read_latest("leases")
    assert found is not None
    assert found[1]["jobs"] == len(found[1]["of"]) <= 4
    again = decide_again(setting.journal)
    assert again.differences == ()
