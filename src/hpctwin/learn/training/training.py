"""Training of agents by maskable PPO (Huang and Ontañón 2022) or trying weights."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from inspect import signature
from typing import Any, get_args

import numpy as np
from pydantic import TypeAdapter, ValidationError

from hpctwin import __version__
from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.facility import Facility
from hpctwin.learn import ENVIRONMENTS
from hpctwin.learn.environments.environment import SimulationEnv
from hpctwin.learn.environments.episodes import Source
from hpctwin.learn.environments.job_selection import JobSelectionEnv
from hpctwin.learn.environments.power_management import power_management
from hpctwin.learn.training import evolution, sums
from hpctwin.learn.training.custom import check_custom, custom_parts
from hpctwin.learn.training.trial import Learnt, Plan, Trial, first_in_order
from hpctwin.model.settings import first_fault
from hpctwin.policies.agents import Network

__all__ = ["DEFAULTS", "check_facility", "check_options", "environment_of", "train"]

RELATIVE = "relative"
DEFAULTS: dict[str, dict[str, Any]] = {
    "JobSelection": {
        "observation": "job",
        "window": 128,
        "backfilling": False,
        "reward": RELATIVE,
    },
    "Backfilling": {"observation": "job", "window": 64, "order": "fcfs", "reward": RELATIVE},
    "PowerManagement": {"observation": "shares", "levels": 17, "every_s": 1800.0},
    "PolicySelection": {"policies": ["fcfs+easy", "sjf+easy", "wfp+easy"], "every_s": 600.0},
    "Placement": {"reward": "bounded-slowdown"},
}
"""Default options of each environment in training.

Where possible, they make agents that can be parts of policies.
"""

BY_TRYING = {"evolution": "slowdown", "cma": "bounded-slowdown"}
"""Learners that use an episode's total reward, with their reward for job choice.

A reward relative to something would take extra time.
"""


def train(
    kind: str,
    source: Source,
    plan: Plan | None = None,
    *,
    options: dict[str, Any] | None = None,
    progress: Callable[[float, float], None] | None = None,
    about: dict[str, Any] | None = None,
    facility: Facility | None = None,
) -> Network:
    """Train an agent.

    Args:
        kind: Name in `ENVIRONMENTS`.
        source: Source of episodes.
        plan: Training plan.
        options: Options of the environment; see `DEFAULTS`. A custom reward or observation is
            ``FILE.py:NAME`` or an object; it is checked before training.
        progress: Function called with the share of steps done and the mean of recent rewards.
        about: Further entries of the model card, such as the trace.
        facility: Clusters, for Placement only.

    Returns:
        The network, with its card.

    Raises:
        UnknownNameError: There is no such environment, or it has no such option.
        ConfigError: An option has the wrong type, Stable-Baselines3 is not installed, or the
            environment rejects its arguments.
        PolicyError: A custom reward or observation does not work.
    """
    if kind not in ENVIRONMENTS:
        raise UnknownNameError("environment", kind, list(ENVIRONMENTS))
    check_options(kind, options or {})
    plan = Plan() if plan is None else plan
    chosen = {**DEFAULTS[kind], **(options or {})}
    if chosen.get("reward") == RELATIVE and "reward" not in (options or {}):
        chosen["reward"] = BY_TRYING.get(plan.learner, RELATIVE)
    one = environment_of(kind, source, chosen, facility)
    custom = custom_parts(chosen)
    check_custom(one, custom)
    # Before training, so that a value that a card cannot hold is found before it.
    card = _plain({
        "environment": kind,
        "options": chosen | {part: origin["name"] for part, origin in custom.items()},
        **({"custom": custom} if custom else {}),
        **_machine(source, facility),
        "jobs": source.jobs,
        **(about or {}),
    })  # fmt: skip
    by_row = len(one.observation_space.shape) == 2
    learn = {"ppo": _by_gradients, "evolution": _by_evolution, "cma": _by_sums}[plan.learner]
    learnt, steps, made = learn(kind, one, plan, chosen, by_row, progress)
    versions = {"hpctwin": __version__, "python": platform.python_version(), **made["versions"]}
    card["trained"] = _plain({
        "steps": steps, "seed": plan.seed, "environments": plan.environments, **made,
        "versions": versions,
    })  # fmt: skip
    network = Network(tuple(learnt.layers), by_row, card, learnt.rowless)
    seen = np.zeros(one.observation_space.shape, np.float32)
    network.card["us_per_decision"] = round(_seconds(lambda: network.scores(seen)) * 1e6, 1)
    return network


def environment_of(
    kind: str, source: Source, options: Mapping[str, Any], facility: Facility | None = None
) -> Any:
    """Make an environment.

    Raises:
        ConfigError: A facility is missing or not expected, or the environment rejects its
            arguments.
    """
    check_facility(kind, facility)
    return ENVIRONMENTS[kind](source, *(() if facility is None else (facility,)), **options)


def check_facility(kind: str, facility: Facility | None) -> None:
    """Check that a facility is given exactly if the environment needs one.

    Raises:
        ConfigError: Placement has no facility, or another environment has one.
    """
    if kind == "Placement" and facility is None:
        raise ConfigError("Placement needs a facility, among whose clusters it chooses; give one")
    if kind != "Placement" and facility is not None:
        raise ConfigError(
            f"a facility works only with Placement; {kind} has one cluster; remove the facility"
        )


def _machine(source: Source, facility: Facility | None) -> dict[str, Any]:
    """Return the card's entries about the cluster or facility."""
    if facility is None:
        return {"machine": source.cluster.name, "nodes": source.cluster.node_count}
    nodes = sum(one.cluster.node_count for one in facility.clusters)
    return {"machine": facility.name, "nodes": nodes, "clusters": facility.names}


