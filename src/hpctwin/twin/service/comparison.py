"""Comparison of the twin with static policies on one workload, as in SchedTwin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hpctwin.metrics import kiviat_area, kiviat_scores
from hpctwin.model import Cluster, Workload, format_duration
from hpctwin.model.text import count_text
from hpctwin.policies import parse_policy
from hpctwin.report.columns import Table
from hpctwin.rms.records import events as ev
from hpctwin.simulation import Simulation
from hpctwin.twin.core.core import Core
from hpctwin.twin.emulated import emulated_cluster
from hpctwin.twin.service.virtual_time import drive
from hpctwin.twin.settings.config import CoreSettings
from hpctwin.twin.what_if.objective import METRICS, Normalize, Objective

__all__ = [
    "METRIC_ORDER",
    "STATIC",
    "TWIN",
    "Row",
    "judge",
    "means",
    "objective_table",
    "row_of",
    "static_row",
    "twin_row",
]

STATIC = ("fcfs+easy", "sjf+easy", "wfp+easy")
TWIN = "schedtwin"
METRIC_ORDER = ("max_wait_s", "mean_wait_s", "max_slowdown", "mean_slowdown", "utilization")
"""Metrics of SchedTwin's figure 3.

The paper does not give their order, on which the area depends.
"""


@dataclass
class Row:
    """Metrics of one method on one workload.

    Args:
        method: Name of the policy, or of the twin.
        seed: Seed of the workload.
        max_wait_s, mean_wait_s, max_slowdown, mean_slowdown: Metrics over all jobs.
        utilization: Utilization from the first submission to the last end.
        objective: The twin's objective over all jobs, normalized over the methods of this seed;
            lower is better.
        area: Area of the polygon in the Kiviat chart of this seed's methods.
        share_by_policy: Share of all jobs that was started under each policy.
        cycle_ms_mean: Mean time until a policy was chosen, in milliseconds; 0 for static policies.
        forecast_ms_mean: Mean time of the forecasts that followed, in milliseconds.
    """

    method: str
    seed: int
    max_wait_s: float
    mean_wait_s: float
    max_slowdown: float
    mean_slowdown: float
    utilization: float
    objective: float = 0.0
    area: float = 0.0
    share_by_policy: dict[str, float] = field(default_factory=dict)
    cycle_ms_mean: float = 0.0
    forecast_ms_mean: float = 0.0

    def plain(self) -> dict[str, Any]:
        """Return the row as a dictionary."""
        return asdict(self)


def twin_row(jobs: Workload, nodes: int, settings: CoreSettings, seed: int = 0) -> Row:
    """Return the metrics of the twin on a workload.

    Args:
        jobs: The workload; jobs run for their runtimes, which the twin does not know.
        nodes: Number of nodes of the cluster.
        settings: Pool, objective and expectations of the twin.
        seed: Seed of the workload, for the row.
    """
    core = Core(settings)
    seen: dict[str, list[float]] = {}

    def publish(event: ev.Event) -> None:
        match event:
            case ev.JobSubmitted():
                seen[event.job.id] = [event.job.submit_s, -1.0, -1.0, event.job.nodes]
            case ev.JobStarted():
                seen[event.job_id][1] = event.time_s
            case ev.JobEnded():
                seen[event.job_id][2] = event.time_s
        core.take_event(event)

    cluster = emulated_cluster(Cluster.uniform(nodes), jobs, publish=publish)
    driven = drive(cluster, core)
    row = row_of(TWIN, seed, list(seen.values()), nodes)
    total = sum(driven.started_by.values())
    row.share_by_policy = {name: n / total for name, n in sorted(driven.started_by.items())}
    row.cycle_ms_mean, row.forecast_ms_mean = driven.cycle_ms_mean, driven.forecast_ms_mean
    return row


def judge(rows: Sequence[Row], settings: CoreSettings) -> None:
    """Set objective and area of each row, which depend on all compared methods."""
    objective = Objective(settings.objective.weights, normalize=settings.objective.normalize)
    measured = [{name: getattr(row, name) for name in METRIC_ORDER} for row in rows]
    known = [name for name in objective.weights if name in METRIC_ORDER]
    judged = Objective(
        {name: objective.weights[name] for name in known}, normalize=objective.normalize
    )
    table = np.array([[m[name] for name in METRIC_ORDER] for m in measured])
    larger = np.array([METRICS[name].better == "high" for name in METRIC_ORDER])
    areas = kiviat_area(kiviat_scores(table, larger))
    for row, score, area in zip(rows, judged.scores(measured), areas, strict=True):
        row.objective, row.area = score, float(area)


def means(rows: Sequence[Row]) -> list[Row]:
    """Return the mean over seeds of each method; ``seed`` is then the number of seeds."""
    result = []
    for method in dict.fromkeys(row.method for row in rows):
        mine = [row for row in rows if row.method == method]
        policies = sorted({name for row in mine for name in row.share_by_policy})
        numbers = {
            name: float(np.mean([getattr(row, name) for row in mine]))
            for name in (*METRIC_ORDER, "objective", "area", "cycle_ms_mean", "forecast_ms_mean")
        }
        shares = {
            name: float(np.mean([row.share_by_policy.get(name, 0.0) for row in mine]))
            for name in policies
        }
        result.append(Row(method=method, seed=len(mine), share_by_policy=shares, **numbers))
    return result


def static_row(jobs: Workload, nodes: int, policy: str, seed: int) -> Row:
    """Return the metrics of a static policy on a workload, by simulation."""
    result = Simulation(jobs, Cluster.uniform(nodes), policy=parse_policy(policy)).run()
    table = result.jobs.select("submit_s", "start_s", "end_s", "nodes").rows()
    row = row_of(parse_policy(policy).name, seed, table, nodes)
    row.share_by_policy = {row.method: 1.0}
    return row


def row_of(method: str, seed: int, jobs: Sequence[Sequence[float]], nodes: int) -> Row:
    """Return the metrics of jobs, given as submit, start and end (seconds), and nodes."""
    submit, start, end, width = np.array(jobs, np.float64).T
    wait, runtime = start - submit, end - start
    slowdown = (wait + runtime) / runtime
    span = end.max() - submit.min()
    return Row(
        method=method,
        seed=seed,
        max_wait_s=float(wait.max()),
        mean_wait_s=float(wait.mean()),
        max_slowdown=float(slowdown.max()),
        mean_slowdown=float(slowdown.mean()),
        utilization=float((width * runtime).sum() / (span * nodes)),
    )


_HOW = {
    "mean": "each divided by its mean",
    "best": "each divided by its best value",
    "range": "from 0 for the best to 1 for the worst",
    "none": "as they are",
}


def objective_table(
    overall: Sequence[Row], *, normalize: Normalize = "mean", title: str = "", caption: str = ""
) -> Table:
    """Return a table of the means over seeds, with a row for each method.

    Args:
        overall: The means.
        normalize: Normalization of the metrics.
        title: Title of the table; by default the number of workloads.
        caption: Further sentences below the table.
    """
    count = overall[0].seed
    heads = [
        "max\nwait",
        "mean\nwait",
        "max\nslowdown",
        "mean\nslowdown",
        "util.",
        "objective",
        "area",
    ]
    rows = [
        [
            row.method,
            format_duration(round(row.max_wait_s)),
            format_duration(round(row.mean_wait_s)),
            f"{row.max_slowdown:.1f}",
            f"{row.mean_slowdown:.2f}",
            f"{row.utilization:.1%}",
            f"{row.objective:.4f}",
            f"{row.area:.2f}",
            f"{row.cycle_ms_mean:.2f}" if row.cycle_ms_mean else "–",
        ]
        for row in overall
    ]
    told = f"objective: weighted sum of the four costs ({_HOW[normalize]}); lower is better"
    return Table(
        ["method", *heads, "ms per\ndecision"],
        rows,
        title or f"Mean over {count_text(count, 'workload')}",
        f"{told}\n{caption}".strip(),
    )
