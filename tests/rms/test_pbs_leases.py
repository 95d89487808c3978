"""Leases on PBS, on commands that answer what a real OpenPBS with the hook said."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from hpctwin.errors import UnreachableError
from hpctwin.rms.pbs.listing.jobs import reason_of
from hpctwin.rms.pbs.listing.parse import Found, cluster_snapshot
from hpctwin.rms.pbs.manager import PbsManager
from hpctwin.rms.pbs.news import PbsNews
from hpctwin.rms.records.changes import JobSeen
from hpctwin.rms.records.records import REASONS, JobSpec
from hpctwin.twin.service.status_writer import Inactivity
from tests.rms.fake_pbs import FakePbs
from tests.rms.recorded import PBS

NOW_S = 1_795_299_776.0
"""Just after the recording."""
OWN_S = 1_795_305_300.0


@pytest.fixture
def pbs(tmp_path: Path) -> FakePbs:
    return FakePbs(tmp_path, "leases")


@pytest.fixture
def manager(pbs: FakePbs) -> PbsManager:
    path = pbs.folder / "alive"
    found = PbsManager("theta", folder=str(pbs.bin), timeout_s=120.0, heartbeat_file=path)
    found.leasing.clock = lambda: NOW_S
    found.snapshot()
    pbs.calls()
    return found


def written(pbs: FakePbs) -> dict[str, float]:
    """What the hook reads."""
    found: dict[str, float] = json.loads((pbs.folder / "alive.leases").read_text())["until_s"]
    return found


def recorded(**about: bytes | bool) -> Found:
    return cluster_snapshot(
        PBS["leases-qstat.json"], PBS["leases-pbsnodes.json"], PBS["leases-queues.json"],
        PBS["leases-rstat.txt"], NOW_S, scheduling=bool(about.get("scheduling", True)),
    )  # fmt: skip


def specs(found: Found) -> dict[str, JobSpec]:
    return {job.spec.id: job.spec for job in found.snapshot.jobs if job.start_s is None}


# --- the picture -------------------------------------------------------------------------------------


def test_the_jobs_that_the_hook_marked_are_the_twins(manager: PbsManager) -> None:
    jobs = specs(recorded())
    assert {i: s.not_before_s for i, s in jobs.items() if s.not_before_s} == {"8.vm": OWN_S}
    # 4 was submitted past the hook, 13 was taken out by an operator; 0, 1, 5 and 6 run.
    assert set(jobs) - set(manager.leases()) == {"4.vm", "13.vm"}
    assert set(manager.leases().values()) == {0.0}


def test_a_job_that_pbs_will_not_start_has_the_reason() -> None:
    assert {job_id: spec.reason for job_id, spec in specs(recorded()).items() if spec.reason} == {
        "2.vm": "limit: User has reached queue small running job limit.",
        "3.vm": "partition: queue stopped is stopped",
        "4.vm": "nodes: Not enough total nodes available",
    }


def test_nothing_is_to_be_started_if_scheduling_is_off(pbs: FakePbs) -> None:
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
    assert [jobs[i].held for i in ("10[1].vm", "10[2].vm", "9[1].vm")] == [True, True, False]


def test_a_job_that_waits_for_another_is_not_held() -> None:
    spec = specs(recorded())["12.vm"]
    assert (spec.held, [d.on for d in spec.dependencies]) == (False, ["0.vm"])


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
        ("Not Running: PBS Error: hpctwin: waits for its turn", ""),
        ("Not Running: would exceed overall limit on resource hpctwin_wait in complex", ""),
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
        ("Not Running: PBS Error: hpctwin: n04 is offline", ""),
        ("Not Running: PBS Error: hpctwin: n03 has jobs, but the job needs it exclusively", ""),
        ("Not Running: Insufficient amount of resource: fpga ", "licence"),
        ("Can Never Run: Not enough total nodes available", "nodes"),
        ("Can Never Run: Insufficient amount of resource: ncpus (R: 40 A: 32 T: 32)", "nodes"),
    ],
)
def test_pbs_comments_are_distinguished(comment: str, kind: str) -> None:
    said = reason_of(comment)
    assert said.partition(":")[0] == kind
    assert not kind or kind in REASONS
    assert len(reason_of(comment + 300 * "x")) <= 128


def test_a_job_that_lacks_modeled_vnode_resources_waits_for_them_and_is_not_left_to_pbs() -> None:
    # As a job of OpenPBS 23.06 said that asked for one of two FPGAs of a vnode.
    comment = "Not Running: Insufficient amount of resource: fpga "
    assert reason_of(comment, {"fpga", "scratch"}) == ""
    assert reason_of(comment, {"fpga2"}).startswith("licence: ")
    assert reason_of(
        "Can Never Run: Insufficient amount of resource: fpga (R: 4 A: 2 T: 2)", {"fpga"}
    ) == ("nodes: Insufficient amount of resource: fpga (R: 4 A: 2 T: 2)")


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_times_are_the_same_in_every_time_zone(
    pbs: FakePbs, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    monkeypatch.setattr("hpctwin.rms.pbs.manager.time.time", lambda: NOW_S)
    time.tzset()
    try:
        manager = PbsManager("theta", folder=str(pbs.bin))
        snapshot = manager.snapshot()
        assert [one.start_s for one in snapshot.reservations] == [1_795_303_320.0]
        assert {job.spec.not_before_s for job in snapshot.jobs} == {None, OWN_S}
        assert manager.commands.environment["TZ"] == "UTC"
    finally:
        monkeypatch.undo()
        time.tzset()


# --- leasing and admitting -----------------------------------------------------------------------------


def test_all_leases_are_one_file_and_no_command(pbs: FakePbs, manager: PbsManager) -> None:
    until_s = {"2.vm": NOW_S + 30, "7.vm": NOW_S + 60, "12.vm": NOW_S + 30}
    outcomes = manager.lease(until_s)
    assert {job_id: outcome.result for job_id, outcome in outcomes.items()} == dict.fromkeys(
        until_s, "done"
    )
    assert written(pbs) == until_s
    assert pbs.calls() == []
    assert {i: s for i, s in manager.leases().items() if s} == until_s
    manager.lease({"7.vm": NOW_S + 90})
    assert written(pbs) == {**until_s, "7.vm": NOW_S + 90}
    manager.leasing.clock = lambda: NOW_S + 45
    assert {i: s for i, s in manager.leases().items() if s} == {"7.vm": NOW_S + 90}


def test_admitting_is_an_entry_and_a_cycle_of_the_scheduler(
    pbs: FakePbs, manager: PbsManager
) -> None:
    manager.lease({"2.vm": NOW_S + 30, "7.vm": NOW_S + 30})
    outcomes = manager.admit(["7.vm", "12.vm"])
    assert [outcomes[i].result for i in ("7.vm", "12.vm")] == ["done", "done"]
    # 0 and not nothing: a job just submitted waits for a word.
    assert written(pbs) == {"2.vm": NOW_S + 30, "7.vm": 0.0, "12.vm": 0.0}
    assert pbs.calls() == ["qstat -B -f -F json", "qmgr -c set server scheduling=true"]
    assert manager.leases()["7.vm"] == 0.0


def test_settings_turned_off_by_an_administrator_are_not_turned_on(
    pbs: FakePbs, manager: PbsManager
) -> None:
    pbs.scheduling(False)
    outcome = manager.admit(["7.vm"])["7.vm"]
    assert outcome.result == "refused"
    assert "scheduling is switched off by an administrator" in outcome.reason
    assert not any("qmgr" in call for call in pbs.calls())
    assert not hasattr(manager, "take_scheduling")


def test_jobs_that_are_not_the_twins_or_held_or_running_are_rejected(
    pbs: FakePbs, manager: PbsManager
) -> None:
    ids = ["4.vm", "13.vm", "0.vm", "99.vm", "11.vm", "10[1].vm"]
    for outcomes in (manager.lease(dict.fromkeys(ids, NOW_S + 30)), manager.admit(ids)):
        assert {outcome.result for outcome in outcomes.values()} == {"refused"}
    assert pbs.calls() == []
    outcomes = manager.lease({"11.vm": NOW_S + 30, "7.vm": NOW_S + 30})
    assert (outcomes["11.vm"].result, outcomes["7.vm"].result) == ("refused", "done")


def test_the_jobs_of_an_array_go_together_and_are_not_leased_again_at_once(
    pbs: FakePbs, manager: PbsManager
) -> None:
    manager.lease({"9[1].vm": NOW_S + 30, "9[3].vm": NOW_S + 60})
    assert written(pbs) == {"9[].vm": NOW_S + 60}
    assert manager.leases()["9[2].vm"] == NOW_S + 60
    assert manager.admit(["9[2].vm"])["9[2].vm"].result == "done"
    assert written(pbs) == {"9[].vm": 0.0}
    assert (
        "other jobs of its array are being started"
        in manager.lease({"9[1].vm": NOW_S + 30})["9[1].vm"].reason
    )
    assert written(pbs) == {"9[].vm": 0.0}
    manager.leasing.clock = lambda: NOW_S + 11
    manager.lease({"9[1].vm": NOW_S + 30})
    assert written(pbs) == {"9[].vm": NOW_S + 30}


def test_a_lost_answer_is_unknown(pbs: FakePbs, manager: PbsManager) -> None:
    pbs.fail("qmgr", "qmgr: cannot connect to server pbsvm (errno=111)\n")
    assert manager.admit(["7.vm"])["7.vm"].result == "unknown"
    pbs.fail("qmgr", "qmgr: Unauthorized Request\n")
    outcome = manager.admit(["7.vm"])["7.vm"]
    assert (outcome.result, outcome.reason) == ("refused", "qmgr: Unauthorized Request")


def test_a_twin_without_permission_to_act_delays_no_job(
    pbs: FakePbs, manager: PbsManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pbs.folder / "alive"
    manager.heartbeat(1)
    path.unlink()
    pbs.fail(
        "qmgr",
        "qmgr obj= svr=default: Unauthorized Request \nqmgr: Error (15007) returned from server\n",
    )
    outcome = manager.admit(["7.vm"])["7.vm"]
    assert (outcome.result, outcome.reason) == (
        "refused", "qmgr obj= svr=default: Unauthorized Request",
    )  # fmt: skip
    with pytest.raises(UnreachableError, match=r"Unauthorized Request; .* the server's operators"):
        manager.heartbeat(2)
    assert not path.exists()
    monkeypatch.setattr("hpctwin.rms.pbs.manager.RIGHTS_AGAIN_S", 0.0)
    manager.heartbeat(3)
    assert path.exists()


def test_leases_that_cannot_be_written_are_rejected(pbs: FakePbs, manager: PbsManager) -> None:
    manager.leasing.path = pbs.folder / "not there" / "alive.leases"
    outcome = manager.lease({"7.vm": NOW_S + 30})["7.vm"]
    assert (outcome.result, "not there" in outcome.reason) == ("refused", True)
    assert manager.leases()["7.vm"] == 0.0
    without = PbsManager("theta", folder=str(pbs.bin))
    assert "lease" not in without.ways()
    without.snapshot()
    assert "heartbeat" in without.lease({"7.vm": NOW_S + 30})["7.vm"].reason


# --- the limit -----------------------------------------------------------------------------------------

SET = "qmgr -c set server max_run_res.hpctwin_wait = [o:PBS_ALL=0]"
UNSET = "qmgr -c unset server max_run_res.hpctwin_wait"
CYCLE = ["qstat -B -f -F json", "qmgr -c set server scheduling=true"]


def let_through(pbs: FakePbs, *jobs: str) -> bool:
    """Whether these and no others were let through, and PBS looks again after that and nothing else."""
    through = f"qalter -l hpctwin_wait=0 {' '.join(jobs)}"
    *first, last = pbs.calls()
    return sorted(first) == sorted([through, CYCLE[0]]) and last == CYCLE[1]


def hook_lives(pbs: FakePbs, time_s: float) -> None:
    (pbs.folder / "alive.lifts").write_text(json.dumps({"time_s": time_s}))


@pytest.fixture
def limited(pbs: FakePbs, manager: PbsManager) -> PbsManager:
    """One whose limit stands."""
    assert manager.limit is not None
    assert manager.found is not None
    manager.limit.clock = lambda: manager.leasing.clock()
    manager.leasing.looked(manager.found.marks, NOW_S - 60)
    hook_lives(pbs, NOW_S - 10)
    manager.heartbeat(1)
    assert pbs.calls() == [SET]
    return manager


def test_the_limit_stands_only_while_the_hook_that_lifts_it_shows_life(
    pbs: FakePbs, manager: PbsManager, limited: PbsManager
) -> None:
    limited.heartbeat(2)
    assert pbs.calls() == []
    limited.leasing.clock = lambda: NOW_S + 15
    limited.heartbeat(3)
    assert pbs.calls() == []
    limited.leasing.clock = lambda: NOW_S + 40
    limited.heartbeat(4)
    assert pbs.calls()[0] == UNSET


def test_jobs_left_to_pbs_are_not_held_back_by_the_limit(pbs: FakePbs, limited: PbsManager) -> None:
    """The hook gave them the resource at their submission; the twin does not choose them, nor admits them."""
    said = json.loads((pbs.folder / "qstat.json").read_text())
    for job_id in ("2.vm", "7.vm", "9[].vm", "9[1].vm", "9[2].vm", "9[3].vm", "12.vm"):
        said["Jobs"][job_id]["Resource_List"]["hpctwin_wait"] = 1
    said["Jobs"]["7.vm"]["Resource_List"]["place"] = "scatter:group=rack"
    said["Jobs"]["9[1].vm"]["schedselect"] = "1:ncpus"
    (pbs.folder / "qstat.json").write_text(json.dumps(said))
    limits = json.loads((pbs.folder / "server.json").read_text())
    next(iter(limits["Server"].values()))["max_run_res"] = {"hpctwin_wait": "[o:PBS_ALL=0]"}
    (pbs.folder / "server.json").write_text(json.dumps(limits))
    limited.leasing.clock = lambda: NOW_S + 15
    limited.snapshot()
    assert limited.found is not None
    # Others of the array are the twin's, so all of it is.
    assert limited.found.kept == ("7.vm",)
    limited.lease(dict.fromkeys(limited.leases(), NOW_S + 60))
    pbs.calls()
    limited.heartbeat(2)
    assert let_through(pbs, "7.vm")
    assert written(pbs)["7.vm"] == 0.0
    # They are not tried again before a look shows that it was in vain.
    limited.leasing.clock = lambda: NOW_S + 30
    hook_lives(pbs, NOW_S + 20)
    limited.heartbeat(3)
    assert pbs.calls() == []


def changed(pbs: FakePbs, file: str, kind: str, **rows: dict[str, Any]) -> None:
    """Change attributes in what PBS's commands answer; resources of a job are added."""
    said = json.loads((pbs.folder / f"{file}.json").read_text())
    for name, about in rows.items():
        row = said[kind].setdefault(name.replace("__", "."), {})
        resources = row.get("Resource_List", {}) | about.get("Resource_List", {})
        row |= about | {"Resource_List": resources}
    (pbs.folder / f"{file}.json").write_text(json.dumps(said))


