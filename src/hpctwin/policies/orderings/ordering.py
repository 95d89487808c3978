"""Orderings: which job is considered first."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from hpctwin.engine.compile.policy_views import CHANGING, JobView
from hpctwin.model.arguments import check_arguments
from hpctwin.policies.code.bytecode import constants_of, plain_function
from hpctwin.policies.code.score import FACTS, FAIRSHARE, Score, uses

__all__ = ["Ordering", "ordering"]

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

    @property
    def exact(self) -> bool:
        """Whether rounding cannot separate jobs of one label whose scores stay equal.

        A label is one of fair shares.
        """
        return not self.changes or (self.power == 1 and (not self.fairshare or self.times_only))

    def signature(self) -> Any:
        """Return the types of arguments and result, as Numba's signature."""
        from hpctwin.engine.compile.numba_types import ORDER_SIGNATURE

        return ORDER_SIGNATURE


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
