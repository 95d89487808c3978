"""Many simulations with an agent each, stepped in one compiled call."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.agents import agent_record
from hpctwin.engine.agents.agent_record import AGENT, CHOSEN, OUTCOME, words
from hpctwin.engine.agents.parallel_steps import (
    begin_round,
    join_round,
    leave,
    play,
    serve,
    table,
    wait,
)
from hpctwin.engine.agents.step import step_one
from hpctwin.engine.compile.intrinsics import described
from hpctwin.engine.compile.jit import prepare
from hpctwin.engine.state import layout
from hpctwin.errors import ConfigError, PolicyError, SimulationError
from hpctwin.learn.environments.episodes import Drawn, Source, Windows, windows_of
from hpctwin.learn.environments.task import Task
from hpctwin.learn.environments.vector_base import NOT_BEGUN
from hpctwin.model import Workload
from hpctwin.simulation import Simulation
from hpctwin.simulation.running.advance import not_a_number

__all__ = ["KERNELS", "Batch", "Threads"]

MOMENT_S = 5e-5
KERNELS = (begin_round, join_round, serve, wait, leave)


class Threads:
    """The calling thread and helper threads, which sleep while there is nothing to do.

    Args:
        agents: Records of `hpctwin.engine.agents.agent_record.Agent`.
        choices: Record `Chosen` of each agent.
        outcomes: Record `Outcome` of each agent.
        threads: Number of threads, including the calling one.
    """

    def __init__(self, agents: Any, choices: Any, outcomes: Any, threads: int) -> None:
        self._what = agents, choices, outcomes, threads
        self._others: list[_Other] = []
        self._begin, self._join = begin_round.call, join_round.call
        self._start()
        weakref.finalize(self, _end_all, self._others)

    def _start(self) -> None:
        self._process = os.getpid()
        self._table, self._called, self._noted = table(*self._what)
        self._address = self._table.ctypes.data
        self._others[:] = [_Other(number, self._table) for number in range(1, self._what[-1])]

    def step(self) -> bool:
        """Step all agents; return whether any needs attention, see `parallel_steps.table`.

        The reason is in the agent's record.

        Raises:
            IndexError: With bounds checking, the engine accessed an array out of bounds.
        """
        if self._others and self._process != os.getpid():
            self._start()  # a forked process does not have the helper threads
        if self._begin(self._address):
            for other in self._others:
                if self._called[other.number]:
                    other.call.release()
        fault = None
        try:
            done = self._join(self._address)
        except Exception as error:  # others may still be working
            leave(self._address)
            done, fault = False, error
        while not done:
            # A working thread may be waiting for this processor.
            time.sleep(MOMENT_S)
            done = wait(self._address)
        for other in self._others:
            fault, other.fault = fault or other.fault, None
        if fault is not None:
            raise fault
        return bool(self._noted[0])

    def close(self) -> None:
        """End the helper threads; later steps use the calling thread alone."""
        _end_all(self._others)


class _Other:
    """Helper thread.

    Args:
        number: Number of the thread, from 1.
        words: The shared table, kept alive while the thread runs.
    """

    def __init__(self, number: int, words: Any) -> None:
        self.number, self.words = number, words
        self.fault: Exception | None = None
        self.over = False
        self.call = threading.Lock()
        self.call.acquire()
        threading.Thread(target=self._run, name=f"hpctwin-agents-{number}", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.call.acquire()
            while not self.over and not self._served():
                pass
            if self.over:
                return

    def _served(self) -> bool:
        """Serve until there is nothing to do; return whether that was without an error."""
        try:
            serve(self.number, self.words.ctypes.data)
        except Exception as error:  # raised by the thread that began the round
            self.fault = error
            leave(self.words.ctypes.data)
            return False
        return True


def _end_all(others: list[_Other]) -> None:
    """Make threads end when they have nothing to do."""
    for other in others:
        other.over = True
        with suppress(RuntimeError):  # it was called just now
            other.call.release()
    others.clear()


def _covered(state: Any, over: int) -> bool:
    """Return whether an episode's energy is that of all its time.

    A result covers the time from the first submission to the last end of a job that ran. Later,
    only other jobs are canceled.
    """
    jobs = state["state"]
    last = jobs["end"][jobs["start"] >= 0].max(initial=0)
    first = state["job"]["submit"][state["by_submit"][0]]
    return bool(first == 0 and (over != agent_record.ENDED or last == state.clock.now))


KEPT = 1024
"""Number of cached episode beginnings; starting from one takes microseconds."""
FEW = 8
"""Number of episodes after which beginning by trace rows is considered.

