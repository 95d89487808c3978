"""A simulation that jobs are given to one by one, and that can look ahead cheaply."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine import layout
from hpctwin.engine.layout import Jobs, Machine, Sim
from hpctwin.engine.state import new_sim, new_work
from hpctwin.errors import ConfigError, SimulationError, WorkloadError
from hpctwin.model import MS_PER_S, NEVER_MS
from hpctwin.simulation.result import Result
from hpctwin.simulation.simulation import Simulation

__all__ = ["OpenSimulation"]

IntArray = npt.NDArray[np.int64]


class OpenSimulation:
    """A simulation in which nobody arrives unless told to.

    The workload holds all jobs that may ever come. `arrive` lets one come, `withdraw` takes a waiting
    one away again, `forecast` asks when some would start and end if they came now and nobody after
    them. A forecast copies only what is needed of waiting and running jobs, so that its cost does not
    grow with the workload.

    Args:
        simulation: a new one, in which nothing has happened; it belongs to this object from now on.
        runtime_ms: how long jobs run in forecasts [jobs]; None if forecasts know the true runtimes
            and the true ends of running jobs.
        spare: so many jobs that are not in the workload can be told to a forecast.

    Raises:
        WorkloadError: jobs depend on each other.
        ConfigError: the policy's backfill is ``pack`` or ``pushdown``, which no forecast knows.
    """

    def __init__(
        self, simulation: Simulation, runtime_ms: IntArray | None = None, *, spare: int = 0
    ) -> None:
        workload = simulation.workload
        if len(workload.dependencies):
            raise WorkloadError(
                f"workload {workload.name!r}: jobs that depend on each other cannot be given to a "
                "simulation one by one"
            )
        if simulation.policy.backfill in ("pack", "pushdown"):
            raise ConfigError(
                f"cluster {simulation.cluster.name!r}: there are no forecasts under backfill "
                f"{simulation.policy.backfill!r}; take none, first-fit, easy or conservative"
            )
        self.simulation = simulation
        self.size = len(workload)
        jobs, machine, sim = simulation.arrays
        self._cancel = jobs.fixed[layout.CANCEL].copy()
        self._submit = jobs.fixed[layout.SUBMIT].copy()
        jobs.fixed[layout.CANCEL] = layout.NEVER
        sim.count[layout.ARRIVAL_END] = 0
        sim.count[layout.ALIVE] = 0
        self.oracle = runtime_ms is None
        self._ahead_jobs, self._ahead_machine, self._ahead = self._fork(jobs, machine, spare)
        self.runtime_ms = self._ahead_jobs.fixed[layout.RUNTIME, : self.size]
        if runtime_ms is not None:
            self.runtime_ms[:] = runtime_ms
        self._work = new_work(self._ahead_jobs, machine, self._ahead)
        self._arguments: tuple[Any, ...] | None = None

    def _fork(self, jobs: Jobs, machine: Machine, spare: int) -> tuple[Jobs, Machine, Sim]:
        """The arrays that forecasts run in."""
        size = self.size + spare
        fixed = np.zeros((layout.FIXED, size), np.int64)
        fixed[:, : self.size] = jobs.fixed
        ahead_jobs = jobs._replace(
            fixed=fixed,
            resources=np.concatenate(
                [jobs.resources, np.zeros((spare, jobs.resources.shape[1]), np.int64)]
            ),
            facts=np.concatenate([jobs.facts, np.zeros((spare, layout.FACTS))]),
            by_submit=np.zeros(size, np.int64),
            by_cancel=np.zeros(0, np.int64),
            edge_first=np.zeros(size + 1, np.int64),
        )
        ahead_machine = machine
        if not self.oracle:
            # What is expected of a job's length does not depend on where it runs.
            ahead_machine = machine._replace(speed=np.ones_like(machine.speed))
        backfill = self.simulation.compiled_policy()[2].backfill
        ahead = new_sim(ahead_jobs, machine, seed=0, backfill=backfill)
        nodes = machine.node.shape[1]
        return (
            ahead_jobs,
            ahead_machine,
            ahead._replace(
                lost=np.zeros((3, nodes), np.int64), segment=np.zeros((4, 2 * nodes), np.int64)
            ),
        )

    @property
    def queued(self) -> int:
        """Jobs that wait, those on their way included."""
        count = self.simulation.state.count
        return int(count[layout.QUEUED] + count[layout.ARRIVAL_END] - count[layout.ARRIVED])

    def waiting(self) -> IntArray:
        """Rows of the jobs that wait, in the order of the queue where it is kept sorted."""
        sim = self.simulation.state
        return sim.number[layout.QUEUE, : sim.count[layout.QUEUED]].copy()

    def on_their_way(self) -> IntArray:
        """Rows of the jobs told to arrive that have not yet."""
        jobs, _, sim = self.simulation.arrays
        return jobs.by_submit[sim.count[layout.ARRIVED] : sim.count[layout.ARRIVAL_END]].copy()

    def load_s(self, now_ms: int) -> float:
        """Work ahead, as the scheduler expects it: node-seconds waiting and left of running jobs."""
        jobs, _, sim = self.simulation.arrays
        rows = sim.number[layout.QUEUE, : sim.count[layout.QUEUED]]
        fixed = jobs.fixed
        total = int(fixed[layout.NODES, rows] @ fixed[layout.EXPECTED, rows])
        if sim.count[layout.ARRIVAL_END] > sim.count[layout.ARRIVED]:
            rows = self.on_their_way()
            total += int(fixed[layout.NODES, rows] @ fixed[layout.EXPECTED, rows])
        running = sim.count[layout.RUN]
        left = np.maximum(sim.running[layout.PLANNED, :running] - now_ms, 0)
        total += int(fixed[layout.NODES, sim.running[layout.RUNS, :running]] @ left)
        return total / MS_PER_S

    def free_nodes(self) -> int:
        """Nodes that are idle and up."""
        _, machine, sim = self.simulation.arrays
        return int(np.maximum(sim.amount[layout.FREE, : len(machine.speed)], 0).sum())

    def rejects(self) -> npt.NDArray[np.bool_]:
        """Whether each job can never run here [jobs]."""
        rejected: npt.NDArray[np.bool_] = self.simulation.arrays[0].fixed[layout.REJECT] != 0
        return rejected

    def least_runtime_ms(self, row: int) -> int:
        """How long a job runs at least in forecasts."""
        runtime = int(self.runtime_ms[row])
        fastest = float(self._ahead_machine.speed.max())
        if fastest != 1.0:
            runtime = int(runtime / fastest)
        if self.simulation.overrun == "terminate":
            runtime = min(runtime, int(self._ahead_jobs.fixed[layout.LIMIT, row]))
        return runtime

    def ran_share(self, row: int) -> float | None:
        """The share of its walltime that a job ran; None if it has not run to its end."""
        jobs, _, sim = self.simulation.arrays
        if sim.flag[layout.STATE, row] not in (layout.COMPLETED, layout.WALLTIME):
            return None
        ran = sim.time[layout.END, row] - sim.time[layout.START, row]
        return float(ran / jobs.fixed[layout.LIMIT, row])

    def advance_before(self, now_ms: int) -> bool:
        """Let everything happen that happens before an instant; whether nothing is left to happen."""
        done = self.simulation.advance((now_ms - 1) / MS_PER_S) == "done"
        self._arguments = None  # the simulation may have got larger arrays
        return done

    def finish(self) -> None:
        """Let everything happen that is left to happen."""
        self.simulation.advance()

    def arrive(self, row: int, at_ms: int) -> None:
        """Let a job be submitted at a time that has not been reached; never if it is cancelled before.

        Raises:
            SimulationError: the time has passed.
        """
        from hpctwin.engine.lookahead import arrive

        jobs, _, sim = self.simulation.arrays
        if at_ms <= sim.count[layout.NOW] and sim.count[layout.INSTANTS] > 0:
            raise SimulationError(
                f"job {self.simulation.workload.job_id[row]} is to arrive at {at_ms / MS_PER_S:g} s, "
                f"but the simulation has gone on to {self.simulation.now_s:g} s"
            )
        jobs.fixed[layout.SUBMIT, row] = at_ms
        if self._cancel[row] < NEVER_MS:
            jobs.fixed[layout.CANCEL, row] = self._cancel[row]
            self._sort_cancellations()
        arrive(row, jobs, sim)

    def withdraw(self, row: int, at_ms: int) -> None:
        """Take a waiting job away; the next scheduling pass comes at ``at_ms``."""
        from hpctwin.engine.lookahead import withdraw

        jobs, _, sim = self.simulation.arrays
        withdraw(row, at_ms, sim)
        jobs.fixed[layout.SUBMIT, row] = self._submit[row]
        if self._cancel[row] < NEVER_MS:
            jobs.fixed[layout.CANCEL, row] = layout.NEVER
            self._sort_cancellations()

    def _sort_cancellations(self) -> None:
        jobs, _, sim = self.simulation.arrays
        rest = jobs.by_cancel[sim.count[layout.CANCELS_DONE] :]
        rest[:] = rest[np.argsort(jobs.fixed[layout.CANCEL, rest], kind="stable")]

    def tell(self, past: IntArray, arrival_ms: IntArray) -> IntArray:
        """Make jobs for forecasts that are like others but arrive at another time.

        Args:
            past: rows of the jobs they are like; at most ``spare``.
            arrival_ms: when they arrive.

        Returns:
            Their rows, for the argument ``coming`` of `forecast`.
        """
        rows = np.arange(self.size, self.size + len(past))
        jobs = self._ahead_jobs
        jobs.fixed[:, rows] = jobs.fixed[:, past]
        jobs.fixed[layout.SUBMIT, rows] = arrival_ms
        jobs.fixed[layout.RANK, rows] = rows
        jobs.resources[rows] = jobs.resources[past]
        jobs.facts[rows] = jobs.facts[past]
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
        """When jobs would start and end if some came and nobody after them.

        Failures to come, and cancellations, are not known to a forecast.

        Args:
            now_ms: the present; everything before it happens first.
            coming: rows of jobs that come: those of the workload at ``arrival_ms`` (one for all, or one for
                each), those of `tell` when they were told to.
            watched: rows of the jobs asked for; coming, waiting or on their way.
            arrival_ms: when those of the workload come; now if left out.
            latest_ms: starts after this are of no interest; giving it makes forecasts cheaper.

        Returns:
            Start and end, ms [2, watched]; -1 where it does not start (in time).

        Raises:
            PolicyError, SimulationError: the ordering failed.
        """
        from hpctwin.engine.lookahead import look_ahead

        submit = self._ahead_jobs.fixed[layout.SUBMIT]
        submit[coming[coming < self.size]] = now_ms if arrival_ms is None else arrival_ms
        found = np.empty((2, len(watched)), np.int64)
        begin = time.perf_counter()
        while True:
            code = look_ahead(
                *self._bound(), now_ms, coming, watched, latest_ms, int(self.oracle), found
            )
            if code == layout.DONE:
                break
            if code > 0:
                self.advance_before(now_ms)
            elif code != -layout.NEED_ROOM:
                raise SimulationError(
                    f"a forecast on cluster {self.simulation.cluster.name!r} stopped: the ordering "
                    f"{self.simulation.policy.order.name!r} gave something that is not a number"
                )
            self._make_room()
        self.simulation.engine_s += time.perf_counter() - begin
        return found

    def _bound(self) -> tuple[Any, ...]:
        """The arguments of a forecast that stay the same."""
        if self._arguments is None:
            order, candidates, rules = self.simulation.compiled_policy()
            # Nobody knows of failures to come.
            ahead_rules = rules._replace(outage_horizon=NEVER_MS)
            self._arguments = (
                order, candidates, *self.simulation.arrays, rules,
                self._ahead_jobs, self._ahead_machine, self._ahead, ahead_rules, self._work,
            )  # fmt: skip
        return self._arguments

    def _make_room(self) -> None:
        """More rows for the plan: enough for the present, and at least twice as many as before."""
        width = self._work.amount.shape[1]
        busy = int(self.simulation.state.count[layout.RUN]) + self.queued
        rows = max(8 * busy + 256, 2 * len(self._work.time))
        self._work = self._work._replace(
            time=np.empty(rows, np.int64), amount=np.empty((rows, width), np.int64)
        )
        self._arguments = None

    def result(self) -> Result:
        """What has happened so far; jobs that never came are pending."""
        return self.simulation.result()
