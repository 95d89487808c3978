"""A simulation in which nodes have power states."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from hpctwin.energy.accounting import Energy, account
from hpctwin.energy.cap import PowerCap, with_cap, with_cap_windows
from hpctwin.energy.control import Control, advance_controlled
from hpctwin.energy.fitting import ModeFitting
from hpctwin.energy.modes import ModeChange, nodes_of_group, rescale, spent_so_far, state_rows
from hpctwin.energy.modes import Work as WorkLeft
from hpctwin.energy.platform import Platform
from hpctwin.energy.power import FAULTS, KINDS, PowerPolicy
from hpctwin.energy.state import check_parts, first_timeout, new_power, with_begins, with_power
from hpctwin.engine import layout, power_layout
from hpctwin.engine.layout import Rules, Work
from hpctwin.engine.power_layout import Power, PowerRules
from hpctwin.errors import ConfigError, SimulationError, UnknownNameError
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.policies import OrderingLike, Policy
from hpctwin.simulation import Simulation
from hpctwin.simulation.lower import pool_of_nodes

__all__ = ["PoweredSimulation", "simulate_powered"]

IntArray = npt.NDArray[np.int64]


class PoweredSimulation(Simulation):
    """One workload on one platform under one policy, with nodes that switch off and on.

    Args:
        workload: the jobs.
        platform: the nodes.
        order, backfill: as for `Simulation`.
        power: the power policy.
        cluster: the rest of the machine (partitions, resources, maintenance); nothing if left out.
        log: whether to keep each node's past states, for the node log and the Gantt chart.
        cap: of what all nodes draw together; None for none.
        control: a function that switches nodes on and off, with power policy ``orders``; see `control`.
        begin_s: jobs wait in any case until then, seconds [jobs]; see `series.cheapest_begins`.
        options: further arguments of `Simulation`.

    Raises:
        ConfigError, WorkloadError, PolicyError, UnknownNameError: the parts do not go together.
    """

    def __init__(
        self,
        workload: Workload,
        platform: Platform,
        order: OrderingLike = "fcfs",
        backfill: str = "easy",
        *,
        power: PowerPolicy = PowerPolicy(),  # noqa: B008
        cluster: Cluster | None = None,
        log: bool = False,
        cap: PowerCap | None = None,
        control: Control | None = None,
        begin_s: npt.NDArray[np.float64] | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(platform, Platform):
            raise ConfigError(
                f"platform is {type(platform).__name__}, it must be a Platform: what nodes draw in each state"
            )
        machine = platform.cluster(cluster)
        if machine.failures.outages or machine.failures.mtbf is not None:
            raise ConfigError(
                f"cluster {machine.name!r}: node failures are not simulated together with power "
                "states; leave 'failures' out"
            )
        if cap is not None:
            workload, machine = with_cap(workload, machine, platform, power, cap)
        super().__init__(workload, machine, order, backfill, track_nodes=True, **options)
        if cap is not None:
            self._machine = with_cap_windows(self._machine, machine, workload, cap)
        self.platform = platform
        self.power = power
        self.log = log
        self.control = control
        self.asked = False
        """Whether the control function was asked at the beginning."""
        self.again_s: float | None = None
        """When it wants to be asked again."""
        self.last_s = 0.0
        """When something else than that happened last."""
        if control is not None and power.kind != "orders":
            raise ConfigError(
                f"a control function needs power policy 'orders', not {power.kind!r}: else two would "
                "switch the same nodes"
            )
        check_parts(self.policy, platform, power)
        self._cap = cap
        if self._lowers and control is not None:
            raise ConfigError("a cap that lowers modes does not go with a control function")
        self._changes: tuple[ModeChange, ...] = ()
        self._work: WorkLeft = {}
        self._pool = pool_of_nodes(machine)
        self._sim = with_power(self._sim, max(platform.depths, 1))
        if begin_s is not None:
            self._sim = with_begins(self._sim, begin_s, workload.job_id)
        self._power = new_power(platform, power, self._pool, self._sim.node.shape[1])
        self._sim.count[layout.TIMER] = first_timeout(self._power)

    def energy(self) -> Energy:
        """Time and energy of each node in each state so far, and of each job."""
        return account(self.platform, self._sim, self.result(), self._log(), self._changes)

    @property
    def node_states(self) -> list[str]:
        """The state each node is in: ``idle``, ``computing``, ``sleeping:off`` … [nodes]."""
        names = self.platform.state_names()
        rows = state_rows(self._sim)
        return [names[row] for row in rows]

    def advance(
        self, until_s: float | None = None, *, instants: int | None = None
    ) -> Literal["done", "reached", "stepped"]:
        """As `Simulation.advance`; the control function, if there is one, is asked after each instant.

        Raises:
            PolicyError: the control function failed, or ordered what cannot be.
            SimulationError: jobs wait, and the control function left all they need switched off.
        """
        if self._cap is not None and self._lowers:
            fit = ModeFitting(self._cap, self)
            return fit.advance(super().advance, until_s=until_s, instants=instants)
        if self.control is None:
            return super().advance(until_s, instants=instants)
        return advance_controlled(
            self, self.control, super().advance, until_s=until_s, instants=instants
        )

    def switch(self, *, on: Iterable[int] = (), off: Iterable[int] = ()) -> None:
        """Switch nodes on and off now.

        Args:
            on: numbers of nodes that are asleep.
            off: numbers of nodes that are idle.

        Raises:
            SimulationError: a node is in another state, is not there, or has no sleep state.
        """
        from hpctwin.engine.kernel_powered import give_orders

        states = self.node_states
        for nodes, wanted, number in ((off, "idle", 0), (on, "sleeping", 1)):
            chosen = np.array(sorted(set(nodes)), np.int64)
            for node in chosen.tolist():
                if not 0 <= node < len(states):
                    raise SimulationError(f"there is no node {node}; there are {len(states)}")
                if states[node].partition(":")[0] != wanted:
                    raise SimulationError(
                        f"node {node} is {states[node]}, it must be {wanted} to be switched "
                        f"{'on' if number else 'off'}"
                    )
                if not self._sleeps[node]:
                    raise SimulationError(f"node {node} has no sleep state; it stays on")
            if len(chosen):
                self._widen_log()
                power, rules = self._more_arguments()[:2]
                give_orders(chosen, number, self._machine, self._sim, power, rules)
                ends = int(power.count[power_layout.HEAP])
                if ends:
                    timer = min(int(self._sim.count[layout.TIMER]), int(power.heap[0, 0]))
                    self._sim.count[layout.TIMER] = timer

    @property
    def modes(self) -> list[str]:
        """The DVFS mode each node group is in."""
        found = [group.mode or next(iter(group.modes)) for group in self.platform.nodes]
        for change in self._changes:
            found[change.group] = change.mode
        return found

    def put_into_modes(self, modes: list[str]) -> None:
        """Put each node group into a mode, if it is in another; `set_mode` without its checks."""
        for number, (old, new) in enumerate(zip(self.modes, modes, strict=True)):
            if old != new:
                self._put_into_mode(number, new)

    def set_mode(self, group: str, mode: str) -> None:
        """Put the nodes of a group into another DVFS mode now; jobs on them go on at its speed.

        What is left of a job takes as much longer as its slowest node has become slower, to the
        millisecond, rounded up. Its walltime stays as it is.

        Args:
            group: name of a node group.
            mode: name of one of its modes.

        Raises:
            UnknownNameError: there is no such group or mode.
            SimulationError: there is a power cap, which counts with the modes at the beginning.
        """
        names = [one.name for one in self.platform.nodes]
        if group not in names:
            raise UnknownNameError("node group", group, names)
        number = names.index(group)
        own = self.platform.nodes[number]
        if mode not in own.modes:
            raise UnknownNameError(f"mode of node group {group!r}", mode, own.modes)
        if self._cap is not None:
            raise SimulationError("modes cannot be set under a power cap")
        self._put_into_mode(number, mode)

    @property
    def _lowers(self) -> bool:
        """Whether modes are lowered to fit under the cap."""
        return self._cap is not None and self._cap.lower_modes

    def _put_into_mode(self, number: int, mode: str) -> None:
        own = self.platform.nodes[number]
        nodes = nodes_of_group(self.platform, number)
        pools = np.unique(self._pool[nodes])
        # The rest of a node's speed is the cluster's.
        rest = self.cluster.nodes[number].speed / own.initial.speed
        speed = self._machine.speed.copy()
        speed[pools] = rest * own.modes[mode].speed
        left = rescale(
            pools,
            speed,
            self._work,
            self._jobs,
            self._machine,
            self._sim,
            terminate=self.overrun == "terminate",
        )
        self._work = {**self._work, **left}
        self._machine = self._machine._replace(speed=speed)
        change = ModeChange(round(self.now_s * MS_PER_S), number, mode, spent_so_far(self._sim))
        self._changes = (*self._changes, change)

    @cached_property
    def _sleeps(self) -> list[bool]:
        return [bool(group.sleep) for group in self.platform.group_of_node()]

    def fork(
        self,
        policy: Policy | None = None,
        *,
        arrivals: bool = True,
        power: PowerPolicy | None = None,
    ) -> Self:
        """As `Simulation.fork`.

        Args:
            policy: as there.
            arrivals: as there.
            power: the power policy that the copy goes on under; the same if left out.

        Raises:
            ConfigError: it does not go with the platform, or the policy not with power states.
        """
        check_parts(policy or self.policy, self.platform, power or self.power)
        twin = super().fork(policy, arrivals=arrivals)
        twin._power = Power(*(array.copy() for array in self._power))  # type: ignore[arg-type]
        if power is not None:
            twin._change_power(power)
        if self._untouched:
            # A pass now would come before the events of the first instant.
            count = twin._sim.count
            count[layout.PASS_DUE] = 0
            count[layout.TIMER] = first_timeout(twin._power, int(count[layout.NOW]))
        return twin

    @property
    def _untouched(self) -> bool:
        """Whether nothing has happened yet, and no node was switched."""
        sim = self._sim
        switched = sim.node[[layout.NODE_POWER, layout.NODE_SINCE]].any()
        return not sim.count[layout.INSTANTS] and not switched

    def save(self, path: str | Path) -> None:
        """Not there for simulations with power states.

        Raises:
            SimulationError: always.
        """
        raise SimulationError("a simulation with power states cannot be saved to a file; fork it")

    @classmethod
    def load(cls, path: str | Path, *, policy: Policy | None = None) -> Self:
        """Not there for simulations with power states.

        Raises:
            SimulationError: always.
        """
        raise SimulationError(
            f"{path}: what is saved has no power states; Simulation.load goes on from it without them"
        )

    def _change_power(self, power: PowerPolicy) -> None:
        """Go on under another power policy; nodes are hidden from jobs as it hides them."""
        fresh = new_power(self.platform, power, self._pool, self._sim.node.shape[1])
        self._power = self._power._replace(timeout=fresh.timeout, keep=fresh.keep)
        self.power = power
        node = self._sim.node
        managed = KINDS[power.kind] == power_layout.MANAGED
        auto = KINDS[power.kind] == power_layout.AUTO and power.rule == "as-published"
        state = node[layout.NODE_POWER]
        off = (managed & (state > power_layout.COMPUTING)) | (
            auto & (state == power_layout.SWITCHING_OFF)
        )
        hidden = (off & (node[layout.NODE_JOB] < 0)).astype(np.int64)
        more = hidden - node[layout.NODE_DOWN]
        np.subtract.at(self._sim.amount[layout.FREE], self._pool, more)
        node[layout.NODE_DOWN] = hidden
        self._sim.count[layout.UNPOWERED] = hidden.sum()
        self._sim.count[[layout.PASS_DUE, layout.COMPRESS]] = 1

    def _kernel(self) -> Callable[..., int]:
        from hpctwin.engine.kernel_powered import advance_powered

        kernel: Callable[..., int] = advance_powered
        return kernel

    def _more_arguments(self) -> tuple[Any, ...]:
        power = self.power
        rules = PowerRules(
            kind=int(KINDS[power.kind]),
            as_published=int(power.rule == "as-published"),
            fault=int(FAULTS[power.fault]) if power.fault else 0,
            depths=max(self.platform.depths, 1),
            log=int(self.log),
            stepped=int(power.kind == "orders" or self._lowers),
        )
        in_order = self._rules()._replace(backfill=int(layout.BACKFILL_NONE))
        unprotected = in_order._replace(backfill=int(layout.BACKFILL_FIRST_FIT))
        return self._power, rules, in_order, unprotected

    def _new_work(self) -> Work:
        work = super()._new_work()
        rows = len(work.time) + 2 * self._sim.node.shape[1]
        return work._replace(
            time=np.empty(rows, np.int64), amount=np.empty((rows, work.amount.shape[1]), np.int64)
        )

    def _make_room(self) -> None:
        super()._make_room()
        self._widen_log()

    def _widen_log(self) -> None:
        """Room in the record of states for all that one instant can add."""
        if not self.log:
            return
        used = int(self._power.count[power_layout.LOGGED])
        nodes = self._sim.node.shape[1]
        if used + 6 * nodes > self._power.log.shape[1]:
            wider = np.zeros((4, 2 * self._power.log.shape[1] + 12 * nodes), np.int64)
            wider[:, :used] = self._power.log[:, :used]
            self._power = self._power._replace(log=wider)

    def _rules(self) -> Rules:
        rules = super()._rules()
        power = self.power
        published = power.rule == "as-published"
        if power.kind == "psas-ipm" and published:
            return rules._replace(placement=int(layout.GIVEN))
        if power.kind == "psas-auto" and self.policy.placement in ("first-fit", "best-fit"):
            sleepers_first = published or power.fault == "sleepers-first"
            placement = layout.LEAST_DRAW if sleepers_first else layout.SOONEST
            return rules._replace(placement=int(placement))
        return rules

    def _log(self) -> IntArray | None:
        """Node, row of the state, start and end in ms of all states so far; None if not kept."""
        if not self.log:
            return None
        past = self._power.log[:, : self._power.count[power_layout.LOGGED]]
        nodes = np.arange(self._sim.node.shape[1])
        since = self._sim.node[layout.NODE_SINCE]
        now = np.full(len(nodes), self._sim.count[layout.NOW])
        present = np.stack([nodes, state_rows(self._sim), since, now])
        return np.concatenate([past, present[:, since < now]], axis=1)


def simulate_powered(
    workload: Workload,
    platform: Platform,
    order: OrderingLike = "fcfs",
    backfill: str = "easy",
    **options: Any,
) -> Energy:
    """Simulate a workload on a platform to the end; arguments as for `PoweredSimulation`."""
    simulation = PoweredSimulation(workload, platform, order, backfill, **options)
    simulation.run()
    return simulation.energy()
