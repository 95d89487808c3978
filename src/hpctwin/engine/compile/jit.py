"""Functions that are compiled alone: kernels, and the scores that they call.

Nothing is compiled, and Numba is not loaded, until a kernel is needed that is neither in the
library of compiled code nor in the user's cache.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np

from hpctwin.engine.compile.compile_errors import why_not_compiled
from hpctwin.engine.compile.library import address_in_library, check_sources, symbol_of
from hpctwin.engine.compile.parts import Part, jit, part_of_score
from hpctwin.engine.compile.policy_modules import JobView, NodeView
from hpctwin.errors import PolicyError, SimulationError

if TYPE_CHECKING:
    from hpctwin.engine.compile.compiler import Translation

__all__ = ["Compiled", "Kernel", "Part", "jit", "part_of_score", "prepare"]

_RETURNED = (0, -2)
"""Statuses of a function that has returned; -2 is for None."""
_SCALARS: dict[str, Any] = {
    "int64": ctypes.c_int64,
    "float64": ctypes.c_double,
    "bool": ctypes.c_bool,
    "Sim": ctypes.c_void_p,
}
_VIEWS: dict[str, list[type[int | float]]] = {
    "Job": list(get_type_hints(JobView).values()),
    "Node": list(get_type_hints(NodeView).values()),
}


class Compiled:
    """A function that other compiled functions call by its address.

    Args:
        function: Python function, or a part; or its full name, such as
            ``hpctwin.engine.loop.event_loop.advance``. Its module is then imported only if it must
            be compiled.
        signature: Types of result and arguments, such as ``int64(int64, Sim)``.
        kind: ``kernel``, ``short kernel`` (loops are not unrolled) or ``score``.
        kept: Whether its compiled form may be kept on disk, if its source is a file.
    """

    def __init__(
        self, function: Any, signature: str, kind: str = "score", *, kept: bool = True
    ) -> None:
        if isinstance(function, str):
            self.symbol = function
        else:
            self.function = getattr(function, "py_func", function)
            self.symbol = symbol_of(self.function)
        self.signature = signature
        self.kind = kind
        self._kept = kept
        self._lock = threading.Lock()
        self._address = 0

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The Python function."""
        module, _, name = self.symbol.rpartition(".")
        if module not in sys.modules:
            check_sources()
        found = getattr(import_module(module), name)
        function: Callable[..., Any] = getattr(found, "py_func", found)
        return function

    @cached_property
    def translation(self) -> Translation:
        """The function as Numba compiles it.

        Raises:
            SimulationError: Numba is not installed.
        """
        with self._needs_numba():
            from hpctwin.engine.compile.compiler import Translation

        # Numba keeps the functions of notebooks in a folder that hpctwin's versions would share.
        kept = self._kept and os.path.isfile(self.function.__code__.co_filename)
        return Translation(self.function, self.signature, self.kind, kept=kept)

    @contextmanager
    def _needs_numba(self) -> Iterator[None]:
        try:
            yield
        except ModuleNotFoundError as error:
            raise SimulationError(
                f"{self.function.__name__!r} must be compiled, and {error.name} is missing: "
                "pip install numba"
            ) from error

    @property
    def built_in(self) -> bool:
        """Whether it is the same in each process: the library may contain it."""
        ours = self._kept and self.symbol.startswith("hpctwin.")
        return ours and "<locals>" not in self.symbol

    def load(self) -> bool:
        """Return whether the function is ready without compiling; load it if it is on disk."""
        with self._lock:
            if not self._address:
                self._address = self._load()
        return self._address != 0

    def _load(self) -> int:
        if not self.built_in:
            return self.translation.load()
        found = address_in_library(self.symbol)
        if found:
            return found
        with self._needs_numba():
            from hpctwin.engine.compile.kernel_key import object_path

            path = object_path(self)
        try:
            code = path.read_bytes()
        except OSError:
            return 0
        with suppress(OSError):
            os.utime(path)  # files that are not used for long are removed
        return self._address_in(code)

    def _address_in(self, code: bytes) -> int:
        from hpctwin.engine.compile.machine_code import load_object

        return load_object(code, self.symbol)

    def take(self, code: bytes) -> None:
        """Make the function ready from its object file's content."""
        with self._lock:
            self._address = self._address or self._address_in(code)

    def compiled(self) -> None:
        """Make the function ready; compile it if necessary."""
        if self.load():
            return
        if self.built_in:
            from hpctwin.engine.compile.build import build_objects

            build_objects([self])
            return
        with self._lock, self.errors_explained():
            self._address = self._address or self.translation.compile()

    @contextmanager
    def errors_explained(self) -> Iterator[None]:
        """Let errors of the compiler say what is wrong with the function."""
        yield

    @property
    def address(self) -> int:
        """Return the address at which kernels call it."""
        if not self._address:
            self.compiled()
        return self._address

    @cached_property
    def call(self) -> Call:
        """The function as Python calls it."""
        return Call(self.address, self.signature)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function from Python."""
        return self.call(*arguments)


class Kernel(Compiled):
    """A function that is compiled at its first use and cached on disk.

    Args:
        function: Function to compile together with all it calls, see `Compiled`.
        signature: Types of result and arguments, such as ``int64(int64, Sim)``.
        unrolled: Whether the compiler unrolls loops, which pays off for loops with many iterations.
    """

    def __init__(self, function: Any, signature: str, *, unrolled: bool = True) -> None:
        super().__init__(function, signature, "kernel" if unrolled else "short kernel")
        self._sought = False

    @property
    def name(self) -> str:
        """Return the function's name without leading underscores."""
        return self.symbol.rpartition(".")[2].lstrip("_")

    @contextmanager
    def errors_explained(self) -> Iterator[None]:
        """Raise a PolicyError with the place in the source."""
        try:
            yield
        except Exception as error:  # Numba lets errors in its own code through
            where, reason = why_not_compiled(error, self.function)
            raise PolicyError(
                f"{where}: {self.function.__name__!r} cannot be compiled: {reason}; what the engine "
                "calls is made of numbers, loops, its own functions and those with @jit above them "
                "(docs/how-to/write-a-backfill.md)"
            ) from error

    def at_hand(self) -> bool:
        """Return whether the function is callable; search the disk only once.

        The search takes as long as simulating hundreds of jobs, and each simulation asks.
        """
        if not self._sought:
            self._sought = True
            self.load()
        return self._address != 0


