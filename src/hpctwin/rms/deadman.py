"""The dead-man's handle: gives scheduling back when the twin shows no life.

It runs apart from the twin: as a small process, or from cron with ``--once``. It needs nothing of the
twin but the heartbeat file.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from hpctwin.rms.heartbeat import age_s
from hpctwin.rms.manager import LendsScheduling, Outcome, UnreachableError

__all__ = ["look", "watch"]

logger = logging.getLogger(__name__)


def look(manager: LendsScheduling, heartbeat_file: Path, after_s: float) -> Outcome | None:
    """Give scheduling back if the last sign of life is too old, or there never was one.

    Jobs that a submit rule goes on holding are released each time, as long as the twin is away.

    Args:
        manager: whom to give scheduling back to.
        heartbeat_file: what the twin renews.
        after_s: how old it may be, seconds.

    Returns:
        What became of it; None if the twin lives.
    """
    age = age_s(heartbeat_file)
    if age is not None and age <= after_s:
        return None
    try:
        outcome = manager.give_scheduling()
    except UnreachableError as error:
        outcome = Outcome("unknown", str(error))
    if outcome.result != "done":
        logger.error("scheduling could not be given back: %s", outcome.reason)
    return outcome


def watch(
    manager: LendsScheduling,
    heartbeat_file: Path,
    after_s: float,
    stop: threading.Event,
    *,
    every_s: float = 5.0,
    said: Callable[[str], None] = logger.warning,
) -> None:
    """`look` again and again until told to stop; says when the twin is lost and when it is back."""
    lost = False
    while not stop.wait(every_s):
        outcome = look(manager, heartbeat_file, after_s)
        if outcome is None and lost:
            said("the twin is back")
        elif outcome is not None and not lost:
            said(f"no sign of life from the twin for {after_s:g} s: scheduling is given back")
        lost = outcome is not None
