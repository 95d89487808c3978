"""What ids and values of jobs can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.errors import WorkloadError

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
        if values.dtype.kind != "f":
            continue
        must = "must be a finite number"
        bad = ~np.isfinite(values)
        if name.startswith("predicted ") or name == "used_memory_gb":
            bad = ~((values > 0) & (values < np.inf) | np.isnan(values))
            must = "must be above 0, or empty"
        elif name == "nodes":
            bad |= (values < 1) | (values != np.floor(values))
            must = "must be a whole number above 0"
        elif name == "walltime_s":
            bad |= values <= 0
            must = "must be above 0"
        elif name.startswith("resource "):
            bad |= (values < 0) | (values != np.floor(values))
            must = "must be a whole number, 0 or more"
        elif name in ("submit_s", "runtime_s") or name.startswith("per-node "):
            bad |= values < 0
            must = "must be 0 or more"
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise WorkloadError(f"job {ids[row]}: {name} is {values[row]:g}, it {must}")
