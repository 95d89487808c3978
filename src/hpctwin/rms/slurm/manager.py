"""Slurm as a resource manager of the twin, and news in the lines of its event script."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpctwin.errors import CommandError, UnreachableError
from hpctwin.model.text import count_text, expand
from hpctwin.rms.commands import Commands
from hpctwin.rms.gate import beat
from hpctwin.rms.manager import Outcome, PlainManager, Priorities, Report, Way
from hpctwin.rms.records.changes import (
    UNREADABLE,
    Doubts,
    End,
    JobBegan,
    JobGone,
    Look,
    News,
    read_line,
    read_time_s,
)
from hpctwin.rms.records.records import Snapshot
from hpctwin.rms.site import Sleeping
from hpctwin.rms.slurm.begins import Begins
from hpctwin.rms.slurm.listing.jobs import MARK, Mine, targets, tasks_of
from hpctwin.rms.slurm.listing.listing import Listing, rows_of
from hpctwin.rms.slurm.listing.parse import Found, cluster_snapshot, settings, start_times
from hpctwin.rms.slurm.listing.values import moment

logger = logging.getLogger(__name__)

HIGHEST_PRIORITY = 4_294_967_294
PRIORITY_STEP = 10.0
"""Least useful step of priorities.

Slurm shows 1 for all priorities below it, so a job raised by less might not move.
"""
RULES_S = 10.0
"""Minimum age for a new query of partitions and reservations.

It is also the delay after which a site's changes are seen.
"""
SELDOM_S = 60.0
"""Minimum age for a new query of settings and of preempting QOS."""
DAY_S = 86_400.0
CLOCK_SLACK_S = 2.0
"""Difference up to which clocks are equal.