GROUPED = {"Resource_List": {"place": "scatter:group=rack", "hpctwin_wait": 1}}


def test_a_job_that_is_left_to_pbs_goes_as_soon_as_the_twin_sees_it_and_is_not_leased_again(
    pbs: FakePbs, limited: PbsManager
) -> None:
    assert limited.limit is not None
    limited.lease(dict.fromkeys(limited.leases(), NOW_S + 60))
    changed(pbs, "qstat", "Jobs", **{"7__vm": GROUPED})
    limited.snapshot()
    limited.limit.stands = True
    pbs.calls()
    limited.heartbeat(2)
    assert let_through(pbs, "7.vm")
    # Within the ten seconds in which other leases are not looked at.
    changed(pbs, "qstat", "Jobs", **{"7__vm": GROUPED, "2__vm": GROUPED})
    limited.snapshot()
    limited.limit.stands = True
    pbs.calls()
    limited.leasing.clock = lambda: NOW_S + 1
    limited.heartbeat(3)
    assert let_through(pbs, "2.vm")
    limited.heartbeat(4)
    assert pbs.calls() == []
    # The hook would refuse a job that the file does not name and that was just submitted.
    limited.lease({"12.vm": NOW_S + 90})
    assert {i: written(pbs)[i] for i in ("2.vm", "7.vm")} == {"2.vm": 0.0, "7.vm": 0.0}
    assert limited.report().left == dict.fromkeys(("2.vm", "7.vm"), "place=scatter:group=rack")
    assert limited.lease({"7.vm": NOW_S + 90})["7.vm"].result == "refused"


