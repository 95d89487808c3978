"""S-RAPS's figures (Maiterth et al., SC25-W) with logs that are available.

PM100 (figure 4), Adastra's jobs (5), Frontier's telemetry (6, 8), the trace for FastSim (7) and
F-DATA (10) are not available here. Each figure uses another log with the same effect, on nodes of
the paper's cluster or of the log's own kind. The jobs' use of nodes is drawn.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from hpctwin.formats import read_workload
from hpctwin.formats.systems import read_system
from hpctwin.model import Cluster, Workload
from hpctwin.model.workload.jobs import Usage
from hpctwin.simulation import window
from hpctwin.simulation.running.window import moment
from hpctwin_papers.experiment import Experiment, Progress
from hpctwin_papers.results import Finding, Results
from hpctwin_papers.s_raps.external_schedulers import DAYS, PUBLISHED_S, workload
from hpctwin_papers.s_raps.figures import Run, SRaps, schedule_results
from hpctwin_papers.s_raps.incentives import Incentives, drawn_use
from hpctwin_papers.s_raps.prediction import Schedule, SRapsMl
from hpctwin_papers.s_raps.redeeming import Redeemed
from hpctwin_papers.traces import need_trace

THETA, THETA_NODES = "Theta-2023-lumos.swf", 4392
THETA_GPU, THETA_GPU_NODES = "ThetaGPU-2023-lumos.swf", 24
WEATHER = "sustain_lc_frontier_cdu_power_2024-04-07.csv"
"""Weather file with the wet-bulb temperature at Frontier's site."""
HOUR_S = 3600.0


class _Part(Experiment[tuple[SRaps, str], Run]):
    """A part of a log as recorded, and under the paper's three policies."""

    figure: ClassVar[str]

    @abstractmethod
    def part(self) -> SRaps:
        """Return the part and the cluster."""

    def points(self) -> Sequence[tuple[SRaps, str]]:
        """See `Experiment`."""
        part = self.part()
        return [(part, policy) for policy in part.points()]

    def run(self, point: tuple[SRaps, str], progress: Progress) -> Run:
        """See `Experiment`."""
        part, policy = point
        return part.run(policy, progress)

    def results(self, found: Sequence[Run]) -> Results:
        """See `Experiment`."""
        return schedule_results(found, self.figure)


@dataclass(frozen=True)
class Busy(_Part):
    """Figure 4: 17 h from 17:00 on with a queue that fills, on nodes of Marconi100's kind."""

    title = "17 h of a full queue"
    figure = "s-raps-figure-4"
    data = (THETA,)

    def part(self) -> SRaps:
        """See `_Part`."""
        jobs = _log(THETA)
        begin_s = moment("2023-01-04T17:00", jobs)
        return SRaps(
            window(jobs, begin_s, begin_s + 17 * HOUR_S), _nodes_of("marconi100", THETA_NODES)
        )


@dataclass(frozen=True)
class Quiet(_Part):
    """Figure 5: 15 days with few pending jobs, on nodes with eight GPUs."""

    title = "15 days of a machine half in use"
    figure = "s-raps-figure-5"
    data = (THETA_GPU,)

    def part(self) -> SRaps:
        """See `_Part`."""
        begin_s = 205 * 24 * HOUR_S
        part = window(_log(THETA_GPU), begin_s, begin_s + DAYS * 24 * HOUR_S)
        return SRaps(part, _nodes_of("selene", THETA_GPU_NODES), step_s=900.0)


@dataclass(frozen=True)
class Full(_Part):
    """Figure 6: a day of consecutive runs on nearly the whole cluster, with cooling."""

    title = "a day with runs of the whole machine"
    figure = "s-raps-figure-6"
    data = (THETA, WEATHER)

    def part(self) -> SRaps:
        """See `_Part`."""
        machine, jobs = read_system("frontier"), _log(THETA)
        wider = np.maximum(1, jobs.nodes * machine.node_count // THETA_NODES)
        begin_s = 1893 * HOUR_S
        part = window(jobs.replace(nodes=wider), begin_s, begin_s + 24 * HOUR_S)
        return SRaps(part, machine, wet_bulb=need_trace(WEATHER))


def _log(name: str) -> Workload:
    jobs = read_workload(need_trace(name))
    return drawn_use(jobs.replace(account=jobs.user), np.random.default_rng(0))


def _nodes_of(system: str, count: int) -> Cluster:
    """Return a cluster of `count` nodes of a system's kind, without its racks."""
    group = read_system(system).nodes[0].model_copy(update={"count": count, "racks": None})
    return Cluster(name=f"{system}-nodes", nodes=[group])


@dataclass(frozen=True)
class Outside(_Part):
    """Figure 7: 5,324 jobs in 15 days on Frontier as Slurm would start them, with power."""

    title = "15 days of Frontier under Slurm"
    figure = "s-raps-figure-7"
    serial = True

    def part(self) -> SRaps:
        """See `_Part`."""
        jobs = workload()
        use = Usage.averages(np.random.default_rng(0).beta(2.0, 2.0, len(jobs)))
        part = window(jobs.replace(usage={"cpu": use, "gpu": use}), 0.0, DAYS * 24 * HOUR_S)
        return SRaps(part, read_system("frontier"), policies=("fcfs+slurm",), step_s=15.0)

    def run(self, point: tuple[SRaps, str], progress: Progress) -> Run:
        """See `Experiment`; adds the processor time."""
        begin = time.process_time()
        run = super().run(point, progress)
        return replace(run, figures=run.figures | {"cpu_s": time.process_time() - begin})

    def results(self, found: Sequence[Run]) -> Results:
        """See `Experiment`."""
        span_s, cpu_s = DAYS * 24 * HOUR_S, found[0].figures["cpu_s"]
        rate = Finding(
            "times as fast as the clock", span_s / PUBLISHED_S, span_s / cpu_s, 0.05,
            form=",.0f", entries=(self.figure,),
        )  # fmt: skip
        return replace(super().results(found), findings=[rate])


@dataclass(frozen=True)
class Redeeming(Incentives):
    """Figure 8: the same jobs collect and redeem, as in the paper."""

    same: bool = True
    data = (THETA,)

    def results(self, found: Sequence[Redeemed]) -> Results:
        """See `Experiment`."""
        return _renamed(super().results(found), "s-raps-figure-8")


@dataclass(frozen=True)
class Foretold(Experiment[SRapsMl, tuple[SRapsMl, list[Schedule]]]):
    """Figure 10: a log scheduled by the paper's pipeline, walltimes and true runtimes."""

    title = SRapsMl.title
    data = (THETA,)

    def points(self) -> Sequence[SRapsMl]:
        """See `Experiment`."""
        jobs = read_workload(need_trace(THETA))
        return [SRapsMl(jobs, Cluster.uniform(THETA_NODES), methods=("clusters",))]

    def run(self, point: SRapsMl, progress: Progress) -> tuple[SRapsMl, list[Schedule]]:
        """See `Experiment`."""
        return point, point.run(None, progress)

    def results(self, found: Sequence[tuple[SRapsMl, list[Schedule]]]) -> Results:
        """See `Experiment`."""
        experiment, schedules = found[0]
        return _renamed(experiment.results([schedules]), "s-raps-figure-10")


def _renamed(results: Results, figure: str) -> Results:
    draw, rest = results.first_figure()
    return replace(rest, figures={figure: draw})
