"""The experiment of the SchedTwin paper (arXiv 2512.18894, §4), and what goes beyond it.

150 jobs in four phases on 32 nodes; the static policies FCFS, SJF and WFP with EASY backfilling, and
the twin choosing among them. One row per method and seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from hpctwin.errors import UnknownNameError
from hpctwin.experiments.experiment import SEEDS, Experiment, Tell
from hpctwin.experiments.made import Finding, Made, Table
from hpctwin.experiments.traces import need_trace
from hpctwin.formats import read_workload
from hpctwin.generate.four_phase import four_phase
from hpctwin.metrics import kiviat_area, kiviat_scores
from hpctwin.model import Cluster, Workload, format_duration
from hpctwin.policies import parse_policy
from hpctwin.rms.records import events as ev
from hpctwin.simulation import Simulation
from hpctwin.twin.core.core import Core
from hpctwin.twin.emulated import emulated_cluster
from hpctwin.twin.service.virtual_time import drive
from hpctwin.twin.settings.config import PAPER_POOL, CoreSettings
from hpctwin.twin.what_if.objective import METRICS, Normalise, Objective

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "METRIC_ORDER",
    "NODES",
    "PUBLISHED_AREA",
    "PUBLISHED_SHARE",
    "Row",
    "SchedTwin",
    "judge",
    "means",
    "objective_table",
    "row_of",
    "run_seeds",
    "static_row",
    "twin_row",
]

NODES = 32
STATIC = ("fcfs+easy", "sjf+easy", "wfp+easy")
TWIN = "schedtwin"
METRIC_ORDER = ("max_wait_s", "mean_wait_s", "max_slowdown", "mean_slowdown", "utilization")
"""The metrics of the paper's figure 3; the order of the axes, which the area depends on, is ours."""

PUBLISHED_AREA = {"fcfs+easy": 0.00, "sjf+easy": 0.31, "wfp+easy": 1.67, TWIN: 1.86}
"""Areas in figure 3."""
PUBLISHED_SHARE = {"wfp+easy": 0.3519, "fcfs+easy": 0.1566, "sjf+easy": 0.4915}
"""Share of jobs started under each policy, table 1."""


@dataclass
class Row:
    """One method on one workload.

    Args:
        method: policy name, or the twin's.
        seed: of the workload.
        max_wait_s, mean_wait_s, max_slowdown, mean_slowdown, utilization: over all jobs and from the
            first submission to the last end.
        objective: the twin's objective over all jobs, normalised over the methods of this seed;
            lower is better.
        area: of the polygon in the Kiviat chart of this seed's methods.
        share_by_policy: jobs started under each policy, as a share of all.
        cycle_ms_mean: milliseconds a decision took, in the mean; 0 for static policies.
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

    def plain(self) -> dict[str, Any]:
        """As a dictionary."""
        return asdict(self)


def run_seeds(seeds: Sequence[int]) -> Iterator[list[Row]]:
    """The rows of each seed with the paper's settings, as they get ready."""
    for seed in seeds:
        yield run_seed(four_phase(seed=seed), NODES, CoreSettings(), seed)


def run_seed(jobs: Workload, nodes: int, settings: CoreSettings, seed: int = 0) -> list[Row]:
    """The rows of a workload under the static policies and the twin.

    Args:
        jobs: the workload.
        nodes: of the cluster.
        settings: the twin's.
        seed: for the rows.
    """
    rows = [static_row(jobs, nodes, text, seed) for text in STATIC]
    rows.append(twin_row(jobs, nodes, settings, seed))
    judge(rows, settings)
    return rows


