"""All metrics of runs, each once: name, unit, direction, formula, meaning and source.

A metric is a statistic of the jobs that started and ended (`Mean`, `Quantile`, `Maximum` of a `JobMetric`),
a total of the run (`Total`) or the ratio of two totals (`Ratio`). Summaries, streams, classes of jobs,
comparisons, sweeps, facilities, accounts, objectives of the twin, reports and docs/metrics.md read `METRICS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

__all__ = [
    "BOUNDED_SLOWDOWN", "JOB_METRICS", "METRICS", "STATISTICS", "TAU_S", "WAIT", "JobMetric", "Maximum",
    "Mean", "Metric", "Quantile", "Ratio", "ServedJobs", "Statistic", "Total", "computed_from",
    "main_statistics",
]  # fmt: skip

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

TAU_S = 10.0
"""Run times below this count as this in bounded slowdowns, seconds."""


class ServedJobs:
    """Jobs that started and ended, as arrays; metrics of jobs are computed when first asked for.

    Args:
        submit_s: submission times, seconds [jobs].
        start_s, end_s: start and end times, seconds [jobs], or of several what-ifs [what-ifs, jobs].
        nodes: nodes of each job [jobs].
        tau_s: the bound of bounded slowdowns, seconds.
        min_run_s: shorter run times count as this, seconds, and slowdowns below 1 as 1; None for neither.
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
        """The metric of each job, also where it is not defined."""
        if metric not in self._values:
            self._values[metric] = metric.of(self)
        return self._values[metric]

    def defined(self, metric: JobMetric) -> FloatArray:
        """The metric of the jobs for which it is defined."""
        return self._where(metric, self[metric])

    def weights(self, metric: JobMetric, weights: JobMetric) -> FloatArray:
        """A second metric of the jobs for which the first is defined."""
        return self._where(metric, self[weights])

    def _where(self, metric: JobMetric, values: FloatArray) -> FloatArray:
        if metric.where is None or (where := metric.where(self)).all():
            return values
        return values[where]


@dataclass(frozen=True, eq=False)
class JobMetric:
    """A metric of each job.

    Args:
        name: of its column.
        formula: as the documentation prints it.
        of: computes it.
        unit: ``s``, or nothing for a number without unit.
        where: for which jobs it is defined; None for all.
        source: where it was published.
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
    """The quotients; infinite or NaN without a warning where a job ran for no time or has no node."""
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
        values: what is averaged.
        weights: what each job counts as; None if all count alike.
    """

    values: JobMetric
    weights: JobMetric | None = None

    @property
    def job_metrics(self) -> tuple[JobMetric, ...]:
        """The metrics of jobs that it needs."""
        return (self.values,) if self.weights is None else (self.values, self.weights)

    def of(self, jobs: ServedJobs) -> Any:
        """Compute it for jobs in memory, one number for each what-if; 0 without jobs."""
        values = jobs.defined(self.values)
        if self.weights is None:
            # As `values.mean()`, in a third of the time for few jobs.
            return np.add.reduce(values, axis=-1) / max(values.shape[-1], 1)
        weights = jobs.weights(self.values, self.weights)
        total = weights.sum(axis=-1)
        return (values * weights).sum(axis=-1) / np.where(total > 0, total, 1.0)


@dataclass(frozen=True)
class Quantile:
    """A quantile over jobs, interpolated linearly between neighbors.

    Args:
        values: the values.
        share: which quantile, 0 to 1.
    """

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
    """The maximum over jobs.

    Args:
        values: the values.
    """

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
    """A total of a run as it is.

    Args:
        name: an attribute of the object that has the totals.
    """

    name: str

    @property
    def names(self) -> set[str]:
        """The totals that it needs."""
        return {self.name}

    def of(self, totals: object) -> Any:
        """Compute it."""
        return getattr(totals, self.name)


