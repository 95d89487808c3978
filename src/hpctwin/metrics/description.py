"""Description of a workload: size, span, load, distributions."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.model import MS_PER_S, Category, Workload
from hpctwin.model.demand import totals_asked

__all__ = ["QUANTILES", "Description", "describe"]

QUANTILES = {"min": 0.0, "p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99, "max": 1.0}  # fmt: skip  # noqa: E501


_PER_TASK = ("tasks", "cores_per_task", "memory_gb_per_task", "gpus_per_task")


@dataclass(frozen=True)
class Description:
    """Statistics of a workload.

    Args:
        figures: Flat dict: jobs, span_s, nodes, nodes_are (origin of that number), offered_load,
            dates, counts of users, accounts and partitions, and shares of all jobs. If jobs share
            nodes, these replace loads and hours of nodes: jobs_with_tasks, core_hours, gpu_hours,
            and offered_cores, offered_memory_gb and offered_gpus, the mean amounts held if no job
            waited.
        distributions: ``nodes``, ``runtime_s``, ``walltime_s``, ``interarrival_s`` and
            ``walltime_accuracy`` (runtime / walltime): min, p5, p25, median, mean, p75, p95, p99,
            max. If jobs share nodes, ``nodes`` is only of jobs that request whole ones, and the
            other jobs have ``tasks``, ``cores_per_task``, ``memory_gb_per_task``, ``gpus_per_task``
            and ``cores`` (per job).
        by_width: ``nodes`` (upper end of the class), ``jobs``, ``node_hours``; if jobs share nodes
            ``cores``, ``jobs``, ``core_hours``.
        by_hour: Jobs by hour of the day, 24 numbers; UTC if the date is known, else since time
            zero.
        top_users: ``user``, ``jobs``, ``node_hours`` or ``core_hours``, at most ten.
        notes: Changes of the reader, and the number of records that it omitted.
    """

    figures: dict[str, Any]
    distributions: dict[str, dict[str, float]]
    by_width: list[dict[str, Any]]
    by_hour: list[int]
    top_users: list[dict[str, Any]]
    notes: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values, with the entries of ``figures`` at the top."""
        rest = asdict(self)
        return {**rest.pop("figures"), **rest}


def describe(workload: Workload, nodes: int | None = None) -> Description:
    """Return the description of a workload.

    Args:
        workload: The jobs.
        nodes: Size of the cluster, for the load; by default the workload's, or its widest job.
    """
    size = len(workload)
    submit = workload.submit_ms / MS_PER_S
    runtime = workload.runtime_ms / MS_PER_S
    walltime = workload.walltime_ms / MS_PER_S
    machine, origin = _machine(workload, nodes)
    shared = workload.shares_nodes
    asked = totals_asked(workload)
    unit, width = (
        ("core", asked["cores"]) if shared else ("node", workload.nodes.astype(np.float64))
    )
    work = runtime * width
    span = workload.span_s
    figures: dict[str, Any] = {
        "workload": workload.name,
        "jobs": size,
        "span_s": span,
        "nodes": machine,
        "nodes_are": origin,
        **(
            _asked_of_shared(workload, asked, runtime)
            if machine is None or shared
            else {"offered_load": float(work.sum()) / (machine * span) if span > 0 else None}
        ),
        f"{unit}_hours": float(work.sum()) / 3600,
        **_dates(workload),
        "users": _known(workload.user),
        "accounts": _known(workload.account),
        "partitions": _known(workload.partition),
    }
    if size:
        power_of_two = np.log2(np.maximum(width, 1e-9)) % 1 == 0
        waits = np.unique(workload.dependencies.job)
        figures |= {
            "share_serial": float((width == 1).mean()),
            "share_power_of_two": float(power_of_two.mean()),
            "share_past_walltime": float((runtime > walltime).mean()),
            "share_with_dependencies": len(waits) / size,
            "share_with_recorded_start": float((workload.recorded_start_ms >= 0).mean()),
        }
        for name in ("comm_bytes", "read_bytes", "write_bytes"):
            if name in workload.demands:
                some = np.asarray(workload.demands[name]) > 0
                figures[f"share_with_{name}"] = float(some.mean())
    return Description(
        figures=figures,
        distributions={
            **_sizes(workload, asked["cores"]),
            "runtime_s": _distribution(runtime),
            "walltime_s": _distribution(walltime),
            "interarrival_s": _distribution(np.diff(submit)),
            "walltime_accuracy": _distribution(runtime / walltime),
        },
        by_width=_by_width(unit, width, work),
        by_hour=_by_hour(workload, submit),
        top_users=_top_users(workload, unit, work),
        notes={**workload.notes.counts, "records omitted": len(workload.notes.skipped)},
    )


