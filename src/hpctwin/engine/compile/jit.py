"""Functions that are compiled alone: kernels, and the scores that they call.

Nothing is compiled, and Numba is not loaded, until a kernel is needed that is neither in the
library of compiled code nor in the user's cache.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hpctwin.engine.compile.calls import Call
from hpctwin.engine.compile.compile_errors import why_not_compiled
from hpctwin.engine.compile.library import address_in_library, symbol_of
from hpctwin.engine.compile.parts import Part, jit, part_of_score
from hpctwin.errors import PolicyError, SimulationError

if TYPE_CHECKING:
    from hpctwin.engine.compile.compiler import Translation

__all__ = ["Compiled", "Kernel", "Part", "jit", "part_of_score", "prepare"]


class Compiled:
    """A function that other compiled functions call by its address.

    Args:
        function: Python function, or a part.
        signature: Types of result and arguments, such as ``int64(int64, Sim)``.
        kind: ``kernel``, ``short kernel`` (loops are not unrolled) or ``score``.
        kept: Whether its compiled form may be kept on disk, if its source is a file.
    """

    def __init__(
        self, function: Any, signature: str, kind: str = "score", *, kept: bool = True
    ) -> None:
        self.function: Callable[..., Any] = getattr(function, "py_func", function)
        self.signature = signature
        self.kind = kind
        self._kept = kept
        self._lock = threading.Lock()
        self._address = 0

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
        ours = self._kept and self.function.__module__.startswith("hpctwin.")
        return ours and "<locals>" not in self.function.__qualname__

    def load(self) -> bool:
        """Return whether the function is ready without compiling; load it if it is on disk."""
        with self._lock:
            if not self._address:
                self._address = self._load()
        return self._address != 0

    def _load(self) -> int:
        if not self.built_in:
            return self.translation.load()
        found = address_in_library(self.function)
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

        return load_object(code, symbol_of(self.function))

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
        function: Function to compile together with all it calls; it may itself be a part.
        signature: Types of result and arguments, such as ``int64(int64, Sim)``.
        unrolled: Whether the compiler unrolls loops, which pays off for loops with many iterations.
    """

    def __init__(self, function: Any, signature: str, *, unrolled: bool = True) -> None:
        super().__init__(function, signature, "kernel" if unrolled else "short kernel")
        self._sought = False

    @property
    def name(self) -> str:
        """Return the function's name without leading underscores."""
        return str(self.function.__name__).lstrip("_")

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
