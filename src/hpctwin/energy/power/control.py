"""Power policies written in Python: their view of the cluster, and their orders.

`price_control` is such a policy: it follows the price of energy or its carbon intensity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hpctwin.energy.prices.series import Series
from hpctwin.engine.operations.job_history import submitted_ms
from hpctwin.engine.state.sim import Sim
from hpctwin.errors import ConfigError
from hpctwin.model import MS_PER_S, Cluster, Workload
from hpctwin.model.arguments import check_arguments

__all__ = ["Control", "Orders", "PowerView", "price_control"]


class Looked(Protocol):
    """Simulation that a view shows."""

    @property
    def now_s(self) -> float:
        """The present event time, in seconds."""

    cluster: Cluster
    """The cluster."""

    outside: Any
    """Orders so far."""

    @property
    def state(self) -> Sim:
        """The engine's arrays."""

    @property
    def workload(self) -> Workload:
        """The jobs."""

    @property
    def node_states(self) -> list[str]:
        """Power state of each node."""


@dataclass(frozen=True)
class Orders:
    """Orders of a control function.

    Args:
        on: Numbers of sleeping nodes to switch on.
        off: Numbers of idle nodes to switch off.
        next_call_s: Latest time of the next call, in seconds; None for only after the next event.
    """

    on: Iterable[int] = ()
    off: Iterable[int] = ()
    next_call_s: float | None = None


class PowerView:
    """View of a control function; it does not include the jobs' true runtimes."""

    def __init__(self, simulation: Looked) -> None:
        self._simulation = simulation
        self.now_s = simulation.now_s
        """The present event time, in seconds."""

    orders = Orders
    """Class of the orders to return."""

    @property
    def due(self) -> bool:
        """Whether the requested time of the next call has come; True at the first call."""
        next_call_s = self._simulation.outside.next_call_s
        return next_call_s is None or self.now_s >= next_call_s

    @cached_property
    def can_sleep(self) -> npt.NDArray[np.bool_]:
        """Whether each node has a sleep state [nodes]."""
        groups = self._simulation.cluster.nodes
        return np.repeat([bool(group.sleep) for group in groups], [g.count for g in groups])

    @property
    def sim(self) -> Sim:
        """The engine's arrays; do not change them or read true runtimes from them."""
        return self._simulation.state

    @cached_property
    def states(self) -> npt.NDArray[np.str_]:
        """The state of each node, as in `nodes` [nodes]."""
        return np.array([state.partition(":")[0] for state in self._simulation.node_states])

    def nodes(self, state: str) -> npt.NDArray[np.int64]:
        """Return the numbers of the nodes in a state.

        Args:
            state: ``idle``, ``held`` (idle, but a job holds it that is suspended or has ended),
                ``computing``, ``switching_off``, ``sleeping`` or ``switching_on``.
        """
        return np.flatnonzero(self.states == state)

    @cached_property
    def since_s(self) -> npt.NDArray[np.float64]:
        """How long each node has been in its state, in seconds [nodes]."""
        sim = self._simulation.state
        found: npt.NDArray[np.float64] = (sim.clock.now - sim["node"]["since"]) / MS_PER_S
        return found

    @cached_property
    def waiting(self) -> list[tuple[int, float, float]]:
        """Nodes, walltime and wait so far (s) of each pending job, by submit time."""
        sim, workload = self._simulation.state, self._simulation.workload
        rows = np.sort(sim["queue"][: sim.clock.queued])
        wait = (sim.clock.now - submitted_ms(sim, workload.submit_ms)[rows]) / MS_PER_S
        return list(
            zip(
                workload.nodes[rows].tolist(),
                (workload.walltime_ms[rows] / MS_PER_S).tolist(),
                wait.tolist(),
                strict=True,
            )
        )


Control = Callable[[PowerView], Orders | None]
"""A power policy written in Python: orders for a view of the cluster."""


@check_arguments()
def price_control(
    series: Series, *, timeout_s: float, dear_timeout_s: float = 0.0, dear: float = 0.5
) -> Control:
    """Return a power policy that switches idle nodes off, sooner at high prices.

    Nodes that no job waits for are switched off, sooner while energy is expensive. Sleeping nodes
    are woken, as many as the pending jobs ask for.

    Args:
        series: Price or carbon intensity, with the simulation's time zero (`Series.aligned`).
        timeout_s: Idle time before switch-off at normal prices, in seconds.
        dear_timeout_s: Idle time before switch-off while energy is expensive, in seconds.
        dear: Fraction of the time during which energy counts as expensive, 0 to 1.

    Raises:
        ConfigError: A number is out of range.
    """
    for name, seconds in (("timeout_s", timeout_s), ("dear_timeout_s", dear_timeout_s)):
        if not seconds >= 0:
            raise ConfigError(f"price_control: {name} is {seconds!r}; it must be 0 or more")
    if not 0 <= dear <= 1:
        raise ConfigError(f"price_control: dear is {dear!r}; it must be between 0 and 1")
    limit = _exceeded_for(series, dear)

    def control(view: PowerView) -> Orders:
        idle = view.nodes("idle")
        wanted = sum(nodes for nodes, _, _ in view.waiting)
        if wanted:
            missing = wanted - len(idle) - len(view.nodes("switching_on"))
            return Orders(on=view.nodes("sleeping")[: max(0, missing)])
        is_dear = float(series.at(view.now_s)) > limit
        left_s = (dear_timeout_s if is_dear else timeout_s) - view.since_s[idle]
        due = left_s <= 0
        if due.all():
            return Orders(off=idle)
        change_s = _next_change(series, view.now_s)
        return Orders(off=idle[due], next_call_s=min(view.now_s + left_s[~due].min(), change_s))

    return control


def _exceeded_for(series: Series, share: float) -> float:
    """Return the value that the series exceeds for at most a fraction of its time."""
    lengths = np.diff(np.append(series.times_s, series.period_s))
    order = np.argsort(series.values)[::-1]
    above = np.cumsum(lengths[order]) > share * series.period_s * (1 + 1e-12)
    return float(series.values[order][np.argmax(above)]) if above.any() else -np.inf


def _next_change(series: Series, now_s: float) -> float:
    rounds, rest = divmod(now_s, series.period_s)
    later = series.times_s[series.times_s > rest]
    return float(rounds * series.period_s + (later[0] if len(later) else series.period_s))
