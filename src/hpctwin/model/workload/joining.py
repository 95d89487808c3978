"""Join workloads, and jobs in batches with dependencies across batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import WorkloadError
from hpctwin.model.columns import UNKNOWN, Category, joined_labels
from hpctwin.model.workload.demands import joined_demands
from hpctwin.model.workload.dependencies import Dependencies, NamedEdges
from hpctwin.model.workload.frame import named_edges
from hpctwin.model.workload.jobs import Usage, check_distinct
from hpctwin.model.workload.malleable import joined_malleable
from hpctwin.model.workload.workload import Workload

LABELS = ("user", "account", "partition", "qos")
"""Columns of labels."""
NOBODY = ""
"""The user or account of jobs that name none."""

IntArray = npt.NDArray[np.int64]

_ARRAYS = (
    "job_id", "submit_ms", "runtime_ms", "walltime_ms", "nodes", "priority", "recorded_start_ms",
    "cancel_ms",
)  # fmt: skip


def plain(workload: Workload) -> Workload:
    """Return a workload without dependencies and without what no simulation uses."""
    return dataclasses.replace(
        workload,
        dependencies=Dependencies.none(),
        recorded_nodes=None,
        header=(),
        carried={},
        used_memory_gb=None,
    )


def joined(first: Workload, second: Workload) -> tuple[Workload, IntArray, IntArray]:
    """Return the jobs of two `plain` workloads as one, by submit time, then id.

    Their labels may differ; those of the first keep their codes.

    Returns:
        The workload, and the positions of the jobs of each of the two in it.

    Raises:
        WorkloadError: An id is in both, or some ids are numbers and some are not.
    """
    if first.job_id.dtype.kind != second.job_id.dtype.kind:
        odd = {"U": "text", "i": "whole numbers"}
        raise WorkloadError(
            f"job ids were {odd[first.job_id.dtype.kind]}, now they are "
            f"{odd[second.job_id.dtype.kind]}: job {second.job_id[0]}"
        )
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in _ARRAYS
    }
    order = np.arange(len(columns["nodes"]))
    size = len(first)
    if size and len(second) and second.submit_ms[0] <= first.submit_ms[-1]:
        order = np.lexsort((columns["job_id"], columns["submit_ms"]))
        columns = {name: column[order] for name, column in columns.items()}
    check_distinct(columns["job_id"])
    for name in (*LABELS, "features", "more_tasks", "group_by", "profile"):
        columns[name] = joined_labels(getattr(first, name), getattr(second, name)).take(order)
    for name, dtype, unsaid in (
        ("per_node", np.float64, 0.0),
        ("resources", np.int64, 0),
        ("chunks", np.float64, 0.0),
        ("consumables", np.float64, 0.0),
        ("predicted", np.float64, np.nan),
    ):
        amounts = getattr(first, name), getattr(second, name)
        columns[name] = {
            kind: np.concatenate(
                [
                    np.full(len(part), unsaid, dtype) if kind not in found else found[kind]
                    for part, found in zip((first, second), amounts, strict=True)
                ]
            )[order]
            for kind in {**amounts[0], **amounts[1]}
        }
    both = (first.usage, len(first)), (second.usage, len(second))
    columns["usage"] = {
        name: Usage.joined([(found.get(name), jobs) for found, jobs in both]).take(order)
        for name in {**first.usage, **second.usage}
    }
    if first.fails is not None or second.fails is not None:
        fails = [np.zeros(len(w), bool) if w.fails is None else w.fails for w in (first, second)]
        columns["fails"] = np.concatenate(fails)[order]
    if first.checkpoint_ms is not None or second.checkpoint_ms is not None:
        every = [
            np.full(len(w), UNKNOWN) if w.checkpoint_ms is None else w.checkpoint_ms
            for w in (first, second)
        ]
        columns["checkpoint_ms"] = np.concatenate(every)[order]
    if first.profiles is not None or second.profiles is not None:
        does = [w.profiles or (None,) * len(w) for w in (first, second)]
        columns["profiles"] = tuple((does[0] + does[1])[row] for row in order)
    parts = (first.malleable, first.nodes), (second.malleable, second.nodes)
    columns["malleable"] = joined_malleable(parts, order)
    found = (first.demands, len(first)), (second.demands, len(second))
    columns["demands"] = joined_demands(found, order)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return dataclasses.replace(first, **columns), place[:size], place[size:]


def named_pairs(account: Category, user: Category) -> tuple[list[tuple[str, str]], IntArray]:
    """Return the different (account, user) pairs of some jobs, and the pair of each job."""
    codes = np.column_stack([account.codes, user.codes])
    found, of_job = np.unique(codes, axis=0, return_inverse=True)
    accounts, users = ((*one.labels, NOBODY) for one in (account, user))
    return [(accounts[one], users[other]) for one, other in found.tolist()], of_job.ravel()


@dataclass(frozen=True, eq=False)
class Batch:
    """Some jobs of a stream, in order of submit time.

    Args:
        workload: Jobs, as from `hpctwin.model.workload.joining.plain`.
        edges: Dependencies of these jobs, on jobs here or in other batches.
        across: Whether jobs of this or later batches may wait for jobs of others.
        shares: Whether jobs of this or later batches may request tasks, so that nodes are shared.
    """

    workload: Workload
    edges: NamedEdges
    across: bool = False
    shares: bool = False

    def __len__(self) -> int:
        return len(self.workload)

    @classmethod
    def of_workload(cls, workload: Workload) -> Self:
        """Return a workload as a batch."""
        edges = NamedEdges.of(workload.dependencies, workload.job_id)
        return cls(plain(workload), edges, shares=workload.shares_nodes)

    @classmethod
    def of_frame(cls, frame: pl.DataFrame, first: int = 0) -> Self:
        """Return a table in hpctwin's columns as a batch.

        The columns are those of `hpctwin.model.workload.frame`.

        Args:
            first: Number of rows before it; ids are row numbers if there are none.
        """
        if "job_id" not in frame.columns:
            frame = frame.with_columns(job_id=pl.int_range(first + 1, first + len(frame) + 1))
        shares = any(
            name in frame.columns and frame[name].null_count() < len(frame)
            for name in ("tasks", "request")
        )
        if "depends" not in frame.columns:
            whole = cls.of_workload(Workload.from_frame(frame))
            return dataclasses.replace(whole, shares=shares)
        workload = Workload.from_frame(frame.drop("depends"))
        edges = edges_of(frame["depends"], frame["job_id"].to_numpy())
        return cls(plain(workload), edges, True, shares)

    @classmethod
    def pieces(cls, workload: Workload, size: int) -> Iterator[Self]:
        """Yield a workload as batches of N jobs."""
        edges = NamedEdges.of(workload.dependencies, workload.job_id)
        by_job = np.argsort(workload.dependencies.job, kind="stable")
        row = workload.dependencies.job[by_job]
        bare = plain(workload)
        for first in range(0, len(workload), size):
            last = min(first + size, len(workload))
            own = by_job[np.searchsorted(row, first) : np.searchsorted(row, last)]
            part = bare.take(np.arange(first, last))
            yield cls(part, edges.where(own), len(edges) > 0, workload.shares_nodes)

    @classmethod
    def joined(cls, batches: Sequence[Self]) -> Self:
        """Return several batches as one."""
        parts = list(batches)
        while len(parts) > 1:
            # In pairs, so that each job is copied only as often as the logarithm of their number.
            pairs = zip(parts[::2], parts[1::2], strict=False)
            odd = parts[-1:] if len(parts) % 2 else []
            parts = [
                cls(
                    joined(a.workload, b.workload)[0],
                    a.edges.and_then(b.edges),
                    a.across or b.across,
                    a.shares or b.shares,
                )
                for a, b in pairs
            ] + odd
        return parts[0]


def edges_of(depends: pl.Series, ids: npt.NDArray[Any]) -> NamedEdges:
    """Return the dependencies in a column ``depends``."""
    edges = named_edges(depends, ids)
    names = [name for _, name, _, _ in edges]
    kind = np.array([kind for _, _, kind, _ in edges], np.int8)
    delay = np.array([delay_ms for *_, delay_ms in edges], np.int64)
    job = ids[np.array([row for row, *_ in edges], np.int64)]
    on: npt.NDArray[Any] = np.array(names, np.str_)
    if ids.dtype.kind in "iu":
        job = job.astype(np.int64)
        on = np.array([_number(name, one) for name, one in zip(names, job, strict=True)], np.int64)
    else:
        job = job.astype(np.str_)
    return NamedEdges(job, on, kind, delay)


def _number(name: str, job: object) -> int:
    if not name.removeprefix("-").isdecimal() or str(int(name)) != name:
        raise WorkloadError(
            f"job {job}: depends on job {name}, which cannot exist, since job ids are whole numbers"
        )
    return int(name)
