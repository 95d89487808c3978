"""A simulation that jobs are given to one by one, and that can look ahead cheaply."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import numpy.typing as npt

from hpctwin.engine.operations.interactive import (
    arrive_at,
    close_arrivals,
    expect,
    forecast_arrays,
    like,
    more_ahead,
    stand_by,
)
from hpctwin.engine.state import layout
from hpctwin.engine.state.sim import Decided
from hpctwin.errors import SimulationError, WorkloadError
from hpctwin.model import MS_PER_S, NEVER_MS, to_ms
from hpctwin.simulation.lowering.shared_nodes import counted_nodes
from hpctwin.simulation.refusals import check_forecasts
from hpctwin.simulation.result.result import Result
from hpctwin.simulation.running.advance import not_a_number
from hpctwin.simulation.running.simulation import Simulation

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
        ConfigError: there are no forecasts for such a machine and policy.
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
        check_forecasts(simulation.cluster, simulation.policy, workload)
        self.simulation = simulation
        self.size = len(workload)
        self._cancel = simulation.state["job"]["cancel"].copy()
        self._submit = simulation.state["job"]["submit"].copy()
        close_arrivals(simulation.state)
        self._width = counted_nodes(workload, simulation.cluster)
        self.oracle = runtime_ms is None
        # Forecasts are made by the engine alone: nobody is there to compile what it lacks.
        simulation.need_pass()
        simulation.need_race()
        # What is expected of a job's length does not depend on where it runs.
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

    @property
    def queued(self) -> int:
        """Jobs that wait, those on their way included."""
        clock = self.simulation.state.clock
        return int(clock.queued + clock.arrival_end - clock.arrived)

    def waiting(self) -> IntArray:
        """Rows of the jobs that wait, in the order of the queue where it is kept sorted."""
        sim = self.simulation.state
        rows: IntArray = sim["queue"][: sim.clock.queued].copy()
        return rows

    def on_their_way(self) -> IntArray:
        """Rows of the jobs told to arrive that have not yet."""
        sim = self.simulation.state
        clock = sim.clock
        rows: IntArray = sim["by_submit"][clock.arrived : clock.arrival_end].copy()
        return rows

    def load_s(self, now_ms: int) -> float:
        """Work ahead, as the scheduler expects it: node-seconds waiting and left of running jobs."""
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
        """Whether as many nodes are free as a job asks for; where they are shared only a forecast tells."""
        simulation = self.simulation
        return simulation.workload.shares_nodes or (
            simulation.free_nodes() >= int(simulation.workload.nodes[row])
        )

    def rejects(self) -> npt.NDArray[np.bool_]:
        """Whether each job can never run here [jobs]."""
        return self.simulation.rejects()

    def least_runtime_ms(self, row: int) -> int:
        """How long a job runs at least in forecasts."""
        runtime: int = self.runtime_ms.item(row)
        if self._fastest != 1.0:
            runtime = int(runtime / self._fastest)
        if self.simulation.overrun == "terminate":
            runtime = min(runtime, self._limit_ms.item(row))
        return runtime

    def expect_runtime(self, row: int, runtime_ms: int) -> None:
        """Say how long a job runs in forecasts from now on."""
        expect(self._ahead, row, runtime_ms)

    def ran_share(self, row: int) -> float | None:
        """The share of its walltime that a job ran; None if it has not run to its end."""
        sim = self.simulation.state
        job = sim["state"][row]
        if job["phase"] not in (layout.COMPLETED, layout.WALLTIME):
            return None
        return float((job["end"] - job["start"]) / sim["job"]["limit"][row])

    def advance_before(self, now_ms: int) -> bool:
        """Let everything happen that happens before an instant; whether nothing is left to happen."""
        return self.simulation.advance((now_ms - 1) / MS_PER_S) == "done"

    def finish(self) -> None:
        """Let everything happen that is left to happen."""
        self.simulation.advance()

    def stand_by(self, until_s: float) -> None:
        """Let a machine with power states go on to a time after `finish`, while others still run."""
        if self.simulation.cluster.has_power and self.simulation.now_s < until_s:
            stand_by(
                self.simulation.state, to_ms(until_s), partial(self.simulation.advance, until_s)
            )

    def arrive(self, row: int, at_ms: int) -> None:
        """Let a job be submitted at a time that has not been reached; never if it is cancelled before.

        Raises:
            SimulationError: the time has passed.
        """
        from hpctwin.engine.operations.lookahead import arrive

        sim = self.simulation.state
        if at_ms <= sim.clock.now and sim.clock.instants > 0:
            raise SimulationError(
                f"job {self.simulation.workload.job_id[row]} is to arrive at {at_ms / MS_PER_S:g} s, "
                f"but the simulation has gone on to {self.simulation.now_s:g} s"
            )
        arrive_at(sim, row, at_ms, int(self._cancel[row]))
        arrive(sim.address, row)

    def withdraw(self, row: int, at_ms: int) -> None:
        """Take a waiting job away; the next scheduling pass comes at ``at_ms``."""
        from hpctwin.engine.operations.lookahead import withdraw

        sim = self.simulation.state
        withdraw(sim.address, row, at_ms)
        arrive_at(sim, row, int(self._submit[row]), layout.NEVER)

    def tell(self, past: IntArray, arrival_ms: IntArray) -> IntArray:
        """Make jobs for forecasts that are like others but arrive at another time.

        Args:
            past: rows of the jobs they are like; at most ``spare``.
            arrival_ms: when they arrive.

        Returns:
            Their rows, for the argument ``coming`` of `forecast`.
        """
        rows = np.arange(self.size, self.size + len(past))
        like(self._ahead, rows, past, arrival_ms)
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
        from hpctwin.engine.operations.lookahead import look_ahead

        known = coming[coming < self.size] if self._spare else coming
        self._arrival_ms[known] = now_ms if arrival_ms is None else arrival_ms
        found = np.empty((2, len(watched)), np.int64)
        begin = time.perf_counter()
        if self.simulation.decided() is not self._decided:
            self._decide()
        while True:
            code = look_ahead(
                self.simulation.state.address, self._ahead.address, now_ms,
                coming, watched, latest_ms, int(self.oracle), found,
            )  # fmt: skip
            if code == layout.DONE:
                break
            if code > 0:
                self.advance_before(now_ms)
            elif code != -layout.NEED_ROOM:
                raise SimulationError(
                    f"a forecast on cluster {self.simulation.cluster.name!r} stopped: "
                    f"{not_a_number(self.simulation.policy, self._ahead)} gave something that is not a number"
                )
            more_ahead(self.simulation.state, self._ahead, coming)
        self.simulation.engine_s += time.perf_counter() - begin
        return found

    def _decide(self) -> None:
        """Give forecasts the simulation's policy; nobody knows of failures to come."""
        policy = self._decided = self.simulation.decided()
        rules = policy["rules"].copy()
        rules["outage_horizon"] = NEVER_MS
        rules["log"] = 0
        self._ahead.decide(Decided({**policy, "rules": rules}))

    def result(self) -> Result:
        """What has happened so far; jobs that never came are pending."""
        return self.simulation.result()