def _by_gradients(
    kind: str,
    one: Any,
    plan: Plan,
    chosen: dict[str, Any],
    by_row: bool,
    progress: Callable[[float, float], None] | None,
) -> tuple[Learnt, int, dict[str, Any]]:
    """Return the network, the number of steps, and card entries about the method.

    Raises:
        ConfigError: Stable-Baselines3 is not installed, or as for `ppo.fit`.
    """
    try:
        from hpctwin.learn.environments.sb3 import Sb3VecEnv
        from hpctwin.learn.training import ppo
    except ImportError as error:
        raise ConfigError(
            f"training needs {error.name}, which is not installed: pip install 'hpctwin[train]'"
        ) from error
    many = Sb3VecEnv(one.many(plan.environments, plan.threads), seed=plan.seed)
    with closing(many), _tried(one, plan) as trial:
        imitated, shown = _shown(kind, one.episodes, plan, chosen) if plan.imitate else ("", None)
        learnt, steps = ppo.fit(
            many,
            plan,
            by_row=by_row,
            # The rewards of choosing jobs are sums over jobs of equal weight.
            whole=kind != "PowerManagement" or "reward" in chosen,
            trial=trial,
            shown=shown,
            progress=progress,
        )
    about: dict[str, Any] = {"imitated": imitated} if imitated else {}
    return learnt, steps, {**about, "with": ppo.NAME, "versions": ppo.VERSIONS}


def _by_evolution(
    kind: str,
    one: Any,
    plan: Plan,
    chosen: dict[str, Any],
    by_row: bool,
    progress: Callable[[float, float], None] | None,
) -> tuple[Learnt, int, dict[str, Any]]:
    """Return the same as `_by_gradients`, by `evolution.fit`."""
    with _tried(one, plan) as trial:
        learnt, steps = evolution.fit(one, plan, by_row=by_row, trial=trial, progress=progress)
    return learnt, steps, {"with": evolution.NAME, "versions": evolution.VERSIONS}


