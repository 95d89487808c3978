"""The PBS hook's leases: which jobs it keeps from starting, and when none."""

from __future__ import annotations

import json
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpctwin.errors import ConfigError
from hpctwin.rms.gate import beat
from hpctwin.rms.pbs.install import HookSettings, hook_text
from hpctwin.rms.pbs.leasing import leases_file, lifting_file
from hpctwin.rms.pbs.news import PbsNews

QUEUEJOB, MODIFYJOB, RUNJOB, PERIODIC = 1, 2, 16, 0x8000
LEASE_S = 20


class Resources(dict[str, Any]):
    """Resources of a job as PBS gives them: one that is not set is None."""

    def __missing__(self, name: str) -> None:
        return None


class Job:
    """A job as PBS gives it: what is not set is None."""

    def __init__(self, mark: int | None = None, **about: Any) -> None:
        self.__dict__.update(about)
        self.Resource_List = Resources({} if mark is None else {"hpctwin": mark})

    def __getattr__(self, name: str) -> None:
        return None

    @property
    def mark(self) -> Any:
        return self.Resource_List["hpctwin"]

    @property
    def kept(self) -> Any:
        """Whether PBS's scheduler passes it over by itself."""
        return self.Resource_List["hpctwin_wait"]


class Priority:
    """A queue's priority as PBS gives it where one is set: an object that is no number."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __str__(self) -> str:
        return str(self.value)


class Queue:
    def __init__(self, name: str, priority: int | None = None) -> None:
        self.name = name
        self.Priority = None if priority is None else Priority(priority)

    def __str__(self) -> str:
        return self.name


STATES = {"offline": 1, "down": 2, "stale": 32, "both": 64 + 1}
"""What a vnode's state is in a hook of OpenPBS 23.06, an int of bits; 64 is job-exclusive."""


class Server:
    """The server, with a default queue."""

    default_queue = Queue("workq")
    max_run_res: str | None = "[hpctwin_wait:[o:PBS_ALL=0]]"
    scheduling = True

    @staticmethod
    def vnode(name: str) -> Any:
        """One of 8 cores and 16 GB, of which some is in use; n3 and later are as named."""
        has = Resources({"ncpus": 8, "mem": "16gb", "rank": 3})
        used = {"n1": {"ncpus": 6, "mem": "8388608kb"}, "nowhere": None}.get(name, {"ncpus": 0})
        assert used is not None
        return types.SimpleNamespace(
            resources_available=has,
            resources_assigned=Resources(used),
            state=STATES.get(name, 0),
            jobs="493.head/0, 493.head/1" if name == "n1" else None,
        )

    def queue(self, name: str) -> Queue:
        return Queue(name, {"express": 150, "long": 40}.get(name))


Hook = Callable[..., Job]


@pytest.fixture
def settings(tmp_path: Path) -> HookSettings:
    found = HookSettings(tmp_path / "spool", tmp_path / "alive", lease_s=LEASE_S)
    beat(found.heartbeat, 1)
    return found


@pytest.fixture
def hook(settings: HookSettings, monkeypatch: pytest.MonkeyPatch) -> Hook:
    """Runs the hook on a job, and gives it back as it was changed."""

    def run(kind: int, job: Job, *, refused: bool = False, **about: Any) -> Job:
        event = types.SimpleNamespace(type=kind, job=job, accepted=False, refused=False)

        def accept() -> None:
            event.accepted = True
            raise SystemExit

        def reject(message: str) -> None:
            event.refused = True
            assert about.get("why", "hpctwin: waits for its turn") == message
            raise SystemExit

        event.accept, event.reject = accept, reject
        pbs = types.ModuleType("pbs")
        faults: list[str] = []

        def log(level: int, text: str) -> None:
            if not about.get("logged", True):
                raise SystemError("PY_SSIZE_T_CLEAN macro must be defined for '#' formats")
            faults.append(text)

        pbs.__dict__.update(
            event=lambda: event, server=about.get("server", Server), POSTQUEUEJOB=0x8000000,
            LOG_DEBUG=4, logmsg=log, ND_STATE_OFFLINE=1, ND_STATE_DOWN=2, ND_STATE_STALE=32,
            pbs_conf={"PBS_EXEC": str(settings.spool.parent)},
        )  # fmt: skip
        monkeypatch.setitem(sys.modules, "pbs", pbs)
        with pytest.raises(SystemExit):
            exec(compile(hook_text(about.get("settings", settings)), "hook", "exec"), {})
        assert (event.accepted, event.refused) == (not refused, refused)
        assert bool(faults) == about.get("fault", False)
        return job

    return run


