"""What a workload is like: size, span, load, distributions."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.model import MS_PER_S, Category, Workload

__all__ = ["QUANTILES", "Description", "describe"]

QUANTILES = {"min": 0.0, "p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99, "max": 1.0}  # fmt: skip  # noqa: E501


@dataclass(frozen=True)
class Description:
    """A workload in figures.

    Args:
        figures: flat: jobs, span_s, nodes, nodes_are (where that number comes from), offered_load,
            dates, counts of users, accounts and partitions, and shares of all jobs.
        distributions: of ``nodes``, ``runtime_s``, ``walltime_s``, ``interarrival_s`` and
            ``walltime_accuracy`` (runtime / walltime): min, p5, p25, median, mean, p75, p95, p99, max.
        by_width: ``nodes`` (upper end of the class), ``jobs``, ``node_hours``.
        by_hour: jobs by hour of the day, 24 numbers; UTC if the date is known, else since time zero.
        top_users: ``user``, ``jobs``, ``node_hours``, at most ten.
        notes: what the reader changed, and how many records it left out.
    """

    figures: dict[str, Any]
    distributions: dict[str, dict[str, float]]
    by_width: list[dict[str, Any]]
    by_hour: list[int]
    top_users: list[dict[str, Any]]
    notes: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain values; the figures on top."""
        rest = asdict(self)
        return {**rest.pop("figures"), **rest}


def describe(workload: Workload, nodes: int | None = None) -> Description:
    """Describe a workload.

    Args:
        workload: the jobs.
        nodes: size of the machine, for the load; what the workload says, or its widest job, if left out.
    """
    size = len(workload)
    submit = workload.submit_ms / MS_PER_S
    runtime = workload.runtime_ms / MS_PER_S
    walltime = workload.walltime_ms / MS_PER_S
    machine, origin = _machine(workload, nodes)
    work = runtime * workload.nodes
    span = workload.span_s
    figures: dict[str, Any] = {
        "workload": workload.name,
        "jobs": size,
        "span_s": span,
        "nodes": machine,
        "nodes_are": origin,
        "offered_load": float(work.sum()) / (machine * span) if span > 0 else None,
        "node_hours": float(work.sum()) / 3600,
        **_dates(workload),
        "users": _known(workload.user),
        "accounts": _known(workload.account),
        "partitions": _known(workload.partition),
    }
    if size:
        power_of_two = (workload.nodes & (workload.nodes - 1)) == 0
        waits = np.unique(workload.dependencies.job)
        figures |= {
            "share_serial": float((workload.nodes == 1).mean()),
            "share_power_of_two": float(power_of_two.mean()),
            "share_past_walltime": float((runtime > walltime).mean()),
            "share_with_dependencies": len(waits) / size,
            "share_with_recorded_start": float((workload.recorded_start_ms >= 0).mean()),
        }
    return Description(
        figures=figures,
        distributions={
            "nodes": _distribution(workload.nodes.astype(np.float64)),
            "runtime_s": _distribution(runtime),
            "walltime_s": _distribution(walltime),
            "interarrival_s": _distribution(np.diff(submit)),
            "walltime_accuracy": _distribution(runtime / walltime),
        },
        by_width=_by_width(workload, work),
        by_hour=_by_hour(workload, submit),
        top_users=_top_users(workload, work),
        notes={**workload.notes.counts, "records left out": len(workload.notes.skipped)},
    )


def _machine(workload: Workload, nodes: int | None) -> tuple[int, str]:
    if nodes is not None:
        return nodes, "as given"
    if workload.nodes_hint is not None:
        return workload.nodes_hint, "as the trace says"
    return int(workload.nodes.max(initial=1)), "the widest job"


def _known(category: Category) -> int:
    return len(np.unique(category.codes[category.codes >= 0]))


def _dates(workload: Workload) -> dict[str, str]:
    if workload.start_epoch_s is None or not len(workload):
        return {}
    ends = {"first_submit": workload.submit_ms[0], "last_submit": workload.submit_ms[-1]}
    return {
        name: dt.datetime.fromtimestamp(workload.start_epoch_s + ms / MS_PER_S, dt.UTC).isoformat(
            timespec="seconds"
        )
        for name, ms in ends.items()
    }


def _distribution(values: npt.NDArray[np.float64]) -> dict[str, float]:
    if not len(values):
        return {}
    found = np.quantile(values, list(QUANTILES.values()))
    return {**dict(zip(QUANTILES, found.tolist(), strict=True)), "mean": float(values.mean())}


def _by_width(workload: Workload, work: npt.NDArray[np.float64]) -> list[dict[str, Any]]:
    """Jobs and node-hours by width: 1, 2, up to 4, up to 8, and so on."""
    order = np.ceil(np.log2(np.maximum(workload.nodes, 1))).astype(np.int64)
    jobs = np.bincount(order)
    hours = np.bincount(order, weights=work) / 3600
    return [
        {"nodes": 2**k, "jobs": int(n), "node_hours": float(hours[k])}
        for k, n in enumerate(jobs)
        if n
    ]


def _by_hour(workload: Workload, submit: npt.NDArray[np.float64]) -> list[int]:
    hour = ((submit + (workload.start_epoch_s or 0.0)) // 3600 % 24).astype(np.int64)
    return [int(n) for n in np.bincount(hour, minlength=24)]


def _top_users(workload: Workload, work: npt.NDArray[np.float64]) -> list[dict[str, Any]]:
    known = workload.user.codes >= 0
    labels = len(workload.user.labels)
    hours = np.bincount(workload.user.codes[known], weights=work[known], minlength=labels) / 3600
    jobs = np.bincount(workload.user.codes[known], minlength=labels)
    return [
        {"user": workload.user.labels[i], "jobs": int(jobs[i]), "node_hours": float(hours[i])}
        for i in np.argsort(-hours, kind="stable")[:10]
        if jobs[i]
    ]
