"""Learning by trying weights: what it learns, that it can be repeated and interrupted, what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin import Cluster, errors, generate, simulate
from hpctwin.learn import Episodes
from hpctwin.learn.training.evolution import Shape
from hpctwin.learn.training.training import train
from hpctwin.learn.training.trial import Plan
from hpctwin.metrics import with_job_metrics
from hpctwin.model import Mode, NodeGroup, Sleep, Transition
from hpctwin.policies.agents import Network

NODES = 16
WORKLOAD = generate("poisson", jobs=900, nodes=NODES, seed=4, load=0.95)
TRAINED = Episodes.of(WORKLOAD, NODES, jobs=60, last=500)


def plan(steps: int, **more: Any) -> Plan:
    options = {"environments": 32, "layers": (), "threads": 1, "trials": 4, **more}
    return Plan(steps, learner="evolution", **options)


def machine() -> Cluster:
    off = Sleep(
        power_w=10.0,
        switch_off=Transition(time=60.0, power_w=80.0),
        switch_on=Transition(time=300.0, power_w=150.0),
    )
    modes = {"base": Mode(power_w=200.0, idle_w=100.0)}
    group = NodeGroup(name="all", count=NODES, modes=modes, sleep=(off,))
    return Cluster(name="powered", nodes=(group,))


def weights(network: Network) -> list[list[float]]:
    return [array.ravel().tolist() for layer in network.layers for array in layer]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.booleans(), st.integers(0, 2), st.sampled_from([(), (3,)]))
def test_the_item_that_each_network_scores_highest_is_chosen(
    seed: int, by_row: bool, rowless: int, hidden: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(seed)
    window, inputs, networks, episodes = 5, 4, 3, 2
    outputs, rowless = (1, rowless) if by_row else (6, 0)
    shape = Shape(inputs, hidden, outputs, rowless)
    rows = rng.standard_normal((networks, shape.count)).astype(np.float32)
    together = networks * episodes
    seen = rng.standard_normal((together, window, inputs) if by_row else (together, inputs))
    masks = rng.random((together, window + rowless if by_row else outputs)) < 0.6
    masks[:, 0] = True
    found = shape.choose(rows, seen.astype(np.float32), masks, by_row)
    for number in range(together):
        layers, rest = shape.learnt(rows[number // episodes].astype(np.float64))
        scores = Network(tuple(layers), by_row, {}, rest).scores(seen[number].astype(np.float32))
        allowed = np.where(masks[number], scores, -np.inf)
        assert allowed[found[number]] == pytest.approx(allowed.max(), abs=1e-5)


def test_a_short_training_beats_fcfs_and_random_on_held_out_jobs() -> None:
    network = train(
        "JobSelection", TRAINED, plan(40_000), options={"observation": "job", "window": 32}
    )
    assert network.card["trained"]["with"] == "cross-entropy method"
    from hpctwin.learn import JobSelectionEnv

    held_out = JobSelectionEnv(Episodes.of(WORKLOAD, NODES, jobs=300, first=600), window=32)
    rng = np.random.default_rng(0)
    choosers: dict[str, Any] = {
        "first": lambda seen, mask: 0,
        "any": lambda seen, mask: int(rng.choice(np.flatnonzero(mask))),
    }
    found = {}
    for name, choose in choosers.items():
        seen, _ = held_out.reset(options={"first": 600})
        over = False
        while not over:
            seen, _, over, _, told = held_out.step(choose(seen, held_out.action_masks()))
        found[name] = told["mean_bounded_slowdown"]
    own = JobSelectionEnv(
        Episodes.of(WORKLOAD, NODES, jobs=300, first=600), window=32, observation="job"
    )
    seen, _ = own.reset(options={"first": 600})
    over = False
    while not over:
        scores = np.where(own.action_masks(), network.scores(seen), -np.inf)
        seen, _, over, _, told = own.step(int(scores.argmax()))
    assert told["mean_bounded_slowdown"] < min(found.values())


@pytest.mark.parametrize(
    ("kind", "options"), [("Backfilling", {"window": 8}), ("JobSelection", {"window": 8})]
)
def test_one_seed_gives_one_agent_and_an_interrupted_training_continues_identically(
    kind: str, options: dict[str, Any], tmp_path: Path
) -> None:
    whole = train(kind, TRAINED, plan(9_000), options=options)
    assert weights(whole) == weights(train(kind, TRAINED, plan(9_000), options=options))
    assert weights(whole) != weights(train(kind, TRAINED, plan(9_000, seed=1), options=options))
    kept = {"checkpoints": tmp_path / "kept", "trials": 0}
    without = train(kind, TRAINED, plan(9_000, trials=0), options=options)
    train(kind, TRAINED, plan(4_000, **kept), options=options)
    resumed = train(kind, TRAINED, plan(9_000, **kept), options=options)
    assert weights(resumed) == weights(without)
    with pytest.raises(errors.ConfigError, match="contains another training"):
        train(kind, TRAINED, plan(9_000, **kept, seed=1), options=options)


def test_an_agent_of_nodes_learns_to_waste_less_than_all_on(tmp_path: Path) -> None:
    trace = generate("poisson", jobs=600, nodes=NODES, seed=5, load=0.3)
    options = {"action": "reserve", "reward": "jobs", "levels": 5, "every_s": 300.0, "beta": 0.01}
    source = Episodes.of(trace, machine(), jobs=40, last=400)
    network = train("PowerManagement", source, plan(30_000), options=options)
    path = tmp_path / "night.safetensors"
    network.save(path)
    rest = Episodes.of(trace, machine(), jobs=150, first=420).beginning_at(430)
    own = simulate(rest, machine(), f"fcfs+easy~{path}")
    on = simulate(rest, machine(), "fcfs+easy")
    assert own.energy is not None
    assert on.energy is not None
    assert own.energy.total_j < 0.9 * on.energy.total_j
    assert with_job_metrics(own.jobs)["wait_s"].is_not_null().all()


@pytest.mark.parametrize(
    ("asked", "options", "told"),
    [
        ({"tensorboard": Path("logs")}, {}, "tensorboard works only with learner ppo"),
        ({"imitate": ("sjf",)}, {}, "cannot imitate an ordering"),
        ({"environments": 16}, {}, "32 or more"),
        ({}, {"levels": None}, "give levels"),
    ],
)
def test_missing_contents_are_reported(
    asked: dict[str, Any], options: dict[str, Any], told: str
) -> None:
    kind, source = "JobSelection", TRAINED
    if options:
        kind, source = "PowerManagement", Episodes.of(WORKLOAD, machine(), jobs=60)
    with pytest.raises(errors.ConfigError, match=told):
        train(kind, source, plan(100, **asked), options=options)


def test_a_file_without_a_training_is_reported(tmp_path: Path) -> None:
    (tmp_path / "evolution.npz").write_text("something else")
    with pytest.raises(errors.ConfigError, match="contains no training"):
        train("JobSelection", TRAINED, plan(100, checkpoints=tmp_path))
