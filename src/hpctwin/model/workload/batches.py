"""Jobs in batches, of which some may wait for jobs of others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import WorkloadError
from hpctwin.model.workload.dependencies import NamedEdges
from hpctwin.model.workload.frame import named_edges
from hpctwin.model.workload.joining import joined, plain
from hpctwin.model.workload.workload import Workload

__all__ = ["Batch"]


@dataclass(frozen=True, eq=False)
class Batch:
    """Some jobs of a stream, in order of submit time.

    Args:
        workload: the jobs, as `hpctwin.model.workload.joining.plain`.
        edges: which of them wait for which, here or in other batches.
        across: whether jobs of this or later batches may wait for jobs of others.
        shares: whether jobs of this or later batches may ask for tasks, so that nodes are shared.
    """

    workload: Workload
    edges: NamedEdges
    across: bool = False
    shares: bool = False

    def __len__(self) -> int:
        return len(self.workload)

    @classmethod
    def of_workload(cls, workload: Workload) -> Self:
        """A workload as a batch."""
        edges = NamedEdges.of(workload.dependencies, workload.job_id)
        return cls(plain(workload), edges, shares=workload.shares_nodes)

    @classmethod
    def of_frame(cls, frame: pl.DataFrame, first: int = 0) -> Self:
        """A table in our columns (`hpctwin.model.workload.frame`) as a batch.

        Args:
            frame: the table.
            first: so many rows came before it; ids are row numbers where there are none.

        Raises:
            WorkloadError: it is not valid.
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
        """A workload as batches of so many jobs."""
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
        """Several batches as one."""
        parts = list(batches)
        while len(parts) > 1:
            # By twos, so that each job is copied as often as the logarithm of their number.
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
    """The dependencies in a column ``depends``.

    Args:
        depends: the column.
        ids: of the jobs, as they are in it.

    Raises:
        WorkloadError: a cell cannot be read, or names a job that cannot be there.
    """
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
    if not name.removeprefix("-").isdigit() or str(int(name)) != name:
        raise WorkloadError(
            f"job {job}: depends on job {name}, which cannot be there, for ids are whole numbers"
        )
    return int(name)