@dataclass(frozen=True)
class Ratio:
    """A total of a run over another one.

    Args:
        part, whole: attributes of the object that has the totals.
    """

    part: str
    whole: str

    @property
    def names(self) -> set[str]:
        """The totals that it needs."""
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
        name: its key in summaries.
        of: what computes it: a statistic of jobs, or totals of the run.
        formula: as the documentation prints it.
        unit: ``s``, ``J``, ``nodes``, …; nothing for a number without unit.
        better: which end of the scale is good; None if neither.
        help: what it says, for readers of a report.
        source: where it was published.
        label: its name in words; made from its name if empty.
        main: whether comparisons show it, and tables by class and accounts if they can.
        header: above its column in comparisons; its label if empty.
        short: the same where there is little room.
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
"""Statistics that are reported of job metrics, by the first word of the metric's name."""


def _statistics(
    values: JobMetric, main: Collection[str] = (), help: Mapping[str, str] | None = None
) -> Iterator[Metric]:
    """The metrics for all statistics of a job metric.

    Args:
        values: the job metric.
        main: the statistics that are main metrics.
        help: what statistics say.
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
                "mean": "from submission to start, time spent on open dependencies included; over jobs that "
                "started and ended, as all figures of jobs",
                "median": "half of the jobs waited at most so long",
                "p95": "95 % of the jobs waited at most so long",
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
        Metric("nodes", Total("nodes"), "size of the machine", "nodes"),
        Metric("availability", Ratio("up", "whole"), "∫ c dt / (nodes · T)", better="high"),
        Metric(
            "utilization",
            Ratio("used", "present"),
            "∫ u dt / ∫ (u + f) dt",
            better="high",
            help="node time in use divided by node time in use or free, from the first submission to "
            "the last end; what is down does not count",
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
            "utilization_loaded",
            Ratio("used_loaded", "present_loaded"),
            "as utilization, only over times with q > 0",
            better="high",
            help="as utilization, over the times with a queue only",
            label="utilization while jobs wait",
        ),
        Metric(
            "loaded_share",
            Ratio("loaded", "makespan_ms"),
            "time with q > 0 / T",
            label="share of time with jobs waiting",
        ),
        Metric(
            "fragmentation_loss",
            Ratio("idle_loaded", "present"),
            "∫ f · [q > 0] dt / ∫ (u + f) dt",
            better="low",
            help="node time idle while jobs wait, divided by node time there (Zhang et al. 2000)",
            source="Zhang et al. 2000",
            label="idle while jobs wait",
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
            "lost_node_s",
            Total("lost_node_s"),
            "Σ nodes · (end − start − what a checkpoint kept) over lost attempts",
            "node-seconds",
            "low",
            label="lost of attempts cut off",
        ),
        Metric(
            "jain_fairness_user",
            Total("jain_fairness_user"),
            "Jain's index of the users' mean bounded slowdowns; null below two users",
            better="high",
            help="Jain's index of mean bounded slowdowns of users: 1 if all fare alike",
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
            help="what all nodes drew, whatever they did",
            main=True,
            header="energy",
        ),
        Metric(
            "wasted_energy_j",
            Total("wasted_energy_j"),
            "of that, idle and switching nodes",
            "J",
            "low",
            help="what idle and switching nodes drew; sleeping ones waste nothing (SPARS)",
        ),
        Metric(
            "emissions_kg",
            Total("emissions_kg"),
            "∫ carbon intensity · power dt",
            "kg",
            "low",
            help="carbon dioxide by the carbon intensity of the moment that energy was drawn at",
        ),
        Metric(
            "pue",
            Total("pue"),
            "energy of machine and cooling / energy of the machine",
            better="low",
            help="what machine and cooling took together, divided by what the machine took",
        ),
    )
}
"""All metrics by name, in the order of summaries. Some totals are known only with energy or fairness."""


def computed_from(totals: Collection[str]) -> dict[str, Metric]:
    """The metrics that are statistics of jobs, or need only some totals of a run.

    Args:
        totals: names of the totals that are known.
    """
    return {
        name: metric
        for name, metric in METRICS.items()
        if isinstance(metric.of, Statistic) or metric.of.names <= {*totals}
    }


def main_statistics(*others: str) -> dict[str, Statistic]:
    """The main metrics that are statistics of jobs, by name, and some others.

    Args:
        others: names of further metrics that are statistics of jobs.
    """
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
