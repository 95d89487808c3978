"""The PBS hook's leases: what it changes of a job that is submitted or altered, and when nothing."""

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
from hpctwin.rms.heartbeat import beat
from hpctwin.rms.pbs.install import HookSettings, hook_text

QUEUEJOB, MODIFYJOB = 1, 2
WAITING, RUNNING, BEGUN = 3, 4, 7
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


class Queue:
    def __init__(self, name: str, queue_type: int = 1, route_waiting_jobs: Any = None) -> None:
        self.name = name
        self.queue_type = queue_type
        self.route_waiting_jobs = route_waiting_jobs

    def __str__(self) -> str:
        return self.name


class Server:
    """The server, with a default queue and routing queues."""

    managers = None
    operators = "twin@*,oper@login?.site"
    default_queue = Queue("workq")

    def queue(self, name: str) -> Queue:
        return {
            "route": Queue("route", 2),
            "router": Queue("router", 2, True),
        }.get(name, Queue(name))


Hook = Callable[..., Job]


@pytest.fixture
def settings(tmp_path: Path) -> HookSettings:
    found = HookSettings(tmp_path / "spool", tmp_path / "alive", lease_s=LEASE_S)
    beat(found.heartbeat, 1)
    return found


@pytest.fixture
def hook(settings: HookSettings, monkeypatch: pytest.MonkeyPatch) -> Hook:
    """Runs the hook on a job, and gives it back as it was changed."""

    def run(kind: int, job: Job, before: Job | None = None, **about: Any) -> Job:
        event = types.SimpleNamespace(
            type=kind, job=job, requestor="alice", requestor_host="login1.site", accepted=False
        )
        event.__dict__.update(about)
        if before is not None:
            event.job_o = before

        def accept() -> None:
            event.accepted = True

        event.accept = accept
        pbs = types.ModuleType("pbs")
        faults: list[str] = []
        pbs.__dict__.update(
            event=lambda: event, server=about.get("server", Server), POSTQUEUEJOB=0x8000000,
            LOG_DEBUG=4, logmsg=lambda level, text: faults.append(text),
        )  # fmt: skip
        monkeypatch.setitem(sys.modules, "pbs", pbs)
        exec(compile(hook_text(about.get("settings", settings)), "hook", "exec"), {})
        assert event.accepted
        assert bool(faults) == about.get("fault", False)
        return job

    return run


def leased(job: Job) -> bool:
    return job.Execution_Time is not None and 0 < job.Execution_Time - time.time() <= LEASE_S


def test_a_job_that_is_submitted_is_marked_and_leased(hook: Hook) -> None:
    job = hook(QUEUEJOB, Job())
    assert (job.mark, leased(job), job.comment) == (0, True, "hpctwin: waits for its turn")


def test_a_mark_that_a_user_asked_for_is_not_theirs_to_choose(hook: Hook) -> None:
    assert hook(QUEUEJOB, Job(mark=4_000_000_000)).mark == 0


def test_a_begin_time_of_its_user_is_kept_and_never_shortened(hook: Hook) -> None:
    later = int(time.time()) + 3600
    job = hook(QUEUEJOB, Job(Execution_Time=later))
    assert (job.mark, job.Execution_Time, job.comment) == (later, later, None)
    soon = int(time.time()) + 5
    job = hook(QUEUEJOB, Job(Execution_Time=soon))
    assert (job.mark, leased(job)) == (soon, True)
    past = int(time.time()) - 5
    job = hook(QUEUEJOB, Job(Execution_Time=past))
    assert (job.mark, leased(job)) == (0, True)


@pytest.mark.parametrize("beat_at", [None, "old", "ahead", "not JSON", "link", "other"])
def test_without_the_twin_a_job_is_only_marked(
    hook: Hook, settings: HookSettings, beat_at: str | None
) -> None:
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
    job = hook(QUEUEJOB, Job())
    assert (job.mark, job.Execution_Time, job.comment) == (0, None, None)


def test_only_jobs_of_the_queues_named_are_the_twins(hook: Hook, settings: HookSettings) -> None:
    some = HookSettings(settings.spool, settings.heartbeat, ("small", "large"), LEASE_S)
    assert hook(QUEUEJOB, Job(), settings=some).mark is None
    assert hook(QUEUEJOB, Job(queue=Queue("small")), settings=some).mark == 0


