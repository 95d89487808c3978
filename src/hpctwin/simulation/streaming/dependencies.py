"""Dependencies between the jobs of a stream, across its batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hpctwin.engine.operations.transfer import (
    add_pending_dependencies,
    begun_ms,
    ended_jobs,
    lengthen_chains,
)
from hpctwin.engine.state.sim import Sim
from hpctwin.errors import WorkloadError
from hpctwin.model import Dependencies, DependencyKind, State
from hpctwin.model.workload.dependencies import Columns, NamedEdges

__all__ = ["Past", "Waits"]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
_UNKNOWN = -1


@dataclass(frozen=True, eq=False)
class Past(Columns):
    """State of jobs that other jobs may depend on.

    Args:
        ids: Ids of the jobs.
        ended: Whether each job has ended.
        completed: Whether it has completed.
        end_ms: Its end.
        begun_ms: Its first start; -1 if it has not started.
    """

    ids: npt.NDArray[Any]
    ended: BoolArray
    completed: BoolArray
    end_ms: IntArray
    begun_ms: IntArray

    @classmethod
    def of(cls, sim: Sim, ids: npt.NDArray[Any]) -> Self:
        """Return the state of all jobs of a simulation."""
        state = sim["state"]
        done = state["phase"] == State.COMPLETED
        return cls(ids, ended_jobs(sim), done, state["end"].copy(), begun_ms(sim))

    @classmethod
    def none(cls, ids: npt.NDArray[Any]) -> Self:
        """Return the state of jobs that are still to come."""
        size = len(ids)
        never, unknown = np.zeros((2, size), bool), np.full((2, size), _UNKNOWN, np.int64)
        return cls(ids, *never, *unknown)


@dataclass(frozen=True, eq=False)
class _Found:
    """Edges whose dependent job is present: its row, and the other's (-1 if absent)."""

    edges: NamedEdges
    fresh: BoolArray
    job: IntArray
    on: IntArray
    past: Past  # of the other job; neither ended nor begun if nothing is known of it
    known: BoolArray


class Waits:
    """Dependencies of the jobs that are present, and the states of jobs that are gone.

    Args:
        remember: Whether jobs may depend on jobs of earlier batches: then 25 bytes and the id of
            each ended job are kept.
    """

    def __init__(self, *, remember: bool) -> None:
        self.remember = remember
        self._edges: NamedEdges | None = None
        self._found: _Found | None = None
        self._gone: list[Past] = []

    def held(self, sim: Sim) -> BoolArray:
        """Return the ended jobs that may still matter [jobs].

        They depend, or would depend, on a job that has not ended.
        """
        held = np.zeros(sim.jobs, bool)
        found = self._found
        if found is not None and len(found.job):
            ended = ended_jobs(sim)
            open_ = np.where(found.on >= 0, ~ended[found.on], ~found.known)
            held[found.job[open_]] = True
        return held

    def forget(self, past: Past) -> None:
        """Record the states of jobs that are removed."""
        if self.remember and len(past.ids):
            order = np.argsort(past.ids, kind="stable")
            self._gone.append(past.where(order))

    def resolve(self, there: Past, more: NamedEdges) -> Dependencies:
        """Return the dependencies between rows of the jobs that are present.

        Args:
            there: State of these jobs.
            more: Dependencies of the new jobs.
        """
        edges, fresh = more, np.ones(len(more), bool)
        if self._edges is not None:
            edges = self._edges.and_then(more)
            fresh = np.concatenate([np.zeros(len(self._edges), bool), fresh])
        by_id = np.argsort(there.ids, kind="stable")
        job, on = (_rows(there.ids, by_id, names) for names in (edges.job, edges.on))
        there_still = job >= 0
        edges, fresh = edges.where(there_still), fresh[there_still]
        job, on = job[there_still], on[there_still]
        here = on >= 0
        past, known = self._recall(edges.on)
        for name in ("ended", "completed", "end_ms", "begun_ms"):
            getattr(past, name)[here] = getattr(there, name)[on[here]]
        self._edges = edges
        self._found = _Found(edges, fresh, job, on, past, known | here)
        return Dependencies(job[here], on[here], edges.kind[here], edges.delay_ms[here])

    def tell(self, sim: Sim) -> None:
        """Pass states of finished jobs to new jobs that depend on them.

        Call it after `resolve` and `transfer`.
        """
        found = self._found
        if found is None or not len(found.job):
            return
        edges, past, here = found.edges, found.past, found.on >= 0
        begun = (edges.kind == DependencyKind.AFTER) & (past.begun_ms >= 0)
        failed = past.ended & ~past.completed & (edges.kind == DependencyKind.AFTEROK)
        true = (begun | past.ended) & ~failed
        time = np.where(begun, past.begun_ms, past.end_ms) + edges.delay_ms
        fresh = found.fresh
        # The engine counts edges between present jobs as open.
        more = np.where(here, 0, 1) - true
        rows = np.unique(found.job[fresh])
        size = sim.jobs
        count, release, dead = (
            np.zeros(size, np.int64),
            np.full(size, _UNKNOWN),
            np.zeros(size, bool),
        )
        np.add.at(count, found.job[fresh], more[fresh])
        np.maximum.at(release, found.job[fresh & true], time[fresh & true])
        dead[found.job[fresh & failed]] = True
        thinking = found.job[edges.kind == DependencyKind.THINK]
        if len(thinking):
            # This includes jobs without a present dependency: they are submitted when released.
            sim.own("job")
            sim["job"]["thinks"][thinking] = 1
        add_pending_dependencies(sim, rows, count[rows], release[rows], dead[rows])
        lengthen_chains(sim, found.job[here & ~fresh], found.on[here & ~fresh])

    def check_complete(self) -> None:
        """Check, after the last batch, that all jobs that others depend on have come.

        Raises:
            WorkloadError: A job is missing.
        """
        if self._found is None or self._found.known.all():
            return
        place = int(np.argmin(self._found.known))
        edges = self._found.edges
        raise WorkloadError(
            f"job {edges.job[place]} depends on job {edges.on[place]}, which the stream "
            f"does not contain; add job {edges.on[place]} or remove the dependency"
        )

    def _recall(self, ids: npt.NDArray[Any]) -> tuple[Past, BoolArray]:
        """Return the states of jobs that are gone, and whether anything is known of each."""
        found = Past.none(ids)
        known = np.zeros(len(ids), bool)
        for gone in self._gone:
            rows = _rows(gone.ids, np.arange(len(gone.ids)), ids)
            here = rows >= 0
            for name in ("ended", "completed", "end_ms", "begun_ms"):
                getattr(found, name)[here] = getattr(gone, name)[rows[here]]
            known |= here
        return found, known


def _rows(ids: npt.NDArray[Any], order: IntArray, names: npt.NDArray[Any]) -> IntArray:
    """Return the rows of ids among other ids sorted by an order; -1 if absent."""
    if not len(ids) or not len(names):
        return np.full(len(names), _UNKNOWN, np.int64)
    sorted_ids = ids[order]
    place = np.minimum(np.searchsorted(sorted_ids, names), len(ids) - 1)
    return np.where(sorted_ids[place] == names, order[place], _UNKNOWN)
