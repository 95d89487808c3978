"""Control of nodes during a run: a power cap, or a function that switches nodes."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from hpctwin.energy.power.control import Control, Orders, PowerView
from hpctwin.energy.power.states import ModeChange, group_of_node, node_watts, nodes_of_group
from hpctwin.engine.compile.entry_points import GIVE_ORDERS
from hpctwin.engine.operations.clock import go_to
from hpctwin.engine.operations.creation import more_log
from hpctwin.engine.operations.power_control import change_speed, spent_ms, state_rows
from hpctwin.engine.state import layout
from hpctwin.engine.state.layout import COMPUTING, IDLE
from hpctwin.errors import ArgumentError, PolicyError, SimulationError, UnknownNameError, in_brief
from hpctwin.model import MS_PER_S, PowerCap, State, to_ms
from hpctwin.model.arguments import is_whole
from hpctwin.model.cluster.power import DAY_S
from hpctwin.model.text import count_text
from hpctwin.policies.backfills import OUTSIDE
from hpctwin.simulation.lowering.power_states import node_states, speeds
from hpctwin.simulation.lowering.preemption import writes_checkpoints
from hpctwin.simulation.result.placements import use_now
from hpctwin.simulation.running.advance import Outcome, asked_again_s
from hpctwin.simulation.state.base import SimulationBase

__all__ = ["ModeFitting", "advance_controlled", "begin", "put_into_mode", "set_mode", "switch"]


def switch(simulation: SimulationBase, *, on: Iterable[int], off: Iterable[int]) -> None:
    """Switch nodes on and off now; see `Simulation.switch`."""
    states = node_states(simulation.state, simulation.cluster)
    sleeping = [bool(group.sleep) for group in group_of_node(simulation.cluster)]
    for name, given, wanted, number in (("off", off, "idle", 0), ("on", on, "sleeping", 1)):
        nodes = list(given)
        if not all(map(is_whole, nodes)):
            raise ArgumentError(
                f"{name} is {in_brief(nodes)}; it must be a list of numbers of nodes"
            )
        chosen = np.array(sorted(set(nodes)), np.int64)
        for node in chosen.tolist():
            if not 0 <= node < len(states):
                raise SimulationError(
                    f"node {node} does not exist; the cluster has {len(states)} nodes"
                )
            if states[node].partition(":")[0] != wanted:
                raise SimulationError(
                    f"node {node} is {states[node]}; it must be {wanted} to be switched "
                    f"{'on' if number else 'off'}"
                )
            if not sleeping[node]:
                raise SimulationError(f"node {node} has no sleep state and stays on")
        if len(chosen):
            if simulation.log:
                more_log(simulation.state)
            simulation.compiled_policy()
            GIVE_ORDERS(simulation.state.address, chosen, number)


def set_mode(simulation: SimulationBase, group: str, mode: str) -> None:
    """Put a node group into another mode now; see `Simulation.set_mode`."""
    if simulation.sizing is not None:
        raise SimulationError(
            "modes cannot be set if a sizing function decides the sizes of jobs; remove 'sizing'"
        )
    names = [one.name for one in simulation.cluster.nodes]
    if group not in names:
        raise UnknownNameError("node group", group, names)
    number = names.index(group)
    own = simulation.cluster.nodes[number]
    if mode not in own.modes:
        raise UnknownNameError(f"mode of node group {group!r}", mode, own.modes)
    if simulation.cluster.cap is not None:
        raise SimulationError("modes cannot be set under a power cap; remove 'cap'")
    if writes_checkpoints(simulation.workload, simulation.cluster):
        raise SimulationError("modes cannot be set if jobs write checkpoints; remove checkpoints")
    put_into_mode(simulation, number, mode)


def put_into_mode(simulation: SimulationBase, number: int, mode: str) -> None:
    """Put a node group into a mode: `set_mode` without its checks."""
    sim, cluster, outside = simulation.state, simulation.cluster, simulation.outside
    pools = np.unique(sim["pool_of"][nodes_of_group(cluster, number)])
    speed = speeds(sim, cluster, {number: mode})
    terminate = simulation.overrun == "terminate"
    left = {}
    if simulation.network is None:
        left = change_speed(sim, pools, speed, outside.work, terminate=terminate)
    else:
        factor = simulation.mode_speeds[number][mode]
        factor /= simulation.mode_speeds[number][simulation.modes[number]]
        nodes = nodes_of_group(cluster, number)
        simulation.network = simulation.network.fork()  # forks of the simulation share it
        simulation.network.set_mode(sim, number, mode, nodes, factor)
    awake = spent_ms(sim)[: layout.COMPUTING + 1]
    change = ModeChange(round(simulation.now_s * MS_PER_S), number, mode, awake)
    simulation.outside = dataclasses.replace(
        outside, work={**outside.work, **left}, changes=(*outside.changes, change)
    )


class ModeFitting:
    """Fastest modes that fit under the cap; all node groups step down together.

    Args:
        cap: Cap of the simulation.
        simulation: Simulation that is advanced.
    """

    def __init__(self, cap: PowerCap, simulation: SimulationBase) -> None:
        self._cap = cap
        self._simulation = simulation
        groups = simulation.cluster.nodes
        by_power = [group.by_power() for group in groups]
        self._levels = [
            [modes[min(level, len(modes) - 1)] for modes in by_power]
            for level in range(max(len(modes) for modes in by_power))
        ]
        self._group = np.repeat(np.arange(len(groups)), [group.count for group in groups])
        self._watts = node_watts(simulation.cluster)

    def advance(
        self, advance: Callable[..., Outcome], *, until_s: float | None, instants: int | None
    ) -> Outcome:
        """Advance one event time after another, and choose the modes at each.

        Args:
            advance: Function that advances the simulation without choosing modes.
            until_s: As for `Simulation.advance`.
            instants: As for `Simulation.advance`.
        """
        self._fit()
        left = instants
        while left is None or left > 0:
            outcome = advance(until_s, instants=1)
            self._fit()
            if outcome != "stepped":
                return outcome
            if left is not None:
                left -= 1
        return "stepped"

    def _fit(self) -> None:
        simulation = self._simulation
        start_s = simulation.workload.start_epoch_s or 0.0
        limit = self._cap.at((start_s + simulation.now_s) % DAY_S)
        rows = state_rows(simulation.state)
        awake = rows <= COMPUTING
        nodes = np.arange(len(rows))
        asleep_w = float(self._watts[rows[~awake], nodes[~awake]].sum())
        groups = simulation.cluster.nodes
        idle, busy = (
            np.bincount(self._group[rows == state], minlength=len(groups))
            for state in (IDLE, COMPUTING)
        )
        used = busy
        if simulation.workload.shares_nodes:
            each = use_now(simulation.workload, simulation.cluster, simulation.state)
            used = np.bincount(self._group, each * (rows == COMPUTING), minlength=len(groups))
        # Levels go from the fastest modes to the slowest; the slowest are kept even if they exceed
        # the cap.
        for modes in self._levels:
            drawn = asleep_w
            for number, name in enumerate(modes):
                mode = groups[number].modes[name]
                drawn += float((idle[number] + busy[number] - used[number]) * mode.idle)
                drawn += float(used[number] * mode.power_w)
            if drawn <= limit:
                break
        for number, (old, new) in enumerate(zip(simulation.modes, modes, strict=True)):
            if old != new:
                put_into_mode(simulation, number, new)


QUIET_S = 10 * 86_400.0
"""Longest wait of jobs for a control function to switch nodes, in seconds."""


def advance_controlled(
    simulation: SimulationBase,
    control: Control,
    advance: Callable[..., Outcome],
    *,
    until_s: float | None,
    instants: int | None,
) -> Outcome:
    """Advance one event time after another, and call the control function after each.

    Args:
        simulation: Simulation that is advanced.
        control: The control function.
        advance: Function that advances the simulation without calling the control function.
        until_s: As for `Simulation.advance`.
        instants: As for `Simulation.advance`.

    Raises:
        PolicyError: The function failed, or gave impossible orders.
        SimulationError: Jobs wait, and the function keeps the nodes they need switched off.
    """
    left = instants
    if not simulation.outside.asked:
        _note(simulation, asked=True)
        _note(simulation, next_call_s=_ask(simulation, control))
    while left is None or left > 0:
        next_call_s = simulation.outside.next_call_s
        times = [time for time in (until_s, next_call_s) if time is not None]
        outcome = advance(min(times, default=None), instants=1)
        if simulation.done:
            return "done"
        if outcome == "stepped" and not _only_timers_left(simulation):
            _note(simulation, last_s=simulation.now_s)
        asks = next_call_s is not None and simulation.now_s >= next_call_s
        if outcome == "reached" and not asks:
            return "reached"
        if outcome == "done" and not _goes_on_to_ask(simulation, until_s):
            return "done"
        if simulation.now_s - simulation.outside.last_s > QUIET_S:
            _give_up(simulation)
        _note(simulation, next_call_s=_ask(simulation, control))
        if left is not None:
            left -= 1
    return "stepped"


def _note(simulation: SimulationBase, **what: Any) -> None:
    simulation.outside = dataclasses.replace(simulation.outside, **what)


def _only_timers_left(simulation: SimulationBase) -> bool:
    """Return whether no job runs or arrives any more, and no node is being switched."""
    clock = simulation.state.clock
    return bool(clock.only_outages_since >= 0 and clock.running == 0 and clock.switching == 0)


def _goes_on_to_ask(simulation: SimulationBase, until_s: float | None) -> bool:
    """Set the clock to the next call if no event is left; return whether it was set."""
    waiting = bool(simulation.snapshot()["waiting"])
    next_call_s = simulation.outside.next_call_s
    if waiting and next_call_s is None:
        _give_up(simulation)
    if not waiting or next_call_s is None or (until_s is not None and next_call_s > until_s):
        return False
    go_to(simulation.state, to_ms(next_call_s))
    return True


def _give_up(simulation: SimulationBase) -> None:
    """Raise an error if jobs wait; without jobs, nodes may be switched forever."""
    waiting = len(simulation.snapshot()["waiting"])
    if waiting:
        raise SimulationError(
            f"{count_text(waiting, 'pending job')} at {simulation.now_s:g} s with no event to come, "
            "and the control function switches no node on; switch nodes on, or give the "
            "time of the next call"
        )


def _ask(simulation: SimulationBase, control: Control) -> float | None:
    """Call the function once; return the latest time of the next call, in seconds."""
    name = getattr(control, "__name__", repr(control))
    try:
        orders = control(PowerView(simulation))
    except (Exception, SystemExit) as error:
        raise PolicyError(
            f"control function {name!r} failed at {simulation.now_s:g} s: {error!r}"
        ) from error
    if orders is None:
        return None
    if inspect.iscoroutine(orders):
        orders.close()  # otherwise Python later warns that it was never awaited
    if not isinstance(orders, Orders):
        raise PolicyError(
            f"control function {name!r} returned {orders!r} at {simulation.now_s:g} s; it "
            "must return Orders or None"
        )
    where = f"control function {name!r} at {simulation.now_s:g} s"
    on, off = (
        _nodes(nodes, f"{where}: {what}")
        for what, nodes in (("on", orders.on), ("off", orders.off))
    )
    try:
        switch(simulation, on=on, off=off)
    except SimulationError as error:
        raise PolicyError(f"{where}: {error}") from error
    return asked_again_s(simulation, orders.next_call_s, where)


def _nodes(nodes: Any, what: str) -> list[int]:
    """Return the node numbers that a control function gave.

    Raises:
        PolicyError: The function gave something else.
    """
    if isinstance(nodes, Iterable) and not isinstance(nodes, (str, bytes)):
        found = list(nodes)
        if all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in found):
            return [int(n) for n in found]
    raise PolicyError(f"{what} is {nodes!r}; it must be a list of node numbers")


def begin(
    simulation: SimulationBase, job_ids: Iterable[Any], advance: Callable[..., object]
) -> list[Any]:
    """Start pending jobs now; arguments, result and errors as for `Simulation.begin`.

    Args:
        simulation: Simulation that holds the jobs.
        job_ids: Ids of pending jobs.
        advance: Function that advances the simulation.
    """
    from hpctwin.engine.passes.outside import name_jobs

    if simulation.policy.backfill != OUTSIDE:
        raise SimulationError(
            f"policy {simulation.policy.name!r} starts jobs itself; to start jobs from "
            f"outside, use backfill {OUTSIDE!r}"
        )
    given = list(job_ids)
    rows = np.array([simulation.row_of(one) for one in given], np.int64)
    phases = simulation.column("phase")[rows]
    for one, phase in zip(given, phases.tolist(), strict=True):
        if phase != layout.WAITING:
            raise SimulationError(
                f"job {one} is not pending at {simulation.now_s:g} s: it is {_phase(phase)}"
            )
    if len(set(given)) < len(given):
        twice = next(one for one in given if given.count(one) > 1)
        raise SimulationError(f"job {twice} is listed twice; list each job once")
    if not given:
        return []
    simulation.compiled_policy()
    if simulation.tracked:
        # The engine does not check the space for node records before a pass without an event time.
        simulation.make_room()
    name_jobs(simulation.state, rows)
    advance(instants=0)
    started = simulation.column("phase")[rows] != layout.WAITING
    return [one for one, ran in zip(given, started.tolist(), strict=True) if not ran]


def _phase(phase: int) -> str:
    return "not submitted yet" if phase == layout.UNSUBMITTED else State(phase).label
