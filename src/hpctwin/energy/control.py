"""Power policies written in Python: a function that is asked after each instant."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from hpctwin.engine.layout import GIVE_UP
from hpctwin.errors import PolicyError, SimulationError
from hpctwin.model import MS_PER_S, NEVER_MS, to_ms
from hpctwin.model.user_functions import load_module, named_in

if TYPE_CHECKING:
    from hpctwin.energy.simulation import PoweredSimulation

__all__ = ["Control", "Orders", "PowerView", "advance_controlled", "find_control"]

Outcome = Literal["done", "reached", "stepped"]


@dataclass(frozen=True)
class Orders:
    """What a control function wants done.

    Args:
        on: numbers of sleeping nodes to switch on.
        off: numbers of idle nodes to switch off.
        again_s: when to be asked again at the latest, seconds; None if only after the next event.
    """

    on: Iterable[int] = ()
    off: Iterable[int] = ()
    again_s: float | None = None


class PowerView:
    """What a control function sees; nothing of what jobs will really run."""

    def __init__(self, simulation: PoweredSimulation) -> None:
        self._simulation = simulation
        self.now_s = simulation.now_s
        """The present instant, seconds."""

    @cached_property
    def states(self) -> npt.NDArray[np.str_]:
        """The state of each node: ``idle``, ``computing``, ``sleeping`` … [nodes]."""
        return np.array([state.partition(":")[0] for state in self._simulation.node_states])

    def nodes(self, state: str) -> npt.NDArray[np.int64]:
        """The numbers of the nodes in a state.

        Args:
            state: ``idle``, ``computing``, ``switching_off``, ``sleeping`` or ``switching_on``.
        """
        return np.flatnonzero(self.states == state)

    @cached_property
    def since_s(self) -> npt.NDArray[np.float64]:
        """For how long each node has been in its state, seconds [nodes]."""
        sim = self._simulation.state
        found: npt.NDArray[np.float64] = (sim.clock.now - sim["node"]["since"]) / MS_PER_S
        return found

    @cached_property
    def waiting(self) -> list[tuple[int, float, float]]:
        """Nodes, walltime and wait so far (seconds) of each waiting job, by submit time."""
        sim, workload = self._simulation.state, self._simulation.workload
        rows = np.sort(sim["queue"][: sim.clock.queued])
        wait = (sim.clock.now - workload.submit_ms[rows]) / MS_PER_S
        return list(
            zip(
                workload.nodes[rows].tolist(),
                (workload.walltime_ms[rows] / MS_PER_S).tolist(),
                wait.tolist(),
                strict=True,
            )
        )


Control = Callable[[PowerView], Orders | None]
"""A power policy written in Python: what to switch, given what is."""


def advance_controlled(
    simulation: PoweredSimulation,
    control: Control,
    advance: Callable[..., Outcome],
    *,
    until_s: float | None,
    instants: int | None,
) -> Outcome:
    """Advance instant by instant, and ask the control function after each.

    Args:
        simulation: that is advanced.
        control: the function.
        advance: advances without asking.
        until_s: as of `PoweredSimulation.advance`.
        instants: as there.

    Raises:
        PolicyError: the function failed, or ordered what cannot be.
        SimulationError: jobs wait, and the function left all they need switched off.
    """
    left = instants
    if not simulation.asked:
        simulation.asked = True
        simulation.again_s = _ask(simulation, control)
    while left is None or left > 0:
        times = [time for time in (until_s, simulation.again_s) if time is not None]
        outcome = advance(min(times, default=None), instants=1)
        if simulation.done:
            return "done"
        if outcome == "stepped":
            simulation.last_s = simulation.now_s
        asks = simulation.again_s is not None and simulation.now_s >= simulation.again_s
        if outcome == "reached" and not asks:
            return "reached"
        if outcome == "done" and not _goes_on_to_ask(simulation, until_s):
            return "done"
        simulation.again_s = _ask(simulation, control)
        if left is not None:
            left -= 1
    return "stepped"


def _goes_on_to_ask(simulation: PoweredSimulation, until_s: float | None) -> bool:
    """Put the clock to when the function wants to be asked, as nothing else is left to happen."""
    waiting = simulation.snapshot()["waiting"]
    again_s, quiet_s = simulation.again_s, simulation.now_s - simulation.last_s
    if waiting and (again_s is None or quiet_s * MS_PER_S > GIVE_UP):
        raise SimulationError(
            f"{len(waiting)} jobs wait at {simulation.now_s:g} s, nothing is left to happen, and the "
            "control function switches no node on"
        )
    if not waiting or again_s is None or (until_s is not None and again_s > until_s):
        return False
    simulation.state.clock.now = to_ms(again_s)
    return True


def _ask(simulation: PoweredSimulation, control: Control) -> float | None:
    """One question; when to ask again at the latest."""
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
        orders.close()  # else Python complains later that nobody waited for it
    if not isinstance(orders, Orders):
        raise PolicyError(
            f"control function {name!r} gave {orders!r} at {simulation.now_s:g} s, it must give Orders "
            "or None"
        )
    where = f"control function {name!r} at {simulation.now_s:g} s"
    on, off = (
        _nodes(nodes, f"{where}: {what}")
        for what, nodes in (("on", orders.on), ("off", orders.off))
    )
    try:
        simulation.switch(on=on, off=off)
    except SimulationError as error:
        raise PolicyError(f"{where}: {error}") from error
    again_s = orders.again_s
    if again_s is None:
        return None
    if isinstance(again_s, bool) or not isinstance(again_s, (int, float, np.number)):
        raise PolicyError(f"{where}: again_s is {again_s!r}, it must be seconds or None")
    again_ms = to_ms(again_s) if abs(again_s) < NEVER_MS / MS_PER_S else NEVER_MS
    if not simulation.now_s < again_ms / MS_PER_S < NEVER_MS / MS_PER_S:
        raise PolicyError(
            f"control function {name!r} wants to be asked again at {again_s:g} s, which is not "
            f"after {simulation.now_s:g} s"
        )
    return again_ms / MS_PER_S


def _nodes(nodes: Any, what: str) -> list[int]:
    """Numbers of nodes that a control function gave.

    Raises:
        PolicyError: it gave something else.
    """
    if isinstance(nodes, Iterable) and not isinstance(nodes, (str, bytes)):
        found = list(nodes)
        if all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in found):
            return [int(n) for n in found]
    raise PolicyError(f"{what} is {nodes!r}, it must be numbers of nodes")


def find_control(text: str) -> Control:
    """The function that ``FILE.py:NAME`` names.

    Raises:
        PolicyError: the file is not there, or fails when it is loaded.
        UnknownNameError: it has no such function.
    """
    path, _, name = text.partition(":")
    found = named_in(load_module(path), name or "control", path)
    if not callable(found):
        raise PolicyError(f"{path}: {name!r} is not a function")
    control: Control = found
    return control
