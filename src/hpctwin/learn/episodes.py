"""Episodes: parts of a trace that an agent is trained and tested on."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from hpctwin.errors import ConfigError
from hpctwin.model import Cluster, Workload
from hpctwin.simulation.given import as_cluster, as_workload
from hpctwin.sweep.incentives import from_its_first_job

__all__ = ["Episodes"]


@dataclass(frozen=True, eq=False)
class Episodes:
    """Jobs in a row, begun anywhere in a trace.

    Args:
        workload: the jobs.
        cluster: the machine.
        jobs: of each episode.
        first: the first episode begins at this job or later.
        last: and ends before this one; None for the end of the trace.
    """

    workload: Workload
    cluster: Cluster
    jobs: int = 256
    first: int = 0
    last: int | None = None

    @classmethod
    def of(
        cls,
        workload: Workload | str | os.PathLike[str],
        cluster: Cluster | int | str | os.PathLike[str],
        *,
        jobs: int = 256,
        first: int = 0,
        last: int | None = None,
    ) -> Episodes:
        """Episodes of a trace on a machine; jobs that can never run there, and dependencies, are left out.

        Args:
            workload: the jobs, or the path of a trace.
            cluster: the machine, a number of equal nodes, or the path of a machine's file.
            jobs: of each episode.
            first: where the first may begin.
            last: before which the last ends.

        Raises:
            ConfigError: there are fewer jobs than one episode takes.
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
        return cls(found, machine, jobs, first, end)

    def draw(self, rng: np.random.Generator) -> Workload:
        """One of them, at random."""
        return self.beginning_at(int(rng.integers(self.first, self.latest + 1)))

    @property
    def latest(self) -> int:
        """The last job that an episode can begin with."""
        return (len(self.workload) if self.last is None else self.last) - self.jobs

    def beginning_at(self, job: int) -> Workload:
        """The one that begins with a job, by its row.

        Raises:
            ConfigError: none begins there.
        """
        if not self.first <= job <= self.latest:
            raise ConfigError(
                f"no episode begins with job {job}; they begin with {self.first} to {self.latest}"
            )
        return from_its_first_job(self.workload.take(np.arange(job, job + self.jobs)))
