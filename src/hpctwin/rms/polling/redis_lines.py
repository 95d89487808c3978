"""Lines of a spool, sent through a Redis stream to a twin on another host.

The retries of redis-py end within a call; here lines wait as long as Redis is away.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from hpctwin.rms.polling.redis_publisher import connect_redis
from hpctwin.rms.polling.spool import Lines

__all__ = ["RedisLines", "ship"]

logger = logging.getLogger(__name__)

FIELD = "line"
RETRY_S = 0.5
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
        lines: Source of the lines.
        url: URL of Redis, see `connect_redis`.
        stream: Name of the stream.
        stop: Event that ends it.
        password_env: See `connect_redis`.

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
                    pipe.xadd(stream, {FIELD: line}, maxlen=MAX_LENGTH, approximate=True)
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
                lines.append(fields.get(FIELD.encode(), b"").decode("utf-8", errors="replace"))
        return lines

    def keep_place(self) -> None:
        """Do nothing: a twin that starts polls everything first."""

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()
