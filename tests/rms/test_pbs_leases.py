"""Leases on PBS, on commands that answer what a real OpenPBS with the hook said."""

from __future__ import annotations

import json
import time
import types
from pathlib import Path

import pytest

from hpctwin.rms.news import JobSeen
from hpctwin.rms.pbs.batch import MOST_AT_ONCE
from hpctwin.rms.pbs.jobs import Mark
from hpctwin.rms.pbs.leasing import LONGEST_S
from hpctwin.rms.pbs.manager import PbsManager
from hpctwin.rms.pbs.news import PbsNews
from hpctwin.rms.pbs.parse import Found, cluster_snapshot
from hpctwin.rms.pbs.reasons import reason_of
from hpctwin.rms.records import REASONS, JobSpec
from tests.rms.fake_pbs import FakePbs
from tests.rms.recorded import PBS

NOW_S = 1_795_295_851.0
"""Just after the recording, at 21:17:31 UTC."""
LEASED = {"48.vm", "49[1].vm", "49[2].vm", "49[3].vm"}
LEASE_S = 1_795_295_870.0
LATER_S = 1_795_305_300.0


@pytest.fixture
def pbs(tmp_path: Path) -> FakePbs:
    return FakePbs(tmp_path, "leases")


@pytest.fixture
def manager(pbs: FakePbs) -> PbsManager:
    found = PbsManager("theta", folder=str(pbs.bin), timeout_s=5.0)
    found.leasing.clock = lambda: NOW_S
    found.snapshot()
    pbs.calls()
    return found


def recorded(**about: bytes | bool) -> Found:
    return cluster_snapshot(
        PBS["leases-qstat.json"], PBS["leases-pbsnodes.json"], PBS["leases-queues.json"],
        PBS["leases-rstat.txt"], NOW_S, scheduling=bool(about.get("scheduling", True)),
    )  # fmt: skip


def specs(found: Found) -> dict[str, JobSpec]:
    return {job.spec.id: job.spec for job in found.snapshot.jobs if job.start_s is None}


# --- the picture -------------------------------------------------------------------------------------


def test_a_lease_is_no_begin_time_of_the_user(manager: PbsManager) -> None:
    jobs = specs(recorded())
    assert {i: s.not_before_s for i, s in jobs.items() if s.not_before_s} == {"32.vm": LATER_S}
    leases = manager.leases()
    assert {job_id for job_id, until_s in leases.items() if until_s} == LEASED
    assert {leases[job_id] for job_id in LEASED} == {LEASE_S}
    assert leases["32.vm"] == 0.0
    assert "41.vm" not in leases  # submitted past the hook
    assert "30.vm" not in leases  # runs
    manager.leasing.clock = lambda: LEASE_S + 1
    assert not any(manager.leases().values())


def test_what_pbs_will_not_start_says_why() -> None:
    assert {job_id: spec.reason for job_id, spec in specs(recorded()).items() if spec.reason} == {
        "37.vm": "partition: queue stopped is stopped",
        "41.vm": "nodes: Not enough total nodes available",
        "45.vm": "limit: User has reached queue small running job limit.",
        "47.vm": "partition: queue stopped is stopped",
    }


def test_where_scheduling_is_off_nothing_is_to_be_started(pbs: FakePbs) -> None:
    pbs.scheduling(False)
    snapshot = PbsManager("theta", folder=str(pbs.bin)).snapshot()
    assert not snapshot.own_scheduling
    waiting = [job.spec for job in snapshot.jobs if job.start_s is None]
    assert {spec.reason.partition(":")[0] for spec in waiting} == {"policy", "partition"}
    assert all(job.spec.reason == "" for job in snapshot.jobs if job.start_s is not None)


