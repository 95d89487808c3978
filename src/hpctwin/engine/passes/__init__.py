"""The scheduling passes: one module each, with a `Pass` named ``PASS``.

See `engine.compile.policy_modules`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any

from hpctwin.engine.capacity_models import (
    WHOLE_NODES,
    CapacityModel,
    bind,
    capacity,
    uses_capacity,
)
from hpctwin.engine.compile.jit import Kernel
from hpctwin.engine.compile.library import symbol_of
from hpctwin.engine.compile.policy_modules import Modules
from hpctwin.engine.state.layout import NEVER

if TYPE_CHECKING:
    from hpctwin.engine.state.layout import Arrays
    from hpctwin.engine.state.sim import Sim

__all__ = ["PASSES", "Pass", "capacity", "kept_of", "made_of", "settings_of"]


@dataclass(frozen=True, eq=False)
class Pass:
    """A backfill: a scheduling pass, which starts some of the pending jobs.

    Functions written with `capacity` work with every capacity model (`on`), others with whole nodes
    only.

    Args:
        run: ``(sim) -> None``; called at each event time at which jobs are pending. It may set
            ``sim.clock.timer`` to be called at another time.
        numbers: Record of the settings of a policy; `settings` gives its values. None if there are
            none.
        own: Record of single numbers that last from one pass to the next; None if there are none.
        kept: Record of each job's data that last from one pass to the next, -1 where there are
            none; None if the pass keeps no data of jobs.
        more_rows: Number of rows of ``kept`` after those of the jobs.
        begin: ``(own, kept, state, queue)`` sets the initial state. Rows of jobs are those of the
            state's table; the queue holds the pending jobs.
        move: ``(before, sim, place)`` moves ``own`` and ``kept`` to a simulation with other jobs, if
            they contain rows of jobs. ``place`` is the new row of each row, -1 if its job is gone.
        entered: ``(j, sim) -> None``: a job enters the queue.
        left: ``(j, sim) -> None``: a job leaves the queue without having started.
        reserved: ``(sim) -> None``; for reservations that outlive the pass: takes them out of the
            plan.
        in_order: Whether jobs start in the ordering's order only.
        others: Where counting nodes decides, effect on other jobs of one that does not fit
            (`layout.NOBODY_PASSES` …); None if the pass is not of that kind.
        counted: ``(sim) -> None``: the same pass where counting decides; by default
            `counted_passes.COUNTED`.
        raced: ``(sim) -> None``: the same pass with a tournament, for long queues on shared nodes;
            None if there is none.
        keeps: Reason why a job waits though nothing is short and no limit is reached.
        reservations: ``(numbers, partitions) -> jobs``: the maximum number of jobs with
            reservations, given the settings. None for any number.
        by_node: Whether it makes rounded reservations, which may be of particular nodes.
        model: Capacity model it runs with.
    """

    run: Callable[[Any], None]
    numbers: type | None = None
    own: type | None = None
    kept: type | None = None
    more_rows: int = 0
    begin: Callable[[Any, Any, Any, Any], None] | None = None
    move: Callable[[Any, Any, Any], None] | None = None
    entered: Callable[[int, Any], None] | None = None
    left: Callable[[int, Any], None] | None = None
    reserved: Callable[[Any], None] | None = None
    in_order: bool = False
    others: int | None = None
    counted: Callable[[Any], None] | None = None
    raced: Callable[[Any], None] | None = None
    keeps: str = "the backfill does not let it start"
    reservations: Callable[[Mapping[str, int], int], int] | None = None
    by_node: bool = False
    model: CapacityModel = WHOLE_NODES

    def works_on(self, model: CapacityModel) -> bool:
        """Return whether the pass runs with a capacity model."""
        return model is self.model or uses_capacity(getattr(self.run, "py_func", self.run))

    def on(self, model: CapacityModel) -> Pass:
        """Return the pass with another capacity model, which it must support."""
        return self if model is self.model else _on(self, model)

    def most_reservations(self, numbers: Mapping[str, int], partitions: int) -> int:
        """Return the maximum number of jobs with reservations, given the settings."""
        return int(NEVER) if self.reservations is None else self.reservations(numbers, partitions)

    def kernel(self, name: str) -> Kernel | None:
        """Return the kernel of one of its functions, such as ``run``; None if it has none.

        Loops of a pass on whole nodes are not unrolled: it would be no faster.
        """
        function = getattr(self, name)
        if function is None:
            return None
        plain = getattr(function, "py_func", function)
        signature = "void(int64, Sim)" if name in ("entered", "left") else "void(Sim)"
        model = self.model if uses_capacity(plain) else WHOLE_NODES
        return _kernel(plain, model, signature, unrolled=self.model.shared or name != "run")


@cache
def _on(found: Pass, model: CapacityModel) -> Pass:
    return replace(found, model=model, others=None)


class _PassKernel(Kernel):
    """A pass's function with `capacity` as one model, which is imported only to compile it."""

    def __init__(
        self, function: Callable[..., None], model: CapacityModel, signature: str, *, unrolled: bool
    ) -> None:
        suffix = f"_{model.name}" if uses_capacity(function) else ""
        super().__init__(symbol_of(function) + suffix, signature, unrolled=unrolled)
        self._bound = partial(bind, function, model)

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The Python function."""
        return self._bound()


_kernel = cache(_PassKernel)


def settings_of(record: type | None, values: Mapping[str, float]) -> Any:
    """Return the settings of a policy in the engine's form.

    Args:
        record: Record of the settings; None if there are none.
        values: Values of all its fields.
    """
    import numpy as np

    from hpctwin.engine.state.layout import record_type

    if record is None:
        return np.zeros(0, np.int64)
    found = np.zeros(1, record_type(record))
    for name in found.dtype.names or ():
        found[name] = values[name]
    return found.view(np.int64)


PASSES: Modules[Pass] = Modules(__name__, "PASS")
"""All passes by name."""


def made_of(function: Callable[[Arrays], None]) -> Pass:
    """Return the pass of a function ``(sim) -> None``, without state or settings."""
    return Pass(function)


def kept_of(sim: Sim, name: str) -> Any:
    """Return the table of the data that a pass keeps of each job.

    Args:
        sim: Simulation under that pass.
        name: Name of the pass, which must keep data of jobs.
    """
    from hpctwin.engine.state.layout import record_type

    record = PASSES.find(name).kept
    assert record is not None
    return sim["kept"].view(record_type(record))[:, 0]
