"""Nodes that are cleaned up after jobs are so in agents' environments too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpctwin import Cluster, generate, simulate
from hpctwin.learn import BackfillingEnv, Episodes, JobSelectionEnv, PolicySelectionEnv, many
from hpctwin.learn.baselines.oracle import why_not_ahead
from hpctwin.metrics import with_job_metrics
from hpctwin.model import NodeGroup

NODES = 16
WORKLOAD = generate("poisson", jobs=300, nodes=NODES, seed=4, load=0.9)
CLEANED = Cluster(name="cleaned", nodes=(NodeGroup(name="all", count=NODES),), cleanup=240.0)


def always(environment: Any, choose: Any) -> tuple[Any, dict[str, Any]]:
    """The jobs and what is told of an episode in which the choice is always made alike."""
    environment.reset(options={"first": 30})
    over = False
    while not over:
        _, _, over, cut, told = environment.step(choose(environment))
        assert not cut
    return environment.simulation.result().jobs, told


@pytest.mark.parametrize(
    ("kind", "options", "choose", "policy"),
    [
        (JobSelectionEnv, {}, lambda _: 0, "fcfs+none"),
        (JobSelectionEnv, {"backfilling": True}, lambda _: 0, "fcfs+easy"),
        (BackfillingEnv, {"window": 16}, lambda _: 16, "fcfs+none"),
        (BackfillingEnv, {"window": 16}, lambda one: int(one.action_masks().argmax()), "fcfs+easy"),
        (PolicySelectionEnv, {"policies": ["sjf+easy"]}, lambda _: 0, "sjf+easy"),
    ],
)
def test_a_constant_choice_is_the_engine_where_nodes_are_cleaned_up(
    kind: Any, options: dict[str, Any], choose: Any, policy: str
) -> None:
    episodes = Episodes.of(WORKLOAD, CLEANED, jobs=150)
    jobs, told = always(kind(episodes, **options), choose)
    own = simulate(episodes.beginning_at(30), CLEANED, policy).jobs
    assert jobs["start_s"].to_list() == own["start_s"].to_list()
    assert jobs["end_s"].to_list() == own["end_s"].to_list()
    if told:
        slowdown = with_job_metrics(own)["bounded_slowdown"].mean()
        assert told["mean_bounded_slowdown"] == pytest.approx(slowdown)
    # It does make a difference.
    at_once = simulate(episodes.beginning_at(30), NODES, policy).jobs
    assert own["wait_s"].mean() > at_once["wait_s"].mean()


def test_many_begin_with_clean_nodes_again_and_again() -> None:
    vector = many(JobSelectionEnv, WORKLOAD, CLEANED, num_envs=4, jobs=20, threads=1)
    vector.reset(seed=3)
    slowdowns: list[float] = []
    while len(slowdowns) < 40:
        *_, told = vector.step(np.zeros(4, np.int64))
        slowdowns += [one["mean_bounded_slowdown"] for one in told.get("final_info", ()) if one]
    alone = JobSelectionEnv(WORKLOAD, CLEANED, jobs=20)
    episodes = Episodes.of(WORKLOAD, CLEANED, jobs=20)
    rng = np.random.default_rng(3)
    for found in slowdowns[:4]:
        alone.reset(options={"jobs": episodes.draw(rng).make()})
        over = False
        while not over:
            _, _, over, _, info = alone.step(0)
        assert found == info["mean_bounded_slowdown"]
    vector.close()


def test_a_job_passing_as_in_rlscheduler_is_cleaned_up_before_the_selected_job_could_start() -> (
    None
):
    honest = WORKLOAD.replace(walltime_ms=WORKLOAD.runtime_ms)
    episodes = Episodes.of(honest, CLEANED, jobs=150)
    environment = JobSelectionEnv(episodes, backfilling="rlscheduler")
    jobs, _ = always(environment, lambda _: 0)
    selected_first = simulate(episodes.beginning_at(30), CLEANED, "fcfs+none").jobs
    # Plans hold, so nobody is later for who passed.
    assert (jobs["start_s"] <= selected_first["start_s"]).all()
    assert (jobs["start_s"] < selected_first["start_s"]).any()


def test_full_knowledge_does_not_support_node_cleanup() -> None:
    assert "node cleanup" in why_not_ahead(CLEANED)
