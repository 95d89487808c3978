"""Reproduction of RLScheduler's table of mean bounded slowdowns, with hpctwin's agents.

Source: Zhang et al., SC20. The behavior of its programs (github.com/DIR-LAB/deep-batch-scheduler)
    is kept:

- There are ten sequences of 1,024 consecutive jobs, drawn by its seed.
- The cluster is empty at the beginning.
- The scheduler waits for a selected job, even if a job arrives that it would have selected first.
- Backfilled jobs end, by their walltimes, before the selected job could begin.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpctwin.formats import read_workload
from hpctwin.metrics import MeanInterval, mean_interval
from hpctwin.model import MS_PER_S, Workload
from hpctwin_papers.traces import need_trace

if TYPE_CHECKING:
    from hpctwin.learn.training.trial import Plan
    from hpctwin.policies.agents import Network

FloatArray = npt.NDArray[np.float64]

JOBS, SEQUENCES, DRAWN_FROM = 1024, 10, 10_000
"""Jobs of a sequence; sequences; first jobs that they are drawn from."""

SEED = 1
OBSERVATION = "delays"
"""Observation of the agents."""
MIXED = {"Lublin-1": True, "Lublin-2": True, "HPC2N": False}
"""Whether an episode of training takes any jobs of the part, with consecutive arrivals.

Few jobs of Lublin's model remain outside the tested ones, and they hardly depend on earlier jobs.
"""
BACKFILLING: dict[bool, bool | str] = {False: False, True: "rlscheduler"}
"""Option ``backfilling`` of `JobSelectionEnv`, by whether jobs may be backfilled."""

IMITATED = ("sjf", "smallest-area")


def _sjf(submit: FloatArray, walltime: FloatArray, nodes: FloatArray) -> FloatArray:
    return walltime + 1e-9 * submit


def _f1(submit: FloatArray, walltime: FloatArray, nodes: FloatArray) -> FloatArray:
    return np.log10(walltime) * nodes + 870.0 * np.log10(np.maximum(submit, 0.1))


def _wfp(submit: FloatArray, walltime: FloatArray, nodes: FloatArray) -> FloatArray:
    # Their start of a pending job is -1, so its wait is negative and stays constant.
    return -((-(1.0 + submit) / walltime) ** 3) * nodes


def _unicef(submit: FloatArray, walltime: FloatArray, nodes: FloatArray) -> FloatArray:
    return (1.0 + submit) / (np.log2(nodes + 1e-15) * walltime)


HEURISTICS: dict[str, Callable[[FloatArray, FloatArray, FloatArray], FloatArray]] = {
    "FCFS": lambda submit, walltime, nodes: submit,
    "WFP3": _wfp,
    "UNICEP": _unicef,
    "SJF": _sjf,
    "F1": _f1,
}
"""Scores of its programs, lowest first; submit times and walltimes in s."""

OTHERS: dict[str, Callable[[FloatArray, FloatArray, FloatArray], FloatArray]] = {
    "smallest area": lambda submit, walltime, nodes: walltime * nodes + 1e-9 * submit,
}
"""A skeptic's rule, which is not in the table: fewest node-seconds first."""

ROWS: dict[tuple[str, bool], tuple[float, ...]] = {
    ("Lublin-1", False): (7273.77, 19753.53, 22274.74, 277.35, 258.37, 254.67),
    ("HPC2N", False): (297.18, 426.99, 609.77, 157.71, 118.01, 117.01),
    ("Lublin-2", False): (7842.47, 9523.18, 11265.31, 787.89, 698.34, 724.51),
    ("Lublin-1", True): (235.82, 133.87, 307.23, 73.31, 75.07, 58.64),
    ("HPC2N", True): (127.38, 97.39, 175.12, 122.04, 71.95, 86.14),
    ("Lublin-2", True): (247.61, 318.35, 379.59, 91.99, 148.25, 118.79),
}
"""Published means by trace and backfilling: those of `HEURISTICS`, then of its agent."""


@dataclass(frozen=True)
class Case:
    """A trace of the table.

    Args:
        workload: Jobs of the trace.
        nodes: Number of nodes of its cluster.
        first_s: Submit time of the first job in the file, in seconds.
    """

    workload: Workload
    nodes: int
    first_s: float


_FILES = {
    "Lublin-1": ("lublin_256.swf", 256, 1, 5094.0),
    "Lublin-2": ("lublin_256_new2.swf", 256, 1, 139.0),
    "HPC2N": ("HPC2N-2002-2.2-cln-completed-reassembled.swf", 120, 2, 0.0),
}
"""File, nodes, processors per node, and submit time of the first job, by trace."""


