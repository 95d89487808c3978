"""Who is put beside an agent: itself, policies that need no training, and SchedTwin; each runs an episode."""

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
from hpctwin.learn.environments.episodes import Source
from hpctwin.learn.environments.job_selection import PASSING
from hpctwin.learn.environments.placement import REWARDS
from hpctwin.learn.environments.served import served
from hpctwin.learn.environments.task import by_name
from hpctwin.learn.training.training import (
    DEFAULTS,
    KINDS,
    check_facility,
    check_options,
    environment_of,
)
from hpctwin.model import Cluster, Workload
from hpctwin.policies import Policy, parse_policy
from hpctwin.policies.agents.network import Network
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
"""Beside agents that choose jobs."""
BACKFILLS = (
    "none", "first-fit", "easy", "easy/sjf", "easy/smallest-area", "conservative",
)  # fmt: skip
"""Beside agents that choose who may pass, in the agent's own order."""
POWERS = (
    "none", "psus:5m", "psus:20m", "psus:1h", "psas-auto:20m",
    "psas-ipm:5m", "psas-ipm:20m", "psas-ipm:1h",
)  # fmt: skip
"""Beside agents that switch nodes."""

STRATEGIES = (
    "round-robin", "shortest-queue", "most-free", "least-loaded", "earliest-start", "sgs-t",
)  # fmt: skip
"""Beside agents that choose clusters, and each cluster for all; sgs-t is CQSim+'s (SGS-T), by walltimes."""

POOL = ("wfp", "fcfs", "sjf")
"""What SchedTwin chooses among (arXiv 2512.18894), with the agent's backfilling."""
SCHEDTWIN = "schedtwin"
BY_CHANCE = "random"

Metric = Literal["mean_bounded_slowdown", "mean_wait_s", "mean_turnaround_s", "energy_j"]
METRICS: tuple[Metric, ...] = get_args(Metric)
EARNED = {metric.removeprefix("mean_"): metric for metric in METRICS}

Machine = Cluster | Facility
Figures = dict[str, Any]
Runner = Callable[[Workload], Figures]
"""Runs an episode: mean bounded slowdown, mean wait and turnaround (s), energy (J; None without power), time
for each job (µs), and how many jobs were served."""
Choose = Callable[[Any, Any], int]
"""A choice in an environment, given what is seen."""


@dataclass(frozen=True)
class Setting:
    """What an agent decides within: all else is the same for whoever is put beside it.

    Args:
        kind: the environment that it was trained in.
        order: what jobs are ordered by where the agent does not choose them.
        backfill: who may pass where it does not choose that; with settings, as a policy's text has it.
        pool: policies that it chooses among; its first has the order and the backfill.
        every_s: how long a choice of these holds, seconds.
        earns: the metric that it was trained for.

    Raises:
        PolicyError: such agents are not evaluated, or its card names no policies.
        UnknownNameError, ConfigError: its card has other options than such an environment.
    """

    kind: str
    order: str = ""
    backfill: str = ""
    pool: tuple[str, ...] = ()
    every_s: float = 0.0
    earns: Metric = "mean_bounded_slowdown"

    @classmethod
    def of(cls, network: Network) -> Setting:
        """That of an agent, by its card."""
        kind, options = str(network.card.get("environment")), network.card.get("options", {})
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
                raise PolicyError("the agent's card names no policies to choose among")
            order, _, backfill = pool[0].rpartition("+")
            return cls(kind, order, backfill, pool, float(own["every_s"]), "mean_wait_s")
        if kind == "Placement":
            check_options(kind, options)
            reward = options.get("reward", DEFAULTS[kind]["reward"])
            return cls(kind, earns=EARNED[by_name("reward", reward, REWARDS)[0]])
        raise PolicyError(f"an agent of {kind} has no baselines: {', '.join(KINDS)} have")

    def static(self, machine: Machine) -> list[str]:
        """Policies that need no training; of a facility, strategies."""
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
        """The policy with a power policy."""
        return f"{self.order}+{self.backfill}~{power}"


def policy_of(path: str | Path) -> Policy:
    """The policy that an agent is, with the backfill, or order, that it was trained with.

    Raises:
        PolicyError: it is no such file, or can be no part of a policy.
    """
    own = Setting.of(Network.load(path))
    if own.kind == "JobSelection":
        return parse_policy(f"{path}+{own.backfill}")
    if own.kind == "PowerManagement":
        return parse_policy(own.powered(str(path)))
    raise PolicyError(f"{path} is an agent of {own.kind}, which is no part of a policy")


