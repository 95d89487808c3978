"""The nodes of an emulated cluster go to sleep and wake up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from hpctwin.rms.emulated.agenda import NODE, Agenda
from hpctwin.rms.emulated.nodes import Nodes
from hpctwin.rms.records import events as ev
from hpctwin.rms.records.records import NodePower

__all__ = ["NodePowers"]


class NodePowers:
    """Which nodes are on, and the ends of their transitions.

    Args:
        nodes: the nodes; those of machines without sleep states are always on.
        agenda: when transitions end.
        now: the present by the cluster's clock, seconds.
        tell: takes an event's class and fields.
    """

    def __init__(
        self,
        nodes: Nodes,
        agenda: Agenda,
        now: Callable[[], float],
        tell: Callable[..., None],
    ) -> None:
        self._nodes = nodes
        self._agenda = agenda
        self._now = now
        self._tell = tell
        self._ends: dict[int, Any] = {}
        self.there = nodes.machine.depths > 0
        """Whether there are any sleep states."""
        if self.there:
            for node in range(len(nodes.names)):
                nodes.set_power(node, NodePower(since_s=now()))

    def wake(self, nodes: Iterable[int]) -> float:
        """Switch on the nodes that a job was given; when they all are on, seconds."""
        now_s = self._now()
        ready_s = now_s
        if self.there:
            for node in nodes:
                power = self._power(node)
                ready_s = max(ready_s, power.ready_s(self._nodes.sleep_of(node), now_s))
                if power.state == "asleep":
                    self._switch_on(node, power.depth)
        return ready_s

    def used(self, nodes: Iterable[int]) -> None:
        """Nodes on which a job ran are idle from now on."""
        if self.there:
            for node in nodes:
                power = self._power(node)
                if power.state == "on":
                    idle = power.model_copy(update={"since_s": self._now()})
                    self._nodes.set_power(node, idle)

    def set(self, node: int, power: NodePower) -> None:
        """A node comes into a power state now; what follows from it comes by itself."""
        if power == self._power(node):
            return
        self._agenda.drop(self._ends.pop(node, None))
        self._nodes.set_power(node, power)
        self._tell(ev.NodePowered, node_name=self._nodes.names[node], power=power)
        if power.until_s is not None:
            over = partial(self._over, node, power)
            self._ends[node] = self._agenda.put(NODE, power.until_s, over, counts=False)

    def _over(self, node: int, power: NodePower) -> None:
        now_s = self._now()
        if power.state == "switching_on":
            self.set(node, NodePower(since_s=now_s))
        elif not self._nodes.jobs_on(node):
            self.set(node, NodePower(state="asleep", depth=power.depth, since_s=now_s))
        else:
            self._switch_on(node, power.depth)

    def _switch_on(self, node: int, depth: int) -> None:
        now_s = self._now()
        ready_s = round(now_s + self._nodes.sleep_of(node)[depth].switch_on.time, 3)
        if ready_s <= now_s:
            self.set(node, NodePower(since_s=now_s))
            return
        self.set(node, NodePower(state="switching_on", depth=depth, since_s=now_s, until_s=ready_s))

    def _power(self, node: int) -> NodePower:
        power = self._nodes.records[node].power
        assert power is not None
        return power
