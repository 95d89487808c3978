"""A trained agent that switches nodes, as a control function.

It works in simulations, comparisons and the twin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpctwin.engine.agents import power as hooks
from hpctwin.engine.agents.agent_record import AGENT
from hpctwin.engine.agents.step import look
from hpctwin.engine.compile.numba_types import described
from hpctwin.engine.state import layout
from hpctwin.errors import PolicyError
from hpctwin.model import MS_PER_S
from hpctwin.policies.agents.agents import read_agent
from hpctwin.policies.agents.network import Network

__all__ = ["AgentControl", "agent_control"]

SEEN: dict[str, tuple[Any, Callable[[int], tuple[int, ...]]]] = {
    "shares": (hooks.OBSERVE_SHARES, lambda levels: (hooks.SHARES,)),
    "spars": (hooks.OBSERVE_SPARS, lambda levels: (hooks.SPARS,)),
    "levels": (hooks.OBSERVE_LEVELS, lambda levels: (levels, hooks.LEVEL)),
}


def agent_control(text: str) -> AgentControl:
    """Return an agent of power management as a control function.

    Args:
        text: Path of its file.

    Raises:
        PolicyError: It is not such an agent, or it decides for each node.
    """
    return AgentControl(text, read_agent(text, "PowerManagement"))


class AgentControl:
    """Control function that decides at multiples of an interval.

    Args:
        name: Path of the agent's file.
        network: The agent's network.

    Raises:
        PolicyError: It does not choose from levels at fixed times.
    """

    def __init__(self, name: str, network: Network) -> None:
        options = network.card.get("options", {})
        seen, every_s = options.get("observation", "shares"), options.get("every_s", 1800.0)
        if seen not in SEEN or not every_s or options.get("levels", 0) < 2:
            raise PolicyError(
                f"{name} does not choose from shares of nodes at fixed times; as a policy it must"
            )
        self.__name__ = name
        self.network, self.every_s = network, float(every_s)
        self.action = options.get("action", "share")
        self.levels = int(options["levels"])
        self.hook, shape = SEEN[seen]
        self.seen = np.zeros(shape(self.levels), np.float32)
        self.agent = np.zeros(1, AGENT)
        self.agent["window"] = self.levels
        self.described = described(self.seen[None])
        self.agent["seen"] = self.described.ctypes.data

    def __call__(self, view: Any) -> Any:
        """Return the nodes to switch now; see `hpctwin.energy.PowerView`."""
        every_ms = round(self.every_s * MS_PER_S)
        now_ms = round(view.now_s * MS_PER_S)
        due_s = (now_ms // every_ms + 1) * self.every_s
        if not view.due:
            return view.orders(again_s=due_s)
        sim = view.sim
        self.agent["sim"], self.agent["observe"] = sim.address, self.hook.address
        look(self.agent.ctypes.data)
        level = int(np.argmax(self.network.scores(self.seen)))
        on, off = self.switched(sim, view.can_sleep, level / (self.levels - 1))
        return view.orders(on=on, off=off, again_s=due_s)

    def switched(self, sim: Any, can_sleep: Any, share: float) -> tuple[list[int], list[int]]:
        """Return the nodes to switch on and off for a choice, like `engine.agents.power`."""
        node, pool = sim["node"], sim["pool_of"]
        power = node["power"]
        on = power <= layout.COMPUTING
        if self.action != "share-spars":
            on = on | (power == layout.SWITCHING_ON)
        wanted = int(np.rint(share * len(node)))
        if self.action == "reserve":
            asked = sim["job"]["nodes"][sim["queue"][: sim.clock.queued]].sum()
            computing = (power == layout.COMPUTING).sum()
            wanted = min(wanted + int(computing) + int(asked), len(node))
        more = wanted - int(on.sum())
        there = (node["job"] < 0) & (node["down"] == 0)
        numbers = np.arange(len(node))
        if more < 0:
            idle = numbers[there & (power == layout.IDLE) & can_sleep]
            return [], idle[np.lexsort((idle, pool[idle]))][:-more].tolist()
        asleep = numbers[there & (power == layout.ASLEEP)]
        order = np.lexsort((asleep, pool[asleep], node["depth"][asleep]))
        return asleep[order][:more].tolist(), []