def job_of(age_s: float = 5.0, mark: int | None = 0, **about: Any) -> Job:
    """A queued job of so many seconds."""
    return Job(mark, **{"id": "7.vm", "ctime": int(time.time() - age_s), **about})


def lease(settings: HookSettings, **until_s: float) -> None:
    """The twin's file of leases."""
    now = time.time()
    named = {f"{name[1:]}.vm": now + left_s for name, left_s in until_s.items()}
    leases_file(settings.heartbeat).write_text(json.dumps({"until_s": named}))


def test_a_job_that_is_submitted_is_marked_and_nothing_else(hook: Hook) -> None:
    job = hook(QUEUEJOB, Job())
    assert (job.mark, job.Execution_Time, job.comment) == (0, None, None)
    later = int(time.time()) + 3600
    assert hook(QUEUEJOB, Job(Execution_Time=later)).Execution_Time == later


def test_jobs_of_a_queue_with_a_priority_are_marked_and_leased(
    hook: Hook, settings: HookSettings
) -> None:
    job = hook(QUEUEJOB, Job(queue=Queue("long")))
    assert (job.mark, job.kept) == (0, 1)
    lease(settings, j7=30.0)
    hook(RUNJOB, job_of(500, queue=Queue("long")), refused=True)


def test_an_error_of_the_hook_is_reported_to_the_twin_even_where_pbs_cannot_log_it(
    hook: Hook, settings: HookSettings
) -> None:
    class Broken(Job):
        Resource_List = property(lambda self: 1 / 0, lambda self, value: None)

    told: list[str] = []
    hook(QUEUEJOB, Broken(), logged=False)
    news = PbsNews(lambda: None, failed=told.append)
    for line in settings.spool.read_text().splitlines():
        assert news(line)
    assert told == ["submitted: ZeroDivisionError('division by zero')"]


def test_jobs_for_which_pbs_has_preempted_are_not_kept_waiting(
    hook: Hook, settings: HookSettings
) -> None:
    assert hook(QUEUEJOB, Job(queue=Queue("express"))).mark is None
    # It was moved there.
    lease(settings, j7=30.0)
    hook(RUNJOB, job_of(5, queue=Queue("express")))
    hook(RUNJOB, job_of(5, queue=Queue("workq")), refused=True)
    raised = HookSettings(settings.spool, settings.heartbeat, express=200)
    hook(RUNJOB, job_of(5, queue=Queue("express")), settings=raised, refused=True)


def test_a_mark_that_a_user_asked_for_is_not_theirs_to_choose(hook: Hook) -> None:
    assert hook(QUEUEJOB, Job(mark=1)).mark == 0


def test_a_leased_job_is_not_started_by_the_scheduler(hook: Hook, settings: HookSettings) -> None:
    lease(settings, j7=30.0, j8=-1.0)
    assert hook(RUNJOB, job_of(500), refused=True).mark == 0
    assert not settings.spool.exists()
    hook(RUNJOB, job_of(500, id="8.vm"))  # its lease has run out
    hook(RUNJOB, job_of(500, id="9.vm"))  # it has none
    assert len(settings.spool.read_text().splitlines()) == 2


def test_a_job_just_submitted_waits_for_the_twins_word(hook: Hook, settings: HookSettings) -> None:
    hook(RUNJOB, job_of(LEASE_S - 5), refused=True)
    hook(RUNJOB, job_of(LEASE_S + 5))
    leases_file(settings.heartbeat).write_text('{"until_s": {"7.vm": 0}}')
    hook(RUNJOB, job_of(1))


