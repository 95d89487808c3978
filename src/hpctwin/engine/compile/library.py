"""The library of compiled code: all kernels and built-in orderings as one shared library.

A wheel for a platform contains it; otherwise `hpctwin warmup` builds it into the user's cache. Its
file name has the processor level that it needs and a key of the sources that it was built from.
Libraries for other processors and of other sources are therefore not used.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from hpctwin.errors import SimulationError

__all__ = [
    "PACKAGED", "address_in_library", "cache_folder", "check_sources", "checks_bounds", "library_name",
    "library_path", "processor_level", "source_key", "symbol_of",
]  # fmt: skip

_PACKAGE = Path(__file__).parents[2]
PACKAGED = _PACKAGE / "engine" / "library"
"""Folder of the libraries that a wheel contains."""
_V3 = {"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
"""Features, by their names in Linux, that the level x86-64-v3 has beyond x86-64-v2."""


def cache_folder() -> Path:
    """Return the user's folder of compiled code."""
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    return Path(base or Path.home() / ".cache") / "hpctwin"


def checks_bounds() -> bool:
    """Return whether compiled code is to check the indices of arrays, as no library does."""
    return os.environ.get("NUMBA_BOUNDSCHECK", "0") not in ("", "0")


@cache
def source_key() -> str:
    """Return a hash of all sources that are compiled."""
    digest = hashlib.sha256()
    for source in sorted(_sources()):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _sources() -> Iterator[Path]:
    yield from (_PACKAGE / "engine").rglob("*.py")
    yield _PACKAGE / "policies" / "orderings.py"


@cache
def processor_level() -> str:
    """Return the highest level of this processor for which libraries are built."""
    machine = os.uname().machine
    if machine != "x86_64":
        return machine
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            flags = next((line for line in file if line.startswith("flags")), "")
    except OSError:
        flags = ""
    return "x86-64-v3" if set(flags.split()) >= _V3 else "x86-64-v2"


def library_name(level: str) -> str:
    """Return the file name of the library for a processor level."""
    return f"engine-{level}-{source_key()}.so"


def library_path() -> Path | None:
    """Return the library for this processor; None if there is none of the present sources."""
    levels = dict.fromkeys((processor_level(), "x86-64-v2"))
    paths = (folder / library_name(one) for one in levels for folder in (PACKAGED, cache_folder()))
    return next(filter(Path.is_file, paths), None)


def check_sources() -> None:
    """Check that sources which are imported only to compile them belong to the rest.

    Raises:
        SimulationError: Sources have been edited since the process began.
    """
    if source_key.__wrapped__() != source_key():
        raise SimulationError(
            f"{_PACKAGE}: its files have been edited or replaced since this process began; start "
            "it again"
        )


def symbol_of(function: Callable[..., Any]) -> str:
    """Return the name of a function in the library."""
    return f"{function.__module__}.{function.__qualname__}"


@cache
def _library() -> ctypes.CDLL | None:
    if checks_bounds():
        return None
    path = library_path()
    if path is None and any(PACKAGED.glob("engine-*.so")):
        warnings.warn(
            f"the compiled engine in {PACKAGED} was built from other sources and is not used: "
            "install hpctwin again, or build it with hpctwin warmup",
            RuntimeWarning,
            stacklevel=2,
        )
    try:
        return None if path is None else ctypes.CDLL(str(path))
    except OSError as error:  # a folder without execute permission, or an older C library
        warnings.warn(
            f"the compiled engine cannot be loaded ({error}) and is not used; kernels are compiled one "
            "by one. Set NUMBA_CACHE_DIR to a folder from which programs may run.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def address_in_library(symbol: str) -> int:
    """Return the address of a function in the library; 0 if it is not there."""
    library = _library()
    if library is None or not symbol.startswith("hpctwin."):
        return 0
    found = getattr(library, symbol, None)
    return 0 if found is None else ctypes.cast(found, ctypes.c_void_p).value or 0
