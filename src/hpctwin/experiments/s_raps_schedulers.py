"""What it costs that a scheduler is outside, as S-RAPS's §4.2 (Maiterth et al., SC25-W) tells of two.

The paper's trace is synthetic and not published: 5,324 jobs in 15 days on Frontier. Here as many are
generated in as much time on as many nodes.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import polars as pl

from hpctwin.generate import generate
from hpctwin.model import Cluster, Workload
from hpctwin.simulation import Simulation
from hpctwin.simulation.schedulers import (
    Happened,
    JsonLinesScheduler,
    Orders,
    OutsideScheduler,
    PolicyScheduler,
    drive,
)

__all__ = ["JOBS", "NODES", "Coupling", "first_come", "run", "workload"]

JOBS, DAYS, NODES = 5324, 15.0, 9408
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


def run(
    jobs: Workload, *, programs: tuple[str, ...] = (), progress: Callable[[str], None] | None = None
) -> Iterator[Coupling]:
    """Run the jobs under schedulers within and outside.

    Args:
        jobs: the jobs.
        programs: commands of further schedulers, which speak JSON lines; they are beside FCFS with EASY.
        progress: told what begins.

    Raises:
        SimulationError: a program is not there, or does not answer as it should.
    """
    cluster = Cluster.uniform(NODES)
    own = {
        policy: _timed("within", policy, jobs, cluster, None)
        for policy in ("fcfs+none", "fcfs+easy")
    }
    yield from (coupling for coupling, _ in own.values())
    couplings: list[tuple[str, str, AbstractContextManager[OutsideScheduler]]] = [
        ("a function in Python", "fcfs+none", nullcontext(first_come())),
        (
            "our own policy from outside",
            "fcfs+easy",
            nullcontext(PolicyScheduler("fcfs+easy", NODES)),
        ),
    ]
    couplings += [(text, "fcfs+easy", JsonLinesScheduler(text, cluster)) for text in programs]
    for name, beside, scheduler in couplings:
        if progress is not None:
            progress(name)
        yield _timed(name, beside, jobs, cluster, scheduler, own[beside][1])[0]


def _timed(
    name: str,
    beside: str,
    jobs: Workload,
    cluster: Cluster,
    outside: AbstractContextManager[OutsideScheduler] | None,
    starts: pl.Series | None = None,
) -> tuple[Coupling, pl.Series]:
    begin = _spent_s()
    if outside is None:
        result = Simulation(jobs, cluster, beside).run()
    else:
        simulation = Simulation(jobs, cluster, "fcfs", "outside")
        with outside as scheduler:
            result = drive(simulation, scheduler)
    cpu_s = max(_spent_s() - begin, 1e-6)
    found = result.jobs["start_s"]
    same = 1.0 if starts is None else int((found == starts).sum()) / len(found)
    figures = result.summary()
    rate = figures["makespan_s"] / cpu_s
    return Coupling(name, beside, same, figures["mean_wait_s"], cpu_s, rate), found


def _spent_s() -> float:
    """Processor time of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
