"""Episodes that agents are trained and tested on.

Episodes of consecutive jobs of one trace begin by copying their rows. Making a simulation takes
many times as long, and there are more such episodes than fit a cache.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.generate import generate
from hpctwin.generate.walltimes import check_walltimes, with_walltimes
from hpctwin.learn.environments.task import Task
from hpctwin.model import Cluster, Workload
from hpctwin.model.demand import at_load
from hpctwin.simulation import Simulation
from hpctwin.simulation.running.window import from_its_first_job
from hpctwin.simulation.state.arguments import as_cluster, as_workload

__all__ = [
    "EXAMPLE_CLUSTER",
    "Curriculum",
    "Drawn",
    "Episodes",
    "Generated",
    "Source",
    "Windows",
    "asked_for",
    "episodes_of",
    "jobs_of_reset",
    "windows_of",
]


EXAMPLE_CLUSTER = Cluster.uniform(
    64, active_w=190, idle_w=90, sleep_w=9, off_s=60, off_w=90, on_s=300, on_w=150
)
"""Cluster of environments that are made without arguments: 64 nodes, which can sleep."""


class Drawn(NamedTuple):
    """An episode that was drawn.

    Args:
        key: Equal keys mean equal jobs; None if the episode will not recur.
        make: Function that returns the jobs.
    """

    key: Hashable | None
    make: Callable[[], Workload]


class Source(Protocol):
    """Source of episodes."""

    @property
    def cluster(self) -> Cluster:
        """Cluster of all episodes."""

    @property
    def jobs(self) -> int:
        """Number of jobs in each episode."""

    def draw(self, rng: np.random.Generator) -> Drawn:
        """Draw an episode at random."""

    def beginning_at(self, job: int) -> Workload:
        """Return the episode that begins with a job of the trace."""

    def all_jobs(self) -> Workload:
        """Return all jobs of the episodes, or an equal number of similar jobs."""

    def restart(self) -> None:
        """Start again with the first stage, if there are several."""


@dataclass(frozen=True, eq=False)
class Episodes:
    """Consecutive jobs that begin anywhere in a trace.

    Args:
        workload: The jobs.
        cluster: The cluster.
        jobs: Number of jobs in each episode.
        first: First job that an episode may begin with.
        last: Job before which episodes end; None for the end of the trace.
        load: Range from which each episode's offered load is drawn, by scaling its arrival
            intervals; None to keep the submit times.
        walltimes: Model of the walltimes, such as ``uniform:1:5``, see
            `hpctwin.generate.walltimes`; by default those of the workload.
        mixed: Whether arrivals are those of consecutive jobs, but the jobs are any of the part.
            This gives many more episodes, for jobs that hardly depend on earlier ones, such as
            those of a model.
    """

    workload: Workload
    cluster: Cluster
    jobs: int = 256
    first: int = 0
    last: int | None = None
    load: tuple[float, float] | None = None
    walltimes: str = "recorded"
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
        walltimes: str = "recorded",
        mixed: bool = False,
    ) -> Episodes:
        """Make episodes of a trace on a cluster.

        Jobs that can never run there, and dependencies, are omitted.

        Args:
            workload: The jobs, or the path of a trace.
            cluster: The cluster, a number of equal nodes, or the path of a cluster file.
            jobs: Number of jobs in each episode.
            first: First job that an episode may begin with.
            last: Job before which episodes end.
            load: Range of the load of each episode.
            walltimes: Model of the walltimes.
            mixed: Whether other jobs of the part replace each job.

        Raises:
            ConfigError: There are fewer jobs than one episode needs, or a range is invalid.
        """
        machine = as_cluster(cluster)
        found = as_workload(workload)
        found = found.take(found.nodes <= machine.node_count)
        end = len(found) if last is None else min(last, len(found))
        if not 1 <= jobs <= end - first:
            raise ConfigError(
                f"an episode needs {jobs} jobs, but only {max(0, end - first)} are "
                f"available from job {first}; give fewer, at least 1"
            )
        _check_load(load)
        check_walltimes(walltimes)
        return cls(found, machine, jobs, first, end, load, walltimes, mixed)

    def draw(self, rng: np.random.Generator) -> Drawn:
        """Draw an episode at random."""
        first = int(rng.integers(self.first, self.latest + 1))
        if not self.varied:
            return Drawn(first, partial(self.beginning_at, first))
        return Drawn(None, partial(self._varied, first, int(rng.integers(2**62))))

    @property
    def varied(self) -> bool:
        """Whether jobs differ from those in the trace."""
        return self.mixed or self.load is not None or self.walltimes != "recorded"

    @property
    def latest(self) -> int:
        """Last job that an episode can begin with."""
        return (len(self.workload) if self.last is None else self.last) - self.jobs

    def beginning_at(self, job: int) -> Workload:
        """Return the unmodified episode that begins with a row of the trace.

        Raises:
            ConfigError: No episode begins there.
        """
        if not self.first <= job <= self.latest:
            raise ConfigError(
                f"no episode starts with job {job}; episodes start with job {self.first} "
                f"to {self.latest}"
            )
        return from_its_first_job(self.workload.take(np.arange(job, job + self.jobs)))

    def all_jobs(self) -> Workload:
        """Return the jobs of the trace."""
        return self.workload

    def restart(self) -> None:
        """Do nothing, as there is one stage."""

    def _varied(self, first: int, seed: int) -> Workload:
        rng = np.random.default_rng(seed)
        found = self.beginning_at(first)
        if self.mixed:
            found = self._others(found, rng)
        found = with_walltimes(found, self.walltimes, rng)
        if self.load is not None and found.submit_ms[-1] > 0:
            found = at_load(found, self.cluster, float(rng.uniform(*self.load)))
        return found

    def _others(self, row: Workload, rng: np.random.Generator) -> Workload:
        """Return random jobs of the part, with ids and arrivals of consecutive jobs."""
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
    """Episodes from a generator, each with a different seed.

    Args:
        cluster: The cluster.
        kind: Name of the generator; see `hpctwin.generate`.
        jobs: Number of jobs in each episode.
        options: Options of the generator.
    """

    cluster: Cluster
    kind: str = "poisson"
    jobs: int = 256
    options: Mapping[str, Any] = field(default_factory=dict)

    def draw(self, rng: np.random.Generator) -> Drawn:
        """Draw an episode at random."""
        return Drawn(None, partial(self.beginning_at, int(rng.integers(2**31))))

    def beginning_at(self, job: int) -> Workload:
        """Return the episode with the seed ``job``."""
        made = generate(
            self.kind, jobs=self.jobs, nodes=self.cluster.node_count, seed=job, **self.options
        )
        return from_its_first_job(made)

    def all_jobs(self) -> Workload:
        """Return one episode."""
        return self.beginning_at(0)

    def restart(self) -> None:
        """Do nothing, as there is one stage."""


class Curriculum:
    """Episodes in stages; the last stage has no end.

    Args:
        stages: Number of episodes and their source, for each stage; all on one cluster.

    Raises:
        ConfigError: There is no stage, or the clusters differ.
    """

    def __init__(self, stages: Sequence[tuple[int, Source]]) -> None:
        if not stages:
            raise ConfigError("a curriculum needs a stage, such as (100, Episodes.of(…))")
        self.stages = tuple(stages)
        self.cluster = stages[0][1].cluster
        if any(source.cluster != self.cluster for _, source in stages):
            raise ConfigError("all stages of a curriculum must have the same cluster")
        self.jobs = max(source.jobs for _, source in stages)
        self._begun = 0

    def draw(self, rng: np.random.Generator) -> Drawn:
        """Draw an episode of the present stage."""
        left = self._begun
        self._begun += 1
        for number, (count, source) in enumerate(self.stages):
            if left < count or number == len(self.stages) - 1:
                key, make = source.draw(rng)
                return Drawn(None if key is None else (number, key), make)
            left -= count
        raise AssertionError

    def beginning_at(self, job: int) -> Workload:
        """Return the episode of the last stage that begins with a job."""
        return self.stages[-1][1].beginning_at(job)

    def all_jobs(self) -> Workload:
        """Return the jobs of the last stage."""
        return self.stages[-1][1].all_jobs()

    def restart(self) -> None:
        """Start again with the first stage."""
        self._begun = 0


def asked_for(source: Source, options: Mapping[str, Any] | None) -> Workload | None:
    """Return the jobs that a reset requests; None for any episode.

    Args:
        source: Source of episodes.
        options: Options of the reset: ``first`` for the episode that begins with that job of the
            trace, ``jobs`` for an episode of given jobs.

    Raises:
        UnknownNameError: There is no such option.
        ConfigError: ``first`` is not the row of a job that an episode begins with, or ``jobs`` is
            empty.
    """
    asked = options or {}
    for name in asked:
        if name not in ("first", "jobs"):
            raise UnknownNameError("reset option", name, ["first", "jobs"])
    if "first" not in asked:
        if asked.get("jobs") is None:
            return None
        jobs = as_workload(asked["jobs"])
        if not len(jobs):
            raise ConfigError("reset option 'jobs' has no job; an episode needs at least one")
        return jobs
    try:
        first = operator.index(asked["first"])
    except TypeError:
        raise ConfigError(
            f"reset option 'first' is {asked['first']!r}; it must be the row of a job"
        ) from None
    return source.beginning_at(first)


def jobs_of_reset(
    source: Source, rng: np.random.Generator, seed: int | None, options: Mapping[str, Any] | None
) -> Workload:
    """Return the jobs of the episode that a reset begins.

    Args:
        source: Source of episodes.
        rng: Generator that draws an episode if none is requested.
        seed: Seed of the reset; with a seed, the first stage begins again.
        options: Options of the reset, as for `asked_for`.
    """
    if seed is not None:
        source.restart()
    jobs = asked_for(source, options)
    return source.draw(rng).make() if jobs is None else jobs


def episodes_of(
    name: str,
    workload: Workload | Source | str | os.PathLike[str] | None,
    cluster: Cluster | int | str | os.PathLike[str] | None,
    jobs: int,
) -> Source:
    """Return the episodes given to an environment, or make them from a trace.

    Args:
        name: Name of the environment, for messages.
        workload: Episodes, the jobs, or the path of a trace; None for generated jobs.
        cluster: The cluster; not with episodes. None for `EXAMPLE_CLUSTER` if the workload is None
            too.
        jobs: Number of jobs in an episode.

    Raises:
        ConfigError: A cluster is missing, or there are too few jobs.
    """
    if isinstance(workload, (Episodes, Generated, Curriculum)):
        return workload
    if workload is None:
        return Generated(EXAMPLE_CLUSTER if cluster is None else as_cluster(cluster), jobs=jobs)
    if cluster is None:
        raise ConfigError(f"{name} needs a cluster in addition to the workload, such as 256 nodes")
    return Episodes.of(workload, cluster, jobs=jobs)  # type: ignore[arg-type]


def _check_load(load: tuple[float, float] | None) -> None:
    if load is None:
        return
    low, high = load
    if not 0 <= low <= high < np.inf or high <= 0:
        raise ConfigError(
            f"load is {low:g} to {high:g}; it must be two increasing numbers, at least 0"
        )


Tables = Mapping[str, npt.NDArray[Any]]


class Windows:
    """A simulation in its initial state, and the jobs it may begin with.

    Args:
        start: The simulation.
        known: The trace in the engine's form.
        jobs: Number of jobs in an episode.
    """

    def __init__(self, start: Simulation, known: Tables, jobs: int) -> None:
        self.start, self._jobs = start, jobs
        self._job = known["job"]
        # Facts are zero if no ordering and no agent reads them.
        self._fact = known["fact"] if known["fact"].view(np.uint8).any() else None

    def begin(self, simulation: Simulation, first: int) -> None:
        """Put a simulation at the beginning of the episode that begins with a job."""
        rows = slice(first, first + self._jobs)
        fact = self.start.state["fact"] if self._fact is None else self._fact[rows]
        simulation.state.begin_with(self.start.state, self._job[rows], fact)


def windows_of(task: Task, source: Source) -> Windows | None:
    """Return episodes as rows of their trace; None if more than the jobs differs.

    The first and the last episode are made and compared with the trace to find out. They differ if
    there are limits, dependencies, or partitions and features that only some jobs ask for.
    """
    if (
        not isinstance(source, Episodes)
        or source.varied
        or source.cluster.failures.mtbf is not None
    ):
        return None
    whole = _known(_begun(task.make(source.all_jobs())))
    start, last = (
        _begun(task.make(source.beginning_at(job))) for job in (source.first, source.latest)
    )
    for simulation, job in ((start, source.first), (last, source.latest)):
        if not _is_part(_known(simulation), whole, slice(job, job + source.jobs)):
            return None
    if not _same(start.state.state(), last.state.state()) or (whole["user_limit"] > 0).any():
        return None
    return Windows(start, whole, source.jobs)


def _begun(simulation: Simulation) -> Simulation:
    """Return a simulation prepared to be copied and advanced."""
    simulation.compiled_policy()
    simulation.make_room()
    return simulation


def _known(simulation: Simulation) -> Tables:
    return simulation.state.known()


def _is_part(own: Tables, whole: Tables, rows: slice) -> bool:
    """Return whether an episode's arrays equal the trace's, except for jobs and facts."""
    jobs = len(own["job"])
    job = whole["job"][rows].copy()
    job["submit"] -= job["submit"][0]
    # Ranks matter only relative to each other.
    if not np.array_equal(job["rank"].argsort(), own["job"]["rank"].argsort()):
        return False
    job["rank"] = own["job"]["rank"]
    ordered = np.arange(len(whole["job"]))
    if not np.array_equal(whole["by_submit"], ordered):
        return False
    return _same(
        own, {**whole, "job": job, "fact": whole["fact"][rows], "by_submit": ordered[:jobs]}
    )


def _same(tables: Tables, others: Tables) -> bool:
    """Return whether tables are equal byte by byte."""
    return all(
        (table.size == 0 == others[name].size) or table.tobytes() == others[name].tobytes()
        for name, table in tables.items()
    )
