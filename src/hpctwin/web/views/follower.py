"""Mirror of a cluster from its twin's journal: one thread updates it, others read it.

The page is a separate process, so the twin never waits for any request. One thread reads new
entries of the journal; answers use the resulting mirror.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from hpctwin.errors import HpctwinError
from hpctwin.twin.core.core import Core
from hpctwin.twin.journal.history import MOST_PARTITIONS, OTHERS
from hpctwin.twin.journal.journal import Input, Journal, tells_of_life
from hpctwin.twin.journal.restore import Standing, apply_input, restored_core, standing_of
from hpctwin.web.views.job_history import PAST_S, History

__all__ = ["FollowedJournal", "Histogram"]

T = TypeVar("T")

MOST_KEPT = 32
"""Maximum number of results that are kept until the next change."""


class Histogram:
    """Numbers of values up to each of some bounds, and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Return bounds as texts, and the number of values up to each."""
        names = [*map(str, self._bounds), "+Inf"]
        return list(zip(names, itertools.accumulate(map(float, self._counts)), strict=True))


DECISIONS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
WAITS_S = (10.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 259_200.0, 604_800.0)
"""Bounds of the histograms, in seconds."""


class FollowedJournal:
    """A mirror of the cluster, updated from its twin's journal.

    Raises:
        HpctwinError: The journal does not exist, or has no snapshot of the cluster yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = 0
        self.fault: str | None = None
        self._lock = threading.RLock()
        self._made: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()
        self._last = (0, 0)
        self._said: tuple[float, dict[str, Any]] = (0.0, {})
        self._alive = False
        self._snapshots = 0
        self._counted = 0
        self._by_policy: Counter[str] = Counter()
        self.decision_times = Histogram(DECISIONS_S)
        self.waits: dict[str, Histogram] = {}
        """Waits of the jobs that have started since the page has, by partition."""
        self.core: Core
        self.history = History()
        with closing(self.journal()) as journal:
            self._open(journal)
            self._read(journal)
        named = [one.name for one in self.core.mirror.machine.partitions] or [""]
        self.waits.update((name, Histogram(WAITS_S)) for name in named[:MOST_PARTITIONS])

    def not_ready(self) -> str | None:
        """Return why the mirror is not current; None if it is."""
        return self.fault or (None if self._alive else "the twin is not running")

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
                self._take_event(one)
            elif one.kind != "decide":
                apply_input(self.core, one)
            self._last = (one.id, last[1])
        if self.core.mirror.snapshots != self._snapshots:
            self._settle()
        self._last = last
        self._said, self._alive = said, alive
        self._stands = standing_of(self.core, journal)
        self._decided = journal.read_decision()
        self._awaiting = tuple(row for row, _ in reversed(journal.approvals("pending")))
        for number, policy, took_ms in journal.decided_after(self._counted):
            self._counted = number
            self._by_policy[policy] += 1
            self.decision_times.add(took_ms / 1000)
        self.version += 1

    def _take_event(self, one: Input) -> None:
        """Give an event to the core, and count the wait of a job that starts by it."""
        job_id = json.loads(one.body)["job_id"] if '"kind":"job_started"' in one.body else ""
        before = self.core.mirror.jobs.get(job_id)
        apply_input(self.core, one)
        job = self.core.mirror.jobs.get(job_id)
        if (
            job is None
            or job.start_s is None
            or (before is not None and before.start_s is not None)
        ):
            return
        name = job.spec.partition
        if name not in self.waits and len(self.waits) >= MOST_PARTITIONS:
            name = OTHERS
        self.waits.setdefault(name, Histogram(WAITS_S)).add(job.start_s - job.spec.submit_s)

    def _settle(self) -> None:
        self._snapshots = self.core.mirror.snapshots
        self.history.set_right(self.core.mirror.jobs, self.core.mirror.time_s)

    @contextmanager
    def looking(self) -> Iterator[Standing]:
        """Yield the current state, locked against changes."""
        with self._lock:
            yield self._stands

    def _kept(self, name: str, make: Callable[[Standing], T], of: Hashable = None) -> T:
        """Return what `make` returns, made once for each version.

        Args:
            name: Name of the result.
            make: Function that makes it.
            of: Visitor of the result, if it differs between visitors.
        """
        with self.looking() as stands:
            known = self._made.pop((name, of), None)
            if known is None or known[0] != self.version:
                known = (self.version, make(stands))
            self._made[name, of] = known
            if len(self._made) > MOST_KEPT:
                self._made.popitem(last=False)
            kept: T = known[1]
            return kept
