"""Training an agent with sb3-contrib's maskable PPO (Huang and Ontañón 2022)."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, get_args

import numpy as np
from pydantic import TypeAdapter, ValidationError

from hpctwin import __version__
from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.learn.backfilling import Backfilling
from hpctwin.learn.environment import Environments
from hpctwin.learn.episodes import Source
from hpctwin.learn.job_selection import JobSelection
from hpctwin.learn.plan import Plan
from hpctwin.learn.power_management import PowerManagement, power_management
from hpctwin.model.settings import first_fault
from hpctwin.policies.network import Network

__all__ = ["DEFAULTS", "KINDS", "train"]

KINDS: dict[str, Any] = {
    made.__name__: made for made in (JobSelection, Backfilling, PowerManagement)
}
"""What agents are trained in, by name."""

DEFAULTS: dict[str, dict[str, Any]] = {
    "JobSelection": {
        "observation": "job",
        "window": 64,
        "backfilling": False,
        "reward": "slowdown",
    },
    "Backfilling": {"observation": "job", "window": 64, "order": "fcfs", "reward": "slowdown"},
    "PowerManagement": {"observation": "shares", "levels": 17, "every_s": 1800.0},
}
"""Options of each that training sets unless others are given: agents that can be parts of a policy."""


def train(
    kind: str,
    source: Source,
    plan: Plan | None = None,
    *,
    options: dict[str, Any] | None = None,
    progress: Callable[[float, float], None] | None = None,
    about: dict[str, Any] | None = None,
) -> Network:
    """Train an agent.

    Args:
        kind: a name of `KINDS`.
        source: where episodes come from.
        plan: how.
        options: of the environment; see `DEFAULTS`.
        progress: called with the share of steps done and the mean of what was earned lately.
        about: what the model card is to say besides, such as the trace.

    Returns:
        The network, with its card.

    Raises:
        UnknownNameError: there is no such kind, or it has no such option.
        ConfigError: an option is of another type, Stable-Baselines3 is not installed, or as the
            environment tells.
    """
    if kind not in KINDS:
        raise UnknownNameError("environment", kind, list(KINDS))
    _check(kind, options or {})
    try:
        from hpctwin.learn import ppo
        from hpctwin.learn.sb3 import Sb3Environments
    except ImportError as error:
        raise ConfigError(
            f"training needs {error.name}, which is not installed: pip install 'hpctwin[train]'"
        ) from error
    plan = Plan() if plan is None else plan
    chosen = {**DEFAULTS[kind], **(options or {})}
    one = KINDS[kind](source, **chosen)
    environments = Environments(
        one.task, one.episodes, plan.environments, one.max_steps, plan.threads
    )
    many = Sb3Environments(environments, seed=plan.seed)
    by_row = one.task.chosen == "place" and len(one.observation_space.shape) == 2
    at_end = chosen.get("reward") in ("bounded-slowdown", "wait")
    try:
        layers, steps = ppo.fit(many, plan, by_row=by_row, at_end=at_end, progress=progress)
    finally:
        many.close()
    card = {
        "environment": kind,
        "options": chosen,
        "machine": source.cluster.name,
        "nodes": source.cluster.node_count,
        "jobs": source.jobs,
        "trained": {
            "steps": steps,
            "seed": plan.seed,
            "environments": plan.environments,
            "with": ppo.NAME,
            "versions": {
                "hpctwin": __version__,
                "python": platform.python_version(),
                **ppo.VERSIONS,
            },
        },
        **(about or {}),
    }
    return Network(tuple(layers), by_row, _plain(card))


def _check(kind: str, options: Mapping[str, Any]) -> None:
    """Find out whether options are the environment's, by its signature.

    Raises:
        UnknownNameError: it has no such option.
        ConfigError: one is of another type.
    """
    makers = [KINDS[kind], *([power_management] if kind == "PowerManagement" else [])]
    known = {
        one.name: one.annotation
        for made in makers
        for one in signature(made, eval_str=True).parameters.values()
        if one.kind is one.KEYWORD_ONLY and one.name != "jobs"  # episodes have that
    }
    for name, value in options.items():
        if name not in known:
            raise UnknownNameError(f"option of {kind}", name, sorted(known))
        hint = known[name]
        if hint is Any:
            continue  # the environment tells
        if not set(get_args(hint) or [hint]) <= {bool, int, float, str, type(None)}:
            if isinstance(value, hint):
                continue
            raise ConfigError(f"option {name} of {kind}: it must be a name, not {value!r}")
        try:
            TypeAdapter(hint).validate_python(value, strict=True)
        except ValidationError as error:
            raise ConfigError(f"option {name} of {kind}: {first_fault(error)}") from error


def _plain(card: dict[str, Any]) -> dict[str, Any]:
    """Only what JSON knows.

    Raises:
        ConfigError: something else is among it, as a function of one's own.
    """
    import json

    try:
        return dict(json.loads(json.dumps(card, default=_as_number)))
    except TypeError as error:
        raise ConfigError(f"a model card holds plain values only: {error}") from error


def _as_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is none")
