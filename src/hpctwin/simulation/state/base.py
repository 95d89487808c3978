"""Parts of a simulation: jobs, cluster, policy, and the engine's state of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from hpctwin.engine.compile.entry_points import NOTE_START, REORDER
from hpctwin.engine.operations.clock import (
    begins,
    come_back_at,
    draw_anew,
    end_arrivals,
    schedule_anew,
    schedule_later,
)
from hpctwin.engine.operations.creation import choose_pass, new_sim
from hpctwin.engine.operations.transfer import earliest_start_ms, transfer_state
from hpctwin.engine.passes import Pass
from hpctwin.engine.powers import PowerPass
from hpctwin.engine.state import layout
from hpctwin.engine.state.array_allocation import speed_columns
from hpctwin.engine.state.sim import Decided, Sim
from hpctwin.errors import ArgumentError, ConfigError, SimulationError, in_brief
from hpctwin.metrics.registry import TAU_S, check_tau
from hpctwin.model import NEVER_MS, Cluster, Workload, to_ms
from hpctwin.model.arguments import check_arguments
from hpctwin.model.demand import as_features, in_whole_nodes
from hpctwin.policies import (
    OrderingLike,
    PlacementLike,
    Policy,
    PolicyLike,
    PowerLike,
    make_policy,
)
from hpctwin.policies.backfills import OUTSIDE
from hpctwin.simulation.lowering import power_states
from hpctwin.simulation.lowering.capacity import facts_of, known_of
from hpctwin.simulation.lowering.cluster import BLOCK_MS, Outages, recorded_outages
from hpctwin.simulation.lowering.policy import circumstances
from hpctwin.simulation.lowering.preemption import is_interrupted, suspends, writes_checkpoints
from hpctwin.simulation.refusals import check_contended, check_together
from hpctwin.simulation.state.arguments import (
    SizingHook,
    as_cluster,
    as_workload,
    begins_ms,
    expected_ms,
    risks,
)
from hpctwin.simulation.state.engine_feed import EngineFeed, Once

if TYPE_CHECKING:
    from hpctwin.contention.running_jobs import RunningJobs
    from hpctwin.network.profiles import Profile

__all__ = ["SimulationBase"]

IntArray = npt.NDArray[np.int64]

SHORT = 1 << 19
"""Jobs times event times that the engine handles in an unnoticeable time."""


_UNTOUCHED = power_states.Outside()


class SimulationBase(EngineFeed):
    """A simulation without the methods that advance it; arguments as for `Simulation`."""

    single_gpus: bool | None = None
    """Whether any job asks for a part of a GPU; None means: derived from the jobs."""
    contends: bool | None = None
    """Whether any job uses the network; None means: derived from the jobs."""
    _latest_first_ms: int = NEVER_MS
    """Time at which energy and drawn failures begin if the first submission is later."""
    sized: Any
    """State of the sizing; see `SizingHook`."""

    @check_arguments(
        "workload", "cluster", "policy", "order", "candidates", "placement", "power", "sizing"
    )
    def __init__(
        self,
        workload: Workload | str | os.PathLike[str],
        cluster: Cluster | int | str | os.PathLike[str],
        policy: PolicyLike | None = None,
        backfill: str | None = None,
        *,
        order: OrderingLike | None = None,
        reservations: int | None = None,
        candidates: OrderingLike | None = None,
        placement: PlacementLike | None = None,
        power: PowerLike | None = None,
        settings: Mapping[str, Any] | None = None,
        sizing: SizingHook | None = None,
        sharing: Literal["simgrid", "fair"] | None = None,
        overrun: Literal["terminate", "continue"] = "terminate",
        on_dependency_failure: Literal["cancel", "hold"] = "cancel",
        expected_s: npt.ArrayLike | None = None,
        risk: npt.ArrayLike | None = None,
        begin_s: npt.ArrayLike | None = None,
        track_nodes: bool = False,
        log: bool = False,
        tau_s: float = TAU_S,
        seed: int = 0,
    ) -> None:
        workload = as_workload(workload)
        cluster = as_cluster(cluster).at(workload.start_epoch_s, workload.name)
        self.sharing, self.sizing = sharing, sizing
        workload, self.cluster = workload, cluster = self._without_profiles(workload, cluster)
        workload = in_whole_nodes(workload, cluster)
        self.workload = workload = as_features(workload, cluster)
        self.policy = make_policy(
            policy,
            OUTSIDE if sizing is not None and (policy, backfill) == (None, None) else backfill,
            order=order,
            reservations=reservations,
            candidates=candidates,
            placement=placement,
            power=power,
            settings=settings,
        )
        check_together(cluster, self.policy, workload)
        if sizing is not None:
            if not isinstance(sizing, SizingHook):
                raise ArgumentError(
                    f"sizing is {in_brief(sizing)}; give hpctwin_sizing.Sizing(function) "
                    "(pip install hpctwin-sizing)"
                )
            sizing.check(cluster, self.policy, workload)
        if self._profiles:
            check_contended(cluster, workload, self._profiles, sized=sizing is not None)
        for option, value, known in (
            ("overrun", overrun, ("terminate", "continue")),
            ("on_dependency_failure", on_dependency_failure, ("cancel", "hold")),
            ("sharing", sharing or "fair", ("simgrid", "fair")),
        ):
            if value not in known:
                raise ConfigError(f"{option} is {value!r}; it must be {' or '.join(known)}")
        if overrun == "continue" and any(limit.is_timed for limit in cluster.limits):
            raise ConfigError(
                f"cluster {cluster.name!r} limits the remaining minutes of walltimes, but "
                "walltimes do not end jobs (overrun 'continue'); remove these limits, or "
                "use overrun 'terminate'"
            )
        self.overrun, self.tau_s = overrun, check_tau(tau_s)
        self.on_dependency_failure = on_dependency_failure
        self._logs, self.log = log, log and cluster.has_power
        self._track_nodes = track_nodes
        self.risk = risks(risk, workload)
        self._asked = expected_ms(expected_s, workload), begin_s
        self._circumstances: tuple[Any, ...] = ()
        self._policies: dict[tuple[Any, ...], tuple[Policy, Pass, Decided]] = {}
        self._begin(*self._asked, seed)

    def _begin(
        self,
        expected: npt.NDArray[np.int64] | None,
        begin_s: npt.ArrayLike | None,
        seed: int,
        like: Sim | None = None,
        known: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> None:
        """Set the state in which nothing has happened yet."""
        failures = self.cluster.failures
        first_ms = int(self.workload.submit_ms.min(initial=self._latest_first_ms))
        self._first_ms = 0 if first_ms >= NEVER_MS else first_ms
        self.tracked = self._tracks()
        self._passes: tuple[Pass, PowerPass | None] | None = None
        self._horizon = NEVER_MS if failures.mtbf is None else 0
        self._sim = self._new_sim(expected, begin_s, seed, like=like, known=known)
        self._set_out()
        self._begin_network()
        if self.sizing is not None:
            self.sized = self.sizing.begin(self)
        self.drawn = 0
        self._outages: list[Outages] = []
        if failures.outages:
            past_ms = self._first_ms if self.cluster.has_power else 0
            self._add_outages(recorded_outages(self.cluster, past_ms))

    def _set_out(self) -> None:
        """Reset the counters and caches of a simulation that has not run."""
        self.engine_s = 0.0
        self.outside = _UNTOUCHED
        self.sized = None
        self.broken: str | None = None
        self.over = False  # no event is left and no job to come, even if jobs are pending
        self.slice = max(64, SHORT // max(len(self.workload), 1))
        self.stopped = False
        self._decided: Decided | None = None
        # If jobs may use any node, switched on or not, counting decides as without power states.
        switching = self.passes()[1]
        self._planned = switching is not None and switching.shown != layout.ALL_NODES
        self._raced = False

    def _tracks(self) -> bool:
        """Return whether nodes have identity."""
        workload, cluster = self.workload, self.cluster
        return (
            self._track_nodes
            or self.shares_nodes
            or cluster.has_power
            or bool(cluster.failures.outages)
            or cluster.failures.mtbf is not None
            or suspends(cluster)
            or is_interrupted(workload, cluster)
            or self.sizing is not None
            or bool(self._profiles)
            or self.policy.placement.needs_nodes
        )

    def _without_profiles(self, workload: Workload, cluster: Cluster) -> tuple[Workload, Cluster]:
        """Return jobs with run times, and their cluster; keep what jobs do on the network."""
        self._profiles: tuple[Profile | None, ...] = ()
        self.mode_speeds = [
            {name: mode.speed for name, mode in group.modes.items()} for group in cluster.nodes
        ]
        if workload.profiles is None and not (workload.demands or self.contends):
            return workload, cluster
        from hpctwin.simulation.lowering.profiles import on_network, with_run_times

        if self.sharing is None:
            return with_run_times(workload, cluster)
        workload, cluster, self._profiles = on_network(
            workload, cluster, sized=self.sizing is not None, contends=self.contends
        )
        return workload, cluster

    @property
    def _links_draw(self) -> bool:
        """Whether the energy of links is to be counted."""
        return self.cluster.has_power and self.cluster.has_network_power

    def _stepped(self) -> bool:
        """Return whether the engine stops after each event time: the network follows it."""
        return bool(self._profiles)

    def _begin_network(self) -> None:
        """Set the network to a state without jobs."""
        self.network: RunningJobs | None = None
        platform = self.cluster.platform
        if self._profiles and self.sharing is not None and platform is not None:
            from hpctwin.contention.running_jobs import RunningJobs
            from hpctwin.contention.sizes import Sizes
            from hpctwin.contention.spared_energy import SparedEnergy
            from hpctwin.simulation.lowering.profiles import power_follows_load

            cluster, names = self.cluster, self.workload.job_id.tolist()
            by_load = power_follows_load(cluster) and not self.workload.shares_nodes
            spared = SparedEnergy(cluster, platform) if by_load else None
            sizes = Sizes(self.workload.nodes, self.workload.malleable)
            self.network = RunningJobs(
                platform,
                self._profiles,
                names,
                self.sharing,
                metered=self._logs or self._links_draw,
                spared=spared,
                cleans=cluster.cleanup > 0,
                suspends=suspends(cluster),
                checkpoints=writes_checkpoints(self.workload, cluster),
                sizes=None if self.sizing is None else sizes,
            )

    def fork(
        self,
        policy: Policy | str | None = None,
        *,
        arrivals: bool = True,
        into: Self | None = None,
    ) -> Self:
        """Return an independent copy; nothing done to it changes this simulation.

        Args:
            policy: Policy of the copy; the same if omitted.
            arrivals: Whether jobs not submitted yet will be; without them, the copy only drains its
                queue.
            into: Simulation that is no longer needed; its memory is reused and it becomes the copy.

        Raises:
            ConfigError: The policy is incompatible with the cluster, or ``into`` is no simulation.
        """
        if into is not None and not isinstance(into, SimulationBase):
            raise ArgumentError(f"into is {in_brief(into)}; it must be a simulation or None")
        if policy is not None:
            policy = make_policy(policy)
            check_together(self.cluster, policy, self.workload)
            if self.sizing is not None:
                self.sizing.check(self.cluster, policy, self.workload)
        if into is None:
            twin = object.__new__(type(self))
            twin.__dict__.update(self.__dict__)
            twin._sim = self._sim.fork()
        else:
            twin = into
            twin.copy_from(self)
        twin.engine_s = 0.0
        if not arrivals:
            end_arrivals(twin._sim)
        if policy is not None:
            twin._change_policy(policy)
        if self.cluster.has_power and power_states.untouched(self._sim):
            # A pass at once would come before the events of the first event time.
            schedule_later(twin._sim, power_states.first_instant(twin.policy.power, twin._sim))
        return twin

    def with_workload(self, workload: Workload) -> Self:
        """Return a new simulation of other jobs on the same cluster under the same policy.

        Nothing has happened in it. Jobs are expected to run for their walltimes, and none to fail.

        Args:
            workload: The jobs.

        Raises:
            ConfigError: The jobs are incompatible with the cluster.
        """
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        workload, other.cluster = other._without_profiles(workload, self.cluster)
        workload = as_features(workload, self.cluster)
        check_together(self.cluster, self.policy, workload)
        other.__dict__.pop("_rows", None)
        other.workload, other.risk = workload, risks(None, workload)
        other._asked = None, None
        other._begin(*other._asked, 0, like=self._sim)
        return other

    def with_policy(self, policy: PolicyLike, *, seed: int = 0) -> Self:
        """Return a new simulation of the same jobs and cluster under another policy.

        Nothing has happened in it. The engine's arrays are shared where possible.

        Args:
            policy: The policy.
            seed: Seed of random placement.

        Raises:
            ConfigError, UnknownNameError, PolicyError: The policy is invalid or incompatible with
            the jobs and the cluster.
        """
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.policy, other._passes = make_policy(policy), None
        check_together(self.cluster, other.policy, self.workload)
        if self.sizing is not None:
            self.sizing.check(self.cluster, other.policy, self.workload)
        alike = self._is_known_alike(other)
        if alike and begins(self._sim):
            other._sim = self._sim.fork()
            draw_anew(other._sim, seed)
            choose_pass(other._sim, *other.passes())
            other._sim.reshape(user_state=other._first_user_state())
            other._set_out()
            other._begin_network()
            return other
        known = self._sim.known() if alike else None
        other._begin(*self._asked, seed, like=self._sim, known=known)
        return other

    def _is_known_alike(self, other: Self) -> bool:
        """Return whether another policy needs the same arrays and all are unchanged."""
        cluster = self.cluster
        fixed = not cluster.has_power and cluster.cap is None and self.sizing is None
        alike = self.tracked == other._tracks() and self.shares_nodes == other.shares_nodes
        return fixed and alike and self._sim.jobs == len(self.workload)

    def copy_from(self, other: Self) -> None:
        """Take the state of another simulation, which stays unchanged."""
        self._sim.copy_from(other._sim)
        self.adopt(other)

    def with_state(self, sim: Sim, decided: Decided) -> Self:
        """Return this simulation with other arrays of its jobs, which have their policy.

        Args:
            sim: The arrays, with the same rows.
            decided: The policy in the engine's form, as the arrays have it.
        """
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._sim, other._decided = sim, decided
        return other

    def adopt(self, other: Self) -> None:
        """Take all but the arrays of another simulation, whose arrays are already here."""
        self.__dict__ = {**other.__dict__, "_sim": self._sim}

    def restore(
        self,
        state: Mapping[str, npt.NDArray[Any]],
        outages: Outages,
        drawn: int,
        engine_s: float,
        outside: power_states.Outside,
        *,
        over: bool,
    ) -> None:
        """Continue from a state that was read from a file."""
        self._sim.put_state(state)
        self._put_outside(outside)
        self._outages = [outages]
        self.drawn = drawn
        if self.cluster.failures.mtbf is not None:
            self._horizon = self._first_ms + drawn * BLOCK_MS
        self._decided = None
        self.engine_s, self.over = engine_s, over

    def _put_outside(self, outside: power_states.Outside) -> None:
        """Set the changes made to nodes so far, and with them the speeds of nodes."""
        self.outside = outside
        if outside.changes:
            pool = self._sim["pool"].copy()
            speeds = power_states.speeds(self._sim, self.cluster, dict(enumerate(self.modes)))
            for name, column in speed_columns(speeds).items():
                pool[name] = column
            self._sim.know(pool=pool)

    def replace_ended_jobs(
        self,
        workload: Workload,
        rows: IntArray,
        to: IntArray,
        *,
        waits: bool,
        numbers: Mapping[str, npt.ArrayLike] | None = None,
    ) -> None:
        """Replace jobs that have ended by other jobs.

        Args:
            workload: Jobs from now on; new jobs are submitted after the present event time.
            rows: Rows of the jobs that stay, increasing; see `engine.operations.transfer.carry`.
            to: Rows of these jobs in the new workload.
            waits: Whether jobs may depend on jobs that are no longer there.
            numbers: Those of ``expected_s``, ``risk`` and ``begin_s`` that were given; as for
                `Simulation` [jobs].
        """
        before = self._sim
        place = np.full(before.jobs + 1, -1, np.int64)
        place[rows] = to
        if self.network is not None:
            from hpctwin.simulation.lowering.profiles import network_profiles

            profiles = np.array(network_profiles(workload, self.cluster), object)
            profiles[to] = np.array(self._profiles, object)[rows]
            self._profiles = tuple(profiles)
            workload = workload.replace(profiles=None, demands={})
            names = workload.job_id.tolist()
            self.network = self.network.with_jobs(self._profiles, names, place[:-1])
        workload = as_features(workload, self.cluster)
        check_together(self.cluster, self.policy, workload)
        self.workload = workload
        self._passes = None
        self.__dict__.pop("_rows", None)
        numbers = numbers or {}
        self.risk = risks(numbers.get("risk"), workload)
        expected = expected_ms(numbers.get("expected_s"), workload)
        self._asked = expected, numbers.get("begin_s")
        self._sim = self._new_sim(*self._asked, 0, waits=waits)
        transfer_state(before, self._sim, rows, to, waits=waits)
        if (move := self.policy.scheduling.move) is not None:
            move(before, self._sim, place)
        # Past states that are still to be written may have begun before any mode change.
        begun = -1 if self.log else min(earliest_start_ms(before, rows), int(before.clock.ended))
        self._put_outside(power_states.carried(self.outside, self.cluster, place, begun))
        self._decided = None
        now = int(self._sim.clock.now)
        node, start, end = self.outages_so_far()
        self._outages = [(node[end > now], start[end > now], end[end > now])]

    def _new_sim(
        self,
        expected: npt.NDArray[np.int64] | None,
        begin_s: npt.ArrayLike | None,
        seed: int,
        *,
        waits: bool = False,
        like: Sim | None = None,
        known: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> Sim:
        cluster, power = self.cluster, self.policy.power
        self._facts_known = False
        if known is None:
            known = self._lowered(expected)
        depths = max(cluster.depths, 1) if cluster.has_power else 0
        late = cluster.preemption is not None and cluster.preemption.requeue_after > 0
        waits = waits or begin_s is not None or late
        sim = new_sim(known, *self.passes(), seed=seed, depths=depths, waits=waits, like=like)
        if (found := circumstances(sim)) != self._circumstances:
            self._circumstances, self._policies = found, {}
        if self.policy.order.state is not None:
            sim.reshape(user_state=self._first_user_state())
        if begin_s is not None:
            from hpctwin.engine.operations.warm_start import hold_until

            hold_until(sim, begins_ms(begin_s, self.workload))
        if cluster.has_power:
            if self._first_ms > 0:
                from hpctwin.engine.operations.warm_start import start_clock

                start_clock(sim, self._first_ms)
            come_back_at(sim, power_states.first_instant(power, sim))
        return sim

    def _first_user_state(self) -> npt.NDArray[np.float64]:
        """Return the state of the policy's ordering before the first job [labels + 1, numbers]."""
        state = self.policy.order.state
        if state is None:
            return np.zeros((0, 0))
        labels = getattr(self.workload, state.by).labels
        return np.tile([value for _, value in state.first], (len(labels) + 1, 1))

    def begin_user_state(self) -> None:
        """Set the state of the policy's ordering as if only the running jobs had ever started."""
        sim, state = self._sim, self.policy.order.state
        sim.reshape(user_state=self._first_user_state())
        rows = sim.running["job"]
        if state is None or state.started is None or not len(rows):
            return
        self.compiled_policy()
        clock, start = sim.clock, sim["state"]["start"]
        now = clock.now
        for row in rows[np.lexsort((sim["job"]["rank"][rows], start[rows]))].tolist():
            clock.now = min(start[row], now)
            NOTE_START(row, sim.bare_address)
        clock.now = now

    @check_arguments()
    def start_no_later(self, time_s: float) -> None:
        """Let nodes with power states begin at a time if the first job is submitted later.

        Args:
            time_s: Time in seconds. Nothing may have happened in the simulation yet.
        """
        time = to_ms(time_s)
        clock = self._sim.clock
        fresh = not clock.instants and clock.now == self._first_ms
        if self.cluster.has_power and fresh and time < self._first_ms:
            self._latest_first_ms = time
            self._begin(*self._asked, int(clock.random))

    def _lowered(self, expected: npt.NDArray[np.int64] | None) -> Mapping[str, npt.NDArray[Any]]:
        """Return the engine's arrays of the jobs and the cluster."""
        cluster, power = self.cluster, self.policy.power
        workload, machine = self.workload, cluster
        if cluster.cap is not None:
            from hpctwin.energy.power.cap import with_cap

            workload, machine = with_cap(workload, cluster, switched=power.switches)
        known = known_of(
            workload,
            machine,
            expected_ms=expected,
            tracked=self.tracked,
            shares=self.shares_nodes,
            single_gpus=self.single_gpus,
        )
        if self._profiles:
            from hpctwin.simulation.lowering.profiles import UNKNOWN_MS

            job = known["job"].copy()
            job["runtime"][[one is not None for one in self._profiles]] = UNKNOWN_MS
            known = {**known, "job": job}
        self._facts = Once(partial(facts_of, workload, machine, self.risk, self._profiles))
        if cluster.has_power:
            known = power_states.power_known(known, machine, workload, power, known["pool_of"])
        return known

    def _change_policy(self, policy: Policy) -> None:
        own, other = self.policy.placement, policy.placement
        if own.shared_only != other.shared_only and not self.workload.shares_nodes:
            raise SimulationError(
                f"placement {other.name!r} cannot replace {own.name!r} during a simulation, because "
                "only one of them plans whole nodes as shared nodes; make a new simulation"
            )
        if other.needs_nodes and not len(self._sim["node"]):
            raise SimulationError(
                f"placement {other.name!r} needs node tracking from the start; "
                "make the simulation with track_nodes=True"
            )
        before, self.policy = self.policy, policy
        self._decided = self._passes = None
        choose_pass(self._sim, *self.passes())
        if self.cluster.has_power:
            power_states.change_power(self._sim, self.cluster, policy.power)
        # The new policy decides at once, and the reservations of the old one are void.
        schedule_anew(self._sim)
        if policy.order.state != before.order.state:
            self.begin_user_state()
        if policy.order.changes:
            return  # such a queue is scored at each pass and never sorted
        self.compiled_policy()
        REORDER(self._sim.address)
