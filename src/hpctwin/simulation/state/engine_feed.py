"""What a simulation hands to the engine: the policy in compiled form, memory, and node failures.

`Looks` has the properties of a simulation that do not change it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.capacity_models import PREEMPTING_SHARED, PREEMPTING_WHOLE, SHARED_NODES
from hpctwin.engine.operations.creation import more_log, more_outages, more_room
from hpctwin.engine.operations.job_history import submitted_ms
from hpctwin.engine.passes import PASSES, Pass
from hpctwin.engine.powers import PowerPass
from hpctwin.engine.state import layout
from hpctwin.engine.state.sim import Decided, Sim
from hpctwin.errors import SimulationError, in_brief
from hpctwin.model import MS_PER_S, Cluster, Workload, format_duration, to_ms
from hpctwin.model.text import Shown, count_text
from hpctwin.policies import Ordering, Policy
from hpctwin.simulation.lowering import power_states
from hpctwin.simulation.lowering.cluster import Outages, drawn_outages
from hpctwin.simulation.lowering.policy import Deciding
from hpctwin.simulation.lowering.preemption import is_interrupted
from hpctwin.simulation.state.arguments import SizingHook

__all__ = ["EngineFeed", "Looks", "Once"]

IntArray = npt.NDArray[np.int64]


class Looks(Shown):
    """Properties of a simulation that do not change it."""

    workload: Workload
    cluster: Cluster
    policy: Policy
    sizing: SizingHook | None
    outside: power_states.Outside
    _sim: Sim
    _outages: list[Outages]

    def shown(self) -> tuple[str, dict[str, str]]:
        """Return title and lines of the summary; see `Shown`."""
        title = f"{self.workload.name} under {self.policy.name} on {self.cluster.name}"
        clock = self._sim.clock
        return title, {
            "from time zero": format_duration(self.now_s),
            "jobs": f"{len(self.workload):,}",
            "submitted": f"{clock.arrived:,}",
            "waiting": f"{clock.queued:,}",
            "running": f"{clock.running:,}",
        }

    @property
    def policy_name(self) -> str:
        """The policy's name, with the name of its sizing if it has one."""
        if self.sizing is None:
            return self.policy.name
        return f"{self.policy.name} sized by {self.sizing.name}"

    @property
    def now_s(self) -> float:
        """The present event time, in seconds."""
        return int(self._sim.clock.now) / MS_PER_S

    @property
    def done(self) -> bool:
        """Whether every job has ended."""
        return int(self._sim.clock.alive) == 0

    @property
    def node_states(self) -> list[str]:
        """Power state of each node: ``idle``, ``computing``, ``sleeping:off`` … [nodes]."""
        return power_states.node_states(self._sim, self.cluster)

    @property
    def modes(self) -> list[str]:
        """DVFS mode of each node group."""
        return power_states.modes_of(self.cluster, self.outside)

    @property
    def state(self) -> Sim:
        """The engine's arrays; read them, do not change them."""
        return self._sim

    @property
    def submit_ms(self) -> npt.NDArray[np.int64]:
        """Submit time of each job, or its eligible time if it has a think time, ms [jobs]."""
        return submitted_ms(self._sim, self.workload.submit_ms)

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a state column, such as ``start`` in ms, -1 for not yet [jobs].

        Args:
            name: Name of a field of `engine.state.layout.JobState`.
        """
        found: npt.NDArray[Any] = self._sim["state"][name]
        return found

    def row_of(self, job_id: Any) -> int:
        """Return the row of a job.

        Raises:
            SimulationError: The workload has no such job.
        """
        row = self._rows.get(job_id) if isinstance(job_id, Hashable) else None
        if row is None:
            raise SimulationError(
                f"job {in_brief(job_id)} does not exist in workload {self.workload.name}; give the "
                "id of one of its jobs"
            )
        return row

    @cached_property
    def _rows(self) -> dict[Any, int]:
        """Row of each job id."""
        return {job_id: row for row, job_id in enumerate(self.workload.job_id.tolist())}

    def rejected_mask(self) -> npt.NDArray[np.bool_]:
        """Return which jobs can never run here [jobs]."""
        rejected: npt.NDArray[np.bool_] = self._sim["job"]["rejected"] != 0
        return rejected

    def nodes_by_pool(self, row: int) -> list[int]:
        """Return how many nodes of each pool a running job has [pools]."""
        if self._sim.pools > 1:
            return [int(n) for n in self._sim["taken"][row]]
        return [int(self._sim["job"]["nodes"][row])]

    def expected_ms(self) -> npt.NDArray[np.int64]:
        """Return the runtime that the scheduler expects of each job, in ms [jobs]."""
        expected: npt.NDArray[np.int64] = self._sim["job"]["expected"] - to_ms(self.cluster.cleanup)
        return expected

    def outages_so_far(self) -> Outages:
        """Return node, start and end (ms) of all known failures, past and future."""
        columns = zip(*self._outages, strict=True) if self._outages else [[np.zeros(0, int)]] * 3
        node, start, end = (np.concatenate(column) for column in columns)
        return node, start, end

    def snapshot(self) -> dict[str, Any]:
        """Return time, free nodes, pending and running jobs as plain values."""
        sim, clock = self._sim, self._sim.clock
        waiting = sim["queue"][: clock.queued]
        running = sim.running["job"]
        return {
            "now_s": self.now_s,
            "free_nodes": self.free_nodes(),
            "waiting": self.workload.job_id[np.sort(waiting)].tolist(),
            "running": self.workload.job_id[np.sort(running)].tolist(),
            "submitted": int(clock.arrived),
            "open": int(clock.alive),
        }

    def free_nodes(self) -> int:
        """Return the number of nodes that are idle and up."""
        free = self._sim["stock"]["free"][: self._sim.pools]
        return int(np.maximum(free, 0).sum())


MOST = 100_000
"""Number of interruptions after which a job counts as one that never ends."""


MOST_KEPT = 64
"""Number of policies kept in the engine's form."""


