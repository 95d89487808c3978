"""A simulation in which nodes have power states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from hpctwin.energy.accounting import Energy, account
from hpctwin.energy.cap import with_cap, with_cap_windows
from hpctwin.energy.control import Control, advance_controlled
from hpctwin.energy.fitting import ModeFitting
from hpctwin.energy.modes import ModeChange
from hpctwin.energy.power import PASS_FAULTS, PowerPolicy
from hpctwin.energy.state import begins_ms, check_parts, first_timeout, published_watts, sleeps
from hpctwin.energy.states import group_of_node, nodes_of_group, state_names
from hpctwin.engine import layout
from hpctwin.engine.begin import hold_until
from hpctwin.engine.passes import Pass
from hpctwin.engine.powered import (
    Work,
    change_speed,
    hide_nodes,
    past_states,
    spent_ms,
    state_rows,
)
from hpctwin.engine.sim import Sim
from hpctwin.engine.state import choose_pass, more_log, new_sim
from hpctwin.errors import ConfigError, SimulationError, UnknownNameError
from hpctwin.model import MS_PER_S, Cluster, PowerCap, Workload
from hpctwin.policies import OrderingLike, Policy
from hpctwin.simulation import Simulation
from hpctwin.simulation.lower import pool_of_nodes

if TYPE_CHECKING:
    from hpctwin.engine.power_passes import PowerPass

__all__ = ["PoweredSimulation", "simulate_powered"]

IntArray = npt.NDArray[np.int64]


class PoweredSimulation(Simulation):
    """One workload on one cluster under one policy, with nodes that switch off and on.

    Args:
        workload: the jobs.
        cluster: the machine; it must be known what its nodes draw.
        order, backfill: as for `Simulation`.
        power: the power policy.
        log: whether to keep each node's past states, for the node log and the Gantt chart.
        cap: of what all nodes draw together; the cluster's if left out.
        control: a function that switches nodes on and off, with power policy ``orders``; see `control`.
        begin_s: jobs wait in any case until then, seconds [jobs]; see `series.cheapest_begins`.
        options: further arguments of `Simulation`.

    Raises:
        ConfigError, WorkloadError, PolicyError, UnknownNameError: the parts do not go together.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        order: OrderingLike = "fcfs",
        backfill: str = "easy",
        *,
        power: PowerPolicy = PowerPolicy(),  # noqa: B008
        log: bool = False,
        cap: PowerCap | None = None,
        control: Control | None = None,
        begin_s: npt.NDArray[np.float64] | None = None,
        **options: Any,
    ) -> None:
        if not cluster.has_power:
            raise ConfigError(
                f"cluster {cluster.name!r}: it is not known what its nodes draw; give 'modes' of each "
                "node group"
            )
        cap = cluster.cap if cap is None else cap
        machine = cluster
        if cap is not None:
            workload, machine = with_cap(workload, machine, power, cap)
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
        self._cap = cap
        if self._lowers and control is not None:
            raise ConfigError("a cap that lowers modes does not go with a control function")
        self._changes: tuple[ModeChange, ...] = ()
        self._work: Work = {}
        self._pool = pool_of_nodes(machine)
        self._begin_s = begin_s
        super().__init__(workload, machine, order, backfill, track_nodes=True, **options)
        check_parts(self.policy, cluster, power)

    def _new_sim(self, known: Mapping[str, npt.NDArray[Any]], seed: int) -> Sim:
        if self._cap is not None:
            known = with_cap_windows(known, self.cluster, self.workload, self._cap)
        known = {**known, "sleep": sleeps(self.cluster, self.power, self._pool)}
        known["pool"]["keep"] = self.power.keep
        depths = max(self.cluster.depths, 1)
        sim = new_sim(known, seed=seed, depths=depths, waits=self._begin_s is not None)
        if self._begin_s is not None:
            hold_until(sim, begins_ms(self._begin_s, self.workload.job_id))
        choose_pass(sim, self._pass())
        sim.clock.timer = first_timeout(known["sleep"], depths)
        return sim

    def energy(self) -> Energy:
        """Time and energy of each node in each state so far, and of each job."""
        return account(self.cluster, self._sim, self.result(), self._log(), self._changes)

    @property
    def node_states(self) -> list[str]:
        """The state each node is in: ``idle``, ``computing``, ``sleeping:off`` … [nodes]."""
        names = state_names(self.cluster)
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
        from hpctwin.engine.power_passes import give_orders

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
                if self.log:
                    more_log(self._sim)
                self.decided()
                give_orders(self._sim.address, chosen, number)

    @property
    def modes(self) -> list[str]:
        """The DVFS mode each node group is in."""
        found = [group.first_mode for group in self.cluster.nodes]
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
        names = [one.name for one in self.cluster.nodes]
        if group not in names:
            raise UnknownNameError("node group", group, names)
        number = names.index(group)
        own = self.cluster.nodes[number]
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
        own = self.cluster.nodes[number]
        nodes = nodes_of_group(self.cluster, number)
        pools = np.unique(self._pool[nodes])
        speed = self._sim["pool"]["speed"].copy()
        speed[pools] = own.speed * own.modes[mode].speed
        terminate = self.overrun == "terminate"
        left = change_speed(self._sim, pools, speed, self._work, terminate=terminate)
        self._work = {**self._work, **left}
        awake = spent_ms(self._sim)[: layout.COMPUTING + 1]
        change = ModeChange(round(self.now_s * MS_PER_S), number, mode, awake)
        self._changes = (*self._changes, change)

    @cached_property
    def _sleeps(self) -> list[bool]:
        return [bool(group.sleep) for group in group_of_node(self.cluster)]

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
            ConfigError: it does not go with the machine, or the policy not with power states.
        """
        check_parts(policy or self.policy, self.cluster, power or self.power)
        twin = super().fork(policy, arrivals=arrivals)
        if power is not None:
            twin._change_power(power)
        if self._untouched:
            # A pass now would come before the events of the first instant.
            clock = twin._sim.clock
            depths = max(self.cluster.depths, 1)
            clock.pass_due = 0
            clock.timer = first_timeout(twin._sim["sleep"], depths, int(clock.now))
        return twin

    @property
    def _untouched(self) -> bool:
        """Whether nothing has happened yet, and no node was switched."""
        node = self._sim["node"]
        switched = node["power"].any() or node["since"].any()
        return not self._sim.clock.instants and not switched

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
        before = self._pass()
        self.power = power
        self._decided = None
        pool = self._sim["pool"].copy()
        pool["keep"] = power.keep
        self._sim.know(sleep=sleeps(self.cluster, power, self._pool), pool=pool)
        if self._pass() is not before:
            choose_pass(self._sim, self._pass())
        hide_nodes(self._sim, power.shown)

    def _pass(self) -> Pass:
        if self.power.by_node:
            from hpctwin.engine.power_published import NO_PASS

            return NO_PASS
        if self.power.fault in PASS_FAULTS:
            from hpctwin.engine.power_faults import FAULTY

            return FAULTY[self.power.fault]
        return super()._pass()

    def _power_pass(self) -> PowerPass:
        from hpctwin.engine.power_passes import MANAGED, UNAWARE

        if self.power.by_node:
            from hpctwin.engine.power_published import BY_NODE

            return BY_NODE
        return MANAGED if self.power.kind == "psas-ipm" else UNAWARE

    def _numbers(self, found: Pass) -> IntArray:
        values = {**self.policy.numbers(), **published_watts(self.cluster)}
        numbers: IntArray = found.settings(values)
        return numbers

    def _make_room(self) -> None:
        super()._make_room()
        if self.log:
            more_log(self._sim)

    def _rules(self) -> dict[str, Any]:
        power = self.power
        rules = super()._rules() | {
            "shown": power.shown,
            "depths": max(self.cluster.depths, 1),
            "log": self.log,
            "stepped": power.kind == "orders" or self._lowers,
        }
        if power.by_node:
            rules["preferred"] = layout.GIVEN
        elif power.kind == "psas-auto":
            sleepers_first = power.rule == "as-published" or power.fault == "sleepers-first"
            rules["preferred"] = layout.LEAST_DRAW if sleepers_first else layout.SOONEST
        return rules

    def _log(self) -> IntArray | None:
        """Node, row of the state, start and end in ms of all states so far; None if not kept."""
        return past_states(self._sim) if self.log else None


def simulate_powered(
    workload: Workload,
    cluster: Cluster,
    order: OrderingLike = "fcfs",
    backfill: str = "easy",
    **options: Any,
) -> Energy:
    """Simulate a workload on a cluster to the end; arguments as for `PoweredSimulation`."""
    simulation = PoweredSimulation(workload, cluster, order, backfill, **options)
    simulation.run()
    return simulation.energy()
