"""The bus, which brings events to the twin, and recordings of it."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hpctwin.errors import HpctwinError
from hpctwin.rms.records.events import Event, event_json

__all__ = ["BATCH", "Bus", "Delivery", "LocalBus", "Player", "Recorder", "read_recording"]

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


class Recorder:
    """A bus that records each delivery before it passes it on.

    The file has one JSON object per line: ``at_s`` (wall-clock time of receipt), ``id``, and
    ``event`` (the text), or ``base64`` if the bytes are no text. Lines are flushed at once, so a
    crash can cut only the last one short.
    """

    def __init__(self, bus: Bus, path: Path) -> None:
        self.bus = bus
        self._file = path.open("ab")
        if self._file.tell() > 0:
            # End a line that a crash has cut short; else the first new line would be part of it.
            with path.open("rb") as file:
                file.seek(-1, 2)
                if file.read(1) != b"\n":
                    self._file.write(b"\n")

    def receive(self, timeout_s: float) -> list[Delivery]:
        """Return new deliveries after recording them."""
        deliveries = self.bus.receive(timeout_s)
        if deliveries:
            at_s = time.time()
            self._file.write(b"".join(_line(one, at_s) for one in deliveries))
            self._file.flush()
        return deliveries

    def acknowledge(self, ids: list[str]) -> None:
        """See `Bus`."""
        self.bus.acknowledge(ids)

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """See `Bus`."""
        self.bus.dead_letter(delivery, reason)

    def lag(self) -> int:
        """See `Bus`."""
        return self.bus.lag()

    def close(self) -> None:
        """Close the file and the bus."""
        self._file.close()
        self.bus.close()


class Player:
    """A bus that replays a recording.

    Args:
        path: The recording.
        speed: Seconds of the recording per second; None for as fast as possible.

    Raises:
        HpctwinError: The file cannot be read.
    """

    def __init__(self, path: Path, *, speed: float | None = None) -> None:
        self.speed = speed
        self.torn = 0
        self.done = False
        self._lines = read_recording(path, torn=self._count)
        self._next = next(self._lines, None)
        self._began = (time.monotonic(), self._next[0] if self._next else 0.0)

    def receive(self, timeout_s: float) -> list[Delivery]:
        """Return the deliveries that are due by now in the recording's time."""
        until = time.monotonic() + timeout_s
        found: list[Delivery] = []
        while self._next is not None and len(found) < BATCH:
            due = self._due(self._next[0])
            now = time.monotonic()
            if due > now:
                if found or due > until:
                    break
                time.sleep(due - now)
            found.append(self._next[1])
            self._next = next(self._lines, None)
        if self._next is None:
            self.done = True
        if not found:
            time.sleep(max(0.0, until - time.monotonic()))
        return found

    def acknowledge(self, ids: list[str]) -> None:
        """Do nothing: a recording does not change."""

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Do nothing: a recording does not change."""

    def lag(self) -> int:
        """Return 0, because the rest of the file is not counted."""
        return 0

    def close(self) -> None:
        """Stop reading."""
        self._lines.close()

    def _due(self, at_s: float) -> float:
        began, first_s = self._began
        return began if self.speed is None else began + (at_s - first_s) / self.speed

    def _count(self) -> None:
        self.torn += 1


def read_recording(
    path: Path, *, torn: Callable[[], None] = lambda: None
) -> Generator[tuple[float, Delivery], None, None]:
    """Yield the time of receipt and the delivery of each line of a recording.

    Lines that a crash has cut short are skipped.

    Args:
        path: The recording.
        torn: Function called for each skipped line.

    Raises:
        HpctwinError: The file cannot be read.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise HpctwinError(f"{path}: {error.strerror}") from error
    with file:
        for line in file:
            try:
                body = json.loads(line)
                text = body.get("event")
                data = text.encode() if text is not None else base64.b64decode(body["base64"])
                yield float(body["at_s"]), Delivery(str(body["id"]), data)
            except (ValueError, KeyError, TypeError, AttributeError):
                torn()


def _line(delivery: Delivery, at_s: float) -> bytes:
    body: dict[str, object] = {"at_s": at_s, "id": delivery.id}
    try:
        body["event"] = delivery.data.decode()
    except UnicodeDecodeError:
        body["base64"] = base64.b64encode(delivery.data).decode()
    return json.dumps(body).encode() + b"\n"
