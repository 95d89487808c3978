"""What-ifs by a deadline, here and on Dask's workers: what has not answered is left out, and told."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from distributed import LocalCluster
from hypothesis import given, settings

from hpctwin import Cluster, Simulation, generate
from hpctwin.cli.app import main
from hpctwin.errors import ConfigError, SimulationError
from hpctwin.rms.records.records import JobRecord, JobSpec, NodeRecord, Snapshot
from hpctwin.twin.core.core import Core
from hpctwin.twin.core.decision import Decision
from hpctwin.twin.emulated import emulated_cluster
from hpctwin.twin.journal.restore import decide_again
from hpctwin.twin.service.explain import explain_decision, status_lines
from hpctwin.twin.service.virtual_time import drive
from hpctwin.twin.settings.config import CoreSettings, TwinConfig
from hpctwin.twin.what_if import dask as what_ifs_on_dask
from hpctwin.twin.what_if import pool as what_ifs
from hpctwin.twin.what_if.dask import DaskPool
from hpctwin.twin.what_if.pool import LocalPool, Request
from hpctwin.twin.what_if.run import WhatIf, run_ahead
from tests.examples import examples
from tests.twin.test_core import ALL, decisions, workloads
from tests.twin.test_explain import Watched
from tests.twin.test_runner import Setting

LONG_S = 3600.0
LATE = 30_000
"""With so many jobs conservative backfilling takes seconds, a few times as long as to start them in order."""


class Slow:
    """`run_ahead`, but under shortest job first it does not answer before it is let go.

    The deadline is then when all others of a pool have answered, however fast the machine is.
    """

    pool = len(ALL.pool)

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.entered = threading.Event()

    def run_ahead(self, now: Any, policy: Any, *more: Any) -> WhatIf:
        if policy.name.startswith("sjf+easy"):
            self.entered.set()
            self.let_go.wait()
        return run_ahead(now, policy, *more)

    def wait(self, futures: Collection[Future[WhatIf]], left: float | None = None) -> Any:
        if left is None or self.let_go.is_set():
            return wait(futures)
        while True:
            found = wait(futures, 0.01)
            if len(found.not_done) * self.pool <= len(futures) + 1:
                return found


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    made = Slow()
    monkeypatch.setattr(what_ifs, "run_ahead", made.run_ahead)
    monkeypatch.setattr(what_ifs, "wait", made.wait)
    yield made
    made.let_go.set()


def queue(jobs: int, nodes: int = 8) -> Snapshot:
    """A cluster with one job that runs on half of it, and a queue."""
    names = tuple(f"n{i}" for i in range(nodes))
    waiting = [
        JobRecord(
            spec=JobSpec(
                id=str(i), submit_s=float(i) / jobs, nodes=1 + i * 7 % nodes, walltime_s=60.0 + i * 37 % 5000
            )
        )
        for i in range(1, jobs + 1)
    ]  # fmt: skip
    first = JobSpec(id="0", submit_s=0.0, nodes=nodes // 2, walltime_s=500.0)
    return Snapshot(
        cluster="c",
        run="r",
        time_s=10.0,
        machine=Cluster.uniform(nodes),
        jobs=[JobRecord(spec=first, start_s=0.0, node_names=names[: nodes // 2]), *waiting],
        nodes=[NodeRecord(name=name) for name in names],
    )


def test_after_the_first_what_if_none_takes_new_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    fork, new = Simulation.fork, []

    def counted(simulation: Simulation, *about: Any, into: Simulation | None = None) -> Simulation:
        if into is None:
            new.append(simulation)
        return fork(simulation, *about, into=into)

    monkeypatch.setattr(Simulation, "fork", counted)
    core = Core(ALL)
    for jobs in (20, 30, 20):
        core.take_snapshot(queue(jobs))
        assert core.decide(10.0) is not None
        assert len(new) == 2, "the present in order, and a future that continues it"


@settings(max_examples=examples(20))
@given(workloads())
def test_with_time_enough_a_deadline_changes_no_decision(workload) -> None:
    here = LocalPool(2, LONG_S)
    assert decisions(workload, Core(ALL, here)) == decisions(workload, Core(ALL))
    here.close()


def test_a_policy_that_has_not_answered_is_no_candidate_and_the_decision_comes_out_again(
    slow: Slow,
) -> None:
    core = Core(ALL, LocalPool(8, LONG_S))
    core.take_snapshot(queue(20))
    state = core.state()
    made = core.decide(10.0)
    assert made is not None
    assert [c.policy for c in made.candidates] == [
        "wfp+easy", "fcfs+easy", "sjf+first-fit", "fcfs+conservative",
    ]  # fmt: skip
    assert made.unanswered == tuple((number, "sjf+easy") for number in range(3))
    slow.let_go.set()
    again = Core(ALL)
    again.restore(state)
    assert again.decide(10.0, unanswered=made.unanswered) == made
    others = Core(ALL.model_copy(update={"pool": [p for p in ALL.pool if p != "sjf+easy"]}))
    others.take_snapshot(queue(20))
    without = others.decide(10.0)
    assert without is not None
    assert without.candidates == made.candidates


def test_the_policy_in_force_is_waited_for_even_if_it_alone_is_late(slow: Slow) -> None:
    core = Core(ALL, LocalPool(8, 0.001))
    core.take_snapshot(queue(20))
    core._memory.policy = "sjf+easy"

    def release() -> None:
        slow.entered.wait()
        slow.let_go.set()

    waits = threading.Thread(target=release)
    waits.start()
    made = core.decide(10.0)
    waits.join()
    assert made is not None
    assert "sjf+easy" in {c.policy for c in made.candidates}


def test_a_policy_that_is_still_late_is_not_started_again_and_blocks_no_other(
    slow: Slow,
) -> None:
    here = LocalPool(8, LONG_S)
    core = Core(ALL, here)
    core.take_snapshot(queue(20))
    first = core.decide(10.0)
    core.opportunity = True
    slow.entered.clear()
    second = core.decide(11.0)
    assert not slow.entered.is_set()
    slow.let_go.set()
    wait([future for _, future in here._late])
    core.opportunity = True
    third = core.decide(12.0)
    assert first is not None
    assert second is not None
    assert third is not None
    assert [len(one.candidates) for one in (first, second, third)] == [4, 4, 5]


def test_two_threads_run_two_what_ifs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Besides that of the policy in force, which runs in the caller's: it may be done long before."""
    both, caller = threading.Barrier(2), threading.current_thread()

    def meeting(now: Any, policy: Any, *more: Any) -> WhatIf:
        if threading.current_thread() is not caller:
            both.wait(60)
        return run_ahead(now, policy, *more)

    monkeypatch.setattr(what_ifs, "WORTH_THREADS", 0)
    monkeypatch.setattr(what_ifs, "run_ahead", meeting)
    with closing(LocalPool(2)) as here:
        pool = ("fcfs+easy", "sjf+easy", "wfp+easy")
        core = Core(CoreSettings(pool=pool, futures=0), here)
        core.take_snapshot(queue(20))
        made = core.decide(10.0)
    assert made is not None
    assert {one.policy for one in made.candidates} == set(pool)


