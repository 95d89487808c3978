"""The dead-man's handle: a file that the twin renews, and a check that does not depend on it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from hpctwin.model import write_atomically

__all__ = ["age_s", "beat"]


def beat(path: Path, seq: int) -> None:
    """Write that the twin lives."""
    body = {"time_s": time.time(), "seq": seq, "pid": os.getpid()}
    with write_atomically(path) as file:
        file.write(json.dumps(body).encode())


def age_s(path: Path) -> float | None:
    """How long ago the last sign of life was, by the file's own time; None if there never was one."""
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except FileNotFoundError:
        return None
