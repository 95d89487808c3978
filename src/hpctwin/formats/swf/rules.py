"""Rules of the SWF reader for what a log leaves open."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from hpctwin.errors import ConfigError

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
    """How SWF fields become jobs; the read notes count every use of a rule.

    Args:
        missing_walltime: Jobs without requested time (field 9 not above 0): give them the ``"runtime"``
            (at least 1 ms), ``"drop"`` them, or give all the same number of seconds.
        no_nodes: Jobs without requested processors (field 8): use the ``"allocated"`` ones (field
            5), or ``"drop"`` them.
        no_runtime: Jobs without run time (field 4), unless cancelled before they started:
            ``"drop"`` them or let them run ``"zero"`` seconds.
        cancelled: Jobs with status 5 that never ran: ``"drop"`` or ``"keep"`` them. A kept job
            waits until it was cancelled (submit + wait), with the requested time, or 0, as run
            time. Jobs with unknown wait are always dropped: nothing says how long they waited.
        overrun: Run times above the requested time: ``"keep"`` them (the simulation decides whether
            the walltime ends them) or ``"cut"`` them to the requested time.
        procs_per_node: Processors per node; node counts are rounded up.
        processors: Meaning of the log's processors. ``"nodes"``: nodes, or parts of them (see
            ``procs_per_node``). ``"cores"``: cores of shared nodes; a job has a task of one core
            for each, with the memory requested per processor (field 10).
        partition_field: Field that names the partition: ``"queue"`` (15), ``"partition"`` (16) or
            ``"none"``.
        rebase: Whether the first submission time becomes zero; else times stay as in the file.

    Raises:
        ConfigError: An option has an invalid value.
    """

    missing_walltime: Literal["runtime", "drop"] | float = "runtime"
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
        walltime = self.missing_walltime
        if walltime not in ("runtime", "drop") and not (
            isinstance(walltime, int | float) and math.isfinite(walltime) and walltime > 0
        ):
            raise ConfigError(
                f"SWF rule missing_walltime is {walltime!r}, expected 'runtime', 'drop' or a number "
                "of seconds above 0"
            )
        if not isinstance(self.procs_per_node, int) or self.procs_per_node < 1:
            raise ConfigError(
                f"SWF rule procs_per_node is {self.procs_per_node!r}, expected a whole number above 0"
            )


def _or(choices: tuple[str, ...]) -> str:
    return " or ".join(repr(choice) for choice in choices)
