"""What the nodes of jobs draw over time, from how much their components are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hpctwin.model import NodeGroup
from hpctwin.model.cluster.racks import node_w
from hpctwin.model.workload.usage import NODE_W, Usage

__all__ = ["JobPower", "Pieces", "distinct", "job_power", "ramp"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_SPAN = 1 << 42
"""Longer than any job, ms: job and time make one number that sorts by both."""


def ramp(sizes: IntArray) -> IntArray:
    """0, 1, … for each size, one after the other."""
    found: IntArray = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return found


def distinct(values: IntArray) -> IntArray:
    """The distinct values, ascending; for many numbers quicker than `np.unique`."""
    ordered = np.sort(values)
    found: IntArray = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    return found


@dataclass(frozen=True, eq=False)
class Pieces:
    """Runs of jobs, cut where what their nodes draw changes; by run and time.

    Args:
        run: of which each is a piece [n].
        start_ms: [n].
        end_ms: [n].
        watts: what one node draws [n].
    """

    run: IntArray
    start_ms: IntArray
    end_ms: IntArray
    watts: FloatArray

    def moved(self, by_ms: int) -> Pieces:
        """The same pieces at other times, ms later."""
        return replace(self, start_ms=self.start_ms + by_ms, end_ms=self.end_ms + by_ms)


@dataclass(frozen=True, eq=False)
class JobPower:
    """What one node of each job draws, from each change on, by job and time.

    Args:
        key: job and time since its start in one number, ascending [n].
        watts: from then on [n].
    """

    key: IntArray
    watts: FloatArray

    def pieces(self, job: IntArray, start_ms: IntArray, end_ms: IntArray) -> Pieces:
        """Cut runs where what they draw changes; what is after the end of a run is left out.

        Args:
            job: of each run [runs].
            start_ms: of each run [runs].
            end_ms: of each run, later than its start [runs].
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
    """What one node of a group draws under each job.

    The measured power of a job counts before that of components. A component of which a job's use is not
    known is in full use.

    Args:
        group: its nodes have components.
        usage: of components by name, and `NODE_W`.
        jobs: how many there are.
        ran: jobs that are asked for; others are left out.
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
