"""What the settings of all resource managers have in common; a kind of manager is a class of them.

Each says how its manager is reached, and opens it. Those that are known by a name are listed in
`hpctwin.rms.managers`.

What there is on this machine: which resource manager, its version, our rights, what would work.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Self, TypeVar

from pydantic import Field, PlainSerializer, model_validator

from hpctwin.errors import ConfigError, HpctwinError
from hpctwin.model.files.secrets import without_password
from hpctwin.model.input.settings import Duration, Settings
from hpctwin.rms.commands import not_inherited
from hpctwin.rms.gate import Gate, Mark
from hpctwin.rms.manager import ResourceManager, Way

__all__ = [
    "Finding",
    "ManagerSettings",
    "NewsSettings",
    "PolledSettings",
    "Probe",
    "RedisUrl",
    "is_here",
    "look",
    "tried",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Finding:
    """One thing that was tried.

    Args:
        what: what.
        works: whether it would; None where that cannot be told without doing it.
        says: how that is known, or what is missing.
    """

    what: str
    works: bool | None
    says: str


@dataclass
class Probe:
    """What was found of one resource manager.

    Args:
        manager: ``slurm`` or ``pbs``.
        version: as it says itself; empty where it did not answer.
        findings: what was tried. Nothing is changed by trying.
    """

    manager: str
    version: str = ""
    findings: list[Finding] = field(default_factory=list)

    def add(self, what: str, works: bool | None, says: str) -> None:
        """Note a finding."""
        self.findings.append(Finding(what, works, says))


def is_here(folder: str, *commands: str) -> bool:
    """Whether commands are there: in a folder, or on the path if that is empty."""
    return all(shutil.which(command, path=folder or None) for command in commands)


def look(manager: ResourceManager, result: Probe) -> None:
    """Read the whole state once, as the twin would."""
    snapshot = tried(manager.snapshot, result, "reading the state")
    if snapshot is None:
        return
    running = sum(job.start_s is not None for job in snapshot.jobs)
    partitions = ", ".join(p.name for p in snapshot.machine.partitions) or "none"
    result.add(
        "reading the state",
        True,
        f"{len(snapshot.nodes)} nodes, {running} jobs running, {len(snapshot.jobs) - running} waiting; "
        f"partitions: {partitions}",
    )
    for note in manager.report().notes[:20]:
        result.add("not modelled", False, note)


def tried(ask: Callable[[], T], result: Probe, what: str) -> T | None:
    """An answer; None, and a finding, where there is none."""
    try:
        return ask()
    except HpctwinError as error:
        result.add(what, False, str(error))
    return None


RedisUrl = Annotated[str, PlainSerializer(without_password)]
"""A URL whose password stays in the process: whatever writes settings down writes it without."""


class ManagerSettings(Settings):
    """A resource manager, and how it is reached.

    Args:
        kind: its name, or ``FILE.py:CLASS`` for a class of these settings of one's own.
    """

    ways: ClassVar[tuple[Way, ...]] = ("start", "lease", "priority")
    """The ways to act that it may have; the first is taken where the settings name none."""

    kind: str

    def open(self, *, longest_lease_s: float = 600.0) -> ResourceManager:
        """The manager.

        Args:
            longest_lease_s: the longest lease that the twin gives.

        Raises:
            UnreachableError: it does not answer.
            ConfigError: its class does not say how.
        """
        raise ConfigError(f"manager.kind {self.kind}: {type(self).__name__} has no method open")

    def gate(
        self,
        manager: ResourceManager,
        mark: Mark,
        options: tuple[str, ...],
        changed: Callable[[], None],
    ) -> Gate:
        """Where a facility's jobs are submitted to it.

        Args:
            manager: as `open` gave it.
            mark: of the facility's queue.
            options: further options of the submitting command.
            changed: called when a job was submitted or admitted.

        Raises:
            ConfigError: it takes none.
        """
        raise ConfigError(f"jobs cannot be placed into a resource manager of kind {self.kind}")

    @classmethod
    def probe(cls, folder: str = "", conf: Path | None = None) -> Probe | None:
        """What there is of it on this machine; None if nothing. Only commands that read are run.

        Args:
            folder: where its commands are; the path is searched if empty.
            conf: its configuration, where it is not the default.
        """
        return None

    def environment(self) -> dict[str, tuple[str, ...]]:
        """Variables that its commands would look at and are not told of, by the field that replaces them."""
        return {}

    def ignored_environment(self) -> str | None:
        """What the environment says of it and is not used, in words.

        Its commands get a small fixed environment, so that what a twin does depends on its settings alone.
        """
        hints = [
            f"{', '.join(found)} is not used: name it as manager.{field}"
            for field, names in self.environment().items()
            if (found := not_inherited(*names))
        ]
        return "; ".join(hints) or None

    @property
    def sign_of_life(self) -> Path | None:
        """The file that says to hooks that a twin is in charge; None where there is none."""
        return None

    @property
    def news_within_s(self) -> float:
        """A change is known after so long."""
        return 30.0


class NewsSettings(Settings):
    """Where hooks of the resource manager put what they notice, so that it is known at once.

    Args:
        spool: file that the hooks write on this machine; or else:
        url: of the Redis that `hpctwin rms ship` sends the lines of such a file to.
        stream: its stream.
        password_env: environment variable that holds the password.
    """

    spool: Path | None = None
    url: RedisUrl | None = Field(default=None, repr=False)
    stream: str = "hpctwin:news"
    password_env: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.spool is None) == (self.url is None):
            raise ValueError("give either spool (a file here) or url (of Redis)")
        return self


class PolledSettings(ManagerSettings):
    """A resource manager that is looked at again and again.

    Args:
        cluster: name for events and reports.
        timeout: of each command.
        poll_every: pause between two looks at the queue; 60 s spares the manager.
        poll_floor: least pause, when something is known to have changed. The pause is longer where a look
            takes long: no more than a tenth of the time is spent on looking.
        heartbeat: file that is renewed while the twin is in charge, for hooks to look at.
        news: what hooks notice.
    """

    ways: ClassVar[tuple[Way, ...]] = ("lease", "priority")
    drifting: ClassVar[bool] = False
    """Whether priorities change by themselves as time goes by."""

    cluster: str
    timeout: Duration = Field(default=10.0, gt=0)
    poll_every: Duration = Field(default=60.0, gt=0)
    poll_floor: Duration = Field(default=1.0, gt=0)
    heartbeat: Path | None = None
    news: NewsSettings | None = None

    @property
    def sign_of_life(self) -> Path | None:
        """See `ManagerSettings`."""
        return self.heartbeat

    @property
    def news_within_s(self) -> float:
        """See `ManagerSettings`."""
        return 2 * self.poll_every + 30.0
