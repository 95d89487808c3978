"""Runners of episodes to compare: agents, untrained policies, and SchedTwin."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from hpctwin.errors import PolicyError
from hpctwin.facility import Facility, parse_strategy, simulate_facility
from hpctwin.learn import ENVIRONMENTS
from hpctwin.learn.environments.episodes import Source
from hpctwin.learn.environments.job_selection import PASSING
from hpctwin.learn.environments.placement import REWARDS
from hpctwin.learn.environments.task import by_name, served
from hpctwin.learn.training.custom import options_of
from hpctwin.learn.training.training import (
    DEFAULTS,
    check_facility,
    check_options,
    environment_of,
)
from hpctwin.model import Cluster, Workload
from hpctwin.policies import Policy, parse_policy
from hpctwin.policies.agents import Network
from hpctwin.rms.emulated import EmulatedCluster
from hpctwin.rms.records import events as ev
from hpctwin.simulation import Simulation
from hpctwin.twin.core.core import Core
from hpctwin.twin.emulated import emulated_cluster
from hpctwin.twin.service.virtual_time import Driven, drive, drive_each
from hpctwin.twin.settings.config import CoreSettings

__all__ = [
    "BY_CHANCE", "ORDERINGS", "SCHEDTWIN", "Machine", "Runner", "Setting", "agent", "by_chance", "name_of",
    "of_policy", "of_rule", "policy_of", "run_policy", "schedtwin", "twins",
]  # fmt: skip

ORDERINGS = (
    "fcfs", "sjf", "smallest", "smallest-area", "wfp", "unicef", "f1", "f2", "f3", "f4",
)  # fmt: skip
"""Orderings compared with agents that choose jobs."""
BACKFILLS = (
    "none", "first-fit", "easy", "easy/sjf", "easy/smallest-area", "conservative",
)  # fmt: skip
"""Backfills compared with agents that choose passing jobs, in the agent's order."""
POWERS = (
    "none", "psus:5m", "psus:20m", "psus:1h", "psas-auto:20m",
    "psas-ipm:5m", "psas-ipm:20m", "psas-ipm:1h",
)  # fmt: skip
"""Power policies compared with agents that switch nodes."""

STRATEGIES = (
    "round-robin", "shortest-queue", "most-free", "least-loaded", "earliest-start", "sgs-t",
)  # fmt: skip
"""Strategies compared with agents that choose clusters.

Each single cluster for all jobs is compared too. ``sgs-t`` is that of CQSim+ (SGS-T), by walltimes.
"""

POOL = ("wfp", "fcfs", "sjf")
"""Policies that SchedTwin chooses among (arXiv 2512.18894), plus the backfill."""
SCHEDTWIN = "schedtwin"
BY_CHANCE = "random"

Metric = Literal["mean_bounded_slowdown", "mean_wait_s", "mean_turnaround_s", "energy_j"]
METRICS: tuple[Metric, ...] = get_args(Metric)
EARNED = {metric.removeprefix("mean_"): metric for metric in METRICS}

Machine = Cluster | Facility
Figures = dict[str, Any]
Runner = Callable[[Workload], Figures]
"""Function that runs an episode and returns its metrics.

They are mean bounded slowdown, mean wait and turnaround (s), energy (J; None without power), time
per job (µs), and the number of jobs served.
"""
Choose = Callable[[Any, Any], int]
"""Function that makes a choice in an environment, from its observation."""