def _by_sums(
    kind: str,
    one: Any,
    plan: Plan,
    chosen: dict[str, Any],
    by_row: bool,
    progress: Callable[[float, float], None] | None,
) -> tuple[Learnt, int, dict[str, Any]]:
    """Return the same as `_by_gradients`, by `sums.fit`."""
    if not isinstance(one, SimulationEnv):
        raise ConfigError(
            f"learner cma needs compiled episodes, which {kind} does not support; use ppo "
            "or evolution"
        )
    starts = {
        name: sums.ordering_as_sum(name, chosen["observation"], one.task.nodes)
        for name in plan.imitate
    }
    learnt, steps, about = sums.fit(
        one.task, one.episodes, plan, by_row=by_row, limit=one.max_steps, starts=starts,
        progress=progress,
    )  # fmt: skip
    return learnt, steps, {**about, "with": sums.NAME, "versions": sums.VERSIONS}


@contextmanager
def _tried(one: Any, plan: Plan) -> Iterator[Trial | None]:
    """Yield the trial episodes; None if nothing is tried."""
    if not plan.trials:
        yield None
        return
    with closing(Trial(one, plan.trials)) as trial:
        yield trial


def _seconds(call: Callable[[], object]) -> float:
    """Return the processor time of a call in s, the shortest of several rounds."""

    def of_a_round() -> float:
        begin = time.process_time()
        for _ in range(20):
            call()
        return (time.process_time() - begin) / 20

    return min(of_a_round() for _ in range(5))


def check_options(kind: str, options: Mapping[str, Any]) -> None:
    """Check that the environment has the options, by its signature.

    Raises:
        UnknownNameError: It has no such option.
        ConfigError: An option has the wrong type.
    """
    makers = [ENVIRONMENTS[kind], *([power_management] if kind == "PowerManagement" else [])]
    known = {
        one.name: one.annotation
        for made in makers
        for one in signature(made, eval_str=True).parameters.values()
        if one.kind is one.KEYWORD_ONLY and one.name != "jobs"  # the episodes have that
    }
    for name, value in options.items():
        if name not in known:
            raise UnknownNameError(f"option of {kind}", name, sorted(known))
        hint = known[name]
        if hint is Any or hint == bool | str:
            continue  # the environment checks it
        if not set(get_args(hint) or [hint]) <= {bool, int, float, str, type(None)}:
            if isinstance(value, hint):
                continue
            raise ConfigError(f"option {name} of {kind}: it must be a name, not {value!r}")
        try:
            TypeAdapter(hint).validate_python(value, strict=True)
        except ValidationError as error:
            raise ConfigError(f"option {name} of {kind}: {first_fault(error)}") from error


def _shown(
    kind: str, source: Source, plan: Plan, chosen: dict[str, Any]
) -> tuple[str, tuple[Any, Any]]:
    """Return the ordering that is best on trials, with its observations and masks.

    Raises:
        ConfigError: Orderings cannot choose in this environment.
    """
    if kind != "JobSelection":
        raise ConfigError(
            f"imitation of orderings needs job selection; it does not work with {kind}"
        )
    earned: dict[str, float] = {}
    trials = {}
    for name in plan.imitate:
        ordered = JobSelectionEnv(source, **{**chosen, "order": name})
        trials[name] = Trial(ordered, max(plan.trials, 1))
        earned[name] = trials[name].play(first_in_order)
    best = max(earned, key=lambda name: earned[name])
    seen: list[Any] = []
    masks: list[Any] = []

    def watch(now: Any, there: Any, going: Any) -> None:
        seen.append(now[going])  # indexing by a mask copies
        masks.append(there[going])

    trials[best].play(first_in_order, watch)
    return best, (np.concatenate(seen), np.concatenate(masks))


def _plain(card: dict[str, Any]) -> dict[str, Any]:
    """Return only values that JSON has.

    Raises:
        ConfigError: There is another value, such as a custom function.
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
