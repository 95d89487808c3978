"""Custom rewards, observations and actions: checked before training, and recorded in the card."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from hpctwin.engine.compile.intrinsics import described
from hpctwin.errors import ConfigError, PolicyError
from hpctwin.learn.environments.environment import SimulationEnv
from hpctwin.learn.environments.task import Observation, is_custom
from hpctwin.learn.environments.vector import EARNED
from hpctwin.policies.agents import custom_part, hash_of_file

__all__ = ["check_custom", "custom_parts", "options_of"]

PARTS = ("reward", "observation", "action")
STEPS = 200
"""Number of steps in which custom parts are checked."""
MARGIN = 4096
"""Numbers on either side of an observation in which wrong places are noticed."""


def custom_parts(options: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return name and SHA-256 of each custom part among the options of an environment.

    The hash is that of the file, or of the source of a function that has no name ``FILE.py:NAME``.
    """
    found = {}
    for part in PARTS:
        what = options.get(part)
        if what is None or not is_custom(what):
            continue
        if isinstance(what, str):
            found[part] = {"name": what, "sha256": hash_of_file(what)}
        else:
            function: Any = what.function if isinstance(what, Observation) else what
            function = getattr(function, "function", function)  # of a kernel
            name = f"{function.__module__}.{function.__qualname__}"
            found[part] = {"name": name, "sha256": _hash_of_function(function)}
    return found


def _hash_of_function(function: Any) -> str:
    try:
        source = inspect.getsource(function).encode()
    except (OSError, TypeError):  # typed at a prompt
        source = function.__code__.co_code
    return hashlib.sha256(source).hexdigest()


def options_of(card: Mapping[str, Any], observation: str | None = None) -> dict[str, Any]:
    """Return the options of the environment that an agent was trained in.

    A custom reward is omitted: it is only for training.

    Args:
        card: Card of the agent.
        observation: ``FILE.py:NAME`` of the custom observation, if the file is elsewhere now.

    Raises:
        ConfigError: The observation of the agent is not a custom one.
        PolicyError: A custom part does not exist any more, or has changed.
    """
    options, custom = dict(card.get("options", {})), card.get("custom", {})
    if observation is not None and "observation" not in custom:
        raise ConfigError(
            f"agent was trained with observation {options.get('observation')!r}, not a custom one; "
            "remove the observation"
        )
    if "reward" in custom:
        del options["reward"]
    for part in ("observation", "action"):
        if part in custom:
            instead = observation if part == "observation" else None
            options[part] = custom_part(card, part, instead)
    return options


def check_custom(one: Any, custom: Mapping[str, Mapping[str, str]]) -> None:
    """Play some steps with random allowed actions, and check the custom parts in each.

    Raises:
        ConfigError: The rows of an observation are not the choices.
        PolicyError: A custom part writes or returns a number that is not valid.
    """
    if not custom:
        return
    shape, choices = one.observation_space.shape, one.action_space
    rows = one.task.numbers["window"] if isinstance(one, SimulationEnv) else choices.n
    if len(shape) == 2 and "observation" in custom and shape[0] != rows:
        raise ConfigError(
            f"observation {custom['observation']['name']} has {shape[0]} rows, but there are {rows} "
            "choices; with two dimensions each row belongs to a choice, so use another shape"
        )
    choices.seed(0)
    rng = np.random.default_rng(0)
    seen = _Guarded(one, custom) if isinstance(one, SimulationEnv) else None
    one.reset(seed=0)
    for number in range(STEPS):
        if seen is not None:
            seen.check()
            one.batch.real[0, EARNED] = np.nan
        action = choices.sample()
        if isinstance(choices, spaces.Discrete) and one.action_masks().size == choices.n:
            action = rng.choice(np.flatnonzero(one.action_masks()))
        _, earned, ended, cut, _ = one.step(action)
        if not np.isfinite(earned):
            name = custom.get("reward", {}).get("name", "")
            raise PolicyError(
                f"reward {name}: step {number} earned {earned}; the function must set "
                "agent_at(agent).earned to a finite number each time"
            )
        if ended or cut:
            one.reset()
    if seen is not None:
        seen.release()


class _Guarded:
    """The observation of an environment with a margin, in which wrong places are noticed.

    Args:
        one: The environment, before its first reset.
        custom: Custom parts.
    """

    def __init__(self, one: SimulationEnv, custom: Mapping[str, Mapping[str, str]]) -> None:
        self.name = custom.get("observation", {}).get("name")
        self.agents, self.space = one.batch.agents, one.observation_space
        size = int(np.prod(self.space.shape))
        self.row = np.full(2 * MARGIN + size, np.nan, np.float32)
        self.inner = self.row[MARGIN : MARGIN + size]
        self.place = described(self.inner[None])
        self.before = self.agents["seen"].copy()
        if self.name is not None:
            self.agents["seen"] = self.place.ctypes.data

    def release(self) -> None:
        """Let the environment write where it did before."""
        self.agents["seen"] = self.before

    def check(self) -> None:
        """Check each number of the last observation, and that nothing else was written.

        Raises:
            PolicyError: A number is missing, not finite or out of range, or has no place.
        """
        if self.name is None:
            return
        told, inner, shape = f"observation {self.name}", self.inner, self.space.shape
        written = np.flatnonzero(~np.isnan(self.row)) - MARGIN
        outside = written[(written < 0) | (written >= inner.size)]
        if len(outside):
            raise PolicyError(
                f"{told} writes number {outside[0]}, but its shape {shape} has numbers 0 to "
                f"{inner.size - 1}"
            )
        missing = np.flatnonzero(~np.isfinite(inner))
        if len(missing):
            raise PolicyError(
                f"{told}: number {missing[0]} of {inner.size} is not written or not finite; the "
                "function must write each number each time"
            )
        low, high = self.space.low.reshape(-1), self.space.high.reshape(-1)
        wrong = np.flatnonzero((inner < low) | (inner > high))
        if len(wrong):
            at = wrong[0]
            raise PolicyError(
                f"{told}: number {at} is {inner[at]:g}, but its range is {low[at]:g} to "
                f"{high[at]:g}; set low and high of the Observation, or scale the number"
            )
        self.row.fill(np.nan)
