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
from hpctwin.learn import evolution, sums
from hpctwin.learn.backfilling import Backfilling
from hpctwin.learn.best import Learnt
from hpctwin.learn.environment import Environments
from hpctwin.learn.episodes import Source
from hpctwin.learn.job_selection import JobSelection
from hpctwin.learn.plan import Plan
from hpctwin.learn.power_management import PowerManagement, power_management
from hpctwin.learn.trial import Trial, first_in_order
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
        "window": 128,
        "backfilling": False,
        "reward": "relative",
    },
    "Backfilling": {"observation": "job", "window": 64, "order": "fcfs", "reward": "relative"},
    "PowerManagement": {"observation": "shares", "levels": 17, "every_s": 1800.0},
}
"""Options of each that training sets unless others are given: agents that can be parts of a policy."""

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
    plan = Plan() if plan is None else plan
    chosen = {**DEFAULTS[kind], **(options or {})}
    if plan.learner in BY_TRYING and "reward" not in (options or {}) and "reward" in chosen:
        chosen["reward"] = BY_TRYING[plan.learner]
    one = KINDS[kind](source, **chosen)
    by_row = len(one.observation_space.shape) == 2
    learn = {"ppo": _by_gradients, "evolution": _by_evolution, "cma": _by_sums}[plan.learner]
    learnt, steps, made = learn(kind, one, plan, chosen, by_row, progress)
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
        from hpctwin.learn import ppo
        from hpctwin.learn.sb3 import Sb3Environments
    except ImportError as error:
        raise ConfigError(
            f"training needs {error.name}, which is not installed: pip install 'hpctwin[train]'"
        ) from error
    environments = Environments(
        one.task, one.episodes, plan.environments, one.max_steps, plan.threads
    )
    many = Sb3Environments(environments, seed=plan.seed)
    with closing(many), _tried(one, plan) as trial:
        imitated, shown = _shown(kind, one.episodes, plan, chosen) if plan.imitate else ("", None)
        learnt, steps = ppo.fit(
            many,
            plan,
            by_row=by_row,
            whole="reward" in chosen,  # of jobs, which all count alike
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
        learnt, steps = evolution.fit(
            one.task, one.episodes, plan, by_row=by_row, limit=one.max_steps, trial=trial,
            progress=progress,
        )  # fmt: skip
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
    with closing(Trial(one.task, one.episodes, plan.trials, one.max_steps)) as trial:
        yield trial


def _seconds(call: Callable[[], object]) -> float:
    """Processor time of a call, s: the least of some rounds."""

    def of_a_round() -> float:
        begin = time.process_time()
        for _ in range(20):
            call()
        return (time.process_time() - begin) / 20

    return min(of_a_round() for _ in range(5))


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
        task = JobSelection(source, **{**chosen, "order": name}).task
        trials[name] = Trial(task, source, max(plan.trials, 1))
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
