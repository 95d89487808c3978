"""Events and lines of a spool, published to a Redis stream.

The retries of redis-py end within a call; here events and lines wait as long as Redis is away, and
dropped events are counted.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpctwin.errors import ConfigError, need
from hpctwin.model.web import has_password
from hpctwin.rms.polling.spool import Lines
from hpctwin.rms.records.events import Event, event_json

if TYPE_CHECKING:
    from redis import Redis

logger = logging.getLogger(__name__)

FIELD = "event"
"""Field of a stream entry that holds the event's JSON."""
RETRY_S = 0.5


URL_VARIABLE = "HPCTWIN_REDIS_URL"


def redis_url(given: str | None, file: Path | None) -> str:
    """Return the URL of Redis: as given, from a file, the environment, or this host's.

    Args:
        given: URL from the command line, which every user sees.
        file: File with the URL in its first line; only its owner may read it.

    Raises:
        ConfigError: The command line has a password, other users may read the file, or both were
            given.
    """
    if given is not None and file is not None:
        raise ConfigError("--url and --url-file exclude each other; give one of them")
    if given is not None:
        if has_password(given):
            raise ConfigError(
                "--url: all users can read a password on the command line (ps); write the URL into a file "
                f"(--url-file) or into the variable {URL_VARIABLE}, or the password into a variable "
                "(--password-env)"
            )
        return given
    if file is None:
        return os.environ.get(URL_VARIABLE) or "redis://localhost:6379/0"
    try:
        if file.stat().st_mode & 0o077:
            raise ConfigError(
                f"{file}: other users may read or write the file; run chmod 600 {file}"
            )
        return file.read_text().strip()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from error


def connect_redis(url: str, *, password_env: str | None = None, timeout_s: float = 5.0) -> Redis:
    """Return a client; nothing is sent yet.

    Args:
        url: URL such as ``redis://localhost:6379/0``, ``rediss://…`` for TLS,
            ``unix:///run/redis.sock``.
        password_env: Environment variable that holds the password.
        timeout_s: Time limit of each call and of connecting, in seconds.

    Raises:
        ConfigError: redis-py is not installed, the URL cannot be read, or the variable is not set.
    """
    need("redis", "live", "event streams over Redis")
    import redis

    about: dict[str, Any] = {}
    if password_env is not None:
        if password_env not in os.environ:
            raise ConfigError(f"--password-env: environment variable {password_env} is not set")
        about["password"] = os.environ[password_env]
    try:
        return redis.Redis.from_url(
            url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, **about
        )
    except ValueError as error:
        # The message of redis-py may contain the URL, and with it a password.
        raise ConfigError(
            "the URL of Redis must start with redis://, rediss:// or unix://"
        ) from error