def test_the_jobs_of_an_array_are_named_by_themselves_or_together(
    hook: Hook, settings: HookSettings
) -> None:
    until_s = {"7[].vm": time.time() + 30, "7[2].vm": 0}
    leases_file(settings.heartbeat).write_text(json.dumps({"until_s": until_s}))
    hook(RUNJOB, job_of(500, id="7[1].vm"), refused=True)
    hook(RUNJOB, job_of(500, id="7[2].vm"))


def test_a_job_is_held_from_its_submission_while_the_twin_is_alive(
    hook: Hook, settings: HookSettings
) -> None:
    assert hook(QUEUEJOB, Job()).kept == 1
    assert hook(QUEUEJOB, Job(queue=Queue("express"))).kept is None
    beat(settings.heartbeat, 1, time.time() - 30)
    job = hook(QUEUEJOB, Job())
    assert (job.mark, job.kept) == (0, None)


def test_jobs_of_queues_in_which_the_twin_does_not_act_are_never_delayed(
    hook: Hook, settings: HookSettings
) -> None:
    names = ["workq", "in", *(f"queue_of_a_project_{n}" for n in range(5000))]
    beat(settings.heartbeat, 1, more={"queues": names})
    assert [hook(QUEUEJOB, Job(queue=name)).kept for name in (None, "in", names[-1])] == [1, 1, 1]
    other = hook(QUEUEJOB, Job(queue=Queue("long")))
    assert (other.mark, other.kept) == (0, None)
    lease(settings, j7=30.0)
    for age_s in (1, 500):
        hook(RUNJOB, job_of(age_s, queue=Queue("long")))
        hook(RUNJOB, job_of(age_s, queue=Queue("workq")), refused=True)
    beat(settings.heartbeat, 1, more={"queues": []})
    assert hook(QUEUEJOB, Job()).kept is None
    hook(RUNJOB, job_of(1, queue=Queue("workq")))


def test_a_job_that_starts_uses_nothing_of_the_limit(hook: Hook, settings: HookSettings) -> None:
    lease(settings, j7=-1.0)
    job = job_of(500)
    job.Resource_List["hpctwin_wait"] = 1
    assert hook(RUNJOB, job).kept == 0
    assert hook(RUNJOB, job_of(500)).kept is None


@pytest.fixture
def qmgr(settings: HookSettings) -> Callable[[], list[str]]:
    """What the periodic part has told PBS."""
    folder = settings.spool.parent
    (folder / "bin").mkdir()
    script = folder / "bin" / "qmgr"
    script.write_text(f'#!/bin/sh\necho "$2" >>{folder}/said\n')
    script.chmod(0o755)
    said = folder / "said"
    return lambda: said.read_text().splitlines() if said.exists() else []


def server_with(**about: Any) -> type[Server]:
    return type("Other", (Server,), about)


def test_when_the_twin_is_gone_the_limit_is_lifted_and_pbs_schedules_again(
    hook: Hook, settings: HookSettings, qmgr: Callable[[], list[str]]
) -> None:
    beat(settings.heartbeat, 1, time.time() - 30)
    lift = "unset server max_run_res.hpctwin_wait"
    hook(PERIODIC, Job())
    assert qmgr() == [lift, "set server scheduling=true"]
    hook(PERIODIC, Job(), server=server_with(scheduling=False))
    assert qmgr()[2:] == [lift]
    settings.heartbeat.unlink()
    hook(PERIODIC, Job(), server=server_with(max_run_res=None))
    hook(PERIODIC, Job(), server=server_with(max_run_res="[ngpus:[u:PBS_GENERIC=4]]"))
    assert len(qmgr()) == 3
    hook(PERIODIC, Job())
    assert len(qmgr()) == 5
    assert not settings.spool.exists()


