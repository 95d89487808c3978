"""The scheduling passes: each a module here, which registers itself.

A module ``my_pass.py`` holds a `Pass` called ``PASS``; policies name it ``my-pass``. The first line of its
text tells what it does, and a class ``Numbers`` in it what a policy may set: names, units, defaults and, as
comments, what they mean. Nothing else need be touched. A pass from elsewhere is added by `register`.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from hpctwin.engine import layout

if TYPE_CHECKING:
    from hpctwin.engine.jit import Kernel
    from hpctwin.engine.sim import Sim

__all__ = [
    "About",
    "Number",
    "Pass",
    "about",
    "find_pass",
    "kept_of",
    "made_of",
    "pass_names",
    "register",
]


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
        gave_back: ``(j, sim) -> None``; of passes on shared nodes: a running job leaves its nodes.
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
    gave_back: Kernel | None = None
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

    record = find_pass(name).kept
    assert record is not None
    return sim["kept"].view(record_type(record))[:, 0]


def pass_names() -> list[str]:
    """The names of all passes."""
    here = [module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__)]
    return sorted({*here, *_REGISTERED})


@dataclass(frozen=True)
class Number:
    """A number that a policy may set.

    Args:
        name: what it is called.
        unit: ``number``, ``count`` (1 or more), ``limit`` (1 or more, 0 for any), ``ms``, or ``step`` (ms, 1
            or more).
        default: its value if it is not set.
        help: what it means.
    """

    name: str
    unit: str
    default: int
    help: str = ""


@dataclass(frozen=True)
class About:
    """What can be told of a pass.

    Args:
        help: a line.
        numbers: what a policy may set.
    """

    help: str
    numbers: tuple[Number, ...]


@lru_cache(maxsize=64)
def about(name: str) -> About:
    """What can be told of a pass; for one of this folder nothing is compiled, and Numba is not loaded.

    Raises:
        KeyError: there is no such pass.
    """
    if name in _REGISTERED and importlib.util.find_spec(_module(name)) is None:
        record = _REGISTERED[name].numbers
        hints = {} if record is None else get_type_hints(record, include_extras=True)
        return About(
            (record.__doc__ or "" if record else "").partition("\n")[0],
            tuple(Number(f, _unit(h), getattr(record, f, 0)) for f, h in hints.items()),
        )
    spec = importlib.util.find_spec(_module(name))
    source = None if spec is None else getattr(spec.loader, "get_source")(spec.name)  # noqa: B009
    if source is None:
        raise KeyError(name)
    tree = ast.parse(source)
    help, _, _ = (ast.get_docstring(tree) or "").partition("\n")
    return About(help, tuple(_numbers(tree, source.splitlines())))


def _numbers(tree: ast.Module, lines: list[str]) -> Iterator[Number]:
    """The fields of the class ``Numbers``."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Numbers":
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    default = 0 if field.value is None else ast.literal_eval(field.value)
                    hint = getattr(layout, ast.unparse(field.annotation))
                    told = lines[field.lineno - 1].partition("#")[2].strip()
                    yield Number(field.target.id, _unit(hint), default, told)


def _unit(hint: Any) -> str:
    return str((*get_args(hint), "number")[2])


def _module(name: str) -> str:
    return f"{__name__}.{name.replace('-', '_')}" if name.replace("-", "").isalnum() else "-"


def find_pass(name: str) -> Pass:
    """The pass of a name, which is there."""
    if name not in _REGISTERED:
        module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
        register(name, module.PASS)
    return _REGISTERED[name]
