"""Base of orderings and placements: a function with a score, smallest first.

It is compiled separately, in a fraction of a second, and passed to the engine as a first-class
function.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType
from typing import Any, ClassVar

from hpctwin.engine.compile.policy_modules import CHANGING, JobView, NodeView
from hpctwin.engine.state.records import Fact
from hpctwin.errors import PolicyError
from hpctwin.model.arguments import check_arguments
from hpctwin.policies.bytecode import MAY, changed, constants_of, place, plain_function

__all__ = ["ALL_FIELDS", "FACTS", "FAIRSHARE", "Ordering", "Score", "ordering", "uses"]

FAIRSHARE = frozenset({"fairshare", "usage"})
FACTS = frozenset(Fact.__annotations__)
ALL_FIELDS = CHANGING | FAIRSHARE | FACTS | {"chain"}
"""Fields that need preparation; a function that passes its job on may read any."""


@dataclass(frozen=True)
class Score:
    """A function of the time and a job, and maybe more, that returns a number.

    Args:
        name: Name in results and messages, as given on the command line.
        function: The function.
        kept: Whether the compiled form may be kept on disk (its code is in a file).
        constants: Globals that it read when it was made.
    """

    name: str
    function: Callable[..., float]
    kept: bool = field(default=False, kw_only=True)
    constants: Mapping[str, Any] = field(
        default_factory=dict, compare=False, repr=False, kw_only=True
    )

    what: ClassVar[str] = "score"
    signature: ClassVar[str]
    """Types of result and arguments, see `engine.compile.jit.Compiled`."""

    def __call__(self, *given: Any) -> float:
        """Compute the score in Python, for reading and for tests."""
        return self.function(*given)

    @property
    def label(self) -> str:
        """Name in messages."""
        return f"{self.what} {self.name!r}"

    def check(self, *, complete: bool = False) -> None:
        """Check the code again, and that the globals it reads are unchanged.

        Args:
            complete: Whether all names that it uses must be defined by now.

        Raises:
            PolicyError: It cannot be used; the message has file and line.
        """
        now = constants_of(self.function, self.label, complete=complete)
        what = changed(self.constants, now)
        if what is not None:
            where = place(plain_function(self.function).__code__)
            raise PolicyError(
                f"{where}: {self.label}: {what}; the values that a score reads are "
                "compiled as constants: define the score again"
            )

    @cached_property
    def compiled(self) -> Any:
        """The function compiled for the engine.

        Raises:
            PolicyError: It cannot be compiled.
        """
        from hpctwin.engine.compile.compile_errors import why_not_compiled
        from hpctwin.engine.compile.jit import Compiled

        self.check(complete=True)
        function = plain_function(self.function)
        try:
            found = Compiled(function, self.signature, kept=self.kept)
            found.compiled()
            return found
        except Exception as error:  # Numba does not wrap errors in its code
            where, reason = why_not_compiled(error, function)
            raise PolicyError(
                f"{where}: {self.label} cannot be compiled: {reason}; {MAY}, and must return a number"
            ) from error

    def reads(self) -> set[str]:
        """Return the fields of a job that it reads; all fields if it passes the job on."""
        function = plain_function(self.function)
        views: dict[str, Any] = {"now": None, "job": JobView, "node": NodeView}
        own = dict(list(views.items())[: function.__code__.co_argcount])
        return uses(function, self.label, own)["job"]


def uses(function: Any, label: str, views: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the fields that a function reads of each argument.

    Args:
        function: A Python function.
        label: Name in messages.
        views: Its arguments; for each the named tuple with the fields, or None for a number.

    Returns:
        Fields by argument; `ALL_FIELDS` if the argument is passed on, or is a number that is read.

    Raises:
        PolicyError: It is not such a function, or reads a field that does not exist; with file and
            line.
    """
    code: CodeType | None = getattr(function, "__code__", None)
    arguments = f"({', '.join(views)})"
    if not isinstance(code, CodeType):
        raise PolicyError(
            f"{label} is {type(function).__name__}; it must be a Python function {arguments}"
        )
    if code.co_argcount != len(views) or code.co_kwonlyargcount or code.co_flags & 0x0C:
        count = {2: "two", 3: "three"}[len(views)]
        raise PolicyError(
            f"{place(code)}: {label} must have exactly {count} arguments, {arguments}"
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
    """Return the name of the attribute that a step reads, if it reads one."""
    return str(step.argval) if step.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")) else None


_TIMES = frozenset({"submit", "eligible", "wait"})


@dataclass(frozen=True)
class Ordering(Score):
    """A function that orders pending jobs: ``(now, job) -> score``.

    The time is in seconds; the job is a `JobView`.

    Args:
        changes: Whether scores change while jobs wait. If not, the queue stays sorted.
        fairshare: Whether it reads ``fairshare`` or ``usage``.
        chain: Whether it reads ``chain``.
        facts: Whether it reads fields that most orderings do not; the engine gets them only if
            needed.
        summary: Description in one line.
        power: Exponent of scores over time: a job's score is a line to this power, or a line with
            one bend. A fair-share factor adds the same to all. 0 if not known. It makes long queues
            fast, see `hpctwin.engine.queue.priority_tournament`.
        times_only: Whether scores depend only on times and the fair share of a job.
        alone: Cheaper ordering with the same result if all jobs have one user (and account).
    """

    changes: bool
    fairshare: bool
    chain: bool = False
    facts: bool = True
    summary: str = ""
    power: float = 0.0
    times_only: bool = False
    alone: Ordering | None = None

    what: ClassVar[str] = "ordering"
    signature: ClassVar[str] = "float64(float64, Job)"

    @property
    def exact(self) -> bool:
        """Whether rounding cannot separate jobs of one label whose scores stay equal.

        A label is one of fair shares.
        """
        return not self.changes or (self.power == 1 and (not self.fairshare or self.times_only))


@check_arguments("function")
def ordering(
    function: Callable[[float, JobView], float] | None = None,
    *,
    name: str | None = None,
    changes: bool | None = None,
) -> Any:
    """Make an ordering from a function; also a decorator.

    Example:
        >>> from hpctwin import ordering
        >>> @ordering
        ... def widest_first(now, job):
        ...     return -job.nodes

    Args:
        function: Function of the time in seconds and a `JobView` that returns a number; smallest
            first.
        name: Name of the ordering; default the function's name with dashes.
        changes: Whether scores change while a job waits. By default it follows from the function:
            scores change if it reads ``now``, ``job.wait``, ``job.fairshare`` or ``job.usage``, or
            passes the job to another function.

    Raises:
        PolicyError: The function does not take two arguments, reads a field that jobs do not have,
            or does what no ordering may do: draw random numbers, read a clock or a global that
            changes, and the like.
    """
    if function is None:
        return lambda f: ordering(f, name=name, changes=changes)
    called = name or getattr(function, "__name__", type(function).__name__).replace("_", "-")
    label = f"ordering {called!r}"
    read = uses(plain_function(function), label, {"now": None, "job": JobView})
    fields = read["job"]
    return Ordering(
        called,
        function,
        changes=bool(read["now"] or fields & CHANGING) if changes is None else changes,
        fairshare=bool(fields & FAIRSHARE),
        chain="chain" in fields,
        facts=bool(fields & FACTS),
        times_only=fields <= _TIMES | FAIRSHARE,
        summary=(inspect.getdoc(function) or "").partition("\n")[0],
        constants=constants_of(function, label),
    )
