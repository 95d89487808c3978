"""``hpctwin warmup``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

__all__ = ["warmup_command"]

PARTS = ("kernel_packed", "kernel_powered", "lookahead")
"""Modules of the engine with entries of their own, which need those of the kernel."""


def warmup_command() -> int:
    """Compile the engine and the orderings now, so that no later command waits for it."""
    from importlib import import_module

    begin = time.perf_counter()
    print("compiling the engine, once after installing …", flush=True)
    from hpctwin.engine import jit, kernel
    from hpctwin.policies import BUILT_IN

    with ThreadPoolExecutor(os.cpu_count() or 1) as executor:
        # Each in a process of its own, as compiling holds the interpreter; what is kept is read below.
        parts = executor.map(_compile, PARTS if jit.CACHE_DIR else ())
        for order in BUILT_IN.values():
            _ = order.compiled
        failed = [said for said in parts if said]
    for said in failed:
        print(said, file=sys.stderr)
    for part in PARTS:
        import_module(f"hpctwin.engine.{part}")
    kept = f"kept in {jit.CACHE_DIR}" if jit.CACHE_DIR else "not kept: no folder can be written"
    print(f"ready after {time.perf_counter() - begin:.1f} s; {kept}")
    return 0 if kernel.advance.signatures and not failed else 1


def _compile(part: str) -> str:
    """Compile a part of the engine in another process; what it said if that failed."""
    command = [sys.executable, "-c", f"import hpctwin.engine.{part}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""
