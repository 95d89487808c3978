"""Files that only their owner may read."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["make_private"]


def make_private(path: Path) -> None:
    """Make an SQLite file if it is not there; it and what SQLite puts beside it, for its owner only.

    Raises:
        OSError: it cannot be made, or is somebody else's.
    """
    # SQLite gives the files beside it the mode of this one.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        if file.exists() and file.stat().st_mode & 0o077:
            file.chmod(0o600)
