"""What an SWF reader does where the log leaves something open."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from hpctwin.errors import ConfigError

__all__ = ["SwfRules"]

_CHOICES = {
    "no_nodes": ("allocated", "drop"),
    "no_runtime": ("drop", "zero"),
    "cancelled": ("keep", "drop"),
    "overrun": ("keep", "cut"),
    "processors": ("nodes", "cores"),
    "partition_field": ("queue", "partition", "none"),
}


@dataclass(frozen=True)
class SwfRules:
    """How SWF fields become jobs. Every rule that touches jobs is counted in the read notes.

    Args:
        no_walltime: jobs without requested time (field 9 not above 0): take the ``"runtime"``
            (at least 1 ms), ``"drop"`` them, or give all the same number of seconds.
        no_nodes: jobs without requested processors (field 8): take the ``"allocated"`` ones
            (field 5), or ``"drop"`` them.
        no_runtime: jobs without run time (field 4), unless cancelled before they started:
            ``"drop"`` them or let them run ``"zero"`` seconds.
        cancelled: jobs with status 5 that never ran: ``"drop"`` them, or ``"keep"`` them, waiting
            until they were cancelled (submit + wait), with the requested time, or 0, as run
            time. Those whose wait is unknown are dropped in any case: nothing says how long
            they waited.
        overrun: run times above the requested time: ``"keep"`` them (whether the walltime ends
            them is the simulation's affair) or ``"cut"`` them to the requested time.
        procs_per_node: processors that make one node; node counts are rounded up.
        processors: what the log's processors are: ``"nodes"``, or parts of them (see ``procs_per_node``); or
            ``"cores"`` of shared nodes: a job has a task of one core, with the memory asked per
            processor (field 10), for each.
        partition_field: the field that names the partition: ``"queue"`` (15), ``"partition"``
            (16) or ``"none"``.
        rebase: make the first submission time zero; else times stay as in the file.

    Raises:
        ConfigError: an option has a value that it cannot have.
    """

    no_walltime: Literal["runtime", "drop"] | float = "runtime"
    no_nodes: Literal["allocated", "drop"] = "allocated"
    no_runtime: Literal["drop", "zero"] = "drop"
    cancelled: Literal["keep", "drop"] = "drop"
    overrun: Literal["keep", "cut"] = "keep"
    procs_per_node: int = 1
    processors: Literal["nodes", "cores"] = "nodes"
    partition_field: Literal["queue", "partition", "none"] = "queue"
    rebase: bool = True

    def __post_init__(self) -> None:
        for option, choices in _CHOICES.items():
            value = getattr(self, option)
            if value not in choices:
                raise ConfigError(f"SWF rule {option} is {value!r}, expected {_or(choices)}")
        walltime = self.no_walltime
        if walltime not in ("runtime", "drop") and not (
            isinstance(walltime, int | float) and math.isfinite(walltime) and walltime > 0
        ):
            raise ConfigError(
                f"SWF rule no_walltime is {walltime!r}, expected 'runtime', 'drop' or a number "
                "of seconds above 0"
            )
        if not isinstance(self.procs_per_node, int) or self.procs_per_node < 1:
            raise ConfigError(
                f"SWF rule procs_per_node is {self.procs_per_node!r}, expected a whole number above 0"
            )


def _or(choices: tuple[str, ...]) -> str:
    return " or ".join(repr(choice) for choice in choices)
