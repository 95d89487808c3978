"""Executor of what-ifs on Dask's workers, for pools that need more than one host."""

from __future__ import annotations

import logging
import pickle
import threading
import time
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpctwin.errors import HpctwinError
from hpctwin.policies import parse_policy
from hpctwin.sweep.on_dask import connected
from hpctwin.twin.what_if.conversion import Spare
from hpctwin.twin.what_if.pool import Answers, LocalPool, Request, Scene, waited_for
from hpctwin.twin.what_if.run import Past, WhatIf, run_ahead

if TYPE_CHECKING:
    from hpctwin.simulation import Simulation
    from hpctwin.twin.what_if.present import Present

__all__ = ["DaskPool"]

logger = logging.getLogger(__name__)

AGAIN_S = 10.0
"""Pause between attempts to connect to the Dask scheduler, in seconds."""
CONNECT_S = 5.0
"""Timeout of a connection attempt, in seconds."""


class DaskPool:
    """Runs what-ifs on Dask's workers, except the awaited one, which runs here.

    A what-if that fails because of a worker, the scheduler or the network counts as unanswered. A
    decision neither fails nor waits because of it.

    Args:
        address: Address of the Dask scheduler, such as ``tcp://host:8786``.
        scheduler_file: File that the scheduler wrote, instead of the address.
        deadline_s: Time after which a missing answer is ignored, in seconds.
    """

    def __init__(self, address: str | None, scheduler_file: Path | None, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self.fault: str | None = None
        self._where: dict[str, Any] = {"address": address, "scheduler_file": scheduler_file}
        self._here = LocalPool()
        self._client: Any = None
        self._stack = ExitStack()
        self._thread = ThreadPoolExecutor(1, "hpctwin-dask")
        self._not_before = 0.0
        self._connecting: Future[None] | None = None
        self._look_for_it()

    def run(self, asked: Request) -> Answers:
        """See `WhatIfs`."""
        if asked.unanswered is not None:
            return self._here.run(asked)
        until = time.monotonic() + self.deadline_s
        answers, begun = asked.none(), dict[tuple[int, int], Future[WhatIf]]()
        executor = self._executor()
        own = asked.pool[asked.first]
        scene = asked.futures[0]()
        for number, scene_of in enumerate(asked.futures if executor else ()):
            if number and time.monotonic() >= until:
                break
            sent = pickle.dumps((scene_of() if number else scene, own.name))
            for i in asked.wanted(number):
                if executor is not None and (number, i) != (0, asked.first):
                    about = (asked.pool[i].name, asked.past, asked.horizon_s, self.deadline_s)
                    begun[number, i] = executor.submit(_run, sent, *about)
        now = scene.present(own, asked.reused)
        answers[0][asked.first] = run_ahead(now, own, asked.past, asked.horizon_s)
        failed: str | None = None
        for (number, i), future in waited_for(begun, until):
            try:
                answers[number][i] = future.result()
            except (Exception, CancelledError) as error:
                failed = f"on Dask's workers: {type(error).__name__}: {error}"
        if executor is not None:
            self._say(failed)
        return answers

    def close(self) -> None:
        """See `WhatIfs`."""
        self._thread.shutdown(cancel_futures=True)
        self._stack.close()
        self._here.close()

    def _executor(self) -> Executor | None:
        """Return the executor on the workers; None while the scheduler is unreachable."""
        if self._client is not None and self._client.status == "running":
            found: Executor = self._client.get_executor(pure=False)
            return found
        self._look_for_it()
        return None

    def _look_for_it(self) -> None:
        """Connect in a thread, so that no decision waits for it."""
        busy = self._connecting is not None and not self._connecting.done()
        if not busy and time.monotonic() >= self._not_before:
            self._not_before = time.monotonic() + AGAIN_S
            self._connecting = self._thread.submit(self._connect)

    def _connect(self) -> None:
        self._client = None
        self._stack.close()
        try:
            self._client = self._stack.enter_context(connected(**self._where, wait_s=CONNECT_S))
            self._say(None)
        except HpctwinError as error:
            self._say(str(error))

    def _say(self, fault: str | None) -> None:
        """Record an error, and log it once instead of at each decision."""
        if fault is not None and fault != self.fault:
            logger.warning("what-ifs: %s", fault)
        self.fault = fault


@lru_cache(maxsize=4)
def _present(sent: bytes) -> Present:
    """Return the simulation of a scene, on a worker; the scene's policies share it."""
    scene: Scene
    scene, policy = pickle.loads(sent)
    return scene.present(parse_policy(policy))


def _run(sent: bytes, policy: str, past: Past, horizon_s: float | None, within_s: float) -> WhatIf:
    """Run one what-if on a worker, and stop it when no caller waits for it any more."""
    timers: list[threading.Timer] = []

    def begun(simulation: Simulation) -> None:
        timers.append(threading.Timer(within_s, simulation.stop))
        timers[-1].start()

    # Separate memory: the timer may fire just after the run, when another run would already use
    # shared spare memory.
    now = replace(_present(sent), spare=Spare())
    try:
        return run_ahead(now, parse_policy(policy), past, horizon_s, begun)
    finally:
        for timer in timers:
            timer.cancel()
