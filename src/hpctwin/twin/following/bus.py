"""The bus: how events reach the twin."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from hpctwin.rms.records.events import Event, event_json

__all__ = ["BATCH", "Bus", "Delivery", "LocalBus"]

BATCH = 1000
"""At most so many deliveries are received at once."""
DEAD_LETTERS = 1000


@dataclass(frozen=True)
class Delivery:
    """An event as it came, not understood yet.

    Args:
        id: the bus's own name for it.
        data: the bytes.
    """

    id: str
    data: bytes


class Bus(Protocol):
    """The consumer's side."""

    def receive(self, timeout_s: float) -> list[Delivery]:
        """What has come, in order; waits so long for the first."""

    def acknowledge(self, ids: list[str]) -> None:
        """These are in the journal and need not be delivered again."""

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Put aside what cannot be understood; it counts as acknowledged."""

    def lag(self) -> int:
        """How many deliveries wait."""

    def close(self) -> None:
        """Give back connections."""


class LocalBus:
    """A bus within the process.

    Args:
        limit: with so many events waiting, a publisher waits for the consumer (back-pressure).
    """

    def __init__(self, limit: int = 100_000) -> None:
        self.limit = limit
        self.dead_letters: deque[tuple[bytes, str]] = deque(maxlen=DEAD_LETTERS)
        self._waiting: deque[Delivery] = deque()
        self._next = 0
        self._closed = False
        self._changed = threading.Condition()

    def publish(self, event: Event) -> None:
        """Send an event."""
        self.put(event_json(event).encode())

    def put(self, data: bytes) -> None:
        """Send bytes; waits while the bus is full, and drops them when it is closed."""
        with self._changed:
            while len(self._waiting) >= self.limit and not self._closed:
                self._changed.wait()
            if self._closed:
                return
            self._next += 1
            self._waiting.append(Delivery(str(self._next), data))
            self._changed.notify_all()

    def receive(self, timeout_s: float) -> list[Delivery]:
        """What has come, in order; waits so long for the first."""
        until = time.monotonic() + timeout_s
        with self._changed:
            while not self._waiting and not self._closed:
                left = until - time.monotonic()
                if left <= 0:
                    return []
                self._changed.wait(left)
            found = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            self._changed.notify_all()
            return found

    def acknowledge(self, ids: list[str]) -> None:
        """Nothing is delivered twice here."""

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Keep the last thousand for looking at."""
        self.dead_letters.append((delivery.data, reason))

    def lag(self) -> int:
        """How many deliveries wait."""
        return len(self._waiting)

    def close(self) -> None:
        """Let publishers go on; what they send is dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
