"""Jobs of a workload: states, valid values, selections, use of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, WorkloadError
from hpctwin.model.text import MS_PER_S, parse_moment, since, to_ms

IntArray = npt.NDArray[np.int64]

MOST = 1e12
"""Largest time (s) and number of nodes: sums of milliseconds stay far inside 64 bits."""
ABOVE_ZERO, _LARGEST = np.nextafter(0.0, 1.0), np.finfo(np.float64).max


def check_distinct(ids: npt.NDArray[Any]) -> None:
    """Check that job ids are distinct."""
    if ids.dtype.kind == "i" and (ids[1:] > ids[:-1]).all():
        return
    distinct, counts = np.unique(ids, return_counts=True)
    if len(distinct) != len(ids):
        raise WorkloadError(f"job id {distinct[counts > 1][0]} is used more than once")


def check_values(ids: npt.NDArray[Any], columns: Mapping[str, npt.NDArray[Any]]) -> None:
    """Check that the columns of jobs have valid values.

    Args:
        columns: Columns by their names in `Workload.build`, each [jobs].

    Raises:
        WorkloadError: A value is invalid; the first job with such a value is named.
    """
    for name, values in columns.items():
        if values.dtype.kind != "f" or not len(values):
            continue
        rule = _rule(name)
        # For most columns, the smallest and the largest value suffice; NaN fails both comparisons.
        if rule.least <= values.min() and values.max() <= rule.most and not rule.whole:
            continue
        bad = ~((values >= rule.least) & (values <= rule.most))
        if rule.whole:
            bad |= values != np.floor(values)
        if rule.empty:
            bad &= ~np.isnan(values)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            limit = "" if rule.most == _LARGEST else f", up to {rule.most:g}"
            raise WorkloadError(f"job {ids[row]}: {name} is {values[row]:g}; it {rule.must}{limit}")


class _Rule(NamedTuple):
    """Rule for the values of a column: bounds, whole numbers, known."""

    must: str
    least: float
    most: float = _LARGEST
    whole: bool = False
    empty: bool = False


def _rule(name: str) -> _Rule:
    if name == "nodes":
        return _Rule("must be a whole number above 0", 1.0, MOST, whole=True)
    if name == "walltime_s":
        return _Rule("must be above 0", ABOVE_ZERO, MOST)
    if name.startswith("resource "):
        return _Rule("must be a whole number, 0 or more", 0.0, 2.0**53, whole=True)
    if name in ("submit_s", "runtime_s"):
        return _Rule("must be 0 or more", 0.0, MOST)
    if name in ("recorded_start_s", "cancel_s", "checkpoint_s"):
        return _Rule("must be a finite number", -MOST, MOST)
    if name.startswith("per-node "):
        return _Rule("must be 0 or more", 0.0)
    if name.startswith("predicted ") or name == "used_memory_gb":
        return _Rule("must be above 0, or empty", ABOVE_ZERO, empty=True)
    return _Rule("must be a finite number", -_LARGEST)


class State(IntEnum):
    """State of a job."""

    PENDING = 0  # not submitted yet, or a dependency is open
    WAITING = 1
    RUNNING = 2
    COMPLETED = 3
    WALLTIME = 4  # ended at its walltime
    NODE_FAILURE = 5
    CANCELLED = 6
    REJECTED = 7  # can never run on this cluster
    DEPENDENCY = 8  # a job it depended on did not complete
    FAILED = 9  # ended by itself, with an error
    PREEMPTED = 10  # ended so that another could start

    @property
    def label(self) -> str:
        """Name as results show it."""
        return self.name.lower()


FloatArray = npt.NDArray[np.float64]

NODE_W = "node_w"
"""Name of the measured power of a job's nodes in a workload (W, their mean)."""


