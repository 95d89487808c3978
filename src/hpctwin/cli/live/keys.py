"""Single keys of a terminal, without waiting for Enter."""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["parse_keys", "read_keys"]

_NAMES = {
    "\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down",
    "\x1b[5~": "page up", "\x1b[6~": "page down",
    "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home",
    "\x1b[F": "end", "\x1bOF": "end", "\x1b[4~": "end",
    "\x1b": "escape", "\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace",
    "\t": "tab",
}  # fmt: skip
_KEY = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O[@-~])?|.", re.DOTALL)
_REST_S = 0.05
"""Time within which the rest of a key's characters arrives."""


@contextmanager
def read_keys() -> Iterator[Callable[[float], list[str]]]:
    """Yield a function that waits up to a number of seconds and returns the pressed keys.

    Keys are characters, or names such as ``page up``. The terminal is as before at the end, also
    after an exception or a signal that asks the process to end. If standard input is no terminal,
    there are no keys, and the function only waits.
    """
    # A stopped process would leave the shell with the terminal's special settings.
    handlers = {
        number: signal.signal(number, handler)
        for number, handler in (
            (signal.SIGTERM, signal.default_int_handler),
            (signal.SIGHUP, signal.default_int_handler),
            (signal.SIGTSTP, signal.SIG_IGN),
        )
    }
    try:
        if sys.stdin.isatty():
            with _raw(sys.stdin.fileno()) as read:
                yield read
        else:
            yield _wait
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def _raw(descriptor: int) -> Iterator[Callable[[float], list[str]]]:
    import termios
    import tty

    decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    def read(timeout_s: float) -> list[str]:
        text = ""
        while select.select([descriptor], [], [], _REST_S if text else timeout_s)[0]:
            received = os.read(descriptor, 1024)
            if not received:  # the terminal is gone
                raise KeyboardInterrupt
            text += decoder.decode(received)
            if not text.endswith("\x1b"):
                break
        return parse_keys(text)

    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield read
    finally:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)


def parse_keys(text: str) -> list[str]:
    """Return the keys of what a terminal sent; unknown special keys are omitted."""
    found = (_NAMES.get(one, one) for one in _KEY.findall(text))
    return [key for key in found if key.isprintable()]


def _wait(timeout_s: float) -> list[str]:
    select.select([], [], [], timeout_s)
    return []
