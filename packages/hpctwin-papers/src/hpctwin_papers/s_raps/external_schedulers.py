"""Cost of an external scheduler, as in S-RAPS's §4.2 (Maiterth et al., SC25-W).

The paper's trace is synthetic and not published: 5,324 jobs in 15 days on Frontier. Here the same
number of jobs is generated for the same time and nodes.
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
from hpctwin.report.columns import Table
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
"""Duration of the paper's simulation with FastSim, in seconds: 688 times real time."""


@dataclass(frozen=True)
class Coupling:
    """Result and cost of one scheduler.

    Args:
        scheduler: Name of the scheduler.
        beside: Policy with the same rule, as far as known.
        same_starts: Share of jobs with the same start as under that policy inside the engine.
        mean_wait_s: Mean wait of its jobs, in seconds.
        cpu_s: Processor time of both sides, in seconds.
        times_real: Simulated time divided by processor time.
    """

    scheduler: str
    beside: str
    same_starts: float
    mean_wait_s: float
    cpu_s: float
    times_real: float


def workload(jobs: int = JOBS, seed: int = 0) -> Workload:
    """Return jobs submitted in 15 days, or at the same rate if there are fewer."""
    made = generate("poisson", jobs=jobs, nodes=NODES, mean_runtime_s=2000.0, seed=seed)
    factor = DAYS * 86_400.0 * jobs / JOBS / made.span_s
    return made.replace(submit_ms=(made.submit_ms * factor).astype("int64"))


def first_come() -> OutsideScheduler:
    """Return a scheduler for first come, first served: the minimal external scheduler."""
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
    """A scheduler to try.

    Args:
        name: Name of the scheduler.
        beside: Policy with the same rule, as far as known.
        made: Function that creates it; None for the policy inside the engine.
    """

    name: str
    beside: str
    made: Callable[[], AbstractContextManager[OutsideScheduler]] | None


def _timed(tried: Tried, jobs: Workload) -> tuple[Coupling, pl.Series]:
    """Return the result and cost of a scheduler, and the starts of jobs."""
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
    """Return the processor time of this process and of its ended child processes."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@dataclass(frozen=True)
class SRapsSchedulers(Experiment[Tried, tuple[Tried, Coupling, pl.Series]]):
    """Jobs under internal and external schedulers, which should make the same decisions.

    Args:
        jobs: Number of jobs.
        programs: Commands of further schedulers that speak JSON lines; compared with FCFS with
            EASY.
        seed: Seed of the draws.
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
            SimulationError: A program is missing, or does not answer as it should.
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
