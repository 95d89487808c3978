"""Heartbeat of an acting twin: a file that it renews for a site's submit rule."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpctwin.errors import OutputError, UnreachableError
from hpctwin.model import check_file, write_atomically

__all__ = ["beat", "why_no_beat"]


def beat(
    path: Path, seq: int, time_s: float | None = None, more: Mapping[str, Any] | None = None
) -> None:
    """Write that the twin is in charge.

    Args:
        path: Path of the file.
        seq: Number of the last event that the twin has processed.
        time_s: Current time by the resource manager's clock; by default this computer's clock.
        more: Further fields for the submit rule.

    Raises:
        UnreachableError: The file cannot be written.
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
