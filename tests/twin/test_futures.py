"""Futures that are drawn from the past, and when jobs start in them."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

from hpctwin.model import Cluster
from hpctwin.rms.records.records import JobRecord, JobSpec, NodeRecord, Snapshot
from hpctwin.twin.core.core import Core
from hpctwin.twin.forecast.workload_model import OF_USER, Expectations
from hpctwin.twin.settings.config import CoreSettings
from hpctwin.twin.what_if.run import Past, look_ahead


def spec(job_id: str, submit_s: float = 0.0, **about: object) -> JobSpec:
    asks = {"nodes": 1, "walltime_s": 1000.0, "user": "anna", **about}
    return JobSpec.model_validate({"id": job_id, "submit_s": submit_s, **asks})


def seen(*ran: tuple[float, dict[str, object]]) -> Expectations:
    """What is expected after jobs that ran so long."""
    found = Expectations()
    for number, (runtime_s, about) in enumerate(ran):
        found.saw_end(JobRecord(spec=spec(str(number), **about), start_s=0.0), runtime_s)
    return found


def draws(known: Expectations, job: JobRecord, now_s: float = 0.0) -> list[float]:
    (column,) = known.runtimes([job], now_s, 2000, np.random.default_rng(1)).T
    return column.tolist()


def test_an_unknown_job_runs_to_its_walltime() -> None:
    assert set(draws(Expectations(), JobRecord(spec=spec("1")))) == {1000.0}


def test_runtimes_are_those_of_the_users_last_jobs_and_now_and_then_shares_of_others() -> None:
    known = seen(*[(100.0, {})] * OF_USER, (900.0, {"user": "ben"}))
    found = draws(known, JobRecord(spec=spec("x")))
    assert set(found) == {100.0, 900.0, 1000.0}
    assert 0.85 < np.mean(np.array(found) == 100.0) < 1.0


def test_like_jobs_weigh_more_than_others_of_the_user_and_later_ones_more_than_earlier() -> None:
    known = seen((10.0, {}), (20.0, {}), (30.0, {"walltime_s": 500.0}))
    found = np.array(draws(known, JobRecord(spec=spec("x"))))
    shares = [np.mean(found == runtime) for runtime in (10.0, 20.0, 30.0)]
    assert shares[1] > shares[0] > shares[2] > 0


def test_a_job_that_runs_already_is_drawn_from_those_that_ran_longer() -> None:
    known = seen((100.0, {}), (300.0, {}), (600.0, {"user": "ben"}))
    running = JobRecord(spec=spec("x"), start_s=0.0)
    assert set(draws(known, running, now_s=200.0)) == {300.0, 600.0, 1000.0}
    assert set(draws(known, running, now_s=2000.0)) == {1000.0}


def test_arrivals_repeat_a_stretch_of_the_past_with_its_gaps() -> None:
    known = Expectations()
    times = [0.0, 5.0, 5.0, 100.0, 400.0, 410.0]
    for number, time_s in enumerate(times):
        known.saw_submission(spec(str(number), time_s, nodes=number + 1))
    rng = np.random.default_rng(2)
    for _ in range(20):
        coming = known.arrivals(1000.0, 500.0, 4, rng, "future")
        assert 1 <= len(coming) <= 4
        assert all(1000.0 <= one.submit_s <= 1500.0 for one in coming)
        for one, other in pairwise(coming):
            before, after = times[one.nodes - 1], times[other.nodes - 1]
            assert other.submit_s - one.submit_s == pytest.approx((after - before) % 410.0)


def test_no_job_comes_where_none_was_submitted_or_all_at_once() -> None:
    known = Expectations()
    rng = np.random.default_rng(1)
    assert known.arrivals(0.0, 1e6, 10, rng, "x") == []
    for number in range(3):
        known.saw_submission(spec(str(number), 7.0))
    assert known.arrivals(0.0, 1e6, 10, rng, "x") == []


def test_learned_runtimes_survive_saving_as_json() -> None:
    known = seen((100.0, {}), (300.0, {}), (600.0, {"user": "ben"}))
    again = Expectations()
    again.restore(json.loads(json.dumps(known.state())))
    job = JobRecord(spec=spec("x"))
    assert draws(again, job) == draws(known, job)


def core_of(jobs: list[JobRecord], now_s: float, **settings: object) -> Core:
    core = Core(CoreSettings.model_validate({"pool": ["fcfs+easy"], **settings}))
    names = [f"n{number}" for number in range(4)]
    core.take_snapshot(
        Snapshot(
            cluster="c", time_s=now_s, machine=Cluster.uniform(nodes=4),
            nodes=tuple(NodeRecord(name=name) for name in names), jobs=tuple(jobs),
        )
    )  # fmt: skip
    return core


RUNS = JobRecord(spec=spec("1", nodes=4), start_s=0.0, node_names=("n0", "n1", "n2", "n3"))
WAITS = JobRecord(spec=spec("2", 1.0, nodes=2))


def test_a_waiting_job_starts_when_the_running_one_ends_in_each_future() -> None:
    core = core_of([RUNS, WAITS], 50.0, futures=200)
    core.expectations = seen(*[(400.0, {})] * 3, *[(700.0, {})] * 3)
    jobs = list(core.mirror.jobs.values())
    found = core.draw(jobs, 50.0, core.pool[0], 1)
    assert set(found) == {"2"}
    assert set(found["2"]) == {400.0, 700.0, 1000.0}


def test_jobs_that_come_may_be_started_first_and_make_others_wait() -> None:
    core = core_of([RUNS, WAITS], 50.0, futures=30, arrivals=500, pool=["largest+easy"])
    for number in range(20):
        core.expectations.saw_submission(spec(str(number), 10.0 * number, nodes=4))
    found = core.draw(list(core.mirror.jobs.values()), 50.0, core.pool[0], 1)["2"]
    assert found.min() >= 1000.0
    assert found.max() >= 2000.0


@pytest.mark.parametrize("policy", ["sjf+easy", "wfp+easy", "fcfs+conservative"])
def test_jobs_start_in_each_future_as_in_a_simulation_of_it_alone(policy: str) -> None:
    waiting = [
        JobRecord(spec=spec(str(number), number, nodes=number % 4 + 1, walltime_s=90.0 * number))
        for number in range(2, 30)
    ]
    core = core_of([RUNS, *waiting], 50.0, pool=[policy])
    core.expectations = seen(*[(100.0 * number, {}) for number in range(1, 9)])
    for number in range(20):
        core.expectations.saw_submission(spec(str(number), 10.0 * number, nodes=2))
    jobs, by = list(core.mirror.jobs.values()), core.pool[0]
    drawn = core.expectations.futures(jobs, 50.0, 12, 500.0, np.random.default_rng(1))
    found = core.simulated(jobs, 50.0, by, drawn.arriving, {}).futures(
        drawn.runtime_s, drawn.coming
    )
    assert len(found) == len(waiting)
    for number, coming in enumerate(drawn.coming):
        arriving = [one for one in drawn.arriving if one.id in coming]
        runtime_s = {job_id: float(column[number]) for job_id, column in drawn.runtime_s.items()}
        alone = core.simulated(jobs, 50.0, by, arriving, runtime_s)
        (expected,) = look_ahead(alone, [by], past=Past.none())
        assert {job_id: column[number] for job_id, column in found.items()} == expected.start_s


def test_the_same_seed_draws_the_same_futures_and_none_are_drawn_if_none_are_wanted() -> None:
    core = core_of([RUNS, WAITS], 50.0)
    core.expectations = seen((400.0, {}), (700.0, {}))
    jobs, policy = list(core.mirror.jobs.values()), core.pool[0]
    first, again, other = (core.draw(jobs, 50.0, policy, seed) for seed in (1, 1, 2))
    assert first["2"].tolist() == again["2"].tolist()
    assert first["2"].tolist() != other["2"].tolist()
    assert core_of([RUNS, WAITS], 50.0, futures=0).draw(jobs, 50.0, policy, 1) == {}