@pytest.mark.parametrize("name", ["small", "route", ""])
def test_the_default_queue_is_known_also_through_a_routing_queue(name: str) -> None:
    found = cluster_snapshot(
        PBS["leases-qstat.json"], PBS["leases-pbsnodes.json"], PBS["leases-queues.json"], b"", NOW_S,
        default_queue=name,
    )  # fmt: skip
    defaults = [p.name for p in found.snapshot.machine.partitions if p.default]
    assert defaults == {"small": ["small"], "route": ["workq"], "": []}[name]


def test_the_subjobs_of_a_held_array_are_held() -> None:
    # PBS lists them as queued, and qrun starts them.
    jobs = specs(recorded())
    assert [jobs[i].held for i in ("34[1].vm", "34[2].vm", "49[1].vm")] == [True, True, False]


def test_a_job_that_waits_for_another_is_not_held() -> None:
    spec = specs(recorded())["39.vm"]
    assert (spec.held, [d.on for d in spec.dependencies]) == (False, ["30.vm"])


@pytest.mark.parametrize(
    ("comment", "kind"),
    [
        ("", ""),
        ("Job run at Sat Nov 21 at 21:16 on (vm[0]:ncpus=1)", ""),
        ("Not Running: Insufficient amount of resource: ncpus (R: 4 A: 0 T: 32)", ""),
        ("Not Running: Insufficient amount of resource: matlab (R: 1 A: 0 T: 0)", "licence"),
        ("Not Running: Insufficient amount of server resource: matlab (R: 1 A: 0)", "licence"),
        ("Not Running: Insufficient amount of queue resource: ncpus (R: 9 A: 0)", "licence"),
        ("Not Running: Not enough free nodes available", ""),
        ("Not Running: Job would interfere with a top job", ""),
        ("Not Running: Job would conflict with reservation or top job", ""),
        ("Not Running: Job would interfere with a confirmed reservation", "reservation"),
        ("Not Running: Queue not started.", "partition"),
        ("Not Running: Queue workq job limit has been reached.", "limit"),
        ("Not Running: Server job limit has been reached.", "limit"),
        ("Not Running: User has reached server running job limit.", "limit"),
        ("Not Running: Server per-user limit reached on resource ncpus", "limit"),
        ("Not Running: would exceed overall limit on resource ncpus in queue workq", "limit"),
        ("Not Running: would exceed user alice's limit on resource ncpus in complex", "limit"),
        ("Not Running: Number of concurrent running subjobs limit reached", "limit"),
        ("Not Running: Job would cross dedicated time boundary", "reservation"),
        ("Not Running: Job will run in primetime only", "reservation"),
        ("Not Running: Job has zero shares for fairshare", "account"),
        ("Not Running: Specified host does not exist: n99", "nodes"),
        ("Not Running: PBS Error: request rejected by filter hook: 'x'", "policy"),
        ("Not Running: No fairy dust", "policy"),
        ("Can Never Run: Not enough total nodes available", "nodes"),
        ("Can Never Run: Insufficient amount of resource: ncpus (R: 40 A: 32 T: 32)", "nodes"),
    ],
)
def test_comments_of_pbs_are_told_apart(comment: str, kind: str) -> None:
    said = reason_of(comment)
    assert said.partition(":")[0] == kind
    assert not kind or kind in REASONS
    assert len(reason_of(comment + 300 * "x")) <= 128


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_times_are_the_same_in_every_time_zone(
    pbs: FakePbs, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        manager = PbsManager("theta", folder=str(pbs.bin))
        manager.leasing.clock = lambda: NOW_S
        (reservation,) = manager.snapshot().reservations
        assert reservation.start_s == 1_795_299_360.0
        pbs.calls()
        manager.lease({"48.vm": NOW_S + 30})
        assert pbs.calls() == ["qalter -a 202611212118.01 -l hpctwin=0 48.vm"]
        assert manager.commands.environment["TZ"] == "UTC"
    finally:
        monkeypatch.undo()
        time.tzset()


# --- leasing and admitting -----------------------------------------------------------------------------


def test_leases_of_the_same_length_are_one_command(pbs: FakePbs, manager: PbsManager) -> None:
    until_s = dict.fromkeys(sorted(LEASED), NOW_S + 29.5) | {"39.vm": NOW_S + 29.1}
    outcomes = manager.lease(until_s)
    assert {outcome.result for outcome in outcomes.values()} == {"done"}
    assert outcomes.keys() == until_s.keys()
    # The jobs of an array have one begin time.
    assert pbs.calls() == ["qalter -a 202611212118.01 -l hpctwin=0 39.vm 48.vm 49[].vm"]
    assert {manager.leases()[job_id] for job_id in LEASED} == {NOW_S + 30}


def test_a_begin_time_of_a_user_is_never_shortened(pbs: FakePbs, manager: PbsManager) -> None:
    assert manager.lease({"32.vm": NOW_S + 30})["32.vm"].result == "done"
    assert pbs.calls() == []
    assert manager.lease({"32.vm": LATER_S + 30})["32.vm"].result == "done"
    assert pbs.calls() == [f"qalter -a 202611212355.30 -l hpctwin={LATER_S:.0f} 32.vm"]
    assert manager.admit(["32.vm"])["32.vm"].result == "done"
    assert pbs.calls() == [f"qalter -a 202611212355.00 -l hpctwin={LATER_S:.0f} 32.vm"]


def test_what_is_not_the_twins_or_held_or_runs_is_refused(
    pbs: FakePbs, manager: PbsManager
) -> None:
    for ids in (["41.vm", "30.vm", "99.vm"], ["38.vm", "34[1].vm"]):
        for outcomes in (manager.lease(dict.fromkeys(ids, NOW_S + 30)), manager.admit(ids)):
            assert {outcome.result for outcome in outcomes.values()} == {"refused"}
    assert pbs.calls() == []
    assert manager.lease({"38.vm": NOW_S + 30, "48.vm": NOW_S + 30})["48.vm"].result == "done"


def test_admitting_ends_the_lease_now(pbs: FakePbs, manager: PbsManager) -> None:
    outcomes = manager.admit(["48.vm", "45.vm"])
    assert [outcomes[i].result for i in ("48.vm", "45.vm")] == ["done", "done"]
    assert pbs.calls() == ["qalter -a 202611212117.31 -l hpctwin=0 48.vm 45.vm"]
    assert manager.leases()["48.vm"] == 0.0


def test_an_array_that_was_admitted_is_not_leased_again_at_once(
    pbs: FakePbs, manager: PbsManager
) -> None:
    assert manager.admit(["49[2].vm"])["49[2].vm"].result == "done"
    assert pbs.calls() == ["qalter -a 202611212117.31 -l hpctwin=0 49[].vm"]
    assert manager.leases()["49[1].vm"] == 0.0
    assert "just being started" in manager.lease({"49[1].vm": NOW_S + 30})["49[1].vm"].reason
    assert pbs.calls() == []
    manager.leasing.clock = lambda: NOW_S + 11
    assert manager.lease({"49[1].vm": NOW_S + 30})["49[1].vm"].result == "done"


def test_each_job_has_its_own_outcome(pbs: FakePbs, manager: PbsManager) -> None:
    # As OpenPBS 23.06 said; of a job that has ended it does not say the number.
    pbs.fail("qalter", "qalter: Invalid request 49[].vm\nqalter: Job has finished\n")
    outcomes = manager.lease({"48.vm": NOW_S + 30, "49[1].vm": NOW_S + 30, "39.vm": NOW_S + 30})
    assert {job_id: outcome.result for job_id, outcome in outcomes.items()} == {
        "48.vm": "done", "49[1].vm": "refused", "39.vm": "done",
    }  # fmt: skip
    assert "Invalid request" in outcomes["49[1].vm"].reason
    pbs.fail("qalter", "qalter: something new\n")
    assert manager.admit(["48.vm"])["48.vm"].reason == "qalter: something new"


def test_after_a_lost_answer_nothing_more_is_sent(pbs: FakePbs, manager: PbsManager) -> None:
    manager.commands.timeout_s = 0.5
    pbs.hang("qalter")
    for number in range(250):
        manager.leasing.told(f"{1000 + number}.vm", manager.leasing.marks()["48.vm"])
    ids = [f"{1000 + number}.vm" for number in range(250)]
    outcomes = manager.lease(dict.fromkeys(ids, NOW_S + 30))
    results = [outcomes[job_id].result for job_id in ids]
    lost = results.count("unknown")
    assert (lost, results.count("refused")) == (MOST_AT_ONCE, 250 - MOST_AT_ONCE)
    assert len(pbs.calls()) == 1
    pbs.mend("qalter")
    pbs.fail("qalter", "qalter: cannot connect to server pbsvm (errno=111)\n")
    assert manager.admit(["48.vm"])["48.vm"].result == "unknown"


def test_one_call_takes_a_bounded_time_and_those_leases_come_first_that_end_first(
    pbs: FakePbs, manager: PbsManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"{1000 + number}.vm" for number in range(10 * MOST_AT_ONCE)]
    for number, job_id in enumerate(ids):
        manager.leasing.told(job_id, Mark(0.0, LEASE_S - number))
    begin, calls = time.monotonic(), 0

    def slow(name: str, arguments: list[str]) -> bytes:
        nonlocal calls
        calls += 1
        return b""

    monkeypatch.setattr(manager.commands, "run", slow)
    clock = types.SimpleNamespace(monotonic=lambda: begin + calls * LONGEST_S)
    monkeypatch.setattr("hpctwin.rms.pbs.batch.time", clock)
    outcomes = manager.lease(dict.fromkeys(ids, NOW_S + 30))
    done = {job_id for job_id, outcome in outcomes.items() if outcome.result == "done"}
    assert done == set(ids[-calls * MOST_AT_ONCE :])
    assert 1 <= calls <= 2
    assert "no time left" in outcomes[ids[0]].reason


# --- news and looks ------------------------------------------------------------------------------------


def test_a_job_that_was_just_submitted_can_be_admitted_before_the_next_look(
    pbs: FakePbs, manager: PbsManager
) -> None:
    line = json.loads(PBS["leases-hook-lines.jsonl"].splitlines()[1])
    line["job"]["id"] = "50.vm"
    news = PbsNews(lambda: manager.found, manager.leasing.told)
    (seen,) = news(json.dumps(line))
    assert isinstance(seen, JobSeen)
    assert seen.record.spec.not_before_s is None
    assert manager.leases()["50.vm"] == LEASE_S
    assert manager.admit(["50.vm"])["50.vm"].result == "done"
    # A look that began before the job came does not know it; a later one says that it is gone.
    began_s = NOW_S - 5
    manager.leasing.looked({}, began_s)
    assert set(manager.leases()) == {"50.vm"}
    manager.leasing.looked({}, NOW_S + 5)
    assert manager.leases() == {}


def test_a_look_that_began_before_a_renewal_does_not_undo_it(
    pbs: FakePbs, manager: PbsManager
) -> None:
    manager.lease({"48.vm": NOW_S + 60})
    assert manager.found is not None
    manager.leasing.looked(manager.found.marks, NOW_S)
    assert manager.leases()["48.vm"] == NOW_S + 60


def test_starting_by_force_says_once_what_it_overrides(
    pbs: FakePbs, manager: PbsManager, caplog: pytest.LogCaptureFixture
) -> None:
    manager.start("48.vm")
    manager.start("48.vm")
    assert pbs.calls() == 2 * ["qrun 48.vm"]
    assert sum("max_run" in record.message for record in caplog.records) == 1


def test_scheduling_is_never_switched(pbs: FakePbs, manager: PbsManager) -> None:
    assert not hasattr(manager, "take_scheduling")
    manager.start("48.vm")
    manager.admit(["48.vm"])
    manager.lease({"48.vm": NOW_S + 30})
    assert not any("qmgr" in call for call in pbs.calls())
