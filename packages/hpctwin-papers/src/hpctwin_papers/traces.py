"""Where experiments find real traces."""

from __future__ import annotations

import os
from pathlib import Path

from hpctwin.errors import WorkloadError

__all__ = ["find_trace", "need_trace"]


def find_trace(name: str) -> Path | None:
    """A trace in the folder that HPCTWIN_TRACES names, gzipped or not; None if it is not there.

    Args:
        name: the file's name without .gz, such as ``theta_2022.swf``.
    """
    folder = os.environ.get("HPCTWIN_TRACES")
    if not folder:
        return None
    whole = Path(folder)
    for place in (
        whole / "swf",
        whole,
        *(whole / kind for kind in ("energy", "jobs_csv", "telemetry")),
    ):
        for path in (place / f"{name}.gz", place / name):
            if path.is_file():
                return path
    return None


def need_trace(name: str) -> Path:
    """The same, of one that an experiment cannot do without.

    Raises:
        WorkloadError: it is not there.
    """
    path = find_trace(name)
    if path is None:
        raise WorkloadError(
            f"{name} is not in the folder that HPCTWIN_TRACES names; put it there, gzipped or not"
        )
    return path