@dataclass(frozen=True, eq=False)
class Usage:
    """Samples of each job at equal steps from its start.

    Each sample holds until the next, the last to the end.

    Args:
        first: First sample of each job; those of the last end at ``first[-1]`` [jobs + 1]. The use
            of a job without samples is unknown.
        step_ms: Time from one sample of a job to the next, in ms [jobs].
        values: Use from 0 (none) to 1; for `NODE_W`, watts [samples].
    """

    first: IntArray
    step_ms: IntArray
    values: FloatArray

    @classmethod
    def averages(cls, values: npt.ArrayLike) -> Usage:
        """Return usage with one value for each job, NaN if unknown [jobs]."""
        found = np.asarray(values, np.float64)
        known = ~np.isnan(found)
        first = np.concatenate([[0], np.cumsum(known)])
        return cls(first.astype(np.int64), np.ones(len(found), np.int64), found[known])

    @classmethod
    def traces(cls, samples: Sequence[npt.ArrayLike], step_s: float) -> Usage:
        """Return usage from samples of each job, at one step; none if unknown.

        Raises:
            WorkloadError: The step is not above 0.
        """
        if not step_s * MS_PER_S >= 1:
            raise WorkloadError(f"samples are {step_s:g} s apart; the step must be 0.001 s or more")
        parts = [np.asarray(one, np.float64) for one in samples]
        first = np.concatenate([[0], np.cumsum([len(one) for one in parts])]).astype(np.int64)
        values = np.concatenate([np.zeros(0), *parts])
        return cls(first, np.full(len(parts), round(step_s * MS_PER_S), np.int64), values)

    @classmethod
    def joined(cls, parts: Sequence[tuple[Usage | None, int]]) -> Usage:
        """Return the usage of several groups of jobs, one after the other.

        Args:
            parts: Usage of each group, None if unknown, and its number of jobs.
        """
        known = [cls.averages(np.full(size, np.nan)) if one is None else one for one, size in parts]
        count = np.concatenate([one.count for one in known])
        return cls(
            np.concatenate([[0], np.cumsum(count)]),
            np.concatenate([one.step_ms for one in known]),
            np.concatenate([one.values[one.first[0] : one.first[-1]] for one in known]),
        )

    def __len__(self) -> int:
        return len(self.step_ms)

    @property
    def count(self) -> IntArray:
        """Number of samples of each job [jobs]."""
        return np.diff(self.first)

    def take(self, index: IntArray) -> Usage:
        """Return the jobs at ``index``."""
        count = self.count[index]
        first = np.concatenate([[0], np.cumsum(count)])
        rows = np.arange(first[-1]) + np.repeat(self.first[index] - first[:-1], count)
        return Usage(first, self.step_ms[index], self.values[rows])

    def at(self, job: IntArray, time_ms: IntArray) -> FloatArray:
        """Return the values of jobs with known use, at times after their starts [any]."""
        sample = np.minimum(time_ms // self.step_ms[job], self.count[job] - 1)
        found: FloatArray = self.values[self.first[job] + sample]
        return found

    def check(self, name: str, ids: npt.NDArray[np.generic]) -> None:
        """Check that values are valid.

        Raises:
            WorkloadError: A value is not finite or out of bounds; the message names the job.
        """
        most = np.inf if name == NODE_W else 1.0
        bad = ~(np.isfinite(self.values) & (self.values >= 0) & (self.values <= most))
        if bad.any():
            place = int(np.argmax(bad))
            job = int(np.searchsorted(self.first, place, side="right")) - 1
            must = "0 W or more" if name == NODE_W else "from 0 to 1"
            raise WorkloadError(
                f"job {ids[job]}: usage {name}, sample {place - int(self.first[job])}, is "
                f"{self.values[place]:g}; it must be {must}"
            )


_NEVER = np.iinfo(np.int64).max


def submit_for_load(
    submit_ms: IntArray,
    runtime_ms: IntArray,
    nodes: npt.NDArray[Any],
    load: float,
    machine: int,
) -> IntArray:
    """Return submit times that give a cluster some load; see `Workload.scale`.

    Args:
        submit_ms: Submit times, ascending, in ms [jobs].
    """
    if not 0 < load < np.inf:
        raise ConfigError(f"load is {load!r}; it must be above 0, such as 0.9")
    later = _since_first(submit_ms)
    span_s = later.max(initial=0) / MS_PER_S
    if span_s <= 0:
        raise WorkloadError("all jobs have the same submit time, so their load cannot be scaled")
    offered = float(np.dot(runtime_ms / MS_PER_S, nodes)) / (machine * span_s)
    found: IntArray = submit_ms - later + np.rint(later * (offered / load)).astype(np.int64)
    return found


def rows_within(
    submit_ms: IntArray, begin: object, end: object, start_epoch_s: float | None, name: str
) -> npt.NDArray[np.bool_]:
    """Return which jobs are submitted in a period; see `Workload.window` [jobs]."""
    first_s = int(submit_ms.min(initial=_NEVER)) / MS_PER_S if len(submit_ms) else 0.0

    def at_ms(given: object) -> int:
        found = parse_moment(given)
        at_s = since(found, start_epoch_s, name)
        # A date is a time of the trace; other times count from the first submission.
        return to_ms(at_s if at_s != found else at_s + first_s)

    last = _NEVER if end is None else at_ms(end)
    found: npt.NDArray[np.bool_] = (submit_ms >= at_ms(begin)) & (submit_ms < last)
    return found


def rows_drawn(size: int, jobs: int | float, seed: int) -> npt.NDArray[Any]:
    """Return random rows; see `Workload.sample`."""
    if seed < 0:
        raise ConfigError(f"seed is {seed}; it must be 0 or more")
    share = isinstance(jobs, float)
    if not 0 <= jobs <= (1 if share else size):
        raise ConfigError(
            f"jobs is {jobs!r}; it must be a number of jobs, up to {size:,}, or a share such as 0.1"
        )
    count = round(jobs * size) if share else int(jobs)
    return np.random.default_rng(int(seed)).choice(size, count, replace=False)


def _since_first(submit_ms: IntArray) -> IntArray:
    """Return times since the first submission."""
    return submit_ms - submit_ms.min() if len(submit_ms) else submit_ms
