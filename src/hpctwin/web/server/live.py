"""Live updates: whoever listens is told that something has changed, and what stands at the top.

A listener that is slow misses updates, and is told the latest: nothing is kept for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

from fastapi import HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

__all__ = ["MOST_LISTENERS", "Live"]

KEEP_ALIVE_S = 15.0
MOST_LISTENERS = 1000


class Headed(Protocol):
    """Has something at the top, which changes when its version does."""

    version: int

    def head(self) -> BaseModel:
        """What stands at the top."""


class Live:
    """Tells listeners of changes.

    Args:
        source: what changes.
    """

    def __init__(self, source: Headed) -> None:
        self._source = source
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._text: tuple[int, str] = (-1, "")
        self.listeners = 0
        self._ended = False

    def begin(self) -> None:
        """Called in the event loop that listeners live in."""
        self._loop = asyncio.get_running_loop()

    def told(self) -> None:
        """Something has changed; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def end(self) -> None:
        """Let all listeners go."""
        self._ended = True
        self.told()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def response(self) -> StreamingResponse:
        """What a new listener is answered.

        Raises:
            HTTPException: there are too many.
        """
        if self.listeners >= MOST_LISTENERS:
            raise HTTPException(503, f"{MOST_LISTENERS} listen already")
        return StreamingResponse(self.events(), media_type="text/event-stream")

    async def events(self) -> AsyncIterator[str]:
        """Server-sent events for one listener, the present first."""
        self.listeners += 1
        try:
            while not self._ended:
                changed = self._changed
                yield self._now()
                try:
                    await asyncio.wait_for(changed.wait(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield ": nothing new\n\n"
        finally:
            self.listeners -= 1

    def _now(self) -> str:
        version = self._source.version
        if self._text[0] != version:
            head = self._source.head()
            self._text = (
                version,
                f"id: {version}\nevent: head\ndata: {head.model_dump_json()}\n\n",
            )
        return self._text[1]
