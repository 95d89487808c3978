"""Submitting jobs so that each gets in once, whoever dies on the way.

A job comes with a key. It is submitted held; when whoever submits it has written down its id, it is
admitted. A held job neither runs nor ends by itself, so one whose id was lost with its submitter is
still there, and is found by its key.

What a placer writes on its jobs, so that it knows them again and nobody else can write it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from pydantic import Field

from hpctwin.errors import CommandError, UnreachableError
from hpctwin.rms.commands import Commands
from hpctwin.rms.manager import Outcome
from hpctwin.rms.records.records import JobId, Label, Record

__all__ = ["CommandGate", "Gate", "JobRequest", "ListedJob", "Mark", "SubmittedJob"]

_PREFIX = "hpctwin-facility"
_HEX = 32


class Mark:
    """Marks of one queue: the job's key, and proof that it was written by who knows the queue's secret.

    A mark can be read by whoever sees the job's comment, and copied: whose job it stands on must be looked
    at too.

    Args:
        secret: known to the queue's owner only.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def of(self, key: str) -> str:
        """The mark of the job with a key."""
        return f"{_PREFIX}:{key}:{self._proof(key)}"

    def key(self, text: object) -> str | None:
        """The key that a mark of this queue stands for; None if the text is none."""
        if not isinstance(text, str):
            return None
        head, _, proof = text.strip().rpartition(":")
        prefix, _, key = head.partition(":")
        good = prefix == _PREFIX and hmac.compare_digest(proof.encode(), self._proof(key).encode())
        return key if good else None

    def _proof(self, key: str) -> str:
        return hmac.new(self._secret, key.encode(), hashlib.sha256).hexdigest()[:_HEX]


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


class ListedJob(NamedTuple):
    """A job of whoever, as a resource manager lists it.

    Args:
        mark: what stands where a mark would.
        owner: whose it is.
        id: as the resource manager writes it.
        held: whether a user holds it.
    """

    mark: Any
    owner: Any
    id: str
    held: bool


class CommandGate(ABC):
    """A gate into a resource manager that is asked by commands; scripts are handed over as files.

    Jobs run as whoever submits them. Only jobs of that user count as submitted with a key: what another
    user writes where marks are, made up or copied, adopts nothing and cancels nothing.

    Args:
        commands: the resource manager's.
        mark: what tells jobs that were submitted with a key.
        owner: whose jobs they are.
        options: further options of the submitting command.
        changed: called when a job was submitted or admitted: there will be news of it.
    """

    manager: ClassVar[str]
    """Its name, for messages."""
    submitter: ClassVar[str]
    admitter: ClassVar[tuple[str, ...]]
    canceller: ClassVar[tuple[str, ...]]
    """The commands that submit a job, let it go, and take it away; a job's number comes last."""
    id: ClassVar[re.Pattern[str]]
    """What a job's number looks like."""
    lost: ClassVar[re.Pattern[str]]
    """In an error that is not the manager's word, so that the job may have got in all the same."""

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
            says = f"{self.submitter} said {job_id[:80]!r}, not a job number"
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
        """What a job asks for, as options of the submitting command; held, and with its mark."""

    @abstractmethod
    def _listed(self) -> Iterator[ListedJob]:
        """All jobs that have not ended.

        Raises:
            UnreachableError: no answer, or one that cannot be read.
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
    """The number that a job's id begins with."""
    found = re.match(r"\d+", job.id)
    return int(found[0]) if found else 0
