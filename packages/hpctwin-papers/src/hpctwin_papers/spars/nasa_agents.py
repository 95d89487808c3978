"""Agents that switch nodes on the NASA iPSC/860 log, with SPARS's timeouts.

Agents learn on the first two fifths of the log, with several weights of energy and waits. The agent
that is best on windows of the next two fifths is taken. It is tested on the last fifth, which
SPARS's published runs use. All windows have the same number of jobs, and each begins with all nodes
switched on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpctwin.formats import read_workload
from hpctwin.metrics import MeanInterval, mean_interval
from hpctwin.model import Workload, check_folder
from hpctwin.policies import Policy, parse_policy
from hpctwin.report.columns import Cell, Table
from hpctwin.simulation import simulate
from hpctwin.simulation.running.window import from_its_first_job
from hpctwin_papers.experiment import Experiment, Progress
from hpctwin_papers.results import Results
from hpctwin_papers.spars import schedulers
from hpctwin_papers.traces import need_trace

if TYPE_CHECKING:
    from hpctwin.learn.training.trial import Plan
    from hpctwin.policies.agents import Network

FloatArray = npt.NDArray[np.float64]

WINDOWS = 10
JOBS = 361
"""Number of jobs in a window: a tenth of the last fifth."""
PLAIN = tuple(f"psus:{5 * n}m" for n in range(1, 13))
"""The twelve timeouts of SPARS's runs."""
TIMEOUTS = (*PLAIN, *(name.replace("psus", "psas-ipm") for name in PLAIN))
"""These timeouts alone, and with nodes woken in time for the plan."""
OPTIONS: dict[str, Any] = {
    "action": "reserve", "levels": 33, "every_s": 300.0, "observation": "levels", "reward": "jobs",
}  # fmt: skip
"""Options: every 5 min, set the number of nodes above those used and requested."""
WEIGHTS = (0.3, 0.35, 0.4, 0.5)
"""Weights of a wasted kWh; a waited hour has the rest. The best agent is taken."""

NOTE = (
    "means of ten windows of 361 jobs. less energy, less wait: of the agents (mean of seeds) than of the "
    "timeout, % of its mean, with the 95 % interval, paired by window; in the row of a seed, of its agent "
    "than of the psus with the least energy, and than of the psus with the least wait. psus: nodes are "
    "woken for who waits; psas-ipm: in time for the plan, which knows how long jobs run, as the log has no "
    "walltimes"
)


@cache
def before() -> Workload:
    """Return the jobs before the last fifth."""
    log = read_workload(need_trace(schedulers.TRACE))
    log = log.take(np.flatnonzero(log.runtime_ms > 0))
    return log.take(np.arange(len(log) - len(schedulers.workload())))


