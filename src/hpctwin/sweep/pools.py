"""Where chunks of points are run: in threads, in processes; on Dask's workers in `hpctwin.sweep.on_dask`."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import BaseContext
from typing import Any, Protocol

from hpctwin.simulation.running.interruptible import THREAD_NAME
from hpctwin.sweep.bench import Bench, Row
from hpctwin.sweep.points import Inputs, Point

__all__ = ["Pool", "Processes", "Threads", "get_ready"]

_SWITCH_S = 0.0005
"""A thread that comes back from the engine waits so long at most until another lets it have its turn."""


class Pool(Protocol):
    """Runs chunks of points."""

    lost: tuple[type[BaseException], ...]
    """What a chunk's future raises when the process that ran it was lost."""
    breaks: bool
    """Whether one lost process takes all chunks with it."""

    @property
    def slots(self) -> int:
        """How many run at once."""

    def submit(self, chunk: Sequence[Point]) -> Future[list[Row]]:
        """Run a chunk, in the order in which they come."""

    def check(self) -> None:
        """Raise `UnreachableError` if the workers are out of reach."""

    def renew(self) -> None:
        """Replace what was lost with a process."""

    def close(self, *, now: bool) -> None:
        """Let go of the workers; ``now`` without waiting for what runs."""


class Threads:
    """Threads of this process; the engine holds no lock of Python's.

    Args:
        inputs: what points are made of.
        workers: how many; default the cores there are.
    """

    lost: tuple[type[BaseException], ...] = ()
    breaks = False

    def __init__(self, inputs: Inputs, workers: int | None = None) -> None:
        self.slots = workers or os.cpu_count() or 1
        self._bench = Bench(inputs)
        self._threads = ThreadPoolExecutor(self.slots, thread_name_prefix=THREAD_NAME)
        self._switched_s = sys.getswitchinterval()
        if self.slots > 1:
            sys.setswitchinterval(min(self._switched_s, _SWITCH_S))

    def submit(self, chunk: Sequence[Point]) -> Future[list[Row]]:
        """See `Pool`."""
        return self._threads.submit(self._bench.run, chunk)

    def check(self) -> None:
        """See `Pool`."""

    def renew(self) -> None:
        """See `Pool`; threads are not lost."""

    def close(self, *, now: bool) -> None:
        """See `Pool`."""
        if now:
            self._bench.stop()
        self._threads.shutdown(wait=not now, cancel_futures=now)
        sys.setswitchinterval(self._switched_s)


_bench: Bench | None = None


def _begin(inputs: Inputs, environment: Mapping[str, str]) -> None:
    """A worker process gets what it needs, once."""
    global _bench
    os.environ.clear()
    os.environ.update(environment)
    # Ctrl-C goes to all processes of a terminal; this one is told by the first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _bench = Bench(inputs)


def _run(chunk: Sequence[Point]) -> list[Row]:
    assert _bench is not None
    return _bench.run(chunk)


def get_ready() -> BaseContext:
    """How processes start: forked of one that has imported what they need, and never run anything.

    It does so once, for all sweeps to come, and in the background. Forked of this process, a worker would
    inherit the locks of threads that it has not.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    from multiprocessing.forkserver import ensure_running

    multiprocessing.set_forkserver_preload([__name__])
    ensure_running()
    return multiprocessing.get_context("forkserver")


class Processes:
    """Processes on this machine.

    Args:
        inputs: what points are made of; each process gets it once.
        workers: how many; default the cores there are.
    """

    lost = (BrokenProcessPool,)
    breaks = True

    def __init__(self, inputs: Inputs, workers: int | None = None) -> None:
        self.slots = workers or os.cpu_count() or 1
        self._inputs = inputs
        self._pool = self._made()

    def _made(self) -> ProcessPoolExecutor:
        given = self._inputs, dict(os.environ)
        return ProcessPoolExecutor(
            self.slots, mp_context=get_ready(), initializer=_begin, initargs=given
        )

    def submit(self, chunk: Sequence[Point]) -> Future[list[Row]]:
        """See `Pool`."""
        try:
            return self._pool.submit(_run, chunk)
        except BrokenProcessPool as error:
            future: Future[list[Row]] = Future()
            future.set_exception(error)
            return future

    def check(self) -> None:
        """See `Pool`."""

    def renew(self) -> None:
        """See `Pool`."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = self._made()

    def close(self, *, now: bool) -> None:
        """See `Pool`."""
        processes: list[Any] = list((getattr(self._pool, "_processes", None) or {}).values())
        self._pool.shutdown(wait=not now, cancel_futures=now)
        if now:
            for process in processes:
                process.terminate()
