"""Agents that switch nodes, on the NASA iPSC/860 log and the machine of SPARS, beside its timeouts.

Agents learn on the first four fifths of the log; the last fifth, which SPARS's published runs are of, is cut
into windows of as many jobs each, on each of which all begin with a machine that is on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpctwin.experiments import spars
from hpctwin.experiments.experiment import Experiment, Tell
from hpctwin.experiments.made import Cell, Made, Table
from hpctwin.experiments.traces import need_trace
from hpctwin.formats import read_workload
from hpctwin.metrics import MeanInterval, mean_interval
from hpctwin.model import Workload, check_folder
from hpctwin.simulation import simulate
from hpctwin.sweep.incentives import from_its_first_job

if TYPE_CHECKING:
    from hpctwin.learn.plan import Plan
    from hpctwin.policies.network import Network

__all__ = ["TIMEOUTS", "NasaAgents", "Served", "agent", "served", "training", "windows"]

FloatArray = npt.NDArray[np.float64]

WINDOWS = 10
JOBS = 361
"""Of a window: a tenth of the last fifth."""
TIMEOUTS = tuple(f"{kind}:{5 * n}m" for kind in ("psus", "psas-ipm") for n in range(1, 13))
"""The twelve timeouts of SPARS's runs; alone, and with nodes woken in time for the plan."""
OPTIONS: dict[str, Any] = {
    "action": "reserve", "levels": 33, "every_s": 300.0, "reward": "jobs", "alpha": 0.7, "beta": 0.3,
}  # fmt: skip
"""Of the environment: each 5 min, how many nodes more than are used and asked for; what a kWh and an hour
weigh."""

NOTE = (
    "means of ten windows of 361 jobs. less energy, less wait: of the agents (mean of seeds) than of the "
    "timeout, % of its mean, with the 95 % interval, paired by window. psus: nodes are woken for who waits; "
    "psas-ipm: in time for the plan, which knows how long jobs run, as the log has no walltimes"
)


@cache
def training() -> Workload:
    """The jobs before the last fifth."""
    log = read_workload(need_trace(spars.TRACE))
    log = log.take(np.flatnonzero(log.runtime_ms > 0))
    return log.take(np.arange(len(log) - len(spars.workload())))


@cache
def windows() -> tuple[Workload, ...]:
    """Those that are tested."""
    held_out = spars.workload()
    return tuple(
        from_its_first_job(held_out.take(np.arange(number * JOBS, (number + 1) * JOBS)))
        for number in range(WINDOWS)
    )


@dataclass(frozen=True)
class Served:
    """What a power policy makes of each window.

    Args:
        name: of it.
        energy_j, wait_s: energy and mean wait [windows].
    """

    name: str
    energy_j: FloatArray
    wait_s: FloatArray


def served(power: str) -> Served:
    """What a power policy makes of each window, under FCFS with EASY.

    Args:
        power: its name, or an agent's file.
    """
    energy, wait = [], []
    for jobs in windows():
        found = simulate(jobs, spars.MACHINE, f"fcfs+easy~{power}")
        assert found.energy is not None
        energy.append(found.energy.total_j)
        wait.append(float(found.jobs["wait_s"].to_numpy().mean()))
    return Served(power, np.array(energy), np.array(wait))


def agent(plan: Plan) -> Network:
    """An agent, trained on the jobs before.

    Args:
        plan: how it is trained.
    """
    from hpctwin.learn import Episodes
    from hpctwin.learn.training import train

    jobs = training()
    source = Episodes.of(jobs, spars.MACHINE, jobs=JOBS)
    about = {"data": {"trace": jobs.name, "first": 0, "last": len(jobs)}}
    return train("PowerManagement", source, plan, options=OPTIONS, about=about)


@dataclass(frozen=True)
class NasaAgents(Experiment[str, Served]):
    """Timeouts, and agents of some seeds, on each window.

    Args:
        seeds: agents; 0 for timeouts alone.
        steps: decisions that each is trained on.
        out: folder for agents; those that it holds already are not trained again.
    """

    seeds: int = 5
    steps: int = 600_000
    out: Path = Path("out/nasa-agents")
    title = "timeouts and agents"
    serial = True
    data = (spars.TRACE,)

    def points(self) -> Sequence[str]:
        """See `Experiment`; power policies."""
        if self.seeds:
            check_folder(self.out)
        return [*TIMEOUTS, *(str(self._file(seed)) for seed in range(self.seeds))]

    def _file(self, seed: int) -> Path:
        return self.out / f"nasa-{self.steps}-{seed}.safetensors"

    def run(self, point: str, tell: Tell) -> Served:
        """See `Experiment`; agents that are not there yet are trained."""
        from hpctwin.learn.plan import Plan

        if point not in TIMEOUTS and not Path(point).is_file():
            seed = int(Path(point).stem.rpartition("-")[2])
            made = agent(
                Plan(self.steps, seed, environments=64, layers=(), threads=1, learner="evolution")
            )
            self.out.mkdir(parents=True, exist_ok=True)
            made.save(point)
        return served(point)

    def made(self, found: Sequence[Served]) -> Made:
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
            lines += [[f"seed {seed}", *_line(one, None)[1:]] for seed, one in enumerate(agents)]
        heads = [
            "power policy", "GJ", "wait, s", "less energy", "from", "to", "less wait", "from", "to",
        ]  # fmt: skip
        rows = [_plain(one, mean) for one in (*timeouts, *agents)]
        return Made([], {}, [Table(heads, lines)], [NOTE], rows=rows)


def less(agents: FloatArray, timeout: FloatArray) -> MeanInterval:
    """By how much less agents have than a timeout, in % of its mean, paired by window."""
    return mean_interval((timeout - agents) / timeout.mean() * 100)


def _line(one: Served, agents: Served | None) -> list[Cell]:
    cells: list[Cell] = [
        one.name, f"{one.energy_j.mean() / 1e9:,.3f}", f"{one.wait_s.mean():,.0f}",
    ]  # fmt: skip
    if agents is None:
        return [*cells, *[""] * 6]
    for own, beside in ((agents.energy_j, one.energy_j), (agents.wait_s, one.wait_s)):
        cells += ["" if value is None else f"{value:,.1f}" for value in less(own, beside)]
    return cells


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