def training() -> Workload:
    """Return the training jobs: the first half of those before the last fifth."""
    return before().take(np.arange(len(before()) // 2))


@cache
def validation() -> tuple[Workload, ...]:
    """Return windows of the other half, on which the best agent is selected."""
    jobs = before()
    return cut(jobs.take(np.arange(len(jobs) // 2, len(jobs))))


@cache
def windows() -> tuple[Workload, ...]:
    """Return the windows of the test."""
    return cut(schedulers.workload())[:WINDOWS]


def cut(jobs: Workload) -> tuple[Workload, ...]:
    """Return windows of consecutive jobs; the remaining jobs at the end are dropped."""
    return tuple(
        from_its_first_job(jobs.take(np.arange(first, first + JOBS)))
        for first in range(0, len(jobs) - JOBS + 1, JOBS)
    )


@dataclass(frozen=True)
class Served:
    """Results of a power policy on each window.

    Args:
        name: Name of the policy.
        energy_j, wait_s: Energy (J) and mean wait (s) [windows].
    """

    name: str
    energy_j: FloatArray
    wait_s: FloatArray


def served(power: str) -> Served:
    """Return the results of a power policy on each window, under FCFS with EASY."""
    return served_under(parse_policy(f"fcfs+easy~{power}"), power, windows())


def served_under(policy: Policy, name: str, jobs: Sequence[Workload]) -> Served:
    """Return the results of a policy on windows."""
    energy, wait = [], []
    for window in jobs:
        found = simulate(window, schedulers.MACHINE, policy)
        assert found.energy is not None
        energy.append(found.energy.total_j)
        wait.append(float(found.jobs["wait_s"].to_numpy().mean()))
    return Served(name, np.array(energy), np.array(wait))


@cache
def least_before() -> tuple[float, float]:
    """Return the least energy and mean wait of a timeout on validation windows."""
    found = [served_under(parse_policy(f"fcfs+easy~{name}"), name, validation()) for name in PLAIN]
    return min(one.energy_j.mean() for one in found), min(one.wait_s.mean() for one in found)


def lead(network: Network) -> tuple[float, float]:
    """Return an agent's leads over the best timeouts in validation, in percent."""
    from hpctwin.policies.agents import AgentControl

    policy = parse_policy("fcfs+easy~orders")
    control = AgentControl("learnt", network)
    own = served_under(
        replace(policy, power=replace(policy.power, control=control)), "learnt", validation()
    )
    energy, wait = least_before()
    return 100 * (1 - own.energy_j.mean() / energy), 100 * (1 - own.wait_s.mean() / wait)


def agent(plan: Plan) -> Network:
    """Return the agent, of those for each of `WEIGHTS`, with the largest smaller lead.

    The lead is over the best timeouts, in energy and in wait; the smaller of both counts.
    """
    from hpctwin.learn import Episodes
    from hpctwin.learn.training.training import train

    jobs = training()
    source = Episodes.of(jobs, schedulers.MACHINE, jobs=JOBS)
    about = {"data": {"trace": jobs.name, "first": 0, "last": len(jobs)}}
    learnt = []
    for weight in WEIGHTS:
        options = {**OPTIONS, "alpha": weight, "beta": 1 - weight}
        network = train("PowerManagement", source, plan, options=options, about=about)
        learnt.append((lead(network), network))
    (energy, wait), best = max(learnt, key=lambda one: min(one[0]))
    best.card["validation"] = {
        "windows": len(validation()), "less_energy_pct": energy, "less_wait_pct": wait,
        "leads": {str(weight): list(led) for weight, (led, _) in zip(WEIGHTS, learnt, strict=True)},
    }  # fmt: skip
    return best


@dataclass(frozen=True)
class NasaAgents(Experiment[str, Served]):
    """Timeouts, and agents of several seeds, on each window.

    Args:
        seeds: Number of agents; 0 for timeouts only.
        steps: Number of training decisions of an agent, for each of the weights.
        out: Folder for agents; existing ones are not trained again.
    """

    seeds: int = 5
    steps: int = 6_000_000
    out: Path = Path("out/nasa-agents")
    title = "timeouts and agents"
    serial = True
    data = (schedulers.TRACE,)

    def points(self) -> Sequence[str]:
        """See `Experiment`; power policies."""
        if self.seeds:
            check_folder(self.out)
        return [*TIMEOUTS, *(str(self._file(seed)) for seed in range(self.seeds))]

    def _file(self, seed: int) -> Path:
        return self.out / f"nasa-{self.steps}-{seed}.safetensors"

    def run(self, point: str, progress: Progress) -> Served:
        """See `Experiment`; missing agents are trained."""
        from hpctwin.learn.training.trial import Plan

        if point not in TIMEOUTS and not Path(point).is_file():
            seed = int(Path(point).stem.rpartition("-")[2])
            made = agent(Plan(self.steps, seed, layers=(), trials=0, learner="cma"))
            self.out.mkdir(parents=True, exist_ok=True)
            made.save(point)
        return served(point)

    def results(self, found: Sequence[Served]) -> Results:
        """See `Experiment`."""
        timeouts, agents = found[: len(TIMEOUTS)], found[len(TIMEOUTS) :]
        mean = None
        if agents:
            mean = Served(
                "agents",
                np.mean([one.energy_j for one in agents], axis=0),
                np.mean([one.wait_s for one in agents], axis=0),
            )
        lines = [_line(one, mean) for one in timeouts]
        if mean is not None:
            lines.append(_line(mean, None))
            plain = [one for one in timeouts if one.name in PLAIN]
            lines += [[f"seed {seed}", *_line_of(one, plain)] for seed, one in enumerate(agents)]
        heads = [
            "power policy", "GJ", "wait, s", "less energy", "from", "to", "less wait", "from", "to",
        ]  # fmt: skip
        rows = [_plain(one, mean) for one in (*timeouts, *agents)]
        return Results([], {}, [Table(heads, lines)], [NOTE], rows=rows)


def less(agents: FloatArray, timeout: FloatArray) -> MeanInterval:
    """Return the agents' savings over a timeout, in % of its mean, paired by window."""
    return mean_interval((timeout - agents) / timeout.mean() * 100)


def _line(one: Served, agents: Served | None) -> list[Cell]:
    cells = _means(one)
    if agents is None:
        return [one.name, *cells, *[""] * 6]
    more = [*less(agents.energy_j, one.energy_j), *less(agents.wait_s, one.wait_s)]
    return [one.name, *cells, *_shown(more)]


def _line_of(agent: Served, timeouts: Sequence[Served]) -> list[Cell]:
    """Return an agent's cells, with its savings over the best timeouts."""
    energy = min(timeouts, key=lambda one: float(one.energy_j.mean())).energy_j
    wait = min(timeouts, key=lambda one: float(one.wait_s.mean())).wait_s
    return [*_means(agent), *_shown([*less(agent.energy_j, energy), *less(agent.wait_s, wait)])]


def _means(one: Served) -> list[Cell]:
    return [f"{one.energy_j.mean() / 1e9:,.3f}", f"{one.wait_s.mean():,.0f}"]


def _shown(values: Sequence[float | None]) -> list[Cell]:
    return ["" if value is None else f"{value:,.1f}" for value in values]


def _plain(one: Served, agents: Served | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "policy": Path(one.name).stem if one.name not in TIMEOUTS else one.name,
        "energy_j": one.energy_j.tolist(),
        "wait_s": one.wait_s.tolist(),
    }
    if agents is not None and one.name in TIMEOUTS:
        found["less_energy"] = less(agents.energy_j, one.energy_j)._asdict()
        found["less_wait"] = less(agents.wait_s, one.wait_s)._asdict()
    return found
