"""Submitting jobs so that each gets in once, whoever dies on the way.

A job comes with a key. It is submitted held; when whoever submits it has written down its id, it is
admitted. A held job neither runs nor ends by itself, so one whose id was lost with its submitter is
still there, and is found by its key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pydantic import Field

from hpctwin.rms.manager import Outcome
from hpctwin.rms.records import JobId, Label, Record

__all__ = ["Gate", "JobRequest", "SubmittedJob"]

MAX_SCRIPT = 4_000_000
"""Characters of a batch script; Slurm's own default limit is 4 MB."""


class JobRequest(Record):
    """A job for whichever cluster.

    Args:
        key: tells it from all others; a second one with the same key is the same job.
        nodes: how many whole nodes.
        walltime_s: requested limit, on a cluster of factor 1.
        name: what users see.
        user, account, partition, qos: labels, empty where there is none.
        cores, gpus, memory_gb: needs per node.
        script: the batch script.
    """

    key: JobId
    nodes: int = Field(ge=1, le=10_000_000)
    walltime_s: float = Field(gt=0, le=1e9, allow_inf_nan=False)
    name: Label = ""
    user: Label = ""
    account: Label = ""
    partition: Label = ""
    qos: Label = ""
    cores: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    gpus: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    memory_gb: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    script: str = Field(default="", max_length=MAX_SCRIPT)


@dataclass(frozen=True)
class SubmittedJob:
    """A job that was submitted with a key and has not ended.

    Args:
        id: as the resource manager writes it.
        held: whether it is held.
    """

    id: str
    held: bool


class Gate(Protocol):
    """Where jobs get into a cluster. All calls have a time limit of their own."""

    def submit(self, job: JobRequest, *, delay_s: float = 0.0) -> tuple[Outcome, str]:
        """Submit a job, held.

        Args:
            job: what it asks for here.
            delay_s: it may not start before so many seconds from now.

        Returns:
            What became of it, and its id if it is done.

        Raises:
            UnreachableError: it certainly was not sent.
        """

    def jobs(self) -> dict[str, list[SubmittedJob]]:
        """All jobs that were submitted with a key and have not ended, by key.

        Raises:
            UnreachableError: no answer.
        """

    def admit(self, job_id: str) -> Outcome:
        """Let a job go that was submitted held.

        Raises:
            UnreachableError: no answer.
        """

    def cancel(self, job_id: str) -> Outcome:
        """Take a job away.

        Raises:
            UnreachableError: no answer.
        """
