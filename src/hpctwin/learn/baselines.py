"""Who is put beside an agent: itself, policies that need no training, and SchedTwin; each runs an episode."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from hpctwin.errors import PolicyError
from hpctwin.learn.episodes import Source
from hpctwin.learn.job_selection import PASSING
from hpctwin.learn.training import KINDS
from hpctwin.metrics import with_job_metrics
from hpctwin.model import Cluster, Workload
from hpctwin.policies import Policy, parse_policy
from hpctwin.policies.network import Network
from hpctwin.rms import events as ev
from hpctwin.simulation import Simulation
from hpctwin.twin.config import CoreSettings
from hpctwin.twin.core import Core
from hpctwin.twin.drive import drive
from hpctwin.twin.emulated import emulated_cluster

__all__ = [
    "ORDERINGS", "SCHEDTWIN", "Runner", "Setting", "of_policy", "policy_of", "run_policy", "schedtwin",
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

POOL = ("wfp", "fcfs", "sjf")
"""What SchedTwin chooses among (arXiv 2512.18894), with the agent's backfilling."""
SCHEDTWIN = "schedtwin"

Figures = dict[str, Any]
Runner = Callable[[Workload], Figures]
"""Runs an episode: mean bounded slowdown, mean wait (s), energy (J; None without power), time for each job
(µs), and how many jobs were served."""


@dataclass(frozen=True)
class Setting:
    """What an agent decides within: all else is the same for whoever is put beside it.

    Args:
        kind: the environment that it was trained in.
        order: what jobs are ordered by where the agent does not choose them.
        backfill: who may pass where it does not choose that; with settings, as a policy's text has it.

    Raises:
        PolicyError: such agents are not evaluated.
    """

    kind: str
    order: str
    backfill: str

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
            return cls(kind, order, backfill)
        raise PolicyError(f"an agent of {kind} has no baselines: {', '.join(KINDS)} have")

    def static(self) -> list[str]:
        """Policies that need no training."""
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


def agent(path: str | Path, source: Source) -> tuple[str, Runner]:
    """An agent's name in tables, and what runs it: as the policy that it is, else in its environment.

    Args:
        path: its file.
        source: of episodes.

    Raises:
        PolicyError: it is no such file, or has no baselines.
    """
    network = Network.load(path)
    Setting.of(network)
    try:
        policy = policy_of(path)
    except PolicyError:
        return str(path), played(network, source)
    return policy.name, of_policy(policy, source.cluster)


def played(network: Network, source: Source) -> Runner:
    """What has an agent choose in its environment: always what it scores highest."""
    environment = KINDS[network.card["environment"]](source, **network.card.get("options", {}))

    def run(jobs: Workload) -> Figures:
        begin = time.perf_counter()
        seen, _ = environment.reset(options={"jobs": jobs})
        over, told = False, {}
        while not over:
            scores = np.where(environment.action_masks(), network.scores(seen), -np.inf)
            seen, _, ended, cut, told = environment.step(int(scores.argmax()))
            over = ended or cut
        if cut:
            raise PolicyError(f"the agent leaves jobs of {jobs.name!r} waiting for good")
        us = (time.perf_counter() - begin) * 1e6 / len(jobs)
        return {"energy_j": None, **told, "us_per_job": us, "served": len(jobs)}

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
    return {**_means(result.jobs), "energy_j": energy_j, "us_per_job": us}


def _means(jobs: pl.DataFrame) -> Figures:
    served = with_job_metrics(jobs)
    slowdown, wait = served.select("bounded_slowdown", "wait_s").mean().row(0)
    return {
        "mean_bounded_slowdown": slowdown,
        "mean_wait_s": wait,
        "served": len(served["bounded_slowdown"].drop_nulls()),
    }


def schedtwin(backfill: str, cluster: Cluster) -> Runner:
    """What has the twin start jobs on an emulated cluster: at each event, under the best what-if of `POOL`.

    Its objective is that of the paper; it knows walltimes, not run times.

    Args:
        backfill: of its policies.
        cluster: the machine.
    """
    pool = [f"{order}+{backfill}" for order in POOL]
    settings = CoreSettings.checked({"pool": pool, "futures": 0}, SCHEDTWIN)

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
        return {**_means(table), "energy_j": None, "us_per_job": us}

    return run