@cache
def case(trace: str) -> Case:
    """Return one of the traces."""
    name, nodes, processors, first_s = _FILES[trace]
    read = read_workload(need_trace(name))
    return Case(replace(read, nodes=-(-read.nodes // processors)), nodes, first_s)


def sequences() -> list[int]:
    """Return the begins of the ten sequences, as its programs draw them with seed 1.

    The draw uses Gym's seeding before 0.22.
    """
    digest = hashlib.sha512(str(SEED).encode()).digest()[:8]
    drawn = np.random.RandomState(np.frombuffer(digest, "<u4").tolist())
    return [int(drawn.randint(JOBS, DRAWN_FROM - JOBS - 1)) for _ in range(SEQUENCES)]


def trained_on(trace: str) -> tuple[int, int]:
    """Return the range of training jobs, without its end. None of them is tested.

    The jobs are those before the first tested job. If a trace is much longer than the part that
    sequences are drawn from, they are four times as many jobs after that part.
    """
    if len(case(trace).workload) > 6 * DRAWN_FROM:
        return DRAWN_FROM, 5 * DRAWN_FROM
    return 0, min(sequences())


def served(
    trace: str, passing: bool, choose: Callable[[Any, Any, int], int], observation: str = "job"
) -> FloatArray:
    """Return the mean bounded slowdown of each sequence.

    Args:
        passing: Whether jobs may be backfilled before the selected job.
        choose: Function of the environment, the observation of pending jobs, and the sequence's
            begin; returns the selected place.
    """
    from hpctwin.learn import Episodes, JobSelectionEnv

    own = case(trace)
    episodes = Episodes.of(own.workload, own.nodes, jobs=JOBS)
    environment = JobSelectionEnv(
        episodes, window=JOBS, observation=observation, backfilling=BACKFILLING[passing]
    )
    found = []
    for first in sequences():
        seen, _ = environment.reset(options={"first": first})
        over = False
        while not over:
            waiting = int(environment.simulation.state.clock.queued)
            place = choose(environment, seen[:waiting], first)
            seen, _, over, _, told = environment.step(place)
        found.append(told["mean_bounded_slowdown"])
    return np.array(found)


def heuristic(trace: str, passing: bool, name: str) -> FloatArray:
    """Return the slowdowns of `served` for one of `HEURISTICS` or `OTHERS`."""
    jobs = case(trace).workload
    submit = jobs.submit_ms / MS_PER_S + case(trace).first_s
    rule = {**HEURISTICS, **OTHERS}[name]
    score = rule(submit, jobs.walltime_ms / MS_PER_S, jobs.nodes.astype(np.float64))

    def choose(environment: Any, seen: Any, first: int) -> int:
        return int(score[first + environment.simulation.state["queue"][: len(seen)]].argmin())

    return served(trace, passing, choose)


def agent(trace: str, passing: bool, plan: Plan) -> Network:
    """Return an agent trained on episodes of a sequence's length; see `trained_on`.

    Args:
        passing: Whether jobs may be backfilled before the selected job.
    """
    from hpctwin.learn import Episodes
    from hpctwin.learn.training.training import train

    own, (first, last) = case(trace), trained_on(trace)
    source = Episodes.of(
        own.workload, own.nodes, jobs=JOBS, first=first, last=last, mixed=MIXED[trace]
    )
    options = {
        "backfilling": BACKFILLING[passing], "window": JOBS, "observation": OBSERVATION,
    }  # fmt: skip
    about = {"data": {"trace": own.workload.name, "first": first, "last": last}}
    return train("JobSelection", source, plan, options=options, about=about)


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Args:
        trace: Name of the trace.
        passing: Whether jobs may be backfilled before the selected job.
        heuristics: Mean bounded slowdown of each sequence, by heuristic.
        others: The same for `OTHERS`.
        agents: The same for hpctwin's agents.
    """

    trace: str
    passing: bool
    heuristics: dict[str, FloatArray]
    others: dict[str, FloatArray]
    agents: tuple[FloatArray, ...] = ()

    @property
    def published(self) -> dict[str, float]:
        """Published means by heuristic, and ``RL``."""
        return dict(zip((*HEURISTICS, "RL"), ROWS[self.trace, self.passing], strict=True))

    @property
    def best(self) -> str:
        """The best heuristic of the table in this reproduction."""
        return _least(self.heuristics)

    @property
    def best_of_all(self) -> str:
        """The best heuristic of the table and `OTHERS`."""
        return _least({**self.heuristics, **self.others})

    @property
    def more(self) -> MeanInterval:
        """Difference of the agents' mean to the table's best heuristic, paired by sequence."""
        return mean_interval(np.mean(self.agents, axis=0) - self.heuristics[self.best])

    @property
    def more_of_all(self) -> MeanInterval:
        """Difference of the agents' mean to the best of all heuristics, paired by sequence."""
        everybody = {**self.heuristics, **self.others}
        return mean_interval(np.mean(self.agents, axis=0) - everybody[self.best_of_all])

    @property
    def each(self) -> list[tuple[float, MeanInterval]]:
        """Mean of each agent, by seed, and its difference to the best heuristic, paired."""
        best = self.heuristics[self.best]
        return [(float(one.mean()), mean_interval(one - best)) for one in self.agents]

    def plain(self) -> dict[str, Any]:
        """Return the row in a form for JSON."""
        found: dict[str, Any] = {
            "trace": self.trace,
            "backfilling": self.passing,
            "published": self.published,
            "heuristics": {name: float(x.mean()) for name, x in self.heuristics.items()},
            "others": {name: float(x.mean()) for name, x in self.others.items()},
            "best": self.best,
            "best_of_all": self.best_of_all,
            "agents": [float(one.mean()) for one in self.agents],
        }
        if self.agents:
            found["more"] = _plain(self.more)
            found["more_of_all"] = _plain(self.more_of_all)
            found["more_each"] = [_plain(more) for _, more in self.each]
        return found


def _least(found: dict[str, FloatArray]) -> str:
    return min(found, key=lambda name: float(found[name].mean()))


def _plain(more: MeanInterval) -> dict[str, float | None]:
    return {"mean": more.mean, "low": more.low, "high": more.high}


def row(trace: str, passing: bool, agents: Sequence[Path] = ()) -> Row:
    """Return a row of the table.

    Args:
        passing: Whether jobs may be backfilled before the selected job.
    """
    from hpctwin.policies.agents import Network

    def of(network: Network) -> FloatArray:
        observation = str(network.card["options"]["observation"])
        return served(
            trace, passing, lambda _, seen, first: int(network.scores(seen).argmax()), observation
        )

    return Row(
        trace,
        passing,
        {name: heuristic(trace, passing, name) for name in HEURISTICS},
        {name: heuristic(trace, passing, name) for name in OTHERS},
        tuple(of(Network.load(path)) for path in agents),
    )
