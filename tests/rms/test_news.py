"""News pushed between two looks: whatever is lost, late or doubled, a look puts it right."""

from __future__ import annotations

import json
import math
import threading
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hpctwin import Cluster
from hpctwin.rms.manager import Report
from hpctwin.rms.pbs.listing.parse import cluster_snapshot
from hpctwin.rms.pbs.news import PbsNews
from hpctwin.rms.polling.poller import Poller
from hpctwin.rms.records import events as ev
from hpctwin.rms.records.changes import (
    End,
    JobBack,
    JobBegan,
    JobGone,
    JobSeen,
    Look,
    News,
    updated,
)
from hpctwin.rms.records.records import JobRecord, JobSpec, NodeRecord, Snapshot
from hpctwin.rms.slurm.manager import SlurmNews
from hpctwin.twin.core.mirror import Mirror
from tests.examples import examples
from tests.rms.recorded import PBS

NODES = 4


def record(job_id: str, **about: Any) -> JobRecord:
    return JobRecord(spec=JobSpec(id=job_id, submit_s=1.0, nodes=1, walltime_s=60.0), **about)


class Cluster4:
    """Four nodes and one-node jobs: the truth, and what a look at it gives."""

    def __init__(self) -> None:
        self.time_s = 1000.0
        self.jobs: dict[str, JobRecord] = {}
        self.states = dict.fromkeys([f"n{i}" for i in range(NODES)], "up")
        self.count = 0

    def step(self, kind: str) -> News | None:
        self.time_s += 1.0
        waiting = [i for i, job in self.jobs.items() if job.start_s is None]
        running = [i for i, job in self.jobs.items() if job.start_s is not None]
        held = {n for job in self.jobs.values() for n in job.node_names}
        free = [n for n, state in self.states.items() if state == "up" and n not in held]
        if kind == "submit":
            self.count += 1
            job_id = f"j{self.count}"
            self.jobs[job_id] = record(job_id)
            return JobSeen(self.time_s, self.jobs[job_id])
        if kind == "start" and waiting and free:
            job = self.jobs[waiting[0]]
            update = {"start_s": self.time_s, "node_names": (free[0],)}
            self.jobs[waiting[0]] = job.model_copy(update=update)
            return JobBegan(self.time_s, waiting[0], (free[0],))
        if kind == "end" and running:
            del self.jobs[running[0]]
            return JobGone(self.time_s, running[0], End("exit", 3))
        if kind == "back" and running:
            job = self.jobs[running[0]]
            update = {"start_s": None, "node_names": (), "requeues": job.requeues + 1}
            self.jobs[running[0]] = job.model_copy(update=update)
            return JobBack(self.time_s, running[0], job.requeues + 1)
        if kind == "delete" and waiting:
            del self.jobs[waiting[0]]  # of which nothing is pushed
        if kind == "node":  # of which nothing is pushed either
            name = "n3"
            self.states[name] = "down" if self.states[name] == "up" else "up"
            if name in held:
                self.states[name] = "up"
        return None

    def snapshot(self) -> Snapshot:
        return Snapshot(
            cluster="c", time_s=self.time_s, machine=Cluster.uniform(NODES),
            nodes=tuple(NodeRecord(name=n, state=s) for n, s in self.states.items()),  # type: ignore[arg-type]
            jobs=tuple(self.jobs.values()),
        )  # fmt: skip

    def report(self) -> Report:
        return Report()


