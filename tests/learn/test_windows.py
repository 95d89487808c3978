"""Episodes of a trace that are begun as its rows, and stepped by several threads, are what they are else."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from numba import config

from hpctwin import Cluster, generate, simulate
from hpctwin.engine.agents.agent_record import agent_at, put_seen
from hpctwin.learn import Episodes, JobSelectionEnv, Observation, SimulationVectorEnv, many
from hpctwin.learn.environments import vector as batch
from hpctwin.learn.environments.episodes import windows_of
from hpctwin.model import Category, Dependencies, Failures, Limit, Workload
from tests.learn.test_many import KINDS, NODES, WORKLOAD, check_same, made, some_action


def with_users(jobs: Workload) -> Workload:
    users = Category.of([f"u{i % 5}" for i in range(len(jobs))])
    return jobs.replace(user=users, account=users)


def played(vector: SimulationVectorEnv, steps: int) -> list[Any]:
    """All that is seen, earned and told."""
    rng = np.random.default_rng(4)
    seen, _ = vector.reset(seed=8)
    found = [seen.tobytes()]
    for _ in range(steps):
        if vector.task.chosen == "share":
            actions: Any = rng.uniform(0.5, 1.0, (vector.num_envs, 1)).astype(np.float32)
        elif vector.task.chosen == "nodes":
            actions = rng.random((vector.num_envs, NODES)) < 0.7
        else:
            actions = (rng.random(vector.action_masks().shape) * vector.action_masks()).argmax(
                axis=1
            )
        seen, rewards, ended, cut, infos = vector.step(actions)
        told = [told for told in infos.get("final_info", ()) if told is not None]
        found += [seen.tobytes(), rewards.tobytes(), ended.tobytes(), cut.tobytes(), told]
    vector.close()
    return found


@pytest.mark.parametrize(
    "name", ["selection", "rlscheduler", "backfilling", "power", "power, spars"]
)
def test_an_episode_given_as_rows_of_the_trace_equals_the_one_made_of_its_jobs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, options = KINDS[name]
    jobs = with_users(WORKLOAD)
    given = {"cluster": NODES, "jobs": 12, "num_envs": 4, "threads": 1, **options}
    as_rows = many(kind, jobs, **given)
    assert windows_of(as_rows.task, as_rows.episodes) is not None
    found = played(as_rows, 60)
    monkeypatch.setattr(batch, "FEW", -1)
    assert found == played(many(kind, jobs, **given), 60)
    assert sum(len(part) for part in found if isinstance(part, list)) > 8  # since then as rows


def test_observations_of_an_episode_given_as_rows_are_those_of_its_jobs() -> None:
    environment, rng = made("power", jobs=20), np.random.default_rng(2)
    for seed in range(batch.FEW + 2):
        environment.reset(seed=seed)
    over = False
    while not over:
        *_, over, _, told = environment.step(np.ones(1, np.float32))
    jobs = environment.simulation.workload
    first = np.flatnonzero(WORKLOAD.job_id == jobs.job_id[0])[0]
    assert jobs.submit_ms[0] == 0
    check_same(
        environment,
        simulate(
            environment.episodes.beginning_at(first), environment.episodes.cluster, "fcfs+easy"
        ),
        told,
    )
    # The next one is not mistaken for it.
    environment.reset(seed=99)
    environment.step(some_action(environment, rng))
    assert environment.simulation.workload.job_id[0] != jobs.job_id[0]


def after_others(jobs: Workload) -> Workload:
    job, on = np.arange(1, len(jobs), 7), np.arange(0, len(jobs) - 1, 7)
    return jobs.replace(
        dependencies=Dependencies(
            job, on, np.zeros(len(job), np.int64), np.zeros(len(job), np.int64)
        )
    )


@pytest.mark.parametrize(
    ("what", "jobs", "cluster"),
    [
        ("dependencies", after_others(WORKLOAD), Cluster.uniform(NODES)),
        (
            "cancellations",
            WORKLOAD.replace(cancel_ms=np.where(np.arange(len(WORKLOAD)) % 90 == 80, 10**12, -1)),
            Cluster.uniform(NODES),
        ),
        (
            "limits",
            with_users(WORKLOAD),
            Cluster.uniform(NODES).model_copy(update={"limits": (Limit(per="user", jobs=2),)}),
        ),
        (
            "failures drawn",
            WORKLOAD,
            Cluster.uniform(NODES).model_copy(update={"failures": Failures(mtbf=1e6, mttr=1e3)}),
        ),
    ],
)
def test_where_episodes_differ_in_more_than_rows_each_is_made(
    what: str, jobs: Workload, cluster: Cluster
) -> None:
    environment = JobSelectionEnv(jobs, cluster, jobs=12)
    assert windows_of(environment.task, environment.episodes) is None, what


def test_episodes_whose_jobs_vary_are_made() -> None:
    varied = JobSelectionEnv(Episodes.of(WORKLOAD, NODES, jobs=12, load=(0.5, 0.6)))
    assert windows_of(varied.task, varied.episodes) is None


def test_it_does_not_matter_how_many_threads_step_nor_whether_they_sleep_meanwhile() -> None:
    def run(threads: int, rest_s: float) -> list[Any]:
        vector = many(JobSelectionEnv, WORKLOAD, NODES, jobs=12, num_envs=37, threads=threads)
        step = vector.step

        def rested(actions: Any) -> Any:
            time.sleep(rest_s)
            return step(actions)

        vector.step = rested  # type: ignore[method-assign]
        return played(vector, 40)

    alone = run(1, 0.0)
    assert run(2, 0.0) == run(2, 0.002) == run(7, 0.0) == run(40, 0.001) == alone


def test_an_error_in_another_thread_is_reported_and_the_others_continue() -> None:
    place = 3 if config.BOUNDSCHECK else 2

    def beyond_later(agent: int, sim: Any) -> None:
        at = place if agent_at(agent).steps > 3 else 0
        put_seen(agent_at(agent).seen, at, 1.0)

    seen = Observation(beyond_later, lambda window, nodes: (3,))
    jobs = generate("poisson", jobs=60, nodes=NODES, seed=3)
    vector = many(JobSelectionEnv, jobs, NODES, jobs=10, num_envs=32, threads=3, observation=seen)
    vector.reset(seed=1)
    for step in range(20):
        actions = np.zeros(32, np.int64)
        if config.BOUNDSCHECK and step == 3:
            with pytest.raises(IndexError):
                vector.step(actions)
            break
        vector.step(actions)
    vector.close()
