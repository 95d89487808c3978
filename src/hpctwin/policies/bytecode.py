"""Check of a score's bytecode before it is compiled.

Numba compiles much that a score must not do: draw random numbers, read a clock, or read a global
that some code changes (Numba takes its value at the time of compilation). Each of these is an error
here with its line. So is code that Numba cannot compile and reports only in its own terms.
"""

from __future__ import annotations

import contextlib
import dis
import enum
import inspect
import itertools
import numbers
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from hpctwin.engine.compile.parts import Part
from hpctwin.errors import PolicyError

__all__ = ["changed", "constants_of", "place", "plain_function"]

MAY = "it may use numbers, math, NumPy's functions and the fields of the job"

_MODULES = {"builtins", "math", "cmath", "operator", "_operator", "numpy"}
_DRAWS = "draws random numbers, so each run would differ"
_CLOCK = "reads the clock, so each run would differ; the time is `now`"
_SYSTEM = "asks the operating system, so each run could differ"
_WHY_NOT = {
    "random": _DRAWS,
    "numpy.random": _DRAWS,
    "secrets": _DRAWS,
    "uuid": _DRAWS,
    "time": _CLOCK,
    "datetime": _CLOCK,
    "os": _SYSTEM,
    "posix": _SYSTEM,
    "sys": _SYSTEM,
    "platform": _SYSTEM,
    "socket": _SYSTEM,
    "subprocess": _SYSTEM,
    "pathlib": _SYSTEM,
    "io": _SYSTEM,
}
_FUNCTIONS = {
    ("builtins", "id"): "is a memory address, so each run would differ",
    ("builtins", "hash"): "differs from run to run for text, and does not order numbers",
    ("builtins", "print"): "is called millions of times inside the engine",
    ("builtins", "input"): _SYSTEM,
    ("builtins", "open"): _SYSTEM,
    ("io", "open"): _SYSTEM,
    **{
        ("builtins", name): "runs code that cannot be checked"
        for name in ("eval", "exec", "compile", "__import__", "getattr", "setattr", "delattr")
    },
    **{
        ("builtins", name): "reads variable names, not the job"
        for name in ("globals", "locals", "vars", "dir")
    },
    ("numpy", "empty"): "returns uninitialized memory, so each run could differ; use np.zeros",
    ("numpy", "empty_like"): "returns uninitialized memory, so each run could differ; use np.zeros",
}  # fmt: skip
_STEPS = {
    "IMPORT_NAME": "imports {0}: put the import at the top of the file",
    "STORE_GLOBAL": "sets the global {0!r}: a score must not depend on the jobs scored before",
    "DELETE_GLOBAL": "deletes the global {0!r}: a score must not depend on earlier calls",
    "STORE_ATTR": "sets the attribute {0!r}: a score must not change objects",
    "DELETE_ATTR": "deletes the attribute {0!r}: a score must not change objects",
    "LOAD_BUILD_CLASS": "defines a class",
    "BEFORE_WITH": "has a `with`: a score must not open or lock anything",
    "LOAD_SPECIAL": "has a `with`: a score must not open or lock anything",
    "BUILD_STRING": "builds text (an f-string): a score is a number",
    "PUSH_EXC_INFO": "has a `try`: test the condition with `if` instead",
}
"""Bytecode steps that no score may have, with the error; {0} is the argument."""


def plain_function(function: Any) -> Any:
    """Return the Python function of one that Numba has compiled; others unchanged."""
    if isinstance(function, Part) or type(function).__module__.partition(".")[0] == "numba":
        return getattr(function, "py_func", function)
    return function


def place(code: CodeType, line: int | None = None) -> str:
    """Return file and line of a function, or of a step of it."""
    return f"{code.co_filename}, line {line or code.co_firstlineno}"


def constants_of(
    function: Any, label: str, *, complete: bool = False, sets: bool = False
) -> dict[str, Any]:
    """Check a score, and return the globals that it uses as constants.

    Args:
        function: A Python function, or one that Numba has compiled.
        label: Name in messages, such as ``ordering 'mine'``.
        complete: Whether all names must be defined by now; a file may define some later.
        sets: Whether it may set attributes.

    Returns:
        Value by ``function: name``.

    Raises:
        PolicyError: It does what no score may do; the message has file and line.
    """
    plain = plain_function(function)
    reader = _Reader(label, plain.__code__, {}, set(), complete, sets)
    reader.options(function, plain.__code__, None)
    reader.function(plain)
    return reader.constants


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """Return a text on a global that has changed; None if none has."""
    for key, value in before.items():
        now = after.get(key, value)
        if now is not value and not (type(now) is type(value) and _equal(now, value)):
            name = key.partition(": ")[2]
            return (
                f"the global {name!r} was {value!r} when the function was registered and is "
                f"{now!r} now"
            )
    return None


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except (TypeError, ValueError):  # arrays
        return False