@dataclass(frozen=True)
class Setting:
    """Fixed part of an agent's decisions, the same for all baselines.

    Args:
        kind: Environment that the agent was trained in.
        order: Ordering of jobs, if the agent does not choose them.
        backfill: Backfill, if the agent does not choose passing jobs; with settings, as in a policy's
            text.
        pool: Policies that the agent chooses among; the first has this order and backfill.
        every_s: How long a choice of policy holds, in seconds.
        earns: Metric that the agent was trained for.

    Raises:
        PolicyError: Agents of this kind are not evaluated, or the card names no policies.
        UnknownNameError, ConfigError: The card has options that the environment does not have.
    """

    kind: str
    order: str = ""
    backfill: str = ""
    pool: tuple[str, ...] = ()
    every_s: float = 0.0
    earns: Metric = "mean_bounded_slowdown"

    @classmethod
    def of(cls, network: Network) -> Setting:
        """Return the setting of an agent, from its card."""
        kind, custom = str(network.card.get("environment")), network.card.get("custom", {})
        options = {
            name: value
            for name, value in network.card.get("options", {}).items()
            if name not in custom
        }
        if kind == "JobSelection":
            passing = PASSING[str(options.get("backfilling", False)).lower()]
            return cls(kind, "fcfs", "easy" if passing else "none")
        if kind == "Backfilling":
            return cls(kind, str(options.get("order", "fcfs")), "easy")
        if kind == "PowerManagement":
            name = parse_policy(str(options.get("policy", "fcfs+easy~orders"))).name
            order, _, backfill = name.rpartition("~")[0].rpartition("+")
            return cls(kind, order, backfill, earns="energy_j")
        if kind == "PolicySelection":
            check_options(kind, options)
            own = {**DEFAULTS[kind], **options}
            pool = tuple(dict.fromkeys(parse_policy(policy).name for policy in own["policies"]))
            if not pool:
                raise PolicyError("the card of the agent lists no policies to choose from")
            order, _, backfill = pool[0].rpartition("+")
            return cls(kind, order, backfill, pool, float(own["every_s"]), "mean_wait_s")
        if kind == "Placement":
            check_options(kind, options)
            reward = options.get("reward", DEFAULTS[kind]["reward"])
            return cls(kind, earns=EARNED[by_name("reward", reward, REWARDS)[0]])
        raise PolicyError(
            f"agents of {kind} have no baselines; supported: {', '.join(ENVIRONMENTS)}"
        )

    def static(self, machine: Machine) -> list[str]:
        """Return the untrained policies to compare; for a facility, strategies."""
        if isinstance(machine, Facility):
            return [*(f"always({name})" for name in machine.names), *STRATEGIES]
        if self.pool:
            return list(self.pool)
        if self.kind == "PowerManagement":
            return [self.powered(power) for power in POWERS]
        ordered = [f"{name}+{self.backfill}" for name in ORDERINGS]
        if self.kind == "JobSelection":
            return ordered
        return list(dict.fromkeys([*(f"{self.order}+{one}" for one in BACKFILLS), *ordered]))

    def powered(self, power: str) -> str:
        """Return the policy with a power policy."""
        return f"{self.order}+{self.backfill}~{power}"


def policy_of(path: str | Path) -> Policy:
    """Return an agent as a policy, with the backfill or order it was trained with.

    Raises:
        PolicyError: The file is no agent, or the agent cannot be part of a policy.
    """
    own = Setting.of(Network.load(path))
    if own.kind == "JobSelection":
        return parse_policy(f"{path}+{own.backfill}")
    if own.kind == "PowerManagement":
        return parse_policy(own.powered(str(path)))
    raise PolicyError(f"{path} is an agent of {own.kind}, which cannot be part of a policy")


def agent(
    path: str | Path,
    source: Source,
    facility: Facility | None = None,
    observation: str | None = None,
) -> tuple[str, Runner]:
    """Return an agent's name in tables, and its runner.

    An agent that can be a policy runs as one; others run in their environment.

    Raises:
        PolicyError: The file is no agent, or the agent has no baselines or scores a different
            number of choices.
        ConfigError: A facility is missing or not expected.
    """
    network = Network.load(path)
    kind = Setting.of(network).kind
    check_facility(kind, facility)
    try:
        policy = policy_of(path)
    except PolicyError:
        environment = environment_of(kind, source, options_of(network.card, observation), facility)
        _check_fits(path, network, environment)
        return str(path), played(environment, scored_highest(network))
    return policy.name, of_policy(policy, source.cluster)


def _check_fits(path: str | Path, network: Network, environment: Any) -> None:
    """Check that an agent's inputs and choices match those of the environment."""
    shape, choices = environment.observation_space.shape, int(environment.action_space.n)
    inputs = shape[-1] if network.by_row else int(np.prod(shape))
    scored = len(network.layers[-1][1])
    if network.by_row:
        scored = shape[0] + len(network.rowless)
    own = network.layers[0][0].shape[1]
    if (own, scored) != (inputs, choices):
        raise PolicyError(
            f"{path} scores {scored} choices by {own} numbers, but this task has {choices} "
            f"choices and {inputs} numbers"
        )


def scored_highest(network: Network) -> Choose:
    """Return the function that takes the choice an agent scores highest."""

    def choose(environment: Any, seen: Any) -> int:
        scores = np.where(environment.action_masks(), network.scores(seen), -np.inf)
        return int(scores.argmax())

    return choose


def by_chance(environment: Any) -> Runner:
    """Return a runner that takes random allowed choices, with a fixed seed."""
    rng = np.random.default_rng(0)
    return played(
        environment, lambda one, seen: int(rng.choice(np.flatnonzero(one.action_masks())))
    )


