"""Explanations: the same to whoever asks, quick with a long queue, and with values that can be told apart."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpctwin.errors import HpctwinError
from hpctwin.model import Cluster
from hpctwin.rms.records.records import JobRecord, JobSpec
from hpctwin.twin.core.core import Core
from hpctwin.twin.core.decision import Candidate
from hpctwin.twin.emulated import emulated_cluster
from hpctwin.twin.following.bus import LocalBus
from hpctwin.twin.forecast.forecaster import Forecast
from hpctwin.twin.journal import journal
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.journal.restore import full_id, standing
from hpctwin.twin.service.explain import explain_job, why_policy
from hpctwin.twin.service.runner import Twin
from hpctwin.twin.service.when import picture_of
from hpctwin.twin.settings.config import TwinConfig
from hpctwin.twin.start_times import estimate
from hpctwin.twin.start_times.estimate import when_job
from hpctwin.twin.what_if.objective import Objective
from tests.twin.test_runner import Manager


class Watched:
    """A twin beside a cluster of 4 nodes for which jobs of 50, 300, 200 and 100 s wait, one at a time."""

    def __init__(self, folder: Path, **body: Any) -> None:
        bus = LocalBus()
        self.cluster = emulated_cluster(Cluster.uniform(4), publish=bus.publish)
        self.path = folder / "j.sqlite"
        self.config = TwinConfig.of(
            {
                "manager": {"kind": "emulated", "address": "none"},
                "journal": {"path": str(self.path)},
                "threads": 1,
                **body,
            }
        )
        self.journal = Journal(self.path)
        self.twin = Twin(self.config, Manager(self.cluster), bus, self.journal)
        self.twin.begin()
        for name, walltime_s in (
            ("first", 50.0),
            ("long", 300.0),
            ("mid", 200.0),
            ("short", 100.0),
        ):
            self.submit(name, walltime_s)
            self.cluster.advance(self.cluster.now_s + 1.0)
        self.turn()

    def submit(self, name: str, walltime_s: float) -> None:
        self.cluster.submit(JobSpec(id=name, submit_s=0.0, nodes=4, walltime_s=walltime_s))

    def turn(self) -> None:
        for _ in range(2):
            self.twin.core.opportunity = True
            self.twin.status_writer.due = 0.0
            self.twin.turn(0.0)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    core = {
        "pool": ["sjf+easy", "wfp+easy"],
        "objective": {"tie_break": ["sjf+easy"]},
        "site_policy": "fcfs+easy",
    }
    watched = Watched(tmp_path, core=core)
    yield watched
    watched.twin.end()
    watched.journal.close()


def test_explain_and_when_answer_for_the_policy_that_jobs_start_by(watched: Watched) -> None:
    # The twin would let the short job go first; the cluster, which starts the jobs, does not.
    assert watched.twin.core.policy == "sjf+easy"
    reader = Journal(watched.path, read_only=True)
    picture = picture_of(watched.config)
    for job in ("long", "mid", "short"):
        told = when_job(picture, job)
        assert told.policy == "fcfs+easy"
        lines = explain_job(reader, job)
        assert list(told.why) == lines[: len(told.why)]
        assert any("Under fcfs+easy it starts at" in line for line in lines)
    assert when_job(picture, "short").start_s == pytest.approx(554.0)
    reader.close()


def test_a_running_twin_is_asked_for_what_it_has_forecast_already(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = {job: when_job(picture_of(watched.config, look=False), job) for job in ("mid", "short")}

    def fail(*_: object) -> None:
        raise AssertionError("looked ahead once more")

    monkeypatch.setattr(Core, "forecasts", fail)
    picture = picture_of(watched.config)
    assert {job: when_job(picture, job) for job in ("mid", "short")} == ahead
    decision = watched.twin.decision
    assert decision is not None
    for one in decision.forecasts:
        found = when_job(picture, one.job_id)
        assert (found.start_s, found.low_s, found.high_s) == (one.start_s, one.low_s, one.high_s)


def test_a_job_that_the_twin_has_not_forecast_yet_is_looked_ahead_for(watched: Watched) -> None:
    reader = Journal(watched.path, read_only=True)
    stands = standing(reader)
    reader.close()
    known = {i: one for i, one in stands.forecasts.items() if i != "short"}
    found = estimate.when(stands.core, "short", stands.now_s, stands.policy, known)
    assert (found.state, found.start_s) == ("waiting", pytest.approx(554.0))


def test_a_job_without_a_forecast_is_explained_by_the_kind_of_the_resource_managers_reason(
    watched: Watched,
) -> None:
    why = "nodes: ReqNodeNotAvail, Reserved for maintenance"
    jobs = watched.twin.core.mirror.jobs
    spec = jobs["short"].spec.model_copy(update={"reason": why})
    jobs["short"] = jobs["short"].model_copy(update={"spec": spec})
    known = {"short": Forecast("short", 0.0, None, None, None, False, False, 4)}
    found = estimate.when(watched.twin.core, "short", 0.0, forecasts=known)
    assert found.state == "stuck"
    assert found.why[-1].endswith("keeps it pending, for a reason of the kind 'nodes'.")


@pytest.mark.parametrize(("elapsed_s", "known"), [(119.0, True), (121.0, False)])
def test_forecasts_expire_by_the_clock_of_the_host(
    watched: Watched, elapsed_s: float, known: bool
) -> None:
    """An emulated cluster may run 30 times as fast: an hour has passed there."""
    forecasts, status = (watched.journal.read_latest(key) for key in ("forecasts", "status"))
    assert forecasts is not None
    assert status is not None
    later = {**status[1], "time_s": status[1]["time_s"] + 30 * elapsed_s}
    with watched.journal.writing():
        watched.journal.latest("status", later, forecasts[0] + elapsed_s)
    reader = Journal(watched.path, read_only=True)
    assert bool(standing(reader).forecasts) == known
    reader.close()
    watched.twin.control.decided_at -= elapsed_s
    assert bool(watched.twin.status_writer.standing().forecasts) == known


def test_events_since_the_last_checkpoint_stay_few(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "CHECKPOINT_CHARACTERS", 5000)
    for number in range(60):
        watched.submit(f"j{number}", 100.0)
        watched.turn()
        _, inputs = watched.journal.read_inputs()
        assert sum(len(one.body) for one in inputs) < 5000 + 2000
    reader = Journal(watched.path, read_only=True)
    assert standing(reader).core.mirror.digest == watched.twin.core.mirror.digest
    reader.close()


def test_forecasts_are_written_when_they_are_made_and_not_each_second(watched: Watched) -> None:
    before = watched.journal.read_latest("forecasts")
    at_s = time.time()
    watched.twin.status_writer.due = watched.twin.control.decision_due = 0.0
    watched.twin.core.opportunity = False
    watched.twin.control.decision_due = time.monotonic() + 100
    watched.twin.turn(0.0)
    found = watched.journal.read_latest("status")
    assert found is not None
    assert found[0] >= at_s
    assert watched.journal.read_latest("forecasts") == before


@pytest.mark.parametrize(
    ("metric", "mine", "theirs", "says"),
    [
        ("mean_slowdown", 31.28, 31.31, "mean slowdown of 31.28 instead of 31.31 (better)"),
        ("mean_slowdown", 31.3, 45.2, "mean slowdown of 31.3 instead of 45.2 (better)"),
        ("mean_wait_s", 31.28, 31.31, "mean wait of 31.28 s instead of 31.31 s (better)"),
        ("max_wait_s", 90_000.125, 90_000.0, "max wait of 90000.1 s instead of 90000 s (worse)"),
    ],
)
def test_two_values_that_differ_are_shown_differently(
    metric: str, mine: float, theirs: float, says: str
) -> None:
    candidates = [
        Candidate("a", 1.0, {metric: mine}, {}, ()),
        Candidate("b", 2.0, {metric: theirs}, {}, ()),
    ]
    decision = {
        "id": 1, "time_s": 0.0, "seq": 1, "waiting": 1, "free_nodes": 1, "policy": "a",
        "reason": "lowest score", "before": "a", "candidates": candidates, "starts": (),
    }  # fmt: skip
    lines = why_policy(decision, Objective({metric: 1.0}))
    assert f"Compared with b: {says}." in lines
    assert lines[-1] == "It starts no job now."
    watching = why_policy(decision, Objective({metric: 1.0}), acts=False)
    assert watching[-1] == "It would start no job now."


def test_a_task_of_an_array_is_asked_for_by_its_own_name(watched: Watched) -> None:
    core = watched.twin.core
    assert full_id(core, "mid") == "mid"
    spec = core.mirror.jobs["mid"].spec
    for name in ("5_5", "6_1", "6_2", "7[3].server", "8.server"):
        core.mirror.jobs[name] = JobRecord(spec=spec.model_copy(update={"id": name}))
    assert full_id(core, "5_5") == "5_5"
    # The only one left: squeue shows it as 5_5, its users may say 5.
    assert full_id(core, "5") == "5_5"
    assert full_id(core, "7") == "7[3].server"
    assert full_id(core, "8") == "8.server"
    assert full_id(core, "99") == "99"
    with pytest.raises(HpctwinError, match="6 is a job array; give one of its jobs: 6_1, 6_2"):
        full_id(core, "6")


def test_asking_a_running_twin_loads_no_simulator() -> None:
    code = (
        "import sys; import hpctwin.cli.live.when, hpctwin.twin.service.when\n"
        "print([m for m in ('polars', 'numba', 'hpctwin.simulation') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
