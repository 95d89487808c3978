"""Registry of all metrics of runs: name, unit, direction, formula and source.

A metric is one of these:

- a statistic of the jobs that started and ended: `Mean`, `Quantile` or `Maximum` of a `JobMetric`;
- a total of the run: `Total`;
- the ratio of two totals: `Ratio`.

These parts read `METRICS`:

- summaries, streams, classes of jobs, accounts, comparisons and sweeps;
- facilities and objectives of the twin;
- reports and docs/reference/metrics.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, in_brief

__all__ = [
    "BOUNDED_SLOWDOWN", "JOB_METRICS", "METRICS", "STATISTICS", "TAU_S", "WAIT", "JobMetric", "Maximum",
    "Mean", "Metric", "Quantile", "Ratio", "ServedJobs", "Statistic", "Total", "check_tau",
    "computed_from", "main_statistics",
]  # fmt: skip

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

TAU_S = 10.0
"""Default threshold of bounded slowdowns, in seconds: shorter runtimes count as this."""


def check_tau(tau_s: float) -> float:
    """Check and return a threshold of bounded slowdowns, in seconds.

    Raises:
        ConfigError: It is not a number above 0.
    """
    if isinstance(tau_s, bool) or not isinstance(tau_s, int | float) or not 0 < tau_s < math.inf:
        raise ConfigError(f"tau_s is {in_brief(tau_s)}; it must be above 0, in seconds")
    return tau_s


class ServedJobs:
    """Jobs that started and ended, as arrays; their metrics are computed on first use.

    Args:
        submit_s: Submission times, in seconds [jobs].
        start_s, end_s: Start and end times, in seconds [jobs], or of several what-ifs [what-ifs,
            jobs].
        nodes: Nodes of each job [jobs].
        tau_s: Threshold of bounded slowdowns, in seconds.
        min_run_s: Minimum of runtimes, in seconds; slowdowns then are at least 1. None for no
            bounds.
    """

    def __init__(
        self,
        submit_s: FloatArray,
        start_s: FloatArray,
        end_s: FloatArray,
        nodes: npt.NDArray[Any],
        *,
        tau_s: float = TAU_S,
        min_run_s: float | None = None,
    ) -> None:
        self.submit_s, self.start_s, self.end_s, self.nodes = submit_s, start_s, end_s, nodes
        self.tau_s, self.min_run_s = tau_s, min_run_s
        self._values: dict[JobMetric, FloatArray] = {}

    def __getitem__(self, metric: JobMetric) -> FloatArray:
        """Return the metric of each job, also of jobs for which it is not defined."""
        if metric not in self._values:
            self._values[metric] = metric.of(self)
        return self._values[metric]

    def defined(self, metric: JobMetric) -> FloatArray:
        """Return the metric of the jobs for which it is defined."""
        return self._where(metric, self[metric])

    def weights(self, metric: JobMetric, weights: JobMetric) -> FloatArray:
        """Return a second metric of the jobs for which the first is defined."""
        return self._where(metric, self[weights])

    def _where(self, metric: JobMetric, values: FloatArray) -> FloatArray:
        if metric.where is None or (where := metric.where(self)).all():
            return values
        return values[where]


@dataclass(frozen=True, eq=False)
class JobMetric:
    """A metric of each job.

    Args:
        name: Name of its column.
        formula: Formula in the documentation.
        of: Function that computes it.
        unit: ``s``, or empty for a number without unit.
        where: Function that returns for which jobs it is defined; None for all.
        source: Publication.
    """

    name: str
    formula: str
    of: Callable[[ServedJobs], FloatArray]
    unit: str = "s"
    where: Callable[[ServedJobs], BoolArray] | None = None
    source: str = ""


def _run_s(jobs: ServedJobs) -> FloatArray:
    run_s = jobs.end_s - jobs.start_s
    return run_s if jobs.min_run_s is None else np.maximum(run_s, jobs.min_run_s)


def _divided(values: FloatArray, by: FloatArray) -> FloatArray:
    """Return the quotients; no warning if a job ran for no time or has no node.

    These are infinite or NaN.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return values / by


def _slowdown(jobs: ServedJobs) -> FloatArray:
    slowdown = _divided(jobs[TURNAROUND], jobs[RUN])
    return slowdown if jobs.min_run_s is None else np.maximum(slowdown, 1.0)