def test_a_job_that_an_operator_takes_from_the_twin_goes_by_pbs_at_once(
    pbs: FakePbs, limited: PbsManager
) -> None:
    assert limited.limit is not None
    limited.lease(dict.fromkeys(limited.leases(), NOW_S + 60))
    changed(pbs, "qstat", "Jobs", **{"7__vm": {"Resource_List": {"hpctwin": 1, "hpctwin_wait": 1}}})
    limited.snapshot()
    limited.limit.stands = True
    pbs.calls()
    limited.heartbeat(2)
    assert let_through(pbs, "7.vm")
    assert limited.report().left == {"7.vm": "an operator removed it from the twin's control"}


def test_a_job_announced_by_the_hook_and_left_to_pbs_waits_for_no_query(
    pbs: FakePbs, limited: PbsManager
) -> None:
    line = json.loads(PBS["leases-hook-lines.jsonl"].splitlines()[0])
    line["job"]["id"] = "50.vm"
    line["job"]["Resource_List"] += ",hpctwin_wait=1"
    news = PbsNews(lambda: limited.found, limited.leasing.told)
    news(json.dumps(line))
    assert "50.vm" in limited.leases()
    line["job"]["id"] = "51.vm"
    line["job"]["Resource_List"] = re.sub(
        r"place=\w+", "place=scatter:group=rack", line["job"]["Resource_List"]
    )
    news(json.dumps(line))
    assert "51.vm" not in limited.leases()
    limited.heartbeat(2)
    assert let_through(pbs, "51.vm")
    # A look that began before it came changes nothing of that.
    limited.leasing.looked({}, NOW_S - 5)
    limited.heartbeat(3)
    assert pbs.calls() == []


