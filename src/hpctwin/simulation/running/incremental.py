"""Simulations that begin with running jobs, or get jobs one by one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from hpctwin.energy.power.states import node_watts
from hpctwin.engine.operations import warm_start
from hpctwin.engine.operations.interactive import (
    arrive_at,
    close_arrivals,
    expect,
    forecast_arrays,
    like,
    more_ahead,
    stand_by,
)
from hpctwin.engine.operations.power_control import node_powers, nodes_of_job, spent_ms
from hpctwin.engine.operations.transfer import started_ms
from hpctwin.engine.operations.warm_start import NodePowers, Running
from hpctwin.engine.state import layout
from hpctwin.engine.state.sim import Decided, Sim
from hpctwin.errors import SimulationError, WorkloadError
from hpctwin.model import MS_PER_S, NEVER_MS, to_ms
from hpctwin.simulation.lowering.cluster import pool_of_nodes
from hpctwin.simulation.lowering.gpus import lay_running
from hpctwin.simulation.lowering.shared_nodes import counted_nodes, held_amounts
from hpctwin.simulation.refusals import check_forecasts
from hpctwin.simulation.result.result import Result
from hpctwin.simulation.running.advance import not_a_number
from hpctwin.simulation.running.simulation import Simulation

__all__ = [
    "POWER_STATES",
    "NodePowers",
    "OpenSimulation",
    "Running",
    "begin_at",
    "energy_j",
    "go_otherwise",
    "looks_again_ms",
    "nodes_of_job",
    "power_of_nodes",
    "runs",
    "starts_of",
]

IntArray = npt.NDArray[np.int64]

FloatArray = npt.NDArray[np.float64]

POWER_STATES = {
    "on": int(layout.IDLE),
    "switching_off": int(layout.SWITCHING_OFF),
    "asleep": int(layout.ASLEEP),
    "switching_on": int(layout.SWITCHING_ON),
}
"""Power states of a node without a job, by name."""


def begin_at(
    simulation: Simulation,
    now_ms: int,
    running: Running,
    away: IntArray,
    leaving: IntArray,
    parts: Sequence[FloatArray | None] = (),
    powers: NodePowers | None = None,
) -> None:
    """Start from a present state; see `engine.operations.warm_start.begin_at`.

    The simulation must be forked under a policy before it can run.

    Args:
        simulation: New simulation.
        now_ms: Present time, in ms.
        running: Running jobs.
        away: Numbers of the nodes that are unavailable.
        leaving: Numbers of the nodes that become unavailable once they are empty.
        parts: Where nodes are shared: cores, memory (GB), GPUs and consumables that each running
            job holds of each of its nodes [nodes, 3 + consumables]. None if the job has its nodes
            for itself.
        powers: Power states of the nodes, if they have any.
    """
    if simulation.workload.shares_nodes:
        amounts = tuple(
            held_amounts(simulation.state, simulation.cluster, nodes, part)
            for nodes, part in zip(running.nodes, parts, strict=True)
        )
        lay_running(simulation.state, running.rows, running.nodes, amounts)
        running = replace(running, amounts=amounts)
    pool = pool_of_nodes(simulation.cluster)
    cleanup_ms = _cleanup_ms(simulation)
    warm_start.begin_at(simulation.state, now_ms, running, pool, away, leaving, powers, cleanup_ms)
    simulation.begin_user_state()


def _cleanup_ms(simulation: Simulation) -> int:
    """Return how long after its end a job is due; see `engine.jobs.transitions.next_end`."""
    cluster = simulation.cluster
    return 0 if cluster.has_power else to_ms(cluster.cleanup)


def go_otherwise(
    simulation: Simulation,
    runtime_ms: IntArray,
    running: IntArray,
    end_ms: IntArray,
    arrivals: IntArray,
) -> None:
    """Change a fork's future; see `engine.operations.warm_start.another_future`.

    The simulation is a fork of one that `begin_at` started.
    """
    cleanup_ms = _cleanup_ms(simulation)
    warm_start.another_future(simulation.state, runtime_ms, running, end_ms, arrivals, cleanup_ms)


def starts_of(simulation: Simulation, rows: IntArray) -> IntArray:
    """Run until the given jobs started; return the starts in ms, -1 for never [rows]."""
    asked = np.zeros(len(rows), bool)
    # A preempted job starts again, so a run must stop. Otherwise running to the end takes less time.
    stops = simulation.cluster.preemption is not None
    if not stops:
        simulation.advance()
    while True:
        found: IntArray = simulation.column("start")[rows]
        left = np.flatnonzero((found < 0) & ~asked)
        if not (stops and len(left)):
            return found
        # The last job in the queue mostly starts last, so that few stops are needed.
        asked[left[-1]] = True
        simulation.run_until_started(int(rows[left[-1]]))


def power_of_nodes(simulation: Simulation) -> NodePowers:
    """Return the present power states of all nodes; computing nodes count as idle."""
    return node_powers(simulation.state)


def looks_again_ms(simulation: Simulation) -> int | None:
    """Return when nodes are next switched without other events, in ms; None for never."""
    timer = int(simulation.state.clock.timer)
    return None if timer >= NEVER_MS else timer


def runs(simulation: Simulation) -> npt.NDArray[np.bool_]:
    """Return which jobs have nodes at present, on or still being switched on [jobs]."""
    found: npt.NDArray[np.bool_] = simulation.column("phase") == layout.RUNNING
    return found


def energy_j(simulation: Simulation) -> float:
    """Return the energy of all nodes since the beginning, in J."""
    spent = spent_ms(simulation.state)
    return float((spent * node_watts(simulation.cluster)).sum()) / MS_PER_S


def has_started(sim: Sim, row: int) -> bool:
    """Return whether a job has nodes, or had them until it ended."""
    return bool(layout.RUNNING <= sim["state"]["phase"][row] < layout.UNSUBMITTED)


class OpenSimulation:
    """A simulation in which no job arrives unless requested.

    The workload holds all jobs that may ever come. `arrive` submits a job, and `withdraw` removes a
    pending one. `forecast` returns when jobs would start and end if some came now and none after
    them. A forecast copies only what it needs of pending and running jobs, so its cost does not
    grow with the workload.

    Args:
        simulation: New simulation in which nothing has happened; this object owns it from now on.
        runtime_ms: Runtimes in forecasts, in ms [jobs]. None if forecasts know the true runtimes
            and the true ends of running jobs.
        spare: Number of additional jobs, not in the workload, that `tell` can make for forecasts.

    Raises:
        WorkloadError: Jobs depend on each other.
        ConfigError: Forecasts do not support the cluster or the policy.
    """

    def __init__(
        self, simulation: Simulation, runtime_ms: IntArray | None = None, *, spare: int = 0
    ) -> None:
        workload = simulation.workload
        if len(workload.dependencies):
            raise WorkloadError(
                f"workload {workload.name!r} has jobs with dependencies, which cannot be "
                "added to a simulation one by one; give the whole workload"
            )
        check_forecasts(simulation.cluster, simulation.policy)
        self.simulation = simulation
        self.size = len(workload)
        self._cancel = simulation.state["job"]["cancel"].copy()
        self._submit = simulation.state["job"]["submit"].copy()
        close_arrivals(simulation.state)
        self._width = counted_nodes(workload, simulation.cluster)
        self.oracle = runtime_ms is None
        # The engine alone makes forecasts, so everything it needs must be compiled beforehand.
        simulation.compile_pass()
        simulation.compile_tournament()
        # An expected runtime does not depend on which nodes the job runs.
        self._ahead = forecast_arrays(
            simulation.state, *simulation.passes(), spare, one_speed=not self.oracle
        )
        self.runtime_ms: IntArray = self._ahead["job"]["runtime"][: self.size]
        self.runtime_ms.flags.writeable = False
        if runtime_ms is not None:
            expect(self._ahead, slice(0, self.size), runtime_ms)
        self._spare = spare
        self._fastest = float(self._ahead["pool"]["speed"].max())
        self._limit_ms: IntArray = self._ahead["job"]["limit"]
        self._arrival_ms: IntArray = self._ahead["job"]["submit"]
        self._decided: Decided | None = None
        cap = simulation.cluster.cap
        self._lowers = cap is not None and cap.lower_modes
        if self._lowers and self.oracle:
            groups = simulation.cluster.nodes
            self._fastest = max(g.speed * mode.speed for g in groups for mode in g.modes.values())
        self._told = np.zeros(0, np.int64)

    @property
    def queued(self) -> int:
        """Number of pending jobs, including those requested to arrive."""
        clock = self.simulation.state.clock
        return int(clock.queued + clock.arrival_end - clock.arrived)

    def waiting(self) -> IntArray:
        """Return the rows of pending jobs, in queue order if the queue is kept sorted."""
        sim = self.simulation.state
        rows: IntArray = sim["queue"][: sim.clock.queued].copy()
        return rows

    def on_their_way(self) -> IntArray:
        """Return the rows of jobs that were requested to arrive and have not yet."""
        sim = self.simulation.state
        clock = sim.clock
        rows: IntArray = sim["by_submit"][clock.arrived : clock.arrival_end].copy()
        return rows

    def load_s(self, now_ms: int) -> float:
        """Return the work of pending jobs and the rest of running ones, in node-seconds."""
        sim, clock = self.simulation.state, self.simulation.state.clock
        job = sim["job"]
        rows = sim["queue"][: clock.queued]
        if clock.arrival_end > clock.arrived:
            rows = np.concatenate([rows, self.on_their_way()])
        total = float(self._width[rows] @ job["expected"][rows])
        run = sim.running
        total += float(self._width[run["job"]] @ np.maximum(run["planned"] - now_ms, 0))
        return total / MS_PER_S

    def may_start(self, row: int) -> bool:
        """Return whether enough nodes are free for a job.

        It is always True where nodes are shared, because only a forecast can decide there.
        """
        simulation = self.simulation
        return simulation.shares_nodes or (
            simulation.free_nodes() >= int(simulation.workload.nodes[row])
        )

    def rejected_mask(self) -> npt.NDArray[np.bool_]:
        """Return which jobs can never run here [jobs]."""
        return self.simulation.rejected_mask()

    def least_runtime_ms(self, row: int) -> int:
        """Return the shortest runtime of a job in forecasts, in ms."""
        runtime: int = self.runtime_ms.item(row)
        if self._fastest != 1.0:
            runtime = int(runtime / self._fastest)
        if self.simulation.overrun == "terminate":
            runtime = min(runtime, self._limit_ms.item(row))
        return runtime

    def expect_runtime(self, row: int, runtime_ms: int) -> None:
        """Set the runtime of a job in forecasts from now on."""
        expect(self._ahead, row, runtime_ms)

    def ran_share(self, row: int) -> float | None:
        """Return the fraction of its walltime that a job ran; None if it did not finish."""
        sim = self.simulation.state
        job = sim["state"][row]
        if job["phase"] not in (layout.COMPLETED, layout.WALLTIME):
            return None
        return float((job["end"] - job["start"]) / sim["job"]["limit"][row])

    def advance_before(self, now_ms: int) -> bool:
        """Advance to just before a time; return whether no event is left."""
        return self.simulation.advance((now_ms - 1) / MS_PER_S) == "done"

    def finish(self) -> None:
        """Advance to the end."""
        self.simulation.advance()

    def stand_by(self, until_s: float) -> None:
        """Advance a cluster with power states to a time while other clusters still run.

        It is called after `finish`.
        """
        if self.simulation.cluster.has_power and self.simulation.now_s < until_s:
            stand_by(
                self.simulation.state, to_ms(until_s), partial(self.simulation.advance, until_s)
            )

    def arrive(self, row: int, at_ms: int) -> None:
        """Submit a job at a future time; never if it is canceled before.

        Raises:
            SimulationError: The time has passed.
        """
        from hpctwin.engine.operations.lookahead import arrive

        sim = self.simulation.state
        if at_ms <= sim.clock.now and sim.clock.instants > 0:
            raise SimulationError(
                f"job {self.simulation.workload.job_id[row]} is submitted at "
                f"{at_ms / MS_PER_S:g} s, but the simulation is already at "
                f"{self.simulation.now_s:g} s; add jobs in the order of their submit times"
            )
        arrive_at(sim, row, at_ms, int(self._cancel[row]))
        arrive(sim.address, row)

    def withdraw(self, row: int, at_ms: int) -> None:
        """Remove a pending job; the next scheduling pass is at ``at_ms``."""
        from hpctwin.engine.operations.lookahead import withdraw

        sim = self.simulation.state
        withdraw(sim.address, row, at_ms)
        arrive_at(sim, row, int(self._submit[row]), layout.NEVER)

    def tell(self, past: IntArray, arrival_ms: IntArray) -> IntArray:
        """Make jobs for forecasts that equal other jobs but arrive at another time.

        Args:
            past: Rows of the jobs to copy; at most ``spare``.
            arrival_ms: Arrival time of each copy, in ms.

        Returns:
            Rows of the copies, for the argument ``coming`` of `forecast`.
        """
        rows = np.arange(self.size, self.size + len(past))
        like(self._ahead, rows, past, arrival_ms)
        self._told = past
        return rows

    def forecast(
        self,
        now_ms: int,
        coming: IntArray,
        watched: IntArray,
        *,
        arrival_ms: int | IntArray | None = None,
        latest_ms: int = NEVER_MS,
    ) -> IntArray:
        """Return when jobs would start and end if some came now and none after them.

        A forecast does not know future failures and cancellations.

        Args:
            now_ms: Present time in ms; everything before it happens first.
            coming: Rows of jobs that arrive. Jobs of the workload arrive at ``arrival_ms``, jobs
                made by `tell` at the time given there.
            watched: Rows of the jobs asked about: arriving, pending, or requested to arrive.
            arrival_ms: Arrival time of the jobs of the workload, one for all or one for each; by
                default now.
            latest_ms: Time after which starts do not matter, in ms; it makes forecasts cheaper.

        Returns:
            Start and end in ms [2, watched]; -1 if the job does not start by ``latest_ms``.

        Raises:
            PolicyError, SimulationError: The ordering failed.
        """
        from hpctwin.engine.operations.lookahead import look_ahead

        known = coming[coming < self.size] if self._spare else coming
        self._arrival_ms[known] = now_ms if arrival_ms is None else arrival_ms
        found = np.empty((2, len(watched)), np.int64)
        begin = time.perf_counter()
        if self._lowers:
            self.advance_before(now_ms)  # the engine alone does not choose modes
        if self.simulation.compiled_policy() is not self._decided:
            self._decide()
        # An expected runtime does not depend on modes.
        chooses = self._lowers and self.oracle
        if chooses:
            self._ahead.know(pool=self.simulation.state["pool"])
        while True:
            code = look_ahead(
                self.simulation.state.address, self._ahead.address, now_ms, coming,
                watched[:0] if chooses else watched, latest_ms, int(self.oracle), found,
            )  # fmt: skip
            if code == layout.DONE:
                break
            if code > 0:
                self.advance_before(now_ms)
            elif code != -layout.NEED_ROOM:
                raise SimulationError(
                    f"forecast on cluster {self.simulation.cluster.name!r} stopped: "
                    f"{not_a_number(self.simulation.policy, self._ahead)} returned a value "
                    "that is not a number"
                )
            more_ahead(self.simulation.state, self._ahead, coming)
        if chooses:
            self._choose_modes(watched, latest_ms, found)
        self.simulation.engine_s += time.perf_counter() - begin
        return found

    def _choose_modes(self, watched: IntArray, latest_ms: int, found: IntArray) -> None:
        """Run a forecast that has begun until the watched jobs have ended, and choose modes.

        Args:
            watched: Rows of the jobs asked about.
            latest_ms: Time after which starts do not matter, in ms.
            found: Output: start and end in ms [2, watched], as for `forecast`.
        """
        ahead, workload = self._ahead, self.simulation.workload
        assert self._decided is not None
        fork = self.simulation.with_state(ahead, self._decided)
        if workload.shares_nodes and len(self._told):
            fork.workload = workload.take(np.append(np.arange(self.size), self._told))
        until_s = None if latest_ms >= NEVER_MS else latest_ms / MS_PER_S
        for place, row in enumerate(watched.tolist()):
            while not has_started(ahead, row) and fork.advance(until_s, instants=1) == "stepped":
                pass
            start, end = started_ms(ahead)[row], fork.column("end")[row]
            if not has_started(ahead, row) or start > latest_ms:
                found[:, place] = -1
                continue
            while runs(fork)[row] and fork.advance(instants=1) == "stepped":
                pass
            # The end of a job that was preempted and waits is the one that was expected.
            found[:, place] = start, fork.column("end")[row] if has_started(ahead, row) else end

    def _decide(self) -> None:
        """Give forecasts the simulation's policy, without knowledge of future failures."""
        policy = self._decided = self.simulation.compiled_policy()
        rules = policy["rules"].copy()
        rules["outage_horizon"] = NEVER_MS
        rules["log"] = 0
        self._ahead.decide(Decided({**policy, "rules": rules}))

    def result(self) -> Result:
        """Return what has happened so far; jobs that never arrived are pending."""
        return self.simulation.result()
