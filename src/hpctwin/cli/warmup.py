"""``hpctwin warmup``."""

from __future__ import annotations

import os
import subprocess
import sys
import time

__all__ = ["warmup_command"]

PARTS = 3
"""Number of processes that compile the engine's kernels."""


def warmup_command() -> int:
    """Compile the engine and the orderings now, so that later commands need not wait."""
    begin = time.perf_counter()
    print("compiling the engine, once after installing …", flush=True)
    from hpctwin.engine.compile import jit
    from hpctwin.engine.operations.kernel import all_kernels
    from hpctwin.policies import BUILT_IN
    from hpctwin.simulation.running.interruptible import run_all

    parts = [
        f"from hpctwin.engine.operations.kernel import all_kernels\n"
        f"for k in all_kernels()[{number}::{PARTS}]: k.compiled()"
        for number in range(PARTS)
    ]
    parts.append(
        "from hpctwin.policies import BUILT_IN\nfor order in BUILT_IN.values(): order.compiled"
    )
    running: list[subprocess.Popen[str]] = []

    def compile_in_process(code: str) -> str:
        """Run code in a process; return its error output if it failed, else nothing."""
        with subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            running.append(process)
            _, said = process.communicate()
        return said if process.returncode else ""

    def stop() -> None:
        for process in running:
            process.terminate()

    # Each part runs in its own process, because compilation holds the interpreter lock.
    said = run_all(
        compile_in_process,
        parts if jit.CACHE_DIR else (),
        threads=os.cpu_count() or 1,
        stop=stop,
    )
    failed = [text for text in said if text]
    for text in failed:
        print(text, file=sys.stderr)
    for kernel in all_kernels():
        kernel.compiled()
    for order in BUILT_IN.values():
        _ = order.compiled
    kept = f"kept in {jit.CACHE_DIR}" if jit.CACHE_DIR else "not kept: no folder can be written"
    print(f"ready after {time.perf_counter() - begin:.1f} s; {kept}")
    return 1 if failed else 0