ACTED = ("small", "stopped", "workq")


@pytest.mark.parametrize(
    ("queues", "nodes", "acts", "why"),
    [
        ({}, {}, [*ACTED, "route"], ""),
        (
            {
                "in": {"queue_type": "Route", "route_destinations": "far@other,first"},
                "first": {"queue_type": "Route", "route_destinations": "workq"},
                "loop": {"queue_type": "Route", "route_destinations": "loop,gone"},
            },
            {}, [*ACTED, "route", "in", "first"], "",
        ),
        ({key: {"queue_type": "Route"} for key in ACTED}, {}, [], "it is in queue '"),
        ({}, {"sharing": "force_shared", "ncpus": 4}, [], "vnodes with sharing="),
    ],
)  # fmt: skip
def test_the_heartbeat_names_the_queues_in_which_the_twin_acts_and_the_report_says_why_not_more(
    pbs: FakePbs, queues: dict, nodes: dict, acts: list[str], why: str
) -> None:
    changed(pbs, "queues", "Queue", **queues)
    said = json.loads((pbs.folder / "pbsnodes.json").read_text())
    if nodes:
        row = list(said["nodes"].values())[-1]
        row["sharing"] = nodes["sharing"]
        row["resources_available"]["ncpus"] = nodes["ncpus"]
        (pbs.folder / "pbsnodes.json").write_text(json.dumps(said))
    manager = PbsManager(
        "theta", folder=str(pbs.bin), timeout_s=120.0, heartbeat_file=pbs.folder / "alive"
    )
    manager.heartbeat(1)
    assert json.loads((pbs.folder / "alive").read_text())["queues"] == []
    manager.snapshot()
    pbs.calls()
    manager.heartbeat(2)
    assert acts or pbs.calls() == []
    assert sorted(json.loads((pbs.folder / "alive").read_text())["queues"]) == sorted(acts)
    report = manager.report()
    assert set(report.partitions) == set(ACTED if acts else ())
    assert bool(report.left) == bool(why)
    assert all(why in reason for reason in report.left.values())
    assert not why or not manager.leases()
    said_so = Inactivity(600.0).turn(NOW_S, report, (), 0)
    assert said_so.startswith("the twin is active in no partition: ") == bool(why)
    assert why in said_so


