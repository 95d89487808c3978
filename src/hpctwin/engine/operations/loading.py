"""Kernels needed together: loaded from disk, or compiled with a progress message.

The compile time of each kernel is stored next to the compiled code, so that the next version of the
engine can estimate it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from hpctwin.engine.compile import jit
from hpctwin.engine.compile.jit import Kernel
from hpctwin.model.files import write_atomically

__all__ = ["prepare", "seconds_left"]

USUAL_S = 3.0
"""Assumed compile time of an unknown kernel, s."""
TIMES = "seconds.json"


def prepare(kernels: Iterable[Kernel]) -> None:
    """Make kernels ready; report compilations on standard error.

    Args:
        kernels: All kernels needed soon, so that the estimate includes all of them.
    """
    missing = [kernel for kernel in dict.fromkeys(kernels) if not kernel.load()]
    if not missing:
        return
    known = _read_times()
    took: dict[str, float] = {}
    for number, kernel in enumerate(missing):
        names = [one.name for one in missing[number:]]
        _say(number, len(missing), seconds_left(names, known, took))
        begin = time.process_time()
        kernel.compiled()
        took[kernel.name] = time.process_time() - begin
    _write_times({**known, **took})


def seconds_left(
    names: Sequence[str], known: Mapping[str, float], took: Mapping[str, float]
) -> float:
    """Return how long compiling some kernels will take, s.

    Args:
        names: Names of the kernels.
        known: Earlier compile times on this computer, s.
        took: Compile times of this call so far, s; they show the computer's present speed.
    """
    usual = sum(known.get(name, USUAL_S) for name in took)
    pace = sum(took.values()) / usual if usual > 0 else 1.0
    return pace * sum(known.get(name, USUAL_S) for name in names)


def _say(done: int, all_parts: int, left_s: float) -> None:
    how = "in each process" if jit.CACHE_DIR is None else "once after installing"
    part = f"part {done + 1} of {all_parts}, " if all_parts > 1 else ""
    with suppress(OSError, AttributeError, ValueError):
        print(
            f"hpctwin: compiling the engine, {how}: {part}~{max(1, round(left_s))} s left",
            file=sys.stderr,
            flush=True,
        )


def _read_times() -> dict[str, float]:
    if jit.CACHE_DIR is None:
        return {}
    with suppress(OSError, ValueError):
        found = json.loads((jit.CACHE_DIR.parent / TIMES).read_text())
        if isinstance(found, dict):
            return {
                name: float(value)
                for name, value in found.items()
                if isinstance(value, int | float) and 0 < value < 3600
            }
    return {}


def _write_times(times: Mapping[str, float]) -> None:
    if jit.CACHE_DIR is None:
        return
    with suppress(OSError), write_atomically(jit.CACHE_DIR.parent / TIMES) as file:
        file.write(json.dumps({name: round(value, 2) for name, value in times.items()}).encode())
