"""OpenPBS and PBS Professional as a resource manager of the twin."""

from __future__ import annotations

import getpass
import logging
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hpctwin.errors import CommandError, FormatError, HpctwinError, UnreachableError
from hpctwin.rms.commands import Commands
from hpctwin.rms.gate import beat
from hpctwin.rms.manager import Outcome, PlainManager, Priorities, Report, Way, Where
from hpctwin.rms.pbs.leasing import (
    OVERLAP_S,
    Leasing,
    WaitLimit,
    leases_file,
    rooms_watched,
    vnodes_text,
)
from hpctwin.rms.pbs.listing.node_attributes import SiteResources
from hpctwin.rms.pbs.listing.output import is_false, read_output, too_old, words_of
from hpctwin.rms.pbs.listing.parse import (
    Found,
    cluster_snapshot,
    own_estimates,
    server_attributes,
)
from hpctwin.rms.pbs.news import PbsNews
from hpctwin.rms.records.changes import Doubts
from hpctwin.rms.records.records import Snapshot

logger = logging.getLogger(__name__)

_ID = re.compile(r"\d{1,12}(\[\d{1,7}\])?(\.[A-Za-z0-9][A-Za-z0-9._-]{0,126})?")

HIGHEST_PRIORITY = 1023.0
SELDOM_S = 10.0
"""Minimum age for a new query of queues and reservations.

It also holds for resources, if chunks request a new one.
"""
RESOURCES_S = 60.0
"""Minimum age for a new query of the site's resources otherwise."""
MOST_HOOK_FAULTS = 5
"""Maximum number of different hook errors that are reported."""
QRUN_OVERRIDES = (
    "qrun ignores limits (max_run, max_run_res), stopped queues and the site's order; "
    "`act.by: lease` respects them"
)
_NO_RIGHTS = re.compile(r"unauthorized|insufficient permission|\(15007\)", re.I)
BEAT_AGAIN_S = 4.0
"""Age at which the heartbeat is renewed; the hook counts the twin as dead at 15 s."""
MOST_TIMES = 4
"""Number of refusals in a row of a job's vnodes after which it is left to PBS."""
RIGHTS_AGAIN_S = 600.0
"""Time after which a twin whose user may not act checks its rights again."""
_STATES = re.compile(r"no reservations|unknown.*resv", re.I)


class _Lies(NamedTuple):
    """Select and place of a pending job, and the time of the hook's report.

    The time is 0 once a poll has shown the job.
    """

    how: tuple[str, str]
    told_s: float = 0.0


