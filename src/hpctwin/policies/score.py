"""Base of orderings and placements: a function with a score, smallest first.

It is compiled separately, in a fraction of a second, and passed to the engine as a first-class
function.
"""

from __future__ import annotations

import dis
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import CodeType, SimpleNamespace
from typing import Any, ClassVar

from hpctwin.engine.compile.policy_modules import CHANGING, JobView
from hpctwin.engine.state.records import Fact
from hpctwin.errors import PolicyError, in_brief
from hpctwin.model.arguments import check_arguments
from hpctwin.policies.bytecode import MAY, changed, constants_of, place, plain_function

__all__ = ["ALL_FIELDS", "FACTS", "FAIRSHARE", "Ordering", "Score", "State", "ordering", "uses"]

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
    sets: ClassVar[bool] = False
    """Whether it may set numbers of its last argument; it then returns nothing."""

    @property
    def signature(self) -> str:
        """Types of result and arguments, see `engine.compile.jit.Compiled`."""
        raise NotImplementedError

    @property
    def views(self) -> Mapping[str, Any]:
        """Its arguments, see `uses`."""
        raise NotImplementedError

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
        now = constants_of(self.function, self.label, complete=complete, sets=self.sets)
        what = changed(self.constants, now)
        if what is not None:
            where = place(plain_function(self.function).__code__)
            raise PolicyError(
                f"{where}: {self.label}: {what}; the values that a score reads are "
                "compiled as constants: define the score again"
            )

    @cached_property
    def to_compile(self) -> Any:
        """The function as the engine compiles it.

        Raises:
            PolicyError: It cannot be used.
        """
        from hpctwin.engine.compile.jit import Compiled

        self.check(complete=True)
        return Compiled(plain_function(self.function), self.signature, kept=self.kept)

    @cached_property
    def compiled(self) -> Any:
        """The function compiled for the engine.

        Raises:
            PolicyError: It cannot be compiled.
        """
        from hpctwin.engine.compile.compile_errors import why_not_compiled

        found = self.to_compile
        function = found.function
        try:
            found.compiled()
            return found
        except Exception as error:  # Numba does not wrap errors in its code
            where, reason = why_not_compiled(error, function)
            raise PolicyError(
                f"{where}: {self.label} cannot be compiled: {reason}; {MAY}, and must return "
                f"{'nothing' if self.sets else 'a number'}"
            ) from error

    def reads(self) -> set[str]:
        """Return the fields of a job that it reads; all fields if it passes the job on."""
        return uses(plain_function(self.function), self.label, self.views)["job"]


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
    for number, step in enumerate(steps):
        following = next((s for s in steps[number + 1 :] if s.opname != "COPY"), step)
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
    """Return the name of the attribute that a step reads or sets, if it does."""
    names = ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR")
    return str(step.argval) if step.opname.startswith(names) else None


_TIMES = frozenset({"submit", "eligible", "wait"})


@dataclass(frozen=True)
class Update(Score):
    """A function that updates the state of a user: ``(now, job, user) -> None``.

    Args:
        numbers: Names of the numbers of a user.
    """

    numbers: tuple[str, ...]

    what: ClassVar[str] = "function"
    sets: ClassVar[bool] = True

    @property
    def signature(self) -> str:
        """Types of result and arguments."""
        return f"void(float64, Job, {_state_type(self.numbers)})"

    @property
    def views(self) -> Mapping[str, Any]:
        """Its arguments."""
        return _with_state(self.numbers)


@dataclass(frozen=True)
class State:
    """The numbers that an ordering keeps of each user or account.

    Args:
        first: Names of the numbers, and their values before the first job.
        by: ``user`` or ``account``. Jobs without one count as those of one more.
        started: Called when a job gets its nodes; None if nothing changes.
        ended: Called when a job returns its nodes; None if nothing changes.
        codes: Code of these functions. The same file gives equal states each time it is read.
    """

    first: tuple[tuple[str, float], ...]
    by: str
    started: Update | None = field(compare=False)
    ended: Update | None = field(compare=False)
    codes: tuple[CodeType, ...]

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the numbers."""
        return tuple(name for name, _ in self.first)

    @property
    def updates(self) -> tuple[Update, ...]:
        """The functions that change it."""
        return tuple(filter(None, (self.started, self.ended)))


def _state_type(numbers: tuple[str, ...]) -> str:
    """Return the type of a user's numbers in a signature."""
    return f"State('{' '.join(numbers)}')"


