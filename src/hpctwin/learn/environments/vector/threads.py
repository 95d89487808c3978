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
    """The calling thread and others, which sleep while there is nothing to do.

    Args:
        agents: records of `hpctwin.engine.agents.agent_record.Agent`.
        choices: of `Chosen` beside it, of each.
        outcomes: of `Outcome`, of each.
        threads: how many, the calling one among them.
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
        """Step all agents; whether any episode is over, or an agent could not go on: why is in its record.

        Raises:
            IndexError: with bounds checked, the engine went past an array.
        """
        if self._others and self._process != os.getpid():
            self._start()  # where a process was copied, its other threads were not
        if self._begin(self._address):
            for other in self._others:
                if self._called[other.number]:
                    other.call.release()
        fault = None
        try:
            done = self._join(self._address)
        except Exception as error:  # others may be at work still
            leave(self._address)
            done, fault = False, error
        while not done:
            # Whoever is at work may be waiting for this processor.
            time.sleep(MOMENT_S)
            done = wait(self._address)
        for other in self._others:
            fault, other.fault = fault or other.fault, None
        if fault is not None:
            raise fault
        return bool(self._noted[0])

    def close(self) -> None:
        """End the others; a step after that is done by the calling thread alone."""
        _end_all(self._others)


class _Other:
    """A thread that serves.

    Args:
        number: of the thread, from 1 on.
        words: of the table; kept for as long as it serves.
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
        """Whether it served until it was to sleep, and came upon no fault."""
        try:
            serve(self.number, self.words.ctypes.data)
        except Exception as error:  # told by the one who began the round
            self.fault = error
            leave(self.words.ctypes.data)
            return False
        return True


def _end_all(others: list[_Other]) -> None:
    """Have threads end when they have nothing to do."""
    for other in others:
        other.over = True
        with suppress(RuntimeError):  # it has just been called
            other.call.release()
    others.clear()
