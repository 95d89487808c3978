"""Whether the twin may act: its settings allow it, and no other twin acts on the cluster."""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from hpctwin.errors import UnreachableError
from hpctwin.model.files import FileLock
from hpctwin.rms.gate import beat, why_no_beat
from hpctwin.rms.manager import ResourceManager
from hpctwin.rms.polling.poller import cluster_identity
from hpctwin.twin.settings.config import ActSettings, Mode, TwinConfig

__all__ = ["Authority", "ClusterLock", "Guard"]

logger = logging.getLogger(__name__)

MINUTE_S = 60.0
RETRY_S = 1.0
"""How often the lock is tried again, and so how soon a twin takes over after another one ends."""


class Guard:
    """Says before each action whether the settings allow it, and why not."""

    def __init__(self, settings: ActSettings) -> None:
        self.settings = settings
        self.stopped: str | None = None
        self._killed = False
        self._kinds = settings.kinds
        self._sent: deque[float] = deque()

    @property
    def mode(self) -> Mode:
        """The mode in force: as configured, or ``observe`` after the twin stopped itself."""
        return "observe" if self.stopped else self.settings.mode

    def killed(self) -> bool:
        """Return whether the kill switch is activated; log each change."""
        switch = self.settings.kill_switch
        found = switch is not None and switch.exists()
        if found != self._killed:
            self._killed = found
            logger.warning(
                "kill switch %s %s", switch, "exists: not acting" if found else "is gone"
            )
        return found

    def is_active(self) -> bool:
        """Whether the twin says which jobs start: by leases, or while the cluster's scheduling rests."""
        by_itself = self.settings.by != "priority" and self.mode in ("act", "approve")
        return by_itself and not self.killed()

    def reorders(self) -> bool:
        """Whether the twin puts the queue in order, and the cluster schedules."""
        return self.settings.by == "priority" and self.mode == "act" and not self.killed()

    def stop(self, reason: str) -> None:
        """Fall back to observing until a person resumes."""
        if self.stopped is None:
            self.stopped = reason

    def resume(self) -> None:
        """Return to the configured mode."""
        self.stopped = None

    def watch(self, median_error: float | None) -> None:
        """Stop acting if forecasts have become too bad."""
        bound = self.settings.forecast_error
        if bound is not None and median_error is not None and median_error > bound:
            self.stop(f"the median forecast error is {median_error:.0%}, which exceeds {bound:.0%}")

    def allowance(self, kind: str, at_s: float) -> int:
        """Return how many actions of a kind may be sent now."""
        return 0 if self._forbids(kind) else max(0, self._left(at_s))

    def refuses(self, kind: str, at_s: float) -> str | None:
        """Return why an action may not be sent now; None if it may, and then it is counted."""
        why_not = self._forbids(kind)
        if why_not is None and self._left(at_s) <= 0:
            what = "starts" if kind == "start" else "changes"
            why_not = f"more than {self.settings.starts_per_minute} {what} per minute"
        if why_not is None:
            self._sent.append(at_s)
        return why_not

    def _forbids(self, kind: str) -> str | None:
        if self.killed():
            return f"kill switch {self.settings.kill_switch} exists"
        if self.mode not in ("act", "approve"):
            return f"the mode is {self.mode}"
        return None if kind in self._kinds else f"{kind} is not allowed"

    def _left(self, at_s: float) -> int:
        while self._sent and self._sent[0] <= at_s - MINUTE_S:
            self._sent.popleft()
        return self.settings.starts_per_minute - len(self._sent)


class Authority:
    """Makes this twin the only one that acts on its cluster, and proves that it can show life."""

    def __init__(self, config: TwinConfig, manager: ResourceManager) -> None:
        self._heartbeat = config.manager.sign_of_life
        shared = [] if config.lock is None else [config.lock]
        if self._heartbeat is not None:
            shared.append(self._heartbeat.with_name(self._heartbeat.name + ".lock"))
        self._lock = ClusterLock(lambda: cluster_identity(manager), shared)
        self._again = 0.0
        self.why_not: str | None = None

    def keep(self, seq: int) -> bool:
        """Return whether this twin may act, after trying to get the lock; `why_not` says why it may not.

        Args:
            seq: The last processed event, for the heartbeat.
        """
        if self.held():
            return True
        now = time.monotonic()
        if now < self._again:
            return False
        self._again = now + RETRY_S
        # The heartbeat comes last, since only the twin that acts may write it.
        why_not = self._no_folder() or self._lock.take() or self._no_beat(seq)
        if why_not is not None:
            self._lock.release()
        if why_not is not None and why_not != self.why_not:
            logger.warning("not acting: %s", why_not)
        elif why_not is None and self.why_not is not None:
            logger.info("acting on the cluster")
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

    def _no_folder(self) -> str | None:
        return None if self._heartbeat is None else why_no_beat(self._heartbeat)

    def _no_beat(self, seq: int) -> str | None:
        if self._heartbeat is None:
            return None
        try:
            beat(self._heartbeat, seq)
        except UnreachableError as error:
            return str(error)
        return None


class ClusterLock:
    """The lock that a twin needs before it acts on a cluster; any number of twins may observe.

    On one host the lock is a name in the kernel, made from the identity of the cluster. So it is the same for
    all configurations, users and journals, it ends with the process, and no user can delete it.
    Twins on several hosts, or in containers with their own network, share a lock file.

    Args:
        cluster: Returns the identity of the cluster; may raise `UnreachableError`.
        files: Lock files that are needed too.
    """

    def __init__(self, cluster: Callable[[], str], files: Sequence[Path] = ()) -> None:
        self._cluster = cluster
        self._files = [FileLock(path) for path in files]
        self._name: socket.socket | None = None

    def take(self) -> str | None:
        """Take the lock, and return None; if that fails, return why."""
        if self.held():
            return None
        why_not = self._take_name()
        for file in self._files:
            if why_not is None:
                why_not = file.take()
        if why_not is not None:
            # A part of the lock would keep out a twin that could get all of it.
            self.release()
        return why_not

    def held(self) -> bool:
        """Whether this twin has the lock."""
        return self._name is not None and all(file.held() for file in self._files)

    def release(self) -> None:
        """Let another twin act."""
        if self._name is not None:
            self._name.close()
            self._name = None
        for file in self._files:
            file.release()

    def _take_name(self) -> str | None:
        if self._name is not None:
            return None
        try:
            cluster = self._cluster()
        except UnreachableError as error:
            return f"identity of the cluster is unknown: {error}"
        name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # A name that begins with a zero byte is not a file; only Linux has such names.
        if sys.platform == "linux":
            address = b"\0hpctwin/" + hashlib.sha256(cluster.encode()).hexdigest().encode()
            try:
                name.bind(address)
                name.listen(128)
            except OSError:
                name.close()
                return f"{_holder(address)} already acts on this cluster ({cluster})"
        self._name = name
        return None


def _holder(address: bytes) -> str:
    """Return which process has a name, as the kernel says."""
    if sys.platform != "linux":
        return "another twin"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(address)
            size = struct.calcsize("3i")
            said = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        except OSError:
            return "another twin"
    pid, uid, _ = struct.unpack("3i", said)
    if pid == os.getpid():
        return "another twin in this process"
    return f"another twin (process {pid} of user {uid})" if pid else "another twin in a container"