class Once:
    """An array that is made when it is first needed, and shared by forks."""

    def __init__(self, make: Callable[[], npt.NDArray[Any]]) -> None:
        self._make = make
        self._made: npt.NDArray[Any] | None = None

    def made(self) -> npt.NDArray[Any]:
        """Return the array."""
        if self._made is None:
            self._made = self._make()
        return self._made


class EngineFeed(Looks):
    """A simulation that gives the engine what it stops for."""

    overrun: str
    on_dependency_failure: str
    log: bool
    tracked: bool
    drawn: int
    _policies: dict[tuple[Any, ...], tuple[Policy, Pass, Decided]]
    _passes: tuple[Pass, PowerPass | None] | None
    _decided: Decided | None
    _planned: bool
    _raced: bool
    _horizon: int
    _first_ms: int
    _facts: Once
    _facts_known: bool

    @property
    def ordering(self) -> Ordering:
        """The policy's ordering, or an equivalent one if all jobs have one user."""
        order = self.policy.order
        return order.alone if order.alone and len(self._sim["promised"]) == 1 else order

    @property
    def shares_nodes(self) -> bool:
        """Whether the engine uses the capacity model of shared nodes.

        It does if any job requests tasks, or if the placement is defined on shared nodes only.
        """
        return self.workload.shares_nodes or self.policy.placement.shared_only

    def compiled_policy(self) -> Decided:
        """Return the policy in the engine's form; the same object until it changes."""
        if self._decided is None:
            self._decided = self._kept_or_made()
            self._sim.decide(self._decided)
            if self._decided.facts:
                self.load_job_facts()
        return self._decided

    def prepare(self) -> None:
        """Prepare everything `advance` needs, so that it need not hold Python's lock."""
        self.compiled_policy()
        _ = self._sim.address

    def _kept_or_made(self) -> Decided:
        """Return the policy in the engine's form, from the cache if possible.

        Forks, and new simulations of similar jobs, find it by its id.
        """
        about = (
            id(self.policy), id(self.passes()[0]), self.tracked,
            self._planned, self._raced, self._horizon, self._stepped(),
        )  # fmt: skip
        kept = self._policies.get(about)
        if kept is not None:
            return kept[-1]
        deciding = Deciding(
            self._sim,
            self.cluster,
            self.policy,
            self.ordering,
            *self.passes(),
            tracked=self.tracked,
            terminate=self.overrun == "terminate",
            hold=self.on_dependency_failure == "hold",
            log=self.log,
            planned=self._planned,
            raced=self._raced,
            horizon=self._horizon,
            stepped=self._stepped(),
        )
        made = deciding.made()
        if deciding.lasts:
            if len(self._policies) >= MOST_KEPT:
                self._policies.clear()
            # Keep policy and pass alive, so that no other object gets their ids.
            self._policies[about] = self.policy, deciding.found, made
        return made

    def _stepped(self) -> bool:
        """Return whether the engine stops after each event time, before the clock advances."""
        return False

    def compile_pass(self) -> None:
        """Compile the pass itself, because counting cannot always replace it."""
        self._planned = True
        self._decided = None
        self.compiled_policy()

    def compile_tournament(self) -> None:
        """Compile the tournament, because it pays or may pay with this many pending jobs."""
        self._raced = True
        self._decided = None
        self.compiled_policy()

    def provide(self, code: int) -> bool:
        """Provide what the engine stopped for; return False if it needs nothing.

        Args:
            code: Return code of `event_loop.advance`.
        """
        if code == layout.NEED_ROOM:
            self.make_room()
        elif code == layout.NEED_PASS:
            self.compile_pass()
        elif code == layout.NEED_RACE:
            self.compile_tournament()
        elif code == layout.NEED_OUTAGES:
            self.draw_outages()
            self.compiled_policy()
        else:
            return False
        return True

    def load_job_facts(self) -> None:
        """Give the engine the job properties for some orderings only; forks share them."""
        if not self._facts_known:
            self._sim.know(fact=self._facts.made())
            self._facts_known = True

    def passes(self) -> tuple[Pass, PowerPass | None]:
        """Return the pass that starts jobs, and the pass that switches nodes.

        The second is None without power states.
        """
        if self._passes is None:
            self._passes = self._find_passes()
        return self._passes

    def _find_passes(self) -> tuple[Pass, PowerPass | None]:
        power = self.policy.power.power_pass if self.cluster.has_power else None
        interrupted = is_interrupted(self.workload, self.cluster)
        backfill = PASSES.find(self.policy.backfill)
        if self.shares_nodes:
            return backfill.on(PREEMPTING_SHARED if interrupted else SHARED_NODES), power
        if interrupted:
            return backfill.on(PREEMPTING_WHOLE), power
        if power is None and self.tracked and not len(self.workload.resources):
            return self.policy.on_whole_nodes, None
        return self.policy.scheduling, power

    def make_room(self) -> None:
        """Enlarge the engine's tables of records and plans.

        Raises:
            SimulationError: Most of the space is needed for one job that is stopped and requeued
                again and again.
        """
        # With a sizing the table holds resized stretches too, of which a job may have any number.
        if self.sizing is None:
            _check_cut_off(self.workload, self._sim)
        more_room(self._sim)
        if self.log:
            more_log(self._sim)

    def draw_outages(self) -> None:
        """Draw the node failures of the next block of time."""
        outages, self._horizon = drawn_outages(self.cluster, self.drawn, self._first_ms)
        self._decided = None
        self.drawn += 1
        self._add_outages(outages)

    def _add_outages(self, outages: Outages) -> None:
        if len(outages[0]):
            more_outages(self._sim, *outages)
            self._outages = [*self._outages, outages]


def _check_cut_off(workload: Workload, sim: Sim) -> None:
    """Check that no job is cut off for ever, by jobs that preempt it or by nodes that fail.

    This is called each time the table of lost attempts grows, which is seldom.

    Raises:
        SimulationError: one was cut off more than `MOST` times.
    """
    lost = sim["lost"][: sim.clock.lost]
    if len(lost) <= MOST:
        return
    times = np.bincount(lost["job"])
    row = int(times.argmax())
    if times[row] > MOST:
        raise SimulationError(
            f"job {workload.job_id[row]} was interrupted {count_text(times[row], 'time')} until "
            f"{sim.clock.now / MS_PER_S:,.0f} s and would never end, because preemption or "
            "node failures leave it too little time; use a longer 'exempt' or "
            "'requeue_after', a shorter 'grace', checkpoints, or fewer failures"
        )