The controller reports whole seconds, and late.
"""
MOST_AT_ONCE = 1000
"""Jobs changed by one command: their numbers must fit into one argument."""
_ID = re.compile(r"[1-9]\d{0,11}(_\d{1,7})?")
_WHICH = re.compile(r"^(ClusterName|SlurmctldHost\[0\]|SlurmctldPort)\s*=\s*(\S+)", re.M)
_SAID = (re.compile(r"(\d+(?:_[\d,-]+)?): (.+)"), re.compile(r"(.+) for job (\S+)"))


class SlurmManager(PlainManager):
    """Controls Slurm through its commands.

    The submit rule marks the twin's jobs in the admin comment, which users cannot write. Only these
    jobs are leased and admitted; all others are mirrored and left alone.

    Args:
        cluster: Name for events and snapshots.
        folder: Folder of ``squeue``, ``sinfo`` and ``scontrol``; if empty, the path is searched.
        conf: ``SLURM_CONF``, if it is not the default.
        timeout_s: Time limit of each command, in seconds.
        heartbeat_file: File that the submit rule reads.
        longest_lease_s: Longest lease that the twin gives, in seconds.
        first_lease_s: Length of the lease that the submit rule gives, in seconds.
        sleeping: Names of nodes, all if empty, and how they are switched off and on.
    """

    priorities = Priorities(HIGHEST_PRIORITY, PRIORITY_STEP)

    def __init__(
        self,
        cluster: str,
        *,
        folder: str = "",
        conf: Path | None = None,
        timeout_s: float = 10.0,
        heartbeat_file: Path | None = None,
        longest_lease_s: float = 600.0,
        first_lease_s: float = 20.0,
        sleeping: Sequence[tuple[str, Sleeping]] = (),
    ) -> None:
        super().__init__(cluster)
        # Times without a zone are UTC; lists of tasks are not cut off.
        environment = {"TZ": "UTC", "SLURM_BITSTR_LEN": "0"}
        if conf is not None:
            environment["SLURM_CONF"] = str(conf)
        self.commands = Commands(folder, timeout_s=timeout_s, environment=environment)
        self.heartbeat_file = heartbeat_file
        self.found: Found | None = None
        self.begins = Begins(time.time(), longest_lease_s, first_lease_s)
        self._sleeping = [(frozenset(expand(names)), how) for names, how in sleeping]
        self._ahead_s = 0.0
        self._config: dict[str, str] = {}
        self._config_s = 0.0
        self._told: set[str] = set()
        self.doubts = Doubts()
        self._old = False
        self._listing = Listing(self.commands.run)

    def ways(self) -> frozenset[Way]:
        """Return lease and priority; Slurm refuses what the user's rights do not allow."""
        return frozenset({"lease", "priority"})

    def report(self) -> Report:
        """See `ResourceManager`."""
        if self.found is None:
            return Report(self.commands.calls_per_minute())
        return Report(
            self.commands.calls_per_minute(),
            tuple(self.found.notes),
            partitions=tuple(self.found.idle),
            left={job_id: one.left for job_id, one in self.found.left.items()},
        )

    def now_s(self) -> float:
        """Return the controller's time, in seconds since the epoch."""
        return time.time() + self._ahead_s

    def own_estimates(self) -> dict[str, float]:
        """Return the backfill scheduler's plan from ``squeue --start``, by job id.

        Times are in seconds since the epoch.
        """
        try:
            said = self.commands.run("squeue", ["--start", "-h", "-o", "%i %S"])
        except CommandError as error:
            raise UnreachableError(f"Slurm: {error}") from error
        return start_times(said)

    def snapshot(self) -> Snapshot:
        """Query jobs and nodes; partitions and reservations at most every 10 s."""
        try:
            about = self._settings()
            now_s = self.now_s()
            seldom = self.commands.run_at_times
            partitions = seldom("scontrol", ["show", "partition", "-o"], RULES_S)
            reservations = seldom("scontrol", ["show", "reservation", "-o"], RULES_S)
            nodes = self._nodes()
            jobs, unread = self._jobs()
            preempt = about.get("PreemptType", "")
            qos = self._preempting_qos() if preempt == "preempt/qos" else b""
        except CommandError as error:
            raise UnreachableError(f"Slurm: {error}") from error
        select = about.get("SelectType", "")
        parameters = about.get("SelectTypeParameters", "")
        found = cluster_snapshot(
            jobs, nodes, reservations, partitions, now_s, select, preempt, qos, parameters,
            self.doubts.lasting(), self._sleeps, () if self.found is None else self.found.features,
        )  # fmt: skip
        self.doubts.seen(found.unequal, now_s)
        if unread:
            found.notes.append(
                f"partially read: {count_text(unread, 'pending job')}; the next queries read the rest"
            )
        if self._ahead_s:
            found.notes.append(
                f"the controller's clock is {abs(self._ahead_s):.0f} s "
                f"{'ahead of' if self._ahead_s > 0 else 'behind'} this host's clock"
            )
        for note in found.notes:
            if note not in self._told:
                logger.warning("Slurm: %s", note)
        self._told = set(found.notes)
        asked = self.begins.seen(found.mine, now_s, found.left)
        found.snapshot = found.snapshot.model_copy(
            update={
                "cluster": self.cluster,
                "jobs": tuple(
                    job.model_copy(
                        update={
                            "spec": job.spec.model_copy(update={"not_before_s": asked[job.spec.id]})
                        }
                    )
                    if job.spec.id in asked
                    else job
                    for job in found.snapshot.jobs
                ),
            }
        )
        self.found = found
        return found.snapshot

    def _sleeps(self, name: str) -> Sleeping | None:
        """Return how a node is switched off and on."""
        return next((how for names, how in self._sleeping if not names or name in names), None)

    def _preempting_qos(self) -> bytes | None:
        """Return sacctmgr's output on QOS; None if it does not answer."""
        try:
            return self.commands.run_at_times(
                "sacctmgr", ["-nP", "show", "qos", "format=Name,Preempt"], SELDOM_S
            )
        except CommandError:
            return None

    def leases(self) -> Mapping[str, float]:
        """See `ResourceManager`."""
        return self.begins.leases

    def lease(self, until_s: Mapping[str, float]) -> dict[str, Outcome]:
        """Run ``scontrol update JobId=… StartTime=…``, once for jobs with the same time."""
        outcomes: dict[str, Outcome] = {}
        together: dict[int, list[str]] = {}
        mine = {} if self.found is None else self.found.mine
        for job_id, asked_s in until_s.items():
            if job_id not in mine:
                outcomes[job_id] = Outcome(
                    "refused", f"job {job_id} does not exist or is not controlled by the twin"
                )
                continue
            latest_s, now_s = mine[job_id].latest_s, self.now_s()
            end_s = int(min(max(asked_s, self.begins.asked_s(job_id)), latest_s))
            if end_s <= now_s:
                late = latest_s > now_s
                why = "the lease has expired" if late else "the job would miss its deadline"
                outcomes[job_id] = Outcome("refused", f"job {job_id}: {why}")
                continue
            together.setdefault(end_s, []).append(job_id)
        for end_s, job_ids in together.items():
            said = self._begin(job_ids, mine, _text(end_s), rest=True)
            for result in ("done", "unknown"):
                some = {i: float(end_s) for i, one in said.items() if one.result == result}
                self.begins.given(some, sure=result == "done")
            outcomes |= said
        return outcomes

    def admit(self, job_ids: Sequence[str]) -> dict[str, Outcome]:
        """Run ``scontrol update JobId=… StartTime=…`` with now or the requested time."""
        outcomes: dict[str, Outcome] = {}
        now_s = self.now_s()
        due: list[str] = []
        mine = {} if self.found is None else self.found.mine
        for job_id in job_ids:
            if job_id not in mine:
                outcomes[job_id] = Outcome(
                    "refused", f"job {job_id} does not exist or is not controlled by the twin"
                )
            elif self.begins.asked_s(job_id) > now_s + 1:
                outcomes[job_id] = Outcome("refused", f"job {job_id} may not start yet")
            else:
                due.append(job_id)
        said = self._begin(due, mine, "now", rest=len(due) == len(mine))
        self.begins.given({i: 0.0 for i, one in said.items() if one.result == "done"})
        return outcomes | said

    def set_priority(self, job_id: str, priority: float) -> Outcome:
        """Bring a pending job that is not held to a priority, by its nice value.

        A priority set directly would no longer grow with the job's age. This works only under
        ``priority/multifactor``: under ``priority/basic`` a new nice value releases a held job.
        """
        if not _ID.fullmatch(job_id):
            return Outcome("refused", f"{job_id!r} is not a job number of Slurm")
        if not 1 <= priority <= HIGHEST_PRIORITY:
            says = f"priority is {priority:g}, expected 1 to {HIGHEST_PRIORITY}"
            return Outcome("refused", says)
        if self._settings().get("PriorityType") != "priority/multifactor":
            return Outcome("refused", "PriorityType of Slurm must be priority/multifactor")
        if self.found is None or job_id not in self.found.nice:
            self.snapshot()
        assert self.found is not None
        if job_id not in self.found.nice:
            return Outcome(
                "refused", f"job {job_id} is not pending, is held, or is not controlled by the twin"
            )
        now = next(j.spec.priority for j in self.found.snapshot.jobs if j.spec.id == job_id)
        nice = round(self.found.nice[job_id] + now - priority)
        return self._update([job_id], f"Nice={nice}")

    def heartbeat(self, seq: int, *, starts_at_once: bool = False) -> None:
        """Renew the file that the submit rule reads, with the twin's partitions.

        It also ends leases of jobs left to Slurm, and saves the begin times that users requested.
        """
        found = self.found
        if self.heartbeat_file is not None:
            partitions = {} if found is None else found.idle
            if not starts_at_once:
                partitions = {n: one._replace(nodes=0, cpus=0) for n, one in partitions.items()}
            looked_s = 0.0 if found is None else found.snapshot.time_s
            preempting = {} if found is None else dict.fromkeys(sorted(found.preempting_qos), 1)
            more = {
                "looked_s": int(looked_s),
                "partitions": partitions,
                "preempting_qos": preempting,
            }
            beat(self.heartbeat_file, seq, self.now_s(), more)
        self._end_leases()
        self._note_wishes()

    def translator(self) -> SlurmNews:
        """See `Hooked`."""
        return SlurmNews(self.wished, self.names)

    def identity(self) -> str:
        """See `Identified`."""
        try:
            said = self.commands.run_at_times("scontrol", ["show", "config"], DAY_S)
        except CommandError:
            return f"slurm {self.cluster}"
        found = dict(_WHICH.findall(said.decode(errors="replace")))
        which = " ".join(f"{key}={found[key]}" for key in sorted(found))
        return f"slurm {which or self.cluster}"

    def names(self) -> Mapping[str, str]:
        """Return the ids of jobs by Slurm's own number, if the two differ."""
        return {} if self.found is None else self.found.names

    def wished(self, job_id: str, begin_s: float) -> None:
        """Record that a user changed the begin time of a job, as the submit rule reports."""
        self.begins.wished(self.names().get(job_id, job_id), begin_s)

    def _begin(
        self, job_ids: Sequence[str], mine: Mapping[str, Mine], when: str, *, rest: bool
    ) -> dict[str, Outcome]:
        """Set the begin time of jobs.

        Args:
            job_ids: Jobs, all in ``mine``, which a concurrent poll does not change.
            rest: Whether to include the tasks of arrays that the snapshot does not list.
        """
        outcomes = {}
        for first in range(0, len(job_ids), MOST_AT_ONCE):
            some = job_ids[first : first + MOST_AT_ONCE]
            outcome = self._update(targets(some, mine, rest=rest), f"StartTime={when}")
            refused = _refused(outcome.reason) if outcome.result == "refused" else {}
            for job_id in some:
                why = next((refused[part] for part in mine[job_id].parts if part in refused), None)
                if outcome.result != "refused":
                    outcomes[job_id] = outcome
                elif why is None and refused:
                    outcomes[job_id] = Outcome("done")
                else:
                    outcomes[job_id] = Outcome("refused", why or outcome.reason)
        return outcomes

    def _end_leases(self) -> None:
        """End the leases of jobs left to Slurm; the submit rule cannot know each of them."""
        left = {} if self.found is None else self.found.left
        together: dict[str, list[str]] = {}
        for job_id, asked_s in self.begins.to_end.items():
            if job_id in left:
                when = _text(asked_s) if asked_s > self.now_s() else "now"
                together.setdefault(when, []).append(job_id)
        self.begins.to_end = {}
        for when, job_ids in together.items():
            self._begin(job_ids, left, when, rest=True)

    def _note_wishes(self) -> None:
        """Save begin times requested after submission, where users cannot write."""
        for job_id, (one, asked_s) in self.begins.to_note().items():
            mark = f"{MARK}:{asked_s:.0f}" if asked_s else MARK
            outcome = self._update(one.parts, f"AdminComment={mark}")
            if outcome.result != "unknown":
                self.begins.noted(job_id, asked_s)

    def _update(self, names: Sequence[str], change: str) -> Outcome:
        """Run ``scontrol update`` of jobs.

        The outcome is ``refused``, with the whole output, if one of them is refused.
        """
        try:
            said = self.commands.run("scontrol", ["update", f"JobId={','.join(names)}", change])
        except CommandError as error:
            return Outcome("refused", error.said or str(error))
        except UnreachableError as error:
            return Outcome("unknown", str(error))
        if said.strip():
            # It prints nothing on success.
            return Outcome("unknown", f"scontrol printed {said[:100].decode(errors='replace')!r}")
        return Outcome("done")

    def _settings(self) -> dict[str, str]:
        """Return Slurm's settings; also update the offset of its clock."""
        began_s = time.time()
        if began_s - self._config_s < SELDOM_S:
            return self._config
        try:
            found = settings(self.commands.run("scontrol", ["show", "config"]))
        except CommandError as error:
            raise UnreachableError(f"Slurm: {error}") from error
        try:
            ahead_s = moment(found.get("as_of", "")) + 0.5 - (began_s + time.time()) / 2
        except ValueError:
            ahead_s = 0.0
        self._ahead_s = ahead_s if abs(ahead_s) > CLOCK_SLACK_S else 0.0
        self._config, self._config_s = found, began_s
        return found

    def _jobs(self) -> tuple[Sequence[dict[str, Any]], int]:
        """Return the jobs, and how many of them are not read whole yet."""
        if self._old:
            return rows_of(self.commands.run("squeue", ["--json"])), 0
        return self._listing.look()

    def _nodes(self) -> bytes:
        """Return the nodes one by one: from sinfo in 22.05, from scontrol since."""
        if not self._old:
            try:
                return self.commands.run("scontrol", ["show", "nodes", "--json"])
            except CommandError:
                nodes = self.commands.run("sinfo", ["--json"])
                self._old = True
                return nodes
        return self.commands.run("sinfo", ["--json"])


