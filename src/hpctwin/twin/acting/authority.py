"""Whether this twin may act at all: no other one does, and the signs of life that it owes can be given."""

from __future__ import annotations

import logging
import time

from hpctwin.errors import UnreachableError
from hpctwin.rms.heartbeat import beat, why_no_beat
from hpctwin.rms.identity import cluster_identity
from hpctwin.rms.manager import ResourceManager
from hpctwin.twin.acting.lock import ClusterLock
from hpctwin.twin.settings.config import TwinConfig

__all__ = ["Charge"]

logger = logging.getLogger(__name__)

RETRY_S = 1.0
"""How often it is tried again; a twin that is kept out takes over so soon after the other's death."""


class Charge:
    """Asked in each turn of a twin that would act.

    Args:
        config: the twin's.
        manager: of the cluster that it acts on.
    """

    def __init__(self, config: TwinConfig, manager: ResourceManager) -> None:
        self._heartbeat = config.manager.sign_of_life
        shared = [] if config.lock is None else [config.lock]
        if self._heartbeat is not None:
            shared.append(self._heartbeat.with_name(self._heartbeat.name + ".lock"))
        self._lock = ClusterLock(lambda: cluster_identity(manager), shared)
        self._again = 0.0
        self.why_not: str | None = None

    def keep(self, seq: int) -> bool:
        """Be the one that acts, if that can be; `why_not` says why it cannot.

        Args:
            seq: the last event dealt with, for the heartbeat.
        """
        if self.held():
            return True
        now = time.monotonic()
        if now < self._again:
            return False
        self._again = now + RETRY_S
        # The heartbeat itself comes last: it is that of the twin that acts.
        why_not = self._no_place() or self._lock.take() or self._no_beat(seq)
        if why_not is not None:
            self._lock.release()
        if why_not is not None and why_not != self.why_not:
            logger.warning("not acting: %s", why_not)
        elif why_not is None and self.why_not is not None:
            logger.info("acting from now on")
        self.why_not = why_not
        return why_not is None

    def held(self) -> bool:
        """Whether this twin is the one that acts."""
        return self._lock.held()

    def drop(self) -> bool:
        """Let another twin act; False."""
        self._lock.release()
        self.why_not = None
        return False

    def _no_place(self) -> str | None:
        return None if self._heartbeat is None else why_no_beat(self._heartbeat)

    def _no_beat(self, seq: int) -> str | None:
        if self._heartbeat is None:
            return None
        try:
            beat(self._heartbeat, seq)
        except UnreachableError as error:
            return str(error)
        return None
