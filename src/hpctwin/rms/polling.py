"""Events from a manager that can only be polled, without hurting it."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable

from hpctwin.errors import HpctwinError
from hpctwin.rms.changes import Changes
from hpctwin.rms.events import Event
from hpctwin.rms.manager import Capability, Outcome, ResourceManager
from hpctwin.rms.records import Snapshot

__all__ = ["PolledManager", "Poller"]

logger = logging.getLogger(__name__)

LONGEST_PAUSE_S = 600.0


class Poller:
    """Polls a resource manager in a thread and publishes what has changed.

    After an error the pause doubles, up to ten minutes. `snapshot` gives what was last seen, so the
    controller is asked once per interval however many ask us.

    Args:
        manager: whom to ask.
        publish: takes each event.
        every_s: pause between two polls.
        floor_s: least pause, also after `soon`.
    """

    def __init__(
        self,
        manager: ResourceManager,
        publish: Callable[[Event], None],
        *,
        every_s: float = 60.0,
        floor_s: float = 1.0,
    ) -> None:
        self.manager = manager
        self.publish = publish
        self.every_s = every_s
        self.floor_s = min(floor_s, every_s)
        self.polls = 0
        self.errors = 0
        self._changes: Changes | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._soon = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="poller", daemon=True)

    def start(self) -> None:
        """Begin to poll."""
        self._thread.start()

    def close(self) -> None:
        """Stop polling."""
        self._stop.set()
        self._soon.set()
        self._thread.join(timeout=30)

    def soon(self) -> None:
        """Poll before the interval is over: something was done of which news is expected."""
        self._soon.set()

    def snapshot(self) -> Snapshot:
        """What was last seen, with the number of the last event published; polls if nothing was yet.

        Raises:
            UnreachableError: the manager does not answer.
        """
        with self._lock:
            if self._changes is None:
                self._poll()
            assert self._changes is not None
            return self._changes.last

    def _loop(self) -> None:
        pause_s = self.every_s
        while not self._stop.is_set():
            begin = time.monotonic()
            try:
                with self._lock:
                    self._poll()
                pause_s = self.every_s
            except HpctwinError as error:
                self.errors += 1
                pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
                logger.warning("poll failed, next in %g s: %s", pause_s, error)
            self._stop.wait(self.floor_s)
            self._soon.wait(max(0.0, pause_s - (time.monotonic() - begin)))
            self._soon.clear()

    def _poll(self) -> None:
        snapshot = self.manager.snapshot()
        self.polls += 1
        if self._changes is None:
            self._changes = Changes(snapshot, run=uuid.uuid4().hex[:12])
            return
        for event in self._changes.to(snapshot):
            self.publish(event)


class PolledManager:
    """A resource manager whose snapshots are those of a poller, numbered like its events.

    Args:
        poller: polls it.
    """

    def __init__(self, poller: Poller) -> None:
        self.poller = poller
        self.manager = poller.manager
        self.cluster = poller.manager.cluster
        self.clock_speed = poller.manager.clock_speed

    def capabilities(self) -> frozenset[Capability]:
        """See `ResourceManager`."""
        return self.manager.capabilities()

    def snapshot(self) -> Snapshot:
        """What was last seen."""
        return self.poller.snapshot()

    def start(self, job_id: str) -> Outcome:
        """See `ResourceManager`."""
        return self._and_look(self.manager.start(job_id))

    def hold(self, job_id: str) -> Outcome:
        """See `ResourceManager`."""
        return self._and_look(self.manager.hold(job_id))

    def release(self, job_id: str) -> Outcome:
        """See `ResourceManager`."""
        return self._and_look(self.manager.release(job_id))

    def set_priority(self, job_id: str, priority: float) -> Outcome:
        """See `ResourceManager`."""
        return self._and_look(self.manager.set_priority(job_id, priority))

    def take_scheduling(self) -> Outcome:
        """See `ResourceManager`."""
        return self._and_look(self.manager.take_scheduling())

    def give_scheduling(self) -> Outcome:
        """See `ResourceManager`."""
        return self._and_look(self.manager.give_scheduling())

    def heartbeat(self, seq: int) -> None:
        """See `ResourceManager`."""
        self.manager.heartbeat(seq)

    def close(self) -> None:
        """See `ResourceManager`."""
        self.poller.close()
        self.manager.close()

    def _and_look(self, outcome: Outcome) -> Outcome:
        self.poller.soon()
        return outcome
