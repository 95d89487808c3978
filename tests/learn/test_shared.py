"""Agents where jobs share nodes: environments are the one simulation there too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from hpctwin import Cluster, Workload, generate, simulate
from hpctwin.facility import Facility, FacilityCluster, simulate_facility
from hpctwin.learn import (
    BackfillingEnv,
    Episodes,
    JobSelectionEnv,
    PlacementEnv,
    PolicySelectionEnv,
    PowerManagementEnv,
    SimulationEnv,
    many,
)
from hpctwin.learn.baselines.baselines import POOL, schedtwin
from hpctwin.learn.baselines.evaluation import evaluate
from hpctwin.learn.training.training import train
from hpctwin.learn.training.trial import Plan
from hpctwin.metrics import with_job_metrics
from hpctwin.model import Failures, Mode, NodeGroup, Outage, Sleep, Transition
from tests.learn.test_placement import Always

JOBS = 300
OFF = Sleep(
    power_w=10.0,
    switch_off=Transition(time=60.0, power_w=80.0),
    switch_on=Transition(time=300.0, power_w=150.0),
)


def machine(**options: Any) -> Cluster:
    common: dict[str, Any] = {
        "modes": {"base": Mode(power_w=200.0, idle_w=100.0)}, "sleep": (OFF,)
    }  # fmt: skip
    groups = (
        NodeGroup(name="thin", count=6, cores=8, memory_gb=32, **common),
        NodeGroup(name="fat", count=2, cores=16, memory_gb=128, gpus=4, **common),
    )
    return Cluster(name="shared", nodes=groups, **options)


def shared_jobs() -> Workload:
    """Jobs of some tasks, some of them exclusive or with GPUs, among some of whole nodes."""
    rng = np.random.default_rng(7)
    times = generate("poisson", jobs=JOBS, nodes=8, seed=4, load=2.5)
    tasks = rng.choice([0, 1, 1, 2, 4, 12], JOBS)
    gpus = np.where(tasks > 0, rng.choice([0, 0, 0, 0, 1], JOBS), 0)
    return Workload.build(
        submit_s=times.submit_ms / 1000,
        runtime_s=times.runtime_ms / 1000,
        walltime_s=times.walltime_ms / 1000,
        nodes=np.where(tasks > 0, 1, np.minimum(times.nodes, 3)),
        chunks={
            "tasks": tasks.astype(float),
            "cores_per_task": np.where(tasks > 0, rng.choice([1.0, 2.0, 4.0], JOBS), 0.0),
            "memory_gb_per_task": np.where(tasks > 0, rng.choice([1.0, 8.0], JOBS), 0.0),
            "gpus_per_task": gpus.astype(float),
            "exclusive": ((tasks > 0) & (rng.random(JOBS) < 0.1)).astype(float),
        },
    )


WORKLOAD = shared_jobs()
FIRST = 30


def first_place(environment: Any) -> int:
    return 0


def nobody(environment: Any) -> int:
    return len(environment.action_masks()) - 1


def first_that_may(environment: Any) -> int:
    return int(environment.action_masks().argmax())


def all_on(environment: Any) -> Any:
    return np.ones(1, np.float32)


CONSTANT = [
    (JobSelectionEnv, {}, first_place, "fcfs+none"),
    (JobSelectionEnv, {"backfilling": True}, first_place, "fcfs+easy"),
    (BackfillingEnv, {}, nobody, "fcfs+none"),
    (BackfillingEnv, {}, first_that_may, "fcfs+easy"),
    (BackfillingEnv, {"order": "sjf"}, first_that_may, "sjf+easy"),
    (PowerManagementEnv, {"every_s": 600.0}, all_on, "fcfs+easy"),
    (PolicySelectionEnv, {"policies": ["sjf+easy"]}, first_place, "sjf+easy"),
]


@pytest.mark.parametrize(("kind", "options", "choose", "policy"), CONSTANT)
def test_a_constant_choice_is_the_engine_joule_for_joule(
    kind: Any, options: dict[str, Any], choose: Any, policy: str
) -> None:
    check(kind, options, choose, policy, machine())


@pytest.mark.parametrize("kind", [JobSelectionEnv, BackfillingEnv, PowerManagementEnv])
def test_where_nodes_fail_it_is_the_engine_too(kind: Any) -> None:
    outages = tuple(Outage(node=n, start=4000.0 * n, duration=3000.0) for n in (1, 4, 6))
    failing = machine(failures=Failures(outages=outages, on_failure="requeue"))
    options, choose, policy = next(
        row[1:] for row in CONSTANT if row[0] is kind and row[3] == "fcfs+easy"
    )
    check(kind, options, choose, policy, failing)


def check(kind: Any, options: dict[str, Any], choose: Any, policy: str, cluster: Cluster) -> None:
    """An episode of a constant choice went as one in the engine."""
    environment = kind(WORKLOAD, cluster, jobs=150, **options)
    environment.reset(options={"first": FIRST})
    decisions, over, told = 0, False, {}
    while not over:
        seen, _, over, cut, told = environment.step(choose(environment))
        assert environment.observation_space.contains(seen)
        assert not cut
        decisions += 1
    own = simulate(environment.episodes.beginning_at(FIRST), cluster, policy)
    found = environment.simulation.result()
    assert decisions > 20
    assert found.placements is not None
    assert own.placements is not None
    assert found.placements.equals(own.placements)
    for column in ("start_s", "end_s", "state"):
        assert found.jobs[column].to_list() == own.jobs[column].to_list()
    assert found.energy is not None
    assert own.energy is not None
    assert found.energy.total_j == own.energy.total_j
    if told:
        served = with_job_metrics(own.jobs)
        assert told["mean_wait_s"] == pytest.approx(served["wait_s"].mean())
        assert told["mean_bounded_slowdown"] == pytest.approx(served["bounded_slowdown"].mean())
        assert told["energy_j"] == pytest.approx(own.energy.total_j, rel=1e-12)


@pytest.mark.parametrize("cluster", [0, 1])
def test_always_one_cluster_is_the_facility_without_the_environment(cluster: int) -> None:
    sites = (
        FacilityCluster(name="near", machine=machine(), policy="fcfs+easy~psus:20m"),
        FacilityCluster(name="far", machine=machine(), policy="sjf+easy"),
    )
    both = Facility(name="both", clusters=sites)
    environment = PlacementEnv(WORKLOAD, both, jobs=100)
    environment.reset(options={"first": FIRST})
    over = False
    while not over:
        seen, _, over, *_ = environment.step(np.int64(cluster))
        assert environment.observation_space.contains(seen)
    own = simulate_facility(both, environment.episodes.beginning_at(FIRST), Always(cluster=cluster))
    assert environment.result is not None
    for column in ("cluster", "start_s", "end_s"):
        assert environment.result.jobs[column].to_list() == own.jobs[column].to_list()


KINDS: dict[str, tuple[type[SimulationEnv], dict[str, Any]]] = {
    "features": (JobSelectionEnv, {"window": 16}),
    "job": (JobSelectionEnv, {"window": 16, "observation": "job", "reward": "relative"}),
    "delays": (JobSelectionEnv, {"observation": "delays", "backfilling": True}),
    "rlscheduler": (JobSelectionEnv, {"observation": "rlscheduler", "backfilling": "rlscheduler"}),
    "backfilling": (BackfillingEnv, {"window": 16}),
    "backfilling, not strict": (BackfillingEnv, {"observation": "delays", "strict": False}),
}


@pytest.mark.parametrize("name", KINDS)
def test_gymnasiums_checker_has_nothing_to_say(name: str) -> None:
    kind, options = KINDS[name]
    environment = kind(WORKLOAD, machine(), **{**options, "jobs": 20, "window": 1})
    if isinstance(environment, BackfillingEnv):
        environment.action_space = type(environment.action_space)(1, start=1)
    check_env(environment, skip_render_check=True)


@pytest.mark.parametrize("name", KINDS)
def test_many_are_as_each_alone(name: str) -> None:
    kind, options = KINDS[name]
    vector = many(kind, WORKLOAD, machine(), num_envs=3, jobs=30, threads=2, **options)
    episodes = Episodes.of(WORKLOAD, machine(), jobs=30)
    drawn, rng = np.random.default_rng(2), np.random.default_rng(5)
    seen, infos = vector.reset(seed=2)
    alone = [kind(episodes, **options) for _ in range(3)]
    for environment in alone:
        environment.reset(options={"jobs": episodes.draw(drawn).make()})
    over = np.zeros(3, bool)
    while not over.any():
        actions = [int(rng.choice(np.flatnonzero(mask))) for mask in infos["action_mask"]]
        seen, rewards, over, _, infos = vector.step(np.array(actions))
        for number, (environment, action) in enumerate(zip(alone, actions, strict=True)):
            own, reward, *_ = environment.step(action)
            assert rewards[number] == reward
            at_last = infos["final_obs"][number] if over[number] else seen[number]
            assert np.array_equal(at_last, own)
    vector.close()


def test_a_job_that_seems_to_fit_starts_at_once() -> None:
    """A job that does not fit is waited for; what is seen of delays says so before."""
    environment = JobSelectionEnv(WORKLOAD, machine(), jobs=150, observation="delays")
    seen, _ = environment.reset(options={"first": FIRST})
    rng, over, told = np.random.default_rng(1), False, {True: 0, False: 0}
    while not over:
        place = int(rng.choice(np.flatnonzero(environment.action_masks())))
        state = environment.simulation.state
        job, now = int(state["queue"][place]), int(state.clock.now)
        fits = bool(seen[place, 10])
        seen, _, over, *_ = environment.step(place)
        # Nobody else starts, so that who fits starts now, and who does not, later.
        assert (int(state["state"][job]["start"]) == now) == fits
        told[fits] += 1
    assert min(told.values()) > 20


def test_a_job_passing_as_in_rlscheduler_does_not_delay_the_selected_job() -> None:
    honest = WORKLOAD.replace(walltime_ms=WORKLOAD.runtime_ms)
    environment = JobSelectionEnv(honest, machine(), jobs=150, backfilling="rlscheduler")
    environment.reset(options={"first": FIRST})
    over = False
    while not over:
        *_, over, _, _ = environment.step(0)
    jobs = environment.simulation.result().jobs
    in_order = simulate(environment.episodes.beginning_at(FIRST), machine(), "fcfs+none").jobs
    assert jobs["wait_s"].mean() < in_order["wait_s"].mean()


def test_a_truncated_episode_reports_what_was_drawn_until_then() -> None:
    environment = PowerManagementEnv(WORKLOAD, machine(), jobs=60, every_s=600.0, max_steps=30)
    environment.reset(options={"first": FIRST})
    cut, told = False, {}
    while not cut:
        *_, cut, told = environment.step(np.full(1, 0.75, np.float32))
    energy = environment.simulation.result().energy
    assert energy is not None
    assert told["energy_j"] == energy.total_j


def test_an_episode_without_shared_nodes_is_seen_as_such() -> None:
    """Of a trace in which others share them."""
    alone = WORKLOAD.take(np.flatnonzero(WORKLOAD.chunks["tasks"] == 0))
    for observation in ("features", "delays", "rlscheduler"):
        found = []
        for jobs in (WORKLOAD, alone):
            environment = JobSelectionEnv(
                jobs, machine(), jobs=30, observation=observation, window=8
            )
            environment.reset(options={"jobs": alone.take(np.arange(30))})
            seen, over = [], False
            while not over:
                one, _, over, *_ = environment.step(0)
                seen.append(one)
            found.append(np.array(seen))
        if observation == "rlscheduler":
            # Over the largest of the trace.
            found = [one[:, :, [0, 2, 6, 7]] for one in found]
        assert np.array_equal(*found)


def test_an_agent_on_shared_nodes_is_compared_with_methods_that_support_them(
    tmp_path: Path,
) -> None:
    training = Episodes.of(WORKLOAD, machine(), jobs=30, last=200)
    plan = Plan(3000, 0, layers=(), trials=4, imitate=("sjf",), learner="cma")
    file = tmp_path / "agent.safetensors"
    train("JobSelection", training, plan, options={"observation": "delays"}).save(file)
    rest = Episodes.of(WORKLOAD, machine(), jobs=30, first=200)
    found = evaluate(file, rest, episodes=2, without=("tuned",))
    kinds = set(found.table()["kind"])
    assert {"agent", "static", "twin"} <= kinds
    assert "schedtwin" not in found.omitted


def test_no_start_of_a_twin_is_rejected_where_jobs_share_nodes() -> None:
    """Where it gives them nodes in an order other than that of submission, it starts them so."""
    workload = WORKLOAD.take(np.arange(120))
    served = {
        backfill: schedtwin([f"{one}+{backfill}" for one in POOL], machine())(workload)["served"]
        for backfill in ("easy", "none")
    }
    everybody = simulate(workload, machine(), "fcfs+easy").jobs
    assert set(served.values()) == {everybody["start_s"].is_not_null().sum()}
