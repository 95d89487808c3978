"""Policy files from agents of any library: small networks that choose as the agents do."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin import __version__
from hpctwin.engine.agents import jobs, power
from hpctwin.engine.agents.step import look
from hpctwin.engine.compile.intrinsics import described
from hpctwin.errors import ConfigError
from hpctwin.learn.environments.job_selection import OBSERVATIONS, JobSelectionEnv
from hpctwin.learn.environments.power_management import OBSERVATIONS as POWER_OBSERVATIONS
from hpctwin.learn.environments.power_management import PowerManagementEnv
from hpctwin.learn.environments.task import Observation, is_custom
from hpctwin.policies.agents import Network

__all__ = ["policy_from_model"]

HELD_OUT = 5
"""One in HELD_OUT choices is not learned, but compared."""
PASSES = 60
LAYERS = (32, 16)

Choose = Callable[[Any, Any], Any]


def policy_from_model(
    model: Any, environment: Any, *, episodes: int = 32, seed: int = 0
) -> Network:
    """Return a network that imitates a model, and can be part of a policy.

    The model plays episodes. A small network learns its choices from what policies see: each job of
    the queue, or the state of all nodes. So any observation, algorithm and library is possible. How
    often the network chooses as the model does, in other choices than the learned ones, is
    ``card["imitates"]["agreement"]``.

    Args:
        model: Model of Stable-Baselines3 or sb3-contrib; a `Network`; or a function that returns an
            action from an observation and the mask of available actions.
        environment: Environment of the model: `JobSelectionEnv`, or `PowerManagementEnv` with
            levels and fixed times.
        episodes: Number of episodes that the model plays.
        seed: Seed of the episodes and of the network.

    Returns:
        The network, which ``save`` writes.

    Raises:
        ConfigError: Choices in this environment cannot be part of a policy.
    """
    from hpctwin.learn.training import ppo

    one = environment.unwrapped
    kind, options, observation, hook = _form(one)
    by_row = len(observation.shape(1, 1)) == 2
    seen, masks, chosen = _played(_choosing(model), one, observation, hook, episodes, seed)
    held_out = np.arange(len(chosen)) % HELD_OUT == 0
    learnt = ppo.imitated(
        seen[~held_out],
        masks[~held_out],
        chosen[~held_out],
        LAYERS,
        PASSES,
        by_row=by_row,
        seed=seed,
    )
    network = Network(tuple(learnt.layers), by_row, {}, learnt.rowless)
    scores = [network.scores(row) for row in seen[held_out]]
    same = np.where(masks[held_out], scores, -np.inf).argmax(axis=1) == chosen[held_out]
    network.card.update(
        environment=kind,
        options=options,
        machine=one.episodes.cluster.name,
        nodes=one.episodes.cluster.node_count,
        jobs=one.episodes.jobs,
        imitates={
            "model": type(model).__name__,
            "choices": len(chosen),
            "agreement": round(float(same.mean()), 4),
        },
        trained={
            "steps": int(getattr(model, "num_timesteps", 0)),
            "seed": seed,
            "versions": {"hpctwin": __version__, "python": platform.python_version()},
        },
    )
    return network


def _form(one: Any) -> tuple[str, dict[str, Any], Observation, Any]:
    """Return the network's environment, its options, and its observation with the hook.

    Raises:
        ConfigError: Choices in this environment cannot be part of a policy.
    """
    if isinstance(one, JobSelectionEnv):
        options = one.options | {"observation": "job"}
        return "JobSelection", options, OBSERVATIONS["job"], jobs.OBSERVE_JOB
    if isinstance(one, PowerManagementEnv):
        given = one.options
        if not given.get("levels") or not given["every_s"] or is_custom(given.get("action", "")):
            raise ConfigError(
                "power policies choose a share of nodes at fixed times; make the environment with "
                "levels and every_s, and without a custom action"
            )
        kept = {
            name: given[name] for name in ("policy", "every_s", "action", "levels") if name in given
        }
        options = kept | {"observation": "shares"}
        return "PowerManagement", options, POWER_OBSERVATIONS["shares"], power.OBSERVE_SHARES
    raise ConfigError(
        f"agents of {type(one).__name__} cannot be part of a policy; use JobSelectionEnv or "
        "PowerManagementEnv"
    )


def _choosing(model: Any) -> Choose:
    """Return the function that takes the choice of a model."""
    if isinstance(model, Network):
        return lambda seen, mask: np.where(mask, model.scores(seen), -np.inf).argmax()
    if not hasattr(model, "predict"):
        if callable(model):
            return model  # type: ignore[no-any-return]
        raise ConfigError(
            f"model is {model!r}; it must have predict(), as of Stable-Baselines3, or be a function"
        )
    try:
        from sb3_contrib import MaskablePPO

        masked = isinstance(model, MaskablePPO)
    except ImportError:
        masked = False
    if masked:
        return lambda seen, mask: model.predict(seen, deterministic=True, action_masks=mask)[0]
    return lambda seen, mask: model.predict(seen, deterministic=True)[0]


def _played(
    choose: Choose, one: Any, observation: Any, hook: Any, episodes: int, seed: int
) -> tuple[Any, Any, npt.NDArray[np.int64]]:
    """Return what the network would have seen at each choice, the masks, and the choices.

    If the model chooses what is not available, the first available choice is taken.
    """
    window, nodes = int(one.task.numbers["window"]), one.task.nodes
    seen = np.zeros(observation.shape(window, nodes), np.float32)
    mask = np.ones(one.task.width, np.bool_)
    places = described(seen[None]), described(mask[None])
    found: list[Any] = []
    masks: list[Any] = []
    chosen: list[int] = []
    now, _ = one.reset(seed=seed)
    for _ in range(episodes):
        over = False
        while not over:
            allowed = one.action_masks()
            action = int(choose(now, allowed))
            if not (0 <= action < len(allowed) and allowed[action]):
                action = int(allowed.argmax())
            agent = one.batch.agents[:1].copy()
            agent["seen"], agent["mask"] = (place.ctypes.data for place in places)
            agent["observe"], agent["shown"] = hook.address, window
            look(agent.ctypes.data)
            found.append(seen.copy())
            masks.append(allowed)
            chosen.append(action)
            now, _, ended, cut, _ = one.step(action)
            over = ended or cut
        now, _ = one.reset()
    return np.stack(found), np.stack(masks), np.array(chosen)
