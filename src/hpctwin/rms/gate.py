"""Submission of jobs so that each enters once, even if the submitter dies.

A job comes with a key and is submitted held. Once the submitter has written down its id, the job is
admitted. A held job neither runs nor ends by itself. So a job whose id was lost with its submitter
is still there, and its key finds it.

A placer writes a mark on its jobs. It recognizes them by it, and no other user can forge one.

An acting twin renews a heartbeat, a file for a site's submit rule.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from pydantic import Field

from hpctwin.errors import CommandError, OutputError, UnreachableError
from hpctwin.model import check_file, write_atomically
from hpctwin.rms.commands import Commands
from hpctwin.rms.manager import Outcome
from hpctwin.rms.records.records import JobId, Label, Record


def beat(
    path: Path, seq: int, time_s: float | None = None, more: Mapping[str, Any] | None = None
) -> None:
    """Write that the twin is in control.

    Args:
        seq: Number of the last event that the twin has processed.
        time_s: Current time by the resource manager's clock; by default this computer's clock.
    """
    body = {"time_s": time_s or time.time(), "seq": seq, "pid": os.getpid(), **(more or {})}
    try:
        with write_atomically(path) as file:
            file.write(json.dumps(body).encode())
    except OutputError as error:
        raise UnreachableError(f"heartbeat: {error}") from error


def why_no_beat(path: Path) -> str | None:
    """Return why a heartbeat cannot be written; None if it can."""
    try:
        check_file(path)
    except OutputError as error:
        return f"heartbeat: {error}"
    return None


_PREFIX = "hpctwin-facility"
_HEX = 32


class Mark:
    """Marks of one queue: a job's key, with proof that the queue's owner wrote it.

    Anyone can read and copy the mark of a job whose comment they see. So callers must also check the
    owner of the job that carries it.

    Args:
        secret: Secret that only the queue's owner knows.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def of(self, key: str) -> str:
        """Return the mark of the job with this key."""
        return f"{_PREFIX}:{key}:{self._proof(key)}"

    def key(self, text: object) -> str | None:
        """Return the key that a mark of this queue stands for; None for any other text."""
        if not isinstance(text, str):
            return None
        head, _, proof = text.strip().rpartition(":")
        prefix, _, key = head.partition(":")
        good = prefix == _PREFIX and hmac.compare_digest(proof.encode(), self._proof(key).encode())
        return key if good else None

    def _proof(self, key: str) -> str:
        return hmac.new(self._secret, key.encode(), hashlib.sha256).hexdigest()[:_HEX]


MAX_SCRIPT = 4_000_000
"""Longest batch script, in characters; Slurm's own default limit is 4 MB."""


class JobRequest(Record):
    """A job request for any cluster.

    Args:
        key: Unique key; a second request with the same key is the same job.
        nodes: Number of whole nodes.
        walltime_s: Requested limit on a cluster of factor 1, in seconds.
        name: Name shown to users.
        user, account, partition, qos: Labels; empty without one.
        cores, gpus, memory_gb: Needs per node.
        script: The batch script.
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
        id: Id as the resource manager writes it.
        held: Whether the job is held.
    """

    id: str
    held: bool


class Gate(Protocol):
    """Entry for jobs into a cluster. Every call has its own time limit."""

    def submit(self, job: JobRequest, *, delay_s: float = 0.0) -> tuple[Outcome, str]:
        """Submit a job, held.

        Args:
            job: Request of the job on this cluster.
            delay_s: Time from now before which the job may not start, in seconds.

        Returns:
            The outcome, and the job's id if the outcome is done.

        Raises:
            UnreachableError: The job certainly was not sent.
        """

    def jobs(self) -> dict[str, list[SubmittedJob]]:
        """Return all jobs that were submitted with a key and have not ended, by key.

        Raises:
            UnreachableError: No answer.
        """

    def admit(self, job_id: str) -> Outcome:
        """Release a job that was submitted held.

        Raises:
            UnreachableError: No answer.
        """

    def cancel(self, job_id: str) -> Outcome:
        """Cancel a job.

        Raises:
            UnreachableError: No answer.
        """


