"""Strategies that choose a cluster for each job without forecasts.

See `guided` for strategies with forecasts.

`View` has what a strategy may look at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from hpctwin.errors import ConfigError, PolicyError, UnknownNameError
from hpctwin.facility.config import Facility
from hpctwin.facility.jobs import FacilityJobs
from hpctwin.model import NEVER_MS, Workload

if TYPE_CHECKING:
    from hpctwin.facility.state import FacilityState, Knowledge

__all__ = ["Strategy", "View"]


class View(Protocol):
    """Present state of a facility, simulated or live, that strategies may read.

    Args:
        facility: The clusters.
        workload: The jobs.
        jobs: The jobs as each cluster sees them.
        rng: Generator of random choices.
        turn: Index of the next cluster of round-robin.
    """

    facility: Facility
    workload: Workload
    jobs: FacilityJobs
    rng: np.random.Generator
    turn: int

    def load(self, cluster: int, row: int) -> float:
        """Return the work per node of a cluster with a job added, in seconds."""

    def queued(self, cluster: int) -> int:
        """Return the number of jobs pending on a cluster or on their way to it."""

    def free_share(self, cluster: int) -> float:
        """Return the share of a cluster's nodes that is free, 0 to 1."""

    def likely_end_ms(self, row: int, cluster: int) -> int:
        """Return a rough estimate of a job's end on a cluster, in ms.

        Clusters with an early estimate are forecast first.
        """

    def forecast_end(
        self, row: int, cluster: int, latest_end_ms: int = NEVER_MS
    ) -> tuple[int, int]:
        """Return start and end of a job on a cluster if it is sent there now, in ms.

        Both are -1 if it does not end by ``latest_end_ms``.
        """

    def expect_end(self, row: int, end_ms: int) -> None:
        """Record the forecast end of a job that is placed next; -1 for no forecast."""

    def advance_all(self) -> None:
        """Advance all clusters to just before the present."""


@dataclass(frozen=True)
class Strategy(ABC):
    """Base of strategies, which send jobs to clusters.

    Args:
        every_s: Time between two calls of `tick` while jobs are pending, in seconds of simulated
            time; 0 for no calls.
        window_s: Jobs are placed together at multiples of this time, in seconds; 0 for at once.
    """

    every_s: float = field(default=0.0, kw_only=True)
    window_s: float = field(default=0.0, kw_only=True)

    @property
    @abstractmethod
    def name(self) -> str:
        """Text of the strategy in the form that `parse_strategy` reads."""

    @property
    def knowledge(self) -> Knowledge | None:
        """Runtimes that forecasts use; None without forecasts."""
        return None

    @property
    def spare(self) -> int:
        """Number of additional rows for jobs that only forecasts have."""
        return 0

    def place(self, rows: list[int], state: FacilityState) -> None:
        """Place or hold jobs that have arrived at the same time, in their order.

        Args:
            rows: Rows of the jobs.
            state: The facility, with `FacilityState.place` and `FacilityState.hold`.
        """
        for row in rows:
            options = state.options(row)
            if not options:
                state.hold(row)
            else:
                state.place(
                    row, options[0] if len(options) == 1 else self.pick(row, options, state)
                )

    def pick(self, row: int, options: list[int], state: View) -> int:
        """Choose one of two or more clusters for a job.

        Args:
            row: Row of the job.
            options: Indices of the clusters that it may go to.
            state: View of the facility.

        Raises:
            PolicyError: The strategy defines neither `pick` nor `place`.
        """
        raise PolicyError(f"strategy {self.name}: {type(self).__name__} has neither pick nor place")

    def tick(self, state: FacilityState) -> None:  # noqa: B027 - most have nothing to do then
        """Check the pending jobs again, every `every_s` seconds.

        Args:
            state: The facility; `FacilityState.move` moves a job.
        """


@dataclass(frozen=True)
class Siloed(Strategy):
    """The cluster to which the job was really submitted; the job is held for it."""

    @property
    def name(self) -> str:
        return "siloed"

    def place(self, rows: list[int], state: FacilityState) -> None:
        for row in rows:
            origin = int(state.jobs.origin[row])
            if origin < 0:
                raise ConfigError(
                    f"siloed: origin of job {state.workload.job_id[row]} is unknown; "
                    "define it under 'origin:' of the facility"
                )
            if not state.allowed[origin, row]:
                continue  # rejected by the cluster to which its user sent it
            if origin in state.options(row):
                state.place(row, origin)
            else:
                state.hold(row)


