"""Search for real traces of experiments."""

from __future__ import annotations

import os
from pathlib import Path

from hpctwin.errors import WorkloadError


def find_trace(name: str) -> Path | None:
    """Return a trace in the folder of HPCTWIN_TRACES, gzipped or not, or None.

    Args:
        name: File name without .gz, such as ``theta_2022.swf``.
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
    """Return a trace that an experiment requires, as `find_trace`."""
    path = find_trace(name)
    if path is None:
        raise WorkloadError(
            f"{name}: not found in the folder of HPCTWIN_TRACES; put the file there, gzipped or not"
        )
    return path
