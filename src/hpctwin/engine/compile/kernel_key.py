"""Object files by key: a hash of all that a kernel is made of.

An edit of a function changes the keys of the kernels that call it, and of no others. Comments and
docstrings outside these functions change no key.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Protocol

import llvmlite
import numpy as np

from hpctwin.engine.compile.intrinsics import Intrinsic
from hpctwin.engine.compile.library import cache_folder, checks_bounds, processor_level
from hpctwin.engine.compile.parts import Part
from hpctwin.engine.state import layout, records

__all__ = ["OBJECTS", "Source", "code_size", "kernel_key", "object_path"]

OBJECTS = "objects"
"""Name of the folder of object files, next to the libraries."""

_TRANSLATORS = (
    "atomics", "compiler", "linking", "machine_code", "numba_types", "policy_modules",
)  # fmt: skip
"""Modules of this package on which machine code depends."""


class Source(Protocol):
    """What an object file is made of, see `jit.Compiled`."""

    symbol: str
    signature: str
    kind: str

    @property
    def function(self) -> Callable[..., Any]:
        """The Python function."""


def kernel_key(function: Source, level: str) -> str:
    """Return the key of a function's object file for a processor level."""
    given = _compiler(), function.symbol, function.signature, function.kind, level, checks_bounds()
    digest = hashlib.sha256(repr(given).encode())
    for one in _reached(function):
        digest.update(repr((_code(one.__code__), one.__defaults__)).encode())
        for name, value in _used(one):
            text = value.py_func.__qualname__ if isinstance(value, Part) else _text(value)
            digest.update(f"{name} {text}".encode())
    return digest.hexdigest()[:32]


def object_path(function: Source, level: str | None = None, folder: Path | None = None) -> Path:
    """Return the path of a function's object file.

    Args:
        function: The function.
        level: Processor level; by default this processor's.
        folder: Folder of the libraries; by default the user's.
    """
    name = f"{kernel_key(function, level or processor_level())}.o"
    return (folder or cache_folder()) / OBJECTS / name


def code_size(function: Source) -> int:
    """Return the size of the bytecode of a function and all it calls: compiling takes as long."""
    return sum(len(one.__code__.co_code) for one in _reached(function))


def _reached(function: Source) -> Iterator[Callable[..., Any]]:
    """Yield a function and each that it calls, once."""
    left, seen = [function.function], {function.function}
    while left:
        one = left.pop()
        yield one
        for _, value in _used(one):
            if isinstance(value, Part) and value.py_func not in seen:
                seen.add(value.py_func)
                left.append(value.py_func)


@cache
def _compiler() -> tuple[str, ...]:
    """Return what turns Python into machine code: versions, and the sources that take part."""
    sources = [Path(__file__).with_name(f"{name}.py") for name in _TRANSLATORS]
    sources += [Path(layout.__file__), Path(records.__file__)]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources))
    versions = platform.python_version(), version("numba"), llvmlite.__version__
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
