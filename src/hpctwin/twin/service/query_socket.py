"""The query socket of a running twin: next to its journal, for its own user.

The twin has all data for an answer in memory. A client that computed it would have to load the
journal and the engine first.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hpctwin.errors import HpctwinError

__all__ = ["QuerySocket", "ask"]

logger = logging.getLogger(__name__)

LONGEST_S = 5.0
"""Timeout of an answer, in seconds; then the client computes the answer itself."""
LONGEST_LINE = 1 << 20
AT_ONCE = 4
"""Maximum number of questions answered per turn of the twin."""


class QuerySocket(socketserver.ThreadingUnixStreamServer):
    """Server that queues questions, one JSON object per line, until the twin answers.

    Args:
        journal: Path of the twin's journal; the socket is next to it.

    Raises:
        OSError: The socket cannot be created.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, journal: Path) -> None:
        self.path = _place(journal)
        self._waiting: queue.Queue[_Asked] = queue.Queue()
        with suppress(FileNotFoundError):
            self.path.unlink()
        mask = os.umask(0o177)
        try:
            with _short(self.path) as address:
                super().__init__(address, _Line)
        finally:
            os.umask(mask)
        self._thread = threading.Thread(target=self.serve_forever, name="queries", daemon=True)
        self._thread.start()

    def answer(self, says: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Answer the queued questions by a function; clients receive its errors."""
        for _ in range(AT_ONCE):
            try:
                asked = self._waiting.get_nowait()
            except queue.Empty:
                return
            try:
                asked.reply = says(asked.body)
            except HpctwinError as error:
                asked.reply = {"error": str(error)}
            except (KeyError, TypeError, ValueError) as error:
                asked.reply = {"error": f"invalid question: {error!r}"}
            finally:
                asked.done.set()

    def put(self, asked: _Asked) -> None:
        """Queue a question for `answer`."""
        self._waiting.put(asked)

    def close(self) -> None:
        """Stop the server, and remove the socket."""
        self.shutdown()
        self.server_close()
        with suppress(OSError):
            self.path.unlink()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: the client has disconnected."""


class _Asked:
    """A question; ``reply`` is valid once ``done`` is set."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.done = threading.Event()
        self.reply: dict[str, Any] = {}


class _Line(socketserver.StreamRequestHandler):
    """Handler of one connection: reads a question and writes its answer."""

    timeout = LONGEST_S
    server: QuerySocket

    def handle(self) -> None:
        body = json.loads(self.rfile.readline(LONGEST_LINE))
        asked = _Asked(body)
        self.server.put(asked)
        if asked.done.wait(LONGEST_S):
            self.wfile.write(json.dumps(asked.reply).encode() + b"\n")


def ask(journal: Path, body: dict[str, Any]) -> dict[str, Any] | None:
    """Return the answer of a journal's twin; None if none answers in time.

    Raises:
        HpctwinError: The twin rejects the question; the message is the twin's.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(LONGEST_S)
            with _short(_place(journal)) as address:
                connection.connect(address)
            connection.sendall(json.dumps(body).encode() + b"\n")
            with connection.makefile("rb") as stream:
                reply = json.loads(stream.readline())
    except (OSError, ValueError):
        return None
    if not isinstance(reply, dict) or not reply:
        return None
    if "error" in reply:
        raise HpctwinError(reply["error"])
    return reply


def _place(journal: Path) -> Path:
    return journal.with_name(journal.name + ".ask")


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Yield a short address of a socket, however deep its folder is.

    The system limits the length of a socket's address to about 100 characters.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
