"""The live loop: follow the cluster, decide, act, and report the status.

One thread does everything in turn, so a heartbeat proves that the whole loop lives. The order of
the steps keeps three invariants, whenever a crash comes:

- An event is acknowledged only when the journal has it.
- An action is recorded before it is sent.
- The twin does not act on anything that the journal does not have.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from hpctwin.errors import HpctwinError, JournalError, UnreachableError, need
from hpctwin.model.text import Shown
from hpctwin.rms.manager import Outcome, ResourceManager
from hpctwin.twin.acting.authority import Guard
from hpctwin.twin.acting.control import Control
from hpctwin.twin.core.core import Core
from hpctwin.twin.core.decision import Decision
from hpctwin.twin.following.bus import Bus
from hpctwin.twin.following.follower import RETRY_S, FaultsInForce, Follower
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.service.metering import Metering
from hpctwin.twin.service.query_socket import QuerySocket
from hpctwin.twin.service.status_writer import StatusWriter
from hpctwin.twin.service.watchdog import Watchdog
from hpctwin.twin.settings.config import TwinConfig
from hpctwin.twin.start_times.estimate import JobToCome, answer, picture
from hpctwin.twin.what_if.pool import LocalPool, WhatIfs

__all__ = ["Twin"]

logger = logging.getLogger(__name__)

_TRIED_AGAIN = ("bus", "events", "taking charge", "acting", "answering", "keeping")
"""Steps whose internal errors are cleared after the pause: they are tried again."""

LONGEST_PAUSE_S = 8.0
"""Maximum pause after an internal error, in seconds."""
GARBAGE_AFTER = 200_000


class Twin(Shown):
    """One live twin.

    Args:
        config: Configuration of the twin.
        manager: Resource manager of the cluster.
        bus: Source of the cluster's events.
        journal: Record of inputs, decisions and actions.
        queries: Socket for questions about start times; None for no socket.
        watch: Function called after each decision, and with None after any other change.
        warm_up: Whether all that decisions may need is compiled first.
        hung: Function called with the error if a decision does not return; it may end the process.
    """

    def __init__(
        self,
        config: TwinConfig,
        manager: ResourceManager,
        bus: Bus,
        journal: Journal,
        *,
        queries: QuerySocket | None = None,
        watch: Callable[[Decision | None], None] | None = None,
        warm_up: bool = True,
        hung: Callable[[str], None] = lambda fault: None,
    ) -> None:
        self.config = config
        self.manager = manager
        self.bus = bus
        self.journal = journal
        self.queries = queries
        self.watch = watch or (lambda decision: None)
        self.guard = Guard(config.act)
        self.faults = FaultsInForce(self._fault_changed)
        self._what_ifs = _what_ifs(config)
        self.follower = Follower(config, manager, bus, journal, self._what_ifs)
        if warm_up:
            self.core.warm_up()
        self.control = Control(self.follower, self.guard, self.faults)
        self.watchdog = Watchdog(config.what_ifs.timeout, self._stop, self._simulated, hung)
        kept = config.journal.path.with_name(config.journal.path.name + ".meter.parquet")
        self.metering = None if config.meter is None else Metering(config.meter, kept)
        self.status_writer = StatusWriter(self.follower, self.control, self.metering)
        self._strikes: dict[str, int] = {}
        self._pause_until = 0.0

    def shown(self) -> tuple[str, dict[str, str]]:
        """See `Shown`."""
        decision = self.decision
        facts = {
            "mode": self.config.act.mode,
            "in control": "yes" if self.is_active else "no",
            "decisions": f"{self.decision_id:,}",
            "policy in force": "–" if decision is None else decision.policy,
        }
        return "beside " + self.config.manager.kind, facts

    def __repr__(self) -> str:
        title, facts = self.shown()
        return (
            f"<Twin {title}: " + ", ".join(f"{name} {said}" for name, said in facts.items()) + ">"
        )

    @property
    def core(self) -> Core:
        """The core of the twin, which has no clock, files or sockets."""
        return self.follower.core

    @property
    def decision(self) -> Decision | None:
        """The last decision."""
        return self.control.decision

    @property
    def decision_id(self) -> int:
        """Id of the last decision in the journal."""
        return self.control.decision_id

    @property
    def is_active(self) -> bool:
        """Whether the twin decides which jobs start."""
        return self.control.is_active

    @property
    def fault(self) -> str | None:
        """All errors that keep the twin from being in control; None if there are none."""
        return self.faults.text

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of inputs, decisions and actions."""
        return self.status_writer.counts()

    def status(self) -> dict[str, Any]:
        """Return the status as plain values."""
        return self.status_writer.status()

    # --- the loop --------------------------------------------------------------------------------

    def run(self, stop: threading.Event) -> None:
        """Restore the state, run turns until ``stop``, then end the leases and save.

        No exception ends the loop; the status shows the errors.
        """
        # A decision's objects are freed by reference counting, because none of them is circular.
        # With the default threshold, garbage collection would walk through all jobs several times
        # per decision.
        gc.set_threshold(GARBAGE_AFTER)
        self.begin()
        try:
            while not stop.is_set():
                self.turn(0.2)
        finally:
            self.end()

    def begin(self) -> None:
        """Restore the state from the journal, and close actions without an outcome."""
        self.watchdog.start()
        self.follower.begin()
        if self.metering is not None:
            self.metering.begin()
        stopped = self.journal.read_latest("stopped")
        if stopped is not None and stopped[1]:
            self.guard.stop(stopped[1])
        with self.journal.writing():
            for action in self.journal.unfinished_actions():
                lost = Outcome("unknown", "the twin stopped before it answered")
                self.journal.outcome(action.id, lost, 0.0)

    def end(self) -> None:
        """Let go of scheduling, and save the whole state."""
        self.control.let_go()
        if self.metering is not None:
            self.metering.end()
        try:
            with self.journal.writing():
                if self.core.mirror.snapshots:
                    self.follower.save()
                self.status_writer.write(ended=True)
        except HpctwinError as error:
            logger.warning("at the end: %s", error)
        self.control.authority.drop()
        self._what_ifs.close()
        self.watchdog.close()

    def turn(self, timeout_s: float) -> None:
        """Run one turn: process inputs, decide if needed, act, and send a heartbeat.

        A step that fails is recorded as an error and tried again. While there is an error, the
        twin is not in control.

        Args:
            timeout_s: Maximum time to wait for events, in seconds.
        """
        began = time.monotonic()
        if began < self._pause_until:
            time.sleep(min(timeout_s, self._pause_until - began))
            return
        if self.metering is not None:
            self.metering.turn(self.core, self.follower.now_s(), self.is_active)
        for name in _TRIED_AGAIN:
            self.faults.fixed(name)
        steps = (
            ("bus", lambda: self._receive(timeout_s)),
            ("events", self.follower.watch_gap),
            ("resource manager", self.follower.look),
            ("taking charge", self.control.take),
            ("deciding", self._decide),
            ("acting", self.control.act),
            ("answering", self._answer),
            ("keeping", self._keep),
        )
        for name, step in steps:
            if not self._try(name, step):
                # Later steps need the failed one, except to let go of scheduling (part of "taking
                # charge") and to write the status (part of "keeping").
                for other in ("taking charge", "keeping"):
                    if other != name:
                        self._try(other, dict(steps)[other])
                break

    # --- steps -----------------------------------------------------------------------------------

    def _receive(self, timeout_s: float) -> bool:
        taken = self.follower.receive(timeout_s)
        if taken:
            self.faults.fixed("journal")
        return taken is not None

    def _decide(self) -> bool:
        before = self.decision_id
        with self.watchdog.watching():
            done = self.control.decide()
        if self.decision_id != before:
            self.watch(self.decision)
        return done

    def _stop(self) -> None:
        """Stop the simulations of a decision that takes too long; called by the watchdog."""
        for simulation in self.core.simulating():
            simulation.stop()

    def _simulated(self) -> list[str]:
        return sorted({one.policy.name for one in self.core.simulating()})

    def _answer(self) -> bool:
        if self.queries is None or not self.core.mirror.snapshots:
            return False
        self.queries.answer(self._said)
        return True

    def _said(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Answer a question about a job's start; see `hpctwin.twin.service.when`."""
        job = asked.get("job")
        question = JobToCome(**asked["to_come"]) if job is None else str(job)
        return answer(picture(self.status_writer.standing(), "the running twin"), question).plain()

    def _keep(self) -> None:
        self.control.show_life()
        if self.status_writer.turn():
            self.faults.fixed("journal")
            self.watch(None)
        self.follower.forget_old()

    def _try(self, name: str, step: Callable[[], bool | None]) -> bool:
        """Run a step of the turn; return False if it failed.

        A step that returns False has done nothing; its success clears no error.
        """
        try:
            if step() is not False:
                self.faults.fixed(name)
                self._strikes.pop(name, None)
            return True
        except JournalError as error:
            # The journal lacks what the core did since: its next record is the whole state.
            self.follower.checkpoint_due = True
            self.faults.set("journal", str(error))
            self.follower.wait(RETRY_S)
        except UnreachableError as error:
            self.faults.set("resource manager", str(error))
            self.follower.lost()
        except HpctwinError as error:
            # A policy or an objective fails, or a snapshot has an unknown form.
            self.faults.set("cannot decide" if name == "deciding" else name, str(error))
            self._again(name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # A user's function may raise anything, such as SystemExit: the twin keeps running.
            if name not in self.faults:
                logger.exception("%s failed", name)
            self.faults.set(name, f"{type(error).__name__}: {error}")
            self._again(name)
        return False

    def _again(self, name: str) -> None:
        """Schedule another try of a failed step, with a new snapshot if one may be needed.

        The pause doubles with each failure. A failed decision is repeated. After an error in
        processing events the mirror may be wrong, so it needs a snapshot.
        """
        strikes = self._strikes[name] = self._strikes.get(name, 0) + 1
        self._pause_until = time.monotonic() + min(LONGEST_PAUSE_S, RETRY_S * 2 ** (strikes - 1))
        if name == "deciding":
            self.core.opportunity = True
        elif self.core.mirror.needs_snapshot is None and name in ("bus", "events"):
            self.core.mirror.needs_snapshot = f"a fault: {self.faults[name]}"

    def _fault_changed(self, worse: bool) -> None:
        if worse:
            self.control.fault_came()
            self.watch(None)
        else:
            # Decisions made during the error were not carried out: decide again.
            self.core.opportunity = True


def _what_ifs(config: TwinConfig) -> WhatIfs:
    """Return the executor of the what-ifs.

    Raises:
        ConfigError: The settings name Dask, which is not installed.
    """
    asked = config.what_ifs
    if not asked.on_dask or asked.deadline is None:
        return LocalPool(config.threads, asked.deadline)
    need("distributed", "dask", "what-ifs on Dask's workers")
    from hpctwin.twin.what_if.dask import DaskPool

    return DaskPool(asked.dask, asked.scheduler_file, asked.deadline)
