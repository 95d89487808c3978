"""Parts of a workload, and the same jobs under another load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hpctwin.errors import ConfigError, WorkloadError
from hpctwin.model.columns import UNKNOWN
from hpctwin.model.units import parse_duration_s, to_ms

if TYPE_CHECKING:
    from hpctwin.model.workload import Workload

__all__ = ["sampled", "scaled", "within_time"]


def offered_load(workload: Workload, nodes: int) -> float:
    """Node-seconds that are asked for, of those that the machine has while jobs are submitted."""
    work = float((workload.runtime_ms.astype(np.float64) * workload.nodes).sum()) / 1000
    return work / (nodes * workload.span_s)


def scaled(workload: Workload, load: float, nodes: int | None) -> Workload:
    """See `Workload.scale`."""
    machine = nodes if nodes is not None else workload.nodes_hint
    if machine is None:
        raise ConfigError(
            f"{workload.name} does not say how large its machine was; give nodes, as in "
            "scale(load=0.9, nodes=128)"
        )
    if not 0 < load < np.inf:
        raise ConfigError(f"load is {load!r}; it must be above 0, such as 0.9")
    if workload.span_s <= 0:
        raise WorkloadError(
            f"{workload.name}: its jobs come all at once, so their load has no scale"
        )
    factor = offered_load(workload, machine) / load
    first = workload.submit_ms[0]
    submit = first + np.rint((workload.submit_ms - first) * factor).astype(np.int64)
    moved = submit - workload.submit_ms
    cancel = np.where(workload.cancel_ms < 0, workload.cancel_ms, workload.cancel_ms + moved)
    order = np.lexsort((workload.job_id, submit))
    return workload.replace(
        submit_ms=submit,
        cancel_ms=cancel,
        recorded_start_ms=np.full(len(workload), UNKNOWN),
        recorded_nodes=None,
    ).in_order(order)


def within_time(workload: Workload, begin: float | str, end: float | str | None) -> Workload:
    """See `Workload.window`."""
    since = workload.submit_ms - workload.submit_ms.min(initial=0)
    kept = since >= to_ms(parse_duration_s(begin))
    if end is not None:
        kept &= since < to_ms(parse_duration_s(end))
    return workload.take(kept)


def sampled(workload: Workload, jobs: int | float, seed: int) -> Workload:
    """See `Workload.sample`."""
    share = isinstance(jobs, float)
    if (share and not 0 <= jobs <= 1) or not 0 <= jobs <= max(len(workload), 1):
        raise ConfigError(
            f"jobs is {jobs!r}; it must be a number of jobs, up to {len(workload):,}, or a share such as 0.1"
        )
    count = round(jobs * len(workload)) if share else int(jobs)
    rows = np.random.default_rng(seed).choice(len(workload), count, replace=False)
    return workload.take(rows)