@pytest.mark.parametrize("life", ["", "{", '{"time_s": "now"}', '{"time_s": 4}'])
def test_without_that_hook_there_is_no_limit(pbs: FakePbs, manager: PbsManager, life: str) -> None:
    manager.heartbeat(1)
    (pbs.folder / "alive.lifts").write_text(life)
    manager.heartbeat(2)
    assert pbs.calls() == []


def test_a_lifted_limit_is_set_again_after_the_next_query(
    pbs: FakePbs, limited: PbsManager
) -> None:
    limited.snapshot()
    pbs.calls()
    limited.heartbeat(2)
    assert pbs.calls() == [SET]


def test_next_to_a_job_that_the_limit_would_count_there_is_none(
    pbs: FakePbs, limited: PbsManager
) -> None:
    # Started past the hook: used + 0 would be more than 0, and nobody admitted could start.
    about = json.loads((pbs.folder / "qstat.json").read_text())
    about["Jobs"]["0.vm"]["Resource_List"]["hpctwin_wait"] = 1
    (pbs.folder / "qstat.json").write_text(json.dumps(about))
    limits = {"max_run_res": {"hpctwin_wait": "[o:PBS_ALL=0]"}}
    said = json.loads((pbs.folder / "server.json").read_text())
    next(iter(said["Server"].values())).update(limits)
    (pbs.folder / "server.json").write_text(json.dumps(said))
    limited.snapshot()
    pbs.calls()
    limited.heartbeat(2)
    assert pbs.calls() == [UNSET]


