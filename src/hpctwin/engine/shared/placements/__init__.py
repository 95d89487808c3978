"""Placements on shared nodes: one module each, with a `Kernel` named ``PLACE``.

See `engine.compile.policy_modules`. The kernel is ``(j, sim) -> None``. From the nodes where tasks of the job
fit (``sim.fits``, in tasks; ``sim.min_free``: the scarcest free amount) it chooses some, and gives each its
tasks by `placement.give`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpctwin.engine.compile.policy_modules import Modules

if TYPE_CHECKING:
    from hpctwin.engine.compile.jit import Kernel

__all__ = ["SHARED_PLACEMENTS"]

SHARED_PLACEMENTS: Modules[Kernel] = Modules(__name__, "PLACE")
"""By name."""
