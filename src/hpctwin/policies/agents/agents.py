"""A trained agent as an ordering or a power policy."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpctwin.errors import PolicyError
from hpctwin.policies.agents.network import Network
from hpctwin.policies.orderings.ordering import Ordering, ordering

if TYPE_CHECKING:
    from hpctwin.engine.compile.policy_views import JobView

__all__ = ["agent_ordering", "read_agent"]

ORDERS = "JobSelection"
SEEN = "job"


def read_agent(text: str, kind: str) -> Network:
    """Return the network of an agent that was trained in an environment of one kind.

    Raises:
        PolicyError: It was not.
    """
    network = Network.load(text)
    made = network.card.get("environment")
    if made != kind:
        use = {ORDERS: "an ordering", "PowerManagement": "a power policy"}
        raise PolicyError(
            f"{text} is an agent of {made}, it can be {use.get(str(made), 'no part of a policy')}"
        )
    return network


def agent_ordering(text: str) -> Ordering:
    """Return an agent of job selection as an ordering: its choice comes first.

    Args:
        text: Path of its file.

    Raises:
        PolicyError: It is not such an agent, or its observation is not available to orderings.
    """
    return _ordering(text, Path(text).stat().st_mtime_ns if Path(text).exists() else 0)


@lru_cache(maxsize=64)
def _ordering(text: str, changed: int) -> Ordering:
    network = read_agent(text, ORDERS)
    seen = network.card.get("options", {}).get("observation")
    if seen != SEEN or len(network.layers) != 3:
        raise PolicyError(
            f"{text} sees {seen!r}, of which orderings know nothing; train it with observation {SEEN!r}"
        )
    arrays = [np.array(one, np.float64) for layer in network.layers for one in layer]
    for array in arrays:
        array.flags.writeable = False
    made: Ordering = ordering(_scored(*arrays), name=text, changes=True)
    return made


def _scored(w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any) -> Any:
    from hpctwin.engine.agents.features import seen_by_orderings

    first, second = len(b1), len(b2)

    def score(now: float, job: JobView) -> float:
        a, b, c, d, e = seen_by_orderings(job.wait, job.walltime, job.nodes, job.machine_nodes)
        hidden = np.zeros(first)
        for h in range(first):
            x = b1[h] + w1[h, 0] + w1[h, 1] * a + w1[h, 2] * b + w1[h, 3] * c
            hidden[h] = np.tanh(x + w1[h, 4] * d + w1[h, 5] * e)
        total = b3[0]
        for h in range(second):
            x = b2[h]
            for k in range(first):
                x += w2[h, k] * hidden[k]
            total += w3[0, h] * np.tanh(x)
        return -float(total)

    return score