class PbsManager(PlainManager):
    """Controls PBS through its commands.

    PBS's own scheduling stays on. The hook keeps it from starting leased jobs, and PBS starts
    admitted jobs by the site's rules. If an administrator has turned scheduling off, no job may
    start.

    Args:
        cluster: Name for events and snapshots.
        folder: Folder of ``qstat``, ``pbsnodes``, ``qmgr`` and ``qrun``; if empty, the path is
            searched.
        timeout_s: Time limit of each command, in seconds.
        heartbeat_file: File that shows the hook that the twin is in control; leases are in a file
            next to it.
        server: Name of the server, if it is not the default.
        conf: Value of ``PBS_CONF_FILE``, if it is not the default.
    """

    priorities = Priorities(HIGHEST_PRIORITY)

    def __init__(
        self,
        cluster: str,
        *,
        folder: str = "",
        timeout_s: float = 10.0,
        heartbeat_file: Path | None = None,
        server: str = "",
        conf: Path | None = None,
    ) -> None:
        super().__init__(cluster)
        # PBS's commands read and write local times.
        environment = {"TZ": "UTC"}
        if server:
            environment["PBS_DEFAULT"] = server
        if conf is not None:
            environment["PBS_CONF_FILE"] = str(conf)
        self.commands = Commands(folder, timeout_s=timeout_s, environment=environment)
        self.server = server
        self.heartbeat_file = heartbeat_file
        self.found: Found | None = None
        self.doubts = Doubts()
        self._no_rights: tuple[float, str] | None = None
        self._resources = SiteResources(self.commands)
        self._no_room: dict[str, int] = {}
        self._beat: tuple[int, float] | None = None
        self._told: set[str] = set()
        self._lies: dict[str, _Lies] = {}
        self._hook_faults: dict[str, None] = {}
        self._warned = False
        path = self.limit = None
        if heartbeat_file is not None:
            path, self.limit = leases_file(heartbeat_file), WaitLimit(self.commands, heartbeat_file)
        self.leasing = Leasing(path, self._may_look, self._look_again, self.limit)

    def ways(self) -> frozenset[Way]:
        """See `ResourceManager`."""
        ways: set[Way] = {"start", "priority"}
        if self.heartbeat_file is not None:
            ways.add("lease")
        return frozenset(ways)

    def report(self) -> Report:
        """See `ResourceManager`."""
        found, calls = self.found, self.commands.calls_per_minute()
        faults = tuple(
            f"the hook failed and accepted a request without checking it: {f}"
            for f in self._hook_faults
        )
        if found is None:
            return Report(calls, faults)
        return Report(calls, (*faults, *found.notes), found.acted, found.left)

    def own_estimates(self) -> dict[str, float]:
        """Return starts that PBS estimates, in seconds since the epoch.

        The site must enable them (``est_start_time_freq``).
        """
        try:
            return own_estimates(self.commands.run("qstat", ["-f", "-t", "-F", "json"]))
        except CommandError as error:
            raise UnreachableError(f"PBS: {error}") from error

    def snapshot(self) -> Snapshot:
        """Query jobs, nodes and whether PBS schedules, once each; queues less often.

        Reservations, too, are queried less often.
        """
        run = self.commands.run
        try:
            now_s = time.time()
            jobs = run("qstat", ["-f", "-t", "-F", "json"])
            nodes = run("pbsnodes", ["-a", "-v", "-F", "json"])
            queues = self._queues(SELDOM_S)
            reservations = self._reservations()
            server = server_attributes(run("qstat", ["-B", "-f", "-F", "json"]))

            def found_with(queues: bytes) -> Found:
                return cluster_snapshot(
                    jobs, nodes, queues, reservations, now_s,
                    scheduling=str(server.get("scheduling")).lower() == "true",
                    default_queue=str(server.get("default_queue", "")),
                    blind=self.doubts.lasting(),
                    used_up=self._resources.consumables(),
                )  # fmt: skip

            self._resources.ask(RESOURCES_S)
            found = found_with(queues)
            if found.strange:
                # A queue was created since they were queried.
                found = found_with(self._queues(0.0))
            if found.asked - self._resources.used_up.keys():
                # A resource was created since they were queried.
                self._resources.ask(SELDOM_S)
                found = found_with(self._queues(SELDOM_S))
            found.told = self._resources.known(found.asked)
            found.notes += self._resources.notes
        except CommandError as error:
            raise UnreachableError(f"PBS: {too_old(error) or error}") from error
        except UnreachableError as error:
            raise UnreachableError(f"{error}{self._which_server(error)}") from error
        self.doubts.seen(found.unequal, now_s)
        for note in found.notes:
            if note not in self._told:
                logger.warning("PBS: %s", note)
        self._told = set(found.notes)
        found.snapshot = found.snapshot.model_copy(update={"cluster": self.cluster})
        if self.limit is not None:
            self.limit.looked(server, found.limit_counts)
        # If the twin acts in no queue, the hook refuses no job.
        left = found.left if found.acted else found.kept
        self.leasing.looked(found.marks, now_s, left, found.kept)
        later = {i: one for i, one in self._lies.items() if one.told_s >= now_s - OVERLAP_S}
        self._lies = later | {i: _Lies(how) for i, how in found.lies.items()}
        self.found = found
        return found.snapshot

    def leases(self) -> Mapping[str, float]:
        """See `ResourceManager`."""
        return self.leasing.leases()

    def lease(self, until_s: Mapping[str, float]) -> dict[str, Outcome]:
        """Lease jobs by a file that the hook reads; see `ResourceManager`."""
        return self.leasing.lease(until_s)

    def admit(self, job_ids: Sequence[str]) -> dict[str, Outcome]:
        """Admit jobs by the same file, and a scheduling cycle; see `ResourceManager`."""
        return self.leasing.admit(job_ids)

    def start(self, job_id: str) -> Outcome:
        """Run ``qrun``: PBS places the job now, or refuses.

        It overrides limits, see `QRUN_OVERRIDES`.
        """
        self._warn()
        if job_id in self.leasing.marks():
            outcome = self.leasing.let_run(job_id)
            if outcome.result != "done":
                return outcome
        return self._change("qrun", [], job_id)

    def start_on(self, job_id: str, where: Where) -> Outcome:
        """Run ``qrun -H`` if the hook checks the capacity; otherwise act as `start`."""
        if not rooms_watched(self.heartbeat_file):
            return self._by_pbs(job_id, "the installed hook does not check capacity")
        lies = self._lies.get(job_id)
        if self.found is None or lies is None:
            return self._by_pbs(job_id, "it has exclusive vnodes, or is not pending")
        try:
            vnodes = vnodes_text(*lies.how, where, self.found.consumables)
        except ValueError as error:
            return self._by_pbs(job_id, str(error))
        self._warn()
        self.leasing.watch_rooms(self.found.consumables)
        outcome = self.leasing.let_run(job_id)
        if outcome.result == "done":
            # Answered at once: what it takes is counted before the next is tried.
            outcome = self._change("qrun", ["-a", "-H", vnodes], job_id)
        if outcome.result == "done":
            outcome = self._taken(job_id)
        self._still_alive()
        if outcome.result == "done":
            self._no_room.pop(job_id, None)
            return Outcome("done", f"qrun -H {vnodes}")
        if outcome.result == "refused":
            self._not_there(job_id)
        return outcome

    def _still_alive(self) -> None:
        """Renew the heartbeat during many starts on a slow PBS.

        Otherwise the hook would release all jobs meanwhile.
        """
        if self.heartbeat_file is not None and self._beat is not None:
            seq, at = self._beat
            if time.monotonic() - at >= BEAT_AGAIN_S:
                self._beat_now(self.heartbeat_file, seq)

    def _beat_now(self, path: Path, seq: int) -> None:
        """Renew the heartbeat, with the queues in which the twin acts."""
        self._beat = (seq, time.monotonic())
        found = self.found
        queues = () if found is None else (*found.acted, *found.routes)
        beat(path, seq, more={"queues": queues})

    def _not_there(self, job_id: str) -> None:
        """Hold a job for its next turn.

        Otherwise PBS would start it, on vnodes that other jobs have just been assigned.
        """
        waiting = self.leasing.marks().keys()
        self._no_room = {i: times for i, times in self._no_room.items() if i in waiting}
        self._no_room[job_id] = self._no_room.get(job_id, 0) + 1
        if self._no_room[job_id] < MOST_TIMES:
            self.leasing.keep_back(job_id)

    def _taken(self, job_id: str) -> Outcome:
        """Return whether a job was accepted that was run with ``-a``.

        With that option PBS does not report a refusal.
        """
        try:
            said = self.commands.run("qstat", ["-f", "-F", "json", job_id])
            (row,) = read_output(said, "qstat -f -F json", [])["Jobs"].values()
            waits = str(row["job_state"]) == "Q"
        except CommandError as error:
            # It may have ended already.
            gone = re.search(r"unknown job|has finished", error.said, re.I) is not None
            return Outcome("done") if gone else Outcome("unknown", str(error))
        except UnreachableError as error:
            return Outcome("unknown", str(error))
        except (FormatError, ValueError, KeyError, TypeError, AttributeError):
            return Outcome("unknown", "qstat does not show whether the job runs")
        if waits:
            return Outcome(
                "refused", "the job no longer fits on one of the vnodes, or a vnode is down"
            )
        return Outcome("done")

    def _by_pbs(self, job_id: str, why: str) -> Outcome:
        outcome = self.start(job_id)
        return (
            Outcome("done", f"started with qrun on vnodes chosen by PBS: {why}")
            if outcome.result == "done"
            else outcome
        )

    def _warn(self) -> None:
        if not self._warned:
            logger.warning("PBS: %s", QRUN_OVERRIDES)
            self._warned = True

    def set_priority(self, job_id: str, priority: float) -> Outcome:
        """Set the job's priority, −1024 to 1023; it counts if the site's formula uses it."""
        if not -1024 <= priority <= HIGHEST_PRIORITY:
            says = f"priority is {priority:g}, expected -1024 to {HIGHEST_PRIORITY:g}"
            return Outcome("refused", says)
        return self._change("qalter", ["-p", str(int(priority))], job_id)

    def heartbeat(self, seq: int, *, starts_at_once: bool = False) -> None:
        """Renew the file that the hook reads, keep the limit, and end expired leases.

        Raises:
            UnreachableError: The twin's user may not act, or no answer. A twin that cannot release
                jobs must not hold them: the hook releases all if the file is not renewed.
        """
        if self.heartbeat_file is None or self.limit is None:
            return
        if self._no_rights is not None:
            since, why = self._no_rights
            if time.monotonic() - since < RIGHTS_AGAIN_S:
                raise UnreachableError(why)
            self._no_rights = None
        self._beat_now(self.heartbeat_file, seq)
        self.limit.keep()
        self.leasing.end_run_out()

    def now_s(self) -> float:
        """Return the time; the clock of the hooks' host is taken as equal.

        See `Hooked`.
        """
        return time.time()

    def translator(self) -> PbsNews:
        """See `Hooked`."""
        return PbsNews(lambda: self.found, self.leasing.told, self._hook_failed, self._lies_so)

    def identity(self) -> str:
        """See `Identified`."""
        try:
            said = self.commands.run("qstat", ["-B", "-f", "-F", "json"])
            names = sorted(read_output(said, "qstat -B -f -F json", [])["Server"])
        except (CommandError, FormatError, KeyError, TypeError):
            names = []
        return f"pbs {names[0] if names else self.cluster}"

    def _which_server(self, error: UnreachableError) -> str:
        """Return where the name of an unreachable server comes from."""
        if "cannot connect" not in str(error):
            return ""
        if self.server:
            return (
                f"; `manager.server` is {self.server}; without it, PBS_SERVER of pbs.conf is used"
            )
        return "; `manager.server` is not set, so PBS_SERVER of pbs.conf is used"

    def _lies_so(self, job_id: str, how: tuple[str, str]) -> None:
        # Another dictionary: a poll may iterate over this one.
        self._lies = {**self._lies, job_id: _Lies(how, time.time())}

    def _hook_failed(self, fault: str) -> None:
        if fault not in self._hook_faults and len(self._hook_faults) < MOST_HOOK_FAULTS:
            logger.warning("PBS: the hook failed: %s", fault)
            self._hook_faults[fault] = None

    def _may_look(self) -> Outcome:
        """Return whether PBS's scheduler may be asked for a cycle."""
        try:
            about = server_attributes(self.commands.run("qstat", ["-B", "-f", "-F", "json"]))
        except CommandError as error:
            return Outcome("refused", str(error))
        except HpctwinError as error:
            return Outcome("unknown", str(error))
        if is_false(about.get("scheduling")):
            return Outcome("refused", "scheduling is switched off by an administrator")
        return Outcome("done")

    def _look_again(self) -> Outcome:
        """Start a scheduling cycle: PBS does so when scheduling is set to true once more."""
        return self._outcome("qmgr", ["-c", "set server scheduling=true"])

    def _change(self, command: str, options: list[str], job_id: str) -> Outcome:
        if not _ID.fullmatch(job_id):
            return Outcome("refused", f"{job_id!r} is not a job number of PBS")
        return self._outcome(command, [*options, job_id])

    def _outcome(self, command: str, arguments: list[str]) -> Outcome:
        try:
            self.commands.run(command, arguments)
        except CommandError as error:
            reason = words_of(error)
            if _NO_RIGHTS.search(error.said):
                why = f"{command}: {reason}; add {getpass.getuser()} to the server's operators"
                self._no_rights = time.monotonic(), why
            return Outcome("refused", reason)
        except UnreachableError as error:
            return Outcome("unknown", str(error))
        return Outcome("done")

    def _queues(self, every_s: float) -> bytes:
        return self.commands.run_at_times("qstat", ["-Q", "-f", "-F", "json"], every_s)

    def _reservations(self) -> bytes:
        try:
            return self.commands.run_at_times("pbs_rstat", ["-f"], SELDOM_S)
        except CommandError as error:
            if _STATES.search(str(error)):
                return b""
            raise