@dataclass
class _Reader:
    """Reader of a function, its inner functions, and compiled functions it calls.

    Args:
        label: Name in messages.
        top: Code of the function itself.
        constants: Constants found so far.
        seen: Codes that were read.
        complete: Whether all names must be defined.
        sets: Whether it may set attributes.
    """

    label: str
    top: CodeType
    constants: dict[str, Any]
    seen: set[CodeType]
    complete: bool
    sets: bool

    def refuse(self, code: CodeType, line: int | None, what: str) -> PolicyError:
        within = code.co_qualname.startswith(self.top.co_qualname)
        helper = "" if within else f", in {code.co_name!r},"
        return PolicyError(f"{place(code, line)}: {self.label}{helper} {what}; {MAY}")

    def function(self, function: FunctionType) -> None:
        """Read a Python function."""
        code = function.__code__
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        if defaults and (code is self.top or not _is_constant(defaults)):
            raise self.refuse(
                code, None, "has an argument with a default, which is evaluated only once"
            )
        closure = {}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # set after the function was made, or never
                closure[name] = cell.cell_contents
        self.code(code, closure, function)

    def code(self, code: CodeType, closure: dict[str, Any], function: FunctionType) -> None:
        """Read the code of a function, or of one within it."""
        if code in self.seen:
            return
        self.seen.add(code)
        self._kind(code)
        steps = list(dis.get_instructions(code))
        for number, step in enumerate(steps):
            self._step(code, step, _line(steps[number:]))
        for number, step in enumerate(steps):
            line, following = _line(steps[number:]), steps[number + 1 :]
            if step.opname == "LOAD_GLOBAL":
                found = _global(function, step.argval)
                self._name(code, line, step.argval, found, following)
                if found and _is_constant(found[0]) and (by := _who_sets(function, step.argval)):
                    what = f"reads the global {step.argval!r}, which {by} changes"
                    raise self.refuse(code, line, what)
            elif (
                step.opname == "LOAD_DEREF"
                and {step.argval} <= {*code.co_freevars} & closure.keys()
            ):
                self._name(code, line, step.argval, (closure[step.argval],), following)
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self.code(inner, closure, function)

    def _kind(self, code: CodeType) -> None:
        if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            raise self.refuse(code, None, "is an `async def`; write `def`")
        if code.co_flags & inspect.CO_GENERATOR:
            if code.co_name == "<genexpr>":
                raise self.refuse(code, None, "has a generator: write a loop, or a list in [ ]")
            raise self.refuse(code, None, "has a `yield`: it must return one number")

    def _step(self, code: CodeType, step: dis.Instruction, line: int | None) -> None:
        """Check a single step of the bytecode."""
        name, argument = step.opname, step.arg or 0
        what = _STEPS.get("BUILD_STRING" if name.startswith("FORMAT_") else name)
        if self.sets and name == "STORE_ATTR":
            what = None
        if name == "STORE_DEREF" and step.argval in code.co_freevars:
            what = "sets {0!r} of the enclosing function (nonlocal)"
        elif name in ("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE") and argument & 0x03:
            what = "has a lambda or a function with a default argument: write the value where it is used"
        if what is not None:
            raise self.refuse(code, line, what.format(step.argval))

    def _name(
        self,
        code: CodeType,
        line: int | None,
        name: str,
        found: tuple[Any, ...],
        following: list[dis.Instruction],
    ) -> None:
        """Check a global, or a variable of the enclosing function, and its use."""
        if not found:
            if self.complete:
                raise self.refuse(code, line, f"uses {name!r}, which is not defined")
            return
        value, path, why = found[0], name, None
        for step in following:
            if not isinstance(value, ModuleType) or step.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                break
            why = why or _WHY_NOT.get(value.__name__)
            path = f"{path}.{step.argval}"
            if not hasattr(value, step.argval):
                raise self.refuse(code, line, f"uses {path}, which does not exist")
            value = getattr(value, step.argval)
        why = why or _why_not(value, path)
        if why is not None:
            raise self.refuse(code, line, f"uses {path}, which {why}")
        if _is_constant(value):
            self.constants[f"{code.co_qualname}: {path}"] = value
        elif not callable(value):
            what = (
                f"reads {path!r} from outside the function, a {type(value).__name__}, which "
                "may change"
            )
            hint = ": make it a tuple" if hasattr(value, "__len__") else ""
            if isinstance(value, np.ndarray):
                hint += f", or make it read-only: {path}.flags.writeable = False"
            raise self.refuse(code, line, what + hint)
        elif isinstance(plain_function(value), FunctionType) and not _is_numpys(value):
            self._helper(code, line, path, value)

    def _helper(self, code: CodeType, line: int | None, path: str, value: Any) -> None:
        """Check a function that the score calls."""
        plain = plain_function(value)
        if plain is not value:
            self.options(value, code, line)
            self.function(plain)
            return
        what = f"calls {path!r}, which is not compiled: put `@njit` above it (from numba import njit), or "
        if plain.__code__ is self.top:
            raise self.refuse(code, line, f"calls itself as {path!r}: write a loop")
        raise self.refuse(code, line, what + "move its code into the score function")

    def options(self, value: Any, code: CodeType, line: int | None) -> None:
        """Check that a compiled function returns the same on every host."""
        for name in ("parallel", "fastmath"):
            if getattr(value, "targetoptions", {}).get(name):
                what = (
                    f"is, or calls, a function compiled with {name}=True: its sums "
                    "differ between computers"
                )
                raise self.refuse(code, line, what)