def _with_state(numbers: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the arguments of a function that gets a user's numbers, see `uses`."""
    return {"now": None, "job": JobView, "user": SimpleNamespace(_fields=numbers)}


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
        state: Numbers that it keeps of each user or account, and gets as an argument; None for none.
    """

    changes: bool
    fairshare: bool
    chain: bool = False
    facts: bool = True
    summary: str = ""
    power: float = 0.0
    times_only: bool = False
    alone: Ordering | None = None
    state: State | None = None

    what: ClassVar[str] = "ordering"

    @property
    def signature(self) -> str:
        """Types of result and arguments."""
        more = "" if self.state is None else f", {_state_type(self.state.numbers)}"
        return f"float64(float64, Job{more})"

    @property
    def views(self) -> Mapping[str, Any]:
        """Its arguments."""
        if self.state is not None:
            return _with_state(self.state.numbers)
        return {"now": None, "job": JobView}

    @property
    def updates(self) -> tuple[Update, ...]:
        """The functions that change its state."""
        return () if self.state is None else self.state.updates

    def check(self, *, complete: bool = False) -> None:
        """Check the code of all its functions again, see `Score.check`."""
        super().check(complete=complete)
        for update in self.updates:
            update.check(complete=complete)

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
    state: type | None = None,
    by: str = "user",
    started: Callable[[float, JobView, Any], None] | None = None,
    ended: Callable[[float, JobView, Any], None] | None = None,
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
            passes the job to another function, or has state.
        state: Class of the numbers to keep of each user: fields of type float with first values.
            The function gets them as its third argument.
        by: ``account`` to keep them of each account instead.
        started: Function ``(now, job, user)`` that updates the numbers when a job starts.
        ended: Function that updates them when a job has ended and returns its nodes.

    Raises:
        PolicyError: A function has other arguments, reads a field that does not exist, or does what
            no ordering may do: draw random numbers, read a clock or a global that changes, and the
            like.
    """
    if function is None:
        return partial(
            ordering, name=name, changes=changes, state=state, by=by, started=started, ended=ended
        )
    called = name or getattr(function, "__name__", type(function).__name__).replace("_", "-")
    label = f"ordering {called!r}"
    kept = _state(state, by, started, ended, label)
    views = {"now": None, "job": JobView} if kept is None else _with_state(kept.numbers)
    read = uses(plain_function(function), label, views)
    fields = read["job"]
    if kept is not None:
        changes = True
    return Ordering(
        called,
        function,
        changes=bool(read["now"] or fields & CHANGING) if changes is None else changes,
        fairshare=bool(fields & FAIRSHARE),
        chain="chain" in fields,
        facts=bool(fields & FACTS) or kept is not None,
        state=kept,
        times_only=fields <= _TIMES | FAIRSHARE,
        summary=(inspect.getdoc(function) or "").partition("\n")[0],
        constants=constants_of(function, label),
    )


def _state(
    kind: type | None,
    by: str,
    started: Callable[..., None] | None,
    ended: Callable[..., None] | None,
    label: str,
) -> State | None:
    """Return the state that an ordering declares; None if it has none."""
    if kind is None:
        if started is not None or ended is not None:
            raise PolicyError(f"{label}: started and ended need state=, a class of numbers")
        return None
    if by not in ("user", "account"):
        raise PolicyError(f"{label}: by is {by!r}; it must be user or account")
    if started is None and ended is None:
        raise PolicyError(f"{label}: its state never changes; give started= or ended=")
    first = _first(kind, label)
    numbers = tuple(name for name, _ in first)
    begins, ends = (_update(one, numbers, label) for one in (started, ended))
    codes = tuple(plain_function(one).__code__ for one in (started, ended) if one is not None)
    return State(first, by, begins, ends, codes)


def _first(kind: type, label: str) -> tuple[tuple[str, float], ...]:
    """Return the numbers that a class declares, and their first values."""
    names = list(getattr(kind, "__annotations__", {})) if isinstance(kind, type) else []
    if not names:
        raise PolicyError(
            f"{label}: state is {in_brief(kind)}; it must be a class with fields such as "
            "`running: float = 0.0`"
        )
    first = []
    for name in names:
        value = getattr(kind, name, None)
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise PolicyError(
                f"{label}: {name} of its state begins as {in_brief(value)}; it must be a number, as in "
                f"`{name}: float = 0.0`"
            )
        first.append((name, float(value)))
    return tuple(first)


def _update(function: Any, numbers: tuple[str, ...], label: str) -> Update | None:
    """Return a function that changes an ordering's state; None if there is none."""
    if function is None:
        return None
    name = getattr(function, "__name__", type(function).__name__)
    own = f"{Update.what} {name!r}"
    read = uses(plain_function(function), own, _with_state(numbers))["job"]
    if read < ALL_FIELDS and (unknown := read & FAIRSHARE):
        raise PolicyError(
            f"{place(plain_function(function).__code__)}: {own} reads {' and '.join(sorted(unknown))}, "
            f"which only {label} may read"
        )
    constants = constants_of(function, own, sets=True)
    return Update(name, function, numbers=numbers, constants=constants)
