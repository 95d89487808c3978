"""An emulated cluster in a separate process that ends with its context."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpctwin.errors import HpctwinError

__all__ = ["PATIENCE_S", "emulated_process"]

PATIENCE_S = 600.0
"""Timeout for the start and the end of the process, in seconds.

The first start after an installation compiles the engine, which takes minutes on a busy host.
"""


@contextmanager
def emulated_process(address: Path, *options: str) -> Iterator[None]:
    """Run ``python -m hpctwin.twin.emulated`` as a process until the context ends.

    The context begins when the process serves its socket.

    Args:
        address: Path of its Unix socket.
        options: Further options of its command line.

    Raises:
        HpctwinError: The process does not start.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "hpctwin.twin.emulated", str(address), *options],
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + PATIENCE_S
        while not address.exists():
            if process.poll() is not None or time.monotonic() > until:
                raise HpctwinError(f"emulated cluster {address.stem} did not start")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()
