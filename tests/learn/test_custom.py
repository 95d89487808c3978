"""Custom rewards and observations train, are checked before, and are known again later."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpctwin import Cluster, compare, errors, generate, simulate
from hpctwin.cli import main
from hpctwin.engine.agents.agent_record import agent_at, put_seen
from hpctwin.facility import Facility, FacilityCluster
from hpctwin.learn import (
    BackfillingEnv,
    Episodes,
    JobSelectionEnv,
    Observation,
    PlacementEnv,
    PolicySelectionEnv,
    PowerManagementEnv,
)
from hpctwin.learn.baselines import chosen_policies
from hpctwin.learn.training.policy_files import policy_from_model
from hpctwin.learn.training.training import train
from hpctwin.learn.training.trial import Plan
from hpctwin.policies.agents import Network
from tests.learn.test_many import machine

NODES = 16
WORKLOAD = generate("poisson", jobs=300, nodes=NODES, seed=4, load=0.9)
SHORT = Plan(steps=256, environments=4, horizon=32, threads=1, trials=2)
ENGINE = "from hpctwin.engine.agents.agent_record import agent_at, put_seen\n"
MINE = (
    ENGINE
    + """from hpctwin.learn import Observation


def queue_length(agent, sim):
    agent_at(agent).earned = -float(sim.clock.queued)


def write_queue(agent, sim):
    put_seen(agent_at(agent).seen, 0, sim.clock.queued / (sim.clock.queued + 100.0))
    put_seen(agent_at(agent).seen, 1, 1.0)


