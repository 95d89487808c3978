"""Sockets of the emulated cluster: requests in, events out, a line of JSON each."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import socket
import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpctwin.errors import ConfigError
from hpctwin.model.files import cause

logger = logging.getLogger(__name__)

MAX_REQUEST = 1_000_000
"""Longest request, in bytes; the rest of a longer one is skipped."""
MAX_SKIPPED = 100 * MAX_REQUEST
"""Bytes skipped at most; then the connection ends."""
MAX_CONNECTIONS = 64
MAX_BEHIND = 100_000
"""Events that a subscriber may be behind before it is cut off."""
RECENT = 10_000
"""Events kept for subscribers that come back."""
LOOK_S = 0.2


@dataclass
class Request:
    """A client's request; the owner of the cluster sets ``reply``, then ``done``."""

    body: dict[str, Any]
    reply: dict[str, Any] | bytes = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)


class Feeds:
    """Subscribers to events, each with its own queue, so that none delays others."""

    def __init__(self) -> None:
        self._queues: list[queue.Queue[bytes | None]] = []
        self._recent: deque[bytes] = deque(maxlen=RECENT)
        self._lock = threading.Lock()

    def put(self, line: bytes) -> None:
        """Give an event to all subscribers; cut off any that is too far behind."""
        with self._lock:
            self._recent.append(line)
            for lines in list(self._queues):
                if lines.qsize() >= MAX_BEHIND:
                    logger.warning(
                        "a subscriber is too slow: %d events are queued; disconnecting it",
                        MAX_BEHIND,
                    )
                    self._queues.remove(lines)
                else:
                    lines.put(line)

    def open(self, recent: int) -> queue.Queue[bytes | None]:
        """Return a new subscriber's queue, starting with ``recent`` of the last events."""
        lines: queue.Queue[bytes | None] = queue.Queue()
        with self._lock:
            for line in list(self._recent)[max(0, len(self._recent) - recent) :]:
                lines.put(line)
            self._queues.append(lines)
        return lines

    def is_open(self, lines: queue.Queue[bytes | None]) -> bool:
        """Return whether the queue gets further events."""
        return any(known is lines for known in self._queues)

    def drop(self, lines: queue.Queue[bytes | None]) -> None:
        """Remove a subscriber that is gone."""
        with self._lock, contextlib.suppress(ValueError):
            self._queues.remove(lines)

    def close(self) -> None:
        """End all subscriptions."""
        with self._lock:
            for lines in self._queues:
                lines.put(None)


class Listener:
    """Accepts connections on a Unix socket for its owner alone, each in a thread.

    Args:
        path: Path of the socket.
        requests: Queue for requests.
        feeds: Source of events.
        stop: Event set at the end.

    Raises:
        ConfigError: The socket cannot be created, or another cluster is served there already.
    """

    def __init__(
        self, path: Path, requests: queue.Queue[Request], feeds: Feeds, stop: threading.Event
    ) -> None:
        self.path = path
        self._requests = requests
        self._feeds = feeds
        self._stop = stop
        self._slots = threading.Semaphore(MAX_CONNECTIONS)
        self._listener = _bind(path)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections, and remove the socket."""
        self._listener.close()
        self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if not self._slots.acquire(blocking=False):
                with connection, contextlib.suppress(OSError):
                    connection.sendall(b'{"error": "too many connections"}\n')
                continue
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            connection,
            connection.makefile("rwb") as stream,
            self._slot(),
        ):
            while line := stream.readline(MAX_REQUEST + 1):
                if len(line) > MAX_REQUEST and not _skip_line(stream, line):
                    return
                body = _parse(line)
                if body is None:
                    reply: dict[str, Any] | bytes = {"error": "bad request: expected a JSON object"}
                elif len(line) > MAX_REQUEST:
                    reply = {"error": f"bad request: longer than {MAX_REQUEST} bytes"}
                elif body.get("op") == "subscribe":
                    recent = body.get("recent", 0)
                    self._feed(stream, recent if isinstance(recent, int) else 0)
                    return
                else:
                    request = Request(body)
                    self._requests.put(request)
                    while not request.done.wait(LOOK_S):
                        if self._stop.is_set():
                            return
                    reply = request.reply
                stream.write(reply if isinstance(reply, bytes) else json.dumps(reply).encode())
                stream.write(b"\n")
                stream.flush()

    def _feed(self, stream: Any, recent: int) -> None:
        """Write events as they come until the subscriber disconnects."""
        lines = self._feeds.open(recent)
        try:
            stream.write(b'{"subscribed": true}\n')
            stream.flush()
            while (line := lines.get()) is not None and self._feeds.is_open(lines):
                stream.write(line)
                if lines.empty():
                    stream.flush()
        finally:
            self._feeds.drop(lines)

    @contextlib.contextmanager
    def _slot(self) -> Any:
        try:
            yield
        finally:
            self._slots.release()


def _bind(path: Path) -> socket.socket:
    if path.exists() and not path.is_socket():
        raise ConfigError(f"{path}: the file exists and is not a socket; choose another path")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket():
            if _is_served(path):
                raise ConfigError(
                    f"{path}: another emulated cluster uses this socket; choose another path"
                )
            path.unlink()
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(MAX_CONNECTIONS)
    except OSError as error:
        listener.close()
        raise ConfigError(f"{path}: the socket cannot be created: {cause(error)}") from error
    except ConfigError:
        listener.close()
        raise
    return listener


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        trial.settimeout(1.0)
        try:
            trial.connect(str(path))
        except OSError:
            return False
    return True


def _parse(line: bytes) -> dict[str, Any] | None:
    if len(line) > MAX_REQUEST:
        return {}
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _skip_line(stream: Any, line: bytes) -> bool:
    """Read on to the end of a line that is too long; return whether it was found."""
    skipped = 0
    while not line.endswith(b"\n"):
        line = stream.readline(MAX_REQUEST)
        skipped += len(line)
        if not line or skipped > MAX_SKIPPED:
            return False
    return True
