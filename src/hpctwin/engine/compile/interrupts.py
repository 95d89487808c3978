"""Ctrl-C while a kernel is compiled.

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
    """Record Ctrl-C in addition to raising it at once.

    `end_if_interrupted` and the end of the block raise it again.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed inside the block.
    """
    global _heard
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    _heard = False
    told = sys.unraisablehook

    def tell(dropped: sys.UnraisableHookArgs) -> None:
        if not isinstance(dropped.exc_value, KeyboardInterrupt):
            told(dropped)

    sys.unraisablehook = tell
    signal.signal(signal.SIGINT, _note)
    try:
        yield
        end_if_interrupted()
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = told
        _heard = False


def _note(number: int, frame: FrameType | None) -> None:
    global _heard
    _heard = True
    raise KeyboardInterrupt


def end_if_interrupted() -> None:
    """Raise an interrupt that was recorded; the compiler calls this regularly.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed since `interrupts_noted`.
    """
    if _heard and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
