"""Valid ids and values of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpctwin.errors import WorkloadError

_ABOVE_ZERO, _LARGEST = np.nextafter(0.0, 1.0), np.finfo(np.float64).max

__all__ = ["check_distinct", "check_values"]


def check_distinct(ids: npt.NDArray[Any]) -> None:
    """Check that job ids are distinct.

    Raises:
        WorkloadError: Two are equal.
    """
    if ids.dtype.kind == "i" and (ids[1:] > ids[:-1]).all():
        return
    distinct, counts = np.unique(ids, return_counts=True)
    if len(distinct) != len(ids):
        raise WorkloadError(f"job id {distinct[counts > 1][0]} is used more than once")


def check_values(ids: npt.NDArray[Any], columns: Mapping[str, npt.NDArray[Any]]) -> None:
    """Check that the columns of jobs have valid values.

    Args:
        ids: Ids of the jobs, for the message [jobs].
        columns: Columns by their names in `Workload.build`, each [jobs].

    Raises:
        WorkloadError: A value is invalid; the first job with such a value is named.
    """
    for name, values in columns.items():
        if values.dtype.kind != "f" or not len(values):
            continue
        rule = _rule(name)
        # For most columns, the smallest and the largest value suffice; NaN fails both comparisons.
        if rule.least <= values.min() and values.max() < np.inf and not rule.whole:
            continue
        bad = ~((values >= rule.least) & (values < np.inf))
        if rule.whole:
            bad |= values != np.floor(values)
        if rule.empty:
            bad &= ~np.isnan(values)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise WorkloadError(f"job {ids[row]}: {name} is {values[row]:g}, it {rule.must}")


class _Rule(NamedTuple):
    """Rule for the values of a column: lower bound, whole numbers, known."""

    must: str
    least: float
    whole: bool = False
    empty: bool = False


def _rule(name: str) -> _Rule:
    if name == "nodes":
        return _Rule("must be a whole number above 0", 1.0, whole=True)
    if name == "walltime_s":
        return _Rule("must be above 0", _ABOVE_ZERO)
    if name.startswith("resource "):
        return _Rule("must be a whole number, 0 or more", 0.0, whole=True)
    if name in ("submit_s", "runtime_s") or name.startswith("per-node "):
        return _Rule("must be 0 or more", 0.0)
    if name.startswith("predicted ") or name == "used_memory_gb":
        return _Rule("must be above 0, or empty", _ABOVE_ZERO, empty=True)
    return _Rule("must be a finite number", -_LARGEST)
