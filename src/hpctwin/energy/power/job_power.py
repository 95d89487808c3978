"""Power of the nodes of jobs over time, from the use of their components."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hpctwin.model import NodeGroup
from hpctwin.model.cluster.power import node_w
from hpctwin.model.workload.jobs import NODE_W, Usage

__all__ = ["JobPower", "Pieces", "distinct", "job_power", "ramp"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_SPAN = 1 << 42
"""Longer than any job, in ms: job and time form one sortable number."""


def ramp(sizes: IntArray) -> IntArray:
    """Return 0, 1, … for each size, one after the other."""
    found: IntArray = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return found


def distinct(values: IntArray) -> IntArray:
    """Return the distinct values, ascending; faster than `np.unique` for many numbers."""
    ordered = np.sort(values)
    found: IntArray = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    return found


@dataclass(frozen=True, eq=False)
class Pieces:
    """Runs of jobs, cut where the power of their nodes changes, by run and time.

    Args:
        run: Run of each piece [n].
        start_ms: Start of each piece, in ms [n].
        end_ms: End of each piece, in ms [n].
        watts: Power of one node, in W [n].
    """

    run: IntArray
    start_ms: IntArray
    end_ms: IntArray
    watts: FloatArray

    def since(self, begin_ms: int) -> Pieces:
        """Return the pieces without the time before ``begin_ms``."""
        if not (self.start_ms < begin_ms).any():
            return self
        later = self.end_ms > begin_ms
        start_ms = np.maximum(self.start_ms[later], begin_ms)
        return Pieces(self.run[later], start_ms, self.end_ms[later], self.watts[later])

    def moved(self, by_ms: int) -> Pieces:
        """Return the same pieces ``by_ms`` later."""
        return replace(self, start_ms=self.start_ms + by_ms, end_ms=self.end_ms + by_ms)


@dataclass(frozen=True, eq=False)
class JobPower:
    """Power of one node of each job from each change on, ordered by job and time.

    Args:
        key: Job and time since its start in one number, ascending [n].
        watts: Power from then on, in W [n].
    """

    key: IntArray
    watts: FloatArray

    def pieces(self, job: IntArray, start_ms: IntArray, end_ms: IntArray) -> Pieces:
        """Cut runs where their power changes; changes after the end of a run are dropped.

        Args:
            job: Job of each run [runs].
            start_ms: Start of each run, in ms [runs].
            end_ms: End of each run, in ms, later than its start [runs].
        """
        first = np.searchsorted(self.key, job * _SPAN)
        count = np.searchsorted(self.key, job * _SPAN + (end_ms - start_ms)) - first
        run = np.repeat(np.arange(len(job)), count)
        place = np.repeat(first, count) + ramp(count)
        starts = (self.key[place] & (_SPAN - 1)) + start_ms[run]
        ends = np.roll(starts, -1)
        ends[np.cumsum(count) - 1] = end_ms
        return Pieces(run, starts, ends, self.watts[place])


def job_power(group: NodeGroup, usage: Mapping[str, Usage], jobs: int, ran: IntArray) -> JobPower:
    """Return the power of one node of a group under each job.

    The measured power of a job takes precedence over its components. A component whose use by a job
    is unknown counts as fully used.

    Args:
        group: Node group whose nodes have components.
        usage: Usage of components by name, and `NODE_W`.
        jobs: Number of jobs.
        ran: Jobs that are needed; others are omitted.
    """
    wanted = np.zeros(jobs, bool)
    wanted[ran] = True
    known = {
        name: found
        for name, found in usage.items()
        if name == NODE_W or (name in group.components and group.components[name].max_w is not None)
    }
    keys = [np.flatnonzero(wanted) * _SPAN]
    for found in known.values():
        count = np.where(wanted, found.count, 0)
        job = np.repeat(np.arange(jobs), count)
        keys.append(job * _SPAN + ramp(count) * found.step_ms[job])
    key = distinct(np.concatenate(keys))
    job, time = key // _SPAN, key & (_SPAN - 1)
    watts = np.full(len(key), node_w(group.components, 1.0))
    for name, found in known.items():
        there = found.count[job] > 0
        values = found.at(job[there], time[there])
        if name == NODE_W:
            continue
        part = group.components[name]
        watts[there] += part.watts(values) - part.watts(1.0)
    if NODE_W in known:
        there = known[NODE_W].count[job] > 0
        watts[there] = known[NODE_W].at(job[there], time[there])
    return JobPower(key, watts)