class NoLines:
    def read(self, timeout_s: float) -> list[str]:
        return []

    def keep_place(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_an_event_pushed_during_a_query_is_reported_before_the_query_ends() -> None:
    truth = Cluster4()
    looking, told = threading.Event(), threading.Event()

    class Slow(Cluster4):
        """One that answers when the job that came in meanwhile has been told of."""

        def snapshot(self) -> Snapshot:
            found = truth.snapshot()
            if truth.count == 0:
                return found
            looking.set()
            assert told.wait(60)
            return found

    class OneLine(NoLines):
        def __init__(self) -> None:
            self.lines = ["0"]

        def read(self, timeout_s: float) -> list[str]:
            return [self.lines.pop()] if looking.is_set() and self.lines else []

    events: list[ev.Event] = []

    def publish(event: ev.Event) -> None:
        events.append(event)
        told.set()

    came: list[News] = []
    poller = Poller(
        Slow(),  # type: ignore[arg-type]
        publish,
        lines=OneLine(),
        translate=lambda line: [came[int(line)]],
        clock=lambda: truth.time_s,
    )
    mirror = Mirror(poller.snapshot())
    truth.count = 1
    came.append(JobSeen(truth.time_s + 1, record("j7")))
    poller._poll()
    assert len(events) == 1
    for event in events:
        mirror.take(event)
    assert set(mirror.jobs) == {"j7"}
    assert {job.spec.id for job in poller.snapshot().jobs} == {"j7"}


KINDS = st.sampled_from(["submit", "submit", "start", "start", "end", "back", "delete", "node"])


@settings(max_examples=examples(200), deadline=None)
@given(steps=st.lists(KINDS, max_size=40), data=st.data())
def test_after_a_query_the_mirror_is_the_truth_whatever_was_lost_doubled_or_late(
    steps: list[str], data: st.DataObject
) -> None:
    truth = Cluster4()
    pushed: list[News] = []
    events: list[ev.Event] = []
    poller = Poller(
        truth,  # type: ignore[arg-type]
        events.append,
        lines=NoLines(),
        translate=lambda line: [pushed[int(line)]],
        clock=lambda: truth.time_s,
    )
    mirror = Mirror(poller.snapshot())
    late: list[int] = []
    for kind in steps:
        news = truth.step(kind)
        if news is not None:
            pushed.append(news)
            fate = data.draw(st.sampled_from(["told", "told", "lost", "twice", "late"]))
            number = str(len(pushed) - 1)
            if fate == "late":
                late.append(len(pushed) - 1)
            elif fate != "lost":
                poller._take([number] * (2 if fate == "twice" else 1))
        if late and data.draw(st.booleans()):
            poller._take([str(late.pop(0))])
        if data.draw(st.integers(0, 9)) == 0:
            poller._poll()
    truth.time_s += 20  # what was pushed just before a look may count for more than the look
    poller._poll()
    for event in events:
        mirror.take(event)
    seen = mirror.snapshot()
    assert {job.spec.id: job for job in seen.jobs} == truth.jobs
    assert {n.name: n.state for n in seen.nodes} == truth.states
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


def test_a_start_on_nodes_of_a_job_with_a_lost_end_causes_a_query() -> None:
    truth = Cluster4()
    for kind in ("submit", "submit", "start"):
        truth.step(kind)
    known = truth.snapshot()
    truth.step("end")
    began = truth.step("start")
    found = updated(known, [began])
    assert found.look
    assert found.snapshot.jobs == known.jobs


def test_a_node_that_no_query_showed_is_held_by_no_job() -> None:
    truth = Cluster4()
    truth.step("submit")
    known = truth.snapshot()
    began = truth.step("start")
    assert isinstance(began, JobBegan)
    found = updated(known, [JobBegan(began.time_s, began.job_id, ("host", *began.node_names))])
    assert [job.node_names for job in found.snapshot.jobs] == [began.node_names]
    assert updated(known, [JobBegan(began.time_s, began.job_id, ("host",))]).look


def test_after_all_events_the_mirror_is_the_truth_without_a_query() -> None:
    truth = Cluster4()
    events: list[ev.Event] = []
    said: list[News] = []
    poller = Poller(
        truth,  # type: ignore[arg-type]
        events.append,
        lines=NoLines(),
        translate=lambda line: [said[int(line)]],
        clock=lambda: truth.time_s,
    )
    mirror = Mirror(poller.snapshot())
    for kind in ["submit", "submit", "start", "node", "back", "start", "end", "start", "node"]:
        news = truth.step(kind)
        if news is not None:
            said.append(news)
            poller._take([str(len(said) - 1)])
    for event in events:
        mirror.take(event)
    assert {job.spec.id: job for job in mirror.snapshot().jobs} == truth.jobs
    assert {n.name: n.state for n in mirror.snapshot().nodes} == truth.states
    ends = [event for event in events if isinstance(event, ev.JobEnded)]
    assert [(event.reason, event.exit_code) for event in ends] == [("exit", 3)]


def pbs_news(found: Any) -> list[News]:
    translate = PbsNews(lambda: found)
    return [n for line in PBS["hook-lines.jsonl"].decode().splitlines() for n in translate(line)]


def test_the_recorded_lines_of_the_pbs_hook_say_what_happened() -> None:
    found = cluster_snapshot(
        PBS["qstat.json"], PBS["pbsnodes.json"], PBS["queues.json"], b"", 1_795_246_410.0
    )
    news = pbs_news(found)
    first = [n for n in news if getattr(n, "job_id", "") == "926.pbsvm"]
    assert [type(n) for n in first] == [JobBegan, JobBack, JobBegan, JobGone]
    assert first[1].requeues == 1
    assert first[3].end == End("cancelled", 271)
    seen = {n.record.spec.id: n.record for n in news if isinstance(n, JobSeen)}
    listed = {job.spec.id: job for job in found.snapshot.jobs}
    for job_id in ("937.pbsvm", "939.pbsvm", "927.pbsvm"):
        ours, theirs = seen[job_id].spec, listed[job_id].spec
        assert (
            ours.model_copy(update={"held": theirs.held, "dependencies": theirs.dependencies})
            == theirs
        )
    assert seen["927.pbsvm"].start_s is None
    arrays = [n for n in news if isinstance(n, Look)]
    assert arrays  # the array's submission is looked at


def test_before_the_first_query_a_submission_only_requests_one() -> None:
    assert not any(isinstance(n, JobSeen) for n in pbs_news(None))


@settings(max_examples=examples(200))
@given(
    st.text(max_size=200)
    | st.recursive(
        st.none() | st.integers() | st.floats() | st.just(10**400) | st.text(max_size=5),
        lambda inner: st.dictionaries(
            st.sampled_from(["t", "type", "job", "kind", "nodes", "at"]), inner
        ),
        max_leaves=6,
    ).map(json.dumps)
)
@example(json.dumps({"t": 10**400, "type": 16, "kind": "end"}))
@example(json.dumps({"t": 10, "type": math.inf, "kind": "begin_time", "job": "7", "at": 10**400}))
def test_any_line_is_an_event_or_counted_as_unreadable(line: str) -> None:
    for translate in (PbsNews(lambda: None), SlurmNews()):
        assert translate(line) or translate.unreadable == 1


def test_a_requested_begin_time_that_is_no_time_is_no_request() -> None:
    wished: dict[str, float] = {}
    say = SlurmNews(wished.__setitem__)
    line = '{"t":10,"kind":"begin_time","job":"7","at":%s}'
    for at in ("1e400", "-1", "NaN", '"x"', "null"):
        assert say(line % at) == []
    assert (say(line % 99), wished, say.unreadable) == ([Look(10)], {"7": 99.0}, 5)


@pytest.mark.parametrize("fails", ["read", "translate", "keep_place"])
def test_an_error_in_pushed_events_ends_no_polls(
    caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    truth = Cluster4()

    class Failing(NoLines):
        def read(self, timeout_s: float) -> list[str]:
            if fails == "read":
                raise OSError(5, "no disk")
            return ["line"] if poller.polls else []  # the first poll reads to the end

        def keep_place(self) -> None:
            if fails == "keep_place":
                raise OSError(28, "no space")

    def translate(line: str) -> list[News]:
        if fails == "translate":
            raise OverflowError("too large")
        return [Look(truth.time_s)]

    poller = Poller(
        truth,  # type: ignore[arg-type]
        lambda event: None,
        every_s=0.01,
        lines=Failing(),
        translate=translate,
        clock=lambda: truth.time_s,
    )
    poller.start()
    end = time.monotonic() + 60
    while poller.polls < 4:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert poller.fault == ""
    assert len([r for r in caplog.records if "pushed events are not read" in r.message]) == 1
    poller.close()


def test_lines_of_slurms_event_script() -> None:
    say = SlurmNews()
    begin = '{"v":1,"t":10.5,"kind":"begin","job":"7","nodes":"n[1-3]"}'
    assert say(begin) == [JobBegan(10.5, "7", ("n1", "n2", "n3"))]
    end = '{"v":1,"t":11,"kind":"end","job":"7","state":"%s"}'
    assert say(end % "TIMEOUT") == [JobGone(11, "7", End("walltime"))]
    assert say(end % "CANCELLED") == [JobGone(11, "7", End("cancelled"))]
    assert say(end % "NODE_FAIL") == [Look(11)]
    assert say(end % "REQUEUED") == [Look(11)]
