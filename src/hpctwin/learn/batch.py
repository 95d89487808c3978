"""Many simulations with an agent each, stepped in one compiled call over threads."""

from __future__ import annotations

import os
from collections.abc import Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from hpctwin.engine import layout
from hpctwin.engine.agents import record
from hpctwin.engine.agents.record import AGENT, words
from hpctwin.engine.agents.step import step_many, step_one
from hpctwin.engine.compiling import prepare
from hpctwin.engine.rows import described
from hpctwin.errors import ConfigError, PolicyError, SimulationError
from hpctwin.learn.episodes import Drawn, Source
from hpctwin.learn.task import Task
from hpctwin.model import Workload
from hpctwin.simulation import Simulation
from hpctwin.simulation.advance import not_a_number

__all__ = ["Batch"]

KEPT = 1024
"""So many episodes are kept as they begin; to begin one of them again takes microseconds."""

_FIELDS = {name: place for place, name in enumerate(AGENT.names or ())}
SIM, CODE, OVER, ACTION = (_FIELDS[name] for name in ("sim", "code", "over", "action"))
SHARE, EARNED = _FIELDS["share"], _FIELDS["earned"]


class Batch:
    """Simulations, and an agent's record of each.

    What is seen is written into two places in turn, so that it stays as it is until the step after the next.

    Args:
        task: what is decided, seen and earned.
        source: where episodes come from.
        count: how many simulations.
        threads: that step them; None for as many as the machine has cores.
        limit: steps of an episode at most; None for no limit.
        seed: of what is drawn.

    Raises:
        ConfigError: a number is out of range.
    """

    def __init__(
        self,
        task: Task,
        source: Source,
        count: int = 1,
        *,
        threads: int | None = 1,
        limit: int | None = None,
        seed: int | None = None,
    ) -> None:
        threads = (os.cpu_count() or 1) if threads is None else threads
        for name, value in (("count", count), ("threads", threads), ("time limit", limit)):
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}, it must be 1 or more")
        self.task, self.source, self.count = task, source, count
        self.rng = np.random.default_rng(seed)
        self.agents = np.zeros(count, AGENT)
        self.whole, self.real = words(self.agents)
        shape = task.observation_space.shape
        self.seen = np.zeros((2, count, *shape), np.float32)
        self.masks = np.ones((2, count, task.width), np.bool_)
        self.choices = np.zeros((count, task.nodes if task.chosen == "nodes" else 0), np.int8)
        self.side = 0
        self.simulations: list[Simulation] = []
        self._kept: dict[Hashable, tuple[Simulation, float]] = {}
        self.scales = np.ones(count)
        self._descriptors: list[Any] = []
        self._threads = min(threads, count)
        self._pool: ThreadPoolExecutor | None = None
        prepare([step_one, step_many, *task.hooks])
        self._step_one, self._step_many = step_one.compiled(), step_many.compiled()
        self._base, self._size = self.agents.ctypes.data, AGENT.itemsize
        self._parts = [count * part // self._threads for part in range(self._threads + 1)]
        self._fill_in(limit or 0)

    def _fill_in(self, limit: int) -> None:
        """What stays the same in all records."""
        task, agents = self.task, self.agents
        for name, kernel in zip(("act", "go", "observe", "reward"), task.hooks, strict=True):
            agents[name] = kernel.address
        agents["limit"], agents["width"] = limit, task.width
        for name, value in task.numbers.items():
            agents[name] = value
        for name, array in (("watts", task.watts), ("facts", task.facts)):
            if array is not None:
                agents[name] = self._described(array[None])[0]
        if task.chosen == "nodes":
            agents["choices"] = self._described(self.choices)
        self._seen_at = [self._described(side) for side in self.seen]
        self._masks_at = [self._described(side) for side in self.masks]
        self._turn()
        self._fresh = agents.copy()

    def _described(self, rows: Any) -> Any:
        """Addresses of the descriptors of rows."""
        found = described(rows)
        self._descriptors.append(found)
        return found.ctypes.data + np.arange(len(found)) * found.strides[0]

    def _turn(self) -> None:
        """What is seen next is written into the other place."""
        self.side ^= 1
        self.agents["seen"] = self._seen_at[self.side]
        self.agents["mask"] = self._masks_at[self.side]

    # --- episodes --------------------------------------------------------------------------------

    def begin(self, number: int, jobs: Workload | None = None) -> None:
        """Begin an episode.

        Args:
            number: of the simulation.
            jobs: of the episode; one is drawn if left out.
        """
        drawn = self.source.draw(self.rng) if jobs is None else Drawn(None, lambda: jobs)
        template, scale = (
            self._kept.get(drawn.key, (None, 1.0)) if drawn.key is not None else (None, 1.0)
        )
        if template is None:
            made = drawn.make()
            template = self.task.make(made)
            scale = 1.0 if self.task.scale is None else self.task.scale(made)
            template.decided()
            template.make_room()
            if drawn.key is not None:
                if len(self._kept) >= KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[drawn.key] = template, scale
        self.scales[number] = scale
        if number == len(self.simulations):
            self.simulations.append(template.fork())
        own = self.simulations[number]
        own.become(template)
        agent = self._fresh[number : number + 1].copy()
        agent["seen"], agent["mask"] = self.agents["seen"][number], self.agents["mask"][number]
        agent["sim"] = own.state.address
        agent["chosen"] = agent["until"] = agent["quiet"] = agent["steps"] = -1
        agent["instants"] = -1
        agent["shown"] = agent["shown_before"] = agent["window"]
        agent["stage"] = record.ON_THE_WAY
        self.agents[number] = agent[0]
        code = self._step_one(self._address(number))
        if code != layout.STEPPED:
            self.resolve(number, code)
        # An episode in which there is nothing to decide has one step all the same.
        self.whole[number, OVER] = record.GOES_ON

    def begin_all(self, seed: int | None = None) -> None:
        """Begin an episode in each simulation.

        Args:
            seed: of all that is drawn from now on; drawing goes on if left out.
        """
        if seed is not None:
            self.rng = np.random.default_rng(seed)
            self.source.restart()
        for number in range(self.count):
            self.begin(number)

    def _address(self, number: int) -> int:
        return int(self._base + number * self._size)

    # --- steps -----------------------------------------------------------------------------------

    def step(self) -> None:
        """Step all simulations: what was chosen is in the records.

        Raises:
            SimulationError: something was chosen that is not there.
            PolicyError: the ordering gave what is not a number.
        """
        self._turn()
        waiting: list[Future[int]] = []
        parts = list(zip(self._parts[:-1], self._parts[1:], strict=True))
        if len(parts) > 1:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(len(parts) - 1, "hpctwin-agents")
            waiting = [
                self._pool.submit(self._step_many, self._address(first), self._size, last - first)
                for first, last in parts[1:]
            ]
        self._step_many(self._base, self._size, parts[0][1])
        for future in waiting:
            future.result()
        codes = self.whole[:, CODE]
        if (codes != layout.STEPPED).any():
            for number in np.flatnonzero(codes != layout.STEPPED).tolist():
                self.resolve(number, int(codes[number]))

    def step_alone(self) -> None:
        """Step the first simulation; what is seen is written over what was."""
        code = self._step_one(self._base)
        if code != layout.STEPPED:
            self.resolve(0, code)

    def resolve(self, number: int, code: int) -> None:
        """Do what a step needs of Python, and go on with it.

        Raises:
            SimulationError, PolicyError: it cannot go on.
        """
        simulation = self.simulations[number]
        while code != layout.STEPPED:
            if code == record.NOT_ALLOWED:
                choice = int(self.whole[number, ACTION])
                raise SimulationError(self.task.why_not(simulation, choice))
            if not simulation.provide(code):
                what = not_a_number(simulation.policy, simulation.state)
                raise PolicyError(f"{what} gave something that is not a number")
            self.whole[number, SIM] = simulation.state.address
            code = self._step_one(self._address(number))

    def told(self, number: int) -> dict[str, Any]:
        """What is told of an episode that is over: how its jobs were served, and what that took."""
        agent = self.agents[number]
        found = {
            "mean_bounded_slowdown": float(agent["slowdown"]),
            "mean_wait_s": float(agent["wait"]),
        }
        return found if self.task.watts is None else {**found, "energy_j": float(agent["energy"])}

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
