"""Orderings: which job is considered first."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from hpctwin.engine.compile.policy_views import CHANGING, JobView
from hpctwin.model.input.arguments import check_arguments
from hpctwin.policies.code.bytecode import constants_of, plain_function
from hpctwin.policies.code.score import FACTS, FAIRSHARE, Score, uses

__all__ = ["Ordering", "ordering"]

_TIMES = frozenset({"submit", "eligible", "wait"})


@dataclass(frozen=True)
class Ordering(Score):
    """A function that orders waiting jobs: ``(now, job) -> score``, seconds and `JobView`.

    Args:
        changes: whether scores change while jobs wait. If not, the queue stays sorted.
        fairshare: whether it asks for ``fairshare`` or ``usage``.
        chain: whether it asks for ``chain``.
        facts: whether it asks for what most do not, and the engine is only told if it must be.
        summary: one line about it.
        power: scores are, over the time a job waits, lines to this power, or lines bent once; a fair-share
            factor adds the same to all. 0 where nothing is known. It makes long queues fast, see
            `hpctwin.engine.queue.priority_tournament`.
        times_only: whether scores depend on nothing of a job but times and its fair share.
        alone: what orders the same where all jobs have one user (and account), and costs less.
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
        """Whether jobs of one fair-share label whose scores stay equal are not told apart by rounding."""
        return not self.changes or (self.power == 1 and (not self.fairshare or self.times_only))

    def signature(self) -> Any:
        """What the engine calls it with, and what it gets, in Numba's words."""
        from hpctwin.engine.compile.numba_types import ORDER_SIGNATURE

        return ORDER_SIGNATURE


@check_arguments("function")
def ordering(
    function: Callable[[float, JobView], float] | None = None,
    *,
    name: str | None = None,
    changes: bool | None = None,
) -> Any:
    """Make an ordering of a function; a decorator.

    Example:
        >>> from hpctwin import ordering
        >>> @ordering
        ... def widest_first(now, job):
        ...     return -job.nodes

    Args:
        function: takes the time in seconds and a `JobView`, returns a number; smallest first.
        name: default the function's name with dashes.
        changes: whether scores change while a job waits. Left out, it is read off the function:
            it changes if it uses ``now``, ``job.wait``, ``job.fairshare`` or ``job.usage``, or hands the
            job on to another function.

    Raises:
        PolicyError: it does not take two arguments, asks for a field that jobs do not have, or does what
            no ordering may do: draw random numbers, read a clock or a global that changes, and the like.
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
