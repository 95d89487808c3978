"""Small workloads and clusters, and what came of them, for schedules worked out by hand.

A job is written (submit, runtime, walltime, nodes), in seconds; rows are named 0, 1, 2, … in the
order in which they are written, which is by submit time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpctwin.model import Category, Cluster, Dependencies, DependencyKind, State, Workload
from tests.reference import Pass, ReferenceJob, simulate_reference

Row = tuple[float, float, float, int]
AFTER, AFTERANY, AFTEROK, THINK = DependencyKind


def labels(*values: str | None) -> Category:
    known = sorted({value for value in values if value is not None})
    codes = [-1 if value is None else known.index(value) for value in values]
    return Category(np.array(codes, np.int32), tuple(known))


def jobs(*rows: Row, **columns: Any) -> Workload:
    submit, runtime, walltime, nodes = zip(*rows, strict=True)
    assert list(submit) == sorted(submit)
    return Workload.build(
        submit_s=submit, runtime_s=runtime, walltime_s=walltime, nodes=nodes, **columns
    )


def edges(*rows: tuple[int, int, DependencyKind, int]) -> Dependencies:
    """(job, job it waits for, kind, delay in seconds)."""
    return Dependencies.of([(job, on, kind, delay * 1000) for job, on, kind, delay in rows])


Run = Callable[..., list[ReferenceJob]]


def passes_of(workload: Workload, cluster: Cluster | int, **how: Any) -> list[Pass]:
    """The passes of the reference."""
    passes: list[Pass] = []
    simulate_reference(workload, as_cluster(cluster), log=passes, **how)
    return passes


def as_cluster(cluster: Cluster | int) -> Cluster:
    """A number is that of equal nodes."""
    return Cluster.uniform(nodes=cluster) if isinstance(cluster, int) else cluster


def seconds(times_ms: Sequence[int]) -> list[float]:
    return [time if time < 0 else time / 1000 for time in times_ms]


def starts(result: list[ReferenceJob]) -> list[float]:
    return seconds([job.start_ms for job in result])


def ends(result: list[ReferenceJob]) -> list[float]:
    return seconds([job.end_ms for job in result])


def states(result: list[ReferenceJob]) -> list[State]:
    return [job.state for job in result]


def cluster_of(**content: Any) -> Cluster:
    return Cluster.model_validate(content)


def three_groups(**content: Any) -> Cluster:
    """Two nodes each in groups and partitions a, b, c; a is the default."""
    return cluster_of(
        nodes=[{"name": name, "count": 2} for name in "abc"],
        partitions=[{"name": name, "groups": [name], "default": name == "a"} for name in "abc"],
        **content,
    )
