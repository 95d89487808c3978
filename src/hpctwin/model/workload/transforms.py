"""Parts of a workload, and the same jobs under another load, for `Workload`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, WorkloadError
from hpctwin.model.text.units import MS_PER_S, parse_moment, since, to_ms

__all__ = ["rows_drawn", "rows_within", "submit_for_load"]

IntArray = npt.NDArray[np.int64]

_NEVER = np.iinfo(np.int64).max


def submit_for_load(
    submit_ms: IntArray, runtime_ms: IntArray, nodes: IntArray, load: float, machine: int
) -> IntArray:
    """Return submit times that give a cluster some load; see `Workload.scale`.

    Args:
        submit_ms: Submit times, ascending, in ms [jobs].
        runtime_ms: Run times, in ms [jobs].
        nodes: Requested nodes [jobs].
        load: Target load, as a share of the cluster's capacity.
        machine: Number of nodes of the cluster.

    Raises:
        ConfigError: The load is not above 0.
        WorkloadError: All jobs are submitted at once.
    """
    if not 0 < load < np.inf:
        raise ConfigError(f"load is {load!r}; it must be above 0, such as 0.9")
    later = _since_first(submit_ms)
    span_s = later.max(initial=0) / MS_PER_S
    if span_s <= 0:
        raise WorkloadError("the jobs come all at once, so their load has no scale")
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
    """Return random rows; see `Workload.sample`.

    Raises:
        ConfigError: There are fewer jobs.
    """
    if seed < 0:
        raise ConfigError(f"seed is {seed}, it must be 0 or more")
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
