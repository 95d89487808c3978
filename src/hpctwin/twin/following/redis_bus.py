"""The bus on Redis Streams.

While Redis is unreachable, the pause between attempts doubles, up to the timeout of the caller. No
retry library is used: it would repeat calls by itself, and the twin has other work to do meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from hpctwin.rms.polling.redis_stream import FIELD, connect_redis
from hpctwin.rms.records.events import MAX_EVENT_BYTES
from hpctwin.twin.following.bus import BATCH, Delivery

__all__ = ["RedisBus"]

logger = logging.getLogger(__name__)

DEAD_LETTERS = 10_000
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
TRIM_EVERY = 5000

T = TypeVar("T")


class RedisBus:
    """One consumer of a stream, in the twin's consumer group.

    An entry is acknowledged when the journal has its event. An entry that a consumer took but did
    not acknowledge is delivered again:

    - to the same consumer, if it restarts under the same name;
    - else to another consumer after ``claim_after_s``.

    Entries that cannot be parsed go to the stream ``NAME:dead`` with the reason. That stream keeps
    the last ten thousand.

    While Redis is unreachable, nothing is received. The connection is tried again after a pause
    that doubles from 0.1 s to 5 s. If Redis returns without data, the group is created again, and
    the lost events show as a gap in the sequence numbers.

    Acknowledged entries are trimmed from time to time. Entries that the publisher's limit removes
    before they are read are a gap, too.

    Args:
        url: URL of Redis; see `connect_redis`.
        stream: Name of the stream.
        group: Name of the consumer group.
        consumer: Name of this consumer in the group; it must stay the same after a restart.
        password_env: Environment variable with the password.
        claim_after_s: Idle time after which the entries of another consumer are claimed, in
            seconds.
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
        """Return new deliveries in order; wait up to ``timeout_s`` for the first.

        The list is empty while Redis is unreachable.
        """
        return self._try(lambda: self._receive(timeout_s), [], timeout_s)

    def acknowledge(self, ids: list[str]) -> None:
        """Confirm deliveries that the journal has; later if Redis is unreachable."""
        self._unacknowledged += ids
        self._try(self._acknowledge, None)

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Move an entry to the dead-letter stream and acknowledge it."""

        def put_aside() -> None:
            body = {"data": delivery.data[:MAX_EVENT_BYTES], "reason": reason, "id": delivery.id}
            pipe = self._redis.pipeline(transaction=True)
            pipe.xadd(f"{self.stream}:dead", body, maxlen=DEAD_LETTERS, approximate=True)
            pipe.xack(self.stream, self.group, delivery.id)
            pipe.execute()

        # If Redis is unreachable, the entry is delivered again and moved then.
        self._try(put_aside, None)

    def lag(self) -> int:
        """Return the number of entries not received or not acknowledged.

        It is 0 while Redis is unreachable.
        """
        return self._try(self._lag, 0)

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()

    # --- inside ----------------------------------------------------------------------------------

    def _receive(self, timeout_s: float) -> list[Delivery]:
        self._ready()
        if self._unacknowledged:
            self._acknowledge()
        # The order is: this consumer's pending entries, those of dead consumers, new entries.
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
        """Create the stream and the group if they do not exist."""
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
        # Redis counts entries as delivered that were lost when the connection broke: read this
        # consumer's unacknowledged entries first.
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
            if not fields:  # trimmed before it was read: a gap in the sequence numbers
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
        """Delete the entries that every group has acknowledged.

        All entries older than a group's oldest pending one are acknowledged; if none is pending,
        all up to the last delivered one.
        """
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
        """Run an action; if Redis is unreachable, record that and return ``otherwise``.

        Args:
            action: The action.
            otherwise: Value to return if Redis is unreachable or has lost the group.
            wait_s: Maximum pause after a failure, in seconds.
        """
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
                logger.warning("Redis is unavailable: %s", type(error).__name__)
            self.connected = False
            if wait_s > 0:
                time.sleep(min(wait_s, self._pause_s))
                self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s)
            return otherwise