def _text(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _refused(said: str) -> dict[str, str]:
    """Return the jobs whose update was refused, and why; for the rest it succeeded.

    This is only for reports: the next poll shows the actual state.
    """
    found: dict[str, str] = {}
    for line in said.splitlines():
        about, other = (pattern.fullmatch(line.strip()) for pattern in _SAID)
        if about is not None and about[2] != "No error":
            base, _, tasks = about[1].partition("_")
            names = [f"{base}_{task}" for task in _numbers(tasks)] if tasks else [base]
            found |= dict.fromkeys(names, about[2])
        elif other is not None:
            found[other[2]] = other[1]
    return found


def _numbers(text: str) -> list[int]:
    try:
        return tasks_of(text)
    except ValueError:
        return []


_ENDS = {
    "COMPLETED": End(),
    "FAILED": End("exit", 1),
    "OUT_OF_MEMORY": End("exit", 1),
    "CANCELLED": End("cancelled"),
    "TIMEOUT": End("walltime"),
    "DEADLINE": End("cancelled"),
}
"""Job states after which a job is gone for good; after others it may be requeued."""


class SlurmNews:
    """Translates lines of event script and submit rule; counts unreadable ones.

    Args:
        wished: Function called with job and time, in seconds since the epoch, when a user requests
            another begin time.
        names: Function that returns the ids of jobs by Slurm's own number, if the two differ.
    """

    def __init__(
        self,
        wished: Callable[[str, float], None] = lambda job_id, begin_s: None,
        names: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.wished = wished
        self.names = names
        self.unreadable = 0

    def __call__(self, line: str) -> list[News]:
        """Return the events in a line; none if it cannot be read."""
        try:
            time_s, about = read_line(line)
            kind, job_id = str(about["kind"]), str(about.get("job", ""))
            if kind == "submit" or not re.fullmatch(r"[1-9]\d{0,11}(_\d{1,7})?", job_id):
                return [Look(time_s)]
            if kind == "begin_time":
                self.wished(job_id, read_time_s(about, "at"))
                return [Look(time_s)]
            if job_id in (names := self.names()):
                if "_" not in names[job_id]:
                    # A part of a heterogeneous job.
                    return [Look(time_s)]
                job_id = names[job_id]
            if kind == "begin":
                return [JobBegan(time_s, job_id, tuple(expand(str(about.get("nodes", "")))))]
            end = _ENDS.get(str(about.get("state", "")))
        except UNREADABLE as error:
            self.unreadable += 1
            if self.unreadable == 1:
                logger.warning("a line of Slurm's event script is unreadable: %s", error)
            return []
        if kind == "end" and end is not None:
            return [JobGone(time_s, job_id, end)]
        return [Look(time_s)]
