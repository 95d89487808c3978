"""What ids and values of jobs can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.errors import WorkloadError

_ABOVE_ZERO, _LARGEST = np.nextafter(0.0, 1.0), np.finfo(np.float64).max

__all__ = ["check_distinct", "check_values"]


def check_distinct(ids: npt.NDArray[Any]) -> None:
    """Whether each job has an id of its own.

    Raises:
        WorkloadError: two have the same.
    """
    if ids.dtype.kind == "i" and (ids[1:] > ids[:-1]).all():
        return
    distinct, counts = np.unique(ids, return_counts=True)
    if len(distinct) != len(ids):
        raise WorkloadError(f"job id {distinct[counts > 1][0]} is used more than once")


def check_values(ids: npt.NDArray[Any], columns: Mapping[str, npt.NDArray[Any]]) -> None:
    """Whether the columns of jobs have values that can be.

    Args:
        ids: of the jobs, for the message [jobs].
        columns: as `Workload.build` names them, each [jobs].

    Raises:
        WorkloadError: one has not; the first job with such a value is named.
    """
    for name, values in columns.items():
        if values.dtype.kind != "f" or not len(values):
            continue
        must, least, whole = _rule(name)
        if name.startswith("predicted ") or name == "used_memory_gb":
            bad = ~((values > 0) & (values < np.inf) | np.isnan(values))
        elif least <= values.min() and values.max() < np.inf and not whole:
            continue
        else:
            bad = ~((values >= least) & (values < np.inf))
            bad |= whole and values != np.floor(values)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise WorkloadError(f"job {ids[row]}: {name} is {values[row]:g}, it {must}")


def _rule(name: str) -> tuple[str, float, bool]:
    """What the values of a column must be, the least that they may, and whether they are whole."""
    if name == "nodes":
        return "must be a whole number above 0", 1.0, True
    if name == "walltime_s":
        return "must be above 0", _ABOVE_ZERO, False
    if name.startswith("resource "):
        return "must be a whole number, 0 or more", 0.0, True
    if name in ("submit_s", "runtime_s") or name.startswith("per-node "):
        return "must be 0 or more", 0.0, False
    if name.startswith("predicted ") or name == "used_memory_gb":
        return "must be above 0, or empty", _ABOVE_ZERO, False
    return "must be a finite number", -_LARGEST, False
