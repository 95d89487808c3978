"""Episodes of consecutive jobs of one trace, begun by copying their rows.

Making a simulation takes many times as long, and there are more such episodes than fit a cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.learn.environments.episodes import Episodes, Source
from hpctwin.learn.environments.task import Task
from hpctwin.simulation import Simulation

__all__ = ["Windows", "windows_of"]

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
    simulation.decided()
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
