"""To place jobs in a facility as an agent is the facility's own simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from hpctwin import errors, generate
from hpctwin.facility import Facility, FacilityCluster, Strategy, simulate_facility
from hpctwin.learn import Episodes, PlacementEnv
from tests.learn.test_many import NODES, machine

WORKLOAD = generate("poisson", jobs=200, nodes=NODES, seed=5)


def facility() -> Facility:
    sites = (
        FacilityCluster(name="near", machine=machine(), policy="fcfs+easy~psus:20m"),
        FacilityCluster(name="far", machine=machine(), policy="sjf+easy"),
        FacilityCluster(name="small", nodes=4, policy="fcfs+none"),
    )
    return Facility(name="both", clusters=sites)


@dataclass(frozen=True)
class Always(Strategy):
    cluster: int = 0

    @property
    def name(self) -> str:
        return f"always({self.cluster})"

    def pick(self, row: int, options: list[int], state: Any) -> int:
        return self.cluster if self.cluster in options else options[0]


@pytest.mark.parametrize("cluster", [0, 1, 2])
def test_always_one_cluster_is_the_facility_without_the_environment_joule_for_joule(
    cluster: int,
) -> None:
    environment = PlacementEnv(WORKLOAD, facility(), jobs=80)
    environment.reset(options={"first": 11})
    over = False
    while not over:
        mask = environment.action_masks()
        action = cluster if mask[cluster] else int(np.argmax(mask))
        seen, reward, over, _, told = environment.step(np.int64(action))
        assert environment.observation_space.contains(seen)
    own = simulate_facility(
        facility(), environment.episodes.beginning_at(11), Always(cluster=cluster)
    )
    assert environment.result is not None
    for column in ("cluster", "start_s", "end_s"):
        assert environment.result.jobs[column].to_list() == own.jobs[column].to_list()
    for name in ("near", "far"):
        found, wanted = (one.clusters[name].energy for one in (environment.result, own))
        assert found is not None
        assert wanted is not None
        assert found.total_j == wanted.total_j
    assert reward == -told["mean_bounded_slowdown"]


def test_a_cluster_that_a_job_may_not_go_to_is_flagged_and_the_same_job_asked_again() -> None:
    environment = PlacementEnv(WORKLOAD, facility(), jobs=20)
    seen, _ = environment.reset(seed=3)
    while environment.action_masks().all():
        seen, *_ = environment.step(np.int64(0))
    again, reward, ended, cut, info = environment.step(np.int64(2))
    assert np.array_equal(again, seen)
    assert (reward, ended, cut, info) == (0.0, False, False, {"invalid_action": True})
    check_env(environment, skip_render_check=True)


def test_one_seed_gives_one_episode_and_a_wrong_cluster_is_reported() -> None:
    def played() -> list[Any]:
        environment = PlacementEnv(
            Episodes.of(WORKLOAD, NODES, jobs=20), facility(), reward="wait", invalid_action="raise"
        )
        seen, _ = environment.reset(seed=3)
        found, over = [seen.tobytes()], False
        while not over:
            mask = environment.action_masks()
            if not mask.all():
                with pytest.raises(errors.SimulationError, match="may not go"):
                    environment.step(np.int64(np.argmin(mask)))
            action = np.int64(np.flatnonzero(mask)[-1])
            seen, reward, over, _, _ = environment.step(action)
            found += [seen.tobytes(), reward]
        return found

    assert played() == played()


def test_an_unknown_reward_is_reported() -> None:
    with pytest.raises(errors.UnknownNameError, match="turnaround"):
        PlacementEnv(WORKLOAD, facility(), jobs=20, reward="turnround")