def test_a_limit_that_may_not_be_set_is_tried_once(
    pbs: FakePbs, manager: PbsManager, caplog: pytest.LogCaptureFixture
) -> None:
    assert manager.limit is not None
    manager.limit.clock = lambda: NOW_S
    hook_lives(pbs, NOW_S)
    pbs.fail("qmgr", "qmgr: Unauthorized Request\n")
    manager.heartbeat(1)
    manager.heartbeat(2)
    assert len(pbs.calls()) == 1
    assert "Unauthorized" in caplog.text
    manager.lease({"7.vm": NOW_S + 30})
    pbs.mend("qmgr")
    manager.admit(["7.vm"])
    assert pbs.calls() == CYCLE


def test_a_leased_job_is_held_once_until_it_is_admitted(pbs: FakePbs, limited: PbsManager) -> None:
    until_s = {"2.vm": NOW_S + 30, "7.vm": NOW_S + 30, "9[1].vm": NOW_S + 30, "9[2].vm": NOW_S + 30}
    limited.lease(until_s)
    assert pbs.calls() == ["qalter -l hpctwin_wait=1 2.vm 7.vm 9[].vm"]
    limited.lease(until_s)
    assert pbs.calls() == []
    assert limited.admit(["7.vm", "12.vm"])["7.vm"].result == "done"
    assert let_through(pbs, "7.vm")
    limited.admit(["7.vm", "9[2].vm"])
    assert let_through(pbs, "9[].vm")
    limited.lease({"7.vm": NOW_S + 30})
    assert pbs.calls() == ["qalter -l hpctwin_wait=1 7.vm"]
    # Whether or not it could be kept back: what is leased is refused by the hook.
    pbs.fail("qalter", "qalter: Unauthorized Request  12.vm\n")
    assert limited.lease({"12.vm": NOW_S + 30})["12.vm"].result == "done"
    assert written(pbs)["12.vm"] == NOW_S + 30


def test_a_query_counts_for_held_jobs_but_not_for_changes_made_meanwhile(
    pbs: FakePbs, limited: PbsManager
) -> None:
    about = json.loads((pbs.folder / "qstat.json").read_text())
    about["Jobs"]["7.vm"]["Resource_List"]["hpctwin_wait"] = 1
    kept = cluster_snapshot(
        json.dumps(about).encode(), PBS["leases-pbsnodes.json"], PBS["leases-queues.json"], b"", NOW_S
    ).marks  # fmt: skip
    limited.leasing.looked(kept, NOW_S - 5)
    limited.admit(["7.vm"])
    assert let_through(pbs, "7.vm")
    limited.leasing.looked(kept, NOW_S - 1)
    limited.admit(["7.vm"])
    assert pbs.calls() == CYCLE
    limited.leasing.looked(kept, NOW_S + 5)
    limited.admit(["7.vm"])
    assert let_through(pbs, "7.vm")