class RedisPublisher:
    """Sends events to a stream, in order, without ever blocking the sender.

    A thread sends them. While Redis is away, events wait in memory, up to ``spool``. Then the
    oldest are dropped and counted: the reader sees the gap in the sequence numbers and asks for a
    snapshot. For the same reason the stream is trimmed to about ``max_length`` entries, read or
    not.

    Args:
        url: URL of Redis.
        stream: Name of the stream.
        password_env: See `connect_redis`.
        max_length: Maximum length of the stream.
        spool: Maximum number of events kept while Redis is away.
    """

    def __init__(
        self,
        url: str,
        stream: str,
        *,
        password_env: str | None = None,
        max_length: int = 1_000_000,
        spool: int = 100_000,
    ) -> None:
        self.stream = stream
        self.max_length = max_length
        self.dropped = 0
        self.sent = 0
        self._redis = connect_redis(url, password_env=password_env, timeout_s=2.0)
        self._spool: deque[str] = deque()
        self._limit = spool
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._send, name="redis-publisher", daemon=True)
        self._thread.start()

    def publish(self, event: Event) -> None:
        """Send an event soon."""
        line = event_json(event)
        with self._changed:
            if len(self._spool) >= self._limit:
                self._spool.popleft()
                self.dropped += 1
            self._spool.append(line)
            self._changed.notify()

    def waiting(self) -> int:
        """Return the number of events not sent yet."""
        return len(self._spool)

    def close(self, timeout_s: float = 5.0) -> None:
        """Send the waiting events, for up to ``timeout_s`` seconds, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout_s)
        self._redis.close()

    def _send(self) -> None:
        import redis

        down = False
        while True:
            with self._changed:
                while not self._spool and not self._closed:
                    self._changed.wait()
                if not self._spool:
                    return
                batch = [self._spool[i] for i in range(min(500, len(self._spool)))]
            try:
                pipe = self._redis.pipeline(transaction=False)
                for line in batch:
                    pipe.xadd(self.stream, {FIELD: line}, maxlen=self.max_length, approximate=True)
                pipe.execute()
            except (redis.RedisError, OSError) as error:
                # Some of the batch may have arrived: readers recognize duplicates by their numbers.
                if not down:
                    logger.warning(
                        "Redis accepts no events, they are queued: %s", type(error).__name__
                    )
                down = True
                if self._closed:
                    return
                time.sleep(RETRY_S)
                continue
            if down:
                logger.warning(
                    "Redis accepts events again; %d were dropped until now", self.dropped
                )
                down = False
            with self._changed:
                # While they were sent, a full spool may have dropped some of them at its left end.
                for line in batch:
                    if self._spool and self._spool[0] is line:
                        self._spool.popleft()
                self.sent += len(batch)


LINE_FIELD = "line"
LONGEST_RETRY_S = 10.0
MAX_LENGTH = 1_000_000


def ship(
    lines: Lines,
    url: str,
    stream: str,
    stop: threading.Event,
    *,
    password_env: str | None = None,
) -> int:
    """Send the lines of a spool to a stream until stopped.

    A line is done once Redis has accepted it. While Redis is away, lines wait in the spool.

    Args:
        url: URL of Redis, see `connect_redis`.

    Returns:
        Number of lines sent.
    """
    client = connect_redis(url, password_env=password_env, timeout_s=5.0)
    import redis

    sent, pause_s = 0, RETRY_S
    while not stop.is_set():
        batch = lines.read(0.2)
        while batch and not stop.is_set():
            try:
                pipe = client.pipeline(transaction=False)
                for line in batch:
                    pipe.xadd(stream, {LINE_FIELD: line}, maxlen=MAX_LENGTH, approximate=True)
                pipe.execute()
            except (redis.RedisError, OSError) as error:
                if pause_s == RETRY_S:
                    logger.warning(
                        "Redis accepts no lines, they are queued: %s", type(error).__name__
                    )
                stop.wait(pause_s)
                pause_s = min(LONGEST_RETRY_S, 2 * pause_s)
                continue
            if pause_s > RETRY_S:
                logger.warning("Redis accepts lines again")
                pause_s = RETRY_S
            sent += len(batch)
            lines.keep_place()
            batch = []
    client.close()
    return sent


class RedisLines:
    """Reads lines that `ship` sends, from now on; a poll shows what came before.

    Args:
        url, password_env: Redis connection, see `connect_redis`.
        stream: Name of the stream.
    """

    def __init__(self, url: str, stream: str, *, password_env: str | None = None) -> None:
        self.stream = stream
        # redis-py types its answers as those of both its kinds of client.
        self._redis: Any = connect_redis(url, password_env=password_env)
        self._last = "$"
        self._down = False

    def read(self, timeout_s: float) -> list[str]:
        """Return new lines; none while Redis is away."""
        import redis

        try:
            if self._last == "$":
                newest = self._redis.xrevrange(self.stream, count=1)
                self._last = newest[0][0].decode() if newest else "0-0"
            found = self._redis.xread(
                {self.stream: self._last}, count=1000, block=max(1, round(1000 * timeout_s))
            )
        except (redis.RedisError, OSError) as error:
            if not self._down:
                logger.warning("lines cannot be read from Redis: %s", type(error).__name__)
            self._down = True
            time.sleep(min(RETRY_S, timeout_s))
            return []
        if self._down:
            logger.warning("lines can be read from Redis again")
            self._down = False
        lines = []
        for _, entries in found:
            for name, fields in entries:
                self._last = name.decode()
                lines.append(fields.get(LINE_FIELD.encode(), b"").decode("utf-8", errors="replace"))
        return lines

    def keep_place(self) -> None:
        """Do nothing: a twin that starts polls everything first."""

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()
