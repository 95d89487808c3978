"""Kinds of power policies: one module each, with a `PowerPass` named ``POWER``.

See `engine.compile.policy_modules`. A policy with the settings timeout, deeper and keep sets
``TAKES_TIMEOUT = True``. If it switches nothing without a timeout, it also sets ``NEEDS_TIMEOUT =
True``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpctwin.engine.compile.jit import Kernel
from hpctwin.engine.compile.policy_modules import Modules
from hpctwin.engine.state.layout import ALL_NODES, LOWEST, SOONEST

if TYPE_CHECKING:
    from hpctwin.engine.passes import Pass

__all__ = ["POWER_PASSES", "PowerPass", "switched_by"]


@dataclass(frozen=True, eq=False)
class PowerPass:
    """A kind of power policy: when nodes are switched.

    Args:
        after: ``(sim) -> None``; called after each scheduling pass, and at each time requested by
            `node_states.look_again`.
        numbers: Record of the policy's settings besides timeout, deeper and keep;
            `sim.power_numbers` holds their values. None if there are none.
        kept: Record of the policy's data per node, in `sim.power_kept`, initially 0. None if there
            is none.
        shown: Which of the nodes that are not on jobs may get: ``ALL_NODES``, ``NOT_SWITCHING_OFF``
            or ``ONLY_ACTIVE``.
        preferred: Which nodes of a pool first and best fit take: ``LOWEST``, ``SOONEST`` or
            ``LEAST_DRAW``; ``GIVEN`` if the policy claims the nodes itself.
        scheduling: Pass that replaces backfill ``none`` if the policy also starts the jobs.
        from_start: Whether it is also called at the beginning; otherwise its first call is when a
            timeout ends or a job arrives.
        timeouts: Whether timeout, deeper and keep are settings of the policy.
        refuses: ``(cluster, policy)`` to a sentence that says why they are incompatible with it;
            empty if they are compatible.
        shared: Called instead of ``after`` if jobs share nodes; None for the same function.
    """

    after: Kernel
    numbers: type | None = None
    kept: type | None = None
    shown: int = int(ALL_NODES)
    preferred: int = int(LOWEST)
    scheduling: Pass | None = None
    from_start: bool = False
    timeouts: bool = False
    refuses: Callable[[Any, Any], str] = lambda cluster, policy: ""
    shared: Kernel | None = None

    def why_not(self, cluster: Any, policy: Any, *, shares: bool, interrupted: bool) -> str:
        """Return why it does not work with a cluster, a policy and jobs; empty if it does.

        Args:
            cluster: The cluster.
            policy: The policy that it is a part of.
            shares: Whether nodes are planned as shared nodes.
            interrupted: Whether jobs preempt others, or continue from checkpoints.
        """
        if shares and not (self.scheduling is None and self.preferred in (LOWEST, SOONEST)):
            own = policy.placement
            what = f"placement {own.name!r}" if own.shared_only else "jobs with tasks"
            return (
                f"it needs exclusive nodes and does not support {what}; use none, psus, psas-auto "
                "or psas-ipm"
            )
        if interrupted and self.scheduling is not None:
            return (
                "it starts jobs itself and preempts no job; use psus, psas-auto or psas-ipm, "
                f"or remove preemption and checkpoints from cluster {cluster.name!r}"
            )
        return self.refuses(cluster, policy)


POWER_PASSES: Modules[PowerPass] = Modules(__name__, "POWER")
"""Power policies by name."""


def switched_by(function: Callable[..., None], **options: Any) -> PowerPass:
    """Make a power policy from a function ``(sim) -> None``.

    The function is also called at the beginning.

    Args:
        function: Called after each scheduling pass.
        options: Further arguments of `PowerPass`.
    """
    return PowerPass(Kernel(function, "void(Sim)"), **{"from_start": True, **options})
