"""Episodes: what an agent is trained and tested on."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from hpctwin.errors import ConfigError
from hpctwin.generate import generate
from hpctwin.model import Cluster, Workload
from hpctwin.simulation.running.window import from_its_first_job
from hpctwin.simulation.state.arguments import as_cluster, as_workload

__all__ = [
    "Curriculum",
    "Drawn",
    "Episodes",
    "Generated",
    "Source",
    "asked_for",
    "episodes_of",
    "jobs_of_reset",
]


class Drawn(NamedTuple):
    """An episode that was drawn.

    Args:
        key: the same for the same jobs; None if they will not come again.
        make: its jobs.
    """

    key: Hashable | None
    make: Callable[[], Workload]


class Source(Protocol):
    """Where episodes come from."""

    @property
    def cluster(self) -> Cluster:
        """The machine of all of them."""

    @property
    def jobs(self) -> int:
        """How many jobs each has."""

    def draw(self, rng: np.random.Generator) -> Drawn:
        """One of them, at random."""

    def beginning_at(self, job: int) -> Workload:
        """The one that begins with a job of the trace."""

    def all_jobs(self) -> Workload:
        """All jobs that they are of, or as many that are like them."""

    def restart(self) -> None:
        """From the first stage on, if there are several."""


@dataclass(frozen=True, eq=False)
class Episodes:
    """Jobs in a row, begun anywhere in a trace.

    Args:
        workload: the jobs.
        cluster: the machine.
        jobs: of each episode.
        first: the first episode begins at this job or later.
        last: and ends before this one; None for the end of the trace.
        load: each episode's jobs come closer together or further apart, so that they offer the machine a load
            drawn between these two; None to leave them as they came.
        walltime_error: each walltime is the runtime times a factor drawn between these two, but not below the
            runtime; None to leave them as they were asked.
        mixed: jobs come when those in a row came, and are otherwise any of the part, so that there are many
            more episodes; for jobs that hardly depend on those before, as of a model.
    """

    workload: Workload
    cluster: Cluster
    jobs: int = 256
    first: int = 0
    last: int | None = None
    load: tuple[float, float] | None = None
    walltime_error: tuple[float, float] | None = None
    mixed: bool = False

    @classmethod
    def of(
        cls,
        workload: Workload | str | os.PathLike[str],
        cluster: Cluster | int | str | os.PathLike[str],
        *,
        jobs: int = 256,
        first: int = 0,
        last: int | None = None,
        load: tuple[float, float] | None = None,
        walltime_error: tuple[float, float] | None = None,
        mixed: bool = False,
    ) -> Episodes:
        """Episodes of a trace on a machine; jobs that can never run there, and dependencies, are left out.

        Args:
            workload: the jobs, or the path of a trace.
            cluster: the machine, a number of equal nodes, or the path of a machine's file.
            jobs: of each episode.
            first: where the first may begin.
            last: before which the last ends.
            load: between which the load of each is drawn.
            walltime_error: between which the factor of each walltime is drawn.
            mixed: whether other jobs of the part come in the place of each.

        Raises:
            ConfigError: there are fewer jobs than one episode takes, or a range is none.
        """
        machine = as_cluster(cluster)
        found = as_workload(workload)
        found = found.take(found.nodes <= machine.node_count)
        end = len(found) if last is None else min(last, len(found))
        if not 1 <= jobs <= end - first:
            raise ConfigError(
                f"an episode takes {jobs} jobs, and there are {max(0, end - first)} from job {first} on; "
                "give fewer, at least 1"
            )
        _check_range("load", load, 0.0)
        _check_range("walltime_error", walltime_error, 1.0)
        return cls(found, machine, jobs, first, end, load, walltime_error, mixed)

    def draw(self, rng: np.random.Generator) -> Drawn:
        """One of them, at random."""
        first = int(rng.integers(self.first, self.latest + 1))
        if not self.varied:
            return Drawn(first, partial(self.beginning_at, first))
        return Drawn(None, partial(self._varied, first, int(rng.integers(2**62))))

    @property
    def varied(self) -> bool:
        """Whether jobs are not as they are in the trace."""
        return self.mixed or self.load is not None or self.walltime_error is not None

    @property
    def latest(self) -> int:
        """The last job that an episode can begin with."""
        return (len(self.workload) if self.last is None else self.last) - self.jobs

    def beginning_at(self, job: int) -> Workload:
        """The one that begins with a job, by its row, as it is in the trace.

        Raises:
            ConfigError: none begins there.
        """
        if not self.first <= job <= self.latest:
            raise ConfigError(
                f"no episode begins with job {job}; they begin with {self.first} to {self.latest}"
            )
        return from_its_first_job(self.workload.take(np.arange(job, job + self.jobs)))

    def all_jobs(self) -> Workload:
        """The trace."""
        return self.workload

    def restart(self) -> None:
        """There is one stage."""

    def _varied(self, first: int, seed: int) -> Workload:
        rng = np.random.default_rng(seed)
        found = self.beginning_at(first)
        if self.mixed:
            found = self._others(found, rng)
        if self.walltime_error is not None:
            factor = rng.uniform(*self.walltime_error, len(found))
            walltime = np.maximum(np.ceil(found.runtime_ms * factor).astype(np.int64), 1)
            found = dataclasses.replace(found, walltime_ms=walltime)
        if self.load is not None and found.submit_ms[-1] > 0:
            found = found.scale(float(rng.uniform(*self.load)), self.cluster.node_count)
        return found

    def _others(self, row: Workload, rng: np.random.Generator) -> Workload:
        """Any jobs of the part, in the places of some in a row."""
        end = len(self.workload) if self.last is None else self.last
        drawn = self.workload.in_order(self.first + rng.permutation(end - self.first)[: self.jobs])
        cancelled = np.where(
            drawn.cancel_ms >= 0, drawn.cancel_ms - drawn.submit_ms + row.submit_ms, -1
        )
        return drawn.replace(
            job_id=row.job_id,
            submit_ms=row.submit_ms,
            cancel_ms=cancelled,
            recorded_start_ms=np.full(self.jobs, -1),
            start_epoch_s=row.start_epoch_s,
        )


@dataclass(frozen=True, eq=False)
class Generated:
    """Episodes from a generator, each with a seed of its own.

    Args:
        cluster: the machine.
        kind: the generator's name, see `hpctwin.generate`.
        jobs: of each episode.
        options: of the generator.
    """

    cluster: Cluster
    kind: str = "poisson"
    jobs: int = 256
    options: Mapping[str, Any] = field(default_factory=dict)

    def draw(self, rng: np.random.Generator) -> Drawn:
        """One of them, at random."""
        return Drawn(None, partial(self.beginning_at, int(rng.integers(2**31))))

    def beginning_at(self, job: int) -> Workload:
        """The one with a seed."""
        made = generate(
            self.kind, jobs=self.jobs, nodes=self.cluster.node_count, seed=job, **self.options
        )
        return from_its_first_job(made)

    def all_jobs(self) -> Workload:
        """One of them."""
        return self.beginning_at(0)

    def restart(self) -> None:
        """There is one stage."""


class Curriculum:
    """Episodes in stages: so many of the first, then of the next; the last for good.

    Args:
        stages: how many episodes, and where they come from; all of one machine.

    Raises:
        ConfigError: there is no stage, or they are of different machines.
    """

    def __init__(self, stages: Sequence[tuple[int, Source]]) -> None:
        if not stages:
            raise ConfigError("a curriculum needs a stage, such as (100, Episodes.of(…))")
        self.stages = tuple(stages)
        self.cluster = stages[0][1].cluster
        if any(source.cluster != self.cluster for _, source in stages):
            raise ConfigError("all stages of a curriculum must be of one machine")
        self.jobs = max(source.jobs for _, source in stages)
        self._begun = 0

    def draw(self, rng: np.random.Generator) -> Drawn:
        """One of the stage that it is in."""
        left = self._begun
        self._begun += 1
        for number, (count, source) in enumerate(self.stages):
            if left < count or number == len(self.stages) - 1:
                key, make = source.draw(rng)
                return Drawn(None if key is None else (number, key), make)
            left -= count
        raise AssertionError

    def beginning_at(self, job: int) -> Workload:
        """The one of the last stage that begins with a job."""
        return self.stages[-1][1].beginning_at(job)

    def all_jobs(self) -> Workload:
        """Those of the last stage."""
        return self.stages[-1][1].all_jobs()

    def restart(self) -> None:
        """From the first stage on."""
        self._begun = 0


def asked_for(source: Source, options: Mapping[str, Any] | None) -> Workload | None:
    """The jobs that an episode is asked to be of at its reset; None for any.

    Args:
        source: where episodes come from.
        options: of the reset: ``first`` for the episode that begins with that job of the trace, ``jobs`` for
            one of given jobs.
    """
    asked = options or {}
    if "first" in asked:
        return source.beginning_at(int(asked["first"]))
    return asked.get("jobs")


def jobs_of_reset(
    source: Source, rng: np.random.Generator, seed: int | None, options: Mapping[str, Any] | None
) -> Workload:
    """The jobs of the episode that a reset begins.

    Args:
        source: where episodes come from.
        rng: draws one where none is asked for.
        seed: of the reset; with one, the first stage begins again.
        options: of the reset, as of `asked_for`.
    """
    if seed is not None:
        source.restart()
    jobs = asked_for(source, options)
    return source.draw(rng).make() if jobs is None else jobs


def episodes_of(
    name: str,
    workload: Workload | Source | str | os.PathLike[str],
    cluster: Cluster | int | str | os.PathLike[str] | None,
    jobs: int,
) -> Source:
    """What an environment was given: episodes, or a trace that they are parts of.

    Args:
        name: of the environment, for messages.
        workload: it.
        cluster: the machine; not with episodes.
        jobs: of an episode.

    Raises:
        ConfigError: a machine is missing, or there are too few jobs.
    """
    if isinstance(workload, (Episodes, Generated, Curriculum)):
        return workload
    if cluster is None:
        raise ConfigError(f"{name} needs a cluster beside a workload, such as 256 nodes")
    return Episodes.of(workload, cluster, jobs=jobs)  # type: ignore[arg-type]


def _check_range(name: str, found: tuple[float, float] | None, least: float) -> None:
    if found is None:
        return
    low, high = found
    if not least <= low <= high < np.inf or high <= 0:
        raise ConfigError(
            f"{name} is {low:g} to {high:g}; it must be two numbers that rise, from {least:g} on"
        )
