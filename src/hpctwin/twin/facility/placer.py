"""The placer: chooses a cluster for each job of a queue, and submits it there.

Each job reaches exactly one cluster, exactly once, even if the placer dies at any point:

- The choice is on disk before the job is submitted.
- The job is submitted held. It is admitted only when its id is on disk, too.
- A placer that finds an intended job without an id searches the cluster for the job's key before it
  submits the job.
- If a submission that seemed lost arrives later, that copy stays held and is canceled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np

from hpctwin.errors import ConfigError, UnreachableError
from hpctwin.facility import Facility, Strategy
from hpctwin.facility.guided import Guided
from hpctwin.facility.strategy import (
    LeastLoaded,
    MostFree,
    Random,
    RoundRobin,
    ShortestQueue,
    User,
)
from hpctwin.model import format_duration
from hpctwin.rms.gate import SubmittedJob
from hpctwin.twin.facility.queue import Queue, QueuedJob
from hpctwin.twin.facility.site import ROW, LiveView, Site

__all__ = ["Placer", "check_strategy"]

logger = logging.getLogger(__name__)

RETRY_S = 5.0
"""Pause before a step with an unknown outcome is checked, in seconds."""
TIDY_EVERY_S = 60.0

Known = dict[str, list[SubmittedJob]]


LOOKING_AT_NO_FUTURE = Random | User | RoundRobin | ShortestQueue | MostFree | LeastLoaded


def check_strategy(strategy: Strategy) -> None:
    """Check that a strategy can place live jobs.

    Raises:
        ConfigError: The strategy needs something that only a simulation has.
    """
    if isinstance(strategy, Guided):
        if strategy.knows == "oracle":
            raise ConfigError(
                "knowledge: runtimes of live jobs are unknown; use walltime or recent"
            )
        simple = strategy.batch == 1 and not (
            strategy.samples or strategy.move_every_s or strategy.window_s
        )
        if simple and "total" not in strategy.objective.names:
            return
    elif isinstance(strategy, LOOKING_AT_NO_FUTURE):
        return
    raise ConfigError(
        f"strategy {strategy.name!r} does not support live jobs; use random, user, "
        "round-robin, shortest-queue, most-free, least-loaded, earliest-start, sgs-t, or "
        "sgs(…) without total, samples, batch, window and moving"
    )


class Placer:
    """Placer of the jobs of one queue.

    Args:
        facility: The clusters.
        sites: The same clusters live, in the same order.
        queue: Queue of the jobs, locked for this placer.
        strategy: Strategy that chooses a cluster for each job.
        seed: Seed of random choices.
        watch: Function called with each job whose stage has changed.
    """

    def __init__(
        self,
        facility: Facility,
        sites: list[Site],
        queue: Queue,
        strategy: Strategy,
        *,
        seed: int = 0,
        watch: Callable[[QueuedJob], None] = lambda entry: None,
    ) -> None:
        check_strategy(strategy)
        self.facility = facility
        self.sites = sites
        self.queue = queue
        self.strategy = strategy
        self.watch = watch
        self.decision_ms: list[float] = []
        self._by_name = {site.name: site for site in sites}
        self._rng = np.random.default_rng(seed)
        self._turn = 0
        self._later: dict[str, float] = {}
        self._tidy_at = 0.0

    def turn(self) -> None:
        """Process events, finish the jobs on their way, then place the queued ones."""
        for site in self.sites:
            site.sync()
        self._finish()
        self._tidy()
        self._place()

    # --- placing ---------------------------------------------------------------------------------

    def _place(self) -> None:
        for entry in self.queue.entries("queued"):
            if all(site.fault is not None for site in self.sites):
                return
            begin = time.perf_counter()
            view = self._view(entry)
            never = {**view.never(), **entry.refused}
            possible = [c for c, site in enumerate(self.sites) if site.name not in never]
            if not possible:
                reason = "; ".join(f"{name}: {why}" for name, why in never.items())
                self.queue.reject(entry.request.key, reason)
                logger.warning("no cluster can run job %s: %s", entry.request.key, reason)
                self._tell(entry)
                continue
            options = [c for c in possible if self._takes_jobs(c) and view.has_room(c)]
            if not options:
                continue
            only = len(options) == 1
            chosen = options[0] if only else self.strategy.pick(ROW, options, view)
            self._turn = view.turn
            took_ms = 1000 * (time.perf_counter() - begin)
            self.decision_ms.append(took_ms)
            self._intend(entry, view, chosen, options)

    def _takes_jobs(self, cluster: int) -> bool:
        site = self.sites[cluster]
        return site.fault is None and site.mirror.needs_snapshot is None

    def _view(self, entry: QueuedJob) -> LiveView:
        clusters = tuple(
            cluster.model_copy(update={"nodes": None, "machine": site.mirror.machine})
            if site.mirror.snapshots
            else cluster
            for cluster, site in zip(self.facility.clusters, self.sites, strict=True)
        )
        facility = self.facility.model_copy(update={"clusters": clusters})
        return LiveView(facility, self.sites, entry, time.time(), self._rng, self._turn)

    def _intend(self, entry: QueuedJob, view: LiveView, chosen: int, options: list[int]) -> None:
        site = self.sites[chosen]
        start_s, end_s = view.forecast_s(chosen) or (None, None)
        why = _why(self.strategy, view, options)
        if not self.queue.intend(entry.request.key, site.name, start_s, end_s, why):
            return  # withdrawn meanwhile
        logger.info("job %s is sent to %s (%s)", entry.request.key, site.name, why)
        self._tell(entry)
        self._submit(entry, view, chosen)

    # --- sending ---------------------------------------------------------------------------------

    def _submit(self, entry: QueuedJob, view: LiveView, cluster: int) -> None:
        site, key = self.sites[cluster], entry.request.key
        spec = view.spec(cluster)
        site.send(spec.id, spec)
        try:
            outcome, job_id = site.gate.submit(view.asked(cluster), delay_s=view.delay_s(cluster))
        except UnreachableError as error:
            self.queue.not_sent(key, str(error))
            site.unsend(spec.id)
            site.lost(error)
            self._tell(entry)
            return
        if outcome.result == "done":
            self._note(entry, site, job_id, view, cluster)
        elif outcome.result == "refused":
            site.unsend(spec.id)
            logger.warning("%s rejected job %s: %s", site.name, key, outcome.reason)
            self.queue.refused(key, site.name, outcome.reason)
            self._tell(entry)
        else:
            logger.warning(
                "%s: unknown whether job %s was accepted: %s", site.name, key, outcome.reason
            )
            self._later[key] = time.monotonic() + RETRY_S

    def _note(
        self, entry: QueuedJob, site: Site, job_id: str, view: LiveView, cluster: int
    ) -> None:
        self.queue.submitted(entry.request.key, job_id)
        spec = view.spec(cluster)
        site.unsend(spec.id)
        site.send(job_id, spec)
        self._tell(entry)
        self._admit(entry, site, job_id)

    def _admit(self, entry: QueuedJob, site: Site, job_id: str) -> None:
        key = entry.request.key
        try:
            outcome = site.gate.admit(job_id)
            held = outcome.result == "refused" and any(
                job.id == job_id and job.held for job in site.gate.jobs().get(key, ())
            )
        except UnreachableError as error:
            site.lost(error)
            return
        if outcome.result == "unknown" or held:
            logger.warning("%s: job %s is not admitted yet: %s", site.name, key, outcome.reason)
            self._later[key] = time.monotonic() + RETRY_S
            return
        # If the cluster refuses a job that is not held, or is gone, it was admitted before. The
        # queue has had the job's id since it was held.
        self.queue.placed(key)
        self._tell(entry)

    # --- jobs that an earlier turn or placer left unfinished -------------------------------------

    def _finish(self) -> None:
        known: dict[str, Known] = {}
        now = time.monotonic()
        for entry in self.queue.entries("intended", "submitted"):
            key, site = entry.request.key, self._by_name.get(entry.cluster or "")
            if site is None:
                logger.error("job %s is at %s, which is not configured", key, entry.cluster)
                continue
            if self._later.get(key, 0.0) > now or site.fault is not None:
                continue
            self._later.pop(key, None)
            if entry.job_id is not None:
                self._admit(entry, site, entry.job_id)
                continue
            try:
                if site.name not in known:
                    known[site.name] = site.gate.jobs()
            except UnreachableError as error:
                site.lost(error)
                continue
            there = known[site.name].get(key)
            view, cluster = self._view(entry), self.sites.index(site)
            if there:
                logger.info("job %s was already accepted at %s as %s", key, site.name, there[0].id)
                self._note(entry, site, there[0].id, view, cluster)
            else:
                self._submit(entry, view, cluster)

    def _tidy(self) -> None:
        """Cancel held copies of the queue's jobs other than the recorded one.

        A copy is spared if its job is intended for that cluster, because its id may not be
        recorded yet. Jobs whose key the queue does not have are spared, too.
        """
        if time.monotonic() < self._tidy_at:
            return
        self._tidy_at = time.monotonic() + TIDY_EVERY_S
        entries = {entry.request.key: entry for entry in self.queue.entries()}
        for site in self.sites:
            if site.fault is not None:
                continue
            try:
                known = site.gate.jobs()
                for key, jobs in known.items():
                    entry = entries.get(key)
                    if entry is None or (entry.stage == "intended" and entry.cluster == site.name):
                        continue
                    for job in jobs:
                        if job.held and (entry.cluster, entry.job_id) != (site.name, job.id):
                            logger.warning(
                                "%s: job %s is a second copy of %s, cancelled",
                                site.name, job.id, key,
                            )  # fmt: skip
                            site.gate.cancel(job.id)
            except UnreachableError as error:
                site.lost(error)

    def _tell(self, entry: QueuedJob) -> None:
        self.watch(self.queue.entry(entry.request.key))


def _why(strategy: Strategy, view: LiveView, options: list[int]) -> str:
    """Return the reason for a choice as text, with the forecast for each cluster."""
    if len(options) == 1:
        return "the only cluster that can accept it now"
    said = []
    for c in options:
        found = view.forecast_s(c)
        if found is not None:
            wait, turnaround = (max(0.0, t - view.now_ms / 1000) for t in found)
            name = view.facility.names[c]
            said.append(
                f"{name}: starts in {format_duration(wait)}, ends in {format_duration(turnaround)}"
            )
    return f"{strategy.name}" + (f"; {', '.join(said)}" if said else "")
