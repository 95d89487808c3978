"""The scheduling passes: one module each, with a `Pass` named ``PASS`` (`engine.compile.policy_modules`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hpctwin.engine.compile.policy_modules import Modules
from hpctwin.errors import PolicyError

if TYPE_CHECKING:
    from hpctwin.engine.compile.jit import Kernel
    from hpctwin.engine.state.sim import Sim

__all__ = ["PASSES", "Pass", "SharedPass", "kept_of", "made_of", "settings_of"]


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
        in_order: whether jobs start in the ordering's order only.
        others: where counting nodes decides, what becomes of the others once one job does not fit
            (`layout.NOBODY_PASSES` …); None if the pass is not of that kind.
        counted: the same kind of pass where counting decides; `counting.COUNTED` if left out.
        keeps: what is said of a job that waits though nothing is short and no limit is reached.
        shared: the pass where jobs share nodes, or the module that holds it as ``PASS``, loaded once there
            are such jobs; None if there is none, and such jobs are refused.
        by_node: the module that holds as ``PASS`` what plans particular nodes where the placement is
            `layout.CONTIGUOUS`; None if numbers of nodes are planned in any case.
        placing: ``(j, sim) -> None``: claims the nodes of a starting job, which the pass has chosen; None if
            the placement chooses them.
        reserves: ``(numbers) -> jobs``: so many jobs, at most, have reservations in a pass that are sets of
            nodes, given what the policy sets (`node_spans`); None if none has.
        wake: ``(sim) -> None``: has those go on that were suspended and may run again, before each pass. None
            where nobody is suspended.

    Raises:
        PolicyError: what is given for shared nodes is not of them, or is set by other numbers.
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
    in_order: bool = False
    others: int | None = None
    counted: Kernel | None = None
    keeps: str = "the backfill does not let it start"
    shared: SharedPass | str | None = None
    by_node: str | None = None
    placing: Kernel | None = None
    reserves: Callable[[Mapping[str, int]], int] | None = None
    wake: Kernel | None = None

    def __post_init__(self) -> None:
        if self.shared is None or isinstance(self.shared, str):
            return
        if not isinstance(self.shared, SharedPass):
            raise PolicyError(
                f"shared= of a Pass is {type(self.shared).__name__}; give a SharedPass (engine.passes)"
            )
        if self.shared.numbers is not self.numbers:
            raise PolicyError(
                "a Pass and its pass on shared nodes are set by the same numbers; give both the same numbers="
            )

    def on_shared_nodes(self) -> SharedPass | None:
        """The pass where jobs share nodes; None if there is none."""
        if isinstance(self.shared, str):
            found: SharedPass = import_module(self.shared).PASS
            return found
        return self.shared

    def on_particular_nodes(self) -> Pass | None:
        """The pass that plans particular nodes; None if there is none."""
        if self.by_node is None:
            return None
        found: Pass = import_module(self.by_node).PASS
        return found


@dataclass(frozen=True, eq=False)
class SharedPass(Pass):
    """A kind of scheduling pass where jobs share nodes: as `Pass`, its calls those of `engine.shared`.

    Args:
        promises: ``(numbers, partitions) -> jobs``: to so many jobs, at most, are nodes promised at a time,
            given what the policy sets, in the engine's form, and how many partitions there are. None if
            to any number, so that there is room for all that wait.
        fits_later: ``(j, sim) -> None``: whether a job fits if others leave (`fit_after_eviction`).
            None where nobody is preempted.
    """

    promises: Callable[[Mapping[str, int], int], int] | None = None
    fits_later: Kernel | None = None


def settings_of(record: type | None, values: Mapping[str, float]) -> Any:
    """Numbers that a policy may set, in the engine's form.

    Args:
        record: what there is to set; None for nothing.
        values: of all its fields.
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
"""By name."""


def made_of(function: Callable[..., None]) -> Pass:
    """The pass that a function ``(sim) -> None`` is, which keeps nothing and has nothing to set."""
    from numba import types

    from hpctwin.engine.compile.jit import Kernel
    from hpctwin.engine.compile.numba_types import SIM

    return Pass(Kernel(function, types.void(SIM)))


def kept_of(sim: Sim, name: str) -> Any:
    """What a pass keeps of each job, as a table of its record.

    Args:
        sim: a simulation under that pass.
        name: of the pass, which keeps something.
    """
    from hpctwin.engine.state.layout import record_type

    found: Pass | None = PASSES.find(name)
    if found is not None and len(sim["share"]):
        found = found.on_shared_nodes()
    assert found is not None, "refused where nodes are shared"
    record = found.kept
    assert record is not None
    return sim["kept"].view(record_type(record))[:, 0]
