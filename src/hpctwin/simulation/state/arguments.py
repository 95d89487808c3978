"""Users' arguments: their conversion into a workload, a cluster and numbers per job."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from hpctwin.errors import ConfigError, WorkloadError, in_brief
from hpctwin.model import MS_PER_S, NEVER_MS, Cluster, ReadNotes, Workload
from hpctwin.model.arguments import column
from hpctwin.model.columns import ms_of
from hpctwin.policies import Policy

__all__ = [
    "SizingHook", "as_cluster", "as_workload", "begins_ms", "expected_ms", "risks", "stated_cluster",
]  # fmt: skip


def as_workload(given: Workload | str | os.PathLike[str]) -> Workload:
    """Return a workload as given, or read it from a file.

    Raises:
        TraceError: The file cannot be read as a workload.
        WorkloadError: The argument is neither a workload nor a path.
    """
    if isinstance(given, Workload):
        return given
    if isinstance(given, (str, os.PathLike)):
        from hpctwin.formats import read_workload

        return read_workload(Path(given))
    if hasattr(given, "columns"):
        raise WorkloadError(
            f"a {type(given).__name__} is not a workload; make one with Workload.from_frame(table)"
        )
    raise WorkloadError(
        f"{in_brief(given)} is not a workload; give a Workload or the path of a trace"
    )


def as_cluster(given: Cluster | int | str | os.PathLike[str]) -> Cluster:
    """Return a cluster as given, one of N equal nodes, or one read from a file.

    A string of digits counts as a number of nodes.

    Raises:
        ConfigError: The argument is none of these, or the file or the number is not valid.
    """
    if isinstance(given, Cluster):
        return given
    number: Any = given
    if isinstance(given, str) and given.isascii() and given.isdecimal():
        number = int(given)
    elif isinstance(given, (str, os.PathLike)):
        from hpctwin.formats.clusters import read_cluster

        return read_cluster(Path(given))
    if not isinstance(given, bool) and hasattr(number, "__index__") and not np.ndim(number):
        return Cluster.uniform(nodes=number.__index__())
    raise ConfigError(
        f"{in_brief(given)} is not a cluster; give a Cluster, a number of nodes or the "
        "path of a YAML file"
    )


def stated_cluster(workload: Workload, instead: str) -> Cluster:
    """Return a cluster of as many equal nodes as a workload states, with a note.

    Args:
        workload: The jobs.
        instead: Other ways to give the size, for the error message.

    Raises:
        ConfigError: The workload does not state the number of nodes.
    """
    nodes = workload.nodes_hint
    if nodes is None:
        raise ConfigError(
            f"size of the cluster is missing: workload {workload.name} does not state it; "
            f"give {instead}"
        )
    said = f"nodes: {nodes:,}, from {workload.notes.size_from}"
    return Cluster.uniform(nodes=nodes).noted(ReadNotes(remarks=(said,)))


def _of_jobs(given: npt.ArrayLike, workload: Workload, name: str) -> npt.NDArray[np.float64]:
    numbers = column(name, given)
    if numbers.shape != (len(workload),):
        raise ConfigError(
            f"{name} has shape {numbers.shape}; it must be ({len(workload)},), one value per job"
        )
    return numbers


def expected_ms(
    expected_s: npt.ArrayLike | None, workload: Workload
) -> npt.NDArray[np.int64] | None:
    """Return the expected runtime of each job in ms [jobs].

    Raises:
        ConfigError: The number of values is not that of the jobs, or a value is not a positive
            time.
    """
    if expected_s is None:
        return None
    expected = _of_jobs(expected_s, workload, "expected_s")
    if not np.isfinite(expected).all() or (expected <= 0).any():
        raise ConfigError("expected_s must be finite and above 0 for every job")
    return ms_of(expected)


def risks(risk: npt.ArrayLike | None, workload: Workload) -> npt.NDArray[np.float64] | None:
    """Return the predicted probability that each job fails [jobs].

    Raises:
        ConfigError: The number of values is not that of the jobs, or a value is not a probability.
    """
    if risk is None:
        return None
    given = _of_jobs(risk, workload, "risk")
    if not ((given >= 0) & (given <= 1)).all():
        raise ConfigError("risk must be a probability, 0 to 1, for every job")
    return given


def begins_ms(begin_s: npt.ArrayLike, workload: Workload) -> npt.NDArray[np.int64]:
    """Return the earliest start of each job in ms [jobs].

    Raises:
        ConfigError: The number of values is not that of the jobs, or a value is not a time.
    """
    begin = _of_jobs(begin_s, workload, "begin_s")
    wrong = np.flatnonzero(~(begin * MS_PER_S < NEVER_MS))
    if len(wrong):
        row = int(wrong[0])
        raise ConfigError(
            f"job {workload.job_id[row]}: begin_s is {begin[row]:g}; it must be a finite number"
        )
    return ms_of(np.maximum(begin, 0.0))


@runtime_checkable
class SizingHook(Protocol):
    """Decides which jobs run, and on how many nodes, such as `hpctwin_sizing.Sizing`.

    Its state is ``simulation.sized``: a value that is replaced and never changed, so that forks may
    share it. `hpctwin.engine.jobs.resizing` has the engine's operations to change a job's size.
    """

    name: str

    def check(self, cluster: Cluster, policy: Policy, workload: Workload) -> None:
        """Raise a `ConfigError` if the sizes of these jobs cannot be decided."""

    def begin(self, simulation: Any) -> Any:
        """Return the state of a `Simulation` in which nothing has happened."""

    def advance(
        self,
        simulation: Any,
        advance: Callable[..., Any],
        *,
        until_s: float | None,
        instants: int | None,
    ) -> Literal["done", "reached", "stepped"]:
        """Advance a simulation as `Simulation.advance` does; ``advance`` does so without sizing."""

    def expected_ms(self, simulation: Any) -> npt.NDArray[np.int64]:
        """Return the expected runtime of each job on the nodes it asks for, in ms [jobs]."""

    def save(self, simulation: Any) -> dict[str, Any]:
        """Return the state as plain values, for a file."""

    def resume(self, simulation: Any, saved: Mapping[str, Any]) -> None:
        """Continue from the values that `save` returned."""
