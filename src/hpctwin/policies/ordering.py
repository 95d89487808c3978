"""Orderings: which job is considered first.

An ordering is a plain function ``(now, job) -> score``; the smallest score comes first. It is
compiled on its own, in a fraction of a second, and handed to the engine as a first-class function.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import CodeType
from typing import Any

from hpctwin.engine.abi import CHANGING, JobView
from hpctwin.errors import PolicyError

__all__ = ["Ordering", "ordering"]

_FAIRSHARE = frozenset({"fairshare", "usage"})


@dataclass(frozen=True)
class Ordering:
    """A function that orders waiting jobs.

    Args:
        name: how results and messages call it; what was given on the command line.
        function: ``(now, job) -> score``, seconds and `JobView`.
        changes: whether scores change while jobs wait. If not, the queue stays sorted.
        fairshare: whether it asks for ``fairshare`` or ``usage``.
        chain: whether it asks for ``chain``.
        summary: one line about it.
        kept: whether the compiled form may be kept on disk (its code lives in a file).
        alone: what orders the same where all jobs have one user (and account), and costs less.
    """

    name: str
    function: Callable[[float, JobView], float]
    changes: bool
    fairshare: bool
    chain: bool = False
    summary: str = ""
    kept: bool = False
    alone: Ordering | None = None

    def __call__(self, now: float, job: JobView) -> float:
        """The score, computed by Python; for reading and for tests."""
        return self.function(now, job)

    @cached_property
    def compiled(self) -> Any:
        """The function compiled for the engine.

        Raises:
            PolicyError: it cannot be compiled.
        """
        import numba

        from hpctwin.engine.jit import kept_on_disk
        from hpctwin.engine.kernel import ORDER_SIGNATURE

        try:
            with kept_on_disk() as keep:
                compiler = numba.njit(
                    ORDER_SIGNATURE, nogil=True, error_model="numpy", cache=keep and self.kept
                )
                return compiler(self.function)
        except numba.core.errors.NumbaError as error:
            reason = _reason(str(error))
            raise PolicyError(
                f"ordering {self.name!r} cannot be compiled: {reason}. It may use numbers, "
                "math functions and the fields of the job, and must return a number"
            ) from error


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
        PolicyError: it does not take two arguments, or asks for a field that jobs do not have.
    """
    if function is None:
        return lambda f: ordering(f, name=name, changes=changes)
    label = name or function.__name__.replace("_", "-")
    uses_now, fields = _uses(function, label)
    wrong = sorted(fields - set(JobView._fields) - {"*"})
    if wrong:
        raise PolicyError(
            f"ordering {label!r}: a job has no field {wrong[0]!r}; it has "
            f"{', '.join(JobView._fields)}"
        )
    unknown = "*" in fields
    return Ordering(
        name=label,
        function=function,
        changes=(uses_now or unknown or bool(fields & CHANGING)) if changes is None else changes,
        fairshare=unknown or bool(fields & _FAIRSHARE),
        chain=unknown or "chain" in fields,
        summary=(inspect.getdoc(function) or "").partition("\n")[0],
    )


def _uses(function: Callable[..., Any], label: str) -> tuple[bool, set[str]]:
    """Whether a function reads the time, and which fields of the job; "*" if it hands it on."""
    code: CodeType | None = getattr(function, "__code__", None)
    if code is None:
        raise PolicyError(f"ordering {label!r} is not a Python function")
    if code.co_argcount != 2 or code.co_kwonlyargcount or code.co_flags & 0x0C:
        raise PolicyError(f"ordering {label!r} must take exactly two arguments, (now, job)")
    now, job = code.co_varnames[:2]
    uses_now = False
    fields: set[str] = set()
    steps = list(dis.get_instructions(function))
    for step, following in zip(steps, [*steps[1:], steps[-1]], strict=True):
        if not step.opname.startswith("LOAD_FAST"):
            if step.opname.startswith(("STORE_FAST", "MAKE_CELL", "LOAD_CLOSURE")) and (
                job in _names(step.argval)
            ):
                fields.add("*")
            continue
        names = _names(step.argval)
        uses_now |= now in names
        if job in names:
            direct = names[-1] == job and following.opname.startswith(("LOAD_ATTR", "LOAD_METHOD"))
            fields.add(str(following.argval) if direct else "*")
    return uses_now, fields


def _names(argument: Any) -> tuple[Any, ...]:
    return argument if isinstance(argument, tuple) else (argument,)


def _reason(text: str) -> str:
    """The line of Numba's message that says what is wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("Failed in", "During", "File", "^"))]
    return (told or lines or ["unknown reason"])[0].rstrip(".")
