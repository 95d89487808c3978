"""Events from a manager that can only be polled, at a low load, and a cluster's identity."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from hpctwin.errors import HpctwinError
from hpctwin.rms.manager import (
    Identified,
    LendsScheduling,
    Outcome,
    Places,
    Priorities,
    Report,
    ResourceManager,
    Way,
    Where,
)
from hpctwin.rms.polling.spool import Lines
from hpctwin.rms.priorities import StillPriorities
from hpctwin.rms.records.changes import (
    Changes,
    JobBack,
    JobBegan,
    JobGone,
    Look,
    News,
    Updated,
    updated,
)
from hpctwin.rms.records.events import Event
from hpctwin.rms.records.records import Snapshot

logger = logging.getLogger(__name__)

LONGEST_PAUSE_S = 60.0
"""Longest pause after errors, unless polls are already rarer."""
MOST_OF_THE_TIME = 0.1
"""Largest share of the time that is spent on polling."""
READ_S = 0.2
"""Longest single wait for events; a request for a poll is noticed with this delay."""
READ_WHILE_LOOKING_S = 0.02
"""Longest single wait for events during a poll; its end is noticed with this delay."""
OVERLAP_S = 2.0
"""Age of an event, relative to a poll, up to which the poll may have missed it."""
END_OVERLAP_S = 10.0
"""Time that an ended job may still be listed, while its nodes are cleaned up."""
KEPT_S = 600.0
"""Time for which the last event of an ended job is remembered, in case older ones arrive later."""
_MOVES = (JobBegan, JobBack, JobGone)


class Poller:
    """Polls a resource manager in a thread, and publishes changes.

    If the resource manager pushes events by itself, they are published as they arrive. The polls then
    only make sure that nothing was missed. After an error the pause doubles, up to four times.
    `snapshot` returns the last known state, so the controller is asked once per interval, whatever
    the number of callers.

    Args:
        manager: Manager to poll.
        publish: Function that takes each event.
        every_s: Pause between two polls, in seconds.
        floor_s: Minimum pause, also after `soon`, in seconds.
        lines: Source of pushed events.
        translate: Function that translates a line of them.
        drifting: Whether priorities change by themselves over time; see `StillPriorities`.
        clock: Seconds since the epoch, by which the times of events are compared with those of polls.
    """

    def __init__(
        self,
        manager: ResourceManager,
        publish: Callable[[Event], None],
        *,
        every_s: float = 60.0,
        floor_s: float = 1.0,
        lines: Lines | None = None,
        translate: Callable[[str], Sequence[News]] | None = None,
        drifting: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.manager = manager
        self.publish = publish
        self.every_s = every_s
        self.floor_s = min(floor_s, every_s)
        self.polls = 0
        self.errors = 0
        self.news = 0
        self.priorities = StillPriorities() if drifting else None
        self._lines = lines
        self._translate = translate
        self._clock = clock
        self._recent: deque[News] = deque(maxlen=10_000)
        self._moved: dict[str, float] = {}
        self._polled_s = 0.0
        self._changes: Changes | None = None
        self.fault = ""
        self._lines_fault = ""
        self._began = 0.0
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._stop = threading.Event()
        self._soon = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="poller", daemon=True)

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def close(self) -> None:
        """Stop polling."""
        self._stop.set()
        self._soon.set()
        self._thread.join(timeout=30)
        if self._lines is not None:
            self._lines.close()

    def soon(self) -> None:
        """Poll before the interval ends: an action was taken, and its effect is expected."""
        self._soon.set()

    def snapshot(self) -> Snapshot:
        """Return the last known state, with the last published event number.

        Without a known state, poll first.
        """
        if self._changes is None:
            self._poll()
        with self._lock:
            assert self._changes is not None
            return self._changes.last

    def look_age_s(self) -> float:
        """Return the seconds since the start of the last successful poll."""
        return time.monotonic() - self._began

    def _loop(self) -> None:
        pause_s = self.every_s
        while not self._stop.is_set():
            begin = time.monotonic()
            try:
                self._poll()
                pause_s = self.every_s
                self.fault = ""
            except Exception as error:
                # Whatever it is, the next poll may be better.
                self.errors += 1
                known = isinstance(error, HpctwinError)
                self.fault = str(error) if known else f"{type(error).__name__}: {error}"
                pause_s = min(
                    2 * pause_s, max(self.every_s, min(LONGEST_PAUSE_S, 4 * self.every_s))
                )
                logger.warning(
                    "poll failed, next in %g s: %s", pause_s, self.fault, exc_info=not known
                )
            took_s = time.monotonic() - begin
            floor_s = (
                max(self.floor_s, took_s / MOST_OF_THE_TIME) if not self.fault else self.floor_s
            )
            self._wait(begin + min(floor_s, pause_s), begin + pause_s)

    def _wait(self, earliest: float, latest: float) -> None:
        """Publish events until the next poll is due."""
        while not self._stop.is_set():
            now = time.monotonic()
            if now >= latest or (self._soon.is_set() and now >= earliest):
                break
            until = earliest if self._soon.is_set() else latest
            if self._lines is None:
                # Without pushed events there is nothing to do until a caller asks for a poll.
                if self._soon.is_set():
                    self._stop.wait(until - now)
                else:
                    self._soon.wait(until - now)
                continue
            self._read(min(READ_S, until - now), self._take)
        self._soon.clear()

    def _poll(self) -> None:
        with self._looking:
            if self._lines is not None and self._changes is None:
                # News pushed before the first poll are in its result, except for what users have
                # requested.
                while self._read(0.0, self._translated):
                    pass
            began, began_s = time.monotonic(), self._clock()
            snapshot = self._look()
            if self.priorities is not None:
                snapshot = self.priorities.settled(snapshot)
            with self._lock:
                self.polls += 1
                self._polled_s = began_s
                self._began = began
                if self._changes is None:
                    self._changes = Changes(snapshot, run=uuid.uuid4().hex[:12])
                else:
                    self._publish(updated(snapshot, self._missed(snapshot, began_s)))

    def _look(self) -> Snapshot:
        """Poll the manager; events that arrive meanwhile are published at once."""
        if self._lines is None or self._changes is None:
            return self.manager.snapshot()
        with ThreadPoolExecutor(1, thread_name_prefix="look") as side:
            look = side.submit(self.manager.snapshot)
            while not look.done():
                self._read(READ_WHILE_LOOKING_S, self._take)
        return look.result()

    def _read(self, timeout_s: float, take: Callable[[Sequence[str]], object]) -> bool:
        """Process pushed lines, and return whether there were any.

        After an error, only polls show what the lines said.
        """
        assert self._lines is not None
        try:
            lines = self._lines.read(timeout_s)
            if lines:
                with self._lock:
                    take(lines)
            self._lines_fault = ""
            return bool(lines)
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
            if fault != self._lines_fault:
                logger.warning("pushed events are not read, polls replace them: %s", fault)
            self._lines_fault = fault
            self._stop.wait(timeout_s)
            return False

    def _translated(self, lines: Sequence[str]) -> list[News]:
        assert self._translate is not None
        return [item for line in lines for item in self._translate(line)]

    def _take(self, lines: Sequence[str]) -> None:
        """Publish the content of pushed lines."""
        assert self._lines is not None
        fresh = self._translated(lines)
        self.news += len(fresh)
        fresh = [item for item in fresh if item.time_s >= self._polled_s - END_OVERLAP_S]
        for item in fresh:
            if isinstance(item, _MOVES):
                latest_s = max(item.time_s, self._moved.get(item.job_id, 0.0))
                self._moved[item.job_id] = latest_s
        fresh = list(filter(self._in_force, fresh))
        self._recent.extend(fresh)
        if self._changes is not None and fresh:
            self._publish(updated(self._changes.last, fresh))
        self._lines.keep_place()

    def _publish(self, now: Updated) -> None:
        assert self._changes is not None
        for event in self._changes.to(now.snapshot, now.ends):
            self.publish(event)
        if now.look:
            self._soon.set()

    def _missed(self, snapshot: Snapshot, look_s: float) -> list[News]:
        """Return events that a poll which began at ``look_s`` may not have seen."""
        assert self._changes is not None
        before = {job.spec.id: job.requeues for job in self._changes.last.jobs}
        for job in snapshot.jobs:
            if job.requeues > before.get(job.spec.id, 0):
                self._moved[job.spec.id] = look_s
        now = {job.spec.id for job in snapshot.jobs}
        self._moved = {i: t for i, t in self._moved.items() if i in now or t > look_s - KEPT_S}
        missed = [item for item in self._recent if self._may_be_later(item, look_s)]
        self._recent = deque(filter(self._in_force, missed), maxlen=self._recent.maxlen)
        return list(self._recent)

    def _in_force(self, item: News) -> bool:
        """Return whether nothing later is known of the job; events may arrive in any order."""
        return not isinstance(item, _MOVES) or item.time_s >= self._moved.get(item.job_id, 0.0)

    def _may_be_later(self, item: News, look_s: float) -> bool:
        """Return whether a poll which began at ``look_s`` may not have seen this yet.

        A hook runs before the change that it reports is done, so starts and ends from shortly
        before count too.
        """
        match item:
            case JobBegan() | JobBack():
                return item.time_s >= look_s - OVERLAP_S
            case JobGone():
                return item.time_s >= look_s - END_OVERLAP_S
            case Look():
                return False
            case _:
                return item.time_s >= look_s


class PolledManager:
    """A resource manager whose snapshots come from a poller, numbered like its events.

    Args:
        poller: Poller of the manager.
    """

    def __init__(self, poller: Poller) -> None:
        self.poller = poller
        self.manager = poller.manager
        self.cluster = poller.manager.cluster
        self.clock_speed = poller.manager.clock_speed

    @property
    def priorities(self) -> Priorities:
        """See `ResourceManager`."""
        return self.manager.priorities

    def ways(self) -> frozenset[Way]:
        """See `ResourceManager`."""
        return self.manager.ways()

    def report(self) -> Report:
        """See `ResourceManager`."""
        poller = self.poller
        return replace(self.manager.report(), look_age_s=poller.look_age_s(), fault=poller.fault)

    def own_estimates(self) -> dict[str, float]:
        """See `ResourceManager`."""
        return self.manager.own_estimates()

    def snapshot(self) -> Snapshot:
        """Return the last known state."""
        return self.poller.snapshot()

    def leases(self) -> Mapping[str, float]:
        """See `ResourceManager`."""
        return self.manager.leases()

    def lease(self, until_s: Mapping[str, float]) -> dict[str, Outcome]:
        """See `ResourceManager`; a refused job has begun or is gone, as a poll will show."""
        outcomes = self.manager.lease(until_s)
        if any(outcome.result != "done" for outcome in outcomes.values()):
            self.poller.soon()
        return outcomes

    def admit(self, job_ids: Sequence[str]) -> dict[str, Outcome]:
        """See `ResourceManager`."""
        outcomes = self.manager.admit(job_ids)
        self.poller.soon()
        return outcomes

    def start(self, job_id: str) -> Outcome:
        """See `ResourceManager`."""
        return self._and_look(self.manager.start(job_id))

    def start_on(self, job_id: str, where: Where) -> Outcome:
        """See `Places`."""
        if not isinstance(self.manager, Places):
            return self.start(job_id)
        return self._and_look(self.manager.start_on(job_id, where))

    def set_priority(self, job_id: str, priority: float) -> Outcome:
        """See `ResourceManager`."""
        if self.poller.priorities is not None:
            priority = self.poller.priorities.true(priority)
        return self._and_look(self.manager.set_priority(job_id, priority))

    def heartbeat(self, seq: int, *, starts_at_once: bool = False) -> None:
        """See `ResourceManager`."""
        self.manager.heartbeat(seq, starts_at_once=starts_at_once)

    def close(self) -> None:
        """See `ResourceManager`."""
        self.poller.close()
        self.manager.close()

    def _and_look(self, outcome: Outcome) -> Outcome:
        self.poller.soon()
        return outcome


class PolledLender(PolledManager):
    """A polled manager that can pause its scheduling."""

    def take_scheduling(self) -> Outcome:
        """See `LendsScheduling`."""
        assert isinstance(self.manager, LendsScheduling)
        return self._and_look(self.manager.take_scheduling())

    def give_scheduling(self) -> Outcome:
        """See `LendsScheduling`."""
        assert isinstance(self.manager, LendsScheduling)
        return self._and_look(self.manager.give_scheduling())


def polled(poller: Poller) -> PolledManager:
    """Return a manager that can do exactly what the polled one can."""
    lends = isinstance(poller.manager, LendsScheduling)
    return PolledLender(poller) if lends else PolledManager(poller)


def cluster_identity(manager: ResourceManager) -> str:
    """Return a text that is equal for managers of the same cluster on one host only."""
    if isinstance(manager, PolledManager):
        return cluster_identity(manager.manager)
    if isinstance(manager, Identified):
        return manager.identity()
    # A manager that lives in this process belongs to no other one.
    return f"process {os.getpid()}, object {id(manager)}"