def test_only_jobs_that_pbs_names_are_rejected_among_those_admitted_at_once(
    pbs: FakePbs, limited: PbsManager
) -> None:
    limited.lease({"2.vm": NOW_S + 30, "7.vm": NOW_S + 30})
    pbs.calls()
    pbs.fail("qalter", "qalter: Cannot modify attribute while job running  2.vm\n")
    outcomes = limited.admit(["2.vm", "7.vm"])
    assert {i: o.result for i, o in outcomes.items()} == {"2.vm": "refused", "7.vm": "done"}
    pbs.fail("qalter", "qalter: cannot connect to server pbsvm (errno=111)\n")
    assert limited.admit(["2.vm"])["2.vm"].result == "unknown"


def test_pbs_examines_a_job_with_an_expired_lease_or_no_answer(
    pbs: FakePbs, limited: PbsManager
) -> None:
    others = {i: NOW_S + 900 for i in limited.leases() if i not in ("2.vm", "7.vm")}
    limited.lease({"7.vm": NOW_S + 5, **others})
    pbs.calls()
    hook_lives(pbs, NOW_S + 20)
    limited.leasing.clock = lambda: NOW_S + 6
    limited.heartbeat(2)
    assert let_through(pbs, "7.vm")
    limited.leasing.clock = lambda: NOW_S + 12
    limited.heartbeat(3)
    assert pbs.calls() == []
    limited.leasing.clock = lambda: NOW_S + 21
    limited.heartbeat(4)
    assert pbs.calls() == CYCLE
    assert (written(pbs)["2.vm"], written(pbs)["7.vm"]) == (0.0, 0.0)
    limited.leasing.clock = lambda: NOW_S + 40
    limited.heartbeat(5)
    assert pbs.calls() == []


def test_jobs_kept_by_an_earlier_twin_are_released(pbs: FakePbs, limited: PbsManager) -> None:
    about = json.loads((pbs.folder / "qstat.json").read_text())
    about["Jobs"]["7.vm"]["Resource_List"]["hpctwin_wait"] = 1
    (pbs.folder / "qstat.json").write_text(json.dumps(about))
    limited.snapshot()
    assert limited.found is not None
    limited.leasing.looked(limited.found.marks, NOW_S - 5)
    limited.heartbeat(2)
    limited.lease({i: NOW_S + 900 for i in limited.leases() if i != "7.vm"})
    pbs.calls()
    limited.leasing.clock = lambda: NOW_S + 21
    limited.heartbeat(3)
    assert let_through(pbs, "7.vm")


# --- news and looks ------------------------------------------------------------------------------------


def test_a_job_that_was_just_submitted_can_be_admitted_before_the_next_query(
    pbs: FakePbs, manager: PbsManager
) -> None:
    line = json.loads(PBS["leases-hook-lines.jsonl"].splitlines()[0])
    line["job"]["id"] = "50.vm"
    news = PbsNews(lambda: manager.found, manager.leasing.told)
    (seen,) = news(json.dumps(line))
    assert isinstance(seen, JobSeen)
    assert manager.admit(["50.vm"])["50.vm"].result == "done"
    # A look that began before the job came does not know it; a later one says that it is gone.
    manager.leasing.looked({}, NOW_S - 5)
    assert set(manager.leases()) == {"50.vm"}
    manager.leasing.looked({}, NOW_S + 5)
    assert manager.leases() == {}
    # What is gone is written no longer.
    manager.snapshot()
    manager.lease({"7.vm": NOW_S + 30})
    assert written(pbs) == {"7.vm": NOW_S + 30}


def test_starting_by_force_says_once_what_it_overrides(
    pbs: FakePbs, manager: PbsManager, caplog: pytest.LogCaptureFixture
) -> None:
    manager.start("7.vm")
    manager.start("4.vm")
    assert [call for call in pbs.calls() if call.startswith("qrun")] == ["qrun 7.vm", "qrun 4.vm"]
    assert written(pbs) == {"7.vm": 0.0}  # the hook would refuse it
    assert sum("max_run" in record.message for record in caplog.records) == 1
