"""Orderings: which job is considered first.

An ordering is a plain function ``(now, job) -> score``; the smallest score comes first. It is
compiled on its own, in a fraction of a second, and handed to the engine as a first-class function.
"""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType
from typing import Any

from hpctwin.engine.abi import CHANGING, JobView
from hpctwin.errors import PolicyError
from hpctwin.policies.code import MAY, changed, constants_of, place, plain_function

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
        constants: the globals that it read when it was made.
    """

    name: str
    function: Callable[[float, JobView], float]
    changes: bool
    fairshare: bool
    chain: bool = False
    summary: str = ""
    kept: bool = False
    alone: Ordering | None = None
    constants: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __call__(self, now: float, job: JobView) -> float:
        """The score, computed by Python; for reading and for tests."""
        return self.function(now, job)

    def check(self, *, complete: bool = False) -> None:
        """Look once more at what its code does, and whether the globals it reads are what they were.

        Args:
            complete: whether all names that it asks for must be there by now.

        Raises:
            PolicyError: it may not be used; the message tells file and line.
        """
        now = constants_of(self.function, self.name, complete=complete)
        what = changed(self.constants, now)
        if what is not None:
            where = place(plain_function(self.function).__code__)
            raise PolicyError(
                f"{where}: ordering {self.name!r}: {what}; what it reads is a constant of it: make it anew"
            )

    @cached_property
    def compiled(self) -> Any:
        """The function compiled for the engine.

        Raises:
            PolicyError: it cannot be compiled.
        """
        from hpctwin.engine.jit import compiled_ordering

        self.check(complete=True)
        function = plain_function(self.function)
        try:
            return compiled_ordering(function, keep=self.kept)
        except Exception as error:  # Numba lets through what its own code stumbles over
            line, reason = _reason(error, function.__code__.co_filename)
            raise PolicyError(
                f"{place(function.__code__, line)}: ordering {self.name!r} cannot be compiled: {reason}; "
                f"{MAY}, and must return a number"
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
        PolicyError: it does not take two arguments, asks for a field that jobs do not have, or does what
            no ordering may do: draw random numbers, read a clock or a global that changes, and the like.
    """
    if function is None:
        return lambda f: ordering(f, name=name, changes=changes)
    label = name or getattr(function, "__name__", type(function).__name__).replace("_", "-")
    uses_now, fields = _uses(plain_function(function), label)
    unknown = "*" in fields
    return Ordering(
        name=label,
        function=function,
        changes=(uses_now or unknown or bool(fields & CHANGING)) if changes is None else changes,
        fairshare=unknown or bool(fields & _FAIRSHARE),
        chain=unknown or "chain" in fields,
        summary=(inspect.getdoc(function) or "").partition("\n")[0],
        constants=constants_of(function, label),
    )


def _uses(function: Any, label: str) -> tuple[bool, set[str]]:
    """Whether a function reads the time, and which fields of the job; "*" if it hands it on."""
    code: CodeType | None = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        raise PolicyError(
            f"ordering {label!r} is {type(function).__name__}, it must be a Python function (now, job)"
        )
    if code.co_argcount != 2 or code.co_kwonlyargcount or code.co_flags & 0x0C:
        raise PolicyError(
            f"{place(code)}: ordering {label!r} must take exactly two arguments, (now, job)"
        )
    now, job = code.co_varnames[:2]
    uses_now = False
    fields: set[str] = set()
    steps = list(dis.get_instructions(code))
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
            if direct and following.argval not in JobView._fields:
                line = following.positions.lineno if following.positions else None
                raise PolicyError(
                    f"{place(code, line)}: ordering {label!r}: a job has no field {following.argval!r}; it "
                    f"has {', '.join(JobView._fields)}"
                )
            fields.add(str(following.argval) if direct else "*")
    return uses_now, fields


def _names(argument: Any) -> tuple[Any, ...]:
    return argument if isinstance(argument, tuple) else (argument,)


_NO_REASON = ("Failed in", "During", "File", "^", "Raised from", ">>>", "Invalid use")
_RETURNED = re.compile(r"No conversion from (.+) to float64 for '\$\w*return_value")


def _reason(error: Exception, file: str) -> tuple[int | None, str]:
    """The line of the file, if it is known, and the sentence of Numba's message that says what is wrong."""
    text = str(error)
    returned = _RETURNED.search(text)
    name = re.escape(file.rpartition("/")[2])
    found = re.search(rf"{name}\"?(?:, line | \()(\d+)", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(_NO_REASON)]
    reason = (told or lines or [type(error).__name__])[0].partition(" Raised from")[0].rstrip(".")
    if returned is not None:
        reason = f"it returns {returned[1]}, not a number"
    return (int(found[1]) if found else None), reason
