"""Use of nodes by running jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpctwin.errors import WorkloadError
from hpctwin.model.text.units import MS_PER_S

__all__ = ["NODE_W", "Usage"]

IntArray = npt.NDArray[np.int64]
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
            raise WorkloadError(f"samples are {step_s:g} s apart, it must be 0.001 s or more")
        parts = [np.asarray(one, np.float64) for one in samples]
        first = np.concatenate([[0], np.cumsum([len(one) for one in parts])]).astype(np.int64)
        values = np.concatenate([np.zeros(0), *parts])
        return cls(first, np.full(len(parts), round(step_s * MS_PER_S), np.int64), values)

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
                f"{self.values[place]:g}, it must be {must}"
            )
