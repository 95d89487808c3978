"""Commands of hpctwin in separate processes that end with their context."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from hpctwin.errors import HpctwinError

__all__ = ["PATIENCE_S", "emulated_process", "running", "signals_handled"]

PATIENCE_S = 600.0
"""Timeout for the start and the end of the process, in seconds.

The first start after an installation compiles the engine, which takes minutes on a busy host.
"""


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of hpctwin until the context ends; only its errors are shown.

    Ctrl-C in the terminal does not reach the process, so that the caller ends processes in order.

    Args:
        command: Words of the command line without ``hpctwin``.
    """
    process = None
    try:
        with _signals_delayed():
            process = subprocess.Popen(
                [sys.executable, "-m", "hpctwin", *command, "--log-level", "error"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        yield process
    finally:
        if process is not None:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()


@contextmanager
def _signals_delayed() -> Iterator[None]:
    """Delay signals that ask to end: if one interrupted the start of a process, nothing would end it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    with signals_handled(lambda number, _: heard.append(number)):
        yield
    for number in heard:
        signal.raise_signal(number)


@contextmanager
def signals_handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle the signals that ask to end in this block: Ctrl-C, `SIGTERM` and the terminal's end."""
    before = {
        number: signal.signal(number, handler)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def emulated_process(address: Path, *options: str) -> Iterator[None]:
    """Run ``hpctwin rms emulate`` as a process until the context ends.

    The context begins when the process serves its socket.

    Args:
        address: Path of its Unix socket.
        options: Further options of its command line.

    Raises:
        HpctwinError: The process does not start.
    """
    with running("rms", "emulate", str(address), *options) as process:
        until = time.monotonic() + PATIENCE_S
        while not address.exists():
            if process.poll() is not None or time.monotonic() > until:
                raise HpctwinError(f"emulated cluster {address.stem} did not start")
            time.sleep(0.05)
        yield
