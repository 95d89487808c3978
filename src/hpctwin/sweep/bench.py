"""Simulation of points: policies share worlds, and errors go into rows."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future
from functools import lru_cache
from typing import Any

import numpy as np

from hpctwin.errors import HpctwinError, WorkloadError
from hpctwin.generate import generate
from hpctwin.generate.resampling import resample_pieces, resample_users, shift_arrivals
from hpctwin.generate.walltimes import with_walltimes
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.model.demand import at_load
from hpctwin.policies import Policy, make_policy
from hpctwin.simulation import Simulation
from hpctwin.simulation.running.window import moment
from hpctwin.simulation.state.arguments import stated_cluster
from hpctwin.sweep.points import Inputs, Point, World

__all__ = ["Bench", "workload_of"]

_WORLDS = 4
"""Number of worlds in memory: those that run, and the next."""

Row = dict[str, Any]


class Bench:
    """Runner of points, for use in several threads."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self._worlds: OrderedDict[str, Future[tuple[Workload, Cluster]]] = OrderedDict()
        self._begun: OrderedDict[tuple[int, int], Simulation] = OrderedDict()
        self._lock = threading.Lock()
        self._running: set[Simulation] = set()
        self._stopped = False

    def run(self, points: Iterable[Point]) -> list[Row]:
        """Return the rows of points; an error is part of its row and does not stop others."""
        return [self.row(point) for point in points]

    def row(self, point: Point) -> Row:
        """Return the row of a point: its metrics, or ``error``."""
        begin = time.perf_counter()
        try:
            found, error = self._figures(point), None
        except HpctwinError as fault:
            found, error = {}, str(fault)
        except Exception as fault:
            found, error = {}, f"{type(fault).__name__}: {fault}"
        return {
            **about(point), "error": error, "seconds": time.perf_counter() - begin, **found,
        }  # fmt: skip

    def stop(self) -> None:
        """Stop running simulations soon."""
        self._stopped = True
        for simulation in tuple(self._running):
            simulation.stop()

    def _figures(self, point: Point) -> Row:
        simulation = self._start(point)
        self._running.add(simulation)
        try:
            if self._stopped:
                simulation.stop()
            result = simulation.finish()
        finally:
            self._running.discard(simulation)
        summary = result.summary()
        for name in ("workload", "cluster", "policy"):
            del summary[name]
        return summary

    def _start(self, point: Point) -> Simulation:
        """Return a point's simulation.

        It shares the prepared jobs and cluster with earlier simulations.
        """
        workload, cluster = self._made(point.world)
        policy = _policy_of(point.policy)
        of = id(workload), id(cluster)
        with self._lock:
            first = self._begun.get(of)
        if first is None:
            # It is never run; because it holds both, no other objects get their ids.
            first = Simulation(workload, cluster, policy, **self.inputs.run)
            with self._lock:
                self._begun[of] = first
                while len(self._begun) > _WORLDS:
                    self._begun.popitem(last=False)
        return first.with_policy(policy, seed=point.world.seed)

    def _made(self, world: World) -> tuple[Workload, Cluster]:
        """Return a world's jobs and cluster; the first caller makes them."""
        with self._lock:
            found = self._worlds.get(world.key)
            mine = found is None
            if found is None:
                found = self._worlds[world.key] = Future()
                while len(self._worlds) > _WORLDS:
                    self._worlds.popitem(last=False)
            else:
                self._worlds.move_to_end(world.key)
        if mine:
            try:
                found.set_result(workload_of(world, self.inputs))
            except BaseException as error:
                found.set_exception(error)
        return found.result()


@lru_cache(maxsize=64)
def _policy_of(text: str) -> Policy:
    """Return the same object for the same text, so that the engine recognizes it."""
    return make_policy(text)


def about(point: Point) -> Row:
    """Return the columns of a row that describe its point."""
    world = point.world
    return {
        "key": point.key,
        "point": point.number,
        "workload": world.source.label,
        "window": None if world.span is None else world.span.label,
        "load": world.load,
        "runtimes": world.runtimes,
        "widths": world.widths,
        "walltimes": world.walltimes,
        "shift_s": world.shift_s,
        "cluster": world.cluster_name,
        "replicate": world.replicate,
        "seed": world.seed,
        "policy": point.policy,
        "written": point.written,
        **{f"parameter_{name}": value for name, value in point.parameters},
    }


def workload_of(world: World, inputs: Inputs) -> tuple[Workload, Cluster]:
    """Return a world's jobs and cluster.

    Raises:
        ConfigError, UnknownNameError, WorkloadError: They cannot be made.
    """
    source = world.source
    if world.trace is not None:
        jobs = inputs.workloads[world.trace]
    else:
        assert source.generate is not None
        jobs = generate(source.generate, **{"seed": world.seed, **source.options})
    if world.span is not None:
        begin, end = (moment(text, jobs) * MS_PER_S for text in (world.span.begin, world.span.end))
        jobs = jobs.take(np.flatnonzero((jobs.submit_ms >= begin) & (jobs.submit_ms < end)))
    if source.resample == "users":
        jobs = resample_users(jobs, world.seed)
    elif source.resample is not None:
        jobs = resample_pieces(jobs, source.resample, world.seed)
    if not len(jobs):
        where = "" if world.span is None else f" from {world.span.label}"
        raise WorkloadError(f"{source.label} has no jobs{where}")
    if world.cluster:
        cluster = inputs.clusters[world.cluster]
    else:
        cluster = stated_cluster(jobs, "clusters:")
    if world.runtimes != 1:
        jobs = jobs.replace(
            runtime_ms=_times(jobs.runtime_ms, world.runtimes),
            walltime_ms=_times(jobs.walltime_ms, world.runtimes),
        )
    if world.widths != 1:
        if jobs.shares_nodes:
            raise WorkloadError(
                f"widths is {world.widths:g}, but jobs of {jobs.name} request tasks, whose numbers "
                "it does not change; remove widths"
            )
        jobs = jobs.replace(nodes=_times(jobs.nodes, world.widths, up=True))
    # Draws are the same for all models, loads and widths of a seed, and independent of the jobs'.
    jobs = with_walltimes(jobs, world.walltimes, np.random.default_rng([world.seed, 1]))
    if world.shift_s:
        rng = np.random.default_rng([world.seed, 2])
        jobs = shift_arrivals(jobs, world.shift_s, rng)
    if world.load is not None:
        jobs = at_load(jobs, cluster, world.load)
    return jobs, cluster


def _times(values: Any, factor: float, *, up: bool = False) -> Any:
    scaled = values * factor
    whole = np.ceil(np.round(scaled, 9)) if up else np.rint(scaled)
    return np.maximum(whole, 1).astype(np.int64)