def _asked_of_shared(
    workload: Workload, asked: dict[str, npt.NDArray[np.float64]], runtime: npt.NDArray[np.float64]
) -> dict[str, Any]:
    """Return requests of jobs that share nodes, and the mean held if no job waited."""
    held = {name: float((amount * runtime).sum()) for name, amount in asked.items() if amount.any()}
    span = workload.span_s
    return {
        "jobs_with_tasks": int((workload.chunks["tasks"] > 0).sum()),
        **({f"offered_{name}": amount / span for name, amount in held.items()} if span > 0 else {}),
        **({"gpu_hours": held["gpus"] / 3600} if "gpus" in held else {}),
    }


def _sizes(workload: Workload, cores: npt.NDArray[np.float64]) -> dict[str, dict[str, float]]:
    """Return distributions of requested sizes."""
    nodes = workload.nodes.astype(np.float64)
    if not workload.shares_nodes:
        return {"nodes": _distribution(nodes)}
    asks = workload.chunks["tasks"] > 0
    columns = {name: workload.chunks[name][asks] for name in _PER_TASK} | {"cores": cores[asks]}
    found = {name: _distribution(column) for name, column in columns.items() if column.any()}
    return found if asks.all() else {"nodes": _distribution(nodes[~asks]), **found}


def _machine(workload: Workload, nodes: int | None) -> tuple[int | None, str]:
    if nodes is not None:
        return nodes, "as given"
    if workload.nodes_hint is not None:
        return workload.nodes_hint, "as the trace says"
    if workload.shares_nodes:
        return None, "not known"
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


def _by_width(
    unit: str, width: npt.NDArray[np.float64], work: npt.NDArray[np.float64]
) -> list[dict[str, Any]]:
    """Return jobs and node- or core-hours by width: 1, 2, up to 4, up to 8, and so on."""
    order = np.ceil(np.log2(np.maximum(width, 1))).astype(np.int64)
    jobs = np.bincount(order)
    hours = np.bincount(order, weights=work) / 3600
    return [
        {f"{unit}s": 2**k, "jobs": int(n), f"{unit}_hours": float(hours[k])}
        for k, n in enumerate(jobs)
        if n
    ]


def _by_hour(workload: Workload, submit: npt.NDArray[np.float64]) -> list[int]:
    hour = ((submit + (workload.start_epoch_s or 0.0)) // 3600 % 24).astype(np.int64)
    return [int(n) for n in np.bincount(hour, minlength=24)]


def _top_users(
    workload: Workload, unit: str, work: npt.NDArray[np.float64]
) -> list[dict[str, Any]]:
    known = workload.user.codes >= 0
    labels = len(workload.user.labels)
    hours = np.bincount(workload.user.codes[known], weights=work[known], minlength=labels) / 3600
    jobs = np.bincount(workload.user.codes[known], minlength=labels)
    return [
        {"user": workload.user.labels[i], "jobs": int(jobs[i]), f"{unit}_hours": float(hours[i])}
        for i in np.argsort(-hours, kind="stable")[:10]
        if jobs[i]
    ]
