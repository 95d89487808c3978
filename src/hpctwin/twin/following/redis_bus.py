"""The bus on Redis Streams.

While Redis is away, pauses double, but never beyond what the caller would have waited for news; a library for
retries calls again by itself, and the twin has other things to do meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from hpctwin.rms.polling.redis_publisher import FIELD, connect_redis
from hpctwin.rms.records.events import MAX_EVENT_BYTES
from hpctwin.twin.following.bus import BATCH, Delivery

__all__ = ["RedisBus"]

logger = logging.getLogger(__name__)

DEAD_LETTERS = 10_000
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
TRIM_EVERY = 5000

T = TypeVar("T")


class RedisBus:
    """One consumer of a stream, in a consumer group of the twin.

    An entry is acknowledged when the journal has its event. What a consumer took and did not
    acknowledge is delivered again: to itself when it begins anew under the same name, else to
    another after ``claim_after_s``. Entries that cannot be parsed go to the stream ``NAME:dead``, with
    the reason, the last ten thousand of them. While Redis is away nothing is received, and the
    connection is tried again after a pause that doubles from 0.1 s to 5 s; if it comes back empty, the
    group is made again, and what was lost shows as a gap in the sequence numbers.

    Acknowledged entries are trimmed now and then. If the publisher's limit cuts off entries before they
    were read, that is a gap too.

    Args:
        url: of Redis; see `connect_redis`.
        stream: its name.
        group: consumer group.
        consumer: this consumer's name in the group; the same after a restart.
        password_env: environment variable that holds the password.
        claim_after_s: see above.
    """

    def __init__(
        self,
        url: str,
        stream: str,
        *,
        group: str = "hpctwin",
        consumer: str = "twin",
        password_env: str | None = None,
        claim_after_s: float = 10.0,
    ) -> None:
        self.stream, self.group, self.consumer = stream, group, consumer
        self.claim_after_s = claim_after_s
        self.connected = False
        self._redis: Any = connect_redis(url, password_env=password_env)
        self._own_first = True
        self._from = "0"
        self._next_claim = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._unacknowledged: list[str] = []
        self._since_trim = 0

    def receive(self, timeout_s: float) -> list[Delivery]:
        """What has come, in order; waits so long for the first. Empty while Redis is away."""
        return self._try(lambda: self._receive(timeout_s), [], timeout_s)

    def acknowledge(self, ids: list[str]) -> None:
        """These are in the journal; if Redis is away, it is told later."""
        self._unacknowledged += ids
        self._try(self._acknowledge, None)

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Put an entry aside in the dead-letter stream and acknowledge it."""

        def put_aside() -> None:
            body = {"data": delivery.data[:MAX_EVENT_BYTES], "reason": reason, "id": delivery.id}
            pipe = self._redis.pipeline(transaction=True)
            pipe.xadd(f"{self.stream}:dead", body, maxlen=DEAD_LETTERS, approximate=True)
            pipe.xack(self.stream, self.group, delivery.id)
            pipe.execute()

        # If Redis is away the entry is delivered again, and put aside then.
        self._try(put_aside, None)

    def lag(self) -> int:
        """How many entries wait to be received or acknowledged; 0 while Redis is away."""
        return self._try(self._lag, 0)

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()

    # --- inside ----------------------------------------------------------------------------------

    def _receive(self, timeout_s: float) -> list[Delivery]:
        self._ready()
        if self._unacknowledged:
            self._acknowledge()
        if self._own_first:
            mine = self._read(self._from, None)
            if mine:
                self._from = mine[-1].id
                return mine
            self._own_first, self._from = False, "0"
        now = time.monotonic()
        if now >= self._next_claim:
            self._next_claim = now + self.claim_after_s
            claimed = self._claim()
            if claimed:
                return claimed
        return self._read(">", max(1, round(timeout_s * 1000)))

    def _ready(self) -> None:
        """Make stream and group if they are not there."""
        import redis

        if self.connected:
            return
        try:
            self._redis.xgroup_create(self.stream, self.group, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
        self.connected = True
        self._pause_s = FIRST_PAUSE_S
        # What was on its way when the connection broke was delivered to us, but not received.
        self._own_first, self._from = True, "0"

    def _read(self, begin: str, block_ms: int | None) -> list[Delivery]:
        answer = self._redis.xreadgroup(
            self.group, self.consumer, {self.stream: begin}, count=BATCH, block=block_ms
        )
        return self._deliveries(answer[0][1]) if answer else []

    def _claim(self) -> list[Delivery]:
        idle_ms = round(self.claim_after_s * 1000)
        answer = self._redis.xautoclaim(
            self.stream, self.group, self.consumer, idle_ms, "0-0", count=BATCH
        )
        return self._deliveries(answer[1])

    def _deliveries(self, entries: list[Any]) -> list[Delivery]:
        found, gone = [], []
        waiting = set(self._unacknowledged)
        for entry_id, fields in entries:
            name = entry_id.decode()
            if not fields:  # trimmed away before it was read: a gap that the numbers show
                gone.append(name)
            elif name not in waiting:
                found.append(Delivery(name, fields.get(FIELD.encode(), b"")))
        if gone:
            self._redis.xack(self.stream, self.group, *gone)
        return found

    def _acknowledge(self) -> None:
        ids, self._unacknowledged = self._unacknowledged, []
        if not ids:
            return
        try:
            self._redis.xack(self.stream, self.group, *ids)
        except Exception:
            self._unacknowledged = ids + self._unacknowledged
            raise
        self._since_trim += len(ids)
        if self._since_trim >= TRIM_EVERY:
            self._since_trim = 0
            self._trim()

    def _trim(self) -> None:
        """Delete what every group has acknowledged."""
        oldest: list[tuple[int, int]] = []
        for group in self._redis.xinfo_groups(self.stream):
            pending = self._redis.xpending(self.stream, group["name"])
            least = pending["min"] if pending["pending"] else group["last-delivered-id"]
            first, _, second = least.decode().partition("-")
            oldest.append((int(first), int(second)))
        least_id = min(oldest)
        self._redis.xtrim(self.stream, minid=f"{least_id[0]}-{least_id[1]}", approximate=True)

    def _lag(self) -> int:
        for group in self._redis.xinfo_groups(self.stream):
            if group["name"].decode() == self.group:
                return int(group["pending"]) + int(group.get("lag") or 0)
        return 0

    def _try(self, action: Callable[[], T], otherwise: T, wait_s: float = 0.0) -> T:
        """Do something with Redis; if it is away, note that and go on."""
        import redis

        try:
            return action()
        except redis.ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            self.connected = False
            return otherwise
        except (redis.RedisError, OSError) as error:
            if self.connected:
                logger.warning("Redis is away: %s", type(error).__name__)
            self.connected = False
            if wait_s > 0:
                time.sleep(min(wait_s, self._pause_s))
                self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s)
            return otherwise
