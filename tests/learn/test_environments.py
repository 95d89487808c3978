"""Environments hold what Gymnasium asks of them, and are the one simulation."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import hpctwin.learn  # registers
from hpctwin import errors, generate, simulate
from hpctwin.learn import Episodes, JobSelectionEnv, PolicySelectionEnv
from hpctwin.metrics import with_job_metrics
from hpctwin.model import Workload

NODES = 32
WORKLOAD = generate("poisson", jobs=300, nodes=NODES, seed=4)
KINDS = ("hpctwin/JobSelection-v0", "hpctwin/PolicySelection-v0")


def test_always_the_first_job_is_first_come_first_served_in_the_engine() -> None:
    episodes = Episodes.of(WORKLOAD, NODES, jobs=200)
    environment = JobSelectionEnv(episodes)
    environment.reset(options={"first": 40})
    over, earned = False, 0.0
    while not over:
        _, reward, over, _, info = environment.step(np.int64(0))
        earned += reward
    own = simulate(episodes.beginning_at(40), NODES, "fcfs", "none").jobs
    assert environment.simulation.result().jobs["start_s"].to_list() == own["start_s"].to_list()
    assert -earned == pytest.approx(with_job_metrics(own)["bounded_slowdown"].mean())
    assert info["mean_wait_s"] == pytest.approx(own["wait_s"].mean())


@pytest.mark.parametrize("place", [0, 1, 2])
def test_always_one_policy_is_that_policy_in_the_engine(place: int) -> None:
    episodes = Episodes.of(WORKLOAD, NODES, jobs=150)
    environment = PolicySelectionEnv(episodes, every_s=300.0)
    environment.reset(options={"first": 7})
    over, earned = False, 0.0
    while not over:
        _, reward, over, _, _ = environment.step(np.int64(place))
        earned += reward
    own = simulate(episodes.beginning_at(7), NODES, environment.policies[place])
    found = environment.simulation.result().jobs
    if place == 0:
        assert found["start_s"].to_list() == own.jobs["start_s"].to_list()
    assert -earned * 3600 == pytest.approx(found["wait_s"].mean())


def test_a_canceled_job_waits_until_it_is_canceled() -> None:
    jobs = Workload.build(
        submit_s=[0, 0, 0], runtime_s=[3600, 60, 60], nodes=[1, 1, 1], cancel_s=[-1, 600, -1]
    )
    environment = PolicySelectionEnv(jobs, 1, jobs=2)
    environment.reset(options={"jobs": jobs})
    earned, over = 0.0, False
    while not over:
        _, reward, over, _, info = environment.step(0)
        earned += reward
    assert earned == pytest.approx(-(600 + 3600) / 3600 / 3)
    assert info["mean_wait_s"] == 3600 / 2


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_gives_one_episode(kind: str) -> None:
    def played() -> list[bytes]:
        made = gymnasium.make(kind, workload=WORKLOAD, cluster=NODES, jobs=40).unwrapped
        seen, _ = made.reset(seed=11)
        found, over = [seen.tobytes()], False
        while not over:
            seen, reward, over, _, _ = made.step(np.int64(0))
            found += [seen.tobytes(), np.float64(reward).tobytes()]
        return found

    assert played() == played()


def test_a_mask_shows_where_jobs_are_and_an_empty_place_is_rejected() -> None:
    environment = JobSelectionEnv(WORKLOAD, NODES, jobs=60, window=8, invalid_action="raise")
    seen, _ = environment.reset(seed=1)
    rng, over, most = np.random.default_rng(1), False, 0
    while not over:
        mask = environment.action_masks()
        assert mask.tolist() == (seen[:, 0] == 1).tolist()
        assert environment.observation_space.contains(seen)
        most = max(most, int(mask.sum()))
        if not mask[-1]:
            with pytest.raises(errors.SimulationError, match="action_masks"):
                environment.step(np.int64(7))
        seen, _, over, _, _ = environment.step(rng.choice(np.flatnonzero(mask)))
    assert most == 8
    assert environment.simulation.done


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"jobs": 1000}, "only 300 are available from job 0"),
        ({"jobs": 0}, "at least 1"),
        ({"cluster": None}, "needs a cluster"),
        ({"window": 0}, "1 or more"),
    ],
)
def test_an_invalid_environment_is_reported(wrong: dict[str, Any], told: str) -> None:
    given: dict[str, Any] = {"workload": WORKLOAD, "cluster": NODES, **wrong}
    with pytest.raises(errors.ConfigError, match=told):
        JobSelectionEnv(**given)


def test_an_unknown_episode_is_reported() -> None:
    environment = JobSelectionEnv(WORKLOAD, NODES, jobs=100)
    with pytest.raises(errors.ConfigError, match="episodes start with job 0 to 200"):
        environment.reset(options={"first": 201})


def test_the_package_lists_what_it_registers() -> None:
    assert all(kind in (hpctwin.learn.__doc__ or "") for kind in KINDS)
