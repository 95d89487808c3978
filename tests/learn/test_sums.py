"""Learning sums of what is seen: how they are played, what they begin with, what is kept, what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import errors, generate
from hpctwin.learn import (
    BackfillingEnv,
    Episodes,
    JobSelectionEnv,
    PowerManagementEnv,
    SimulationEnv,
)
from hpctwin.learn.environments.power_management import LEVEL
from hpctwin.learn.training import sums
from hpctwin.learn.training.sums import ORDERINGS, Adaptation, ordering_as_sum
from hpctwin.learn.training.training import train
from hpctwin.learn.training.trial import Plan
from hpctwin.metrics import MeanInterval
from hpctwin.policies.agents import Network
from tests.learn.test_evolution import machine

NODES = 16
WORKLOAD = generate("poisson", jobs=900, nodes=NODES, seed=4, load=1.1)
TRAINED = Episodes.of(WORKLOAD, NODES, jobs=60, last=500, mixed=True)
DELAYS = {"observation": "delays", "window": 60}


def plan(steps: int, **more: Any) -> Plan:
    return Plan(steps, learner="cma", **{"layers": (), "trials": 40, **more})


@pytest.mark.parametrize("seed", range(3))
def test_adaptation_finds_the_bottom_of_a_long_narrow_valley(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    bottom, scales = rng.standard_normal(6), np.logspace(0, 3, 6)

    def cost(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return (scales * ((rows - bottom) @ axes) ** 2).sum(axis=1)

    search = Adaptation(np.zeros(6), 0.3, 16, rng)
    for _ in range(300):
        search.tell(cost(search.ask()))
    assert search.mean == pytest.approx(bottom, abs=1e-6)


def played(
    environment: SimulationEnv, weights: npt.NDArray[np.float64], first: int
) -> tuple[float, int]:
    """What weights earn, step by step."""
    seen, _ = environment.reset(options={"first": first})
    inputs, total, steps, over = seen.shape[1], 0.0, 0, False
    while not over:
        scores = np.concatenate([seen.astype(np.float64) @ weights[:inputs], weights[inputs:]])
        allowed = np.where(environment.action_masks(), scores, -np.inf)
        seen, earned, over, _, _ = environment.step(int(allowed.argmax()))
        total, steps = total + earned, steps + 1
    return total, steps


MADE: dict[str, tuple[Any, dict[str, Any]]] = {
    "features": (JobSelectionEnv, {"observation": "features", "window": 8}),
    "delays": (JobSelectionEnv, {**DELAYS, "reward": "slowdown", "backfilling": True}),
    "rlscheduler": (JobSelectionEnv, {**DELAYS, "backfilling": "rlscheduler"}),
    "backfilling": (BackfillingEnv, {"observation": "features", "window": 8, "reward": "wait"}),
}


@pytest.mark.parametrize("name", MADE)
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.integers(0, 840))
def test_an_episode_played_natively_is_the_one_played_step_by_step(
    name: str, seed: int, first: int
) -> None:
    kind, options = MADE[name]
    environment = kind(Episodes.of(WORKLOAD, NODES, jobs=60), **options)
    places, inputs = environment.observation_space.shape
    count = inputs + environment.task.width - places
    weights = np.random.default_rng(seed).standard_normal(count)
    expected, steps = played(environment, weights, first)
    environment.reset(options={"first": first})
    assert environment.batch.play(weights) == pytest.approx(expected, rel=1e-12)
    assert environment.batch.agents["steps"][0] == steps


POWER = {
    "action": "reserve", "observation": "levels", "levels": 9, "every_s": 300.0, "reward": "jobs",
}  # fmt: skip


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.integers(0, 840))
def test_levels_of_nodes_are_played_natively_as_step_by_step(seed: int, first: int) -> None:
    environment = PowerManagementEnv(Episodes.of(WORKLOAD, machine(), jobs=60), **POWER)
    weights = np.random.default_rng(seed).standard_normal(len(LEVEL))
    expected, steps = played(environment, weights, first)
    environment.reset(options={"first": first})
    assert environment.batch.play(weights) == pytest.approx(expected, rel=1e-12)
    assert environment.batch.agents["steps"][0] == steps


def test_what_is_seen_of_levels_are_the_shares_times_how_high_each_is() -> None:
    by_level, plain = (
        PowerManagementEnv(
            Episodes.of(WORKLOAD, machine(), jobs=60), **{**POWER, "observation": observation}
        )
        for observation in ("levels", "shares")
    )
    options = {"first": 100}
    (seen, _), (shares, _) = (one.reset(options=options) for one in (by_level, plain))
    rng, over = np.random.default_rng(0), False
    while not over:
        height = np.linspace(0, 1, 9)[:, None]
        expected = np.concatenate([height, height**2, height * shares], axis=1)
        assert seen == pytest.approx(expected.astype(np.float32), abs=1e-6)
        level = int(rng.integers(9))
        (seen, _, over, *_), (shares, *_) = (one.step(level) for one in (by_level, plain))


def test_a_short_training_switches_nodes_better_on_jobs_held_out_than_any_level() -> None:
    asked = plan(400_000, trials=100)
    source = Episodes.of(WORKLOAD, machine(), jobs=100, last=500)
    network = train("PowerManagement", source, asked, options={**POWER, "beta": 0.5})
    assert network.card["trained"]["compared"]["kept"]
    held_out = Episodes.of(WORKLOAD, machine(), jobs=100)
    environment = PowerManagementEnv(held_out, **{**POWER, "beta": 0.5})
    rng = np.random.default_rng(0)
    own, any_ = [], []
    for first in (500, 600, 700, 800):
        own.append(played(environment, network.layers[0][0][0].astype(np.float64), first)[0])
        environment.reset(options={"first": first})
        total, over = 0.0, False
        while not over:
            _, earned, over, *_ = environment.step(int(rng.integers(9)))
            total += earned
        any_.append(total)
    assert np.mean(own) > np.mean(any_)


RULES: dict[str, Any] = {
    "fcfs": lambda job: job["submit"],
    "sjf": lambda job: job["limit"],
    "smallest": lambda job: job["nodes"],
    "smallest-area": lambda job: (job["limit"] / 1000 + 1) * job["nodes"],
}


@pytest.mark.parametrize("name", ORDERINGS)
@pytest.mark.parametrize("first", [0, 333, 700])
def test_what_training_begins_with_chooses_as_the_ordering_does(name: str, first: int) -> None:
    environment = JobSelectionEnv(Episodes.of(WORKLOAD, NODES, jobs=100), **DELAYS)
    weights = ordering_as_sum(name, "delays", NODES)
    seen, _ = environment.reset(options={"first": first})
    over = False
    while not over:
        there = environment.action_masks()
        place = int(np.where(there, seen @ weights, -np.inf).argmax())
        state = environment.simulation.state
        key = RULES[name](state["job"][state["queue"][: there.sum()]])
        assert key[place] == pytest.approx(key.min(), rel=1e-4)
        seen, _, over, _, _ = environment.step(place)


def test_delays_have_their_stated_values() -> None:
    environment = JobSelectionEnv(
        Episodes.of(WORKLOAD, NODES, jobs=150), **DELAYS, backfilling=True
    )
    rng = np.random.default_rng(2)
    seen, _ = environment.reset(options={"first": 200})
    over, waited = False, 0
    while not over:
        there = environment.action_masks()
        state = environment.simulation.state
        now, job = int(state.clock.now), state["job"]
        running = [
            (int(state["state"][j]["start"] + job[j]["limit"]), int(job[j]["nodes"]))
            for j in range(150)
            if state["state"][j]["start"] >= 0 and state["state"][j]["end"] > now
        ]
        for place, j in enumerate(state["queue"][: there.sum()]):
            w, t = (now - job[j]["submit"]) / 1000, job[j]["limit"] / 1000
            n = int(job[j]["nodes"])
            free = NODES - sum(nodes for _, nodes in running)
            begin = now
            for end, nodes in sorted(running):
                if free >= n:
                    break
                free, begin = free + nodes, end
            d, log = (begin - now) / 1000, lambda x: min(math.log(1 + x) / 14, 1)
            wide = math.log(n) / math.log(NODES)
            expected = [
                1, log(w), min(w / 864_000, 1), w / (w + t + 1), log(t), wide, n / NODES,
                n / NODES * log(t), wide * log(t), log(t) ** 2, float(begin == now), log(d), d / (d + t + 1),
            ]  # fmt: skip
            assert seen[place] == pytest.approx(expected, abs=1e-6)
            waited += d > 0
        assert not seen[there.sum() :].any()
        seen, _, over, _, _ = environment.step(int(rng.choice(np.flatnonzero(there))))
    assert waited > 100


BUSY = generate("poisson", jobs=900, nodes=NODES, seed=4, load=1.4)


def slowdown(weights: Any, first: int) -> float:
    environment = JobSelectionEnv(Episodes.of(BUSY, NODES, jobs=200), **DELAYS)
    return -played(environment, np.asarray(weights, np.float64), first)[0]


def test_a_short_training_is_better_on_jobs_held_out_than_what_it_began_with_and_any() -> None:
    source = Episodes.of(BUSY, NODES, jobs=150, last=500, mixed=True)
    asked = plan(600_000, imitate=("fcfs", "sjf"), trials=100)
    network = train("JobSelection", source, asked, options=DELAYS)
    about = network.card["trained"]
    assert about["with"] == "CMA-ES"
    assert about["began_with"] == "sjf"
    assert about["compared"]["kept"]
    assert about["compared"]["after"] > about["compared"]["before"]
    ((learnt, _),) = network.layers
    rng = np.random.default_rng(0)
    own, shortest, any_ = [], [], []
    for first in (500, 600, 700):
        own.append(slowdown(learnt[0], first))
        shortest.append(slowdown(ordering_as_sum("sjf", "delays", NODES), first))
        environment = JobSelectionEnv(Episodes.of(BUSY, NODES, jobs=200), **DELAYS)
        environment.reset(options={"first": first})
        over = False
        while not over:
            choice = int(rng.choice(np.flatnonzero(environment.action_masks())))
            _, earned, over, _, _ = environment.step(choice)
        any_.append(-earned)
    assert np.mean(own) < np.mean(shortest) < np.mean(any_)


@pytest.mark.parametrize("seed", range(3))
def test_an_agent_that_is_not_better_on_other_episodes_is_not_kept(seed: int) -> None:
    # A single round is too little to be better for certain.
    network = train(
        "JobSelection", TRAINED, plan(1, seed=seed, imitate=("smallest-area",)), options=DELAYS
    )
    about = network.card["trained"]["compared"]
    began = ordering_as_sum("smallest-area", "delays", NODES)
    same = network.layers[0][0][0].tolist() == began.astype(np.float32).tolist()
    assert about["kept"] == (about["low"] > 0)
    assert same == (not about["kept"])


def test_an_agent_is_trained_again_until_it_is_better_on_other_episodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[Any] = []

    def second_time(more: Any) -> MeanInterval:
        compared.append(more)
        return MeanInterval(*((0.0, -1.0, 1.0) if len(compared) == 1 else (1.0, 0.5, 2.0)))

    monkeypatch.setattr(sums, "mean_interval", second_time)
    steps = 9_000
    network = train("JobSelection", TRAINED, plan(steps, imitate=("sjf", "fcfs")), options=DELAYS)
    about = network.card["trained"]
    assert about["compared"]["attempt"] == 2
    assert about["compared"]["kept"]
    assert about["steps"] > 2 * steps
    # On other episodes.
    assert compared[0].tolist() != compared[1].tolist()


def test_a_search_without_improvement_returns_its_first_ordering(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sums, "mean_interval", lambda more: MeanInterval(0.0, -1.0, 1.0))
    network = train("JobSelection", TRAINED, plan(2_000, imitate=("sjf",)), options=DELAYS)
    about = network.card["trained"]["compared"]
    assert (about["attempt"], about["kept"]) == (sums.ATTEMPTS, False)
    began = ordering_as_sum("sjf", "delays", NODES)
    assert network.layers[0][0][0].tolist() == began.astype(np.float32).tolist()


def weights(network: Network) -> list[list[float]]:
    return [array.ravel().tolist() for layer in network.layers for array in layer]


def test_one_seed_gives_one_agent() -> None:
    first, second = (train("Backfilling", TRAINED, plan(9_000)) for _ in range(2))
    assert weights(first) == weights(second)
    assert first.rowless.tolist() == second.rowless.tolist()
    assert weights(first) != weights(train("Backfilling", TRAINED, plan(9_000, seed=1, trials=0)))


def test_mixed_episodes_have_other_jobs_of_the_part_when_those_in_a_row_came() -> None:
    source = Episodes.of(WORKLOAD, NODES, jobs=60, first=100, last=400, mixed=True)
    rng = np.random.default_rng(3)
    part = {
        (run, nodes)
        for run, nodes in zip(
            WORKLOAD.runtime_ms[100:400].tolist(), WORKLOAD.nodes[100:400].tolist(), strict=True
        )
    }
    whole = WORKLOAD.submit_ms
    moved = 0
    for _ in range(20):
        jobs = source.draw(rng).make()
        assert set(zip(jobs.runtime_ms.tolist(), jobs.nodes.tolist(), strict=True)) <= part
        (first,) = (
            row
            for row in range(100, 341)
            if (whole[row : row + 60] - whole[row] == jobs.submit_ms).all()
        )
        moved += (jobs.runtime_ms != WORKLOAD.runtime_ms[first : first + 60]).any()
        assert len(set(jobs.job_id.tolist())) == 60
    assert moved == 20


@pytest.mark.parametrize(
    ("asked", "options", "told"),
    [
        ({"layers": (8,)}, DELAYS, "layers="),
        ({"tensorboard": Path("logs")}, DELAYS, "does not support tensorboard"),
        ({"checkpoints": Path("kept")}, DELAYS, "does not support checkpoints"),
        ({"imitate": ("sjf",)}, {}, "work only with observation 'delays'"),
        ({"imitate": ("wfp",)}, DELAYS, "smallest-area"),
    ],
)
def test_missing_contents_are_reported(
    asked: dict[str, Any], options: dict[str, Any], told: str
) -> None:
    with pytest.raises((errors.ConfigError, errors.UnknownNameError), match=told):
        train("JobSelection", TRAINED, plan(100, **asked), options=options)


def test_levels_of_nodes_are_no_rows() -> None:
    source = Episodes.of(WORKLOAD, machine(), jobs=60)
    with pytest.raises(
        errors.ConfigError, match="learner cma needs one row of observations per job"
    ):
        train("PowerManagement", source, plan(100))
