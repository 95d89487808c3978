"""Watchdog: a decision that takes too long is stopped, and one that cannot be stopped is reported."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hpctwin.errors import SimulationError
from hpctwin.model.text import format_duration

__all__ = ["Watchdog"]

logger = logging.getLogger(__name__)

CHECK_S = 1.0
"""Pause between two checks, in seconds."""


class Watchdog:
    """Watches from its own thread how long a decision takes.

    Args:
        timeout_s: Time after which a decision is stopped, in seconds. After twice this time, it
            counts as one that does not return.
        stop: Function that stops all simulations of the decision; each one ends after its current
            scheduling pass.
        running: Function that returns the policies being simulated.
        hung: Function called once with the error if a decision does not return.
    """

    def __init__(
        self,
        timeout_s: float,
        stop: Callable[[], None],
        running: Callable[[], list[str]],
        hung: Callable[[str], None],
    ) -> None:
        self.timeout_s = timeout_s
        self._stop, self._running, self._hung = stop, running, hung
        self._since: float | None = None
        self._stopped = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what happens within the context.

        Raises:
            SimulationError: It was stopped; the message says what to do.
        """
        self._stopped, self._since = False, time.monotonic()
        try:
            yield
        except SimulationError as error:
            if not self._stopped:
                raise
            raise SimulationError(
                f"the decision was stopped after {format_duration(self.timeout_s)} "
                "(what_ifs.timeout); set what_ifs.deadline or core.horizon, or remove slow policies"
            ) from error
        finally:
            self._since = None

    def _watch(self) -> None:
        told = 0.0
        while not self._closed.wait(min(CHECK_S, self.timeout_s / 4)):
            since = self._since
            if since is None or time.monotonic() < since + self.timeout_s:
                continue
            self._stopped = True
            self._stop()
            if time.monotonic() >= since + 2 * self.timeout_s and told != since:
                told = since
                names = ", ".join(self._running()) or "unknown"
                fault = (
                    f"a decision has not returned for {format_duration(2 * self.timeout_s)} and "
                    f"cannot be stopped (policy {names}); correct the functions of this policy, or "
                    "remove it from core.pool and core.site_policy"
                )
                logger.critical("%s", fault)
                self._hung(fault)