def prepare(functions: Iterable[Compiled]) -> None:
    """Make functions ready; report compilations on standard error.

    Args:
        functions: All functions needed soon: missing ones are compiled together.
    """
    missing = [one for one in dict.fromkeys(functions) if not one.load()]
    if missing:
        from hpctwin.engine.compile.build import Progress, build_objects

        build_objects(missing, Progress())


class _Raised(ctypes.Structure):
    """An exception as compiled code describes it: class, arguments and place are pickled."""

    _fields_ = (("pickled", ctypes.c_void_p), ("size", ctypes.c_int32))


class Call:
    """A compiled function as Python calls it; other threads of Python run meanwhile.

    It returns a status. Its first two arguments are where it puts its result and its exception; an
    array is five numbers, its shape and its strides.

    Args:
        address: Address of the function.
        signature: Types of result and arguments, see `jit.Compiled`.
    """

    def __init__(self, address: int, signature: str) -> None:
        result, _, given = signature.removesuffix(")").partition("(")
        self._result = _SCALARS.get(result, ctypes.c_void_p)
        kinds = given.split(", ")
        self._arrays = {at: _array(kind) for at, kind in enumerate(kinds) if kind.endswith("]")}
        self._arrays |= {at: _view(kind) for at, kind in enumerate(kinds) if kind in _VIEWS}
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        types: list[Any] = [pointer, pointer]
        for at, kind in enumerate(kinds):
            shape = [number] * (2 * kind.count(",") + 2)
            array = [pointer, pointer, number, number, pointer, *shape]
            if kind in _VIEWS:
                types += [number if one is int else ctypes.c_double for one in _VIEWS[kind]]
            elif at in self._arrays:
                types += array
            else:
                types.append(pointer if kind.startswith("State") else _SCALARS[kind])
        self._function = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(address)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function.

        Raises:
            TypeError: An argument is not of the declared type.
        """
        found, raised = self._result(), ctypes.c_void_p()
        places = ctypes.addressof(found), ctypes.addressof(raised)
        words = arguments if not self._arrays else self._words(arguments)
        status = self._function(*places, *words)
        if status not in _RETURNED:
            assert raised.value is not None
            what = _Raised.from_address(raised.value)
            kind, given, _ = pickle.loads(ctypes.string_at(what.pickled, what.size))
            raise kind(*given or ())
        return found.value

    def _words(self, arguments: tuple[Any, ...]) -> list[Any]:
        words: list[Any] = []
        for at, one in enumerate(arguments):
            words += self._arrays[at](one) if at in self._arrays else (one,)
        return words


def _view(kind: str) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the words by which a job or node is passed."""
    types = _VIEWS[kind]
    return lambda view: tuple(made(one) for made, one in zip(types, view, strict=True))


def _array(kind: str) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the words by which an array of a kind is passed."""
    element, _, places = kind.partition("[")
    dtype, dimensions = np.dtype(element), places.count(",") + 1

    def flat(array: Any) -> tuple[Any, ...]:
        if array.dtype != dtype or array.ndim != dimensions or not array.flags.c_contiguous:
            raise TypeError(f"{array.dtype} array [{array.shape}] given, {kind} needed")
        owners = None, None
        return *owners, array.size, array.itemsize, array.ctypes.data, *array.shape, *array.strides

    return flat
