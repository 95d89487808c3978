"""The experiment of the SchedTwin paper (arXiv 2512.18894, §4), with extensions.

The workload is 150 jobs in four phases on 32 nodes. The methods are the static policies FCFS, SJF
and WFP with EASY backfilling, and the twin, which chooses among them. There is one row per method
and seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np

from hpctwin.errors import UnknownNameError
from hpctwin.formats import read_workload
from hpctwin.generate.four_phase import four_phase
from hpctwin.model import Workload
from hpctwin.twin.service.comparison import (
    STATIC,
    TWIN,
    Row,
    judge,
    means,
    objective_table,
    static_row,
    twin_row,
)
from hpctwin.twin.settings.config import PAPER_POOL, CoreSettings
from hpctwin.twin.what_if.objective import Normalize
from hpctwin_papers.experiment import SEEDS, Experiment, Progress
from hpctwin_papers.results import Finding, Results
from hpctwin_papers.traces import need_trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES = 32
PUBLISHED_AREA = {"fcfs+easy": 0.00, "sjf+easy": 0.31, "wfp+easy": 1.67, TWIN: 1.86}
"""Areas in figure 3."""
PUBLISHED_SHARE = {"wfp+easy": 0.3519, "fcfs+easy": 0.1566, "sjf+easy": 0.4915}
"""Share of jobs started under each policy, table 1."""


def run_seeds(seeds: Sequence[int]) -> Iterator[list[Row]]:
    """Yield the rows of each seed with the paper's settings, as they become available."""
    for seed in seeds:
        yield run_seed(four_phase(seed=seed), NODES, CoreSettings(), seed)


def run_seed(jobs: Workload, nodes: int, settings: CoreSettings, seed: int = 0) -> list[Row]:
    """Return the rows of a workload under the static policies and the twin."""
    rows = [static_row(jobs, nodes, text, seed) for text in STATIC]
    rows.append(twin_row(jobs, nodes, settings, seed))
    judge(rows, settings)
    return rows


@dataclass(frozen=True)
class SchedTwin(Experiment[tuple[int, Workload, int], list[Row]]):
    """The static policies and the twin on each workload.

    Args:
        seeds: Number of workloads, with seeds 0, 1, ….
        pool: Policies that the twin chooses among.
        normalize: Normalization of metrics.
        trace: A real trace to use instead, once.
        jobs: Number of its first jobs to use; None for all.
        nodes: Number of nodes of the cluster; default 32, or the trace's.
    """

    seeds: int = SEEDS
    pool: tuple[str, ...] = PAPER_POOL
    normalize: Normalize = "mean"
    trace: Path | None = None
    jobs: int | None = None
    nodes: int | None = None
    title = "the twin on each workload"
    serial = True

    @property
    def settings(self) -> CoreSettings:
        """Settings of the twin."""
        given = {"pool": self.pool, "objective": {"normalize": self.normalize}}
        return CoreSettings.checked(given, "--policy, --normalize")

    def points(self) -> Sequence[tuple[int, Workload, int]]:
        """See `Experiment`; seeds, jobs, and nodes of the cluster."""
        if self.normalize not in get_args(Normalize):
            raise UnknownNameError("normalization", self.normalize, get_args(Normalize))
        if self.trace is None:
            nodes = self.nodes or NODES
            return [(seed, four_phase(seed=seed), nodes) for seed in range(self.seeds)]
        real = read_workload(self.trace)
        real = real.take(np.arange(min(self.jobs or len(real), len(real))))
        if real.nodes_hint is None:
            notes = replace(real.notes, size_from="the largest job")
            real = real.replace(nodes_hint=int(real.nodes.max()), notes=notes)
        return [(0, real, self.nodes or real.nodes_hint or 0)]

    def run(self, point: tuple[int, Workload, int], progress: Progress) -> list[Row]:
        """See `Experiment`."""
        seed, jobs, nodes = point
        return run_seed(jobs, nodes, self.settings, seed)

    def results(self, found: Sequence[list[Row]]) -> Results:
        """See `Experiment`."""
        rows = [row for own in found for row in own]
        overall = means(rows)
        ours = next(row for row in overall if row.method == TWIN)
        shares = ", ".join(f"{name} {share:.1%}" for name, share in ours.share_by_policy.items())
        best = min((row for row in overall if row.method != TWIN), key=lambda row: row.objective)
        won = sum(min(own, key=lambda row: row.objective).method == TWIN for own in found)
        published = self.trace is None and self.pool == PAPER_POOL
        return Results(
            compared(overall) if published else [],
            {"schedtwin-figure-3": partial(_radar, overall)},
            [objective_table(overall, normalize=self.normalize)],
            [
                f"jobs started by the twin under: {shares}",
                f"objective of the twin {ours.objective:.4f}, of the best static policy ({best.method}) "
                f"{best.objective:.4f}; the twin is the best of all on {won} of {len(found)} workloads",
            ],
            rows=[row.plain() for row in rows],
        )


def compared(overall: Sequence[Row]) -> list[Finding]:
    """Compare figure 3 and table 1 with the means over seeds."""
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


def _radar(overall: Sequence[Row]) -> Figure:
    from hpctwin.report import plot_radar

    title = "SchedTwin beside static policies (outer is better)"
    return plot_radar({row.method: row.plain() for row in overall}, title=title, scale="range")


@dataclass(frozen=True)
class Polaris(Experiment[Workload, Workload]):
    """The jobs of Polaris by size and time, as in figure 1, but of other months."""

    title = "jobs of Polaris"
    data = ("Polaris-2023-schedulus.swf",)

    def points(self) -> Sequence[Workload]:
        """See `Experiment`."""
        return [read_workload(need_trace(self.data[0]))]

    def run(self, point: Workload, progress: Progress) -> Workload:
        """See `Experiment`; nothing is simulated."""
        return point

    def results(self, found: Sequence[Workload]) -> Results:
        """See `Experiment`."""
        return Results(figures={"schedtwin-figure-1": partial(_jobs_drawn, found[0])})


def _jobs_drawn(jobs: Workload) -> Figure:
    from hpctwin.report import plot_workload

    return plot_workload(jobs, title=f"Jobs of Polaris, 2023: {len(jobs):,}")