def test_a_what_if_that_is_late_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: dict[str, BaseException | None] = {}
    decided = threading.Event()

    def noted(now: Any, policy: Any, *more: Any) -> WhatIf:
        if policy.name == "fcfs+conservative":
            assert decided.wait(60)
        try:
            found = run_ahead(now, policy, *more)
        except BaseException as error:
            ended[policy.name] = error
            raise
        ended[policy.name] = None
        return found

    monkeypatch.setattr(what_ifs, "run_ahead", noted)
    here = LocalPool(2, 0.001)
    core = Core(CoreSettings(pool=("fcfs+none", "fcfs+conservative"), futures=0), here)
    core.warm_up()
    core.take_snapshot(queue(LATE, 512))
    made = core.decide(10.0)
    decided.set()
    here.close()  # it waits for what runs
    assert made is not None
    assert made.unanswered == ((0, "fcfs+conservative"),)
    assert ended["fcfs+none"] is None
    late = ended.get("fcfs+conservative")
    assert late is None or isinstance(late, SimulationError)
    assert made.reason == "only one"


class Endless:
    """`run_ahead`, which does not return before its simulation is stopped, or not even then."""

    def __init__(self, *, stoppable: bool) -> None:
        self.stoppable = stoppable
        self.let_go = threading.Event()

    def run_ahead(self, now: Any, policy: Any, *more: Any) -> WhatIf:
        simulation = now.spare.fork(now.base, policy)
        while not self.let_go.is_set() and not (self.stoppable and simulation.stopped):
            self.let_go.wait(0.01)
        if not self.let_go.is_set():
            simulation.advance()  # raises, as it was stopped
        return run_ahead(now, policy, *more)


