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
from hpctwin.rms.heartbeat import beat
from hpctwin.rms.manager import Outcome, PlainManager, Priorities, Report, Way, Where
from hpctwin.rms.pbs.leasing import OVERLAP_S, Leasing, WaitLimit, leases_file
from hpctwin.rms.pbs.listing.node_attributes import SiteResources
from hpctwin.rms.pbs.listing.output import is_false, read_output, too_old, words_of
from hpctwin.rms.pbs.listing.parse import (
    Found,
    cluster_snapshot,
    own_estimates,
    server_attributes,
)
from hpctwin.rms.pbs.news import PbsNews
from hpctwin.rms.pbs.placing import rooms_watched, vnodes_text
from hpctwin.rms.records.changes import Doubts
from hpctwin.rms.records.records import Snapshot

__all__ = ["PbsManager"]

logger = logging.getLogger(__name__)

_ID = re.compile(r"\d{1,12}(\[\d{1,7}\])?(\.[A-Za-z0-9][A-Za-z0-9._-]{0,126})?")

HIGHEST_PRIORITY = 1023.0
SELDOM_S = 10.0
"""Queues and reservations are asked for so often at most, and resources where chunks ask for a new one."""
RESOURCES_S = 60.0
"""Resources of the site's, else."""
MOST_HOOK_FAULTS = 5
"""So many different ones are told."""
QRUN_OVERRIDES = (
    "qrun starts jobs past limits (max_run, max_run_res), stopped queues and the site's order; "
    "`act.by: lease` keeps all of them"
)
_NO_RIGHTS = re.compile(r"unauthorized|insufficient permission|\(15007\)", re.I)
BEAT_AGAIN_S = 4.0
"""The hook holds the twin for dead after 15 s."""
MOST_TIMES = 4
"""A job that was refused its vnodes so often one after the other is left to PBS."""
RIGHTS_AGAIN_S = 600.0
"""After so long a twin whose user may not act tries whether it may now."""
_STATES = re.compile(r"no reservations|unknown.*resv", re.I)


class _Lies(NamedTuple):
    """Select and place of a job that waits, and when the hook told of it, if no look has yet."""

    how: tuple[str, str]
    told_s: float = 0.0


