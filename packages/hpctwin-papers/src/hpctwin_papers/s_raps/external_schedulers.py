"""What it costs that a scheduler is outside, as S-RAPS's §4.2 (Maiterth et al., SC25-W) tells of two.

The paper's trace is synthetic and not published: 5,324 jobs in 15 days on Frontier. Here as many are
generated in as much time on as many nodes.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial

import polars as pl

from hpctwin.generate import generate
from hpctwin.model import Cluster, Workload
from hpctwin.report.tables.plain_table import Table
from hpctwin.simulation import Simulation
from hpctwin.simulation.schedulers import (
    Happened,
    JsonLinesScheduler,
    Orders,
    OutsideScheduler,
    PolicyScheduler,
    drive,
)
from hpctwin_papers.experiment import Experiment, Progress
from hpctwin_papers.results import Results

__all__ = ["JOBS", "NODES", "Coupling", "SRapsSchedulers", "first_come", "workload"]

JOBS, DAYS, NODES = 5324, 15.0, 9408
MACHINE = Cluster.uniform(NODES)
WITHIN = ("fcfs+none", "fcfs+easy")
PUBLISHED_S = 31 * 60 + 24.0
"""What the paper's simulation with FastSim took: 688 times as fast as the clock."""


@dataclass(frozen=True)
class Coupling:
    """What one scheduler gave and cost.

    Args:
        scheduler: which.
        beside: the policy whose rule it follows, as far as known.
        same_starts: share of the jobs that start when they do under that policy within.
        mean_wait_s: of its jobs, seconds.
        cpu_s: processor time of both sides, seconds.
        times_real: how many times as fast as the clock, by processor time.
    """

    scheduler: str
    beside: str
    same_starts: float
    mean_wait_s: float
    cpu_s: float
    times_real: float


def workload(jobs: int = JOBS, seed: int = 0) -> Workload:
    """Jobs that come in 15 days, or as close together if they are fewer.

    Args:
        jobs: how many.
        seed: of what is drawn.
    """
    made = generate("poisson", jobs=jobs, nodes=NODES, mean_runtime_s=2000.0, seed=seed)
    factor = DAYS * 86_400.0 * jobs / JOBS / made.span_s
    return made.replace(submit_ms=(made.submit_ms * factor).astype("int64"))


def first_come() -> OutsideScheduler:
    """First come, first served, by what it is told: the least that a scheduler outside does."""
    queue: list[tuple[object, int]] = []

    def decide(happened: Happened) -> Orders:
        gone = {job for job, _ in happened.ended}
        queue[:] = [one for one in queue if one[0] not in gone]
        queue.extend((job["job_id"], int(job["nodes"])) for job in happened.submitted)
        free, start = happened.free_nodes, []
        while queue and queue[0][1] <= free:
            job_id, nodes = queue.pop(0)
            free -= nodes
            start.append(job_id)
        return Orders(start)

    return decide


@dataclass(frozen=True, eq=False)
class Tried:
    """A scheduler that is tried.

    Args:
        name: of it.
        beside: the policy whose rule it follows, as far as known.
        made: makes it; None for the policy itself within.
    """

    name: str
    beside: str
    made: Callable[[], AbstractContextManager[OutsideScheduler]] | None


def _timed(tried: Tried, jobs: Workload) -> tuple[Coupling, pl.Series]:
    """What it gave and cost, and when jobs started."""
    begin = _spent_s()
    if tried.made is None:
        result = Simulation(jobs, MACHINE, tried.beside).run()
    else:
        simulation = Simulation(jobs, MACHINE, "fcfs", "outside")
        with tried.made() as scheduler:
            result = drive(simulation, scheduler)
    cpu_s = max(_spent_s() - begin, 1e-6)
    figures = result.summary()
    rate = figures["makespan_s"] / cpu_s
    found = Coupling(tried.name, tried.beside, 1.0, figures["mean_wait_s"], cpu_s, rate)
    return found, result.jobs["start_s"]


def _spent_s() -> float:
    """Processor time of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@dataclass(frozen=True)
class SRapsSchedulers(Experiment[Tried, tuple[Tried, Coupling, pl.Series]]):
    """Jobs under schedulers within and outside, which are to decide alike.

    Args:
        jobs: how many.
        programs: commands of further schedulers, which speak JSON lines; they are beside FCFS with EASY.
        seed: of what is drawn.
    """

    jobs: int = JOBS
    programs: tuple[str, ...] = ()
    seed: int = 0
    title = "schedulers from outside"
    serial = True

    def points(self) -> Sequence[Tried]:
        """See `Experiment`."""
        easy = "fcfs+easy"
        return [
            *(Tried("within", policy, None) for policy in WITHIN),
            Tried("a function in Python", "fcfs+none", lambda: nullcontext(first_come())),
            Tried(
                "our own policy from outside",
                easy,
                lambda: nullcontext(PolicyScheduler(easy, NODES)),
            ),
            *(
                Tried(text, easy, partial(JsonLinesScheduler, text, MACHINE))
                for text in self.programs
            ),
        ]

    def run(self, point: Tried, progress: Progress) -> tuple[Tried, Coupling, pl.Series]:
        """See `Experiment`.

        Raises:
            SimulationError: a program is not there, or does not answer as it should.
        """
        return (point, *_timed(point, workload(self.jobs, self.seed)))

    def results(self, found: Sequence[tuple[Tried, Coupling, pl.Series]]) -> Results:
        """See `Experiment`."""
        own = {tried.beside: starts for tried, _, starts in found if tried.made is None}
        told = [
            replace(one, same_starts=int((starts == own[tried.beside]).sum()) / len(starts))
            for tried, one, starts in found
        ]
        rows = [
            [
                one.scheduler,
                one.beside,
                f"{one.same_starts:.1%}",
                f"{one.mean_wait_s / 3600:.2f}",
                f"{one.cpu_s:,.2f}",
                f"{one.times_real:,.0f}",
            ]
            for one in told
        ]
        rows.append(["FastSim, as published", "", "", "", f"{PUBLISHED_S:,.0f}", "688"])
        heads = ["scheduler", "beside", "same starts", "mean wait, h", "CPU, s", "times real time"]
        return Results(tables=[Table(heads, rows, words=2)], rows=[asdict(one) for one in told])
