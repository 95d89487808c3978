"""The scheduling passes: each a module here, which holds a `Pass` called ``PASS``; see `engine.modules`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpctwin.engine.modules import Modules

if TYPE_CHECKING:
    from hpctwin.engine.jit import Kernel
    from hpctwin.engine.sim import Sim

__all__ = ["PASSES", "Pass", "kept_of", "made_of", "settings_of"]


@dataclass(frozen=True, eq=False)
class Pass:
    """A kind of scheduling pass: who may start now.

    Args:
        kernel: ``(sim) -> None``; called at each instant at which jobs wait. It starts jobs by
            `transitions.start_job`, and may set ``sim.clock.timer`` to have another instant.
        numbers: a record of what a policy may set; `settings` gives its values. None if nothing.
        own: a record of single numbers that the pass keeps from one pass to the next; None if nothing.
        kept: a record of what it keeps of each job; -1 where it keeps nothing; None if it never does.
        more_rows: so many rows of ``kept`` come after the jobs'.
        begin: ``(own, kept, state, queue)`` puts what is kept into its first state. Rows of jobs are those
            of the state's table; the queue holds those that wait.
        entered: ``(j, sim) -> None``: a job enters the queue.
        left: ``(j, sim) -> None``: a job goes from the queue without having started.
        reserved: ``(sim) -> None``; for passes whose reservations outlive them: takes what waiting jobs hold
            out of the plan.
        gave_back: ``(j, sim) -> None``; of passes on shared nodes: a running job leaves its nodes.
        in_order: whether jobs start in the ordering's order only.
        others: where counting nodes decides, what becomes of the others once one job does not fit
            (`counting.NOBODY_PASSES` …); None if the pass is not of that kind.
    """

    kernel: Kernel
    numbers: type | None = None
    own: type | None = None
    kept: type | None = None
    more_rows: int = 0
    begin: Callable[[Any, Any, Any, Any], None] | None = None
    entered: Kernel | None = None
    left: Kernel | None = None
    reserved: Kernel | None = None
    gave_back: Kernel | None = None
    in_order: bool = False
    others: int | None = None


def settings_of(record: type | None, values: Mapping[str, float]) -> Any:
    """Numbers that a policy may set, in the engine's form.

    Args:
        record: what there is to set; None for nothing.
        values: of all its fields.
    """
    import numpy as np

    from hpctwin.engine.layout import record_type

    if record is None:
        return np.zeros(0, np.int64)
    found = np.zeros(1, record_type(record))
    for name in found.dtype.names or ():
        found[name] = values[name]
    return found.view(np.int64)


PASSES: Modules[Pass] = Modules(__name__, "PASS")
"""By name."""


def made_of(function: Callable[..., None]) -> Pass:
    """The pass that a function ``(sim) -> None`` is, which keeps nothing and has nothing to set."""
    from numba import types

    from hpctwin.engine.jit import Kernel
    from hpctwin.engine.rows import SIM

    return Pass(Kernel(function, types.void(SIM)))


def kept_of(sim: Sim, name: str) -> Any:
    """What a pass keeps of each job, as a table of its record.

    Args:
        sim: a simulation under that pass.
        name: of the pass, which keeps something.
    """
    from hpctwin.engine.layout import record_type

    record = PASSES.find(name).kept
    assert record is not None
    return sim["kept"].view(record_type(record))[:, 0]
