"""Every error that hpctwin raises on purpose.

::

    HpctwinError
    ├── ConfigError (ValueError)          an invalid cluster, policy or option
    │   ├── ArgumentError (TypeError)     an argument of a type that a function does not accept
    │   └── NoRouteError                  two hosts of a network that are not connected
    ├── WorkloadError (ValueError)        an invalid workload
    │   └── TraceError                    a file that cannot be read as a trace of its format
    ├── UnknownNameError (LookupError)    an unknown name of a policy, generator, …
    │   └── UnknownKeyError (KeyError)    … of an item of a result
    ├── OutputError (OSError)             a file or folder that cannot be written
    ├── DownloadError (OSError)           a file that could not be fetched, or arrived damaged
    │   └── RefusedError                  … because the server refused the request
    ├── PolicyError (ValueError)          a custom policy that does not work
    ├── SimulationError (RuntimeError)    an unsupported request to the simulation
    ├── UnreachableError                  a resource manager that does not answer
    │   └── LostAnswerError               … and may have carried out the request
    ├── CommandError (RuntimeError)       a resource manager that refuses a command
    ├── FormatError (ValueError)          data of a resource manager in an unknown form
    ├── ContradictionError (ValueError)   an event that contradicts the known state
    ├── JournalError                      a journal that cannot be read or written
    ├── QueueError                        a facility's queue that cannot be used, or not in this way
    ├── ExperimentError (RuntimeError)    an experiment on a real cluster that cannot continue
    ├── DeniedError                       a request to the server that is refused
    ├── TooLargeError                     a what-if that would take too long
    └── LateError                         … or that was stopped

A message says what is wrong, where, and what to do. The ``exit_code`` of an error is the exit code
of the command: 2 if the call or its input is wrong, 1 if the work failed.
"""

from __future__ import annotations

import errno
import importlib
from collections.abc import Iterable

from hpctwin.guesses import near

__all__ = [
    "ArgumentError",
    "CommandError",
    "ConfigError",
    "ContradictionError",
    "DeniedError",
    "DownloadError",
    "ExperimentError",
    "FormatError",
    "HpctwinError",
    "JournalError",
    "LateError",
    "LostAnswerError",
    "NoRouteError",
    "OutputError",
    "PolicyError",
    "QueueError",
    "RefusedError",
    "SimulationError",
    "TooLargeError",
    "TraceError",
    "UnknownKeyError",
    "UnknownNameError",
    "UnreachableError",
    "WorkloadError",
    "exit_code_of",
    "in_brief",
    "near",
    "need",
]


_WRONG_PATH = {
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EROFS,
    errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL,
}  # fmt: skip
"""Error numbers of a wrong path from the user; a full disk is not one of them."""


def exit_code_of(error: Exception) -> int:
    """Return the exit code of a command that ends with an error.

    Args:
        error: The error, of hpctwin or of the system.

    Returns:
        2 if the call or its input is wrong, 1 if the work failed.
    """
    # An unwritable file is a wrong path or a full disk; the system's error distinguishes them.
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


class NoRouteError(ConfigError):
    """Two hosts of a network are not connected.

    Args:
        network: Name of the network.
        source: Name or number of the first host.
        target: Name or number of the second host.
    """

    def __init__(self, network: str, source: str | int, target: str | int) -> None:
        super().__init__(f"network {network!r} has no route from {source!r} to {target!r}")
        self.source, self.target = source, target


def need(package: str, extra: str, what: str) -> None:
    """Raise an error unless a package of an extra can be imported.

    Args:
        package: Import name of the package, such as ``redis``.
        extra: Extra that installs it, as in ``pip install 'hpctwin[live]'``.
        what: Feature that needs the package, for the message.

    Raises:
        ConfigError: The package, or one of its dependencies, is not installed.
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
        path: The file.
        reason: Description of what was found and what was expected.
        line: Line number from 1, if known.
        field: Name of the field, if known.
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
        kind: Kind of the name, for example ``ordering``.
        name: The unknown name.
        known: The registered names.
    """

    exit_code = 2

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        hint = near(name, names) if isinstance(name, str) else ""
        listed = f" Known: {', '.join(names)}" if names else ""
        super().__init__(f"unknown {kind} {in_brief(name)}.{hint}{listed}")
        self.kind = kind
        self.name = name
        self.known = names


class UnknownKeyError(UnknownNameError, KeyError):
    """A result has no item of this name."""

    __str__ = Exception.__str__  # a KeyError shows its message as a quoted text


class OutputError(HpctwinError, OSError):
    """A file or folder cannot be written.

    Args:
        path: The file or folder.
        reason: The cause.
    """

    exit_code = 2

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path}: cannot be written: {reason}")
        self.path = str(path)
        self.reason = reason


class DownloadError(HpctwinError, OSError):
    """A file could not be fetched, or the received content is not the expected one.

    Args:
        url: Address of the request.
        reason: The cause.
    """

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url}: {reason}")
        self.url = url
        self.reason = reason


class RefusedError(DownloadError):
    """A server refused a request.

    Args:
        url: Address of the request.
        reason: The cause.
        code: HTTP status.
        said: Body of the response.
    """

    def __init__(self, url: str, reason: str, code: int, said: bytes) -> None:
        super().__init__(url, reason)
        self.code = code
        self.said = said


class PolicyError(HpctwinError, ValueError):
    """A policy written by the user cannot be used."""

    exit_code = 2


class SimulationError(HpctwinError, RuntimeError):
    """A simulation does not support a request."""


class UnreachableError(HpctwinError):
    """A resource manager does not answer, or not in time."""


class LostAnswerError(UnreachableError):
    """A request was sent, but no answer arrived; it may have been carried out or not."""


class CommandError(HpctwinError, RuntimeError):
    """A resource manager refused a command and did nothing; the message quotes it.

    Args:
        message: The last line of its output.
        said: Its whole output.
    """

    def __init__(self, message: str, said: str = "") -> None:
        super().__init__(message)
        self.said = said or message


class FormatError(HpctwinError, ValueError):
    """A resource manager's event, node list or other output is not understood."""

    exit_code = 2


class ContradictionError(HpctwinError, ValueError):
    """An event contradicts the known state."""


class JournalError(HpctwinError):
    """The journal cannot be read or written, or is another twin's."""

    exit_code = 2


class QueueError(HpctwinError):
    """A facility's queue is unusable, is another placer's, or lacks the job."""

    exit_code = 2


class ExperimentError(HpctwinError, RuntimeError):
    """An experiment cannot run on a real cluster, or failed there."""


class DeniedError(HpctwinError):
    """A request to the server is refused.

    Args:
        status: HTTP status of the answer.
        detail: Reason, as text.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class TooLargeError(HpctwinError):
    """A what-if would take too long, by a bound computed before it starts."""


class LateError(HpctwinError):
    """A what-if was stopped, because it took too long or its client has left."""
