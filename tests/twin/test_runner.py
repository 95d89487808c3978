"""The live loop, turn by turn, with a cluster and a bus in the same process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hpctwin import Cluster
from hpctwin.errors import UnreachableError
from hpctwin.rms.emulated import EmulatedCluster
from hpctwin.rms.manager import Outcome, Priorities, Report, Way
from hpctwin.rms.records import events as ev
from hpctwin.rms.records.records import JobSpec, Snapshot
from hpctwin.twin.core.reported import Reported
from hpctwin.twin.emulated import emulated_cluster
from hpctwin.twin.following.bus import LocalBus
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.service.runner import Twin
from hpctwin.twin.settings.config import TwinConfig


class Manager:
    """The cluster as a resource manager; can be made to fail."""

    clock_speed = 0.0
    priorities = Priorities()

    def __init__(self, cluster: EmulatedCluster) -> None:
        self.inner = cluster
        self.cluster = "c"
        self.away = False
        self.answer: Outcome | None = None
        self.started: list[str] = []

    def ways(self) -> frozenset[Way]:
        return frozenset({"start", "priority"})

    def leases(self) -> dict[str, float]:
        return {}

    def lease(self, until_s: Mapping[str, float]) -> dict[str, Outcome]:
        return {job_id: Outcome("refused", "no") for job_id in until_s}

    def admit(self, job_ids: Sequence[str]) -> dict[str, Outcome]:
        return {job_id: Outcome("refused", "no") for job_id in job_ids}

    def report(self) -> Report:
        return Report()

    def own_estimates(self) -> dict[str, float]:
        return {}

    def snapshot(self) -> Snapshot:
        if self.away:
            raise UnreachableError("away")
        return self.inner.snapshot()

    def start(self, job_id: str) -> Outcome:
        if self.away:
            raise UnreachableError("away")
        self.started.append(job_id)
        return self.answer or self.inner.start(job_id)

    def take_scheduling(self) -> Outcome:
        return self.inner.take_scheduling()

    def give_scheduling(self) -> Outcome:
        return self.inner.give_scheduling()

    def heartbeat(self, seq: int, *, starts_at_once: bool = False) -> None:
        if self.away:
            raise UnreachableError("away")
        self.inner.heartbeat(seq)

    def set_priority(self, job_id: str, priority: float) -> Outcome:
        return self.inner.set_priority(job_id, priority)

    def close(self) -> None:
        pass


class Setting:
    def __init__(self, folder: Path, **config: Any) -> None:
        self.bus = LocalBus()
        self.lose = 0
        own = config.pop("own", "fcfs+easy")
        more = {"hung": config.pop("hung")} if "hung" in config else {}
        self.cluster = emulated_cluster(Cluster.uniform(8), policy=own, publish=self.publish)
        self.manager = Manager(self.cluster)
        body = {
            "manager": {"kind": "emulated", "address": "none"},
            "act": {"mode": "act"},
            "journal": {"path": str(folder / "j.sqlite")},
            "gap_timeout": 0.05,
            "resync_interval": 0.1,
            "threads": 1,
        }
        for section, values in config.items():
            body[section] = (
                {**body.get(section, {}), **values} if isinstance(values, dict) else values
            )
        self.journal = Journal(folder / "j.sqlite")
        self.twin = Twin(TwinConfig.of(body), self.manager, self.bus, self.journal, **more)
        self.twin.begin()

    def publish(self, event: ev.Event) -> None:
        if self.lose > 0:
            self.lose -= 1
        else:
            self.bus.publish(event)

    def turn(self, times: int = 3) -> None:
        for _ in range(times):
            self.twin.turn(0.01)

    def until(self, reached: Callable[[], Any]) -> None:
        """Turn until something is so; a busy machine takes its time."""
        limit = time.monotonic() + 120
        while not reached():
            assert time.monotonic() < limit, "not reached"
            self.turn(1)

    def submit(self, number: int, nodes: int = 8) -> None:
        spec = JobSpec(id=str(number), submit_s=self.cluster.now_s, nodes=nodes, walltime_s=60)
        assert self.cluster.submit(spec, 30).result == "done"

    def running(self) -> set[str]:
        return {j.spec.id for j in self.cluster.snapshot().jobs if j.start_s is not None}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    made: list[Setting] = []

    def one(**config: Any) -> Setting:
        made.append(Setting(tmp_path, **config))
        return made[-1]

    yield one
    for setting in made:
        setting.twin.end()
        setting.journal.close()


def test_the_loss_of_the_very_last_event_is_noticed_by_the_next_snapshot(make) -> None:
    setting = make(resync_interval=1000)
    setting.turn()
    setting.lose = 1
    setting.submit(1)
    setting.turn()
    assert setting.running() == set()

    def resynced() -> bool:
        setting.twin.follower.due["resync"] = 0.0
        return setting.running() == {"1"}

    setting.until(resynced)
    assert setting.twin.counts["drifts"] == 1


def test_a_twin_whose_journal_is_deleted_lets_go_and_says_so(make, tmp_path: Path) -> None:
    setting = make()
    setting.until(lambda: setting.twin.is_active)
    (tmp_path / "j.sqlite").unlink()
    setting.until(lambda: not setting.twin.is_active)
    assert "was deleted or replaced" in setting.twin.fault
    assert setting.cluster.own_scheduling


def test_a_rejected_start_is_tried_again_only_after_a_while_and_is_in_the_journal(make) -> None:
    setting = make(core={"retry_after": 100})
    setting.turn()
    setting.manager.answer = Outcome("refused", "no")
    setting.submit(1)
    setting.turn(10)
    assert setting.manager.started == ["1"]
    (action,) = setting.journal.read_actions(job="1")
    assert (action.result, action.reason) == ("refused", "no")
    setting.manager.answer = None
    setting.cluster.advance(200)
    setting.submit(2, nodes=1)
    setting.turn(5)
    assert setting.running() == {"1"} or setting.running() == {"2"}


def test_a_job_that_requests_what_is_not_reported_keeps_the_twin_out_of_charge_of_a_resting_manager(
    make, monkeypatch
) -> None:
    setting = make()
    monkeypatch.setattr(Reported, "lacks", lambda self, spec: "it is odd" * (spec.id == "9"))
    setting.turn()
    setting.submit(9, nodes=1)
    setting.until(lambda: setting.twin.fault is not None and not setting.twin.is_active)
    assert setting.twin.fault == "requests: job 9 cannot be scheduled by the twin: it is odd"
    setting.until(lambda: setting.running() == {"9"})  # by the cluster's own scheduler
    setting.until(lambda: setting.twin.is_active and setting.twin.fault is None)


def test_an_answer_that_is_lost_is_settled_by_a_snapshot(make) -> None:
    setting = make(core={"start_timeout": 5})
    setting.turn()
    setting.manager.answer = Outcome("unknown", "lost")
    setting.submit(1)
    setting.turn()
    assert setting.running() == set()
    setting.manager.answer = None
    setting.cluster.advance(100)
    setting.submit(2, nodes=1)
    setting.until(setting.running)


def test_a_twin_without_its_manager_reports_it_and_continues_when_it_is_back(make) -> None:
    setting = make()
    setting.turn()
    setting.manager.away = True
    setting.until(lambda: setting.twin.fault == "resource manager: away")
    setting.submit(1)
    setting.turn()
    setting.manager.away = False
    setting.until(lambda: setting.twin.fault is None and setting.running() == {"1"})


def test_garbage_on_the_bus_is_skipped_and_the_rest_continues(make) -> None:
    setting = make()
    setting.turn()
    for data in (
        b"\xff",
        b"{}",
        b"null",
        b'{"kind": "job_started"}',
        b'{"a": 1 "b"',
        b"[" * 10_000,
    ):
        setting.bus.put(data)
    setting.submit(1)
    setting.turn()
    assert len(setting.bus.dead_letters) == 6
    assert setting.twin.counts["bad_events"] == 6
    assert setting.running() == {"1"}


def test_whatever_reading_one_event_raises_the_others_are_read(make, monkeypatch) -> None:
    setting = make()
    setting.turn()
    parse = ev.parse_event

    def failing(data: bytes) -> ev.Event:
        return parse(data) if data != b"odd" else int(float("inf"))  # type: ignore[return-value]

    monkeypatch.setattr(ev, "parse_event", failing)
    setting.bus.put(b"odd")
    setting.submit(1)
    setting.turn()
    ((_, reason),) = setting.bus.dead_letters
    assert reason.startswith("OverflowError: ")
    assert setting.running() == {"1"}


def test_events_of_another_cluster_are_not_taken(make) -> None:
    setting = make()
    setting.turn()
    spec = JobSpec(id="9", submit_s=0, nodes=1, walltime_s=1)
    setting.bus.publish(ev.JobSubmitted(cluster="other", run="1", seq=1, time_s=0, job=spec))
    setting.turn()
    assert setting.twin.core.mirror.jobs == {}
    assert setting.twin.core.mirror.needs_snapshot is None


def test_a_limit_on_starts_withholds_the_rest_and_says_why(make) -> None:
    setting = make(act={"starts_per_minute": 2})
    setting.turn()
    for number in range(4):
        setting.submit(number, nodes=1)
    setting.turn()
    assert len(setting.running()) == 2
    said = {a.reason for n in range(4) for a in setting.journal.read_actions(job=str(n))}
    assert "withheld: more than 2 starts per minute" in said


def test_a_restart_continues_where_it_was(make, tmp_path: Path) -> None:
    setting = make()
    setting.turn()
    for number in range(3):
        setting.submit(number, nodes=8)
        setting.turn()
        setting.cluster.advance(setting.cluster.now_s + 40)
    setting.turn()
    state = setting.twin.core.state()
    again = Twin(setting.twin.config, setting.manager, setting.bus, setting.journal)
    again.begin()
    assert again.core.state() == state
    again.end()


def test_by_priority_the_cluster_starts_the_jobs_and_the_twin_only_orders_them(make) -> None:
    pool = {"pool": ["sjf+none"], "objective": {"tie_break": ["sjf+none"]}}
    setting = make(own="priority+none", core=pool, act={"by": "priority"})
    setting.submit(0)
    setting.cluster.schedule()
    for number, walltime_s in ((1, 500), (2, 400), (3, 60)):
        spec = JobSpec(
            id=str(number), submit_s=setting.cluster.now_s, nodes=8, walltime_s=walltime_s
        )
        setting.cluster.submit(spec, walltime_s)
    setting.turn(5)
    assert not setting.twin.is_active
    assert setting.running() == {"0"}
    order = {j.spec.id: j.spec.priority for j in setting.cluster.snapshot().jobs}
    assert order["3"] > order["2"] > order["1"]
    sent = setting.twin.control.executor.done
    setting.turn(5)
    assert setting.twin.control.executor.done == sent  # in order already: nothing more is sent
    setting.cluster.advance(31)
    assert setting.running() == {"3"}
    assert setting.manager.started == []
    kinds = {a.kind for a in setting.journal.read_actions(job="3")}
    assert kinds == {"set_priority"}