def test_while_the_twin_lives_its_limit_holds_and_the_hook_is_alive(
    hook: Hook, settings: HookSettings, qmgr: Callable[[], list[str]]
) -> None:
    hook(PERIODIC, Job())
    assert qmgr() == []
    path = lifting_file(settings.heartbeat)
    shown_s = json.loads(path.read_text())["time_s"]
    assert abs(time.time() - shown_s) < 60
    hook(PERIODIC, Job())
    assert json.loads(path.read_text())["time_s"] > shown_s


def test_a_limit_is_lifted_even_where_no_sign_of_life_can_be_written(
    hook: Hook, settings: HookSettings, qmgr: Callable[[], list[str]]
) -> None:
    beat(settings.heartbeat, 1, time.time() - 30)
    target = settings.heartbeat.with_name("target")
    settings.heartbeat.with_name(settings.heartbeat.name + ".lifting").symlink_to(target)
    hook(PERIODIC, Job(), fault=True)
    assert not target.exists()
    assert len(qmgr()) == 2


def test_jobs_that_are_not_the_twins_are_started(hook: Hook, settings: HookSettings) -> None:
    lease(settings, j7=30.0)
    hook(RUNJOB, job_of(mark=None))
    hook(RUNJOB, job_of(mark=1))
    hook(RUNJOB, job_of(queue=Queue("R12")))


@pytest.mark.parametrize("beat_at", [None, "old", "ahead", "not JSON", "text", "link"])
def test_without_the_twin_nothing_is_rejected(
    hook: Hook, settings: HookSettings, beat_at: str | None
) -> None:
    lease(settings, j7=30.0)
    path = settings.heartbeat
    content = path.read_text()
    path.unlink()
    if beat_at == "link":
        path.with_name("target").write_text(content)
        path.symlink_to(path.with_name("target"))
    elif beat_at in ("old", "ahead"):
        time_s = time.time() + (30 if beat_at == "ahead" else -30)
        path.write_text(json.dumps({"time_s": time_s}))
    elif beat_at is not None:
        path.write_text("[" if beat_at == "not JSON" else '{"time_s": "now"}')
    hook(RUNJOB, job_of())


def test_leases_that_cannot_be_read_are_none(hook: Hook, settings: HookSettings) -> None:
    for text in ("", "[]", '{"until_s": 4}', "{"):
        leases_file(settings.heartbeat).write_text(text)
        hook(RUNJOB, job_of(500))
    leases_file(settings.heartbeat).write_text('{"until_s": {"7.vm": "soon"}}')
    hook(RUNJOB, job_of(500), fault=True)


def test_only_jobs_of_the_queues_named_are_the_twins(hook: Hook, settings: HookSettings) -> None:
    some = HookSettings(settings.spool, settings.heartbeat, ("small", "large"), LEASE_S)
    assert hook(QUEUEJOB, Job(), settings=some).mark is None
    assert hook(QUEUEJOB, Job(queue=Queue("small")), settings=some).mark == 0


def test_jobs_of_reservations_are_left_alone(hook: Hook) -> None:
    for name in ("R12", "S3", "M4"):
        job = hook(QUEUEJOB, Job(queue=Queue(name)))
        assert (job.mark, job.Execution_Time) == (None, None)


def test_changes_are_noted_only(hook: Hook, settings: HookSettings) -> None:
    job = hook(MODIFYJOB, Job(Execution_Time=5, id="4.vm"))
    assert (job.mark, job.Execution_Time) == (None, 5)
    assert json.loads(settings.spool.read_text())["job"]["id"] == "4.vm"


def test_the_twins_own_changes_are_no_events(hook: Hook, settings: HookSettings) -> None:
    job = Job(id="4.vm")
    job.Resource_List["hpctwin_wait"] = 0
    hook(MODIFYJOB, job)
    assert not settings.spool.exists()