def test_jobs_of_reservations_are_left_alone(hook: Hook) -> None:
    for name in ("R12", "S3", "M4"):
        job = hook(QUEUEJOB, Job(queue=Queue(name)))
        assert (job.mark, job.Execution_Time) == (None, None)


def test_a_lease_does_not_keep_a_job_in_a_routing_queue(hook: Hook) -> None:
    job = hook(QUEUEJOB, Job(queue=Queue("route")))
    assert (job.mark, job.Execution_Time) == (0, None)
    assert leased(hook(QUEUEJOB, Job(queue=Queue("router"))))


def test_a_user_cannot_end_the_lease_of_a_job(hook: Hook) -> None:
    now = int(time.time())
    before = Job(mark=0, Execution_Time=now + 12, job_state=WAITING)
    job = hook(MODIFYJOB, Job(Execution_Time=now), before)
    assert (job.mark, job.Execution_Time) == (0, now + 12)


def test_a_user_can_put_off_a_job_and_take_that_back(hook: Hook) -> None:
    now = int(time.time())
    leased_one = Job(mark=0, Execution_Time=now + 12, job_state=WAITING)
    job = hook(MODIFYJOB, Job(Execution_Time=now + 3600), leased_one)
    assert (job.mark, job.Execution_Time) == (now + 3600, now + 3600)
    before = Job(mark=now + 3600, Execution_Time=now + 3600, job_state=WAITING)
    job = hook(MODIFYJOB, Job(Execution_Time=now - 60), before)
    assert (job.mark, leased(job)) == (0, True)


def test_an_operator_can_end_a_lease(hook: Hook) -> None:
    now = int(time.time())
    before = Job(mark=0, Execution_Time=now + 12, job_state=WAITING)
    for who, host in (("root", "x"), ("twin", "x"), ("oper", "login2.site")):
        job = hook(MODIFYJOB, Job(Execution_Time=now), before, requestor=who, requestor_host=host)
        assert (job.mark, job.Execution_Time) == (0, now)
    job = hook(
        MODIFYJOB, Job(Execution_Time=now), before, requestor="oper", requestor_host="elsewhere"
    )
    assert job.Execution_Time == now + 12


def test_what_the_twin_sets_is_left_and_not_noted(hook: Hook, settings: HookSettings) -> None:
    before = Job(mark=0, Execution_Time=1, job_state=WAITING)
    job = hook(MODIFYJOB, Job(mark=0, Execution_Time=4_000_000_000), before, requestor="twin")
    assert (job.mark, job.Execution_Time) == (0, 4_000_000_000)
    assert not settings.spool.exists()
    hook(MODIFYJOB, Job(Execution_Time=5), before)
    assert len(settings.spool.read_text().splitlines()) == 1


def test_a_running_job_and_one_that_is_not_marked_are_left_alone(hook: Hook) -> None:
    for before in (Job(mark=0, job_state=RUNNING), Job(job_state=WAITING)):
        job = hook(MODIFYJOB, Job(Execution_Time=5), before)
        assert (job.mark, job.Execution_Time) == (None, 5)
    now = int(time.time())
    begun = Job(mark=0, Execution_Time=now + 9, job_state=BEGUN)
    assert hook(MODIFYJOB, Job(Execution_Time=5), begun).Execution_Time == now + 9


def test_without_the_twin_a_user_may_end_what_is_left_of_a_lease(
    hook: Hook, settings: HookSettings
) -> None:
    settings.heartbeat.unlink()
    before = Job(mark=0, Execution_Time=int(time.time()) + 12, job_state=WAITING)
    assert hook(MODIFYJOB, Job(Execution_Time=5), before).Execution_Time == 5


def test_other_changes_are_noted_only(hook: Hook, settings: HookSettings) -> None:
    before = Job(mark=0, Execution_Time=int(time.time()) + 12, job_state=WAITING)
    job = hook(MODIFYJOB, Job(Job_Name="x", id="4.vm"), before)
    assert (job.mark, job.Execution_Time) == (None, None)
    assert json.loads(settings.spool.read_text())["job"]["id"] == "4.vm"


def test_a_fault_in_the_hook_refuses_and_delays_nothing(hook: Hook) -> None:
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
        ({"queues": ('a", os.system("x")',)}, "not the name of a queue"),
        ({"lease_s": 0}, "expected 1 to 600"),
    ],
)
def test_what_cannot_be_written_into_the_hook_is_refused(about: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        hook_text(HookSettings(**about))
