"""Leases on PBS: a file that the hook reads before PBS's scheduler starts a job.

A job's mark shows that it is the twin's: a resource that only operators can set. The file gives the
end of each lease, 0 for jobs that may go. It counts only while the heartbeat is fresh. However many
jobs are pending, renewing all leases is one file and no command.

PBS's scheduler should not try leased jobs in vain. So a limit (`WaitLimit`) also holds a job back,
from its submission or first lease until it is admitted or its lease expires. A job that must wait
has 1 of a resource, and by the server's limit no job with any of it may run. The limit saves
attempts and decides nothing: the hook refuses leased jobs in either case. It exists only while both
parts that remove it are alive: the twin and the hook's periodic part.

The twin starts a job on given vnodes with ``qrun -H``. PBS's server then asks no scheduler and does
not check the capacity: the hook does (`rooms_watched`).

Source:
    qrun(8B), pbs_resources(7B); ``req_runjob.c`` and ``node_manager.c`` of OpenPBS 23.06.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hpctwin.errors import CommandError, UnreachableError
from hpctwin.model import write_atomically
from hpctwin.rms.commands import Commands
from hpctwin.rms.manager import Outcome, Where
from hpctwin.rms.pbs.listing.jobs import WAIT, LeaseMark, array_of
from hpctwin.rms.pbs.listing.output import resources

logger = logging.getLogger(__name__)

LIFTS_WITHIN_S = 35.0
"""Age up to which the hook's periodic part counts as alive; it runs every 10 s."""
MOST_IDS = 500
"""Maximum number of jobs of one command."""


def lifting_file(heartbeat: Path) -> Path:
    """Return the file that the hook's periodic part renews, next to the heartbeat."""
    return heartbeat.with_name(heartbeat.name + ".lifts")


class WaitLimit:
    """Sets and removes the limit, holds jobs back and releases them.

    Args:
        commands: Runner of qmgr and qalter.
        heartbeat: Heartbeat of the twin; the hook's own file is next to it.
        clock: Function that returns seconds since the epoch.
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
        """Record the result of a poll.

        Args:
            counts_runners: Whether running jobs have some of the resource: the limit would count
                them, and hold back every job next to them.
        """
        self.stands = WAIT in resources(server.get("max_run_res"))
        self._counts_runners = counts_runners

    def keep(self) -> None:
        """Set or remove the limit as needed while the twin is in control."""
        wanted = not self._counts_runners and _shown(self.path, self.clock()) is not None
        if wanted == self.stands or (wanted and self._refused):
            return
        limit = f"max_run_res.{WAIT}"
        said = f"set server {limit} = [o:PBS_ALL=0]" if wanted else f"unset server {limit}"
        try:
            self.commands.run("qmgr", ["-c", said])
        except CommandError as error:
            logger.warning(
                "PBS tries every leased job in every cycle, as a limit cannot be set: %s: %s",
                said,
                error,
            )
            self._refused = True
        else:
            self.stands = wanted

    def give(self, job_ids: Sequence[str], amount: int) -> dict[str, Outcome]:
        """Give jobs an amount of the resource: 1 holds them back, 0 releases them.

        Returns:
            Outcomes of the jobs for which it failed.
        """
        missed: dict[str, Outcome] = {}
        for first in range(0, len(job_ids), MOST_IDS):
            some = job_ids[first : first + MOST_IDS]
            try:
                self.commands.run("qalter", ["-l", f"{WAIT}={amount}", *some])
            except CommandError as error:
                # It names the jobs that it could not change, and has changed the others.
                named = set(re.split(r"\s+", error.said)) & set(some)
                missed |= dict.fromkeys(named or some, Outcome("refused", str(error)))
            except UnreachableError as error:
                missed |= dict.fromkeys(some, Outcome("unknown", str(error)))
        return missed


OVERLAP_S = 1.0
"""A poll may have missed events up to this long before it began."""
FIRST_S = 20.0
"""Time after which PBS may start a job without a decision."""
AGAIN_S = 10.0
"""Pause between two attempts to release jobs whose leases have expired."""
COUNTED = ("ncpus", "mem", "ngpus")
"""PBS's own resources that vnodes have and jobs use up."""
ADMITTED_S = 10.0
"""Time for an array's jobs to start after one was admitted, before a new lease."""


