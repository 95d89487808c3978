"""Training an agent: with sb3-contrib's maskable PPO (Huang and Ontañón 2022), or by trying weights."""

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
from hpctwin.learn.environments.backfilling import Backfilling
from hpctwin.learn.environments.environment import Environment
from hpctwin.learn.environments.episodes import Source
from hpctwin.learn.environments.job_selection import JobSelection
from hpctwin.learn.environments.placement import Placement
from hpctwin.learn.environments.policy_selection import PolicySelection
from hpctwin.learn.environments.power_management import PowerManagement, power_management
from hpctwin.learn.training import evolution, sums
from hpctwin.learn.training.best import Learnt
from hpctwin.learn.training.plan import Plan
from hpctwin.learn.training.trial import Trial, first_in_order
from hpctwin.model.input.settings import first_fault
from hpctwin.policies.agents.network import Network

__all__ = ["DEFAULTS", "KINDS", "check_facility", "check_options", "environment_of", "train"]

KINDS: dict[str, Any] = {
    made.__name__: made
    for made in (JobSelection, Backfilling, PowerManagement, PolicySelection, Placement)
}
"""What agents are trained in, by name."""

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
"""Options of each that training sets unless others are given: agents that can be parts of a policy where
such are there."""

BY_TRYING = {"evolution": "slowdown", "cma": "bounded-slowdown"}
"""Learners that take what an episode earns in all, and the reward where jobs are chosen: to have it relative
to something would take time."""


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
        kind: a name of `KINDS`.
        source: where episodes come from.
        plan: how.
        options: of the environment; see `DEFAULTS`.
        progress: called with the share of steps done and the mean of what was earned lately.
        about: what the model card is to say besides, such as the trace.
        facility: the clusters of Placement; the others take none.

    Returns:
        The network, with its card.

    Raises:
        UnknownNameError: there is no such kind, or it has no such option.
        ConfigError: an option is of another type, Stable-Baselines3 is not installed, or as the
            environment tells.
    """
    if kind not in KINDS:
        raise UnknownNameError("environment", kind, list(KINDS))
    check_options(kind, options or {})
    plan = Plan() if plan is None else plan
    chosen = {**DEFAULTS[kind], **(options or {})}
    if chosen.get("reward") == RELATIVE and "reward" not in (options or {}):
        chosen["reward"] = BY_TRYING.get(plan.learner, RELATIVE)
    one = environment_of(kind, source, chosen, facility)
    by_row = len(one.observation_space.shape) == 2
    learn = {"ppo": _by_gradients, "evolution": _by_evolution, "cma": _by_sums}[plan.learner]
    learnt, steps, made = learn(kind, one, plan, chosen, by_row, progress)
    card = {
        "environment": kind,
        "options": chosen,
        **_machine(source, facility),
        "jobs": source.jobs,
        "trained": {
            "steps": steps,
            "seed": plan.seed,
            "environments": plan.environments,
            **made,
            "versions": {
                "hpctwin": __version__,
                "python": platform.python_version(),
                **made["versions"],
            },
        },
        **(about or {}),
    }
    network = Network(tuple(learnt.layers), by_row, _plain(card), learnt.rowless)
    seen = np.zeros(one.observation_space.shape, np.float32)
    network.card["us_per_decision"] = round(_seconds(lambda: network.scores(seen)) * 1e6, 1)
    return network


def environment_of(
    kind: str, source: Source, options: Mapping[str, Any], facility: Facility | None = None
) -> Any:
    """An environment.

    Args:
        kind: a name of `KINDS`.
        source: where episodes come from.
        options: of it.
        facility: the clusters of Placement.

    Raises:
        ConfigError: a facility is missing or not wanted, or as the environment tells.
    """
    check_facility(kind, facility)
    return KINDS[kind](source, *(() if facility is None else (facility,)), **options)


def check_facility(kind: str, facility: Facility | None) -> None:
    """Find out whether a kind of environment has what it chooses on.

    Raises:
        ConfigError: Placement has no facility, or another kind has one.
    """
    if kind == "Placement" and facility is None:
        raise ConfigError("Placement chooses among the clusters of a facility: give one")
    if kind != "Placement" and facility is not None:
        raise ConfigError(f"a facility is for Placement; {kind} has one machine: leave it out")


def _machine(source: Source, facility: Facility | None) -> dict[str, Any]:
    """What the card says of it."""
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
    """What was learnt, in how many steps, and what the card says of how.

    Raises:
        ConfigError: Stable-Baselines3 is not installed, or as of `ppo.fit`.
    """
    try:
        from hpctwin.learn.environments.sb3 import Sb3Environments
        from hpctwin.learn.training import ppo
    except ImportError as error:
        raise ConfigError(
            f"training needs {error.name}, which is not installed: pip install 'hpctwin[train]'"
        ) from error
    many = Sb3Environments(one.many(plan.environments, plan.threads), seed=plan.seed)
    with closing(many), _tried(one, plan) as trial:
        imitated, shown = _shown(kind, one.episodes, plan, chosen) if plan.imitate else ("", None)
        learnt, steps = ppo.fit(
            many,
            plan,
            by_row=by_row,
            # Of jobs, which all count alike.
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
    """The same, as of `evolution.fit`."""
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
    """The same, as of `sums.fit`."""
    if not isinstance(one, Environment):
        raise ConfigError(
            f"learner cma plays compiled episodes, and {kind} has none; take ppo or evolution"
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
    """Where what was learnt so far is tried; None for nowhere."""
    if not plan.trials:
        yield None
        return
    with closing(Trial(one, plan.trials)) as trial:
        yield trial


def _seconds(call: Callable[[], object]) -> float:
    """Processor time of a call, s: the least of some rounds."""

    def of_a_round() -> float:
        begin = time.process_time()
        for _ in range(20):
            call()
        return (time.process_time() - begin) / 20

    return min(of_a_round() for _ in range(5))


def check_options(kind: str, options: Mapping[str, Any]) -> None:
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
        if hint is Any or hint == bool | str:
            continue  # the environment tells
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
    """The ordering that does best on trials, and what it had before it: what was seen, and masks.

    Args:
        kind: the environment.
        source: where episodes come from.
        plan: how it is trained.
        chosen: options of the environment.

    Raises:
        ConfigError: it is no environment in which an ordering chooses.
    """
    if kind != "JobSelection":
        raise ConfigError(f"orderings can be imitated where jobs are selected, not in {kind}")
    earned: dict[str, float] = {}
    trials = {}
    for name in plan.imitate:
        ordered = JobSelection(source, **{**chosen, "order": name})
        trials[name] = Trial(ordered, max(plan.trials, 1))
        earned[name] = trials[name].play(first_in_order)
    best = max(earned, key=lambda name: earned[name])
    seen: list[Any] = []
    masks: list[Any] = []

    def watch(now: Any, there: Any, going: Any) -> None:
        seen.append(now[going])  # an index by truth copies
        masks.append(there[going])

    trials[best].play(first_in_order, watch)
    return best, (np.concatenate(seen), np.concatenate(masks))


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
