"""The kinds of power policies: one module each, with a `PowerPass` named ``POWER``.

See `engine.compile.policy_modules`. One that takes timeout, deeper and keep sets ``TAKES_TIMEOUT = True``.
If it switches nothing without a timeout, it sets ``NEEDS_TIMEOUT = True`` too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpctwin.engine.compile.policy_modules import Modules
from hpctwin.engine.state.layout import ALL_NODES, LOWEST

if TYPE_CHECKING:
    from hpctwin.engine.compile.jit import Kernel
    from hpctwin.engine.passes import Pass

__all__ = ["POWER_PASSES", "PowerPass", "switched_by"]


@dataclass(frozen=True, eq=False)
class PowerPass:
    """A kind of power policy: when nodes are switched.

    Args:
        after: ``(sim) -> None``; called after each scheduling pass, and at each instant it asks for by
            `node_states.look_again`.
        numbers: a record of what a policy may set besides timeout, deeper and keep; `sim.power_numbers` gives
            its values. None if nothing.
        kept: a record of what it keeps of each node, in `sim.power_kept`, 0 at first; None if nothing.
        shown: which of the nodes that are not on jobs may be given: ``ALL_NODES``, ``NOT_SWITCHING_OFF`` or
            ``ONLY_ACTIVE``.
        preferred: which nodes of a pool first and best fit take: ``LOWEST``, ``SOONEST`` or ``LEAST_DRAW``;
            ``GIVEN`` if it claims the nodes itself.
        scheduling: the pass that goes with it in place of backfill ``none``, if it starts the jobs too.
        from_start: Whether it is called at the beginning; else when a timeout ends or a job comes.
        timeouts: whether timeout, deeper and keep are settings of it.
        refuses: ``(cluster, policy)`` to a sentence: why it does not go with them; empty if it does.
        shared: called in place of ``after`` where jobs share nodes; the same if None.
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


POWER_PASSES: Modules[PowerPass] = Modules(__name__, "POWER")
"""By name."""


def switched_by(function: Callable[..., None], **options: Any) -> PowerPass:
    """The power policy that a function ``(sim) -> None`` is; it is called at the beginning too.

    Args:
        function: called after each scheduling pass.
        options: further arguments of `PowerPass`.
    """
    from numba import types

    from hpctwin.engine.compile.jit import Kernel
    from hpctwin.engine.compile.numba_types import SIM

    return PowerPass(Kernel(function, types.void(SIM)), **{"from_start": True, **options})
