"""Mirror of a cluster from its twin's journal: one thread updates it, others read it.

The page is a separate process, so the twin never waits for any request. One thread reads new
entries of the journal; answers use the resulting mirror.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from hpctwin.errors import HpctwinError
from hpctwin.twin.core.core import Core
from hpctwin.twin.journal.journal import Journal, tells_of_life
from hpctwin.twin.journal.restore import apply_input, restored_core
from hpctwin.twin.journal.status_reader import Standing, standing_of
from hpctwin.web.views.job_history import PAST_S, History

__all__ = ["FollowedJournal"]

T = TypeVar("T")


class FollowedJournal:
    """A mirror of the cluster, updated from its twin's journal.

    Args:
        path: Journal of the twin.

    Raises:
        HpctwinError: The journal does not exist, or has no snapshot of the cluster yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = 0
        self.fault: str | None = None
        self._lock = threading.RLock()
        self._made: dict[str, tuple[int, Any]] = {}
        self._last = (0, 0)
        self._said: tuple[float, dict[str, Any]] = (0.0, {})
        self._alive = False
        self._snapshots = 0
        self._counted = 0
        self._by_policy: Counter[str] = Counter()
        self.core: Core
        self.history = History()
        with closing(self.journal()) as journal:
            self._open(journal)
            self._read(journal)

    def journal(self) -> Journal:
        """Return the journal, opened for reading by the calling thread."""
        return Journal(self.path, read_only=True)

    def turn(self, journal: Journal) -> bool:
        """Read new entries; return whether there were any.

        Args:
            journal: The journal, as opened by this thread.
        """
        with self._lock:
            before = self.version
            self._read(journal)
            return self.version != before

    def follow(self, stop: threading.Event, told: Callable[[], None], every_s: float) -> None:
        """Read new entries until `stop` is set; viewers see a read error as a problem.

        Args:
            stop: Event that ends the loop.
            told: Function called after each change.
            every_s: Time between two polls, in seconds.
        """
        journal = self.journal()
        try:
            while not stop.wait(every_s):
                try:
                    changed = self.turn(journal)
                    self.fault = None
                except HpctwinError as error:
                    changed = str(error) != self.fault
                    self.fault = str(error)
                    self.version += changed
                if changed:
                    told()
        finally:
            journal.close()

    def _open(self, journal: Journal) -> None:
        self._last = journal.last_ids()
        self.core = restored_core(journal)
        self.history = History()
        self.history.read(journal.events_since(time.time() - PAST_S))
        self._settle()

    def _read(self, journal: Journal) -> None:
        last = journal.last_ids()
        found = journal.read_latest("status")
        said, alive = found or (0.0, {}), tells_of_life(found)
        if (last, said[0], alive) == (self._last, self._said[0], self._alive) and self.version:
            return
        if last[1] != self._last[1] or last[0] < self._last[0]:
            self._open(journal)
        for one in journal.inputs_after(self._last[0]):
            if one.kind == "event":
                self.history.read([one.body])
            if one.kind != "decide":
                apply_input(self.core, one)
            self._last = (one.id, last[1])
        if self.core.mirror.snapshots != self._snapshots:
            self._settle()
        self._last = last
        self._said, self._alive = said, alive
        self._stands = standing_of(self.core, journal)
        self._decided = journal.read_decision()
        self._awaiting = tuple(row for row, _ in reversed(journal.approvals("pending")))
        for number, policy in journal.decided_after(self._counted):
            self._counted = number
            self._by_policy[policy] += 1
        self.version += 1

    def _settle(self) -> None:
        self._snapshots = self.core.mirror.snapshots
        self.history.set_right(self.core.mirror.jobs, self.core.mirror.time_s)

    @contextmanager
    def looking(self) -> Iterator[Standing]:
        """Yield the current state, locked against changes."""
        with self._lock:
            yield self._stands

    def _kept(self, name: str, make: Callable[[Standing], T]) -> T:
        with self.looking() as stands:
            known = self._made.get(name)
            if known is None or known[0] != self.version:
                known = self._made[name] = (self.version, make(stands))
            kept: T = known[1]
            return kept
