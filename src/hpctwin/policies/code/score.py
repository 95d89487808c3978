"""What orderings and placements have in common: a function that gives a score, smallest first.

It is compiled on its own, in a fraction of a second, and handed to the engine as a first-class function.
"""

from __future__ import annotations

import dis
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType
from typing import Any, ClassVar

from hpctwin.engine.compile.policy_views import CHANGING, JobView, NodeView
from hpctwin.engine.state.records import Fact
from hpctwin.errors import PolicyError
from hpctwin.policies.code.bytecode import MAY, changed, constants_of, place, plain_function

__all__ = ["ALL_FIELDS", "FACTS", "FAIRSHARE", "Score", "uses"]

FAIRSHARE = frozenset({"fairshare", "usage"})
FACTS = frozenset(Fact.__annotations__)
ALL_FIELDS = CHANGING | FAIRSHARE | FACTS | {"chain"}
"""Fields that something must be done for; a function that hands its job on may ask for any of them."""


@dataclass(frozen=True)
class Score(ABC):
    """A function of the time and a job, and maybe more, that gives a number.

    Args:
        name: how results and messages call it; what was given on the command line.
        function: it.
        kept: whether the compiled form may be kept on disk (its code lives in a file).
        constants: the globals that it read when it was made.
    """

    name: str
    function: Callable[..., float]
    kept: bool = field(default=False, kw_only=True)
    constants: Mapping[str, Any] = field(
        default_factory=dict, compare=False, repr=False, kw_only=True
    )

    what: ClassVar[str] = "score"

    def __call__(self, *given: Any) -> float:
        """The score, computed by Python; for reading and for tests."""
        return self.function(*given)

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"{self.what} {self.name!r}"

    def check(self, *, complete: bool = False) -> None:
        """Look once more at what its code does, and whether the globals it reads are what they were.

        Args:
            complete: whether all names that it asks for must be there by now.

        Raises:
            PolicyError: it may not be used; the message tells file and line.
        """
        now = constants_of(self.function, self.label, complete=complete)
        what = changed(self.constants, now)
        if what is not None:
            where = place(plain_function(self.function).__code__)
            raise PolicyError(
                f"{where}: {self.label}: {what}; what it reads is a constant of it: make it anew"
            )

    @cached_property
    def compiled(self) -> Any:
        """The function compiled for the engine.

        Raises:
            PolicyError: it cannot be compiled.
        """
        from hpctwin.engine.compile.compile_errors import why_not_compiled
        from hpctwin.engine.compile.jit import compiled_score

        self.check(complete=True)
        function = plain_function(self.function)
        try:
            return compiled_score(function, self.signature(), keep=self.kept)
        except Exception as error:  # Numba lets through what its own code stumbles over
            where, reason = why_not_compiled(error, function)
            raise PolicyError(
                f"{where}: {self.label} cannot be compiled: {reason}; {MAY}, and must return a number"
            ) from error

    def reads(self) -> set[str]:
        """The fields of a job that it reads; all that there are if it hands the job on."""
        function = plain_function(self.function)
        views: dict[str, Any] = {"now": None, "job": JobView, "node": NodeView}
        own = dict(list(views.items())[: function.__code__.co_argcount])
        return uses(function, self.label, own)["job"]

    @abstractmethod
    def signature(self) -> Any:
        """What the engine calls it with, and what it gets, in Numba's words."""


def uses(function: Any, label: str, views: Mapping[str, Any]) -> dict[str, set[str]]:
    """What a function reads of each of its arguments.

    Args:
        function: a Python function.
        label: how messages call it.
        views: its arguments; what each is a tuple of, by field, or None for a number.

    Returns:
        Fields by argument; `ALL_FIELDS` of one that is handed on, or of a number that is read.

    Raises:
        PolicyError: it is no such function, or asks for a field that is not there; with file and line.
    """
    code: CodeType | None = getattr(function, "__code__", None)
    arguments = f"({', '.join(views)})"
    if not isinstance(code, CodeType):
        raise PolicyError(
            f"{label} is {type(function).__name__}, it must be a Python function {arguments}"
        )
    if code.co_argcount != len(views) or code.co_kwonlyargcount or code.co_flags & 0x0C:
        count = {2: "two", 3: "three"}[len(views)]
        raise PolicyError(
            f"{place(code)}: {label} must take exactly {count} arguments, {arguments}"
        )
    own = dict(zip(code.co_varnames, views, strict=False))
    found: dict[str, set[str]] = {argument: set() for argument in views}
    steps = list(dis.get_instructions(code))
    for step, following in zip(steps, [*steps[1:], steps[-1]], strict=True):
        loads = step.opname.startswith("LOAD_FAST")
        if not loads and not step.opname.startswith(("STORE_FAST", "MAKE_CELL", "LOAD_CLOSURE")):
            continue
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        for name in filter(own.__contains__, names):
            view = views[own[name]]
            read = loads and view and name == names[-1] and _attribute(following)
            if read and read not in view._fields:
                line = following.positions.lineno if following.positions else None
                raise PolicyError(
                    f"{place(code, line)}: {label}: a {own[name]} has no field {read!r}; it has "
                    f"{', '.join(view._fields)}"
                )
            found[own[name]] |= {read} if read else ALL_FIELDS
    return found


def _attribute(step: dis.Instruction) -> str | None:
    """The name of the attribute that a step reads, if it reads one."""
    return str(step.argval) if step.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")) else None
