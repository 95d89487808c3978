"""What there is on this machine: which resource manager, its version, our rights, what would work."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from hpctwin.errors import HpctwinError
from hpctwin.rms.manager import ResourceManager

__all__ = ["Finding", "Probe", "is_here", "look", "tried"]

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
