"""RLScheduler (Zhang et al., SC20): its table of mean bounded slowdowns, made again, with our agents beside.

What its programs do (github.com/DIR-LAB/deep-batch-scheduler) is kept: ten sequences of 1,024 jobs in a row,
drawn by their seed; the machine is empty at the beginning; a job that is selected is waited for, even if one
comes that would be selected before it; others that pass it end, by their walltimes, before it could begin.
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
    from hpctwin.learn.training.plan import Plan
    from hpctwin.policies.agents.network import Network

__all__ = [
    "HEURISTICS", "OTHERS", "ROWS", "Case", "Row", "agent", "case", "heuristic", "row", "sequences",
    "served",
]  # fmt: skip

FloatArray = npt.NDArray[np.float64]

JOBS, SEQUENCES, DRAWN_FROM = 1024, 10, 10_000
"""Jobs of a sequence; sequences; they lie in the first so many jobs."""

SEED = 1
OBSERVATION = "delays"
"""What agents see."""
MIXED = {"Lublin-1": True, "Lublin-2": True, "HPC2N": False}
"""Whether other jobs of the part come in the places of those in a row, in an episode of training: few jobs of
Lublin's model are left beside those tested, and they hardly depend on those before."""
BACKFILLING: dict[bool, bool | str] = {False: False, True: "rlscheduler"}
"""Of `JobSelection`, by whether others may pass."""

IMITATED = ("sjf", "smallest-area")


def _sjf(submit: FloatArray, walltime: FloatArray, nodes: FloatArray) -> FloatArray:
    return walltime + 1e-9 * submit


def _f1(submit: FloatArray, walltime: FloatArray, nodes: FloatArray) -> FloatArray:
    return np.log10(walltime) * nodes + 870.0 * np.log10(np.maximum(submit, 0.1))


def _wfp(submit: FloatArray, walltime: FloatArray, nodes: FloatArray) -> FloatArray:
    # Their start of a job that waits is -1, so that its wait is below 0 and stays as it is.
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
"""Scores of their programs, the lowest first; submit times (of the trace) and walltimes in s."""

OTHERS: dict[str, Callable[[FloatArray, FloatArray, FloatArray], FloatArray]] = {
    "smallest area": lambda submit, walltime, nodes: walltime * nodes + 1e-9 * submit,
}
"""Not in its table, and what a sceptic asks for: fewest node-seconds first."""

ROWS: dict[tuple[str, bool], tuple[float, ...]] = {
    ("Lublin-1", False): (7273.77, 19753.53, 22274.74, 277.35, 258.37, 254.67),
    ("HPC2N", False): (297.18, 426.99, 609.77, 157.71, 118.01, 117.01),
    ("Lublin-2", False): (7842.47, 9523.18, 11265.31, 787.89, 698.34, 724.51),
    ("Lublin-1", True): (235.82, 133.87, 307.23, 73.31, 75.07, 58.64),
    ("HPC2N", True): (127.38, 97.39, 175.12, 122.04, 71.95, 86.14),
    ("Lublin-2", True): (247.61, 318.35, 379.59, 91.99, 148.25, 118.79),
}
"""Published means, by trace and whether others pass: as `HEURISTICS`, then of its agent."""


@dataclass(frozen=True)
class Case:
    """A trace of the table.

    Args:
        workload: its jobs.
        nodes: of its machine.
        first_s: when its first job was submitted, in its file.
    """

    workload: Workload
    nodes: int
    first_s: float


_FILES = {
    "Lublin-1": ("lublin_256.swf", 256, 1, 5094.0),
    "Lublin-2": ("lublin_256_new2.swf", 256, 1, 139.0),
    "HPC2N": ("HPC2N-2002-2.2-cln-completed-reassembled.swf", 120, 2, 0.0),
}
"""By trace: its file, nodes, processors of each, and when its first job was submitted."""


