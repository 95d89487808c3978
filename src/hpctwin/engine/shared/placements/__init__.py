"""The placements on nodes that jobs share: each a module here, which holds a `Kernel` called ``PLACE``.

See `engine.compile.policy_modules`. It is ``(j, sim) -> None``: of the nodes with room for the job (``sim.fits``, in tasks;
what is least free of them in ``sim.least``) it chooses some, and gives each its tasks by `placing.give`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpctwin.engine.compile.policy_modules import Modules

if TYPE_CHECKING:
    from hpctwin.engine.compile.jit import Kernel

__all__ = ["SHARED_PLACEMENTS"]

SHARED_PLACEMENTS: Modules[Kernel] = Modules(__name__, "PLACE")
"""By name."""
