"""Compilation by Numba, and its cache of compiled functions.

Numba's disk cache does not notice that a called function in another file was edited. The name of
the cache folder therefore contains a hash of all engine sources. If no folder is writable, each
process compiles its kernels again, with one warning.
"""

from __future__ import annotations

import ctypes
import gc
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding as llvm

from hpctwin.engine import check_numba
from hpctwin.engine.compile.interrupts import interrupts_noted
from hpctwin.engine.compile.library import cache_folder, source_key, symbol_of
from hpctwin.engine.compile.machine_code import internalize
from hpctwin.errors import SimulationError

check_numba(numba.__version__)

from hpctwin.engine.compile.linking import (  # noqa: E402
    KernelCompiler,
    PartCompiler,
    ShortKernelCompiler,
    all_parts,
)
from hpctwin.engine.compile.numba_types import KINDS  # noqa: E402

__all__ = ["CACHE_DIR", "Translation", "bitcode_of", "part", "warn_not_kept"]

# Numba's type hints do not include its settings and some options.
_config: Any = numba.config
_njit: Any = numba.njit
_unliteral: Any = numba.types.unliteral

# Otherwise Numba counts references at each access, and makes Python wrappers for each part.
_BARE = {"_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
OPTIONS: dict[str, dict[str, Any]] = {
    "kernel": {**_BARE, "pipeline_class": KernelCompiler},
    "short kernel": {**_BARE, "pipeline_class": ShortKernelCompiler},
    "score": {},
}
"""Numba's options by the kind of function."""


def _cache_dir() -> Path | None:
    version = f"numba{numba.__version__}{'-bounds' if _config.BOUNDSCHECK else ''}"
    folder = cache_folder() / f"engine-{source_key()}-{version}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        warn_not_kept(folder, error)
        return None
    return folder


def warn_not_kept(folder: Path, error: OSError) -> None:
    """Warn that compiled code is lost with this process."""
    warnings.warn(
        f"hpctwin cannot keep compiled code in {folder} ({error.strerror}); it compiles again in "
        "each process (some seconds). Set NUMBA_CACHE_DIR to a folder that can be written.",
        RuntimeWarning,
        stacklevel=2,
    )


CACHE_DIR = _cache_dir()


@contextmanager
def _kept_on_disk() -> Iterator[bool]:
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


def part(function: Callable[..., Any], kind: str) -> Any:
    """Return Numba's form of a part of kernels or scores."""
    if kind == "score":
        return _njit(nogil=True, error_model="numpy")(function)
    options = {**_BARE, "pipeline_class": PartCompiler}
    compiled: Any = _njit(nogil=True, error_model="numpy", **options)(function)
    typed = compiled.get_call_template

    def typed_alike(given: Iterable[Any], named: Mapping[str, Any]) -> Any:
        named = {name: _unliteral(one) for name, one in named.items()}
        return typed(tuple(map(_unliteral, given)), named)

    # Otherwise Numba compiles the part once more for each literal number or truth value that a
    # caller passes.
    compiled.get_call_template = typed_alike
    return compiled


_C_NAMES = {"numba_ldexp": "ldexp"}
"""Functions of the C library by the names under which Numba calls them."""


def bitcode_of(function: Callable[..., Any], signature: str) -> bytes:
    """Return a whole function in LLVM's form, with its name in the library, not yet optimized.

    Args:
        function: Python function.
        signature: Types of result and arguments, see `jit.Compiled`.

    Raises:
        SimulationError: It calls what is not in the C library.
    """
    dispatcher = part(function, "kernel")
    with _no_garbage(), interrupts_noted():
        dispatcher.compile(eval(signature, KINDS))
    (form,) = dispatcher.overloads.values()
    module: Any = form.library._final_module.clone()
    for linked in all_parts(form.library._linking_libraries):
        module.link_in(linked._get_module_for_linking(), preserve=True)
    module.get_function(form.fndesc.llvm_func_name).name = symbol_of(function)
    internalize(module)
    process = ctypes.CDLL(None)
    for other in module.functions:
        if other.is_declaration and not other.name.startswith("llvm."):
            other.name = _C_NAMES.get(other.name, other.name)
            if not hasattr(process, other.name):
                raise SimulationError(
                    f"{symbol_of(function)} calls {other.name!r}, which is not in the C library; "
                    "the engine calls nothing else"
                )
    for value in module.global_variables:
        if not value.is_declaration:
            value.linkage = llvm.Linkage.internal
    found: bytes = module.as_bitcode()
    return found


class Translation:
    """A function that Numba compiles, or has compiled.

    Args:
        function: Python function.
        signature: Types of result and arguments, see `jit.Compiled`.
        kind: Kind of function, a key of `OPTIONS`.
        kept: Whether to cache it on disk, if the cache folder is writable.
    """

    def __init__(
        self, function: Callable[..., Any], signature: str, kind: str, *, kept: bool
    ) -> None:
        self._signature = eval(signature, KINDS)
        with _kept_on_disk() as usable:
            self.dispatcher: Any = _njit(
                cache=usable and kept, nogil=True, error_model="numpy", **OPTIONS[kind]
            )(function)

    def load(self) -> int:
        """Return the function's address if it is cached; otherwise return 0.

        Numba's own loading also prepares for compiling, which takes ten times as long.
        """
        load = getattr(self.dispatcher._cache, "_load_overload", None)
        with interrupts_noted():
            found = None if load is None else load(self._signature, self.dispatcher.targetctx)
        if found is None:
            return 0
        self.dispatcher.add_overload(found)
        self.dispatcher.disable_compile()
        return self._address()

    def compile(self) -> int:
        """Compile the function; return its address."""
        with _no_garbage(), interrupts_noted():
            self.dispatcher.compile(self._signature)
        self.dispatcher.disable_compile()
        return self._address()

    def _address(self) -> int:
        (form,) = self.dispatcher.overloads.values()
        address: int = form.library.get_pointer_to_function(form.fndesc.llvm_func_name)
        return address


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
