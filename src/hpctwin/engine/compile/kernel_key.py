"""Keys of object files: a hash of all that a kernel is made of.

An edit of a function changes the keys of the kernels that call it, and of no others. Comments and
docstrings outside these functions change no key.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import llvmlite
import numba
import numpy as np

from hpctwin.engine.compile.intrinsics import Intrinsic
from hpctwin.engine.compile.jit import Compiled, Part
from hpctwin.engine.state import layout, records

__all__ = ["kernel_key"]

_TRANSLATORS = (
    "atomics", "build", "compiler", "linking", "machine_code", "numba_types", "policy_modules",
)  # fmt: skip
"""Modules of this package on which machine code depends."""


def kernel_key(function: Compiled, level: str) -> str:
    """Return the key of a function's object file for a processor level."""
    given = _compiler(), function.signature, function.kind, level
    digest = hashlib.sha256(repr(given).encode())
    left, seen = [function.function], {function.function}
    while left:
        one = left.pop()
        digest.update(repr((_code(one.__code__), one.__defaults__)).encode())
        for name, value in _used(one):
            called = value.py_func if isinstance(value, Part) else None
            text = _text(value) if called is None else called.__qualname__
            digest.update(f"{name} {text}".encode())
            if called is not None and called not in seen:
                seen.add(called)
                left.append(called)
    return digest.hexdigest()[:32]


@cache
def _compiler() -> tuple[str, ...]:
    """Return what turns Python into machine code: versions, and the sources that take part."""
    sources = [Path(__file__).with_name(f"{name}.py") for name in _TRANSLATORS]
    sources += [Path(layout.__file__), Path(records.__file__)]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources))
    versions = platform.python_version(), numba.__version__, llvmlite.__version__
    return *versions, digest.hexdigest()


def _code(code: CodeType) -> tuple[Any, ...]:
    constants = [_code(one) if isinstance(one, CodeType) else one for one in code.co_consts]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars


def _used(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield the names and values from outside that a function uses.

    A module's attributes are values too, such as the operations of a capacity model.
    """
    code, scope = function.__code__, function.__globals__
    cells = function.__closure__ or ()
    yield from zip(code.co_freevars, (cell.cell_contents for cell in cells), strict=True)
    for name in code.co_names:
        value = scope.get(name)
        yield name, value
        if isinstance(value, ModuleType) and value.__name__.startswith("hpctwin."):
            for attribute in code.co_names:
                if attribute in vars(value):
                    yield f"{name}.{attribute}", vars(value)[attribute]


def _text(value: Any) -> str:
    """Return a text that differs if a value differs for the compiler."""
    if isinstance(value, Intrinsic):
        return repr([value.where, *map(_text, value.arguments)])
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.tolist()}"
    if isinstance(value, type) and hasattr(value, "__annotations__"):
        return f"{value.__qualname__} {value.__annotations__}"
    if isinstance(value, ModuleType) or callable(value):
        return str(getattr(value, "__name__", type(value)))
    return repr(value)
