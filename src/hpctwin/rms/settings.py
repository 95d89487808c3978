"""Settings that all resource managers share; each kind is a class of them.

Each class says how its manager is reached, and opens it. `hpctwin.rms.managers` lists the kinds
with a name.

A probe reports what this host offers: the resource manager, its version, the user's rights, and
which ways to act would work.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Self, TypeVar

from pydantic import Field, PlainSerializer, model_validator

from hpctwin.errors import ConfigError, HpctwinError
from hpctwin.model.settings import Duration, Settings
from hpctwin.model.text import count_text
from hpctwin.model.web import without_password
from hpctwin.rms.commands import not_inherited
from hpctwin.rms.gate import Gate, Mark
from hpctwin.rms.manager import ResourceManager, Way

T = TypeVar("T")


@dataclass(frozen=True)
class Finding:
    """Result of one check.

    Args:
        what: Subject of the check.
        works: Whether it would work; None if only doing it would show that.
        says: Evidence, or what is missing.
    """

    what: str
    works: bool | None
    says: str


@dataclass
class Probe:
    """Findings about one resource manager.

    Args:
        manager: ``slurm`` or ``pbs``.
        version: Version that the manager reports; empty without an answer.
        findings: Results of the checks. A check changes nothing.
    """

    manager: str
    version: str = ""
    findings: list[Finding] = field(default_factory=list)

    def add(self, what: str, works: bool | None, says: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(what, works, says))


def is_here(folder: str, *commands: str) -> bool:
    """Return whether commands exist: in a folder, or on the path if that is empty."""
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
        f"{count_text(len(snapshot.nodes), 'node')}, {count_text(running, 'job')} running, "
        f"{len(snapshot.jobs) - running} pending; partitions: {partitions}",
    )
    for note in manager.report().notes[:20]:
        result.add("not modeled", False, note)


def tried(ask: Callable[[], T], result: Probe, what: str) -> T | None:
    """Return an answer; without one, add a finding and return None."""
    try:
        return ask()
    except HpctwinError as error:
        result.add(what, False, str(error))
    return None


RedisUrl = Annotated[str, PlainSerializer(without_password)]
"""A URL whose password stays in the process: settings are written without it."""


class ManagerSettings(Settings):
    """A resource manager, and how it is reached.

    Args:
        kind: Name of the kind, or ``FILE.py:CLASS`` for a custom class of these settings.
    """

    ways: ClassVar[tuple[Way, ...]] = ("start", "lease", "priority")
    """Ways to act that the manager may support; the first is the default."""

    kind: str

    def open(self, *, longest_lease_s: float = 600.0) -> ResourceManager:
        """Open the manager.

        Args:
            longest_lease_s: Longest lease that the twin gives, in seconds.

        Raises:
            UnreachableError: The manager does not answer.
            ConfigError: The class does not define how to open it.
        """
        raise ConfigError(f"manager.kind {self.kind!r}: {type(self).__name__} has no method open")

    def gate(
        self,
        manager: ResourceManager,
        mark: Mark,
        options: tuple[str, ...],
        changed: Callable[[], None],
    ) -> Gate:
        """Return the gate through which a facility's jobs are submitted.

        Args:
            manager: Manager that `open` returned.
            mark: Marks of the facility's queue.
            options: Further options of the submitting command.
            changed: Function called after a job was submitted or admitted.

        Raises:
            ConfigError: This kind accepts no such jobs.
        """
        raise ConfigError(f"manager.kind {self.kind!r}: this kind accepts no forwarded jobs")

    @classmethod
    def probe(cls, folder: str = "", conf: Path | None = None) -> Probe | None:
        """Return what this host offers of this kind; None if nothing.

        Only commands that read are run.

        Args:
            folder: Folder of the commands; if empty, the path is searched.
            conf: Its configuration, if that is not the default.
        """
        return None

    def environment(self) -> dict[str, tuple[str, ...]]:
        """Return variables that its commands would read but do not get.

        Each key is the field that replaces its variables.
        """
        return {}

    def ignored_environment(self) -> str | None:
        """Return a message about unused variables of the environment; None without any.

        The commands get a small fixed environment, so that the twin's actions depend on its
        settings alone.
        """
        hints = [
            f"{', '.join(found)} is ignored; set manager.{field} instead"
            for field, names in self.environment().items()
            if (found := not_inherited(*names))
        ]
        return "; ".join(hints) or None

    @property
    def sign_of_life(self) -> Path | None:
        """File that shows hooks that a twin is in control; None without one."""
        return None

    @property
    def news_within_s(self) -> float:
        """Time after which a change is known, in seconds."""
        return 30.0


class HookEventSettings(Settings):
    """Place where hooks of the resource manager write events, so that changes are known at once.

    Args:
        spool: File on this host that the hooks write; an alternative to ``url``.
        url: URL of the Redis to which `hpctwin rms forward` sends the lines of such a file.
        stream: Name of the stream.
        password_env: Environment variable that holds the password.
    """

    spool: Path | None = None
    url: RedisUrl | None = Field(default=None, repr=False)
    stream: str = "hpctwin:hooks"
    password_env: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.spool is None) == (self.url is None):
            raise ValueError("give either spool (a local file) or url (Redis)")
        return self


class PolledSettings(ManagerSettings):
    """A resource manager that is polled.

    Args:
        cluster: Name for events and reports.
        timeout: Time limit of each command.
        poll_interval: Pause between two polls of the queue; 60 s spares the manager.
        min_poll_interval: Minimum pause if a change is known to have happened. The pause grows with the
            duration of a poll: polling takes at most a tenth of the time.
        heartbeat: File that is renewed while the twin is in control, for hooks to check.
        events: Source of the events that hooks write.
    """

    ways: ClassVar[tuple[Way, ...]] = ("lease", "priority")
    drifting: ClassVar[bool] = False
    """Whether priorities change by themselves over time."""

    cluster: str
    timeout: Duration = Field(default=10.0, gt=0)
    poll_interval: Duration = Field(default=60.0, gt=0)
    min_poll_interval: Duration = Field(default=1.0, gt=0)
    heartbeat: Path | None = None
    events: HookEventSettings | None = None

    @property
    def sign_of_life(self) -> Path | None:
        """See `ManagerSettings`."""
        return self.heartbeat

    @property
    def news_within_s(self) -> float:
        """See `ManagerSettings`."""
        return 2 * self.poll_interval + 30.0