class PbsManager(PlainManager):
    """Talks to a PBS server through its commands.

    PBS's own scheduling stays on. The hook keeps it from starting jobs that are leased, and PBS starts
    those that are admitted by the site's rules. Where an administrator has turned scheduling off, nothing
    may start.

    Args:
        cluster: name for events and snapshots.
        folder: where ``qstat``, ``pbsnodes``, ``qmgr`` and ``qrun`` are; found on the path if empty.
        timeout_s: of each command.
        heartbeat_file: says to the hook that the twin is in charge; leases are in a file beside it.
        server: name of the server, where it is not the default one.
        conf: value of ``PBS_CONF_FILE``, where it is not the default one.
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
            f"the hook failed, and let pass what it should see to: {f}" for f in self._hook_faults
        )
        if found is None:
            return Report(calls, faults)
        return Report(calls, (*faults, *found.notes), found.acted, found.left)

    def own_estimates(self) -> dict[str, float]:
        """Starts that PBS estimates, where the site lets it (``est_start_time_freq``), s since the epoch.

        Raises:
            UnreachableError: the server does not answer, or refuses.
        """
        try:
            return own_estimates(self.commands.run("qstat", ["-f", "-t", "-F", "json"]))
        except CommandError as error:
            raise UnreachableError(f"PBS: {error}") from error

    def snapshot(self) -> Snapshot:
        """Jobs, nodes and whether PBS schedules, in one query each; queues and reservations at times.

        Raises:
            UnreachableError: the server does not answer, or not in time.
            FormatError: it answers in a form that is not known.
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
                # A queue was made since they were asked for.
                found = found_with(self._queues(0.0))
            if found.asked - self._resources.used_up.keys():
                # A resource was made since they were asked for.
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
        # Where the twin acts in no queue, the hook refuses no job.
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
        """By a file that the hook reads; see `ResourceManager`."""
        return self.leasing.lease(until_s)

    def admit(self, job_ids: Sequence[str]) -> dict[str, Outcome]:
        """By the same file, and a scheduling cycle; see `ResourceManager`."""
        return self.leasing.admit(job_ids)

    def start(self, job_id: str) -> Outcome:
        """``qrun``: PBS places the job now, or refuses; overrides limits, see `QRUN_OVERRIDES`."""
        self._warn()
        if job_id in self.leasing.marks():
            outcome = self.leasing.let_run(job_id)
            if outcome.result != "done":
                return outcome
        return self._change("qrun", [], job_id)

    def start_on(self, job_id: str, where: Where) -> Outcome:
        """``qrun -H``, where the hook sees to it that there is room; else as `start`."""
        if not rooms_watched(self.heartbeat_file):
            return self._by_pbs(job_id, "no hook of this version shows that it looks for room")
        lies = self._lies.get(job_id)
        if self.found is None or lies is None:
            return self._by_pbs(job_id, "it has whole vnodes, or does not wait")
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
        """Renew the file amid many starts, where PBS is slow: else the hook lets go of all jobs meanwhile."""
        if self.heartbeat_file is not None and self._beat is not None:
            seq, at = self._beat
            if time.monotonic() - at >= BEAT_AGAIN_S:
                self._beat_now(self.heartbeat_file, seq)

    def _beat_now(self, path: Path, seq: int) -> None:
        """Renew the file, with the queues in which the twin acts."""
        self._beat = (seq, time.monotonic())
        found = self.found
        queues = () if found is None else (*found.acted, *found.routes)
        beat(path, seq, more={"queues": queues})

    def _not_there(self, job_id: str) -> None:
        """Keep a job for its next turn: else PBS starts it, on vnodes that others are just told to take."""
        waiting = self.leasing.marks().keys()
        self._no_room = {i: times for i, times in self._no_room.items() if i in waiting}
        self._no_room[job_id] = self._no_room.get(job_id, 0) + 1
        if self._no_room[job_id] < MOST_TIMES:
            self.leasing.keep_back(job_id)

    def _taken(self, job_id: str) -> Outcome:
        """Whether a job was taken that was run with ``-a``: then PBS does not tell that it refuses."""
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
            return Outcome("unknown", "qstat did not say whether it runs")
        if waits:
            return Outcome("refused", "one of the vnodes has no room for it any more, or is not up")
        return Outcome("done")

    def _by_pbs(self, job_id: str, why: str) -> Outcome:
        outcome = self.start(job_id)
        return Outcome("done", f"qrun, PBS chose: {why}") if outcome.result == "done" else outcome

    def _warn(self) -> None:
        if not self._warned:
            logger.warning("PBS: %s", QRUN_OVERRIDES)
            self._warned = True

    def set_priority(self, job_id: str, priority: float) -> Outcome:
        """The job's priority, −1024 to 1023; counts where the site's formula looks at it."""
        if not -1024 <= priority <= HIGHEST_PRIORITY:
            says = f"priority {priority:g} is not within PBS's -1024 to {HIGHEST_PRIORITY:g}"
            return Outcome("refused", says)
        return self._change("qalter", ["-p", str(int(priority))], job_id)

    def heartbeat(self, seq: int, *, starts_at_once: bool = False) -> None:
        """Renew the file that the hook looks at, keep the limit, and end what has run out.

        Raises:
            UnreachableError: the twin's user may not act, or no answer. Who cannot let jobs go must not keep
                them: the hook lets all go where the file is not renewed.
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
        """See `Hooked`; the hooks run on the server's host, whose clock is taken for ours."""
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
        """Where a server's name comes from that cannot be reached."""
        if "cannot connect" not in str(error):
            return ""
        if self.server:
            return f"; `manager.server` is {self.server}; left out, PBS_SERVER of PBS's conf counts"
        return "; PBS_SERVER of PBS's conf counts, as `manager.server` names none"

    def _lies_so(self, job_id: str, how: tuple[str, str]) -> None:
        # Another dictionary: a look may go through this one.
        self._lies = {**self._lies, job_id: _Lies(how, time.time())}

    def _hook_failed(self, fault: str) -> None:
        if fault not in self._hook_faults and len(self._hook_faults) < MOST_HOOK_FAULTS:
            logger.warning("PBS: the hook failed: %s", fault)
            self._hook_faults[fault] = None

    def _may_look(self) -> Outcome:
        """Whether PBS's scheduler may be asked for a cycle."""
        try:
            about = server_attributes(self.commands.run("qstat", ["-B", "-f", "-F", "json"]))
        except CommandError as error:
            return Outcome("refused", str(error))
        except HpctwinError as error:
            return Outcome("unknown", str(error))
        if is_false(about.get("scheduling")):
            return Outcome("refused", "an administrator has turned scheduling off")
        return Outcome("done")

    def _look_again(self) -> Outcome:
        """Have the scheduler begin a cycle. PBS does that when scheduling is set to true once more."""
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
                why = f"{command}: {reason}: {getpass.getuser()} has to be among the server's operators"
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
