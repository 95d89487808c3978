"""PAS: its 5,000 jobs under its policy, its baselines and hpctwin's, with its Table I.

Source: Goyal and Pavithra, "Dynamic Adapting Scheduling for HPC", §III to §V. Times are
milliseconds, as there. docs/reference/adaptive-policies.md lists the points that the paper leaves
open, and the choice made for each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hpctwin.errors import UnknownNameError
from hpctwin.generate.draws import within
from hpctwin.generate.pas import RESOURCES, failure_risk, pas, pas_cluster, with_failures
from hpctwin.metrics import dependency_violations, resource_use, resource_utilization
from hpctwin.model import MS_PER_S, Dependencies, Workload
from hpctwin.policies import parse_policy
from hpctwin.report.columns import Table
from hpctwin.simulation import Result, Simulation
from hpctwin_papers.experiment import SEEDS, Experiment, Progress
from hpctwin_papers.results import Finding, Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "JOBS", "METHODS", "OURS", "PUBLISHED", "THEIRS", "Pas", "Published", "Row", "compared", "means",
    "run_seed", "wins",
]  # fmt: skip

METHODS = {
    "fcfs": "fcfs+none",
    "sjf": "sjf+none",
    "pfm": "pfm+none",
    "pas-published": "pas+pushdown",
    "easy": "fcfs+easy",
    "adaptive": "adaptive+pack",
}
"""Policies by method; EASY is added for comparison, the paper has none."""

JOBS = 5000
NEAR = 0.05
"""Maximum relative deviation from a published value that counts as agreement."""
THEIRS, OURS = "pas-published", "adaptive"
PREDICTED = 0.05
"""Failure share that PFM assumes; the paper gives no failures to learn from."""


@dataclass(frozen=True)
class Published:
    """A column of Table I.

    Args:
        makespan, mean_wait: Makespan and mean wait, in ms.
        dependency_violations: Number of jobs that violate a dependency.
    """

    makespan: float
    mean_wait: float
    dependency_violations: int


PUBLISHED = {
    "fcfs": Published(7290, 3650.2, 1124),
    "sjf": Published(6630, 3058.4, 880),
    "pfm": Published(5845, 2784.7, 603),
    THEIRS: Published(5492, 2501.17, 500),
}


@dataclass(frozen=True)
class Row:
    """One method on the workload of one seed. Times are in ms.

    Args:
        method: One of `METHODS`.
        seed: Seed of the workload and of the failures.
        jobs: Number of jobs.
        makespan: End of the last job.
        mean_wait, max_wait: Wait from submission to start, of the jobs that started.
        dependency_violations: Number of jobs that started before their dependencies were done.
        violations_if_ignored: The same for a scheduler without knowledge of dependencies.
        delayed: Number of jobs that did not start when they became eligible.
        completed, failed, cancelled: Number of jobs with that end; a job is cancelled if a job that
            it depends on failed.
        mean_wait_completed: Mean wait of the completed jobs; 0 without any.
        utilization: Share of each resource in use until the makespan.
        engine_s: Duration of the simulation, in seconds.
    """

    method: str
    seed: int
    jobs: int
    makespan: float
    mean_wait: float
    max_wait: float
    dependency_violations: float
    violations_if_ignored: float
    delayed: float
    completed: float
    failed: float
    cancelled: float
    mean_wait_completed: float
    utilization: dict[str, float] = field(default_factory=dict)
    engine_s: float = 0.0

    def plain(self) -> dict[str, Any]:
        """Return the row in a form for JSON."""
        return dataclasses.asdict(self)


def run_seed(
    seed: int,
    *,
    methods: Sequence[str] = tuple(METHODS),
    jobs: int = JOBS,
    failures: float = 0.0,
) -> tuple[list[Row], dict[str, Result]]:
    """Simulate one workload under each method.

    Args:
        methods: Some of `METHODS`.
        failures: Share of the jobs that fail, drawn by `hpctwin.generate.pas`.
    """
    workload = pas(jobs=jobs, seed=seed)
    risk = failure_risk(workload, within("failures", failures, 0, 0.99) or PREDICTED)
    if failures:
        workload = with_failures(workload, failures, seed=seed)
    untold = workload.replace(dependencies=Dependencies.none())
    rows = []
    results = {}
    for method in methods:
        if method not in METHODS:
            raise UnknownNameError("method", method, METHODS)
        policy = parse_policy(METHODS[method])
        cluster = pas_cluster(jobs)
        result = Simulation(workload, cluster, policy=policy, risk=risk).run()
        ignored = Simulation(untold, cluster, policy=policy, risk=risk).run()
        rows.append(_row(method, seed, workload, result, ignored))
        results[method] = result
    return rows, results


def _row(method: str, seed: int, workload: Workload, result: Result, ignored: Result) -> Row:
    jobs = result.jobs
    wait = jobs["wait_s"].to_numpy() * MS_PER_S
    state = jobs["state"].to_numpy()
    started = jobs["start_s"].is_not_null().to_numpy()
    late = (jobs["start_s"] > jobs["eligible_s"]).fill_null(False)
    completed = state == "completed"
    return Row(
        method=method,
        seed=seed,
        jobs=len(jobs),
        makespan=float(jobs["end_s"].to_numpy()[started].max() * MS_PER_S),
        mean_wait=float(wait[started].mean()),
        max_wait=float(wait[started].max()),
        dependency_violations=dependency_violations(jobs, workload.dependencies),
        violations_if_ignored=dependency_violations(ignored.jobs, workload.dependencies),
        delayed=int(late.sum()),
        completed=int(completed.sum()),
        failed=int((state == "failed").sum()),
        cancelled=int((state == "dependency").sum()),
        mean_wait_completed=float(wait[completed].mean()) if completed.any() else 0.0,
        utilization=resource_utilization(jobs, workload.resources, RESOURCES),
        engine_s=result.engine_s,
    )


def means(rows: Sequence[Row]) -> list[Row]:
    """Return the mean over seeds of each method; ``seed`` is the number of seeds."""
    made = []
    for method in dict.fromkeys(row.method for row in rows):
        own = [row for row in rows if row.method == method]
        numbers = {
            f.name: float(np.mean([getattr(row, f.name) for row in own]))
            for f in dataclasses.fields(Row)
            if f.name not in ("method", "seed", "jobs", "utilization")
        }
        use = {
            name: float(np.mean([row.utilization[name] for row in own]))
            for name in own[0].utilization
        }
        made.append(Row(method, len(own), own[0].jobs, **numbers, utilization=use))
    return made


def wins(rows: Sequence[Row], better: str, worse: str) -> int:
    """Return on how many workloads one method has less makespan and mean wait."""
    by = {(row.method, row.seed): row for row in rows}
    seeds = {row.seed for row in rows}
    return sum(
        by[better, seed].makespan < by[worse, seed].makespan
        and by[better, seed].mean_wait < by[worse, seed].mean_wait
        for seed in seeds
    )


@dataclass(frozen=True)
class Pas(Experiment[int, tuple[list[Row], dict[str, Result]]]):
    """PAS's jobs under each method, seed by seed.

    Args:
        seeds: Number of workloads, with seeds 0, 1, ….
        methods: Some of `METHODS`.
        jobs: Number of jobs in a workload.
        failures: Share of the jobs that fail.
    """

    seeds: int = SEEDS
    methods: tuple[str, ...] = tuple(METHODS)
    jobs: int = JOBS
    failures: float = 0.0
    title = "PAS's jobs under each method"

    def points(self) -> Sequence[int]:
        """See `Experiment`; seeds."""
        for method in self.methods:
            if method not in METHODS:
                raise UnknownNameError("method", method, METHODS)
        return range(self.seeds)

    def run(self, point: int, progress: Progress) -> tuple[list[Row], dict[str, Result]]:
        """See `Experiment`."""
        rows, results = run_seed(
            point, methods=self.methods, jobs=self.jobs, failures=self.failures
        )
        return rows, results if point == 0 else {}

    def results(self, found: Sequence[tuple[list[Row], dict[str, Result]]]) -> Results:
        """See `Experiment`."""
        rows = [row for own, _ in found for row in own]
        overall = means(rows)
        tables = [_means_table(overall), _use_table(overall)]
        findings: list[Finding] = []
        notes: list[str] = []
        if self.failures:
            tables.append(_failures_table(overall))
        elif self.jobs == JOBS:
            findings = compared(overall)
            notes = _told_of_violations(overall)
        for other in (THEIRS, "easy"):
            if {OURS, other} <= set(self.methods):
                won = wins(rows, OURS, other)
                notes.append(
                    f"{OURS} beats {other} on makespan and mean wait on {won} of {self.seeds} workloads"
                )
        figures = {"pas": partial(_heat_map, found[0][1]), "pas-figure-2": partial(_bars, overall)}
        return Results(findings, figures, tables, notes, rows=[row.plain() for row in rows])


def compared(overall: Sequence[Row]) -> list[Finding]:
    """Compare Table I with the means over seeds, for 5,000 jobs."""
    both = ("pas-table-1", "pas-figure-2")
    findings = []
    for row in overall:
        paper = PUBLISHED.get(row.method)
        if paper is not None:
            findings += [
                Finding(f"{row.method}, makespan, ms", paper.makespan, row.makespan, NEAR, ",.0f", both),
                Finding(f"{row.method}, mean wait, ms", paper.mean_wait, row.mean_wait, NEAR, entries=both),
                Finding(
                    f"{row.method}, jobs that violate a dependency", paper.dependency_violations,
                    row.dependency_violations, NEAR, ",.0f", both,
                ),
            ]  # fmt: skip
    return findings


def _told_of_violations(overall: Sequence[Row]) -> list[str]:
    lines = [
        "violations: none here, since dependencies hold. FCFS's published "
        f"{PUBLISHED['fcfs'].dependency_violations:,} are more than all jobs that depend on any, about "
        f"{0.2 * JOBS:,.0f}"
    ]
    lines += [
        f"{THEIRS} would violate {row.violations_if_ignored:,.0f} if it ignored dependencies; published "
        f"{PUBLISHED[THEIRS].dependency_violations}"
        for row in overall
        if row.method == THEIRS
    ]
    lines.append(
        "the paper gives no distributions, runtimes or seed; runtimes of 1 and 2 ms and uniform demands were "
        "chosen so that FCFS comes out, and nothing else was fitted"
    )
    return lines


def _means_table(rows: Sequence[Row]) -> Table:
    many = "" if rows[0].seed == 1 else "s"
    return Table(
        [
            "method", "makespan\nms", "mean wait\nms", "max wait\nms", "viola-\ntions", "if\nignored",
            "delayed",
        ],
        [
            [
                row.method,
                f"{row.makespan:,.0f}",
                f"{row.mean_wait:,.1f}",
                f"{row.max_wait:,.0f}",
                f"{row.dependency_violations:,.0f}",
                f"{row.violations_if_ignored:,.0f}",
                f"{row.delayed:,.0f}",
            ]
            for row in rows
        ],
        f"Mean over {rows[0].seed} workload{many} of {rows[0].jobs:,} jobs",
    )  # fmt: skip


def _use_table(rows: Sequence[Row]) -> Table:
    names = list(rows[0].utilization)
    return Table(
        ["method", *names],
        [[row.method, *(f"{row.utilization[name]:.1%}" for name in names)] for row in rows],
        "Share of each resource in use until the makespan",
    )


def _failures_table(rows: Sequence[Row]) -> Table:
    return Table(
        ["method", "completed", "failed", "cancelled for a\nfailed job", "mean wait of\ncompleted, ms"],
        [
            [
                row.method,
                f"{row.completed:,.0f}",
                f"{row.failed:,.0f}",
                f"{row.cancelled:,.0f}",
                f"{row.mean_wait_completed:,.1f}",
            ]
            for row in rows
        ],
        "Jobs that fail",
    )  # fmt: skip


def _heat_map(results: Mapping[str, Result]) -> Figure:
    """Draw resources in use over time, for seed 0."""
    from hpctwin.report.figures.timeline import plot_resource_use

    ends = {name: float(result.jobs["end_s"].to_numpy().max()) for name, result in results.items()}
    last = max(ends.values())
    use = {
        name: resource_use(result.jobs, result.workload.resources, RESOURCES, until_s=last)
        for name, result in results.items()
    }
    return plot_resource_use(
        use, ends, title="Resources in use, seed 0", unit_s=1 / MS_PER_S, unit="ms"
    )


def _bars(overall: Sequence[Row]) -> Figure:
    """Draw the paper's figure 2, published and reproduced."""
    from hpctwin.report import plot_compare_bars
    from hpctwin.report.columns import Column

    bars: dict[str, dict[str, Any]] = {}
    for row in overall:
        if row.method in PUBLISHED:
            paper = PUBLISHED[row.method]
            for label, makespan, wait in (
                (f"{row.method} (paper)", paper.makespan, paper.mean_wait),
                (f"{row.method} (here)", row.makespan, row.mean_wait),
            ):
                bars[label] = {"makespan_ms": makespan, "mean_wait_ms": wait}
    shown = [
        Column("makespan_ms", "makespan, ms", "low"),
        Column("mean_wait_ms", "mean wait, ms", "low"),
    ]
    return plot_compare_bars(bars, shown, title="PAS, figure 2: published and here")
