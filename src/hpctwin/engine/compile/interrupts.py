"""Ctrl-C, or another signal that raises an interrupt, while a kernel is compiled.

Compiling calls Python from places where Python drops exceptions: callbacks of LLVM, of the garbage
collector and of weak references. An interrupt in such a place would be lost. This module records it
and raises it again.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["end_if_interrupted", "interrupts_noted"]

_heard = False


@contextmanager
def interrupts_noted() -> Iterator[None]:
    """Record an interrupt in addition to raising it at once.

    `end_if_interrupted` and the end of the block raise it again.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed inside the block.
    """
    global _heard
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if callable(handler := signal.getsignal(number))
    }
    _heard = False
    told = sys.unraisablehook

    def tell(dropped: sys.UnraisableHookArgs) -> None:
        if not isinstance(dropped.exc_value, KeyboardInterrupt):
            told(dropped)

    def note(number: int, frame: FrameType | None) -> None:
        global _heard
        try:
            before[signal.Signals(number)](number, frame)
        except KeyboardInterrupt:
            _heard = True
            raise

    sys.unraisablehook = tell
    for number in before:
        signal.signal(number, note)
    try:
        yield
        end_if_interrupted()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = told
        _heard = False


def end_if_interrupted() -> None:
    """Raise an interrupt that was recorded; the compiler calls this regularly.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed since `interrupts_noted`.
    """
    if _heard and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
