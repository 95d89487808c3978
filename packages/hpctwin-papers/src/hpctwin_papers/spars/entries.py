"""SPARS's figures and table with results."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from hpctwin.generate import generate
from hpctwin.model import Workload
from hpctwin.simulation import Result, simulate
from hpctwin_papers.entry import NO_NUMBERS, Entry
from hpctwin_papers.experiment import Experiment, Progress
from hpctwin_papers.results import Finding, Results
from hpctwin_papers.spars.experiment import Spars
from hpctwin_papers.spars.published import RUN_S, TIMEOUTS_S
from hpctwin_papers.spars.schedulers import TRACE, simulate_cell, workload

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _gantt(result: Result, title: str) -> Figure:
    from hpctwin.report import plot_gantt

    nodes = result.cluster.node_count
    return plot_gantt(result.jobs, result.node_map, nodes=nodes, title=title)


@dataclass(frozen=True)
class Batched(Experiment[Workload, Result]):
    """Figure 1: jobs 1 and 2 end at the same time, while jobs 3 and 4 are pending."""

    title = "four jobs"

    def points(self) -> Sequence[Workload]:
        """See `Experiment`."""
        return [
            Workload.build(
                job_id=[1, 2, 3, 4], submit_s=[0.0, 0.0, 1.0, 2.0], runtime_s=[10.0, 10.0, 5.0, 5.0],
                nodes=[1, 1, 2, 1], name="figure 1",
            )
        ]  # fmt: skip

    def run(self, point: Workload, progress: Progress) -> Result:
        """See `Experiment`."""
        return simulate(point, 2, "fcfs+easy", track_nodes=True)

    def results(self, found: Sequence[Result]) -> Results:
        """See `Experiment`."""
        name, (result,) = "spars-figure-1", found
        start = dict(result.jobs.select("job_id", "start_s").iter_rows())
        findings = [
            Finding(f"start of job {job}, s (jobs 1 and 2 end at 10)", at, start[job], 0.0, "g", (name,))
            for job, at in {3: 10.0, 4: 15.0}.items()
        ]  # fmt: skip
        draw = partial(_gantt, result, "Two ends at one instant, then one pass")
        return Results(findings, {name: draw})


@dataclass(frozen=True)
class Gantt(Experiment[Workload, Result]):
    """Figure 3: generated jobs under EASY."""

    title = "200 jobs"

    def points(self) -> Sequence[Workload]:
        """See `Experiment`."""
        return [generate("poisson", jobs=200, nodes=16, load=0.9, seed=0)]

    def run(self, point: Workload, progress: Progress) -> Result:
        """See `Experiment`."""
        return simulate(point, 16, "fcfs+easy", overrun="terminate", track_nodes=True)

    def results(self, found: Sequence[Result]) -> Results:
        """See `Experiment`."""
        draw = partial(_gantt, found[0], "200 jobs on 16 nodes, EASY")
        return Results(figures={"spars-figure-3": draw})


@dataclass(frozen=True)
class RunTimes(Experiment[tuple[Workload, float], float]):
    """Table 5: processor time of EASY with PSUS by timeout."""

    title = "run times by timeout"
    data = (TRACE,)
    serial = True

    def points(self) -> Sequence[tuple[Workload, float]]:
        """See `Experiment`."""
        jobs = workload()
        simulate_cell(jobs, "easy-psus", 0)  # compiles the engine if necessary
        return [(jobs, timeout_s) for timeout_s in TIMEOUTS_S]

    def run(self, point: tuple[Workload, float], progress: Progress) -> float:
        """See `Experiment`; seconds."""
        begin = time.process_time()
        simulate_cell(point[0], "easy-psus", point[1])
        return time.process_time() - begin

    def results(self, found: Sequence[float]) -> Results:
        """See `Experiment`."""
        return Results(
            [
                Finding(
                    f"run time with a timeout of {timeout_s / 60:g} min, s", theirs, spent, 0.1, ".3f",
                    ("spars-table-5",),
                )
                for timeout_s, theirs, spent in zip(TIMEOUTS_S, RUN_S, found, strict=True)
            ]
        )  # fmt: skip


def entries(entry: partial[Entry]) -> Iterator[Entry]:
    """Yield the paper's entries; `entry` creates one."""
    yield entry(
        "spars-figure-1",
        shows="two jobs end at the same time, and the jobs that start then",
        config="Four jobs on two nodes, EASY",
        experiment=Batched(),
    )
    yield entry(
        "spars-figure-3",
        shows="Gantt chart of 200 jobs under EASY",
        config="200 generated jobs, seed 0, 16 nodes",
        because=f"the paper's workload is not published, and {NO_NUMBERS}",
        experiment=Gantt(),
    )
    yield entry(
        "spars-figure-4",
        shows="energy and waits of six schedulers",
        config="Last fifth of NASA iPSC/860, 128 nodes, timeouts of 5 to 60 min; FCFS by the published rule, "
        "EASY by the correct one",
        because="SPARS's variants of EASY have errors that the correct rule does not have; the command shows "
        "the effect of each",
        experiment=Spars(),
        more="hpctwin experiment spars --more",
    )
    yield entry(
        "spars-table-5",
        shows="run time of EASY with PSUS by timeout",
        config="As for figure 4; processor time",
        because="the paper measured another program on another computer",
        experiment=RunTimes(),
    )
