"""An emulated cluster in a process of its own, for as long as it is needed."""

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
"""Compiling the engine takes a while, once after installing, and minutes where much else runs."""


@contextmanager
def emulated_process(address: Path, *options: str) -> Iterator[None]:
    """A process of ``python -m hpctwin.twin.emulated`` that serves, ended at the end.

    Args:
        address: of its Unix socket.
        options: of its command line.

    Raises:
        HpctwinError: it did not begin.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "hpctwin.twin.emulated", str(address), *options],
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + PATIENCE_S
        while not address.exists():
            if process.poll() is not None or time.monotonic() > until:
                raise HpctwinError(f"the emulated cluster {address.stem} did not begin")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()
