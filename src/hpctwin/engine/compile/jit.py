"""Compilation of the engine's kernels, and the cache of compiled code.

Numba's disk cache does not notice that a called function in another file was edited. The name of
the cache folder therefore contains a hash of all engine sources. If no folder is writable, each
process compiles its kernels again, with one warning.
"""

from __future__ import annotations

import gc
import hashlib
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numba

from hpctwin.engine.compile.compile_errors import why_not_compiled
from hpctwin.engine.compile.interrupts import interrupts_noted
from hpctwin.engine.compile.linking import KernelCompiler, PartCompiler, ShortKernelCompiler
from hpctwin.errors import PolicyError

__all__ = [
    "CACHE_DIR",
    "Kernel",
    "address_of",
    "compiled_score",
    "jit",
    "kept_on_disk",
    "part_of_score",
]

F = TypeVar("F", bound=Callable[..., Any])

# Numba's type hints do not include its settings and some options.
_config: Any = numba.config
_njit: Any = numba.njit
_unliteral: Any = numba.types.unliteral


def _cache_dir() -> Path | None:
    base = os.environ.get("NUMBA_CACHE_DIR")
    if base is None:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    digest = hashlib.sha256(f"{numba.__version__} {_config.BOUNDSCHECK}".encode())
    for source in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(source.read_bytes())
    folder = Path(base) / "hpctwin" / f"engine-{digest.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        warnings.warn(
            f"hpctwin cannot keep compiled code in {folder} ({error.strerror}); it compiles anew in "
            "each process (some seconds). Set NUMBA_CACHE_DIR to a folder that can be written.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return folder


CACHE_DIR = _cache_dir()


@contextmanager
def kept_on_disk() -> Iterator[bool]:
    """Let Numba cache functions decorated in this block in the engine's cache folder.

    Yields:
        Whether the folder is usable.
    """
    if CACHE_DIR is None:
        yield False
        return
    before = _config.CACHE_DIR
    _config.CACHE_DIR = str(CACHE_DIR)
    try:
        yield True
    finally:
        _config.CACHE_DIR = before


def jit(function: F) -> F:
    """Mark a function as a part of kernels: compiled into its callers, never alone."""
    compiled: Any = _njit(
        nogil=True,
        error_model="numpy",
        # Without these options, Numba counts references at each access and makes Python wrappers
        # for each part.
        _nrt=False,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        pipeline_class=PartCompiler,
    )(function)
    typed = compiled.get_call_template

    def typed_alike(given: Iterable[Any], named: Mapping[str, Any]) -> Any:
        named = {name: _unliteral(one) for name, one in named.items()}
        return typed(tuple(map(_unliteral, given)), named)

    # Otherwise Numba compiles the part once more for each literal number or truth value that a
    # caller passes.
    compiled.get_call_template = typed_alike
    part: F = compiled
    return part


def part_of_score(function: F) -> F:
    """Mark a function as a part of orderings and placements that call it.

    It does for them what `jit` does for kernels.
    """
    compiled: F = _njit(nogil=True, error_model="numpy")(getattr(function, "py_func", function))
    return compiled


class Kernel:
    """A function that is compiled at its first use and cached on disk.

    Args:
        function: Function to compile together with all it calls; it may itself be a part.
        signature: Numba signature of its arguments and result.
        unrolled: Whether the compiler unrolls loops, which pays off for loops with many iterations.
    """

    def __init__(
        self, function: Callable[..., Any], signature: Any, *, unrolled: bool = True
    ) -> None:
        self._function = getattr(function, "py_func", function)
        self._signature = signature
        self._pipeline = KernelCompiler if unrolled else ShortKernelCompiler
        self._lock = threading.Lock()
        self._dispatcher: Any = None
        self._sought = False

    @property
    def name(self) -> str:
        """Return the function's name without leading underscores."""
        return str(self._function.__name__).lstrip("_")

    def __call__(self, *arguments: Any) -> Any:
        """Call the function from Python."""
        return (self._dispatcher or self.compiled())(*arguments)

    def compiled(self) -> Any:
        """Return the compiled function; load or compile it if necessary.

        Raises:
            PolicyError: The function cannot be compiled.
        """
        if not self.load():
            with self._lock:
                if self._dispatcher is None:
                    self._dispatcher = self._compile()
        return self._dispatcher

    def _compile(self) -> Any:
        try:
            return _compiled(self._made(), self._signature)
        except Exception as error:  # Numba lets errors in its own code through
            where, reason = why_not_compiled(error, self._function)
            raise PolicyError(
                f"{where}: {self._function.__name__!r} cannot be compiled: {reason}; what the engine "
                "calls is made of numbers, loops, its own functions and those with @jit above them "
                "(docs/how-to/write-a-backfill.md)"
            ) from error

    def load(self) -> bool:
        """Return whether the function is ready without compiling; load it if it is cached."""
        if self._dispatcher is not None:
            return True
        with self._lock:
            if self._dispatcher is None:
                self._dispatcher = _loaded(self._made(), self._signature)
            return self._dispatcher is not None

    def at_hand(self) -> bool:
        """Return whether the function is callable; search the disk only once.

        The search takes as long as simulating hundreds of jobs, and each simulation asks.
        """
        if not self._sought:
            self._sought = True
            self.load()
        return self._dispatcher is not None

    def _made(self) -> Any:
        return _dispatcher(
            self._function,
            keep=True,
            _nrt=False,
            no_cfunc_wrapper=True,
            pipeline_class=self._pipeline,
        )

    @property
    def address(self) -> int:
        """Return the address at which other kernels call it."""
        return address_of(self.compiled())


def compiled_score(function: Callable[..., Any], signature: Any, *, keep: bool) -> Any:
    """Compile a user's scoring function separately; kernels call it by its address.

    Args:
        function: Ordering or placement that returns a score.
        signature: `numba_types.ORDER_SIGNATURE` or `numba_types.PLACE_SIGNATURE`.
        keep: Whether to cache it on disk, if the cache folder is writable.
    """
    made = _dispatcher(function, keep=keep)
    return _loaded(made, signature) or _compiled(made, signature)


def _dispatcher(function: Callable[..., Any], *, keep: bool, **options: Any) -> Any:
    """Return a Numba dispatcher that has compiled nothing yet."""
    with kept_on_disk() as kept:
        return _njit(cache=kept and keep, nogil=True, error_model="numpy", **options)(function)


def _loaded(dispatcher: Any, signature: Any) -> Any:
    """Load a function's code from disk; return None if it is not cached.

    Numba's own loading also prepares for compiling, which takes ten times as long.
    """
    load = getattr(dispatcher._cache, "_load_overload", None)
    with interrupts_noted():
        kept = None if load is None else load(signature, dispatcher.targetctx)
    if kept is None:
        return None
    dispatcher.add_overload(kept)
    dispatcher.disable_compile()
    return dispatcher


def _compiled(dispatcher: Any, signature: Any) -> Any:
    with _no_garbage(), interrupts_noted():
        dispatcher.compile(signature)
    dispatcher.disable_compile()
    return dispatcher


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Disable garbage collection in this block.

    Compiling makes many objects and drops few, so that collection would take a tenth of the time.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@lru_cache(maxsize=64)
def address_of(dispatcher: Any) -> int:
    """Return the address of the only compiled form of a function.

    It stays valid for as long as the function exists.
    """
    (form,) = dispatcher.overloads.values()
    address: int = form.library.get_pointer_to_function(form.fndesc.llvm_func_name)
    return address