def _line(steps: list[dis.Instruction]) -> int | None:
    """Return the line of the first step that has one."""
    lines = (step.positions.lineno for step in steps if step.positions)
    return next(filter(None, lines), None)


def _global(function: FunctionType, name: str) -> tuple[Any, ...]:
    """Return the value of a global name; empty if it is not defined."""
    scope = function.__globals__
    if name in scope:
        return (scope[name],)
    builtins = scope.get("__builtins__", {})
    known = builtins if isinstance(builtins, dict) else vars(builtins)
    return (known[name],) if name in known else ()


def _why_not(value: Any, path: str) -> str | None:
    """Return why a score may not use a value.

    It is None if the score may, or if another check decides.
    """
    if isinstance(value, ModuleType):
        home = value.__name__
        if home.partition(".")[0] in _MODULES and home not in _WHY_NOT:
            return "is a module: name the function that you need"
        return _WHY_NOT.get(home, "is an unsupported module: use math or NumPy")
    if hasattr(value, "compiled") and type(value).__module__.startswith("hpctwin.policies."):
        return f"is {type(value).__name__.lower()!r}: move shared code into a function with `@njit`"
    if not callable(value):
        return None
    home = _home(value)
    root = home.partition(".")[0]
    named = getattr(value, "__name__", path.rpartition(".")[2])
    for module in (home, ".".join(home.split(".")[:2]), root):
        why = _WHY_NOT.get(module) or _FUNCTIONS.get((module, named))
        if why is not None:
            return why
    if isinstance(plain_function(value), FunctionType) or isinstance(value, np.ufunc):
        return None
    if root in _MODULES or (isinstance(value, type) and issubclass(value, (tuple, enum.Enum))):
        return None
    return f"comes from {home}, which is not supported"


def _home(value: Any) -> str:
    """Return the module of a value; for a method, that of its object."""
    owner = getattr(value, "__self__", None)
    if owner is not None and not isinstance(owner, ModuleType):
        return str((owner if isinstance(owner, type) else type(owner)).__module__)
    return str(getattr(value, "__module__", None) or type(value).__module__)


def _is_numpys(value: Any) -> bool:
    return _home(value).partition(".")[0] == "numpy"


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    if isinstance(value, np.ndarray):
        return not value.flags.writeable
    return value is None or isinstance(value, (numbers.Number, np.generic, str, bytes, enum.Enum))


def _who_sets(function: FunctionType, name: str) -> str | None:
    """Return the function of the same file that sets a global, and its line."""
    for code in _codes_of(function.__globals__):
        for step in dis.get_instructions(code) if name in code.co_names else ():
            if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") and step.argval == name:
                return f"{code.co_name!r} (line {_line([step]) or code.co_firstlineno})"
    return None


def _codes_of(scope: Mapping[str, Any]) -> Iterator[CodeType]:
    """Yield the codes of all functions and methods of a file."""
    here = scope.get("__name__")
    own = [value for value in scope.values() if getattr(value, "__module__", None) == here]
    methods = [vars(value).values() for value in own if isinstance(value, type)]
    for value in itertools.chain(own, *methods):
        function = plain_function(value)
        left = [function.__code__] if isinstance(function, FunctionType) else []
        while left:
            code = left.pop()
            yield code
            left += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