def played(environment: Any, choose: Choose) -> Runner:
    """Return a runner that makes choices in an environment."""

    def run(jobs: Workload) -> Figures:
        begin = time.perf_counter()
        seen, _ = environment.reset(options={"jobs": jobs})
        over, told = False, {}
        while not over:
            seen, _, ended, cut, told = environment.step(choose(environment, seen))
            over = ended or cut
        if cut:
            raise PolicyError(f"agent leaves jobs of {jobs.name!r} pending indefinitely")
        us = (time.perf_counter() - begin) * 1e6 / len(jobs)
        return {"energy_j": None, "served": len(jobs), **told, "us_per_job": us}

    return run


def name_of(text: str, machine: Machine) -> str:
    """Return the name of a policy, or of a facility's strategy, in tables.

    Raises:
        UnknownNameError, PolicyError, ConfigError: There is no such policy or strategy.
    """
    return (parse_strategy if isinstance(machine, Facility) else parse_policy)(text).name


def of_rule(text: str, machine: Machine) -> Runner:
    """Return a runner of episodes under a policy, or under a strategy of a facility."""
    if isinstance(machine, Facility):
        return of_strategy(text, machine)
    return of_policy(parse_policy(text), machine)


def of_strategy(text: str, facility: Facility, **options: Any) -> Runner:
    """Return a runner of episodes under a strategy; options as for `parse_strategy`."""

    def run(jobs: Workload) -> Figures:
        begin = time.perf_counter()
        result = simulate_facility(facility, jobs, parse_strategy(text, **options))
        us = (time.perf_counter() - begin) * 1e6 / len(jobs)
        return {**served(result.jobs), "energy_j": None, "us_per_job": us}

    return run


def of_policy(policy: Policy, cluster: Cluster) -> Runner:
    """Return a runner of episodes under a policy."""
    return lambda jobs: _figures(run_policy(jobs, cluster, policy))


def run_policy(jobs: Workload, cluster: Cluster, policy: Policy) -> Simulation:
    """Return a finished simulation of the jobs."""
    simulation = Simulation(jobs, cluster, policy)
    simulation.compiled_policy()
    simulation.advance()
    return simulation


def _figures(simulation: Simulation) -> Figures:
    result = simulation.result()
    energy_j = None if result.energy is None else result.energy.total_j
    us = simulation.engine_s * 1e6 / len(simulation.workload)
    return {**served(result.jobs), "energy_j": energy_j, "us_per_job": us}


def twins(setting: Setting, cluster: Cluster) -> dict[str, Runner]:
    """Return SchedTwin's runners by name; it decides at each event.

    For agents that choose policies, it is also run at the agents' decision times.
    """
    if not setting.pool:
        pool = [f"{order}+{setting.backfill}" for order in POOL]
        return {f"{SCHEDTWIN}+{setting.backfill}": schedtwin(pool, cluster)}
    at_times = partial(drive_each, every_s=setting.every_s)
    return {
        SCHEDTWIN: schedtwin(setting.pool, cluster),
        f"{SCHEDTWIN}, each {setting.every_s:g} s": schedtwin(setting.pool, cluster, at_times),
    }


def schedtwin(
    pool: Sequence[str],
    cluster: Cluster,
    drive: Callable[[EmulatedCluster, Core], Driven] = drive,
) -> Runner:
    """Return a runner in which the twin starts jobs by the best what-if of a pool.

    The cluster is emulated, and the objective is that of the paper. The twin knows walltimes, not
    runtimes.

    Args:
        pool: The policies.
        cluster: The cluster.
        drive: Function that runs the twin: at each event, or at intervals as `drive_each`.
    """
    settings = CoreSettings.checked({"pool": list(pool), "futures": 0}, SCHEDTWIN)

    def run(jobs: Workload) -> Figures:
        core = Core(settings)
        times: dict[str, list[float | None]] = {}

        def publish(event: ev.Event) -> None:
            match event:
                case ev.JobSubmitted():
                    times[event.job.id] = [event.job.submit_s, None, None, event.job.nodes]
                case ev.JobStarted():
                    times[event.job_id][1] = event.time_s
                case ev.JobEnded():
                    times[event.job_id][2] = event.time_s
            core.take_event(event)

        driven = drive(emulated_cluster(cluster, jobs, publish=publish), core)
        table = pl.DataFrame(
            list(times.values()), ["submit_s", "start_s", "end_s", "nodes"], orient="row"
        )
        us = driven.cycle_s * 1e6 / len(jobs)
        return {**served(table), "energy_j": None, "us_per_job": us}

    return run
