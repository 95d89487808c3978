"""Jobs that communicate as `whole_blocks`; others in gaps, or on the last blocks."""

from __future__ import annotations

from hpctwin.engine.compile.jit import Kernel
from hpctwin.engine.placement.node_selection import COMMUNICATES
from hpctwin.engine.shared.placements.whole_blocks import use_blocks
from hpctwin.engine.state.layout import Arrays


def place_communication_aware(j: int, sim: Arrays) -> None:
    """Use whole blocks for jobs that communicate, and gaps for others."""
    use_blocks(sim.fact[j].communication < COMMUNICATES, sim)


PLACE = Kernel(place_communication_aware, "void(int64, Sim)")
