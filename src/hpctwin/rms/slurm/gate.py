"""Submitting jobs to Slurm: the key stands in the comment."""

from __future__ import annotations

import math
import os
import pwd
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from hpctwin.errors import CommandError, ConfigError, FormatError, UnreachableError
from hpctwin.rms.commands import Commands
from hpctwin.rms.gate import CommandGate, JobRequest, ListedJob
from hpctwin.rms.mark import Mark
from hpctwin.rms.slurm.listing.listing import rows_of
from hpctwin.rms.slurm.listing.values import number, said, whole, words

__all__ = ["SlurmGate"]

_ENDED = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "REVOKED", "TIMEOUT",
}  # fmt: skip


class SlurmGate(CommandGate):
    """See `CommandGate`; the owner of the jobs is ours, or the user that ``--uid`` among the options names.

    Args:
        commands: Slurm's.
        mark: what is written into comments.
        options: further options of ``sbatch``, such as ``--chdir=/scratch``.
        changed: called when a job was submitted or admitted: there will be news of it.

    Raises:
        ConfigError: there is no such user.
    """

    manager = "Slurm"
    submitter = "sbatch"
    admitter = ("scontrol", "release")
    canceller = ("scancel",)
    id = re.compile(r"[1-9]\d{0,11}")
    lost = re.compile(r"timed out|took longer|socket|communication", re.I)

    def __init__(
        self,
        commands: Commands,
        mark: Mark,
        options: Sequence[str] = (),
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(commands, mark, _owner(options), options, changed)

    def _listed(self) -> Iterator[ListedJob]:
        try:
            rows = rows_of(self.commands.run("squeue", ["-a", "--json", "-u", str(self.owner)]))
        except (CommandError, FormatError) as error:
            raise UnreachableError(f"Slurm: {error}") from error
        for row in rows:
            states = words(row.get("job_state"))
            if not states & _ENDED:
                # A held job has priority 0.
                held = "PENDING" in states and number(row.get("priority")) == 0
                owner = number(row.get("user_id"))
                yield ListedJob(
                    said(row.get("comment")), owner, str(whole(row.get("job_id"))), held
                )

    def _asked(self, job: JobRequest, delay_s: float) -> list[str]:
        asked = {
            "nodes": str(job.nodes),
            "time": str(math.ceil(job.walltime_s / 60)),
            "job-name": job.name or job.key,
            "partition": job.partition,
            "account": job.account,
            "qos": job.qos,
            "begin": f"now+{math.ceil(delay_s)}seconds" if delay_s > 0 else "",
            "mincpus": str(math.ceil(job.cores)) if job.cores else "",
            "gpus-per-node": str(math.ceil(job.gpus)) if job.gpus else "",
            "mem": f"{math.ceil(1024 * job.memory_gb)}M" if job.memory_gb else "",
            "comment": self.mark.of(job.key),
        }
        options = [f"--{name}={value}" for name, value in asked.items() if value]
        return ["--parsable", "--hold", *options]


def _owner(options: Sequence[str]) -> int:
    """Whose jobs ``sbatch`` submits: ours, or of the user that its option ``--uid`` names.

    Raises:
        ConfigError: there is no such user.
    """
    said = [*options, ""]
    for option, following in pairwise(said):
        name, equals, value = option.partition("=")
        if name != "--uid":
            continue
        user = value if equals else following
        try:
            return int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid
        except KeyError as error:
            raise ConfigError(f"options: --uid {user}: there is no such user") from error
    return os.getuid()
