"""Simulation of a facility from decision to decision."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Literal

import numpy as np

from hpctwin.errors import ConfigError, SimulationError
from hpctwin.facility.config import Facility
from hpctwin.facility.result import FacilityResult, make_facility_result
from hpctwin.facility.state import FacilityState
from hpctwin.facility.strategies import parse_strategy
from hpctwin.facility.strategy import Strategy
from hpctwin.model import Workload, to_ms
from hpctwin.simulation.running.advance import run_all
from hpctwin.simulation.state.arguments import as_workload

__all__ = ["FacilitySimulation", "compare_strategies", "simulate_facility"]

RETRY_MS = 600_000
"""Time between two attempts to place jobs held because of full queues, in ms."""

Overrun = Literal["terminate", "continue"]


class FacilitySimulation:
    """Simulation of one workload in one facility under one strategy.

    Jobs are placed at event times: when jobs arrive, or when the strategy checks the pending ones
    again. The order at an event time is:

    1. Everything that happened earlier on the clusters is simulated.
    2. Held jobs are tried again, then the arriving jobs are placed.
    3. Placed jobs arrive at the same time, in one batch with the other events of that time.

    Args:
        facility: The clusters.
        workload: The jobs, or the path of a trace.
        strategy: A `Strategy`, or text for `parse_strategy`.
        seed: Seed of random choices.
        overrun: Whether walltimes end jobs (``terminate``) or not (``continue``).

    Raises:
        ConfigError, WorkloadError, PolicyError, UnknownNameError: The parts are incompatible.
    """

    def __init__(
        self,
        facility: Facility,
        workload: Workload | str | os.PathLike[str],
        strategy: str | Strategy = "sgs-t",
        *,
        seed: int = 0,
        overrun: Overrun = "terminate",
    ) -> None:
        workload = _given(facility, workload)
        self.strategy = parse_strategy(strategy) if isinstance(strategy, str) else strategy
        self.seed = seed
        self.state = FacilityState(
            facility,
            workload,
            knowledge=self.strategy.knowledge or "walltime",
            spare=self.strategy.spare,
            seed=seed,
            overrun=overrun,
        )
        self.decision_ms = np.full(len(workload), np.nan)
        every = to_ms(self.strategy.every_s)
        self._every_ms = every or (RETRY_MS if any(self.state.limited) else 0)

    def run(self, progress: Callable[[float], None] | None = None) -> FacilityResult:
        """Run to the end, and return the result.

        Args:
            progress: Function called from time to time with the share of jobs placed, 0 to 1.
        """
        for rows in self.placements(progress):
            self.strategy.place(rows, self.state)
        return self.result()

    def placements(self, progress: Callable[[float], None] | None = None) -> Iterator[list[int]]:
        """Yield the jobs to place, one event time after another.

        The caller must place or hold each of them before the next step, as `Strategy.place` does.

        Args:
            progress: Function called from time to time with the share of jobs placed, 0 to 1.
        """
        state = self.state
        size = max(1, len(state.workload))
        done = 0
        for now, rows in self._instants():
            state.now_ms = now
            if rows:
                state.learn(rows)
            held = self._called_up()
            if held or rows:
                begin = time.perf_counter()
                yield [*held, *rows]
                state.held.sort()
                if rows:
                    self.decision_ms[rows] = 1000 * (time.perf_counter() - begin) / len(rows)
            if self.strategy.every_s and now % self._every_ms == 0:
                self.strategy.tick(state)
            done += len(rows)
            if progress is not None and done * 50 // size != (done - len(rows)) * 50 // size:
                progress(done / size)

    def result(self) -> FacilityResult:
        """Simulate the rest after all jobs are placed, and return the result."""
        state = self.state
        for cluster in state.clusters:
            cluster.finish()
        last_s = max(cluster.simulation.now_s for cluster in state.clusters)
        for cluster in state.clusters:
            cluster.stand_by(last_s)
        return make_facility_result(state, self.strategy, self.decision_ms, self.seed)

    def _called_up(self) -> list[int]:
        """Remove and return the held jobs for which a queue has a place now."""
        state = self.state
        called = state.with_options(state.held) if state.held else []
        if called:
            state.held = np.setdiff1d(state.held, called).tolist()
        return called

    def _instants(self) -> Iterator[tuple[int, list[int]]]:
        """Yield times at which jobs arrive or are checked again, in ms, and the arrivals."""
        state = self.state
        comes = groupby(np.flatnonzero(state.allowed.any(axis=0)).tolist(), key=self._decision_time)
        now = -1
        last: tuple[int, ...] = ()
        for when, group in comes:
            yield from ((tick, []) for tick in self._ticks(now, when))
            now = when
            yield when, list(group)
        while self._every_ms and self._anyone_waits():
            now = (now // self._every_ms + 1) * self._every_ms
            yield now, []
            # If nothing will happen any more, another check cannot help.
            finished = [cluster.advance_before(now + 1) for cluster in state.clusters]
            waiting = (*state.held, *(row for c in state.clusters for row in c.waiting().tolist()))
            if all(finished) and waiting == last:
                return
            last = waiting

    def _decision_time(self, row: int) -> int:
        submit = int(self.state.workload.submit_ms[row])
        window = to_ms(self.strategy.window_s)
        return submit if window == 0 else -(-submit // window) * window

    def _ticks(self, after: int, before: int) -> Iterator[int]:
        if not self._every_ms:
            return
        for tick in range((after // self._every_ms + 1) * self._every_ms, before, self._every_ms):
            if not self._anyone_waits():
                return
            yield tick

    def _anyone_waits(self) -> bool:
        return bool(self.state.held) or any(c.queued for c in self.state.clusters)


def _given(facility: object, workload: Workload | str | os.PathLike[str]) -> Workload:
    """Return the workload after a check that the first argument is a facility."""
    if not isinstance(facility, Facility):
        raise ConfigError(
            f"{facility!r:.60} is not a facility; give a Facility first and then the "
            "workload; read one with Facility.from_yaml(path)"
        )
    return as_workload(workload)


def simulate_facility(
    facility: Facility,
    workload: Workload | str | os.PathLike[str],
    strategy: str | Strategy = "sgs-t",
    *,
    seed: int = 0,
    overrun: Overrun = "terminate",
) -> FacilityResult:
    """Simulate a workload in a facility to the end; see `FacilitySimulation`."""
    return FacilitySimulation(facility, workload, strategy, seed=seed, overrun=overrun).run()


def compare_strategies(
    facility: Facility,
    workload: Workload | str | os.PathLike[str],
    strategies: Iterable[str | Strategy],
    *,
    seed: int = 0,
    overrun: Overrun = "terminate",
    threads: int = 1,
    progress: Callable[[str], None] | None = None,
) -> dict[str, FacilityResult]:
    """Simulate a workload under several strategies.

    Args:
        facility: The clusters.
        workload: The jobs, or the path of a trace.
        strategies: Strategies, or texts for `parse_strategy`.
        seed: Seed of random choices.
        overrun: Whether walltimes end jobs (``terminate``) or not (``continue``).
        threads: Number of strategies simulated at once. With several, the measured time of a
            decision is longer.
        progress: Function called with the name of each finished strategy.

    Returns:
        Results by full name (the strategy, and the runtimes it knows), in the given order.

    Raises:
        ConfigError: There is no strategy, or one occurs twice.
    """
    workload = _given(facility, workload)
    chosen = [parse_strategy(s) if isinstance(s, str) else s for s in strategies]
    if not chosen:
        raise ConfigError("no strategy to compare; give at least one, such as 'sgs-t'")
    names = [full_name(strategy) for strategy in chosen]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"strategy {name!r} is listed twice; list it once")

    interrupted = threading.Event()

    def go_on(_: float) -> None:
        if interrupted.is_set():
            raise SimulationError("interrupted")

    def one(strategy: Strategy) -> FacilityResult:
        simulation = FacilitySimulation(facility, workload, strategy, seed=seed, overrun=overrun)
        result = simulation.run(go_on)
        if progress is not None:
            progress(full_name(strategy))
        return result

    if threads == 1:
        # An invalid strategy raises at once, not after all others have finished.
        return dict(zip(names, map(one, chosen), strict=True))
    results = run_all(one, chosen, threads=threads, stop=interrupted.set)
    return dict(zip(names, results, strict=True))


def full_name(strategy: Strategy) -> str:
    """Return the strategy's name, with the runtimes it knows if it makes forecasts."""
    if strategy.knowledge is None or not hasattr(strategy, "knows"):
        return strategy.name
    return f"{strategy.name} [{strategy.knowledge}]"
