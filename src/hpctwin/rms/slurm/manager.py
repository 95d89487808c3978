"""Slurm as a resource manager of the twin."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpctwin.rms.commands import Commands, Failed
from hpctwin.rms.heartbeat import beat
from hpctwin.rms.manager import Outcome, Priorities, Report, UnreachableError, Way
from hpctwin.rms.records import Snapshot
from hpctwin.rms.slurm.parse import Found, cluster_snapshot, start_times

__all__ = ["SlurmManager"]

logger = logging.getLogger(__name__)

HIGHEST_PRIORITY = 4_294_967_294
PRIORITY_STEP = 10.0
"""Slurm shows 1 for all priorities below it, so a job raised by less might not move."""
SELDOM_S = 60.0
"""Partitions and reservations are asked for so often at most."""
_ID = re.compile(r"[1-9]\d{0,11}")


class SlurmManager:
    """Talks to a Slurm controller through its commands.

    Only jobs that the submit rule holds for the twin (their admin comment says so) are started, held or
    released; all others are mirrored and left alone. Starting a job means releasing it: Slurm
    allocates the nodes at its next pass.

    Args:
        cluster: name for events and snapshots.
        folder: where ``squeue``, ``sinfo`` and ``scontrol`` are; found on the path if empty.
        conf: ``SLURM_CONF``, where it is not the default.
        timeout_s: of each command.
        heartbeat_file: what the dead-man's handle looks at.
    """

    def __init__(
        self,
        cluster: str,
        *,
        folder: str = "",
        conf: Path | None = None,
        timeout_s: float = 10.0,
        heartbeat_file: Path | None = None,
    ) -> None:
        self.cluster = cluster
        environment = {} if conf is None else {"SLURM_CONF": str(conf)}
        self.commands = Commands(folder, timeout_s=timeout_s, environment=environment)
        self.heartbeat_file = heartbeat_file
        self.found: Found | None = None
        self._in_charge = False
        self._told: set[str] = set()
        self._old = False

    @property
    def clock_speed(self) -> float:
        """Real time."""
        return 1.0

    @property
    def priorities(self) -> Priorities:
        """See `ResourceManager`."""
        return Priorities(HIGHEST_PRIORITY, PRIORITY_STEP)

    def ways(self) -> frozenset[Way]:
        """See `ResourceManager`."""
        return frozenset({"start", "priority"})

    def report(self) -> Report:
        """See `ResourceManager`."""
        notes = () if self.found is None else tuple(self.found.notes)
        return Report(self.commands.calls_per_minute(), notes)

    def own_estimates(self) -> dict[str, float]:
        """Of ``squeue --start``: what the backfill scheduler has planned."""
        try:
            said = self.commands.run("squeue", ["--start", "-h", "-o", "%A %S"])
        except Failed as error:
            raise UnreachableError(f"Slurm: {error}") from error
        return start_times(said)

    def snapshot(self) -> Snapshot:
        """Jobs and nodes in one query each; partitions and reservations once a minute at most.

        Raises:
            UnreachableError: the controller does not answer, or not in time.
            SlurmFormatError: it answers in a form that is not known.
        """
        try:
            now_s = time.time()
            seldom = self.commands.run_at_times
            partitions = seldom("scontrol", ["show", "partition", "-o"], SELDOM_S)
            reservations = seldom("scontrol", ["show", "reservation", "-o"], SELDOM_S)
            nodes = self._nodes()
            jobs = self.commands.run("squeue", ["--json"])
        except Failed as error:
            raise UnreachableError(f"Slurm: {error}") from error
        found = cluster_snapshot(jobs, nodes, reservations, partitions, now_s)
        for note in found.notes:
            if note not in self._told:
                logger.warning("Slurm: %s", note)
        self._told = set(found.notes)
        found.snapshot = found.snapshot.model_copy(
            update={"cluster": self.cluster, "own_scheduling": not self._in_charge}
        )
        self.found = found
        return found.snapshot

    def leases(self) -> Mapping[str, float]:
        """None yet."""
        return {}

    def lease(self, until_s: Mapping[str, float]) -> dict[str, Outcome]:
        """None yet."""
        return {job_id: Outcome("refused", "not a way to act here") for job_id in until_s}

    def admit(self, job_ids: Sequence[str]) -> dict[str, Outcome]:
        """None yet."""
        return {job_id: Outcome("refused", "not a way to act here") for job_id in job_ids}

    def start(self, job_id: str) -> Outcome:
        """Release a job that is held for the twin."""
        return self._change(job_id, ["release", job_id])

    def hold(self, job_id: str) -> Outcome:
        """Hold a job again that the twin had released and that has not started."""
        return self._change(job_id, ["hold", job_id])

    def release(self, job_id: str) -> Outcome:
        """The same as `start`."""
        return self.start(job_id)

    def set_priority(self, job_id: str, priority: float) -> Outcome:
        """Bring a waiting job that is not held to a priority, by its nice value.

        A priority set outright would no longer grow with the job's age. Only under
        ``priority/multifactor``: under ``priority/basic`` a new nice value releases a held job.
        """
        if not _ID.fullmatch(job_id):
            return Outcome("refused", f"{job_id!r} is not a job number of Slurm")
        if not 1 <= priority <= HIGHEST_PRIORITY:
            says = f"priority {priority:g} is not within Slurm's 1 to {HIGHEST_PRIORITY}"
            return Outcome("refused", says)
        if not self._multifactor():
            return Outcome("refused", "Slurm's PriorityType is not priority/multifactor")
        if self.found is None or job_id not in self.found.nice:
            self.snapshot()
        assert self.found is not None
        if job_id not in self.found.nice:
            return Outcome("refused", f"job {job_id} does not wait, or is held or left alone")
        now = next(j.spec.priority for j in self.found.snapshot.jobs if j.spec.id == job_id)
        nice = round(self.found.nice[job_id] + now - priority)
        return self._outcome(["update", f"JobId={job_id}", f"Nice={nice}"])

    def take_scheduling(self) -> Outcome:
        """The twin decides from now on when the jobs held for it are released."""
        self._in_charge = True
        self.heartbeat(0)
        return Outcome("done")

    def give_scheduling(self) -> Outcome:
        """Release all jobs held for the twin: Slurm schedules them by itself."""
        self._in_charge = False
        self.snapshot()
        assert self.found is not None
        failed = []
        for job_id in sorted(self.found.owned, key=int):
            outcome = self.start(job_id)
            if outcome.result != "done":
                failed.append(f"{job_id}: {outcome.reason}")
        return Outcome("refused", "; ".join(failed[:5])) if failed else Outcome("done")

    def heartbeat(self, seq: int) -> None:
        """Renew the file that the dead-man's handle looks at."""
        if self.heartbeat_file is not None:
            beat(self.heartbeat_file, seq)

    def close(self) -> None:
        """Nothing is held open."""

    def _change(self, job_id: str, arguments: list[str]) -> Outcome:
        if not _ID.fullmatch(job_id):
            return Outcome("refused", f"{job_id!r} is not a job number of Slurm")
        if self.found is None or job_id not in self.found.owned:
            self.snapshot()
        assert self.found is not None
        if job_id not in self.found.owned:
            return Outcome("refused", f"job {job_id} is not held for the twin")
        return self._outcome(arguments)

    def _outcome(self, arguments: list[str]) -> Outcome:
        try:
            self.commands.run("scontrol", arguments)
        except Failed as error:
            return Outcome("refused", str(error))
        except UnreachableError as error:
            return Outcome("unknown", str(error))
        return Outcome("done")

    def _multifactor(self) -> bool:
        try:
            said = self.commands.run_at_times("scontrol", ["show", "config"], 60 * SELDOM_S)
        except Failed as error:
            raise UnreachableError(f"Slurm: {error}") from error
        return re.search(rb"^PriorityType\s*= priority/multifactor", said, re.M) is not None

    def _nodes(self) -> bytes:
        """Nodes one by one: by sinfo in 22.05, by scontrol since."""
        if not self._old:
            try:
                return self.commands.run("scontrol", ["show", "nodes", "--json"])
            except Failed:
                nodes = self.commands.run("sinfo", ["--json"])
                self._old = True
                return nodes
        return self.commands.run("sinfo", ["--json"])