queue = Observation(write_queue, lambda window, nodes: (2,))
"""
)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def source(**options: Any) -> Episodes:
    return Episodes.of(WORKLOAD, NODES, **{"jobs": 20, "last": 200, **options})


@pytest.mark.parametrize("learner", ["ppo", "evolution", "cma"])
@pytest.mark.parametrize("kind", ["JobSelection", "Backfilling"])
def test_an_own_reward_trains_and_is_recorded(mine: Path, kind: str, learner: Any) -> None:
    plan = SHORT
    if learner != "ppo":
        plan = Plan(256, environments=32, threads=1, layers=(), learner=learner, trials=2)
    made = train(kind, source(), plan, options={"reward": "mine.py:queue_length", "window": 8})
    assert made.card["options"]["reward"] == "mine.py:queue_length"
    assert made.card["custom"]["reward"]["name"] == "mine.py:queue_length"
    assert len(made.card["custom"]["reward"]["sha256"]) == 64
    made.save("a.safetensors")
    assert Network.load("a.safetensors").card == made.card


def test_an_own_observation_knows_which_places_have_jobs(mine: Path) -> None:
    busy = source(jobs=100, load=(1.5, 1.5))
    for kind in (JobSelectionEnv, BackfillingEnv):
        own = kind(busy, window=8, observation="mine.py:queue", invalid_action="raise")
        like = kind(busy, window=8)
        rng = np.random.default_rng(1)
        seen, _ = own.reset(seed=1)
        like.reset(seed=1)
        over, most = False, 0
        while not over:
            assert np.array_equal(own.action_masks(), like.action_masks())
            assert seen[0] == np.float32(1 - 100 / (100 + own.simulation.state.clock.queued))
            action = int(rng.choice(np.flatnonzero(own.action_masks())))
            most = max(most, action)
            seen, _, over, _, _ = own.step(action)
            like.step(action)
        assert most > 1


def test_a_function_trains_without_a_name_and_the_best_is_what_it_rewards(mine: Path) -> None:
    def longest_first(agent: int, sim: Any) -> None:
        agent_at(agent).earned = 1.0 if agent_at(agent).action == 2 else 0.0

    made = train(
        "JobSelection",
        source(),
        Plan(2048, environments=8, horizon=64, threads=1, trials=4),
        options={"reward": longest_first, "observation": "features", "window": 4},
    )
    assert "longest_first" in made.card["options"]["reward"]
    assert "longest_first" in made.card["custom"]["reward"]["name"]


def test_other_environments_train_with_own_parts(mine: Path) -> None:
    power = Episodes.of(WORKLOAD, machine(), jobs=20)
    options = {"reward": "mine.py:queue_length", "observation": "mine.py:queue", "levels": 5}
    made = train("PowerManagement", power, SHORT, options=options)
    assert set(made.card["custom"]) == {"reward", "observation"}

    def ended(simulation: Any, since_s: float) -> float:
        end = simulation.column("end") / 1000
        return float(((end > since_s) & (end <= simulation.now_s)).sum())

    hour = Observation(lambda one: [one.simulation.now_s % 86400 / 86400], lambda n, nodes: (1,))
    made = train("PolicySelection", source(), SHORT, options={"reward": ended, "observation": hour})
    assert made.layers[0][0].shape[1] == 1
    place = Facility(
        name="two",
        clusters=(FacilityCluster(name="a", nodes=16), FacilityCluster(name="b", nodes=8)),
    )
    queues = Observation(
        lambda one: [[one.simulation.state.free_share(n)] for n in range(2)],
        lambda clusters, nodes: (clusters, 1),
    )
    made = train(
        "Placement",
        source(),
        SHORT,
        facility=place,
        options={
            "reward": lambda result: -float(result.jobs["wait_s"].max()),
            "observation": queues,
        },
    )
    assert made.layers[0][0].shape[1] == 1


def beyond(agent: int, sim: Any) -> None:
    put_seen(agent_at(agent).seen, 7, 1.0)


def nothing(agent: int, sim: Any) -> None:
    pass


def large(agent: int, sim: Any) -> None:
    put_seen(agent_at(agent).seen, 0, 5.0)


def not_a_number(agent: int, sim: Any) -> None:
    agent_at(agent).earned = np.nan
    put_seen(agent_at(agent).seen, 0, np.nan)


def does_not_compile(agent: int, sim: Any) -> None:
    agent_at(agent).earned = str(agent)


def one_number(function: Callable[..., None]) -> Observation:
    return Observation(function, lambda window, nodes: (1,))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"observation": one_number(beyond)}, "beyond writes number 7, but its shape"),
        ({"observation": one_number(nothing)}, "number 0 of 1 is not written or not finite"),
        ({"observation": one_number(not_a_number)}, "number 0 of 1 is not written or not finite"),
        ({"observation": one_number(large)}, "number 0 is 5, but its range is 0 to 1"),
        ({"observation": Observation(large, lambda w, n: (3, 1))}, "has 3 rows, but there are 8"),
        ({"observation": large}, "it must be a name"),
        ({"reward": nothing}, "nothing: step 0 earned nan"),
        ({"reward": not_a_number}, "not_a_number: step 0 earned nan"),
        ({"reward": does_not_compile}, "'does_not_compile' cannot be compiled"),
        ({"reward": "none.py:f"}, "none.py: no such file"),
        ({"reward": "mine.py:queue_lenght"}, "queue_length"),
        ({"observation": "mine.py:queue_length"}, "must be a name or an Observation"),
        ({"reward": 5}, "must be a name or a function"),
    ],
)
def test_a_custom_part_that_does_not_work_is_reported_before_training(
    mine: Path, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(
        (errors.ConfigError, errors.PolicyError, errors.UnknownNameError), match=told
    ):
        train("JobSelection", source(), SHORT, options={"window": 8, **options})


@pytest.mark.parametrize("learner", ["ppo", "evolution"])
@pytest.mark.parametrize("where", [None, "kept"])
def test_an_error_or_an_interrupt_loses_nothing(
    mine: Path, monkeypatch: pytest.MonkeyPatch, learner: Any, where: str | None
) -> None:
    (mine.parent / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(mine.parent / "temporary"))
    layers: tuple[int, ...] = (8,) if learner == "evolution" else (32, 16)
    folder = None if where is None else mine.parent / where
    plan = Plan(
        4096, environments=32, horizon=32, threads=1, trials=2, checkpoints=folder,
        learner=learner, layers=layers,
    )  # fmt: skip

    def stop(share: float, lately: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        train("JobSelection", source(), plan, options={"window": 8}, progress=stop)
    (note,) = stopped.value.__notes__
    kept = folder or next((mine.parent / "temporary").iterdir())
    assert str(kept) in note
    shares: list[float] = []
    again = Plan(**{**plan.__dict__, "checkpoints": kept})
    made = train(
        "JobSelection",
        source(),
        again,
        options={"window": 8},
        progress=lambda share, _: shares.append(share),
    )
    assert shares[0] > 0.5
    assert made.card["trained"]["steps"] >= 4096


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"reward": lambda result: "good"}, "returned 'good'; it must be a finite number"),
        ({"reward": lambda agent, sim: 0.0}, "fails: TypeError"),
        ({"observation": Observation(lambda one: [1, 2], lambda n, nodes: (1,))}, "is not in Box"),
        ({"observation": Observation(lambda one: one.none, lambda n, nodes: (1,))}, "fails: Attr"),
    ],
)
def test_a_python_part_that_does_not_work_is_reported(options: dict[str, Any], told: str) -> None:
    place = Facility(name="one", clusters=(FacilityCluster(name="a", nodes=16),))
    with pytest.raises(errors.PolicyError, match=told):
        train("Placement", source(), SHORT, facility=place, options=options)


def later_nan(agent: int, sim: Any) -> None:
    # The check before training ends earlier.
    agent_at(agent).earned = np.nan if sim.clock.now > 200 * 3_600_000 else 0.0


@pytest.mark.parametrize("learner", ["ppo", "evolution"])
def test_a_reward_that_is_not_finite_later_ends_training_with_a_checkpoint(
    tmp_path: Path, learner: Any
) -> None:
    long = Episodes.of(generate("poisson", jobs=800, nodes=NODES, seed=1), NODES, jobs=800)
    plan = Plan(
        200_000, environments=32, horizon=32, threads=1, trials=0, checkpoints=tmp_path,
        learner=learner, layers=() if learner == "evolution" else (32, 16),
    )  # fmt: skip
    with pytest.raises(errors.PolicyError, match="not a finite number"):
        train("JobSelection", long, plan, options={"window": 8, "reward": later_nan})
    assert list(tmp_path.glob("last.zip" if learner == "ppo" else "evolution.npz"))


def test_a_card_that_cannot_be_written_is_reported_before_training() -> None:
    shares: list[float] = []
    with pytest.raises(errors.ConfigError, match="plain values"):
        train(
            "JobSelection",
            source(),
            SHORT,
            about={"data": object()},
            progress=lambda share, _: shares.append(share),
        )
    assert not shares


def command(*words: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == code


def test_the_commands_take_own_parts_and_notice_changes(
    mine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chosen_policies, "TRIALS", 4)
    command("workload", "generate", "poisson", "t.swf", "jobs=200", "nodes=16", "load=0.9")
    common = ["t.swf", "-n", "16", "--jobs", "20"]
    command(
        "agent", "train", "JobSelection", common[0], "a.safetensors", *common[1:], "--steps", "300",
        "--environments", "4", "--last", "150", "--reward", "mine.py:queue_length",
        "--observation", "mine.py:queue",
    )  # fmt: skip
    assert "on jobs after 150" in capsys.readouterr().out
    evaluate = ["agent", "evaluate", "a.safetensors", *common, "--episodes", "1", "--json"]
    without = ["--without", "tuned", "--without", "schedtwin", "--without", "oracle"]
    command(*evaluate, *without)
    told = json.loads(capsys.readouterr().out)
    assert told["agent"] == "a.safetensors"
    assert told["metric"] == "mean_bounded_slowdown"
    shutil.move("mine.py", "moved.py")
    command(*evaluate, *without, code=2)
    assert "mine.py: No such file" in capsys.readouterr().err
    command(*evaluate, *without, "--observation", "moved.py:queue")
    again = json.loads(capsys.readouterr().out)
    assert again["policies"][0].keys() == told["policies"][0].keys()
    Path("mine.py").write_text(MINE.replace("100.0", "99.0"))
    command(*evaluate, *without, code=2)
    assert "has changed since the agent was trained" in capsys.readouterr().err
    with pytest.raises(errors.PolicyError, match="let such an agent imitate it"):
        simulate(WORKLOAD, NODES, "a.safetensors+easy")


def test_a_power_agent_with_an_own_observation_is_a_policy_joule_for_joule(mine: Path) -> None:
    cluster = machine()
    options = {"observation": "mine.py:queue", "levels": 5, "every_s": 900.0}
    made = train("PowerManagement", Episodes.of(WORKLOAD, cluster, jobs=40), SHORT, options=options)
    made.layers[-1][1][3:] += 4.0  # so that all jobs can run
    made.save("night.safetensors")
    environment = PowerManagementEnv(WORKLOAD, cluster, jobs=60, **options)
    jobs = environment.episodes.beginning_at(20)
    jobs = jobs.take(jobs.nodes <= NODES // 2)
    seen, _ = environment.reset(options={"jobs": jobs})
    over = False
    while not over:
        seen, _, over, cut, info = environment.step(int(np.argmax(made.scores(seen))))
        assert not cut
    own = simulate(jobs, cluster, "fcfs+easy~night.safetensors")
    assert own.energy is not None
    assert info["energy_j"] == pytest.approx(own.energy.total_j)
    mine.write_text(MINE + "\n# changed\n")
    with pytest.raises(errors.PolicyError, match="has changed"):
        simulate(jobs, cluster, "fcfs+easy~night.safetensors")


def shortest(seen: Any, mask: Any) -> int:
    return int(np.where(mask, seen[:, 2], np.inf).argmin())


def test_a_function_that_chooses_becomes_an_ordering() -> None:
    # Walltimes in ``features`` are over a day, in ``job`` logarithms.
    environment = JobSelectionEnv(source(jobs=60), window=32)
    made = policy_from_model(shortest, environment, episodes=12)
    assert made.card["imitates"]["agreement"] > 0.9
    assert made.card["options"] == {"window": 32, "backfilling": False, "observation": "job"}


@pytest.mark.parametrize("algorithm", ["PPO", "DQN", "MaskablePPO"])
def test_a_model_of_stable_baselines3_becomes_a_policy_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    import sb3_contrib
    import stable_baselines3

    monkeypatch.chdir(tmp_path)
    made = getattr(sb3_contrib, algorithm, None) or getattr(stable_baselines3, algorithm)
    environment = JobSelectionEnv(source(), window=8)
    model = made("MlpPolicy", environment, seed=1).learn(200 if algorithm == "DQN" else 1)
    network = policy_from_model(model, environment, episodes=4)
    assert network.card["imitates"]["model"] == algorithm
    network.save("mine.safetensors")
    results = compare(WORKLOAD[:100], NODES, ["fcfs+easy", "mine.safetensors+easy"])
    assert results["mine.safetensors+easy"].jobs["start_s"].null_count() == 0


def test_a_power_model_becomes_a_policy_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = PowerManagementEnv(WORKLOAD, machine(), jobs=40, levels=5, preset="spars")

    def by_queue(seen: Any, mask: Any) -> int:
        return 4 if seen[0] > 0 else 2

    network = policy_from_model(by_queue, environment, episodes=12)
    assert network.card["imitates"]["agreement"] > 0.9
    network.save("night.safetensors")
    own = simulate(WORKLOAD[:60], machine(), "fcfs+easy~night.safetensors")
    always = simulate(WORKLOAD[:60], machine(), "fcfs+easy")
    assert own.energy is not None
    assert always.energy is not None
    assert own.energy.total_j < always.energy.total_j


@pytest.mark.parametrize(
    "environment",
    [
        lambda: BackfillingEnv(),
        lambda: PolicySelectionEnv(),
        lambda: PlacementEnv(),
        lambda: PowerManagementEnv(),
        lambda: PowerManagementEnv(levels=5, every_s=None),
    ],
)
def test_choices_that_no_policy_makes_are_reported(environment: Any) -> None:
    with pytest.raises(errors.ConfigError, match=r"part of a policy|fixed times"):
        policy_from_model(shortest, environment())
    with pytest.raises(errors.ConfigError, match=r"must have predict"):
        policy_from_model(5, JobSelectionEnv())


def test_two_functions_of_one_name_are_two_rewards() -> None:
    def made(value: float) -> Any:
        def reward(agent: int, sim: Any) -> None:
            agent_at(agent).earned = value

        return reward

    earned = []
    for value in (1.0, 2.0):
        environment = JobSelectionEnv(source(), Cluster.uniform(1), reward=made(value))
        environment.reset(seed=1)
        earned.append(environment.step(0)[1])
    assert earned == [1.0, 2.0]
