"""What a user may give for a workload and a machine, made into one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hpctwin.errors import ConfigError, WorkloadError
from hpctwin.model import Cluster, Workload

__all__ = ["as_cluster", "as_workload"]


def as_workload(given: Workload | str | os.PathLike[str]) -> Workload:
    """A workload as it is, or the one in a file.

    Raises:
        TraceError: the file cannot be read as a workload.
        WorkloadError: it is neither.
    """
    if isinstance(given, Workload):
        return given
    if isinstance(given, (str, os.PathLike)):
        from hpctwin.formats import read_workload

        return read_workload(Path(given))
    if hasattr(given, "columns"):
        raise WorkloadError(
            f"a {type(given).__name__} is no workload; make one with Workload.from_frame(table)"
        )
    raise WorkloadError(f"{given!r:.60} is no workload: give a Workload or the path of a trace")


def as_cluster(given: Cluster | int | str | os.PathLike[str]) -> Cluster:
    """A cluster as it is, one of so many equal nodes, or the one in a file.

    Raises:
        ConfigError: it is none of them, or the file or the number is not valid.
    """
    if isinstance(given, Cluster):
        return given
    number: Any = given
    if isinstance(given, (str, os.PathLike)):
        from hpctwin.formats.machines import read_cluster

        return read_cluster(Path(given))
    if not isinstance(given, bool) and hasattr(given, "__index__"):
        return Cluster.uniform(nodes=number.__index__())
    raise ConfigError(
        f"{given!r:.60} is no cluster: give a Cluster, a number of nodes or the path of a YAML file"
    )
