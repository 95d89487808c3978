"""Data on jobs: requests and history at submission, results after the end.

The history of similar jobs has only jobs that had ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, WorkloadError
from hpctwin.model import MS_PER_S, Category, Workload
from hpctwin.model.workload.jobs import NODE_W

__all__ = ["FEATURES", "History", "Known", "group_of"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


_FINE = float(2**20)
"""Sums count multiples of 2^-20, so that a later value cannot change a rounding."""


class History:
    """Jobs of each group in order of their end, as known at each job's submission.

    Args:
        group: Group of each job, 0 or more [jobs].
        submit_ms: Submit time of each job, in ms [jobs].
        end_ms: Time at which each job ended and its values became known, in ms [jobs].
    """

    def __init__(self, group: IntArray, submit_ms: IntArray, end_ms: IntArray) -> None:
        rows = np.arange(len(group))
        # The exact end of a job after the last submission does not matter; a bound keeps the keys
        # below small.
        end_ms = np.minimum(end_ms, submit_ms.max(initial=0) + 1)
        self.order = np.lexsort((rows, end_ms, group))
        # One key that increases with group, then end: bisection gives the position of a submission.
        first = min(int(end_ms.min(initial=0)), int(submit_ms.min(initial=0)))
        span = max(int(end_ms.max(initial=0)), int(submit_ms.max(initial=0))) - first + 1
        keys = (group * span + end_ms - first)[self.order]
        self.begin = np.searchsorted(keys, group * span, "left")
        self.upto = np.searchsorted(keys, group * span + submit_ms - first, "right")

    @property
    def count(self) -> IntArray:
        """Number of ended jobs of its group that each job knows [jobs]."""
        return self.upto - self.begin

    def last(self, values: FloatArray, back: int = 1) -> FloatArray:
        """Return the value of the last ended job of the group, or of an earlier one.

        It is NaN if there is none.

        Args:
            values: Value of each job [jobs].
            back: 1 for the last, 2 for the one before, …
        """
        place = self.upto - back
        found = values[self.order[np.maximum(place, 0)]] if len(values) else values
        return np.where(place >= self.begin, found, np.nan)

    def sum(self, values: FloatArray, last: int | None = None) -> FloatArray:
        """Return the sum over the ended jobs of the group.

        Each value is rounded to a multiple of 2^-20; NaN counts as 0.

        Args:
            values: Value of each job [jobs].
            last: Number of last ended jobs that count; by default all.
        """
        whole = np.rint(np.nan_to_num(values, nan=0.0) * _FINE).astype(np.int64)
        sums = np.concatenate([[0], np.cumsum(whole[self.order])])
        begin = self.begin if last is None else np.maximum(self.begin, self.upto - last)
        total: FloatArray = (sums[self.upto] - sums[begin]) / _FINE
        return total

    def mean(self, values: FloatArray, last: int | None = None) -> FloatArray:
        """Return the mean over ended jobs of the group with a known value; NaN if none."""
        known = self.sum((~np.isnan(values)).astype(np.float64), last)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(known > 0, self.sum(values, last) / known, np.nan)


def group_of(*columns: npt.NDArray[np.generic]) -> IntArray:
    """Return a group number for each job; jobs equal in all columns share it [jobs]."""
    group = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        codes = np.unique(column, return_inverse=True)[1].ravel()
        group = group * (int(codes.max(initial=0)) + 1) + codes
        group = np.unique(group, return_inverse=True)[1].ravel().astype(np.int64)
    return group


_KB_PER_GB = 1024.0**2
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000

_ASKED = (
    "log_walltime", "log_nodes", "cores_per_node", "gpus_per_node", "memory_gb_per_node", "priority",
    "user", "account", "partition", "qos", "hour", "weekday",
)  # fmt: skip
_CARRIED = ("executable", "queue", "requested memory")
"""Fields of SWF logs that identify a job at its submission."""
_OF_USER = (
    "since_end", "since_submission", "not_ended", "user_count", "user_share", "user_share_10",
)  # fmt: skip
_OF_TARGET = (
    "user_last_1", "user_last_2", "user_last_3", "user_mean", "user_mean_10",
    "like_last_1", "like_last_2", "like_last_3", "like_mean", "like_mean_10",
    "walltime_last_1", "walltime_last_2", "walltime_mean", "walltime_mean_10", "all_mean_100", "recent",
)  # fmt: skip
FEATURES = (*_ASKED, *_CARRIED, *_OF_USER, "like_count", "walltime_count", *_OF_TARGET)
"""Columns of what is known of a job at its submission.