def twin_row(jobs: Workload, nodes: int, settings: CoreSettings, seed: int = 0) -> Row:
    """Run the twin on a workload.

    Args:
        jobs: the workload; a job runs as long as its runtime, which the twin does not know.
        nodes: of the cluster.
        settings: pool, objective, expectations.
        seed: for the row.
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
    row.cycle_ms_mean = driven.cycle_ms_mean
    return row


def judge(rows: Sequence[Row], settings: CoreSettings) -> None:
    """Fill in objective and area, which depend on all methods compared."""
    objective = Objective(settings.objective.weights, normalise=settings.objective.normalise)
    measured = [{name: getattr(row, name) for name in METRIC_ORDER} for row in rows]
    known = [name for name in objective.weights if name in METRIC_ORDER]
    judged = Objective(
        {name: objective.weights[name] for name in known}, normalise=objective.normalise
    )
    table = np.array([[m[name] for name in METRIC_ORDER] for m in measured])
    larger = np.array([METRICS[name].better == "high" for name in METRIC_ORDER])
    areas = kiviat_area(kiviat_scores(table, larger))
    for row, score, area in zip(rows, judged.scores(measured), areas, strict=True):
        row.objective, row.area = score, float(area)


def means(rows: Sequence[Row]) -> list[Row]:
    """The mean over seeds of each method, with objective and area as means too; seed is the count."""
    result = []
    for method in dict.fromkeys(row.method for row in rows):
        mine = [row for row in rows if row.method == method]
        policies = sorted({name for row in mine for name in row.share_by_policy})
        numbers = {
            name: float(np.mean([getattr(row, name) for row in mine]))
            for name in (*METRIC_ORDER, "objective", "area", "cycle_ms_mean")
        }
        shares = {
            name: float(np.mean([row.share_by_policy.get(name, 0.0) for row in mine]))
            for name in policies
        }
        result.append(Row(method=method, seed=len(mine), share_by_policy=shares, **numbers))
    return result


def static_row(jobs: Workload, nodes: int, policy: str, seed: int) -> Row:
    """Simulate a workload under one policy."""
    result = Simulation(jobs, Cluster.uniform(nodes), policy=parse_policy(policy)).run()
    table = result.jobs.select("submit_s", "start_s", "end_s", "nodes").rows()
    row = row_of(parse_policy(policy).name, seed, table, nodes)
    row.share_by_policy = {row.method: 1.0}
    return row


def row_of(method: str, seed: int, jobs: Sequence[Sequence[float]], nodes: int) -> Row:
    """Metrics of jobs given as submit, start and end in seconds, and nodes."""
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


@dataclass(frozen=True)
class SchedTwin(Experiment[tuple[int, Workload, int], list[Row]]):
    """The static policies and the twin on each workload.

    Args:
        seeds: how many workloads, with seeds 0, 1, ….
        pool: policies that the twin chooses among.
        normalise: how metrics are made comparable.
        trace: a real trace instead, once.
        jobs: only its first so many jobs.
        nodes: of the cluster; 32, or what the trace says.
    """

    seeds: int = SEEDS
    pool: tuple[str, ...] = PAPER_POOL
    normalise: Normalise = "mean"
    trace: Path | None = None
    jobs: int | None = None
    nodes: int | None = None
    title = "the twin on each workload"
    serial = True

    @property
    def settings(self) -> CoreSettings:
        """Of the twin."""
        given = {"pool": self.pool, "objective": {"normalise": self.normalise}}
        return CoreSettings.checked(given, "--policy, --normalise")

    def points(self) -> Sequence[tuple[int, Workload, int]]:
        """See `Experiment`; seeds, jobs, and nodes of the cluster."""
        if self.normalise not in get_args(Normalise):
            raise UnknownNameError("normalisation", self.normalise, get_args(Normalise))
        if self.trace is None:
            nodes = self.nodes or NODES
            return [(seed, four_phase(seed=seed), nodes) for seed in range(self.seeds)]
        real = read_workload(self.trace)
        real = real.take(np.arange(min(self.jobs or len(real), len(real))))
        if real.nodes_hint is None:
            notes = replace(real.notes, size_from="the largest job")
            real = real.replace(nodes_hint=int(real.nodes.max()), notes=notes)
        return [(0, real, self.nodes or real.nodes_hint or 0)]

    def run(self, point: tuple[int, Workload, int], tell: Tell) -> list[Row]:
        """See `Experiment`."""
        seed, jobs, nodes = point
        return run_seed(jobs, nodes, self.settings, seed)

    def made(self, found: Sequence[list[Row]]) -> Made:
        """See `Experiment`."""
        rows = [row for own in found for row in own]
        overall = means(rows)
        ours = next(row for row in overall if row.method == TWIN)
        shares = ", ".join(f"{name} {share:.1%}" for name, share in ours.share_by_policy.items())
        best = min((row for row in overall if row.method != TWIN), key=lambda row: row.objective)
        won = sum(min(own, key=lambda row: row.objective).method == TWIN for own in found)
        published = self.trace is None and self.pool == PAPER_POOL
        return Made(
            compared(overall) if published else [],
            {"schedtwin-figure-3": partial(_radar, overall)},
            [objective_table(overall, normalise=self.normalise)],
            [
                f"jobs started by the twin under: {shares}",
                f"objective of the twin {ours.objective:.4f}, of the best static policy ({best.method}) "
                f"{best.objective:.4f}; the twin is the best of all on {won} of {len(found)} workloads",
            ],
            rows=[row.plain() for row in rows],
        )


def compared(overall: Sequence[Row]) -> list[Finding]:
    """Figure 3 and table 1 beside the means over seeds."""
    findings = [
        Finding(
            f"area of {row.method}", PUBLISHED_AREA[row.method], row.area, 0.05, ".2f",
            ("schedtwin-figure-3",),
        )
        for row in overall
    ]  # fmt: skip
    twin = next(row for row in overall if row.method == TWIN)
    for name, share in PUBLISHED_SHARE.items():
        what, here = f"jobs started under {name}, %", 100 * twin.share_by_policy[name]
        findings.append(Finding(what, 100 * share, here, 0.05, entries=("schedtwin-table-1",)))
    return findings


_HOW = {
    "mean": "each over its mean",
    "best": "each over its best",
    "range": "0 for the best to 1 for the worst",
    "none": "as they are",
}


def objective_table(
    overall: Sequence[Row], *, normalise: Normalise = "mean", title: str = "", caption: str = ""
) -> Table:
    """Means over seeds, a row for each method.

    Args:
        overall: the means.
        normalise: how metrics were made comparable.
        title: above it; how many workloads, if left out.
        caption: further sentences below it.
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
    told = f"objective: weighted sum of the four costs ({_HOW[normalise]}); lower is better"
    return Table(
        ["method", *heads, "ms a\ncycle"],
        rows,
        title or f"Mean over {count} workload{'s' if count > 1 else ''}",
        f"{told}\n{caption}".strip(),
    )


def _radar(overall: Sequence[Row]) -> Figure:
    from hpctwin.report import plot_radar

    title = "SchedTwin beside static policies (outer is better)"
    return plot_radar({row.method: row.plain() for row in overall}, title=title)


@dataclass(frozen=True)
class Polaris(Experiment[Workload, Workload]):
    """The jobs of Polaris by size and time, as the paper's figure 1 has them of other months."""

    title = "jobs of Polaris"
    data = ("Polaris-2023-schedulus.swf",)

    def points(self) -> Sequence[Workload]:
        """See `Experiment`."""
        return [read_workload(need_trace(self.data[0]))]

    def run(self, point: Workload, tell: Tell) -> Workload:
        """See `Experiment`; nothing is simulated."""
        return point

    def made(self, found: Sequence[Workload]) -> Made:
        """See `Experiment`."""
        return Made(figures={"schedtwin-figure-1": partial(_jobs_drawn, found[0])})


def _jobs_drawn(jobs: Workload) -> Figure:
    from hpctwin.report import plot_workload

    return plot_workload(jobs, title=f"Jobs of Polaris, 2023: {len(jobs):,}")
