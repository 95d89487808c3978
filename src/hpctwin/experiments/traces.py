"""Where experiments find real traces."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["find_trace"]


def find_trace(name: str) -> Path | None:
    """A trace in the folder that HPCTWIN_TRACES names, gzipped or not; None if it is not there.

    Args:
        name: the file's name without .gz, such as ``theta_2022.swf``.
    """
    folder = os.environ.get("HPCTWIN_TRACES")
    if not folder:
        return None
    whole = Path(folder)
    for place in (whole / "swf", whole, whole / "energy", whole / "jobs_csv"):
        for path in (place / f"{name}.gz", place / name):
            if path.is_file():
                return path
    return None
