"""The limit for which PBS's scheduler passes leased jobs over, without asking the hook about each.

A job that is to wait has 1 of a resource, and by the server's limit nobody runs who has any. The limit saves
attempts and decides nothing: the hook refuses what is leased in either case. It stands only while both live
who take it away again: the twin, and the hook's periodic part.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpctwin.errors import CommandError, UnreachableError
from hpctwin.rms.commands import Commands
from hpctwin.rms.manager import Outcome
from hpctwin.rms.pbs.listing.jobs import WAIT
from hpctwin.rms.pbs.listing.values import resources

__all__ = ["WaitLimit", "lifting_file"]

logger = logging.getLogger(__name__)

LIFTS_WITHIN_S = 35.0
"""The hook's periodic part shows itself every 10 s."""
MOST_IDS = 500
"""Jobs of one command."""


def lifting_file(heartbeat: Path) -> Path:
    """What the hook's periodic part renews: beside the heartbeat."""
    return heartbeat.with_name(heartbeat.name + ".lifts")


class WaitLimit:
    """Sets the limit and takes it away, keeps jobs back and lets them through.

    Args:
        commands: runs qmgr and qalter.
        heartbeat: the twin's; the hook's sign of life is beside it.
        clock: seconds since the epoch.
    """

    def __init__(
        self, commands: Commands, heartbeat: Path, clock: Callable[[], float] = time.time
    ) -> None:
        self.commands = commands
        self.path = lifting_file(heartbeat)
        self.clock = clock
        self.stands = False
        self._counts_runners = False
        self._refused = False

    def looked(self, server: Mapping[str, Any], counts_runners: bool) -> None:
        """What a look found.

        Args:
            server: attributes of the server.
            counts_runners: whether jobs run that have some of the resource: the limit would count them, and
                let nobody through beside them.
        """
        self.stands = WAIT in resources(server.get("max_run_res"))
        self._counts_runners = counts_runners

    def keep(self) -> None:
        """Have it as it should be while the twin is in charge.

        Raises:
            UnreachableError: no answer.
        """
        wanted = not self._counts_runners and self._can_be_lifted()
        if wanted == self.stands or (wanted and self._refused):
            return
        limit = f"max_run_res.{WAIT}"
        said = f"set server {limit} = [o:PBS_ALL=0]" if wanted else f"unset server {limit}"
        try:
            self.commands.run("qmgr", ["-c", said])
        except CommandError as error:
            logger.warning("PBS tries each leased job in each of its cycles: %s: %s", said, error)
            self._refused = True
        else:
            self.stands = wanted

    def give(self, job_ids: Sequence[str], amount: int) -> dict[str, Outcome]:
        """Give jobs so much of the resource: 1 keeps them back, 0 lets them through.

        Returns:
            What became of those that were not done.
        """
        missed: dict[str, Outcome] = {}
        for first in range(0, len(job_ids), MOST_IDS):
            some = job_ids[first : first + MOST_IDS]
            try:
                self.commands.run("qalter", ["-l", f"{WAIT}={amount}", *some])
            except CommandError as error:
                # It names those that it could not change, and has changed the others.
                named = set(re.split(r"\s+", error.said)) & set(some)
                missed |= dict.fromkeys(named or some, Outcome("refused", str(error)))
            except UnreachableError as error:
                missed |= dict.fromkeys(some, Outcome("unknown", str(error)))
        return missed

    def _can_be_lifted(self) -> bool:
        try:
            shown_s = json.loads(self.path.read_bytes())["time_s"]
            return bool(abs(self.clock() - shown_s) < LIFTS_WITHIN_S)
        except (OSError, ValueError, KeyError, TypeError):
            return False
