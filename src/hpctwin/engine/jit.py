"""How the engine's kernels are compiled and where the compiled code is kept.

Numba's disk cache does not notice that a function called from another file was edited. The cache
folder therefore carries a hash of all the engine's sources; where no folder can be written, kernels are
compiled anew in each process, with one warning.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba

__all__ = ["CACHE_DIR", "jit", "kept_on_disk"]

# Numba's own hints leave out its settings and some options.
_config: Any = numba.config
_njit: Any = numba.njit


def _cache_dir() -> Path | None:
    base = os.environ.get("NUMBA_CACHE_DIR")
    if base is None:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    digest = hashlib.sha256(f"{numba.__version__} {_config.BOUNDSCHECK}".encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
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
    """Let Numba keep what is decorated inside in our folder; yields whether it can be kept."""
    if CACHE_DIR is None:
        yield False
        return
    before = _config.CACHE_DIR
    _config.CACHE_DIR = str(CACHE_DIR)
    try:
        yield True
    finally:
        _config.CACHE_DIR = before


def jit(signature: Any = None, *, inline: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Numba's njit as the engine uses it: without the GIL, division as in NumPy.

    Functions with a signature are entries: compiled at once, kept on disk, called from Python. The
    others are compiled as part of the entries that call them. With ``inline`` a function becomes part of
    its callers before they are compiled: a call that hands over all the engine's arrays costs some
    50 ns, which tells where it is made once an instant.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        with kept_on_disk() as kept:
            entry = signature is not None
            decorator = _njit(
                signature,
                cache=kept and entry,
                nogil=True,
                inline="always" if inline else "never",
                error_model="numpy",
                # Without these two, numba counts references at each array access and makes a Python
                # wrapper for each helper: the engine would be ten times slower, its build too.
                _nrt=False,
                no_cpython_wrapper=not entry,
                no_cfunc_wrapper=True,
            )
            return decorator(function)

    return decorate