def _bounded_run_s(jobs: ServedJobs) -> FloatArray:
    return np.maximum(jobs[RUN], jobs.tau_s)


NODES = JobMetric("nodes", "nodes", lambda jobs: jobs.nodes, "nodes")
WAIT = JobMetric("wait_s", "start − submit", lambda jobs: jobs.start_s - jobs.submit_s)
RUN = JobMetric("run_s", "end − start", _run_s)
AREA = JobMetric("area", "nodes · run", lambda jobs: jobs.nodes * jobs[RUN], "node-seconds")
TURNAROUND = JobMetric("turnaround_s", "end − submit", lambda jobs: jobs.end_s - jobs.submit_s)
SLOWDOWN = JobMetric(
    "slowdown",
    "turnaround / run; null if run is 0",
    _slowdown,
    "",
    lambda jobs: jobs[RUN] > 0,
    "Feitelson et al. 1997",
)
BOUNDED_SLOWDOWN = JobMetric(
    "bounded_slowdown",
    "max(1, turnaround / max(run, τ)), τ = 10 s",
    lambda jobs: np.maximum(jobs[TURNAROUND] / _bounded_run_s(jobs), 1.0),
    "",
    source="Feitelson et al. 1997",
)
PP_BOUNDED_SLOWDOWN = JobMetric(
    "pp_bounded_slowdown",
    "max(1, turnaround / (nodes · max(run, τ)))",
    lambda jobs: np.maximum(_divided(jobs[TURNAROUND], jobs.nodes * _bounded_run_s(jobs)), 1.0),
    "",
    source="Zotkin & Keleher 1999",
)


@dataclass(frozen=True)
class Mean:
    """The mean over jobs.

    Args:
        values: Job metric to average.
        weights: Weights of the jobs; None for equal weights.
    """

    values: JobMetric
    weights: JobMetric | None = None

    @property
    def job_metrics(self) -> tuple[JobMetric, ...]:
        """Job metrics that it needs."""
        return (self.values,) if self.weights is None else (self.values, self.weights)

    def of(self, jobs: ServedJobs) -> Any:
        """Compute it for jobs in memory, one number for each what-if; 0 without jobs."""
        values = jobs.defined(self.values)
        if self.weights is None:
            # Equals `values.mean()`, in a third of the time for few jobs.
            return np.add.reduce(values, axis=-1) / max(values.shape[-1], 1)
        weights = jobs.weights(self.values, self.weights)
        total = weights.sum(axis=-1)
        return (values * weights).sum(axis=-1) / np.where(total > 0, total, 1.0)


@dataclass(frozen=True)
class Quantile:
    """A quantile over jobs, interpolated linearly between neighbors."""

    values: JobMetric
    share: float

    @property
    def job_metrics(self) -> tuple[JobMetric, ...]:
        """See `Mean.job_metrics`."""
        return (self.values,)

    def of(self, jobs: ServedJobs) -> Any:
        """See `Mean.of`."""
        values = jobs.defined(self.values)
        return (
            np.quantile(values, self.share, axis=-1) if values.size else Mean(self.values).of(jobs)
        )


@dataclass(frozen=True)
class Maximum:
    """The maximum over jobs."""

    values: JobMetric

    @property
    def job_metrics(self) -> tuple[JobMetric, ...]:
        """See `Mean.job_metrics`."""
        return (self.values,)

    def of(self, jobs: ServedJobs) -> Any:
        """See `Mean.of`."""
        return np.maximum.reduce(jobs.defined(self.values), axis=-1, initial=0.0)


Statistic = Mean | Quantile | Maximum
"""A statistic of the jobs that started and ended."""


@dataclass(frozen=True)
class Total:
    """A total of a run."""

    name: str

    @property
    def names(self) -> set[str]:
        """Names of the totals that it needs."""
        return {self.name}

    def of(self, totals: object) -> Any:
        """Compute it."""
        return getattr(totals, self.name)


@dataclass(frozen=True)
class Ratio:
    """A total of a run divided by another one."""

    part: str
    whole: str

    @property
    def names(self) -> set[str]:
        """Names of the totals that it needs."""
        return {self.part, self.whole}

    def of(self, totals: object) -> Any:
        """Compute it: None, or 0 for each what-if, if the whole is 0."""
        part: Any = getattr(totals, self.part)
        whole: Any = getattr(totals, self.whole)
        if isinstance(whole, (np.ndarray, np.floating)):
            return part / np.where(whole > 0, whole, np.inf)
        return float(part / whole) if whole > 0 else None