See `windows_of`.
"""

_FIELDS = {name: place for place, name in enumerate(AGENT.names or ())}
SIM, OVER, ACTION = (_FIELDS[name] for name in ("sim", "over", "action"))
SHARE, EARNED, TOTAL = (_FIELDS[name] for name in ("share", "earned", "total"))
STEPS, UNAVAILABLE = _FIELDS["steps"], _FIELDS["invalid"]
PLACES = slice(_FIELDS["seen"], _FIELDS["mask_next"] + 1)


class Batch:
    """Simulations with an agent's record for each.

    Observations are written to two buffers in turn, so each is valid until the step after the next.
    With many simulations, actions and results are in ``choices`` and ``outcomes``. With one, they
    are in its record.

    Args:
        task: Decisions, observations and rewards.
        source: Source of episodes.
        count: Number of simulations.
        threads: Number of threads; None for the number of cores.
        limit: Largest number of steps of an episode; None for no limit.
        seed: Seed of random numbers.
        strict: Whether a choice that is not available is an error.

    Raises:
        ConfigError: A number is out of range.
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
        strict: bool = False,
    ) -> None:
        threads = (os.cpu_count() or 1) if threads is None else threads
        for name, value in (("count", count), ("threads", threads), ("time limit", limit)):
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; it must be 1 or more")
        self.task, self.source, self.count = task, source, count
        self.rng = np.random.default_rng(seed)
        self.agents = np.zeros(count, AGENT)
        self.whole, self.real = words(self.agents)
        shape = task.observation_space.shape
        self.seen = np.zeros((2, count, *shape), np.float32)
        self.masks = np.ones((2, count, task.width), np.bool_)
        self.nodes = np.zeros((count, task.nodes if task.chosen == "nodes" else 0), np.int8)
        self.choices, self.outcomes = np.zeros(count, CHOSEN), np.zeros(count, OUTCOME)
        self._codes = self.outcomes["code"]
        self.side = 0
        self._simulations: list[Simulation] = []
        self._kept: dict[Hashable, tuple[Simulation, float]] = {}
        self._scales: dict[Hashable, float] = {}
        self._drawn = 0
        self._windows: Windows | None = None
        self._jobs_of: dict[int, Callable[[], Workload]] = {}
        self.scales = np.ones(count)
        self._descriptors: list[Any] = []
        prepare(
            [
                step_one,
                *(KERNELS if count > 1 else ()),
                *task.hooks,
                *([task.allow] if task.allow else []),
            ]
        )
        self._step_one = step_one.call
        self._base, self._size = self.agents.ctypes.data, AGENT.itemsize
        self._workers = min(threads, count)
        self._threads: Threads | None = None
        self._fill_in(limit or 0, strict)

    def _fill_in(self, limit: int, strict: bool) -> None:
        """Fill in the fields that stay the same in all records."""
        task, agents = self.task, self.agents
        for name, kernel in zip(("act", "go", "observe", "reward"), task.hooks, strict=True):
            agents[name] = kernel.address
        if task.allow is not None:
            agents["allow"] = task.allow.address
        agents["limit"], agents["width"], agents["strict"] = limit, task.width, strict
        for name, value in task.numbers.items():
            agents[name] = value
        for name, array in (("watts", task.watts), ("facts", task.facts)):
            if array is not None:
                agents[name] = self._described(array[None])[0]
        if task.chosen == "nodes":
            agents["choices"] = self._described(self.nodes)
        agents["seen"], agents["seen_next"] = map(self._described, self.seen)
        agents["mask"], agents["mask_next"] = map(self._described, self.masks)
        fresh = agents.copy()
        for name in ("chosen", "until", "quiet", "changes", "steps", "instants"):
            fresh[name] = -1
        fresh["shown"] = fresh["shown_before"] = fresh["window"]
        fresh["stage"] = agent_record.ON_THE_WAY
        self._fresh = words(fresh)[0]

    def _described(self, rows: Any) -> Any:
        """Return the addresses of the descriptors of rows."""
        found = described(rows)
        self._descriptors.append(found)
        return found.ctypes.data + np.arange(len(found)) * found.strides[0]

    # --- episodes --------------------------------------------------------------------------------

    def begin(self, number: int, jobs: Workload | None = None) -> None:
        """Begin an episode.

        Args:
            number: Number of the simulation.
            jobs: Jobs of the episode; by default an episode is drawn.
        """
        drawn = self.source.draw(self.rng) if jobs is None else Drawn(None, lambda: jobs)
        self.begin_drawn(number, drawn)

    def begin_drawn(self, number: int, drawn: Drawn) -> None:
        """Begin an episode that was drawn."""
        self._place(number, drawn)
        agent = self.whole[number]
        places = agent[PLACES].copy()
        agent[:] = self._fresh[number]
        agent[PLACES] = places
        agent[SIM] = self._simulations[number].state.address
        code = self._step_one(self._address(number))
        if code != layout.STEPPED:
            self.resolve(number, code)
        # An episode without decisions still has one step.
        self.whole[number, OVER] = agent_record.GOES_ON

    def _place(self, number: int, drawn: Drawn) -> None:
        """Put a simulation at the beginning of an episode."""
        self._jobs_of.pop(number, None)
        if drawn.key is not None:
            self._drawn += 1
            if self._drawn == FEW:
                self._windows = windows_of(self.task, self.source)
                if self._windows is not None:
                    self._kept.clear()
        if self._windows is not None and drawn.key is not None:
            first: Any = drawn.key
            if number == len(self._simulations):
                self._simulations.append(self._windows.start.fork())
            self._windows.begin(self._simulations[number], first)
            self._jobs_of[number] = drawn.make
            self.scales[number] = self._scale_of(drawn)
            return
        template, self.scales[number] = self._template(drawn)
        if number == len(self._simulations):
            self._simulations.append(template.fork())
        self._simulations[number].copy_from(template)

    def _template(self, drawn: Drawn) -> tuple[Simulation, float]:
        """Return a simulation at the beginning of an episode, and its reward factor."""
        kept = None if drawn.key is None else self._kept.get(drawn.key)
        if kept is not None:
            return kept
        jobs = drawn.make()
        template = self.task.make(jobs)
        template.compiled_policy()
        template.make_room()
        found = template, 1.0 if self.task.scale is None else self.task.scale(jobs)
        if drawn.key is not None:
            if len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[drawn.key] = found
        return found

    def _scale_of(self, drawn: Drawn) -> float:
        """Return the factor of rewards in an episode of the trace."""
        if self.task.scale is None:
            return 1.0
        found = self._scales.get(drawn.key)
        if found is None:
            found = self._scales[drawn.key] = self.task.scale(drawn.make())
        return found

    def simulation(self, number: int) -> Simulation:
        """Return a simulation, for inspection."""
        found = self._simulations[number]
        jobs = self._jobs_of.pop(number, None)
        if jobs is not None:
            like = self.task.make(jobs())
            like.compiled_policy()
            found.adopt(like)
        return found

    def begin_all(self, seed: int | None = None) -> None:
        """Begin an episode in each simulation.

        Args:
            seed: Seed of all further random numbers; if omitted, the present generator continues.
        """
        if seed is not None:
            self.rng = np.random.default_rng(seed)
            self.source.restart()
        for number in range(self.count):
            self.begin(number)

    def _address(self, number: int) -> int:
        return int(self._base + number * self._size)

    # --- steps -----------------------------------------------------------------------------------

    def step(self) -> bool:
        """Step all simulations: read ``choices``, write ``outcomes``.

        Returns:
            Whether any episode may have ended, or any choice was not available.

        Raises:
            SimulationError: A choice is not allowed, or no episode has begun.
            PolicyError: The ordering returned NaN.
        """
        if len(self._simulations) < self.count:
            raise SimulationError(NOT_BEGUN)
        if self._threads is None:
            self._threads = Threads(self.agents, self.choices, self.outcomes, self._workers)
        self.side ^= 1
        if not self._threads.step():
            return False
        for number in np.flatnonzero(self._codes != layout.STEPPED).tolist():
            self.resolve(number, int(self._codes[number]))
            agent = self.agents[number]
            self.outcomes[number] = agent["code"], agent["over"], agent["earned"]
        return True

    def step_alone(self) -> None:
        """Step the first simulation by its record; the last observation is overwritten."""
        if not self._simulations:
            raise SimulationError(NOT_BEGUN)
        code = self._step_one(self._base)
        if code != layout.STEPPED:
            self.resolve(0, code)

    def play(self, weights: npt.NDArray[np.float64]) -> float:
        """Play the first simulation to the end of its episode; return the total reward.

        Args:
            weights: Weights of the numbers in a row of the observation, and scores of choices after
                the rows. The choice with the highest sum is taken.

        Raises:
            PolicyError: The ordering returned NaN.
        """
        row = described(weights[None])
        told = self._base, row.ctypes.data, self.task.observation_space.shape[-1]
        kernel, agent = play.call, self.real[0]
        code = kernel(*told)
        while code != layout.STEPPED:
            self.resolve(0, code)
            agent[TOTAL] += agent[EARNED]
            code = kernel(*told)
        return float(agent[TOTAL] * self.scales[0])

    def resolve(self, number: int, code: int) -> None:
        """Provide what a step needs from Python, and complete the step.

        Raises:
            SimulationError, PolicyError: The step cannot be completed.
        """
        simulation = self._simulations[number]
        while code != layout.STEPPED:
            if code == agent_record.NOT_ALLOWED:
                choice = int(self.whole[number, ACTION])
                raise SimulationError(self.task.why_not(simulation, choice))
            if not simulation.provide(code):
                what = not_a_number(simulation.policy, simulation.state)
                raise PolicyError(f"{what} returned a value that is not a number")
            self.whole[number, SIM] = simulation.state.address
            code = self._step_one(self._address(number))

    def check_range(self, numbers: list[int]) -> None:
        """Check that choices which were not available are in the action space.

        Raises:
            SimulationError: A choice is not.
        """
        for number in numbers:
            choice = int(self.whole[number, ACTION])
            if not 0 <= choice < self.task.width:
                raise SimulationError(self.task.why_not(self._simulations[number], choice))

    def told(self, number: int) -> dict[str, Any]:
        """Return the results of an ended episode: metrics of its jobs, and its energy.

        Metrics are None if no job ran.
        """
        agent = self.agents[number]
        ran = agent["slowdown"] > 0  # the slowdown of each job is at least 1
        found: dict[str, float | None] = {
            "mean_bounded_slowdown": float(agent["slowdown"]) if ran else None,
            "mean_wait_s": float(agent["wait"]) if ran else None,
        }
        return found if self.task.watts is None else {**found, "energy_j": self._energy_j(number)}

    def _energy_j(self, number: int) -> float:
        state = self._simulations[number].state
        if len(state["share"]) > 0 or not _covered(state, int(self.agents[number]["over"])):
            # The power of shared nodes depends on their use, and the engine keeps no sums of it.
            energy = self.simulation(number).result().energy
            assert energy is not None
            return float(energy.total_j)
        return float(self.agents[number]["energy"])

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None
