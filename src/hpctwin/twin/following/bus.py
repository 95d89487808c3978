"""The bus, which brings events to the twin."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from hpctwin.rms.records.events import Event, event_json

__all__ = ["BATCH", "Bus", "Delivery", "LocalBus"]

BATCH = 1000
"""Maximum number of deliveries per call of `Bus.receive`."""
DEAD_LETTERS = 1000


@dataclass(frozen=True)
class Delivery:
    """An event as it was received, not parsed yet.

    Args:
        id: Identifier that the bus gave it.
        data: Bytes of the event.
    """

    id: str
    data: bytes


class Bus(Protocol):
    """The consumer's side of a bus."""

    def receive(self, timeout_s: float) -> list[Delivery]:
        """Return new deliveries in order; wait up to ``timeout_s`` for the first."""

    def acknowledge(self, ids: list[str]) -> None:
        """Confirm deliveries that the journal has; they are not delivered again."""

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Set a delivery aside that cannot be parsed; it counts as acknowledged."""

    def lag(self) -> int:
        """Return the number of deliveries that wait."""

    def close(self) -> None:
        """Close the connections."""


class LocalBus:
    """A bus within one process.

    Args:
        limit: Number of waiting events from which a publisher blocks until the consumer has read
            some (back-pressure).
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
        """Send bytes; wait while the bus is full, and drop them if it is closed."""
        with self._changed:
            while len(self._waiting) >= self.limit and not self._closed:
                self._changed.wait()
            if self._closed:
                return
            self._next += 1
            self._waiting.append(Delivery(str(self._next), data))
            self._changed.notify_all()

    def receive(self, timeout_s: float) -> list[Delivery]:
        """Return new deliveries in order; wait up to ``timeout_s`` for the first."""
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
        """Do nothing: this bus delivers each event once."""

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Record the delivery in ``dead_letters``, which holds the last thousand."""
        self.dead_letters.append((delivery.data, reason))

    def lag(self) -> int:
        """Return the number of deliveries that wait."""
        return len(self._waiting)

    def close(self) -> None:
        """Release waiting publishers; events that they send from now on are dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