def test_a_decision_that_takes_too_long_is_stopped_and_the_twin_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = Endless(stoppable=True)
    monkeypatch.setattr(what_ifs, "run_ahead", endless.run_ahead)
    setting = Setting(tmp_path, what_ifs={"timeout": 0.2})
    setting.submit(1)
    setting.until(lambda: setting.twin.fault is not None)
    assert setting.twin.fault == (
        "cannot decide: the decision was stopped after 0.2 s (what_ifs.timeout); set "
        "what_ifs.deadline or core.horizon, or remove slow policies"
    )
    setting.until(lambda: not setting.twin.is_active)
    endless.let_go.set()
    setting.until(lambda: setting.running() == {"1"})
    setting.until(lambda: setting.twin.is_active and setting.twin.fault is None)
    setting.twin.end()
    setting.journal.close()


def test_a_decision_that_cannot_be_stopped_is_reported_once_with_its_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = Endless(stoppable=False)
    monkeypatch.setattr(what_ifs, "run_ahead", endless.run_ahead)
    faults: list[str] = []

    def hung(fault: str) -> None:
        faults.append(fault)
        endless.let_go.set()

    setting = Setting(tmp_path, what_ifs={"timeout": 0.2}, core={"pool": ["fcfs+easy"]}, hung=hung)
    setting.submit(1)
    setting.until(lambda: faults)
    assert faults == [
        "a decision has not returned for 0.4 s and cannot be stopped (policy fcfs+easy); correct "
        "the functions of this policy, or remove it from core.pool and core.site_policy"
    ]
    setting.until(lambda: setting.running() == {"1"})
    setting.twin.end()
    setting.journal.close()


def test_futures_that_are_not_answered_by_all_do_not_count() -> None:
    class Some(LocalPool):
        """Has lost one answer."""

        def run(self, asked: Request) -> what_ifs.Answers:
            answers = super().run(asked)
            if asked.unanswered is None and len(answers) > 1:
                answers[2][1] = None
            return answers

    core, whole = Core(ALL, Some()), Core(ALL.model_copy(update={"samples": 1}))
    for one in (core, whole):
        one.take_snapshot(queue(20))
    made, other = core.decide(10.0), whole.decide(10.0)
    assert made is not None
    assert other is not None
    assert made.unanswered == ((2, "fcfs+easy"),)
    assert made.candidates == other.candidates


def test_an_unanswered_policy_is_journaled_reported_and_skipped_again(
    tmp_path: Path, slow: Slow
) -> None:
    slow.pool = 2
    core = {"pool": ["fcfs+easy", "sjf+easy"], "objective": {"tie_break": ["fcfs+easy"]}}
    watched = Watched(tmp_path, core=core, what_ifs={"deadline": LONG_S}, threads=4)
    watched.cluster.advance(watched.cluster.now_s + 60.0)
    watched.turn()
    said = status_lines({**watched.twin.status(), "age_s": 0.0, "running_now": True})
    assert "At its last decision, 1 what-if had not answered by the deadline." in said
    last = watched.journal.read_decision()
    assert last is not None
    assert watched.journal.unanswered(last) == [(0, "sjf+easy")]
    told = explain_decision(watched.journal)
    assert "Excluded without an answer by the deadline: sjf+easy." in told
    assert any("none but it has answered" in line for line in told)
    slow.let_go.set()
    for number in watched.journal.decision_ids(99):
        assert decide_again(watched.journal, number).differences == ()
    watched.twin.end()
    watched.journal.close()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"dask": "tcp://h:8786"}, "need a deadline, such as deadline: 500ms"),
        ({"dask": "a", "scheduler_file": "b", "deadline": 1}, "give dask or scheduler_file"),
        ({"deadline": 0}, "what_ifs.deadline"),
        ({"deadline": "soon"}, "what_ifs.deadline"),
        ({"dead_line": 1}, "deadline"),
    ],
)
def test_invalid_settings_are_reported(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        TwinConfig.of({"manager": {"kind": "emulated", "address": "a"}, "what_ifs": asked})


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=1,
        threads_per_worker=2,
        processes=True,
        dashboard_address="127.0.0.1:0",
        host="127.0.0.1",
    ) as made:
        yield made


@contextmanager
def connected(address: str, deadline_s: float) -> Iterator[DaskPool]:
    """Closed in any case: a client that is left tries to connect again, during other tests."""
    with closing(DaskPool(address, None, deadline_s)) as found:
        assert found._connecting is not None
        found._connecting.result()
        yield found


