"""Threads that step many agents together."""

from __future__ import annotations

import os
import threading
import time
import weakref
from contextlib import suppress
from typing import Any

from hpctwin.engine.agents.parallel_steps import begin_round, join_round, leave, serve, table, wait

__all__ = ["KERNELS", "Threads"]

MOMENT_S = 5e-5
KERNELS = (begin_round, join_round, serve, wait, leave)


class Threads:
    """The calling thread and helper threads, which sleep while there is nothing to do.

    Args:
        agents: Records of `hpctwin.engine.agents.agent_record.Agent`.
        choices: Record `Chosen` of each agent.
        outcomes: Record `Outcome` of each agent.
        threads: Number of threads, including the calling one.
    """

    def __init__(self, agents: Any, choices: Any, outcomes: Any, threads: int) -> None:
        self._what = agents, choices, outcomes, threads
        self._others: list[_Other] = []
        self._begin, self._join = begin_round.compiled(), join_round.compiled()
        self._start()
        weakref.finalize(self, _end_all, self._others)

    def _start(self) -> None:
        self._process = os.getpid()
        self._table, self._called, self._noted = table(*self._what)
        self._address = self._table.ctypes.data
        self._others[:] = [_Other(number, self._table) for number in range(1, self._what[-1])]

    def step(self) -> bool:
        """Step all agents; return whether an episode ended or an agent cannot continue.

        The reason is in the agent's record.

        Raises:
            IndexError: With bounds checking, the engine accessed an array out of bounds.
        """
        if self._others and self._process != os.getpid():
            self._start()  # a forked process does not have the helper threads
        if self._begin(self._address):
            for other in self._others:
                if self._called[other.number]:
                    other.call.release()
        fault = None
        try:
            done = self._join(self._address)
        except Exception as error:  # others may still be working
            leave(self._address)
            done, fault = False, error
        while not done:
            # A working thread may be waiting for this processor.
            time.sleep(MOMENT_S)
            done = wait(self._address)
        for other in self._others:
            fault, other.fault = fault or other.fault, None
        if fault is not None:
            raise fault
        return bool(self._noted[0])

    def close(self) -> None:
        """End the helper threads; later steps use the calling thread alone."""
        _end_all(self._others)


class _Other:
    """Helper thread.

    Args:
        number: Number of the thread, from 1.
        words: The shared table, kept alive while the thread runs.
    """

    def __init__(self, number: int, words: Any) -> None:
        self.number, self.words = number, words
        self.fault: Exception | None = None
        self.over = False
        self.call = threading.Lock()
        self.call.acquire()
        threading.Thread(target=self._run, name=f"hpctwin-agents-{number}", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.call.acquire()
            while not self.over and not self._served():
                pass
            if self.over:
                return

    def _served(self) -> bool:
        """Serve until there is nothing to do; return whether that was without an error."""
        try:
            serve(self.number, self.words.ctypes.data)
        except Exception as error:  # raised by the thread that began the round
            self.fault = error
            leave(self.words.ctypes.data)
            return False
        return True


def _end_all(others: list[_Other]) -> None:
    """Make threads end when they have nothing to do."""
    for other in others:
        other.over = True
        with suppress(RuntimeError):  # it was called just now
            other.call.release()
    others.clear()
