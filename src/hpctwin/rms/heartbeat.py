"""The dead-man's handle: a file that the twin renews, and a check that does not depend on it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from hpctwin.errors import OutputError
from hpctwin.model import check_file, write_atomically
from hpctwin.rms.manager import UnreachableError

__all__ = ["age_s", "beat", "why_no_beat"]


def beat(path: Path, seq: int) -> None:
    """Write that the twin lives.

    Raises:
        UnreachableError: the file cannot be written.
    """
    body = {"time_s": time.time(), "seq": seq, "pid": os.getpid()}
    try:
        with write_atomically(path) as file:
            file.write(json.dumps(body).encode())
    except OutputError as error:
        raise UnreachableError(f"heartbeat: {error}") from error


def why_no_beat(path: Path) -> str | None:
    """Why a heartbeat cannot be written, in words; None if it can."""
    try:
        check_file(path)
    except OutputError as error:
        return f"heartbeat: {error}"
    return None


def age_s(path: Path) -> float | None:
    """How long ago the last sign of life was, by the file's own time; None if there never was one."""
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except FileNotFoundError:
        return None
