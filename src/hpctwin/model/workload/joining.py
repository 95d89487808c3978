"""Workloads one after the other, as one."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.errors import WorkloadError
from hpctwin.model.columns import UNKNOWN, joined_labels
from hpctwin.model.workload.checks import check_distinct
from hpctwin.model.workload.dependencies import Dependencies
from hpctwin.model.workload.malleable import joined_malleable
from hpctwin.model.workload.workload import Workload

__all__ = ["LABELS", "joined", "joined_labels", "plain"]

LABELS = ("user", "account", "partition", "qos")
"""The columns of labels."""

IntArray = npt.NDArray[np.int64]

_ARRAYS = (
    "job_id", "submit_ms", "runtime_ms", "walltime_ms", "nodes", "priority", "recorded_start_ms",
    "cancel_ms",
)  # fmt: skip


def plain(workload: Workload) -> Workload:
    """A workload without what no simulation looks at, and without dependencies."""
    return dataclasses.replace(
        workload,
        dependencies=Dependencies.none(),
        recorded_nodes=None,
        header=(),
        carried={},
        usage={},
        used_memory_gb=None,
    )


def joined(first: Workload, second: Workload) -> tuple[Workload, IntArray, IntArray]:
    """The jobs of two `plain` workloads as one, in order of submit time, then id.

    Their labels may differ; those of the first keep their codes.

    Returns:
        The workload, and where the jobs of each of the two are in it.

    Raises:
        WorkloadError: an id is in both, or some ids are numbers and some are not.
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
    for name in (*LABELS, "features", "more_tasks", "group_by"):
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
    if first.fails is not None or second.fails is not None:
        fails = [np.zeros(len(w), bool) if w.fails is None else w.fails for w in (first, second)]
        columns["fails"] = np.concatenate(fails)[order]
    if first.checkpoint_ms is not None or second.checkpoint_ms is not None:
        every = [
            np.full(len(w), UNKNOWN) if w.checkpoint_ms is None else w.checkpoint_ms
            for w in (first, second)
        ]
        columns["checkpoint_ms"] = np.concatenate(every)[order]
    parts = (first.malleable, first.nodes), (second.malleable, second.nodes)
    columns["malleable"] = joined_malleable(parts, order)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return dataclasses.replace(first, **columns), place[:size], place[size:]
