"""Compiled code that Ctrl-C interrupts: the main thread waits for another thread."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["THREAD_NAME", "hears_interrupts", "run_all", "run_interruptible"]

THREAD_NAME = "hpctwin-engine"
"""Prefix of the names of threads that run compiled code and cannot be stopped."""

T = TypeVar("T")
R = TypeVar("R")

_GRACE_S = 0.3
_LOOK_EVERY_S = 0.1


def hears_interrupts() -> bool:
    """Return whether this thread receives Ctrl-C: the main one, unless it is ignored."""
    return (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    )


def run_interruptible(run: Callable[[], int]) -> tuple[int, bool]:
    """Run a function without Python's lock, such that Ctrl-C ends the wait for it.

    Signals reach the main thread between two steps of Python, and compiled code is one step. In any
    other thread, or if Ctrl-C is ignored as in the workers of a sweep, the function is simply
    called. Handing it to a thread makes the processor wait if there are as many processes as cores.

    Args:
        run: Function to run.

    Returns:
        Its result, and whether Ctrl-C came shortly before it ended.

    Raises:
        KeyboardInterrupt: Ctrl-C came and the function did not end shortly afterwards; it keeps
            running.
    """
    if not hears_interrupts():
        return run(), False
    given: list[int] = []
    raised: list[BaseException] = []
    over = threading.Event()

    def body() -> None:
        try:
            given.append(run())
        except BaseException as error:
            raised.append(error)
        finally:
            over.set()

    thread = threading.Thread(target=body, name=THREAD_NAME, daemon=True)
    thread.start()
    interrupted = False
    try:
        # The system may deliver the signal to the other thread; this thread sees it when it wakes
        # up.
        while not over.wait(_LOOK_EVERY_S):
            pass
    except KeyboardInterrupt:
        interrupted = True
        if not over.wait(_GRACE_S):
            raise
    if raised:
        raise raised[0]
    return given[0], interrupted


def run_all(
    function: Callable[[T], R], items: Iterable[T], *, threads: int, stop: Callable[[], None]
) -> list[R]:
    """Run a function for each item in threads; Ctrl-C ends the wait for them.

    Args:
        function: Function to run.
        items: Its arguments; they are started in this order.
        threads: Largest number of threads.
        stop: Function called after an error or Ctrl-C, to make running calls end; they are not
            waited for.

    Returns:
        Results in the order of the items.
    """
    waiting = list(items)
    given: dict[int, R] = {}
    raised: list[BaseException] = []
    left = iter(enumerate(waiting))  # Python's lock gives each item to one thread

    def work() -> None:
        try:
            for number, item in left:
                if raised:
                    break
                given[number] = function(item)
        except BaseException as error:
            raised.append(error)

    workers = [
        threading.Thread(target=work, name=f"{THREAD_NAME}_{number}")
        for number in range(min(threads, len(waiting)))
    ]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            while worker.is_alive() and not raised:
                worker.join(_LOOK_EVERY_S)
    except BaseException as error:
        raised.append(error)
    if raised:
        stop()
        raise raised[0]
    return [given[number] for number in range(len(waiting))]