@dataclass(frozen=True)
class Metric:
    """A metric of a run.

    Args:
        name: Its key in summaries.
        of: Its computation: a statistic of jobs, or totals of the run.
        formula: Formula in the documentation.
        unit: ``s``, ``J``, ``nodes``, …; empty for a number without unit.
        better: The good end of the scale; None if neither.
        help: Meaning, for readers of a report.
        source: Publication.
        label: Its name in words; by default made from its name.
        main: Whether it is in comparisons, and in tables by class and accounts if possible.
        header: Header of its column in comparisons; by default its label.
        short: Short header.
    """

    name: str
    of: Statistic | Total | Ratio
    formula: str
    unit: str = ""
    better: Literal["low", "high"] | None = None
    help: str = ""
    source: str = ""
    label: str = ""
    main: bool = False
    header: str = ""
    short: str = ""


STATISTICS: dict[str, Callable[[JobMetric], Statistic]] = {
    "mean": Mean,
    "median": lambda values: Quantile(values, 0.5),
    "p95": lambda values: Quantile(values, 0.95),
    "p99": lambda values: Quantile(values, 0.99),
    "max": Maximum,
}
"""Reported statistics of job metrics, by the first word of the metric's name."""


def _statistics(
    values: JobMetric, main: Collection[str] = (), help: Mapping[str, str] | None = None
) -> Iterator[Metric]:
    """Yield the metrics for all statistics of a job metric.

    Args:
        values: The job metric.
        main: Statistics that are main metrics.
        help: Meanings of statistics.
    """
    for name, statistic in STATISTICS.items():
        yield Metric(
            f"{name}_{values.name}",
            statistic(values),
            f"{name} of {values.name}",
            values.unit,
            "low",
            help=(help or {}).get(name, ""),
            source=values.source,
            main=name in main,
        )


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *_statistics(
            WAIT,
            main=("mean", "median", "p95"),
            help={
                "mean": "from submission to start, including time on open dependencies; over "
                "jobs that started and ended, as for all job metrics",
                "median": "half of the jobs waited no longer than this",
                "p95": "95 % of the jobs waited no longer than this",
                "max": "no job waited longer",
            },
        ),
        *_statistics(TURNAROUND),
        *_statistics(
            SLOWDOWN,
            help={
                "mean": "turnaround (submission to end) divided by run time (Feitelson et al. 1997)"
            },
        ),
        *_statistics(
            BOUNDED_SLOWDOWN,
            main=("mean",),
            help={
                "mean": "as slowdown, with run times below 10 s counted as 10 s, and at least 1 "
                "(Feitelson et al. 1997)"
            },
        ),
        *_statistics(PP_BOUNDED_SLOWDOWN),
        Metric(
            "interval_begin_s",
            Total("interval_begin_s"),
            "first submission, from the trace's time zero; null if no job ran",
            "s",
        ),
        Metric(
            "interval_end_s",
            Total("interval_end_s"),
            "last end, from the trace's time zero; null if no job ran",
            "s",
        ),
        Metric(
            "throughput_jobs_per_h",
            Ratio("served", "makespan_h"),
            "jobs that started and ended / T",
            "1/h",
            "high",
            label="throughput (jobs/h)",
        ),
        Metric("nodes", Total("nodes"), "size of the cluster", "nodes"),
        Metric("availability", Ratio("up", "whole"), "∫ c dt / (nodes · T)", better="high"),
        Metric(
            "utilization",
            Ratio("used", "present"),
            "∫ u dt / ∫ (u + f) dt",
            better="high",
            help="node time in use divided by node time in use or free, from the first "
            "submission to the last end; nodes that are down do not count",
            main=True,
            short="util.",
        ),
        Metric(
            "makespan_s",
            Total("makespan_s"),
            "T = last end − first submission",
            "s",
            "low",
            help="from the first submission to the last end",
            label="makespan",
            main=True,
        ),
        Metric(
            "utilization_while_queued",
            Ratio("used_loaded", "present_loaded"),
            "as utilization, only over times with q > 0",
            better="high",
            help="as utilization, over times with pending jobs only",
            label="utilization with pending jobs",
        ),
        Metric(
            "fraction_of_time_queued",
            Ratio("loaded", "makespan_ms"),
            "time with q > 0 / T",
            label="share of time with pending jobs",
        ),
        Metric(
            "idle_while_queued_fraction",
            Ratio("idle_loaded", "present"),
            "∫ f · [q > 0] dt / ∫ (u + f) dt",
            better="low",
            help="idle node time while jobs are pending, divided by available node time "
            "(Zhang et al. 2000)",
            source="Zhang et al. 2000",
            label="idle with pending jobs",
        ),
        Metric("mean_queue_length", Ratio("queue", "makespan_ms"), "∫ q dt / T", "jobs", "low"),
        Metric(
            "max_queue_length",
            Total("longest_queue"),
            "largest q that lasts for any time",
            "jobs",
            "low",
        ),
        Metric(
            "mean_queued_nodes",
            Ratio("queued_nodes", "makespan_ms"),
            "∫ (nodes of the queued jobs) dt / T",
            "nodes",
            "low",
        ),
        Metric(
            "area_weighted_response_time_s",
            Mean(TURNAROUND, AREA),
            "Σ (nodes · run · turnaround) / Σ (nodes · run)",
            "s",
            "low",
            source="Ernemann et al. 2003",
            label="area-weighted response time",
        ),
        Metric(
            "node_weighted_wait_s",
            Mean(WAIT, NODES),
            "Σ (nodes · wait) / Σ nodes",
            "s",
            "low",
            help="as mean wait, with each job counted as many times as it has nodes",
            label="node-weighted wait",
        ),
        Metric(
            "wasted_node_s",
            Total("wasted_node_s"),
            "Σ nodes · (end − start − checkpointed time) over lost attempts",
            "node-seconds",
            "low",
            label="lost in interrupted attempts",
        ),
        Metric(
            "jain_fairness_user",
            Total("jain_fairness_user"),
            "Jain's index of the users' mean bounded slowdowns; null below two users",
            better="high",
            help="Jain's index of mean bounded slowdowns of users: 1 if all users are equal",
            source="Jain et al. 1984",
            label="fairness of users (Jain)",
        ),
        Metric(
            "mean_unfair_delay_s",
            Total("mean_unfair_delay_s"),
            "mean of max(0, start − fair start)",
            "s",
            "low",
            source="Sabin & Sadayappan 2005",
            main=True,
            short="unfair delay",
        ),
        Metric(
            "total_energy_j",
            Total("total_energy_j"),
            "∫ power dt of all nodes",
            "J",
            "low",
            help="energy of all nodes in all states",
            main=True,
            header="energy",
        ),
        Metric(
            "wasted_energy_j",
            Total("wasted_energy_j"),
            "idle and switching nodes",
            "J",
            "low",
            help="energy of idle and switching nodes; sleeping nodes waste nothing (SPARS)",
        ),
        Metric(
            "emissions_kg",
            Total("emissions_kg"),
            "∫ carbon intensity · power dt",
            "kg",
            "low",
            help="carbon dioxide, by the carbon intensity at the time of consumption",
        ),
        Metric(
            "pue",
            Total("pue"),
            "energy of cluster and cooling / energy of the cluster",
            better="low",
            help="energy of cluster and cooling together, divided by the energy of the cluster",
        ),
    )
}
"""All metrics by name, in the order of summaries.

Some totals are known only with energy or fairness.
"""


def computed_from(totals: Collection[str]) -> dict[str, Metric]:
    """Return the metrics that are computed from jobs and the given totals of a run."""
    return {
        name: metric
        for name, metric in METRICS.items()
        if isinstance(metric.of, Statistic) or metric.of.names <= {*totals}
    }


def main_statistics(*others: str) -> dict[str, Statistic]:
    """Return the main metrics that are statistics of jobs, by name, and some others."""
    return {
        name: metric.of
        for name, metric in METRICS.items()
        if (metric.main or name in others) and isinstance(metric.of, Statistic)
    }


JOB_METRICS = tuple(
    dict.fromkeys(
        (
            *(WAIT, RUN, TURNAROUND, SLOWDOWN, BOUNDED_SLOWDOWN, PP_BOUNDED_SLOWDOWN, AREA),
            *(one for of in main_statistics(*METRICS).values() for one in of.job_metrics),
        )
    )
)
"""Columns that `hpctwin.metrics.with_job_metrics` adds: all that metrics need."""
