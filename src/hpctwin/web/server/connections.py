"""HTTP connections: bounded in number, in time without a request, and in log messages."""

from __future__ import annotations

import asyncio
import logging
import resource
import time

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["Brief", "bounded", "room_for_connections"]

HEADER_S = 10.0
"""Time within which the header of a request must arrive, in seconds."""
STALLED_S = 60.0
"""Time after which a client that reads nothing is disconnected, in seconds."""
MOST_FILES, MOST_CONNECTIONS = 8192, 2000


def room_for_connections() -> int:
    """Raise the limit of open files as far as allowed; return how many connections fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    # The rest is for files, threads, and connections that are accepted only to be refused.
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, soft // 2)


def bounded(most: int) -> type[H11Protocol]:
    """Return uvicorn's protocol with limits that it does not have itself.

    A connection that waits for the header of a request is closed after `HEADER_S`. If there are too
    many connections, the one that has waited longest is closed for a new one. A client that does not
    read its answer is disconnected after `STALLED_S`.

    Args:
        most: Maximum number of connections.
    """
    waiting: dict[Bounded, asyncio.TimerHandle | None] = {}

    class Bounded(H11Protocol):
        _stalled: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            waiting[self] = self.loop.call_later(HEADER_S, transport.abort)
            if len(self.connections) > most:
                oldest = next(iter(waiting))
                oldest.transport.abort()
                oldest.connections.discard(oldest)
                oldest.forget()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.busy:
                self.forget()
            elif waiting.get(self, self) is None:
                # The next request on this connection has begun.
                waiting[self] = self.loop.call_later(HEADER_S, self.transport.abort)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self.busy and not self.transport.is_closing():
                waiting[self] = None

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stalled = self.loop.call_later(STALLED_S, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self.read_again()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self.read_again()
            self.forget()

        @property
        def busy(self) -> bool:
            """Whether a request is being answered."""
            return self.cycle is not None and not self.cycle.response_complete

        def forget(self) -> None:
            """Note that this connection does not wait for a request."""
            timer = waiting.pop(self, None)
            if timer is not None:
                timer.cancel()

        def read_again(self) -> None:
            """Note that the client reads its answer, or has gone."""
            if self._stalled is not None:
                self._stalled.cancel()
                self._stalled = None

    return Bounded


class Brief(logging.Filter):
    """Log filter that lets a few messages pass, then one from time to time.

    Args:
        burst: Number of messages that pass at once.
        every_s: Time until one more passes, in seconds.
    """

    def __init__(self, burst: int = 50, every_s: float = 10.0) -> None:
        super().__init__()
        self._burst, self._every_s = burst, every_s
        self._left, self._at = float(burst), time.monotonic()
        self._omitted = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a message passes; one that does also counts those before it."""
        now = time.monotonic()
        self._left = min(float(self._burst), self._left + (now - self._at) / self._every_s)
        self._at = now
        if self._left < 1.0:
            self._omitted += 1
            return False
        self._left -= 1.0
        if self._omitted:
            record.msg = f"{record.getMessage()} ({self._omitted} similar messages omitted)"
            record.args = None
            self._omitted = 0
        return True
