"""Placements on shared nodes: one module each, with a `Kernel` named ``PLACE``.

See `engine.compile.policy_modules`. The kernel is ``(j, sim) -> None``. It chooses among the nodes
on which tasks of the job fit, and assigns tasks to each with `placement.give`. ``sim.fits`` is the
number of tasks that fit on a node, ``sim.min_free`` the minimum of each free amount.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpctwin.engine.compile.policy_modules import Modules

if TYPE_CHECKING:
    from hpctwin.engine.compile.jit import Kernel

__all__ = ["SHARED_PLACEMENTS"]

SHARED_PLACEMENTS: Modules[Kernel] = Modules(__name__, "PLACE")
"""Placements on shared nodes, by name."""
