"""Compiled code that hears Ctrl-C: Python's main thread waits for it instead of being in it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["THREAD_NAME", "hears_interrupts", "run_all", "run_interruptible"]

THREAD_NAME = "hpctwin-engine"
"""Begins the names of threads that run compiled code and cannot be stopped in it."""

T = TypeVar("T")
R = TypeVar("R")

_GRACE_S = 0.3
_LOOK_EVERY_S = 0.1


def hears_interrupts() -> bool:
    """Whether Ctrl-C comes to this thread; not to any but the main thread, nor where it is ignored."""
    return (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    )


def run_interruptible(run: Callable[[], int]) -> tuple[int, bool]:
    """Run something that holds no lock of Python's, such that Ctrl-C ends the wait for it.

    Signals come to the main thread between two steps of Python, and compiled code is one step. In any
    other thread, and where Ctrl-C is ignored as in the workers of a sweep, it is simply run: to hand it to a
    thread makes the processor wait where as many processes run as it has cores.

    Args:
        run: what to run.

    Returns:
        What it gave, and whether Ctrl-C came meanwhile, shortly before its end.

    Raises:
        KeyboardInterrupt: Ctrl-C came, and a moment later there was no end yet; what was run runs on.
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
        # The system may hand the signal to the other thread; this one sees it when it wakes.
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
    """Run a function for each item, in threads, such that Ctrl-C ends the wait for them.

    Args:
        function: what to run.
        items: what for; they are begun in this order.
        threads: at most so many at once.
        stop: called at a fault or Ctrl-C, to have what runs come to an end; it is not waited for.

    Returns:
        What it gave, in the order of the items.
    """
    waiting = list(items)
    given: dict[int, R] = {}
    raised: list[BaseException] = []
    left = iter(enumerate(waiting))  # each is handed to one thread: Python goes on by one at a time

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