def leases_file(heartbeat: Path) -> Path:
    """Return the file that the hook reads for leases, next to the heartbeat."""
    return heartbeat.with_name(heartbeat.name + ".leases")


class Leasing:
    """Gives and ends leases.

    Of an array, PBS's scheduler tries only the first pending job. So the jobs of an array are
    leased and admitted together.

    Args:
        path: Path of the file; None for no leases.
        may_look: Function that checks whether a scheduling cycle may be requested; it runs while
            jobs are released.
        look_again: Function that has PBS's scheduler look at all jobs.
        limit: Limit by which it skips jobs that are held back; None without one.
        clock: Function that returns seconds since the epoch.
    """

    def __init__(
        self,
        path: Path | None,
        may_look: Callable[[], Outcome],
        look_again: Callable[[], Outcome],
        limit: WaitLimit | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self.may_look = may_look
        self.look_again = look_again
        self.limit = limit
        self.clock = clock
        self._lock = threading.Lock()
        self._marks: dict[str, LeaseMark] = {}
        self._left: dict[str, bool] = {}
        self._since: list[tuple[float, str, LeaseMark, bool]] = []
        self._until: dict[str, float] = {}
        self._admitted: dict[str, float] = {}
        self._kept: set[str] = set()
        self._given: dict[str, tuple[float, bool]] = {}
        self._looked_s = 0.0
        self._first_seen: dict[str, float] = {}
        self._again_s = 0.0
        self._before: dict[str, float] = {}
        self._rooms: tuple[str, ...] = ()

    def looked(
        self,
        marks: Mapping[str, LeaseMark],
        began_s: float,
        left: Iterable[str] = (),
        kept: Collection[str] = (),
    ) -> None:
        """Record the result of a poll; later reports still count.

        Args:
            left: Pending jobs with the hook's mark that are left to PBS.
            kept: Those of them that PBS's scheduler skips; arrays as one.
        """
        with self._lock:
            self._left = {whole: whole in kept for whole in map(array_of, left)}
            self._since = [one for one in self._since if one[0] >= began_s - OVERLAP_S]
            self._marks = dict(marks)
            for _, job_id, mark, is_left in self._since:
                self._take(job_id, mark, is_left)
            self._looked_s = began_s
            self._seen()

    def told(self, job_id: str, mark: LeaseMark, is_left: bool = False) -> None:
        """Record a submitted job, which is the twin's or is left to PBS."""
        with self._lock:
            self._since.append((self.clock(), job_id, mark, is_left))
            self._take(job_id, mark, is_left)
            self._seen()

    def _take(self, job_id: str, mark: LeaseMark, is_left: bool) -> None:
        if is_left:
            self._marks.pop(job_id, None)
            self._left[array_of(job_id)] = mark.kept
        else:
            self._marks[job_id] = mark

    def marks(self) -> dict[str, LeaseMark]:
        """Return the pending jobs that are the twin's, as last known."""
        with self._lock:
            return {job_id: mark for job_id, mark in self._marks.items() if not mark.free}

    def end_run_out(self) -> None:
        """Release jobs with an expired lease, without a decision, or left to PBS.

        PBS does not look by itself. A job that is left to PBS goes at once, the others every
        `AGAIN_S`.
        """
        now = self.clock()
        own = set(map(array_of, self.marks()))
        with self._lock:
            left = {whole: kept for whole, kept in self._left.items() if whole not in own}
        found = [whole for whole in left if self._until.get(whole) != 0.0]
        if now >= self._again_s:
            found += [whole for whole, kept in left.items() if kept and whole not in found]
            found += self._run_out(now)
            if found:
                self._again_s = now + AGAIN_S
        if found:
            self._let_through(found)

    def _run_out(self, now: float) -> list[str]:
        """Return the twin's jobs whose leases have expired, or that have no decision."""
        stands = self.limit is not None and self.limit.stands
        found = []
        for job_id, mark in self.marks().items():
            whole = array_of(job_id)
            since_s = self._first_seen.get(whole, now)
            until_s = self._until.get(whole, since_s + FIRST_S)
            over = 0.0 < until_s <= now or (until_s == 0.0 and stands and whole in self._kept)
            if over and not mark.held:
                found.append(job_id)
        return found

    def leases(self) -> dict[str, float]:
        """See `ResourceManager`."""
        now = self.clock()
        found = {job_id: self._until.get(array_of(job_id), 0.0) for job_id in self.marks()}
        return {job_id: until_s if until_s > now else 0.0 for job_id, until_s in found.items()}

    def lease(self, until_s: Mapping[str, float]) -> dict[str, Outcome]:
        """See `ResourceManager`."""
        outcomes, rest = self._apart(until_s)
        now = self.clock()
        self._admitted = {a: t for a, t in self._admitted.items() if t > now - ADMITTED_S}
        for job_id in list(rest):
            if array_of(job_id) in self._admitted and "[" in job_id:
                outcomes[job_id] = Outcome("done", "other jobs of its array are being started")
                rest.remove(job_id)
        # If a job cannot be held back, the hook refuses it.
        self._give(rest, 1)
        return outcomes | self._write({job_id: until_s[job_id] for job_id in rest})

    def admit(self, job_ids: Sequence[str]) -> dict[str, Outcome]:
        """See `ResourceManager`."""
        outcomes, rest = self._apart(job_ids)
        return outcomes | self._let_through(rest)

    def watch_rooms(self, consumables: Iterable[str]) -> None:
        """Have the hook refuse, from now on, every job whose vnodes lack capacity.

        Args:
            consumables: Custom resources of the site that vnodes have and jobs use up.
        """
        self._rooms = (*COUNTED, *sorted(consumables))

    def let_run(self, job_id: str) -> Outcome:
        """Have the hook allow a job that is started by force, and ask no scheduler.

        A scheduler that was asked would be faster, and would place the job where it likes.
        """
        self._before = {array_of(job_id): self._until.get(array_of(job_id), 0.0)}
        return self._write({job_id: 0.0})[job_id]

    def keep_back(self, job_id: str) -> None:
        """Lease a job again whose forced start failed: PBS would place it where it likes."""
        until_s = self.clock() + FIRST_S
        self._write({job_id: max(until_s, self._before.pop(array_of(job_id), 0.0))})

    def _let_through(self, job_ids: Sequence[str]) -> dict[str, Outcome]:
        """Release jobs, and have PBS's scheduler look at them."""
        done = self._write(dict.fromkeys(job_ids, 0.0))
        if any(outcome.result == "done" for outcome in done.values()):
            self._admitted |= dict.fromkeys(map(array_of, done), self.clock())
            with ThreadPoolExecutor(1) as side:
                may = side.submit(self.may_look)
                missed = self._give(job_ids, 0)
            done |= {i: missed[array_of(i)] for i in job_ids if array_of(i) in missed}
            looks = may.result()
            if looks.result == "done":
                looks = self.look_again()
            if looks.result != "done":
                done = dict.fromkeys(done, looks)
        return done

    def _seen(self) -> None:
        """Record since when jobs are pending, and which are held back."""
        now = self.clock()
        wholes = set(map(array_of, self._marks))
        self._first_seen = {whole: self._first_seen.get(whole, now) for whole in wholes}
        # The poll may have missed what was given since it began.
        since_s = self._looked_s - OVERLAP_S
        self._given = {
            i: one for i, one in self._given.items() if i in wholes and one[0] >= since_s
        }
        kept = {array_of(job_id) for job_id, mark in self._marks.items() if mark.kept}
        self._kept = {i for i in wholes if (self._given[i][1] if i in self._given else i in kept)}

    def _give(self, job_ids: Sequence[str], amount: int) -> dict[str, Outcome]:
        """Hold jobs back or release them; those of an array together.

        Returns:
            Outcomes of the jobs for which it failed.
        """
        if self.limit is None or not self.limit.stands:
            return {}
        wholes = dict.fromkeys(map(array_of, job_ids))
        kept = self._kept.union(whole for whole, is_kept in self._left.items() if is_kept)
        wanted = [whole for whole in wholes if (whole in kept) != bool(amount)]
        missed = self.limit.give(wanted, amount)
        with self._lock:
            now = self.clock()
            self._left |= {i: False for i in wanted if i in self._left and i not in missed}
            self._given |= {i: (now, bool(amount)) for i in wanted if i not in missed}
            self._seen()
        return missed

    def _apart(self, job_ids: Iterable[str]) -> tuple[dict[str, Outcome], list[str]]:
        """Return the outcomes of refused jobs, and the other jobs."""
        marks = self.marks()
        refused, rest = {}, []
        for job_id in job_ids:
            mark = marks.get(job_id)
            if mark is None:
                says = "it is not pending, or is not marked for the twin"
                refused[job_id] = Outcome("refused", says)
            elif mark.held:
                refused[job_id] = Outcome("refused", "the job is held")
            else:
                rest.append(job_id)
        return refused, rest

    def _write(self, changes: Mapping[str, float]) -> dict[str, Outcome]:
        """Write the file with some changes; return the outcome of each."""
        if not changes:
            return {}
        if self.path is None:
            says = "leases need manager.heartbeat; set it to a file"
            return dict.fromkeys(changes, Outcome("refused", says))
        with self._lock:
            known = set(map(array_of, self._marks)).union(self._left)
        kept = {whole: until_s for whole, until_s in self._until.items() if whole in known}
        wholes: dict[str, float] = {}
        for job_id, until_s in changes.items():
            whole = array_of(job_id)
            wholes[whole] = max(until_s, wholes.get(whole, 0.0))
        kept |= wholes
        try:
            with write_atomically(self.path) as file:
                file.write(json.dumps({"until_s": kept, "rooms": self._rooms}).encode())
        except OSError as error:
            says = f"{self.path}: {error.strerror or error}"
            return dict.fromkeys(changes, Outcome("refused", says))
        self._until = kept
        return dict.fromkeys(changes, Outcome("done"))


_OF_CHUNKS = ("ncpus", "mem", "ngpus")
_OF_TASKS = ("mpiprocs", "ompthreads")
"""Resources that describe a chunk's processes and take nothing of a vnode."""


def vnodes_text(select: str, place: str, where: Where, consumables: Collection[str]) -> str:
    """Return each chunk with its vnode, such as ``(n1:ncpus=2:mem=4gb)+(n2:ncpus=1)``.

    Args:
        select: Chunks of the job, as the server completes them.
        where: Vnodes of the job, each with the number of its tasks of each kind. Equal chunks that
            follow each other are of one kind; with ``pack`` all are one task.
        consumables: Custom resources of the site that vnodes have and jobs use up.

    Raises:
        ValueError: A chunk requests a resource that the model of the vnodes lacks, or the number of
            places is not that of the chunks.
    """
    chunks = [one for part in select.split("+") for one in _chunks(part, consumables)]
    kinds = max(len(tasks) for _, tasks in where)
    names = [name for kind in range(kinds) for name, tasks in where for _ in range(tasks[kind])]
    if "pack" in re.split(r"[:\s]+", place) and len(names) == 1:
        names *= len(chunks)
    if len(names) != len(chunks):
        raise ValueError(f"{len(chunks)} chunks are placed on {len(names)} vnodes")
    return "+".join(f"({name}{chunk})" for name, chunk in zip(names, chunks, strict=True))


def _chunks(part: str, consumables: Collection[str]) -> list[str]:
    """Return what each of several equal chunks uses up, from ``2:ncpus=8:mem=4gb``."""
    first, *others = part.strip().split(":")
    count, pairs = (int(first), others) if first.isdecimal() else (1, [first, *others])
    asked = dict(pair.partition("=")[::2] for pair in pairs)
    strange = asked.keys() - {*_OF_CHUNKS, *_OF_TASKS, *consumables}
    if strange:
        raise ValueError(f"chunks request {', '.join(sorted(strange))}")
    asked = {"ncpus": asked.get("mpiprocs", "1"), **asked}
    used = (f":{name}={said}" for name, said in asked.items() if name not in _OF_TASKS)
    return ["".join(used)] * count


def rooms_watched(heartbeat: Path | None) -> bool:
    """Return whether the hook refuses jobs that do not fit; its periodic part says so."""
    shown = None if heartbeat is None else _shown(lifting_file(heartbeat), time.time())
    return shown is not None and shown.get("rooms") is True


def _shown(path: Path, now_s: float) -> dict[str, Any] | None:
    """Return what the hook's periodic part wrote; None if it is not alive."""
    try:
        shown: dict[str, Any] = json.loads(path.read_bytes())
        return shown if abs(now_s - shown["time_s"]) < LIFTS_WITHIN_S else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
