"""The scheduling passes: each a module here, which registers itself.

A module ``my_pass.py`` holds a `Pass` called ``PASS``; policies name it ``my-pass``. Nothing else need be
touched. A pass from elsewhere is added by `register`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpctwin.engine.jit import Kernel
    from hpctwin.engine.sim import Sim

__all__ = ["Pass", "find_pass", "kept_of", "pass_names", "register"]


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
        by_node: whether ``kept`` is of nodes, not jobs.
        begin: ``(own, kept, state, queue)`` puts what is kept into its first state. Rows of jobs are those
            of the state's table; the queue holds those that wait.
        entered: ``(j, sim) -> None``: a job enters the queue.
        left: ``(j, sim) -> None``: a job goes from the queue without having started.
        reserved: ``(sim) -> None``; for passes whose reservations outlive them: takes what waiting jobs hold
            out of the plan.
        in_order: whether jobs start in the ordering's order only.
    """

    kernel: Kernel
    numbers: type | None = None
    own: type | None = None
    kept: type | None = None
    more_rows: int = 0
    by_node: bool = False
    begin: Callable[[Any, Any, Any, Any], None] | None = None
    entered: Kernel | None = None
    left: Kernel | None = None
    reserved: Kernel | None = None
    in_order: bool = False

    def settings(self, values: Mapping[str, float]) -> Any:
        """The numbers in the engine's form.

        Args:
            values: of all fields of ``numbers``.
        """
        import numpy as np

        from hpctwin.engine.layout import record_type

        if self.numbers is None:
            return np.zeros(0, np.int64)
        found = np.zeros(1, record_type(self.numbers))
        for name in found.dtype.names or ():
            found[name] = values[name]
        return found.view(np.int64)


_REGISTERED: dict[str, Pass] = {}


def register(name: str, found: Pass) -> Pass:
    """Let policies name a pass."""
    _REGISTERED[name] = found
    return found


def kept_of(sim: Sim, name: str) -> Any:
    """What a pass keeps of each job, as a table of its record.

    Args:
        sim: a simulation under that pass.
        name: of the pass, which keeps something.
    """
    from hpctwin.engine.layout import record_type

    record = find_pass(name).kept
    assert record is not None
    return sim["kept"].view(record_type(record))[:, 0]


def pass_names() -> list[str]:
    """The names of all passes."""
    here = [module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__)]
    return sorted({*here, *_REGISTERED})


def find_pass(name: str) -> Pass:
    """The pass of a name, which is there."""
    if name not in _REGISTERED:
        module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
        register(name, module.PASS)
    return _REGISTERED[name]
