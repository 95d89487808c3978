"""Recording what comes over a bus, and playing it again."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Generator
from pathlib import Path

from hpctwin.errors import HpctwinError
from hpctwin.twin.following.bus import BATCH, Bus, Delivery

__all__ = ["Player", "Recorder", "read_recording"]


class Recorder:
    """A bus that writes down each delivery before it hands it on.

    One JSON object per line: ``at_s`` (wall-clock time of receipt), ``id``, and ``event`` (the text) or
    ``base64`` where it is not text. Lines are flushed at once; after a crash only the last may be torn.

    Args:
        bus: where the deliveries come from.
        path: the file; appended to.
    """

    def __init__(self, bus: Bus, path: Path) -> None:
        self.bus = bus
        self._file = path.open("ab")
        if self._file.tell() > 0:
            # A line that a crash has torn must not swallow the first new one.
            with path.open("rb") as file:
                file.seek(-1, 2)
                if file.read(1) != b"\n":
                    self._file.write(b"\n")

    def receive(self, timeout_s: float) -> list[Delivery]:
        """What has come, written down."""
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
    """A bus that delivers a recording again.

    Args:
        path: the recording.
        speed: seconds of the recording per second; None for as fast as possible.

    Raises:
        HpctwinError: the file cannot be read.
    """

    def __init__(self, path: Path, *, speed: float | None = None) -> None:
        self.speed = speed
        self.torn = 0
        self.done = False
        self._lines = read_recording(path, torn=self._count)
        self._next = next(self._lines, None)
        self._began = (time.monotonic(), self._next[0] if self._next else 0.0)

    def receive(self, timeout_s: float) -> list[Delivery]:
        """What was received up to now in the recording's time."""
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
        """Nothing to do."""

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Nothing to do."""

    def lag(self) -> int:
        """Not known."""
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
    """Receipt time and delivery, line by line; lines that a crash has torn are passed over.

    Args:
        path: the file.
        torn: called for each such line.

    Raises:
        HpctwinError: the file cannot be read.
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
