"""``hpctwin warmup``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

__all__ = ["warmup_command"]

PARTS = 3
"""So many processes compile the engine's kernels."""


def warmup_command() -> int:
    """Compile the engine and the orderings now, so that no later command waits for it."""
    begin = time.perf_counter()
    print("compiling the engine, once after installing …", flush=True)
    from hpctwin.engine import jit
    from hpctwin.engine.kernel import all_kernels
    from hpctwin.policies import BUILT_IN

    with ThreadPoolExecutor(os.cpu_count() or 1) as executor:
        # Each in a process of its own, as compiling holds the interpreter; what is kept is read below.
        parts = executor.map(_compile, range(PARTS) if jit.CACHE_DIR else ())
        for order in BUILT_IN.values():
            _ = order.compiled
        failed = [said for said in parts if said]
    for said in failed:
        print(said, file=sys.stderr)
    for kernel in all_kernels():
        kernel.compiled()
    kept = f"kept in {jit.CACHE_DIR}" if jit.CACHE_DIR else "not kept: no folder can be written"
    print(f"ready after {time.perf_counter() - begin:.1f} s; {kept}")
    return 1 if failed else 0


def _compile(number: int) -> str:
    """Compile every so manieth kernel in another process; what it said if that failed."""
    mine = f"all_kernels()[{number}::{PARTS}]"
    code = f"from hpctwin.engine.kernel import all_kernels\nfor k in {mine}: k.compiled()"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""