class ListedJob(NamedTuple):
    """A job of any user, as a resource manager lists it.

    Args:
        mark: Value of the field that holds marks.
        owner: Owner of the job.
        id: Id as the resource manager writes it.
        held: Whether a user holds the job.
    """

    mark: Any
    owner: Any
    id: str
    held: bool


class CommandGate(ABC):
    """Gate into a resource manager by commands; scripts are passed as files.

    Jobs run as the submitting user. Only jobs of that user count as submitted with a key. If
    another user writes a mark, made up or copied, no job is adopted or canceled because of it.

    Args:
        commands: The resource manager's commands.
        mark: Marks that identify jobs submitted with a key.
        owner: Owner of these jobs.
        options: Further options of the submitting command.
        changed: Function called after a job was submitted or admitted, because its events
            will follow.
    """

    manager: ClassVar[str]
    """Name of the resource manager, for messages."""
    submitter: ClassVar[str]
    admitter: ClassVar[tuple[str, ...]]
    canceller: ClassVar[tuple[str, ...]]
    """Commands that submit, release and cancel a job; the job's number comes last."""
    id: ClassVar[re.Pattern[str]]
    """Pattern of a job's number."""
    lost: ClassVar[re.Pattern[str]]
    """Pattern of errors that are not the manager's answer: the job may have entered."""

    def __init__(
        self,
        commands: Commands,
        mark: Mark,
        owner: Any,
        options: Sequence[str] = (),
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.commands = commands
        self.mark = mark
        self.owner = owner
        self.options = tuple(options)
        self.changed = changed

    def submit(self, job: JobRequest, *, delay_s: float = 0.0) -> tuple[Outcome, str]:
        """See `Gate`."""
        with tempfile.NamedTemporaryFile("w", suffix=".sh", encoding="utf-8") as script:
            script.write(job.script or "#!/bin/sh\n")
            script.flush()
            words = [*self._asked(job, delay_s), *self.options, script.name]
            try:
                said = self.commands.run(self.submitter, words)
            except CommandError as error:
                lost = self.lost.search(error.said) is not None
                return Outcome("unknown" if lost else "refused", str(error)), ""
            except UnreachableError as error:
                return Outcome("unknown", str(error)), ""
        job_id = said.decode(errors="replace").strip().partition(";")[0]
        if not self.id.fullmatch(job_id):
            says = f"{self.submitter} printed {job_id[:80]!r}, expected a job number"
            return Outcome("unknown", says), ""
        self.changed()
        return Outcome("done"), job_id

    def jobs(self) -> dict[str, list[SubmittedJob]]:
        """See `Gate`."""
        found: dict[str, list[SubmittedJob]] = {}
        for listed in self._listed():
            key = self.mark.key(listed.mark)
            if key is not None and listed.owner == self.owner:
                found.setdefault(key, []).append(SubmittedJob(listed.id, listed.held))
        return {key: sorted(jobs, key=_number) for key, jobs in found.items()}

    def admit(self, job_id: str) -> Outcome:
        """See `Gate`."""
        return self._do(self.admitter, job_id)

    def cancel(self, job_id: str) -> Outcome:
        """See `Gate`."""
        return self._do(self.canceller, job_id)

    @abstractmethod
    def _asked(self, job: JobRequest, delay_s: float) -> list[str]:
        """Return a job's request as options of the submitting command, held and marked."""

    @abstractmethod
    def _listed(self) -> Iterator[ListedJob]:
        """Return all jobs that have not ended.

        Raises:
            UnreachableError: No answer, or one that cannot be read.
        """

    def _do(self, command: tuple[str, ...], job_id: str) -> Outcome:
        if not self.id.fullmatch(job_id):
            return Outcome("refused", f"{job_id!r} is not a job number of {self.manager}")
        name, *words = command
        try:
            self.commands.run(name, [*words, job_id])
        except CommandError as error:
            return Outcome("refused", str(error))
        except UnreachableError as error:
            return Outcome("unknown", str(error))
        self.changed()
        return Outcome("done")


def _number(job: SubmittedJob) -> int:
    """Return the number at the start of a job's id."""
    found = re.match(r"\d+", job.id)
    return int(found[0]) if found else 0
