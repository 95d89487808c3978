"""Begin times of the twin's jobs: leases, and begin times that users requested."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hpctwin.rms.slurm.listing.jobs import Mine

SLACK_S = 2.0
"""Slurm keeps whole seconds."""
REMEMBERED = 4
"""Number of leases remembered per job; a poll may have begun before the last one."""


class Begins:
    """Decides whether each begin time is a lease or a request.

    A begin time that neither the twin nor the submit rule gave is a request, and is kept: a user's,
    or Slurm's own for a requeued job. After a restart the earlier leases are unknown. Then a begin
    time that a lease could have set counts as a lease.

    Args:
        since_s: Time since when the given leases are known, in seconds.
        longest_s: Longest lease of the twin, in seconds.
        first_s: Length of the lease that the submit rule gives, in seconds.
    """

    def __init__(self, since_s: float, longest_s: float, first_s: float = 20.0) -> None:
        self.since_s = since_s
        self.longest_s = longest_s
        self.first_s = first_s
        self.mine: Mapping[str, Mine] = {}
        self.leases: dict[str, float] = {}
        self.to_end: dict[str, float] = {}
        """Requested begin times of jobs that are left to Slurm and still have a lease."""
        self._given: dict[str, deque[float]] = {}
        self._lock = threading.Lock()
        self._wished: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        self._noted: dict[str, float] = {}

    def seen(
        self,
        mine: Mapping[str, Mine],
        now_s: float,
        left: Mapping[str, Mine] = MappingProxyType({}),
    ) -> dict[str, float | None]:
        """Process a snapshot; return the begin times that users requested, None without.

        Args:
            now_s: Current time by the manager's clock, in seconds.
            left: Pending jobs left to Slurm, which may still have a lease.
        """
        with self._lock:
            return self._seen(mine, now_s, left)

    def _seen(
        self, mine: Mapping[str, Mine], now_s: float, left: Mapping[str, Mine]
    ) -> dict[str, float | None]:
        self.mine = mine
        known: dict[str, Any]
        for known in (self._given, self._wished, self._noted):
            for job_id in known.keys() - mine.keys() - left.keys():
                del known[job_id]
        self.to_end = {
            job_id: asked_s
            for job_id, one in left.items()
            if one.begin_s > max(now_s, asked_s := self._wish(job_id, one, now_s))
        }
        self._asked = {job_id: self._wish(job_id, one, now_s) for job_id, one in mine.items()}
        self.leases = {
            job_id: one.begin_s if one.begin_s > max(now_s, self._asked[job_id]) else 0.0
            for job_id, one in mine.items()
        }
        for job_id, asked_s in self._asked.items():
            # A requested begin time keeps the job waiting as a lease does.
            if asked_s > now_s:
                self.leases[job_id] = asked_s
        return {i: asked_s if asked_s > now_s else None for i, asked_s in self._asked.items()}

    def given(self, until_s: Mapping[str, float], *, sure: bool = True) -> None:
        """Record leases that were given or ended (0); not sure if no answer came."""
        with self._lock:
            for job_id, end_s in until_s.items():
                self._given.setdefault(job_id, deque(maxlen=REMEMBERED)).append(end_s)
                if sure and job_id in self.leases:
                    self.leases[job_id] = end_s

    def wished(self, job_id: str, begin_s: float) -> None:
        """Record that a user has requested another begin time."""
        with self._lock:
            self._wished[job_id] = begin_s

    def asked_s(self, job_id: str) -> float:
        """Return the begin time that the user of a twin's job requested; 0 without one."""
        return self._wished.get(job_id, self._asked.get(job_id, 0.0))

    def to_note(self) -> dict[str, tuple[Mine, float]]:
        """Return jobs with begin times requested after submission that no admin comment has yet."""
        with self._lock:
            return {
                job_id: (one, self.asked_s(job_id))
                for job_id, one in self.mine.items()
                if self.asked_s(job_id) != self._noted.get(job_id, one.asked_s)
            }

    def noted(self, job_id: str, asked_s: float) -> None:
        """Record that the admin comment of a job has a requested begin time now."""
        with self._lock:
            self._noted[job_id] = asked_s

    def _wish(self, job_id: str, one: Mine, now_s: float) -> float:
        asked_s = self._noted.get(job_id, one.asked_s)
        if job_id in self._wished:
            return self._wished[job_id]
        if one.begin_s <= now_s or self._ours(job_id, one, now_s):
            return asked_s
        return one.begin_s

    def _ours(self, job_id: str, one: Mine, now_s: float) -> bool:
        """Return whether a future begin time is a lease, or was requested already."""
        begin_s = one.begin_s
        given = self._given.get(job_id, ())
        if begin_s in (*given, one.asked_s, self._noted.get(job_id)):
            return True
        if begin_s <= one.submit_s + self.first_s + SLACK_S:
            return True
        known = one.submit_s > self.since_s or bool(given)
        return not known and not one.requeues and begin_s <= now_s + self.longest_s + SLACK_S
