"""The PBS manager, its installer and the probe, on commands that answer what a real OpenPBS said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpctwin.errors import CommandError, ConfigError, UnreachableError
from hpctwin.rms.commands import Commands
from hpctwin.rms.managers import probe
from hpctwin.rms.pbs.install import HookSettings, install, preempting_priority, uninstall
from hpctwin.rms.pbs.manager import PbsManager
from tests.rms.fake_pbs import FakePbs
from tests.rms.recorded import PBS


@pytest.fixture
def pbs(tmp_path: Path) -> FakePbs:
    return FakePbs(tmp_path)


@pytest.fixture
def manager(pbs: FakePbs) -> PbsManager:
    return patient(pbs, 120.0)


def patient(pbs: FakePbs, timeout_s: float) -> PbsManager:
    return PbsManager(
        "theta", folder=str(pbs.bin), timeout_s=timeout_s, heartbeat_file=pbs.folder / "alive"
    )


def test_a_query_asks_each_thing_once_and_rarely_changing_things_not_again(
    pbs: FakePbs, manager: PbsManager
) -> None:
    snapshot = manager.snapshot()
    assert (snapshot.cluster, len(snapshot.nodes)) == ("theta", 32)
    assert snapshot.own_scheduling is True
    first = pbs.calls()
    assert len(first) == len(set(first)) == 6
    manager.snapshot()
    assert pbs.calls() == [
        "qstat -f -t -F json",
        "pbsnodes -a -v -F json",
        "qstat -B -f -F json",
    ]
    assert manager.report().calls_per_minute == 9


def test_a_queue_that_was_just_made_is_asked_for_at_once(pbs: FakePbs, manager: PbsManager) -> None:
    manager.snapshot()
    queues = json.loads((pbs.folder / "queues.json").read_text())
    some = next(name for name, one in queues["Queue"].items() if one["queue_type"] == "Execution")
    queues["Queue"]["just_made"] = queues["Queue"][some]
    (pbs.folder / "queues.json").write_text(json.dumps(queues))
    said = json.loads((pbs.folder / "qstat.json").read_text())
    job = next(i for i, row in said["Jobs"].items() if row["job_state"] == "Q" and "[" not in i)
    said["Jobs"][job]["queue"] = "just_made"
    (pbs.folder / "qstat.json").write_text(json.dumps(said))
    snapshot = manager.snapshot()
    assert "just_made" in {one.name for one in snapshot.machine.partitions}
    assert {one.spec.partition for one in snapshot.jobs if one.spec.id == job} == {"just_made"}


def test_commands_are_found_on_the_path_of_the_twin(
    pbs: FakePbs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{pbs.bin}:/usr/bin:/bin")
    assert len(PbsManager("theta", timeout_s=120.0).snapshot().nodes) == 32
    # A folder that depends on where we are is none.
    monkeypatch.setenv("PATH", "bin:/usr/bin:/bin")
    monkeypatch.chdir(pbs.folder)
    with pytest.raises(
        UnreachableError, match=r"qstat: command not found in PATH; .*`manager\.folder`"
    ):
        PbsManager("theta").snapshot()


def test_errors_of_users_are_reported_with_the_remedy(pbs: FakePbs) -> None:
    pbs.fail("qstat", "qstat: cannot connect to server nosuch (errno=15008)\n")
    with pytest.raises(
        UnreachableError, match=r"`manager\.server` is nosuch; without it, PBS_SERVER"
    ):
        PbsManager("theta", folder=str(pbs.bin), server="nosuch").snapshot()
    with pytest.raises(UnreachableError, match=r"server nosuch .*`manager\.server` is not set"):
        PbsManager("theta", folder=str(pbs.bin)).snapshot()
    pbs.fail("qstat", "qstat: invalid option -- 'F'\nusage:\nqstat [-f] [-J] [-p]\n")
    with pytest.raises(UnreachableError, match=r"json is not supported .*OpenPBS"):
        PbsManager("theta", folder=str(pbs.bin)).snapshot()
    with pytest.raises(UnreachableError, match=r"qstat: command not found; set `manager\.folder`"):
        PbsManager("theta", folder=str(pbs.folder)).snapshot()


def test_an_error_of_the_hook_is_in_the_report(manager: PbsManager) -> None:
    fault = "submitted: TypeError('no number')"
    line = json.dumps({"v": 1, "t": 1_795_299_776.0, "type": 0, "fault": fault})
    translate = manager.translator()
    for _ in range(3):
        assert translate(line)
    assert manager.report().notes == (
        f"the hook failed and accepted a request without checking it: {fault}",
    )


def test_actions_are_the_commands_of_pbs(pbs: FakePbs, manager: PbsManager) -> None:
    assert manager.start("930.pbsvm").result == "done"
    assert manager.start("940[4].pbsvm").result == "done"
    assert manager.set_priority("930.pbsvm", 17.0).result == "done"
    assert pbs.calls() == [
        "qrun 930.pbsvm",
        "qrun 940[4].pbsvm",
        "qalter -p 17 930.pbsvm",
    ]


@pytest.mark.parametrize("job_id", ["", "-p", "1;reboot", "$(id)", "930.pbsvm x", "930[].p\n", "a"])
def test_text_that_is_no_job_number_never_reaches_a_command(
    pbs: FakePbs, manager: PbsManager, job_id: str
) -> None:
    outcome = manager.start(job_id)
    assert (outcome.result, "not a job number" in outcome.reason) == ("refused", True)
    assert manager.lease({job_id: 2e9})[job_id].result == "refused"
    assert manager.admit([job_id])[job_id].result == "refused"
    assert manager.set_priority(job_id, 1.0).result == "refused"
    assert pbs.calls() == []


def test_a_refusal_quotes_pbs_and_a_lost_answer_is_unknown(
    pbs: FakePbs, manager: PbsManager
) -> None:
    pbs.fail("qrun", "qrun: Resource temporarily unavailable 930.pbsvm\n")
    outcome = manager.start("930.pbsvm")
    assert outcome.result == "refused"
    assert "temporarily unavailable" in outcome.reason
    pbs.mend("qrun")
    pbs.hang("qrun")
    outcome = patient(pbs, 2.0).start("930.pbsvm")
    assert (outcome.result, outcome.reason) == ("unknown", "qrun: no answer within 2 s")
    assert manager.set_priority("930.pbsvm", 5000.0).result == "refused"


def test_a_server_that_is_away_is_reported_by_name(pbs: FakePbs, manager: PbsManager) -> None:
    said = "Connection refused\nqstat: cannot connect to server pbsvm (errno=111)\n"
    pbs.fail("qstat", said)
    with pytest.raises(UnreachableError, match="cannot connect to server"):
        manager.snapshot()
    pbs.mend("qstat")
    assert manager.snapshot().nodes


def test_the_hook_is_put_in_and_taken_out(pbs: FakePbs) -> None:
    spool = pbs.folder / "spool" / "events.jsonl"
    said: list[str] = []
    commands = Commands(str(pbs.bin))
    install(
        commands,
        HookSettings(spool, pbs.folder / "alive" / "alive"),
        pbs.folder / "hook.py",
        said.append,
    )
    calls = pbs.calls()
    assert calls[:3] == [
        "qmgr -c create resource hpctwin type=long, flag=r",
        "qmgr -c create resource hpctwin_wait type=long, flag=r",
        "qmgr -c create hook hpctwin",
    ]
    assert "qmgr -c set hook hpctwin enabled = true" in calls
    assert "qmgr -c set hook hpctwin_lift event += periodic" in calls
    assert calls[-1] == "qmgr -c set hook hpctwin_lift enabled = true"
    assert [call.removeprefix("qmgr -c ") for call in calls] == said
    assert spool.parent.is_dir()
    assert not (pbs.folder / "hook.py").exists()
    uninstall(commands, said.append)
    assert pbs.calls() == [
        "qmgr -c delete hook hpctwin",
        "qmgr -c delete hook hpctwin_lift",
        "qmgr -c unset server max_run_res.hpctwin_wait",
        "qmgr -c delete resource hpctwin",
        "qmgr -c delete resource hpctwin_wait",
    ]


def test_a_hook_that_qmgr_does_not_take_is_taken_out_again(pbs: FakePbs) -> None:
    script = pbs.bin / "qmgr"
    text = script.read_text()
    refuse = 'case "$*" in *import*) echo "qmgr: syntax error" >&2; exit 1 ;; esac\nexit 0\n'
    script.write_text(text.replace("exit 0\n", refuse))
    said: list[str] = []
    settings = HookSettings(pbs.folder / "s" / "events.jsonl", pbs.folder / "alive")
    with pytest.raises(CommandError, match="syntax error"):
        install(Commands(str(pbs.bin)), settings, pbs.folder / "h.py", said.append)
    assert pbs.calls()[-1] == "qmgr -c delete hook hpctwin"


def test_a_version_without_an_event_gets_the_one_that_takes_its_place(pbs: FakePbs) -> None:
    script = pbs.bin / "qmgr"
    refuse = (
        'case "$*" in *postqueuejob|*jobobit) echo "qmgr: invalid event" >&2; exit 1 ;; esac\n'
        "exit 0\n"
    )
    script.write_text(script.read_text().replace("exit 0\n", refuse))
    said: list[str] = []
    settings = HookSettings(pbs.folder / "s" / "events.jsonl", pbs.folder / "alive")
    install(Commands(str(pbs.bin)), settings, pbs.folder / "h.py", said.append)
    assert sum(line.startswith("# this version does not support event") for line in said) == 2
    assert said[-1] == "set hook hpctwin_lift enabled = true"


def test_a_version_without_periodic_hooks_gets_no_limit(pbs: FakePbs) -> None:
    script = pbs.bin / "qmgr"
    refuse = 'case "$*" in *periodic) echo "qmgr: invalid event" >&2; exit 1 ;; esac\nexit 0\n'
    script.write_text(script.read_text().replace("exit 0\n", refuse))
    said: list[str] = []
    settings = HookSettings(pbs.folder / "s" / "events.jsonl", pbs.folder / "alive")
    install(Commands(str(pbs.bin)), settings, pbs.folder / "h.py", said.append)
    assert "set hook hpctwin enabled = true" in said
    assert "the twin sets no limit" in said[-1]
    assert pbs.calls()[-1] == "qmgr -c delete hook hpctwin_lift"


def test_the_probe_says_what_works_and_changes_nothing(pbs: FakePbs) -> None:
    (found,) = probe(str(pbs.bin))
    works = {finding.what: finding.works for finding in found.findings}
    assert (found.manager, found.version) == ("pbs", "23.06.06")
    assert works["reading the state"]
    assert works["pushed events"] is False
    by_start = "starts on the twin's vnodes (`act.by: start`)"
    assert works[by_start] is False
    allowed = ("qstat -", "pbsnodes -a", "pbs_rstat -f", "qmgr -c list hook hpctwin")
    allowed = (
        *allowed,
        "qmgr -c export hook hpctwin application/x-python default",
        "qmgr -c print resource",
    )
    assert all(call.startswith(allowed) for call in pbs.calls())
    pbs.fail("qstat", "qstat: cannot connect to server pbsvm (errno=111)\n")
    (found,) = probe(str(pbs.bin))
    assert found.version == ""
    assert any("cannot connect" in finding.says for finding in found.findings)
    assert probe(str(pbs.folder)) == []


def test_where_pbs_preempts_for_more_than_express_queues_the_hook_is_not_put_in(
    pbs: FakePbs,
) -> None:
    script = pbs.bin / "qmgr"
    text = script.read_text()
    shipped = PBS["sched.txt"].decode()

    def answers(said: str) -> int:
        script.write_text(text.replace("exit 0\n", f"cat <<'END'\n{said}\nEND\nexit 0\n"))
        return preempting_priority(Commands(str(pbs.bin)))

    assert answers(shipped) == 150
    assert answers(shipped.replace("preempt_queue_prio = 150", "preempt_queue_prio = 70")) == 70
    with pytest.raises(ConfigError, match="contains starving_jobs, so it would suspend jobs"):
        answers(shipped.replace("express_queue,", "express_queue, starving_jobs,"))
