"""Kernels that are needed together: loaded, or compiled, which takes a while and is said.

How long each took is noted beside the compiled code, where the next version of the engine finds it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from hpctwin.engine.compile import jit
from hpctwin.engine.compile.jit import Kernel
from hpctwin.model.files.files import write_atomically

__all__ = ["prepare", "seconds_left"]

USUAL_S = 3.0
"""What a kernel takes that nothing is known of, seconds."""
TIMES = "seconds.json"


def prepare(kernels: Iterable[Kernel]) -> None:
    """Make kernels ready to be called; what must be compiled is said on the standard error.

    Args:
        kernels: all that will be needed soon, so that the estimate is of all of them.
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
    """How long compiling some kernels will take, seconds.

    Args:
        names: of the kernels.
        known: what kernels took on this machine some time ago.
        took: what kernels have taken just now: tells how fast the machine is at present.
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