def test_on_dask_decisions_are_those_of_here(cluster: LocalCluster) -> None:
    workload = generate("poisson", jobs=20, nodes=32, seed=1)
    with connected(cluster.scheduler_address, LONG_S) as dask:
        made: list[Decision] = []
        core = Core(ALL, dask)
        drive(
            emulated_cluster(Cluster.uniform(32), workload, publish=core.take_event), core, watch=made.append
        )  # fmt: skip
    assert made == decisions(workload, Core(ALL), 32)
    assert not any(one.unanswered for one in made)


def test_without_its_scheduler_the_twin_continues_by_the_policy_in_force() -> None:
    with closing(DaskPool("tcp://127.0.0.1:1", None, LONG_S)) as dask:
        core = Core(ALL, dask)
        core.take_snapshot(queue(20))
        made = core.decide(10.0)
        assert made is not None
        assert [c.policy for c in made.candidates] == ["wfp+easy"]
        assert len(made.unanswered) == 14
        assert dask._connecting is not None
        dask._connecting.result()
        assert "does not answer" in str(dask.fault)


def test_a_worker_that_is_lost_has_not_answered_and_the_next_one_does(tmp_path: Path) -> None:
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",
            host="127.0.0.1",
        ) as one,
        connected(one.scheduler_address, LONG_S) as dask,
    ):
        core = Core(ALL.model_copy(update={"samples": 0}), dask)
        core.take_snapshot(queue(20))
        whole = core.decide(10.0)
        assert whole is not None
        assert whole.unanswered == ()
        one.scale(0)
        dask.deadline_s = 0.2
        core.opportunity = True
        alone = core.decide(11.0)
        assert alone is not None
        assert len(alone.candidates) == 1
        assert len(alone.unanswered) == 4
        one.scale(1)
        dask.deadline_s = LONG_S
        again = core.decide(12.0)
        assert again is not None
        assert len(again.candidates) == 5


def test_a_failure_on_a_worker_counts_as_no_answer_is_reported_once_and_the_decision_stands(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As with a worker that has another version, and does not know what it is sent.
    def broken(*_: object) -> None:
        raise AttributeError("Can't get attribute 'Scene'")

    with connected(cluster.scheduler_address, LONG_S) as dask:
        monkeypatch.setattr(what_ifs_on_dask, "_run", broken)
        core = Core(ALL, dask)
        core.take_snapshot(queue(20))
        for now_s in (10.0, 11.0):
            made = core.decide(now_s)
            assert made is not None
            assert len(made.unanswered) == 14
        assert "Can't get attribute" in str(dask.fault)
        assert [r.message for r in caplog.records if r.name == what_ifs_on_dask.__name__] == [
            f"what-ifs: {dask.fault}"
        ]


def test_a_what_if_without_a_waiting_caller_does_not_keep_a_worker(cluster: LocalCluster) -> None:
    with connected(cluster.scheduler_address, 0.05) as dask:
        core = Core(CoreSettings(pool=("fcfs+none", "fcfs+conservative"), futures=0), dask)
        core.warm_up()
        core.take_snapshot(queue(LATE, 512))
        made = core.decide(10.0)
        assert made is not None
        assert made.unanswered == ((0, "fcfs+conservative"),)
        dask.deadline_s = LONG_S
        core.take_snapshot(queue(20))
        after = core.decide(11.0)
        assert after is not None
        assert after.unanswered == ()


def test_check_reports_dasks_workers(
    cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for address, told in (
        (cluster.scheduler_address, "1 worker, 2 threads"),
        ("tcp://127.0.0.1:1", "does not answer"),
        ("nowhere", "address is invalid"),
    ):
        body = {
            "manager": {"kind": "emulated", "address": str(tmp_path / "none")},
            "journal": {"path": str(tmp_path / "j.sqlite")},
            "what_ifs": {"dask": address, "deadline": 1},
        }
        path = tmp_path / "twin.yaml"
        path.write_text(yaml.safe_dump(body))
        path.chmod(0o600)
        with pytest.raises(SystemExit) as ended:
            main(["twin", "check", str(path)])
        assert ended.value.code == 1  # there is no cluster
        assert told in " ".join(capsys.readouterr().out.split())


def test_a_wrong_setting_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "twin.yaml"
    body = {"manager": {"kind": "emulated", "address": "a"}, "what_ifs": {"dask": "tcp://h:1"}}
    path.write_text(yaml.safe_dump(body))
    path.chmod(0o600)
    with pytest.raises(SystemExit) as refused:
        main(["twin", "check", str(path)])
    assert refused.value.code == 2
    assert "deadline: 500ms" in " ".join(capsys.readouterr().err.split())
