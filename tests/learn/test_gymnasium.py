"""Environments follow the rules of Gymnasium, and agents of any library can train in them."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from hpctwin import Workload, errors, generate
from hpctwin.engine.agents.agent_record import MAX_INVALID
from hpctwin.learn import (
    ENVIRONMENTS,
    BackfillingEnv,
    JobSelectionEnv,
    PlacementEnv,
    PowerManagementEnv,
)
from hpctwin.learn.environments.job_selection import OBSERVATIONS
from hpctwin.learn.environments.placement import EXAMPLE_FACILITY
from hpctwin.learn.environments.power_management import PRESETS, power_management
from hpctwin.learn.environments.scheduling_env import _steps

ROOT = Path(__file__).parent.parent.parent

NAMES = tuple(ENVIRONMENTS)
MADE = [
    *((name, {}) for name in NAMES),
    *(("JobSelection", {"observation": name}) for name in OBSERVATIONS),
    *(("PowerManagement", {"preset": name}) for name in PRESETS),
    ("PowerManagement", {"levels": 5, "observation": "levels", "action": "reserve"}),
    ("Backfilling", {"strict": False, "window": 4}),
]
IDS = [f"{name}-{'-'.join(map(str, options.values()))}" for name, options in MADE]


def new(name: str, **options: Any) -> Any:
    return gymnasium.make(f"hpctwin/{name}-v0", **options)


def documented(name: str) -> dict[str, str]:
    """Return the table of an environment in the reference."""
    page = (ROOT / "docs/reference/environments.md").read_text()
    table = page.split(f"| `hpctwin/{name}-v0` | |\n")[1].split("\n\n")[0]
    rows = (re.split(r"(?<!\\)\|", line)[1:3] for line in table.splitlines()[1:])
    return {key.strip(): text.strip() for key, text in rows}


def arguments(kind: Any) -> str:
    """Return the arguments of an environment with their defaults."""
    makers = [kind, *([power_management] if kind is PowerManagementEnv else [])]
    given = {
        one.name: one.default
        for made in makers
        for one in signature(made).parameters.values()
        if one.kind is not one.VAR_KEYWORD and one.name != "source"
    }
    if kind is PlacementEnv:
        assert given["facility"] is EXAMPLE_FACILITY
        given["facility"] = "EXAMPLE_FACILITY"
    shown = {name: str(one) if name == "facility" else repr(one) for name, one in given.items()}
    return ", ".join(sorted(f"{name}={one}" for name, one in shown.items())).replace("'", '"')


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_has_spaces_and_defaults_of_each_environment(name: str) -> None:
    environment, rows = new(name).unwrapped, documented(name)
    assert rows["Action space"] == f"`{environment.action_space}`"
    assert rows["Observation space"] == f"`{environment.observation_space}`"
    shown = re.split(r", (?=\w+=)", rows["Arguments"].strip("`"))
    assert ", ".join(sorted(shown)) == arguments(ENVIRONMENTS[name])
    for what in ("Action", "Observation", "Reward", "Invalid actions"):
        assert rows[what]


def not_available(environment: Any) -> int | None:
    """Return an action of the space that the mask forbids."""
    forbidden = np.flatnonzero(~environment.action_masks())
    return int(forbidden[-1]) if len(forbidden) else None


@pytest.mark.parametrize(("name", "options"), MADE, ids=IDS)
def test_gymnasiums_checker_has_nothing_to_say(name: str, options: dict[str, Any]) -> None:
    check_env(new(name, jobs=20, **options).unwrapped)


@pytest.mark.parametrize(("name", "options"), MADE, ids=IDS)
def test_the_checker_of_stable_baselines3_has_nothing_to_say(
    name: str, options: dict[str, Any]
) -> None:
    from stable_baselines3.common.env_checker import check_env as check_for_sb3

    check_for_sb3(new(name, jobs=20, **options).unwrapped, warn=False)


@pytest.mark.parametrize("name", NAMES)
def test_an_environment_without_arguments_ends_with_random_allowed_actions(name: str) -> None:
    environment = new(name)
    rng = np.random.default_rng(1)
    environment.reset(seed=1)
    steps, over = 0, False
    while not over:
        if name == "PowerManagement":
            action = np.ones(1, np.float32)
        else:
            masks = environment.unwrapped.action_masks()
            action = rng.choice(np.flatnonzero(masks))
        _, reward, ended, cut, info = environment.step(action)
        assert "invalid_action" not in info
        assert not cut
        steps, over = steps + 1, ended
    assert steps > 10
    assert info["mean_bounded_slowdown"] >= 1.0
    assert np.isfinite(reward)


@pytest.mark.parametrize("name", ["JobSelection", "Backfilling"])
def test_an_action_that_is_not_available_has_no_effect_and_is_flagged(name: str) -> None:
    environment = new(name, jobs=30, max_steps=50).unwrapped
    seen, _ = environment.reset(seed=1)
    action, masks = not_available(environment), environment.action_masks()
    now_s = environment.simulation.now_s
    for _ in range(3):
        again, reward, ended, cut, info = environment.step(action)
        assert np.array_equal(again, seen)
        assert np.array_equal(environment.action_masks(), masks)
        assert (reward, ended, cut, info) == (0.0, False, False, {"invalid_action": True})
    assert environment.simulation.now_s == now_s
    *_, info = environment.step(int(np.argmax(masks)))
    assert "invalid_action" not in info


def test_ignored_actions_change_nothing_in_an_episode() -> None:
    def rewards(often: bool) -> list[float]:
        environment = new("JobSelection", jobs=40, reward="slowdown").unwrapped
        environment.reset(seed=3)
        earned, over = [], False
        while not over:
            if often and (wrong := not_available(environment)) is not None:
                environment.step(wrong)
            _, reward, over, _, _ = environment.step(0)
            earned.append(reward)
        return earned

    assert rewards(often=True) == rewards(often=False)


def test_many_ignored_actions_in_sequence_truncate_an_episode() -> None:
    environment = new("JobSelection", jobs=30).unwrapped
    environment.reset(seed=1)
    for number in range(MAX_INVALID):
        _, _, ended, cut, info = environment.step(127)
        assert not ended
        assert cut == (number == MAX_INVALID - 1)
    assert info["invalid_action"]


@pytest.mark.parametrize("name", ["JobSelection", "Backfilling"])
def test_an_action_that_is_not_available_is_an_error_if_asked(name: str) -> None:
    environment = new(name, jobs=30, invalid_action="raise").unwrapped
    environment.reset(seed=1)
    with pytest.raises(errors.SimulationError, match="action_masks"):
        environment.step(not_available(environment))
    vector = environment.many(3, threads=1)
    vector.reset(seed=1)
    wrong = int(np.flatnonzero(~vector.action_masks().any(axis=0))[-1])
    with pytest.raises(errors.SimulationError, match="action_masks"):
        vector.step(np.array([0, wrong, 0]))


@pytest.mark.parametrize("invalid_action", ["ignore", "raise"])
def test_nodes_that_cannot_be_switched_are_flagged_or_an_error(invalid_action: Any) -> None:
    environment = new("PowerManagement", preset="nodes", invalid_action=invalid_action).unwrapped
    environment.reset(seed=1)
    off = np.zeros(64, np.int8)
    environment.step(off)
    environment.step(~environment.action_masks()[::2])  # on where off is not possible
    while environment.action_masks()[::2].all():
        *_, info = environment.step(1 - off)
        assert "invalid_action" not in info
    if invalid_action == "raise":
        with pytest.raises(errors.SimulationError, match="some nodes cannot be switched"):
            environment.step(off)
    else:
        assert environment.step(off)[-1]["invalid_action"]


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("JobSelection", 128),
        ("JobSelection", -1),
        ("Backfilling", 129),
        ("PolicySelection", 3),
        ("PolicySelection", -1),
        ("Placement", 2),
    ],
)
def test_an_action_outside_the_space_is_always_an_error(name: str, action: int) -> None:
    environment = new(name).unwrapped
    environment.reset(seed=1)
    for wrong in (action, 0.5, 1.0, None, "x", [0], [0, 0]):
        with pytest.raises(errors.SimulationError):
            environment.step(wrong)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({}, [1.5, 1, np.array([1.5]), np.array([-0.1]), np.array([np.nan]), np.ones(2), None]),
        ({"levels": 5}, [5, -1, 2.5, np.ones(1, int), np.nan]),
        ({"preset": "nodes"}, [1, np.ones(63), np.full(64, 2), np.full(64, 0.5), np.full(64, -1)]),
    ],
)
def test_power_outside_the_action_space_is_an_error_in_one_and_many(
    options: dict[str, Any], wrong: list[Any]
) -> None:
    environment = PowerManagementEnv(jobs=5, **options)
    vector = environment.many(2, threads=1)
    environment.reset(seed=1)
    vector.reset(seed=1)
    allowed = environment.action_space.sample()
    for action in wrong:
        with pytest.raises(errors.SimulationError, match="action space"):
            environment.step(action)
        with pytest.raises(errors.SimulationError, match="action space"):
            vector.step(np.array([action, action]))
    with pytest.raises(errors.SimulationError, match="action space"):
        vector.step(allowed)
    assert environment.simulation.now_s == 0
    environment.step(allowed)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_before_the_first_reset_is_an_error(name: str) -> None:
    environment = new(name, jobs=5).unwrapped
    vector = environment.many(2)
    for one, action in (
        (environment, environment.action_space.sample()),
        (vector, vector.action_space.sample()),
    ):
        with pytest.raises(errors.SimulationError, match=r"call reset\(\) first"):
            one.step(action)
    with pytest.raises(errors.ConfigError, match="num_envs is 0"):
        environment.many(0)


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_reset_option_is_reported(name: str) -> None:
    environment = new(name, jobs=5).unwrapped
    with pytest.raises(errors.UnknownNameError, match="'first'"):
        environment.reset(options={"frist": 3})
    with pytest.raises(errors.ConfigError, match="must be the row of a job"):
        environment.reset(options={"first": "three"})
    with pytest.raises(errors.ConfigError, match="at least one"):
        environment.reset(options={"jobs": generate("poisson", jobs=5).take(np.arange(0))})


@pytest.mark.parametrize("name", NAMES)
def test_an_episode_in_which_no_job_can_run_ends_in_one_step(name: str) -> None:
    environment = new(name, jobs=2).unwrapped
    seen, _ = environment.reset(
        options={"jobs": Workload.build(submit_s=[0, 1], runtime_s=[5, 5], nodes=[500, 500])}
    )
    assert environment.observation_space.contains(seen)
    action = np.ones(1) if name == "PowerManagement" else 0
    seen, reward, ended, cut, info = environment.step(action)
    assert environment.observation_space.contains(seen)
    assert np.isfinite(reward)
    assert (info["mean_bounded_slowdown"], info["mean_wait_s"]) == (None, None)
    assert (ended, cut) == (True, False)


@pytest.mark.parametrize("name", NAMES)
def test_make_vec_makes_many_without_arguments(name: str) -> None:
    vector = gymnasium.make_vec(f"hpctwin/{name}-v0", num_envs=3, jobs=10)
    seen, _ = vector.reset(seed=1)
    assert seen.shape == vector.observation_space.shape
    vector.action_space.seed(1)
    for _ in range(30):
        seen, rewards, *_, infos = vector.step(vector.action_space.sample())
        assert rewards.shape == (3,)
        assert vector.observation_space.contains(seen)
    if name in ("JobSelection", "Backfilling"):
        assert infos["invalid_action"].any()
    vector.close()


@pytest.mark.parametrize("name", ["JobSelection", "Backfilling"])
def test_many_ignore_actions_as_one_does(name: str) -> None:
    vector = gymnasium.make_vec(f"hpctwin/{name}-v0", num_envs=3, jobs=30, threads=1)
    before, _ = vector.reset(seed=1)
    before = before.copy()
    last = vector.single_action_space.n - 1 - (name == "Backfilling")
    allowed = int(np.argmax(vector.action_masks()[1]))
    after, rewards, ended, cut, infos = vector.step(np.array([last, allowed, last]))
    assert infos["invalid_action"].tolist() == [True, False, True]
    assert np.array_equal(after[[0, 2]], before[[0, 2]])
    assert rewards[[0, 2]].tolist() == [0, 0]
    assert not (ended | cut).any()
    with pytest.raises(errors.SimulationError):
        vector.step(np.array([500, 0, 0]))


@pytest.mark.parametrize("name", NAMES)
def test_a_specification_written_as_json_makes_the_environment_again(name: str) -> None:
    environment = new(name, jobs=10)
    again = gymnasium.make(
        gymnasium.envs.registration.EnvSpec.from_json(environment.spec.to_json())
    )
    assert again.observation_space == environment.observation_space
    assert np.array_equal(again.reset(seed=2)[0], environment.reset(seed=2)[0])


@pytest.mark.parametrize("name", NAMES)
def test_environments_render_text_and_images(name: str) -> None:
    environment = new(name, jobs=20, render_mode="ansi").unwrapped
    with pytest.raises(errors.ConfigError, match="reset"):
        environment.render()
    environment.reset(seed=1)
    for _ in range(8):
        environment.step(environment.action_space.sample())
    text = environment.render()
    assert text.startswith("time ")
    assert len(text.splitlines()) == 1 + len(environment.clusters())
    assert "pending" in text
    environment.render_mode = "rgb_array"
    image = environment.render()
    assert image.dtype == np.uint8
    assert image.shape == (320 * len(environment.clusters()), 640, 3)
    assert image.std() > 5


@pytest.mark.parametrize("wrong", [{"render_mode": "human"}, {"invalid_action": "ignored"}])
@pytest.mark.parametrize("kind", [JobSelectionEnv, BackfillingEnv])
def test_an_unknown_mode_or_treatment_is_reported(kind: Any, wrong: dict[str, str]) -> None:
    with pytest.raises(errors.UnknownNameError, match=r"rgb_array|ignore"):
        kind(**wrong)


def test_a_stable_baselines3_agent_without_masks_trains() -> None:
    from stable_baselines3 import PPO

    model = PPO("MlpPolicy", new("JobSelection", jobs=10, window=8), n_steps=64, seed=1)
    model.learn(128)
    assert model.num_timesteps == 128


def test_a_seed_of_stable_baselines3_is_the_seed_of_the_episodes() -> None:
    from stable_baselines3 import PPO

    from hpctwin.learn.environments.sb3 import Sb3VecEnv

    def trained() -> Any:
        many = Sb3VecEnv(JobSelectionEnv(jobs=10, window=4).many(2, threads=1))
        model = PPO("MlpPolicy", many, n_steps=32, batch_size=32, seed=3).learn(64)
        many.set_options({"first": 3})
        with pytest.raises(errors.ConfigError, match="no options"):
            many.reset()
        return np.concatenate([one.detach().ravel() for one in model.policy.parameters()])

    assert np.array_equal(trained(), trained())


def test_the_picture_shows_no_more_nodes_in_use_than_there_are() -> None:
    # At 10 s and 20 s a job ends and another begins.
    times, nodes = _steps(
        np.array([0.0, 10.0, 20.0]), np.array([10.0, 20.0, np.inf]), np.array([4, 4, 3]), 30.0
    )
    assert (times * 3600).tolist() == [0, 0, 10, 20, 30]
    assert nodes.tolist() == [0, 4, 4, 3, 3]
    empty = np.zeros(0)
    assert [one.tolist() for one in _steps(empty, empty, empty, 0.0)] == [[0, 0], [0, 0]]
