"""Every fault hpctwin raises on purpose.

::

    HpctwinError
    ├── ConfigError (ValueError)        a cluster, policy or option that cannot be right
    ├── WorkloadError (ValueError)      a workload that cannot be right
    │   └── TraceError                  a file that cannot be read as the trace it claims to be
    ├── UnknownNameError (LookupError)  a name that no policy, generator, … has
    ├── OutputError (OSError)           a file or folder that cannot be written
    ├── DownloadError (OSError)         a file that could not be fetched, or came damaged
    ├── PolicyError (ValueError)        a policy written by the user that does not work
    └── SimulationError (RuntimeError)  a simulation asked for what it cannot do

A message says what was wrong, where, and what would be right.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "ConfigError",
    "DownloadError",
    "HpctwinError",
    "OutputError",
    "PolicyError",
    "SimulationError",
    "TraceError",
    "UnknownNameError",
    "WorkloadError",
]


class HpctwinError(Exception):
    """Base of every error raised by hpctwin."""


class ConfigError(HpctwinError, ValueError):
    """A configuration is not valid."""


class WorkloadError(HpctwinError, ValueError):
    """A workload is not valid."""


class TraceError(WorkloadError):
    """A trace file cannot be read.

    Args:
        path: the file.
        reason: what was found and what was expected.
        line: line number, from 1, where known.
        field: name of the field, where known.
    """

    def __init__(
        self, path: object, reason: str, *, line: int | None = None, field: str | None = None
    ) -> None:
        where = str(path)
        if line is not None:
            where += f", line {line}"
        if field is not None:
            where += f", field {field}"
        super().__init__(f"{where}: {reason}")
        self.path = str(path)
        self.reason = reason
        self.line = line
        self.field = field


class UnknownNameError(HpctwinError, LookupError):
    """A name is not registered.

    Args:
        kind: what the name should name, for example ``ordering``.
        name: the name that was asked for.
        known: the names there are.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        super().__init__(f"unknown {kind} {name!r}.{hint} Known: {', '.join(names)}")
        self.kind = kind
        self.name = name
        self.known = names


class OutputError(HpctwinError, OSError):
    """A file or folder cannot be written.

    Args:
        path: the file or folder.
        reason: what stands in the way.
    """

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path}: cannot be written: {reason}")
        self.path = str(path)
        self.reason = reason


class DownloadError(HpctwinError, OSError):
    """A file could not be fetched, or what came is not what was asked for.

    Args:
        url: where it was asked for.
        reason: what happened.
    """

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url}: {reason}")
        self.url = url
        self.reason = reason


class PolicyError(HpctwinError, ValueError):
    """A policy written by the user cannot be used."""


class SimulationError(HpctwinError, RuntimeError):
    """A simulation cannot do what was asked of it."""
