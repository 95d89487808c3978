"""Ctrl-C while a kernel is compiled.

Compiling calls Python from places in which Python drops what is raised: callbacks of LLVM, of the garbage
collector, of weak references. An interrupt that comes just then would be lost.
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
    """Note Ctrl-C besides raising it at once; `end_if_interrupted` and the end of the block raise it again.

    Raises:
        KeyboardInterrupt: it came.
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
    """Called now and then while compiling.

    Raises:
        KeyboardInterrupt: Ctrl-C came since `interrupts_noted`.
    """
    if _heard and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
