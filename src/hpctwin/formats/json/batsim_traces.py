"""Traces next to a Batsim workload: MPI calls (SMPI), and recorded use of nodes.

A file lists the trace of each rank, one a line. Files are relative to the file that names them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hpctwin.errors import TraceError, near
from hpctwin.model.files import cause
from hpctwin.network.profiles import SMPI_ACTIONS, Action, Usage

_MOST_BYTES = 1 << 28
"""Limit of one trace file."""


def read_smpi_trace(workload: Path, name: str) -> tuple[tuple[Action, ...], ...]:
    """Return the actions of each rank of an SMPI trace.

    Args:
        workload: File of the workload.
        name: File that lists the ranks' traces, relative to it.

    Raises:
        TraceError: A file cannot be read or has an unknown action; the message names the line.
    """
    return tuple(tuple(_actions(path)) for path in _ranks(workload, name))


def read_usage_trace(workload: Path, name: str) -> tuple[Usage, ...]:
    """Return the recorded use of the node of each rank; otherwise like `read_smpi_trace`.

    Raises:
        TraceError: See `read_smpi_trace`.
    """
    found = []
    for path in _ranks(workload, name):
        rows = []
        for line, words in _lines(path):
            if len(words) != 4 or words[1] != "m_usage":
                raise TraceError(path, "expected 'RANK m_usage USAGE FLOPS'", line=line)
            usage, flops = _numbers(path, line, words[2:])
            if usage > 1:
                raise TraceError(path, f"usage is {usage:g}, expected 0 to 1", line=line)
            rows.append((usage, flops))
        table = np.array(rows, np.float64).reshape(-1, 2)
        found.append(Usage(table[:, 0], table[:, 1]))
    return tuple(found)


def _actions(path: Path) -> Iterator[Action]:
    for line, words in _lines(path):
        if len(words) < 2 or words[1] not in SMPI_ACTIONS:
            said = words[1][:40] if len(words) > 1 else ""
            raise TraceError(
                path,
                f"action {said!r} is not supported; supported are {', '.join(SMPI_ACTIONS)}."
                f"{near(said, SMPI_ACTIONS)}",
                line=line,
            )
        least = SMPI_ACTIONS[words[1]]
        if len(words) - 2 < least:
            raise TraceError(path, f"{words[1]} needs {least} numbers", line=line)
        yield words[1], _numbers(path, line, words[2:])


def _ranks(workload: Path, name: str) -> list[Path]:
    """Return the files that a file lists; all must be in the workload's folder or below."""
    folder = workload.parent.resolve()
    listed = _inside(workload, folder, workload.parent / name)
    ranks = [
        _inside(listed, folder, listed.parent / " ".join(words)) for _, words in _lines(listed)
    ]
    if not ranks:
        raise TraceError(listed, "lists no trace, expected one file for each rank")
    return ranks


def _inside(by: Path, folder: Path, path: Path) -> Path:
    if not path.resolve().is_relative_to(folder):
        raise TraceError(
            by,
            f"names the trace {str(path)[:200]!r}, which is not in the workload's folder; copy it there",
        )
    return path


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the words of each line that is neither empty nor a comment."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise TraceError(path, f"is larger than {_MOST_BYTES >> 20} MiB")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TraceError(path, "not a text file") from error
    except (OSError, ValueError) as error:
        raise TraceError(path, cause(error)) from error
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if words and not words[0].startswith("#"):
            yield number, words


def _numbers(path: Path, line: int, words: list[str]) -> tuple[float, ...]:
    found = []
    for word in words:
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf:
            raise TraceError(path, f"{word[:40]!r} must be a number, 0 or more", line=line)
        found.append(value)
    return tuple(found)
