"""Parts of ``hpctwin simulate``: external scheduler, sizing, planned durations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from hpctwin.model import Workload
    from hpctwin.simulation import Result, Simulation

__all__ = ["backfill_of", "check_alone", "driven", "planned_s"]


def backfill_of(
    scheduler: str | None,
    sizing: str | None,
    policy: str | None,
    order: str | None,
    backfill: str | None,
) -> str | None:
    """Return the backfill: ``outside`` exactly with an external scheduler or a sizing.

    Args:
        scheduler: Value of --scheduler.
        sizing: Value of --sizing.
        policy: Value of --policy.
        order: Value of --order.
        backfill: Value of --backfill.

    Raises:
        ConfigError: Several options decide on starts, or none does.
    """
    from hpctwin.errors import ConfigError
    from hpctwin.policies.backfills import OUTSIDE

    if scheduler is None and sizing is None:
        if backfill == OUTSIDE:
            raise ConfigError(
                f"--backfill {OUTSIDE}: nobody starts unless somebody outside says so; give --scheduler, or "
                "--sizing"
            )
        return backfill
    if scheduler is not None and sizing is not None:
        raise ConfigError("--scheduler and --sizing both decide who starts: give one of them")
    if (policy, order, backfill) != (None, None, None):
        option = "--sizing" if scheduler is None else "--scheduler"
        raise ConfigError(
            f"{option} decides itself who starts; leave --policy, --order and --backfill out"
        )
    return OUTSIDE


def check_alone(sizing: str | None, others: Mapping[str, Any]) -> None:
    """Check that no given option is incompatible with a sizing.

    Args:
        sizing: Value of --sizing.
        others: Values of other options by name.

    Raises:
        ConfigError: One is incompatible.
    """
    from hpctwin.errors import ConfigError

    asked = [name for name, value in others.items() if value]
    if sizing is not None and asked:
        raise ConfigError(f"--sizing does not go with {', '.join(asked)}")


def driven(simulation: Simulation, scheduler: str, every: str | None) -> Result:
    """Return the result of a run under an external scheduler.

    Args:
        simulation: A new simulation.
        scheduler: Value of --scheduler.
        every: Value of --scheduler-every.
    """
    from hpctwin.model import parse_duration_s
    from hpctwin.simulation.schedulers import BatsimScheduler, JsonLinesScheduler, drive

    every_s = None if every is None else parse_duration_s(every)
    found: BatsimScheduler | JsonLinesScheduler
    if scheduler.startswith("batsim:"):
        found = BatsimScheduler(scheduler.removeprefix("batsim:"), simulation.cluster)
    else:
        found = JsonLinesScheduler(scheduler, simulation.cluster)
    with found:
        return drive(simulation, found, every_s=every_s)


def planned_s(workload: Workload, by: str) -> npt.NDArray[np.float64] | None:
    """Return the planned duration of each job, in seconds [jobs]; None for walltimes.

    Args:
        workload: The jobs.
        by: Value of --plan-by.

    Raises:
        ConfigError: The workload has no predicted runtimes.
    """
    from hpctwin.errors import ConfigError

    if by == "walltime":
        return None
    if "runtime_s" not in workload.predicted:
        raise ConfigError(
            f"--plan-by prediction: {workload.name} has no predicted_runtime_s; "
            "hpctwin predictor apply writes it"
        )
    return workload.predicted_runtime_s