@dataclass(frozen=True)
class Random(Strategy):
    """A random cluster, each with the same probability."""

    @property
    def name(self) -> str:
        return "random"

    def pick(self, row: int, options: list[int], state: View) -> int:
        return options[int(state.rng.integers(len(options)))]


@dataclass(frozen=True)
class User(Strategy):
    """The fastest cluster for the job with a given probability, else another one.

    Each of the others has the same probability.
    """

    share: float = 0.6

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ConfigError(f"user({self.share:g}): share must be from 0 to 1")

    @property
    def name(self) -> str:
        return f"user({self.share:g})"

    def pick(self, row: int, options: list[int], state: View) -> int:
        factor = state.jobs.factor[:, state.jobs.kind[row]]
        fastest = min(options, key=lambda c: float(factor[c]))
        if state.rng.random() < self.share:
            return fastest
        others = [c for c in options if c != fastest]
        return others[int(state.rng.integers(len(others)))]


@dataclass(frozen=True)
class RoundRobin(Strategy):
    """One cluster after the other; clusters where a job may not go are skipped."""

    @property
    def name(self) -> str:
        return "round-robin"

    def pick(self, row: int, options: list[int], state: View) -> int:
        chosen = min(options, key=lambda c: (c - state.turn) % len(state.facility.clusters))
        state.turn = (chosen + 1) % len(state.facility.clusters)
        return chosen


@dataclass(frozen=True)
class LeastLoaded(Strategy):
    """The cluster with the least work ahead per node, including the job, by walltimes."""

    @property
    def name(self) -> str:
        return "least-loaded"

    def pick(self, row: int, options: list[int], state: View) -> int:
        state.advance_all()
        return min(options, key=lambda c: state.load(c, row))


@dataclass(frozen=True)
class ShortestQueue(Strategy):
    """The cluster with the fewest pending jobs; if equal, the least loaded one."""

    @property
    def name(self) -> str:
        return "shortest-queue"

    def pick(self, row: int, options: list[int], state: View) -> int:
        state.advance_all()
        return min(options, key=lambda c: (state.queued(c), state.load(c, row)))


@dataclass(frozen=True)
class MostFree(Strategy):
    """The cluster with the largest share of free nodes; if equal, the least loaded."""

    @property
    def name(self) -> str:
        return "most-free"

    def pick(self, row: int, options: list[int], state: View) -> int:
        state.advance_all()
        return min(options, key=lambda c: (-state.free_share(c), state.load(c, row)))


@dataclass(frozen=True)
class Always(Strategy):
    """One cluster for all jobs that may go there; else the first possible cluster."""

    cluster: str

    @property
    def name(self) -> str:
        return f"always({self.cluster})"

    def pick(self, row: int, options: list[int], state: View) -> int:
        names = state.facility.names
        if self.cluster not in names:
            raise UnknownNameError("cluster", self.cluster, names)
        wanted = names.index(self.cluster)
        return wanted if wanted in options else options[0]


@dataclass(frozen=True)
class Peer(Strategy):
    """PBS's peer scheduling: a cluster without pending jobs pulls jobs from others.

    A job first goes to the cluster to which it was really submitted; if that is unknown, to one
    cluster after the other. At each tick, a cluster without pending jobs pulls every job that it
    would start at once, in the order of the other clusters' queues.
    """

    every_s: float = field(default=600.0, kw_only=True)  # PBS's scheduler_iteration

    @property
    def name(self) -> str:
        return "peer"

    @property
    def knowledge(self) -> Knowledge | None:
        return "walltime"

    def pick(self, row: int, options: list[int], state: View) -> int:
        origin = int(state.jobs.origin[row])
        return origin if origin in options else RoundRobin().pick(row, options, state)

    def tick(self, state: FacilityState) -> None:
        state.advance_all()
        for here, cluster in enumerate(state.clusters):
            for there, other in enumerate(state.clusters):
                if here == there or cluster.queued or not other.queued:
                    continue
                for row in other.waiting().tolist():
                    if not (cluster.may_start(row) and state.allowed[here, row]):
                        continue
                    if state.starts_at_once(row, here):
                        state.move(row, here)
