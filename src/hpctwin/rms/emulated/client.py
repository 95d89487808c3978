"""The emulated cluster as a resource manager, over its socket."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpctwin.rms.manager import Capability, Outcome, UnreachableError
from hpctwin.rms.records import Snapshot

__all__ = ["EmulatedManager"]

MAX_REPLY = 1 << 30


class EmulatedManager:
    """Talks to an emulated cluster in another process; connects anew when the connection is lost.

    Args:
        path: of its Unix socket.
        timeout_s: of each call.

    Raises:
        UnreachableError: nobody answers there.
    """

    def __init__(self, path: str | Path, *, timeout_s: float = 5.0) -> None:
        self.path = str(path)
        self.timeout_s = timeout_s
        self._lock = threading.Lock()
        self._stream: Any = None
        self._feeds: list[socket.socket] = []
        said = self.ask("hello")
        self.cluster = str(said["cluster"])
        self.clock_speed = float(said["speed"])

    def ask(self, op: str, **body: Any) -> dict[str, Any]:
        """Send a request; its answer.

        Raises:
            UnreachableError: no answer, or not in time.
        """
        with self._lock:
            try:
                if self._stream is None:
                    with self._connect() as connection:
                        self._stream = connection.makefile("rwb")
                self._stream.write(json.dumps({"op": op, **body}).encode() + b"\n")
                self._stream.flush()
                line = self._stream.readline(MAX_REPLY)
                if not line:
                    raise OSError("the connection was closed")
                reply = json.loads(line)
            except (OSError, ValueError) as error:
                if self._stream is not None:
                    with contextlib.suppress(OSError):
                        self._stream.close()
                self._stream = None
                raise UnreachableError(f"{self.path}: {error}") from error
        if "error" in reply:
            raise UnreachableError(f"{self.path}: {reply['error']}")
        found: dict[str, Any] = reply
        return found

    def capabilities(self) -> frozenset[Capability]:
        """Everything."""
        return frozenset({"start", "hold", "release", "set_priority", "take_scheduling"})

    def snapshot(self) -> Snapshot:
        """Everything it knows now."""
        return Snapshot.model_validate(self.ask("snapshot")["snapshot"])

    def start(self, job_id: str) -> Outcome:
        """Start a waiting job now."""
        return self._act("start", job_id=job_id)

    def hold(self, job_id: str) -> Outcome:
        """Keep a waiting job from starting."""
        return self._act("hold", job_id=job_id)

    def release(self, job_id: str) -> Outcome:
        """Undo `hold`."""
        return self._act("release", job_id=job_id)

    def set_priority(self, job_id: str, priority: float) -> Outcome:
        """Change a waiting job's priority."""
        return self._act("set_priority", job_id=job_id, priority=priority)

    def take_scheduling(self) -> Outcome:
        """Ask it to start no job by itself."""
        return self._act("take_scheduling")

    def give_scheduling(self) -> Outcome:
        """Let it schedule by itself again."""
        return self._act("give_scheduling")

    def heartbeat(self, seq: int) -> None:
        """Show that the twin lives."""
        self.ask("heartbeat", seq=seq)

    def subscribe(self, take: Callable[[bytes], None]) -> None:
        """Have each event from now on given to a function, as a line of JSON, in a thread.

        The subscription ends with the connection; then a snapshot tells what was missed.

        Raises:
            UnreachableError: nobody answers.
        """
        try:
            feed = self._connect()
            feed.sendall(b'{"op": "subscribe"}\n')
            stream = feed.makefile("rb")
            if not stream.readline(MAX_REPLY):
                raise OSError("the connection was closed")
            feed.settimeout(None)
        except OSError as error:
            raise UnreachableError(f"{self.path}: {error}") from error
        self._feeds.append(feed)

        def read() -> None:
            with contextlib.suppress(OSError, ValueError):
                for line in stream:
                    take(line.rstrip(b"\n"))

        threading.Thread(target=read, name="events", daemon=True).start()

    def close(self) -> None:
        """Close all connections."""
        for feed in self._feeds:
            with contextlib.suppress(OSError):
                feed.shutdown(socket.SHUT_RDWR)
            feed.close()
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.close()

    def _act(self, op: str, **body: Any) -> Outcome:
        try:
            reply = self.ask(op, **body)
        except UnreachableError as error:
            return Outcome("unknown", str(error))
        return Outcome(reply["result"], reply["reason"])

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(self.timeout_s)
        try:
            connection.connect(self.path)
        except OSError:
            connection.close()
            raise
        return connection