def test_an_error_in_the_hook_refuses_and_delays_no_job(hook: Hook) -> None:
    class Broken:
        def __init__(self) -> None:
            raise RuntimeError("no server")

    job = hook(QUEUEJOB, Job(), server=Broken, fault=True)
    assert (job.mark, job.Execution_Time) == (None, None)


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({"spool": Path("news")}, "absolute path"),
        ({"heartbeat": Path('/a"; import os')}, "absolute path"),
        ({"queues": ('a", os.system("x")',)}, "not a valid queue name"),
        ({"lease_s": 0}, "expected 1 to 600"),
    ],
)
def test_values_that_cannot_be_written_into_the_hook_are_rejected(
    about: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        hook_text(HookSettings(**about))


@pytest.mark.parametrize(
    ("exec_vnode", "lacks"),
    [
        ("(n1:ncpus=2:mem=8gb)", ""),
        ("(n1:ncpus=3)", "n1 has too little free ncpus"),
        ("(n1:ncpus=1)+(n1:ncpus=2)", "n1 has too little free ncpus"),
        ("(n2:ncpus=8+n1:ncpus=1:mem=8388609kb)", "n1 has too little free mem"),
        ("(n2:ncpus=1:mem=16gb)+(n1:ncpus=1)", ""),
        ("(n2:ncpus=1:rank=3)+(n2:ncpus=1:rank=3)", ""),  # which jobs do not use up
        ("(n2:ncpus=1:ngpus=2)", "n2 has too little free ngpus"),  # no vnode says that it has any
    ],
)
def test_no_job_placed_by_the_twin_runs_without_capacity(
    hook: Hook, settings: HookSettings, exec_vnode: str, lacks: str
) -> None:
    file = leases_file(settings.heartbeat)
    file.write_text(json.dumps({"until_s": {"7.vm": 0}, "rooms": ["ncpus", "mem", "ngpus"]}))
    said = {"refused": bool(lacks), "why": f"hpctwin: {lacks}"}
    hook(RUNJOB, job_of(500, exec_vnode=exec_vnode), **said)
    # Those that PBS's scheduler starts besides too; not those of a reservation, which has its own.
    hook(RUNJOB, job_of(500, mark=None, exec_vnode=exec_vnode), **said)
    hook(RUNJOB, job_of(500, queue=Queue("R12"), exec_vnode=exec_vnode))
    file.write_text(json.dumps({"until_s": {"7.vm": 0}}))
    hook(RUNJOB, job_of(500, exec_vnode=exec_vnode))
    file.write_text(json.dumps({"until_s": {"7.vm": 0}, "rooms": ["ncpus", "mem"]}))
    settings.heartbeat.unlink()
    hook(RUNJOB, job_of(500, exec_vnode=exec_vnode))


def test_a_vnode_that_the_hook_cannot_read_blocks_no_job(
    hook: Hook, settings: HookSettings
) -> None:
    file = leases_file(settings.heartbeat)
    file.write_text(json.dumps({"until_s": {"7.vm": 0}, "rooms": ["ncpus"]}))
    hook(RUNJOB, job_of(500, exec_vnode="(nowhere:ncpus=99)"), fault=True)


@pytest.mark.parametrize(
    ("exec_vnode", "place", "lacks"),
    [
        # OpenPBS 23.06's server takes each of these by `qrun -a -H` without a word.
        ("(offline:ncpus=1)", "free", "offline is offline"),
        ("(n2:ncpus=1)+(both:ncpus=1)", "free", "both is offline"),
        ("(down:ncpus=1)", "scatter", "down is down"),
        ("(stale:ncpus=1)", "scatter", "stale is stale"),
        (
            "(n1:ncpus=1)+(n2:ncpus=1)",
            "scatter:excl",
            "n1 has jobs, but the job needs it exclusively",
        ),
        ("(n2:ncpus=1)", "scatter:excl", ""),
        ("(n1:ncpus=1)", "free", ""),
    ],
)
def test_no_job_placed_by_the_twin_runs_on_a_missing_or_foreign_vnode(
    hook: Hook, settings: HookSettings, exec_vnode: str, place: str, lacks: str
) -> None:
    file = leases_file(settings.heartbeat)
    file.write_text(json.dumps({"until_s": {"7.vm": 0}, "rooms": ["ncpus"]}))
    job = job_of(500, exec_vnode=exec_vnode)
    job.Resource_List["place"] = place
    hook(RUNJOB, job, refused=bool(lacks), why=f"hpctwin: {lacks}")
