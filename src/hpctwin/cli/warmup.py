"""``hpctwin warmup``."""

from __future__ import annotations

import time

__all__ = ["warmup_command"]


def warmup_command() -> int:
    """Compile the engine and the orderings now, so that no later command waits for it."""
    begin = time.perf_counter()
    print("compiling the engine, once after installing …", flush=True)
    from hpctwin.engine import jit, kernel, kernel_powered
    from hpctwin.policies import BUILT_IN

    for order in BUILT_IN.values():
        _ = order.compiled
    kept = f"kept in {jit.CACHE_DIR}" if jit.CACHE_DIR else "not kept: no folder can be written"
    print(f"ready after {time.perf_counter() - begin:.1f} s; {kept}")
    compiled = kernel.advance.signatures and kernel_powered.advance_powered.signatures
    return 0 if compiled else 1