def agent(path: str | Path, source: Source, facility: Facility | None = None) -> tuple[str, Runner]:
    """An agent's name in tables, and what runs it: as the policy that it is, else in its environment.

    Args:
        path: its file.
        source: of episodes.
        facility: the clusters, of an agent of Placement.

    Raises:
        PolicyError: it is no such file, or has no baselines, or scores other choices than there are.
        ConfigError: a facility is missing or not wanted.
    """
    network = Network.load(path)
    kind = Setting.of(network).kind
    check_facility(kind, facility)
    try:
        policy = policy_of(path)
    except PolicyError:
        environment = environment_of(kind, source, network.card.get("options", {}), facility)
        _check_fits(path, network, environment)
        return str(path), played(environment, scored_highest(network))
    return policy.name, of_policy(policy, source.cluster)


def _check_fits(path: str | Path, network: Network, environment: Any) -> None:
    """Find out whether an agent sees and scores what there is."""
    shape, choices = environment.observation_space.shape, int(environment.action_space.n)
    inputs = shape[-1] if network.by_row else int(np.prod(shape))
    scored = len(network.layers[-1][1])
    if network.by_row:
        scored = shape[0] + len(network.rowless)
    own = network.layers[0][0].shape[1]
    if (own, scored) != (inputs, choices):
        raise PolicyError(
            f"{path} scores {scored} choices by {own} numbers; here {inputs} numbers are seen, and there "
            f"are {choices} choices"
        )


def scored_highest(network: Network) -> Choose:
    """What an agent chooses."""

    def choose(environment: Any, seen: Any) -> int:
        scores = np.where(environment.action_masks(), network.scores(seen), -np.inf)
        return int(scores.argmax())

    return choose


def by_chance(environment: Any) -> Runner:
    """What chooses anything that there is, with a seed of its own."""
    rng = np.random.default_rng(0)
    return played(
        environment, lambda one, seen: int(rng.choice(np.flatnonzero(one.action_masks())))
    )


def played(environment: Any, choose: Choose) -> Runner:
    """What has somebody choose in an environment."""

    def run(jobs: Workload) -> Figures:
        begin = time.perf_counter()
        seen, _ = environment.reset(options={"jobs": jobs})
        over, told = False, {}
        while not over:
            seen, _, ended, cut, told = environment.step(choose(environment, seen))
            over = ended or cut
        if cut:
            raise PolicyError(f"the agent leaves jobs of {jobs.name!r} waiting for good")
        us = (time.perf_counter() - begin) * 1e6 / len(jobs)
        return {"energy_j": None, "served": len(jobs), **told, "us_per_job": us}

    return run


def name_of(text: str, machine: Machine) -> str:
    """How a policy, or a facility's strategy, is called in tables.

    Raises:
        UnknownNameError, PolicyError, ConfigError: there is no such.
    """
    return (parse_strategy if isinstance(machine, Facility) else parse_policy)(text).name


def of_rule(text: str, machine: Machine) -> Runner:
    """What runs episodes under a policy, or in a facility under a strategy."""
    if isinstance(machine, Facility):
        return of_strategy(text, machine)
    return of_policy(parse_policy(text), machine)


def of_strategy(text: str, facility: Facility, **options: Any) -> Runner:
    """What runs episodes in a facility under a strategy; options as of `parse_strategy`."""

    def run(jobs: Workload) -> Figures:
        begin = time.perf_counter()
        result = simulate_facility(facility, jobs, parse_strategy(text, **options))
        us = (time.perf_counter() - begin) * 1e6 / len(jobs)
        return {**served(result.jobs), "energy_j": None, "us_per_job": us}

    return run


def of_policy(policy: Policy, cluster: Cluster) -> Runner:
    """What runs episodes under a policy."""
    return lambda jobs: _figures(run_policy(jobs, cluster, policy))


def run_policy(jobs: Workload, cluster: Cluster, policy: Policy) -> Simulation:
    """A simulation that is over."""
    simulation = Simulation(jobs, cluster, policy)
    simulation.decided()
    simulation.advance()
    return simulation


def _figures(simulation: Simulation) -> Figures:
    result = simulation.result()
    energy_j = None if result.energy is None else result.energy.total_j
    us = simulation.engine_s * 1e6 / len(simulation.workload)
    return {**served(result.jobs), "energy_j": energy_j, "us_per_job": us}


def twins(setting: Setting, cluster: Cluster) -> dict[str, Runner]:
    """SchedTwin by its name in tables: at each event; beside agents that choose policies, as these do too."""
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
    """What has the twin start jobs on an emulated cluster, under the best what-if of a pool.

    Its objective is that of the paper; it knows walltimes, not run times.

    Args:
        pool: the policies.
        cluster: the machine.
        drive: when it looks: at each event, or as of `drive_each`.
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