Times and targets are logarithms to base 2. Columns with ``like`` are of jobs with the same user,
nodes and walltime; those with ``walltime_`` are of jobs with the same user and walltime.
"""


@dataclass(frozen=True, eq=False)
class Known:
    """Jobs as a predictor sees them.

    Args:
        workload: The jobs.
        end_ms: Time at which each ended, so that runtime, power and memory are known, in ms [jobs].
        notes: Assumptions about the jobs, one sentence each.
    """

    workload: Workload
    end_ms: IntArray
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        workload: Workload,
        end_s: npt.ArrayLike | None = None,
        notes: Sequence[str] = (),
    ) -> Known:
        """Return the jobs of a trace, with their recorded ends or given ones.

        Args:
            workload: The jobs.
            end_s: End times in seconds, such as a result's ``end_s``; NaN for never [jobs]. By
                default those of the trace.
            notes: Assumptions about the jobs, such as a result's ``notes``.

        Raises:
            WorkloadError: The trace has no start times, or there are no jobs.
            ConfigError: The number of ends is not that of the jobs, or a job ends before its
                submission.
        """
        if not len(workload):
            raise WorkloadError(f"{workload.name} has no jobs to learn from")
        if end_s is None:
            unknown = np.flatnonzero(workload.recorded_start_ms < 0)
            if len(unknown) > len(workload) // 100:
                raise WorkloadError(
                    f"{workload.name} has no start times of {len(unknown):,} of "
                    f"{len(workload):,} jobs (the first is job "
                    f"{workload.job_id[unknown[0]]}), so what was known at each submission "
                    "is unknown; give the ends of a simulation (--under POLICY)"
                )
            started = workload.recorded_start_ms
            end = np.where(started < 0, _NEVER, started + workload.runtime_ms)
            return cls(workload, np.maximum(end, workload.submit_ms), tuple(notes))
        given = np.asarray(end_s, np.float64)
        if given.shape != (len(workload),):
            raise ConfigError(
                f"end_s has shape {given.shape}; it must be ({len(workload)},), one value per job"
            )
        end = np.where(np.isnan(given), _NEVER, np.rint(np.nan_to_num(given) * MS_PER_S)).astype(
            np.int64
        )
        early = np.flatnonzero(end < workload.submit_ms)
        if len(early):
            raise ConfigError(f"end_s: job {workload.job_id[early[0]]} ends before it is submitted")
        return cls(workload, end, tuple(notes))

    def until(self, time_s: float) -> Known:
        """Return the view at an earlier time: results of jobs that end later are unknown.

        Args:
            time_s: Time on the workload's clock, in seconds.
        """
        ended = np.where(self.end_ms <= time_s * MS_PER_S, self.end_ms, _NEVER)
        return replace(self, end_ms=ended)

    @cached_property
    def walltime_s(self) -> FloatArray:
        """Walltimes, in seconds [jobs]."""
        return np.maximum(self.workload.walltime_ms / MS_PER_S, 1.0)

    @cached_property
    def truth(self) -> Mapping[str, FloatArray]:
        """True values of the targets; NaN if unknown [jobs].

        - ``runtime_s`` is at most the walltime and at least 1 s.
        - ``node_w`` exists if power was measured.
        - ``memory_gb`` is per node if accounting has the memory used (`Workload.used_memory_gb`),
          per processor if an SWF log has it.
        """
        jobs = self.workload
        ran = np.clip(jobs.runtime_ms / MS_PER_S, 1.0, self.walltime_s)
        ended = self.end_ms < _NEVER
        found = {"runtime_s": np.where(ended, ran, np.nan)}
        if NODE_W in jobs.usage:
            found["node_w"] = np.where(ended, self._means(NODE_W), np.nan)
        used = jobs.used_memory_gb
        if used is None and "used memory" in jobs.carried:
            used = jobs.carried["used memory"] / _KB_PER_GB
        if used is not None and len(np.unique(used[used > 0])) > 1:  # a constant was not measured
            found["memory_gb"] = np.where(ended, used, np.nan)
        return {name: np.where(values > 0, values, np.nan) for name, values in found.items()}

    @cached_property
    def behaviour(self) -> FloatArray:
        """Results of jobs for clustering: requests, each target and each use [jobs, any]."""
        jobs = self.workload
        columns = [np.log2(jobs.nodes), np.log2(self.walltime_s)]
        columns += [np.log2(values) for values in self.truth.values()]
        columns.append(self.truth["runtime_s"] / self.walltime_s)
        for name, use in jobs.usage.items():
            means = self._means(name)
            columns += [] if name == NODE_W else [means]
            if (use.count > 1).any():
                scale = means if name == NODE_W else 1.0
                columns += [value / scale for value in self._spread(name)]
        return np.column_stack(columns)

    @cached_property
    def by_user(self) -> History:
        """History of the same user."""
        return self._history(self.workload.user.codes)

    @cached_property
    def by_like(self) -> History:
        """History of the same user, nodes and walltime."""
        return self._history(
            self.workload.user.codes, self.workload.nodes, self.workload.walltime_ms
        )

    @cached_property
    def by_walltime(self) -> History:
        """History of the same user and walltime."""
        return self._history(self.workload.user.codes, self.workload.walltime_ms)

    @cached_property
    def among_all(self) -> History:
        """History of all jobs."""
        return self._history(np.zeros(len(self.workload), np.int64))

    def _history(self, *columns: npt.NDArray[np.generic]) -> History:
        return History(group_of(*columns), self.workload.submit_ms, self.end_ms)

    def recent(self, target: str) -> FloatArray:
        """Return the mean of the user's last two jobs, at most the walltime [jobs].

        Source: Tsafrir et al. 2007, §3.2. For a user without ended jobs it is the walltime, or for
        other targets the mean of the last 100 jobs.
        """
        truth = self.truth[target]
        found = self.by_user.mean(truth, 2)
        if target != "runtime_s":
            return np.where(np.isnan(found), self.among_all.mean(truth, 100), found)
        return np.clip(np.where(np.isnan(found), self.walltime_s, found), 1.0, self.walltime_s)

    def like(self, target: str) -> FloatArray:
        """Return the value of the last similar job; `recent` if there is none [jobs].

        Similar jobs have the same user, nodes and walltime.
        """
        found = self.by_like.last(self.truth[target])
        return np.where(np.isnan(found), self.recent(target), found)

    def features(self, target: str | None) -> FloatArray:
        """Return what is known at each submission [jobs, `FEATURES`].

        Args:
            target: Target whose history is used; None if none is known.
        """
        user, like, walltime = self.by_user, self.by_like, self.by_walltime
        nothing = np.full(len(self.workload), np.nan)
        value = nothing if target is None else np.log2(self.truth[target])
        recent = nothing if target is None else np.log2(self.recent(target))
        columns = [*self._asked, *self._of_user]
        columns += [np.log2(1.0 + like.count), np.log2(1.0 + walltime.count)]
        columns += [user.last(value, back) for back in (1, 2, 3)]
        columns += [user.mean(value), user.mean(value, 10)]
        columns += [like.last(value, back) for back in (1, 2, 3)]
        columns += [like.mean(value), like.mean(value, 10)]
        columns += [walltime.last(value, back) for back in (1, 2)]
        columns += [walltime.mean(value), walltime.mean(value, 10)]
        columns += [self.among_all.mean(value, 100), recent]
        return np.column_stack(columns)

    @cached_property
    def _asked(self) -> list[FloatArray]:
        jobs = self.workload
        nothing = np.zeros(len(jobs))
        columns = [np.log2(self.walltime_s), np.log2(jobs.nodes)]
        columns += [
            np.asarray(jobs.per_node.get(n, nothing)) for n in ("cores", "gpus", "memory_gb")
        ]
        columns.append(jobs.priority)
        columns += [
            _numbers(labels) for labels in (jobs.user, jobs.account, jobs.partition, jobs.qos)
        ]
        columns += [jobs.submit_ms // _HOUR_MS % 24, jobs.submit_ms // _DAY_MS % 7]
        columns += [jobs.carried.get(name, nothing) for name in _CARRIED]
        return [column.astype(np.float64) for column in columns]

    @cached_property
    def _of_user(self) -> list[FloatArray]:
        jobs, user = self.workload, self.by_user
        submit, end = jobs.submit_ms, self.end_ms
        # Each job counts as ended at its submission; one submitted at the same time is not known
        # yet.
        submitted = History(group_of(jobs.user.codes), submit - 1, submit)
        share = self.truth["runtime_s"] / self.walltime_s
        return [
            np.log2(1.0 + (submit - user.last(end.astype(np.float64))) / MS_PER_S),
            np.log2(1.0 + (submit - submitted.last(submit.astype(np.float64))) / MS_PER_S),
            np.log2(1.0 + np.maximum(submitted.count - user.count, 0)),
            np.log2(1.0 + user.count),
            user.mean(share),
            user.mean(share, 10),
        ]

    def _means(self, name: str) -> FloatArray:
        use = self.workload.usage[name]
        known = use.count > 0
        means = np.full(len(use), np.nan)
        sums = np.add.reduceat(use.values, use.first[:-1][known]) if known.any() else np.zeros(0)
        means[known] = sums / use.count[known]
        return means

    def _spread(self, name: str) -> list[FloatArray]:
        """Return minimum, maximum and standard deviation of samples [3][jobs].

        Source: Maiterth et al., SC25-W, §4.4.3.
        """
        use = self.workload.usage[name]
        known = use.count > 0
        first = use.first[:-1][known]
        off = use.values - np.repeat(np.nan_to_num(self._means(name)), use.count)
        found = [np.full(len(use), np.nan) for _ in range(3)]
        found[0][known] = np.minimum.reduceat(use.values, first)
        found[1][known] = np.maximum.reduceat(use.values, first)
        found[2][known] = np.sqrt(np.add.reduceat(off**2, first) / use.count[known])
        return found


_NEVER = 2**53


def _numbers(labels: Category) -> FloatArray:
    """Return a number per label, equal in all workloads; -1 if unknown [jobs]."""
    import zlib

    numbers = [
        float(label) if label.isdecimal() else float(zlib.crc32(label.encode()) % 100_003)
        for label in labels.labels
    ]
    return np.array([*numbers, -1.0])[labels.codes]
