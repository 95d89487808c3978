"""Every fault hpctwin raises on purpose.

::

    HpctwinError
    ├── ConfigError (ValueError)          a cluster, policy or option that cannot be right
    │   └── ArgumentError (TypeError)     an argument of a kind that a function does not take
    ├── WorkloadError (ValueError)        a workload that cannot be right
    │   └── TraceError                    a file that cannot be read as the trace it claims to be
    ├── UnknownNameError (LookupError)    a name that no policy, generator, … has
    ├── OutputError (OSError)             a file or folder that cannot be written
    ├── DownloadError (OSError)           a file that could not be fetched, or came damaged
    │   └── RefusedError                  … since the server refused it
    ├── PolicyError (ValueError)          a policy written by the user that does not work
    ├── SimulationError (RuntimeError)    a simulation asked for what it cannot do
    ├── UnreachableError                  a resource manager that does not answer
    │   └── LostAnswerError               … and may have done what it was asked for
    ├── CommandError (RuntimeError)       a resource manager that refuses a command
    ├── FormatError (ValueError)          what came from a resource manager is not in a form that is known
    ├── ContradictionError (ValueError)   an event that cannot be true of what is known already
    ├── JournalError                      a journal that cannot be read or written
    ├── QueueError                        a facility's queue that cannot be used, or not like this
    └── ExperimentError (RuntimeError)    an experiment on a real cluster that cannot go on

A message says what was wrong, where, and what would be right. ``exit_code`` of an error is what the
command ends with: 2 if the call or its input is wrong, 1 if the work failed.
"""

from __future__ import annotations

import difflib
import errno
import importlib
from collections.abc import Iterable

__all__ = [
    "ArgumentError",
    "CommandError",
    "ConfigError",
    "ContradictionError",
    "DownloadError",
    "ExperimentError",
    "FormatError",
    "HpctwinError",
    "JournalError",
    "LostAnswerError",
    "OutputError",
    "PolicyError",
    "QueueError",
    "RefusedError",
    "SimulationError",
    "TraceError",
    "UnknownNameError",
    "UnreachableError",
    "WorkloadError",
    "exit_code_of",
    "in_brief",
    "near",
    "need",
]


def near(name: str, known: Iterable[str]) -> str:
    """A sentence that asks whether the nearest of the known names was meant; empty if none is near."""
    names = list(known)
    # Letters that changed places are the commonest slip, and difflib sees two of three as wrong.
    found = [one for one in names if sorted(one) == sorted(name)]
    found = found or difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f" Did you mean {found[0]!r}?" if found else ""


_WRONG_PATH = {
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EROFS,
    errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL,
}  # fmt: skip
"""What the system says of a path that the user gave wrongly; a full disk, say, is not among it."""


def exit_code_of(error: Exception) -> int:
    """Return the exit code of a command that ends with an error.

    Args:
        error: The error, of hpctwin or of the system.

    Returns:
        2 if the call or its input is wrong, 1 if the work failed.
    """
    # A file that cannot be written is a wrong path, or a full disk: the system's error says which.
    said: BaseException | None = error
    while isinstance(said, OutputError):
        said = said.__cause__
    if isinstance(said, OSError) and said.errno is not None:
        return 2 if said.errno in _WRONG_PATH else 1
    return error.exit_code if isinstance(error, HpctwinError) else 1


def in_brief(value: object) -> str:
    """Return a value as messages show it: in one line of at most 60 characters."""
    return " ".join(f"{value!r}".split())[:60]


class HpctwinError(Exception):
    """Base of every error raised by hpctwin."""

    exit_code = 1


class ConfigError(HpctwinError, ValueError):
    """A configuration is not valid."""

    exit_code = 2


class ArgumentError(ConfigError, TypeError):
    """An argument of a function is of a kind that the function does not take."""


def need(package: str, extra: str, what: str) -> None:
    """Go on only if a package that an extra brings can be imported.

    Args:
        package: as it is imported, such as ``redis``.
        extra: that brings it, as in ``pip install 'hpctwin[live]'``.
        what: stands on it, for the message.

    Raises:
        ConfigError: the package, or one that it stands on, is not installed.
    """
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(
            f"{what} needs {error.name or package}, which is not installed: pip install 'hpctwin[{extra}]'"
        ) from error


class WorkloadError(HpctwinError, ValueError):
    """A workload is not valid."""

    exit_code = 2


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

    exit_code = 2

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        hint = near(name, names) if isinstance(name, str) else ""
        super().__init__(f"unknown {kind} {in_brief(name)}.{hint} Known: {', '.join(names)}")
        self.kind = kind
        self.name = name
        self.known = names


class OutputError(HpctwinError, OSError):
    """A file or folder cannot be written.

    Args:
        path: the file or folder.
        reason: what stands in the way.
    """

    exit_code = 2

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


class RefusedError(DownloadError):
    """A server refused what it was asked for.

    Args:
        url: where it was asked for.
        reason: what happened.
        code: HTTP's status.
        said: what came with it.
    """

    def __init__(self, url: str, reason: str, code: int, said: bytes) -> None:
        super().__init__(url, reason)
        self.code = code
        self.said = said


class PolicyError(HpctwinError, ValueError):
    """A policy written by the user cannot be used."""

    exit_code = 2


class SimulationError(HpctwinError, RuntimeError):
    """A simulation cannot do what was asked of it."""


class UnreachableError(HpctwinError):
    """A resource manager does not answer, or not in time."""


class LostAnswerError(UnreachableError):
    """A request was sent and no answer came: it may be done or not."""


class CommandError(HpctwinError, RuntimeError):
    """A resource manager refused a command, and did nothing; the message is in its words.

    Args:
        message: the last line of what it said.
        said: all of it.
    """

    def __init__(self, message: str, said: str = "") -> None:
        super().__init__(message)
        self.said = said or message


class FormatError(HpctwinError, ValueError):
    """What a resource manager wrote cannot be understood: an event, a list of nodes, a command's output."""

    exit_code = 2


class ContradictionError(HpctwinError, ValueError):
    """An event cannot be true of what is known already."""


class JournalError(HpctwinError):
    """The journal cannot be read or written, or is another twin's."""

    exit_code = 2


class QueueError(HpctwinError):
    """A facility's queue cannot be read or written, is another placer's, or has no such job."""

    exit_code = 2


class ExperimentError(HpctwinError, RuntimeError):
    """An experiment cannot be run on a real cluster, or went wrong there."""
