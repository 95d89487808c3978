"""The PBS manager, its installer and the probe, on commands that answer what a real OpenPBS said."""

from __future__ import annotations

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


def test_a_look_asks_each_thing_once_and_what_seldom_changes_not_again(
    pbs: FakePbs, manager: PbsManager
) -> None:
    snapshot = manager.snapshot()
    assert (snapshot.cluster, len(snapshot.nodes)) == ("theta", 32)
    assert snapshot.own_scheduling is True
    first = pbs.calls()
    assert len(first) == len(set(first)) == 5
    manager.snapshot()
    assert pbs.calls() == [
        "qstat -f -t -F json",
        "pbsnodes -a -v -F json",
        "qstat -B -f -F json",
    ]
    assert manager.report().calls_per_minute == 8


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
def test_what_is_not_a_job_number_never_reaches_a_command(
    pbs: FakePbs, manager: PbsManager, job_id: str
) -> None:
    outcome = manager.start(job_id)
    assert (outcome.result, "not a job number" in outcome.reason) == ("refused", True)
    assert manager.lease({job_id: 2e9})[job_id].result == "refused"
    assert manager.admit([job_id])[job_id].result == "refused"
    assert manager.set_priority(job_id, 1.0).result == "refused"
    assert pbs.calls() == []


def test_a_refusal_says_what_pbs_said_and_a_lost_answer_is_unknown(
    pbs: FakePbs, manager: PbsManager
) -> None:
    pbs.fail("qrun", "qrun: Resource temporarily unavailable 930.pbsvm\n")
    outcome = manager.start("930.pbsvm")
    assert outcome.result == "refused"
    assert "temporarily unavailable" in outcome.reason
    pbs.mend("qrun")
    pbs.hang("qrun")
    outcome = patient(pbs, 2.0).start("930.pbsvm")
    assert (outcome.result, outcome.reason) == ("unknown", "qrun took longer than 2 s")
    assert manager.set_priority("930.pbsvm", 5000.0).result == "refused"


def test_a_server_that_is_away_is_named(pbs: FakePbs, manager: PbsManager) -> None:
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
    assert sum(line.startswith("# this version has no event") for line in said) == 2
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
    allowed = ("qstat -", "pbsnodes -a", "pbs_rstat -f", "qmgr -c list hook hpctwin")
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
    with pytest.raises(ConfigError, match="has starving_jobs: it would suspend jobs"):
        answers(shipped.replace("express_queue,", "express_queue, starving_jobs,"))