@cache
def case(trace: str) -> Case:
    """One of the traces.

    Raises:
        WorkloadError: its file is not there.
    """
    name, nodes, processors, first_s = _FILES[trace]
    read = read_workload(need_trace(name))
    return Case(replace(read, nodes=-(-read.nodes // processors)), nodes, first_s)


def sequences() -> list[int]:
    """Where the ten sequences begin, as their programs draw it with seed 1 (Gym's seeding before 0.22)."""
    digest = hashlib.sha512(str(SEED).encode()).digest()[:8]
    drawn = np.random.RandomState(np.frombuffer(digest, "<u4").tolist())
    return [int(drawn.randint(JOBS, DRAWN_FROM - JOBS - 1)) for _ in range(SEQUENCES)]


def trained_on(trace: str) -> tuple[int, int]:
    """Jobs that agents are trained on: from the first up to the second. None of them is tested.

    Those before the first that is tested; of a trace that is much longer than what sequences are drawn
    from, four times as many after it as these are.
    """
    if len(case(trace).workload) > 6 * DRAWN_FROM:
        return DRAWN_FROM, 5 * DRAWN_FROM
    return 0, min(sequences())


def served(
    trace: str, passing: bool, choose: Callable[[Any, Any, int], int], observation: str = "job"
) -> FloatArray:
    """Mean bounded slowdown of each sequence.

    Args:
        trace: its name.
        passing: whether others may pass who is selected.
        choose: a place, given the environment, what is seen of those that wait, and where the sequence
            begins.
        observation: what is seen.
    """
    from hpctwin.learn import Episodes, JobSelection

    own = case(trace)
    episodes = Episodes.of(own.workload, own.nodes, jobs=JOBS)
    environment = JobSelection(
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
    """The same, of one of `HEURISTICS` or `OTHERS`."""
    jobs = case(trace).workload
    submit = jobs.submit_ms / MS_PER_S + case(trace).first_s
    rule = {**HEURISTICS, **OTHERS}[name]
    score = rule(submit, jobs.walltime_ms / MS_PER_S, jobs.nodes.astype(np.float64))

    def choose(environment: Any, seen: Any, first: int) -> int:
        return int(score[first + environment.simulation.state["queue"][: len(seen)]].argmin())

    return served(trace, passing, choose)


def agent(trace: str, passing: bool, plan: Plan) -> Network:
    """An agent, trained on episodes of as many jobs as a sequence has; see `trained_on`.

    Args:
        trace: its name.
        passing: whether others may pass who is selected.
        plan: how it is trained.
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
        trace: its name.
        passing: whether others may pass who is selected.
        heuristics: mean bounded slowdown of each sequence, by heuristic.
        others: the same, of `OTHERS`.
        agents: the same, of our agents.
    """

    trace: str
    passing: bool
    heuristics: dict[str, FloatArray]
    others: dict[str, FloatArray]
    agents: tuple[FloatArray, ...] = ()

    @property
    def published(self) -> dict[str, float]:
        """What was published, by heuristic, and ``RL``."""
        return dict(zip((*HEURISTICS, "RL"), ROWS[self.trace, self.passing], strict=True))

    @property
    def best(self) -> str:
        """The heuristic of its table that is best here."""
        return _least(self.heuristics)

    @property
    def best_of_all(self) -> str:
        """The same, of `OTHERS` too."""
        return _least({**self.heuristics, **self.others})

    @property
    def more(self) -> MeanInterval:
        """By how much the agents' mean is above the best heuristic of its table, paired by sequence."""
        return mean_interval(np.mean(self.agents, axis=0) - self.heuristics[self.best])

    @property
    def more_of_all(self) -> MeanInterval:
        """The same, of the best of all."""
        everybody = {**self.heuristics, **self.others}
        return mean_interval(np.mean(self.agents, axis=0) - everybody[self.best_of_all])

    @property
    def each(self) -> list[tuple[float, MeanInterval]]:
        """Of each agent, by seed: its mean, and by how much that is above the best heuristic, paired."""
        best = self.heuristics[self.best]
        return [(float(one.mean()), mean_interval(one - best)) for one in self.agents]

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
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
    """A row of the table.

    Args:
        trace: its name.
        passing: whether others may pass who is selected.
        agents: files of agents.
    """
    from hpctwin.policies.agents.network import Network

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
